//! The traffic routes as an OpenAPI 3.1 document, made from the route table and the list of error codes.
//!
//! Other ports describe their routes with the same parts and are put beside these by [`mesh_server::openapi::join`].

mod operations;
mod schemas;

use mesh_server::openapi::{error_responses, error_schema, put};
use serde_json::{Map, Value, json};

use super::routes::ROUTES;

/// The document of the traffic port.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        put(&mut paths, route.method.as_str(), route.path, operations::describe(route));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Operation;
    use mesh_server::{ErrorCode, status};

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
            let response = &document["components"]["responses"][format!("Error{}", status(*code))];
            let listed = &response["content"]["application/json"]["schema"]["properties"]["error"]["enum"];
            let listed = listed.as_array().expect("a list");
            assert!(listed.contains(&code.as_str().into()), "{} is not in {listed:?}", code.as_str());
        }
    }
}
