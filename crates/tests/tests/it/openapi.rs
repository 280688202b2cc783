//! The API document held against the process that serves it: what it answers to bad and to good input is what the
//! document says, by status, media type and required members.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Reply, Server, Subscribe, TOKEN, event};
use serde_json::{Map, Value, json};

const SOON: Duration = Duration::from_secs(20);

/// One operation of the document.
struct Operation<'a> {
    method: String,
    path: &'a str,
    described: &'a Value,
}

impl Operation<'_> {
    fn is_admin(&self) -> bool {
        self.described["tags"][0] == "admin"
    }

    /// Its path with names for what is in braces.
    fn path(&self, name: &str) -> String {
        self.path.replace("{topic}", name).replace("{group}", name)
    }

    async fn call(&self, client: &Client, path: &str, kind: &str, body: &str, token: bool) -> Result<Reply> {
        let token = format!("Bearer {}", if token { TOKEN } else { "nobody's" });
        let headers = [("content-type", kind), ("authorization", token.as_str())];
        if self.is_admin() {
            client.admin_call(&self.method, path, &headers, body.to_owned()).await
        } else {
            client.call(&self.method, path, &headers[..1], body.to_owned(), SOON).await
        }
    }

    /// The answer is one that the document lists for this operation.
    fn check(&self, document: &Value, reply: &Reply, asked: &str) -> Result<()> {
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

fn operations(document: &Value) -> Result<Vec<Operation<'_>>> {
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
    let right_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => true,
    };
    let listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
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

/// What both ports serve without being asked for a credential.
#[tokio::test]
async fn it_says_what_is_open() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = document(&client).await?;
    for operation in operations(&document)? {
        let open = operation.described["security"].as_array().context("security")?;
        let open = open.is_empty() || open.contains(&json!({}));
        if operation.is_admin() {
            let path = operation.path("t");
            let reply = operation.call(&client, &path, "text/plain", "", false).await?;
            ensure!((reply.status == 401) != open, "{} {path}: {reply}", operation.method);
        }
    }
    client.call("POST", "/openapi.json", &[], "", SOON).await?.expect_error(405, "method_not_allowed")?;
    Ok(())
}

async fn document(client: &Client) -> Result<Value> {
    let document = client.get("/openapi.json").await?.expect(200)?.json()?;
    ensure!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
    Ok(document)
}

