//! What an OpenAPI document of routes is put together from: operations, parameters, answers, errors.
//!
//! Each port describes its own routes; [`join`] puts the documents together.

use std::collections::BTreeMap;

use mesh_base::Range;
use serde_json::{Map, Value, json};

use crate::{ErrorCode, status};

/// One operation of the document while it is put together.
#[derive(Clone, Debug)]
pub struct Described(Map<String, Value>);

impl Described {
    /// An operation that takes and answers nothing yet.
    pub fn new(id: &str, tag: &str, summary: &str) -> Self {
        let mut members = Map::new();
        members.insert("operationId".to_owned(), id.into());
        members.insert("tags".to_owned(), json!([tag]));
        members.insert("summary".to_owned(), summary.into());
        members.insert("responses".to_owned(), json!({}));
        Self(members)
    }

    /// With what it needs to be shown: any one of the schemes; `{}` among them is none, an empty list too.
    #[must_use]
    pub fn security(mut self, schemes: Value) -> Self {
        self.0.insert("security".to_owned(), schemes);
        self
    }

    /// With more parameters.
    #[must_use]
    pub fn parameters(mut self, more: impl IntoIterator<Item = Value>) -> Self {
        let parameters = self.0.entry("parameters").or_insert_with(|| json!([]));
        if let Value::Array(parameters) = parameters {
            parameters.extend(more);
        }
        self
    }

    /// With a body of one of the media types.
    #[must_use]
    pub fn body<const N: usize>(mut self, contents: [(&str, Value); N]) -> Self {
        let contents: Map<String, Value> =
            contents.into_iter().map(|(kind, schema)| (kind.to_owned(), json!({"schema": schema}))).collect();
        self.0.insert("requestBody".to_owned(), json!({"required": true, "content": contents}));
        self
    }

    /// With a body that may be left out.
    #[must_use]
    pub fn optional_body(mut self, schema: &Value) -> Self {
        self.0.insert(
            "requestBody".to_owned(),
            json!({"required": false, "content": {"application/json": {"schema": schema}}}),
        );
        self
    }

    /// With an answer of that status, media type and schema.
    #[must_use]
    pub fn answer(self, status: u16, description: &str, kind: &str, schema: &Value) -> Self {
        self.respond(
            status.to_string(),
            json!({"description": description, "content": {kind: {"schema": schema}}}),
        )
    }

    /// With an answer of that status and schema in any of the media types.
    #[must_use]
    pub fn answer_of(self, status: u16, description: &str, kinds: &[&str], schema: &Value) -> Self {
        let content: Map<String, Value> =
            kinds.iter().map(|kind| ((*kind).to_owned(), json!({"schema": schema}))).collect();
        self.respond(status.to_string(), json!({"description": description, "content": content}))
    }

    /// With a JSON answer of that status.
    #[must_use]
    pub fn json(self, status: u16, description: &str, schema: &Value) -> Self {
        self.answer(status, description, "application/json", schema)
    }

    /// With a header that the answer of that status may have.
    #[must_use]
    pub fn header(mut self, status: u16, name: &str, description: &str) -> Self {
        if let Some(response) = self.0.get_mut("responses").and_then(|all| all.get_mut(status.to_string())) {
            response["headers"][name] = json!({"description": description, "schema": {"type": "string"}});
        }
        self
    }

    /// With the errors it can answer: a response for each of their statuses.
    #[must_use]
    pub fn errors(self, codes: &[ErrorCode]) -> Self {
        errors(codes).fold(self, |of, (status, response)| of.respond(status.to_string(), response))
    }

    fn respond(mut self, status: String, response: Value) -> Self {
        if let Some(Value::Object(responses)) = self.0.get_mut("responses") {
            responses.insert(status, response);
        }
        self
    }
}

/// Puts an operation under its path and method.
pub fn put(paths: &mut Map<String, Value>, method: &str, path: &str, operation: Described) {
    let methods = paths.entry(path).or_insert_with(|| json!({}));
    if let Value::Object(methods) = methods {
        methods.insert(method.to_ascii_lowercase(), Value::Object(operation.0));
    }
}

