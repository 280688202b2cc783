//! The traffic routes as an OpenAPI 3.1 document, made from the route table and the list of error codes.
//!
//! Other ports describe their routes with the same [`parts`] and are put beside these by [`join`].

mod operations;
pub mod parts;
mod schemas;

use serde_json::{Map, Value, json};

use crate::http::{ErrorCode, ROUTES};

/// The document of the traffic port.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        parts::put(&mut paths, route.method.as_str(), route.path, operations::describe(route));
    }
    let mut schemas = schemas::all();
    schemas.insert("Error".to_owned(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Event mesh",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Events in, deliveries out, and the administration of both. A path that is not here \
                            is 404 `not_found`; another method of one that is, is 405 `method_not_allowed` with \
                            `Allow`.",
        },
        "tags": [{"name": "traffic", "description": "The traffic port, 10105 unless configured."}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": error_responses(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The credential of a client; not asked for while the gate is open.",
                },
            },
        },
    })
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

fn error_schema() -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let meanings: Vec<String> = ErrorCode::ALL
        .iter()
        .map(|code| format!("* `{}` ({}): {}", code.as_str(), code.status(), code.meaning()))
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
fn error_responses() -> Map<String, Value> {
    parts::errors(ErrorCode::ALL).map(|(status, response)| (format!("Error{status}"), response)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Operation;

    #[test]
    fn nothing_but_the_document_is_open() {
        for route in ROUTES {
            assert_eq!(route.action.is_none(), route.operation == Operation::Document, "{}", route.path);
        }
    }

    #[test]
    fn every_code_is_under_its_status() {
        let document = openapi();
        for code in ErrorCode::ALL {
            let response = &document["components"]["responses"][format!("Error{}", code.status())];
            let listed = &response["content"]["application/json"]["schema"]["properties"]["error"]["enum"];
            let listed = listed.as_array().expect("a list");
            assert!(listed.contains(&code.as_str().into()), "{} is not in {listed:?}", code.as_str());
        }
    }
}