#[tokio::test]
async fn bad_input_is_answered_as_the_document_says() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = document(&client).await?;
    for operation in operations(&document)? {
        let path = operation.path("none-such");
        let mut asked = vec![path.clone(), operation.path("a%20b"), format!("{path}?unknown=1")];
        let parameters = operation.described["parameters"].as_array();
        for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().context("a name")?;
            for value in ["", "none-such", "-1", "a%20b", "%ff", "0", "x&x=x", "x_DLQ"] {
                asked.push(format!("{path}?{name}={value}"));
                let required = [("topic", "t"), ("clientId", "nobody")];
                for (other, value_of) in required.into_iter().filter(|(other, _)| *other != name) {
                    asked.push(format!("{path}?{other}={value_of}&{name}={value}"));
                }
            }
        }
        let takes_something = parameters.is_some() || operation.described["requestBody"].is_object();
        let mut refused = false;
        for path in &asked {
            for body in ["", "{", "[]", "{}", r#"{"clientId":1,"topic":"a b","deliveryId":true,"to":[]}"#] {
                for kind in ["application/json", "application/cloudevents-batch+json", "text/plain"] {
                    if operation.method == "GET" && (body, kind) != ("", "text/plain") {
                        continue;
                    }
                    let reply = operation.call(&client, path, kind, body, true).await?;
                    operation.check(&document, &reply, path)?;
                    refused |= reply.status == 400;
                }
            }
        }
        ensure!(refused || !takes_something, "{} {path} refuses nothing", operation.method);
        if operation.is_admin() {
            let reply = operation.call(&client, &path, "text/plain", "", false).await?;
            operation.check(&document, &reply, &path)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_works_is_answered_as_the_document_says() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = document(&client).await?;
    let operations = operations(&document)?;
    client.subscribed(&Subscribe::load_balance("c", "t").max_attempts(1)).await?;
    client.published("t", [event("1"), event("2"), event("3")]).await?;
    let ids: Vec<String> =
        client.poll("c", 10, 5_000).await?.into_iter().map(|delivery| delivery.delivery_id).collect();
    let id = ids.first().context("a delivery")?;
    let batch = json!([event("4")]).to_string();
    let steps = [
        ("publish", "?topic=t", event("5").to_string()),
        ("publishBatch", "?topic=t", batch),
        ("subscribe", "", json!({"clientId": "d", "topic": "u", "mode": "BROADCAST"}).to_string()),
        ("poll", "?clientId=c&timeoutMs=0", String::new()),
        ("extend", "", json!({"deliveryId": id, "extendMs": 5_000}).to_string()),
        ("groups", "?topic=t", String::new()),
        ("subscriptions", "", String::new()),
        ("clients", "?topic=t", String::new()),
        ("reject", "", json!({"deliveryId": id, "reason": "bad"}).to_string()),
        ("nack", "", json!({"deliveryId": [ids.get(1), "x"], "delayMs": 0}).to_string()),
        ("ack", "", json!({"deliveryId": [ids.get(2), "x"]}).to_string()),
        ("browseDeadLetters", "?topic=t", String::new()),
        ("replayDeadLetters", "?topic=t&dryRun=true", String::new()),
        ("discardDeadLetters", "?topic=t&dryRun=true", String::new()),
        ("offsets", "?topic=t", String::new()),
        ("makeTopic", "", json!({"topic": "v"}).to_string()),
        ("makeTopic", "", json!({"topic": "v", "partitions": 9}).to_string()),
        ("topics", "", String::new()),
        ("topic", "", String::new()),
        ("seekGroup", "", json!({"to": "latest", "dryRun": true}).to_string()),
        ("health", "", String::new()),
        ("ready", "", String::new()),
        ("prometheus", "", String::new()),
        ("metrics", "", String::new()),
        ("unsubscribe", "", json!({"clientId": "c"}).to_string()),
        ("rejectClient", "?clientId=d", String::new()),
        ("deleteGroup", "", String::new()),
        ("deleteTopic", "?force=true", String::new()),
    ];
    for (name, query, body) in steps {
        let operation = operations.iter().find(|operation| operation.described["operationId"] == name);
        let operation = operation.with_context(|| format!("{name} is not in the document"))?;
        let in_path = if name.ends_with("Group") {
            operation.path.replace("{group}", "default")
        } else {
            operation.path.to_owned()
        };
        let path = format!("{}{query}", in_path.replace("{topic}", "t"));
        let reply = operation.call(&client, &path, "application/json", &body, true).await?;
        ensure!(reply.status < 300, "{name}: {reply}");
        operation.check(&document, &reply, &path)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_page_lists_the_codes_of_the_document() -> Result<()> {
    let mut server = Server::new()?;
    let document = document(&server.start().await?).await?;
    let mut served = BTreeMap::new();
    for (name, response) in document["components"]["responses"].as_object().context("responses")? {
        let codes = &response["content"]["application/json"]["schema"]["properties"]["error"]["enum"];
        let codes = codes.as_array().with_context(|| format!("no codes of {name}"))?;
        let codes: Vec<&str> = codes.iter().filter_map(Value::as_str).collect();
        served.insert(name.trim_start_matches("Error").to_owned(), codes.join(", "));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    let page = std::fs::read_to_string(page)?;
    let mut rows = BTreeMap::new();
    for line in page.lines().skip_while(|line| *line != "| status | codes |").skip(2) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (Some(status), Some(codes)) = (cells.next(), cells.next()) else { break };
        rows.insert(status.to_owned(), codes.to_owned());
    }
    assert_eq!(rows, served);
    Ok(())
}