/// The responses of errors, by status, each with the closed list of its codes.
pub fn errors(codes: &[ErrorCode]) -> impl Iterator<Item = (u16, Value)> {
    let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    for code in codes {
        let of_status = by_status.entry(status(*code)).or_default();
        if !of_status.contains(code) {
            of_status.push(*code);
        }
    }
    by_status.into_iter().map(|(status, codes)| (status, error(status, &codes)))
}

fn error(status: u16, codes: &[ErrorCode]) -> Value {
    let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let meanings: Vec<&str> = codes.iter().map(|code| code.meaning()).collect();
    let mut response = json!({
        "description": meanings.join(" "),
        "content": {"application/json": {"schema": {
            "type": "object",
            "required": ["error", "message"],
            "properties": {"error": {"type": "string", "enum": names}, "message": {"type": "string"}},
        }}},
    });
    match status {
        405 => {
            response["headers"] =
                json!({"Allow": {"description": "The methods there are.", "schema": {"type": "string"}}});
        }
        429 | 503 => {
            response["headers"] = json!({"Retry-After": {
                "description": "Seconds to wait, where waiting helps.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 86_400},
            }});
        }
        _ => {}
    }
    response
}

/// A parameter of the query.
pub fn query(name: &str, required: bool, schema: &Value, description: &str) -> Value {
    json!({"name": name, "in": "query", "required": required, "schema": schema, "description": description})
}

/// A part of the path.
pub fn in_path(name: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

/// A schema of the components.
pub fn component(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A whole number in a range, ends included.
pub fn number(least: u64, most: u64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// A whole number in the range of a setting.
pub fn of_range(range: Range) -> (String, Value) {
    (range.name.to_owned(), number(range.least, range.most))
}

/// A count.
pub fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// A whole number as decimal digits, because it may pass what clients read as a number.
pub fn digits() -> Value {
    json!({"type": "string", "pattern": "^[0-9]+$"})
}

/// One of a few words.
pub fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// An array.
pub fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

/// An object with these members, all of them there.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    with_optional(members, [])
}

/// An object whose second members may be missing.
pub fn with_optional<const N: usize, const M: usize>(
    members: [(&str, Value); N],
    optional: [(&str, Value); M],
) -> Value {
    let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let all = members.into_iter().chain(optional).map(|(name, schema)| (name.to_owned(), schema));
    json!({"type": "object", "required": required, "properties": all.collect::<Map<String, Value>>()})
}

/// An object schema that allows no members but those it lists, as requests have it.
#[must_use]
pub fn closed(mut schema: Value) -> Value {
    schema["additionalProperties"] = false.into();
    schema
}

/// Puts what `more` describes beside what `document` does.
///
/// # Panics
/// When both describe the same thing: a path, a schema or the like.
pub fn join(document: &mut Value, more: Value) {
    match (document, more) {
        (Value::Object(members), Value::Object(more)) => {
            for (name, value) in more {
                match members.get_mut(&name) {
                    Some(member) => join(member, value),
                    None => drop(members.insert(name, value)),
                }
            }
        }
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (both, more) => panic!("{both} and {more} describe the same"),
    }
}

/// The schema of an error, with the closed list of codes.
pub fn error_schema() -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let meanings: Vec<String> = ErrorCode::ALL
        .iter()
        .map(|code| format!("* `{}` ({}): {}", code.as_str(), status(*code), code.meaning()))
        .collect();
    json!({
        "type": "object",
        "required": ["error", "message"],
        "properties": {
            "error": {"type": "string", "enum": codes, "description": meanings.join("\n")},
            "message": {"type": "string", "description": "For people; it may change."},
        },
    })
}

/// Every status that errors have, with all its codes; an operation lists those it can answer.
pub fn error_responses() -> Map<String, Value> {
    errors(ErrorCode::ALL).map(|(status, response)| (format!("Error{status}"), response)).collect()
}
