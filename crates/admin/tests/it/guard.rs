//! Every route of the admin port asks for a token, and for the role that its line of the table says.

use axum::body::Body;
use http::{Request, header::AUTHORIZATION};
use mesh_admin::{AdminAccess, AdminRole, AdminTokens, Needs, ROUTES, Route};
use mesh_delivery::{AskedSettings, Mode};
use serde_json::{Value, json};

use crate::rig::Rig;

/// Routes that nobody is asked for a token at. Adding one is a decision about security.
const EXEMPT: &[&str] = &["/admin/health", "/admin/ready"];

/// Tokens with what their holders may; the one for metrics has no role.
const HOLDERS: &[(&str, Option<AdminRole>)] = &[
    ("token-of-the-scraper", None),
    ("token-of-the-viewer-1", Some(AdminRole::Viewer)),
    ("token-of-an-operator", Some(AdminRole::Operator)),
    ("token-of-an-admin-01", Some(AdminRole::Admin)),
];

async fn rig() -> (Rig, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokens.toml");
    let entry = |(token, role): &(&str, Option<AdminRole>)| {
        role.map(|role| {
            let role = role.as_str();
            format!("[[token]]\nname = \"{role}\"\nvalue = \"{token}\"\nrole = \"{role}\"\n")
        })
    };
    std::fs::write(&path, HOLDERS.iter().filter_map(entry).collect::<String>()).expect("written");
    let tokens = AdminTokens {
        admin: Some("secret"),
        metrics: Some(HOLDERS[0].0),
        file: Some(&path),
        ..AdminTokens::default()
    };
    let rig = Rig::behind(AdminAccess::load(tokens).expect("a good file")).await;
    rig.subscribe("c", None, Mode::LoadBalance, AskedSettings::default()).await;
    rig.publish(0..3).await;
    (rig, folder)
}

async fn call(rig: &Rig, route: &Route, authorization: Option<&str>) -> (u16, String) {
    let path = route.path.replace("{topic}", "t").replace("{group}", "default");
    let (query, body) = match (route.method, route.path) {
        ("POST", "/admin/topics") => ("", json!({"topic": "new"})),
        ("POST", "/admin/groups/{topic}/{group}/seek") => ("", json!({"to": "latest"})),
        ("POST" | "PUT", "/admin/ratelimit") => ("", json!({"topic": "t", "capacity": 1, "rate": 1})),
        ("DELETE", "/admin/topics/{topic}") => ("?force=true", Value::Null),
        ("DELETE", "/admin/groups/{topic}/{group}") => ("", Value::Null),
        ("POST", "/admin/client/reject") => ("?clientId=c", Value::Null),
        _ if route.query.contains(&"topic") => ("?topic=t", Value::Null),
        _ => ("", Value::Null),
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = Request::builder().method(route.method).uri(format!("{path}{query}"));
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let (status, bytes) = rig.send(request.body(Body::from(body)).expect("legal")).await;
    let code = serde_json::from_slice::<Value>(&bytes).ok();
    let code = code.and_then(|json| json["error"].as_str().map(str::to_owned)).unwrap_or_default();
    (status.as_u16(), code)
}

async fn everything(rig: &Rig) -> String {
    let mut said = String::new();
    let reads = ["/admin/topics", "/admin/subscriptions", "/admin/offsets?topic=t", "/admin/ratelimit"];
    for path in reads {
        let (status, json) = rig.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {json}");
        said.push_str(&json.to_string());
    }
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_route_of_the_table_works_without_a_token_of_its_role() {
    // covers: U112  proves: SG-9 SG-10
    let (rig, _folder) = rig().await;
    let before = everything(&rig).await;
    let unknown = ["", "Bearer ", "Bearer wrong-0123456789", "Basic c2VjcmV0", "Bearer secretsecret"];
    for route in ROUTES {
        let what = format!("{} {}", route.method, route.path);
        let is_exempt = EXEMPT.contains(&route.path);
        assert_eq!(
            route.needs == Needs::Nothing,
            is_exempt,
            "{what}: open routes are on the list, no others"
        );
        if is_exempt {
            assert!(matches!(call(&rig, route, None).await.0, 200 | 503), "{what}");
            continue;
        }
        for authorization in std::iter::once(None).chain(unknown.map(Some)) {
            let answer = call(&rig, route, authorization).await;
            assert_eq!(answer, (401, "unauthenticated".to_owned()), "{what} {authorization:?}");
        }
        for (token, role) in HOLDERS {
            let may = match route.needs {
                Needs::Nothing | Needs::Metrics => true,
                Needs::Role(needed) => role.is_some_and(|role| role >= needed),
            };
            if !may {
                let answer = call(&rig, route, Some(&format!("Bearer {token}"))).await;
                assert_eq!(answer, (403, "forbidden".to_owned()), "{what} by {token}");
            }
        }
        // What changes something takes more than reading does.
        let reads = matches!(route.needs, Needs::Metrics | Needs::Role(AdminRole::Viewer));
        assert_eq!(reads, route.method == "GET", "{what}");
    }
    assert_eq!(everything(&rig).await, before);
    // Method and path come before the token.
    for (method, path, status) in [("PATCH", "/admin/topics", 405), ("GET", "/admin/none-such", 404)] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("legal");
        assert_eq!(rig.send(request).await.0, status, "{method} {path}");
    }
    // Whoever has the role is let through, to whatever there is.
    for route in ROUTES.iter().filter(|route| !EXEMPT.contains(&route.path)) {
        for (token, role) in HOLDERS {
            let may = match route.needs {
                Needs::Nothing | Needs::Metrics => true,
                Needs::Role(needed) => role.is_some_and(|role| role >= needed),
            };
            if may {
                let (status, code) = call(&rig, route, Some(&format!("Bearer {token}"))).await;
                assert!(
                    !matches!(status, 401 | 403 | 405),
                    "{} {} by {token}: {code}",
                    route.method,
                    route.path
                );
            }
        }
    }
}
