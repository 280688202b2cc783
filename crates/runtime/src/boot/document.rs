//! The API document of both ports, which the traffic port shows.

use serde_json::Value;

/// The document.
pub(super) fn document() -> Value {
    let mut document = mesh_ingress::openapi();
    mesh_server::openapi::join(&mut document, mesh_admin::openapi());
    document
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_has_every_route_of_both_tables_and_no_other() {
        let traffic = mesh_ingress::http::ROUTES.iter().map(|route| (route.method.to_string(), route.path));
        let admin = mesh_admin::ROUTES.iter().map(|route| (route.method.to_owned(), route.path));
        let served: BTreeSet<(String, String)> =
            traffic.chain(admin).map(|(method, path)| (method, path.to_owned())).collect();
        let document = document();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for method in methods.as_object().expect("methods").keys() {
                assert!(described.insert((method.to_ascii_uppercase(), path.clone())));
            }
        }
        assert_eq!(described, served);
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_says_who_may_call_it() {
        let document = document();
        let mut ids = BTreeSet::new();
        for methods in document["paths"].as_object().expect("paths").values() {
            for operation in methods.as_object().expect("methods").values() {
                let id = operation["operationId"].as_str().expect("an id");
                assert!(ids.insert(id), "{id} is there twice");
                assert!(operation["security"].is_array(), "{id}");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(document: &Value, at: &Value) {
            match at {
                Value::Object(members) => {
                    if let Some(Value::String(to)) = members.get("$ref") {
                        let pointer = to.strip_prefix('#').expect("within the document");
                        assert!(document.pointer(pointer).is_some(), "{to}");
                    }
                    members.values().for_each(|value| walk(document, value));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(document, value)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }

    #[test]
    fn every_error_code_is_in_it() {
        let text = document()["components"]["schemas"]["Error"]["properties"]["error"]["enum"].to_string();
        for code in mesh_server::ErrorCode::ALL {
            assert!(text.contains(&format!("\"{}\"", code.as_str())), "{}", code.as_str());
        }
    }
}
