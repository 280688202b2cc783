//! The API document, and answers held against it: by status, media type, and what of JSON Schema it uses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use crate::{Client, Reply, TOKEN};

const SOON: Duration = Duration::from_secs(20);

/// The document as a server shows it.
///
/// # Errors
/// When it does not.
pub async fn document(client: &Client) -> Result<Value> {
    let document = client.get("/openapi.json").await?.expect(200)?.json()?;
    ensure!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
    Ok(document)
}

/// One operation of the document.
#[derive(Debug)]
pub struct Operation<'a> {
    /// The method, in capitals.
    pub method: String,
    /// The path with its parts in braces.
    pub path: &'a str,
    /// What the document says of it.
    pub described: &'a Value,
}

impl Operation<'_> {
    /// Whether it is of the admin port.
    pub fn is_admin(&self) -> bool {
        self.described["tags"][0] == "admin"
    }

    /// Its path with names for what is in braces.
    pub fn path(&self, name: &str) -> String {
        self.path.replace("{topic}", name).replace("{group}", name)
    }

    /// Calls it, with the admin token or with a wrong one where it is of the admin port.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call(
        &self,
        client: &Client,
        path: &str,
        kind: &str,
        body: &str,
        token: bool,
    ) -> Result<Reply> {
        let token = format!("Bearer {}", if token { TOKEN } else { "nobody's" });
        let headers = [("content-type", kind), ("authorization", token.as_str())];
        if self.is_admin() {
            client.admin_call(&self.method, path, &headers, body.to_owned()).await
        } else {
            client.call(&self.method, path, &headers[..1], body.to_owned(), SOON).await
        }
    }

    /// Sees that the answer is one that the document lists for this operation.
    ///
    /// # Errors
    /// When it is not; the message says in what.
    pub fn check(&self, document: &Value, reply: &Reply, asked: &str) -> Result<()> {
        let what = format!("{} {asked}: {reply}", self.method);
        let response = self.described["responses"].get(reply.status.to_string());
        let content = response.with_context(|| format!("a status that is not listed: {what}"))?["content"]
            .as_object()
            .with_context(|| format!("no content: {what}"))?;
        let sent = reply.header("content-type").unwrap_or_default();
        let kind = sent.split(';').next().unwrap_or_default();
        let schema = &content.get(kind).with_context(|| format!("{sent} is not listed: {what}"))?["schema"];
        let body = if kind == "application/json" {
            reply.json()?
        } else {
            Value::String(String::from_utf8_lossy(&reply.body).into_owned())
        };
        matches(document, schema, &body).map_err(|error| anyhow::anyhow!("{error}: {what}"))
    }
}

/// Every operation of the document.
///
/// # Errors
/// When it is no document.
pub fn operations(document: &Value) -> Result<Vec<Operation<'_>>> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, described) in methods.as_object().context("methods")? {
            operations.push(Operation { method: method.to_ascii_uppercase(), path, described });
        }
    }
    Ok(operations)
}

/// Holds a value against what of JSON Schema the document uses.
fn matches(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(to) = schema["$ref"].as_str() {
        let target = document.pointer(&to[1..]).ok_or_else(|| format!("{to} leads nowhere"))?;
        return matches(document, target, value);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(schemas) = schema[choice].as_array() {
            let fits = schemas.iter().any(|schema| matches(document, schema, value).is_ok());
            return if fits { Ok(()) } else { Err(format!("{value} is none of {schemas:?}")) };
        }
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    let right_type = match &schema["type"] {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    };
    let listed = schema["enum"].as_array().is_none_or(|words| words.contains(value))
        && schema.get("const").is_none_or(|only| only == value);
    if !right_type || !listed {
        return Err(format!("{value} is not {schema}"));
    }
    if let Some(members) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                return Err(format!("{name} is missing in {value}"));
            }
        }
        let none = Map::new();
        let known = schema["properties"].as_object().unwrap_or(&none);
        for (name, member) in members {
            match known.get(name) {
                Some(schema) => matches(document, schema, member)?,
                None if schema["additionalProperties"].is_object() => {
                    matches(document, &schema["additionalProperties"], member)?;
                }
                // What is not listed would be news to readers of the document.
                None if !known.is_empty() => return Err(format!("{name} is not described in {schema}")),
                None => {}
            }
        }
    }
    for item in value.as_array().into_iter().flatten() {
        matches(document, &schema["items"], item)?;
    }
    Ok(())
}
