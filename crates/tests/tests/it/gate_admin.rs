//! Who may do what on the admin port: every route of the document against a token of each role.

use std::fs;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Server, until};
use serde_json::Value;

const VIEWER: &str = "viewers-token-0123456789";
const OPERATOR: &str = "operators-token-0123456789";
const ADMIN: &str = "admins-token-0123456789";
const METRICS: &str = "scrapers-token-0123456789";

const TOKENS: &str = r#"
[[token]]
name = "viewer"
value = "viewers-token-0123456789"
role = "viewer"

[[token]]
name = "operator"
value = "operators-token-0123456789"
role = "operator"

[[token]]
name = "admin"
value = "admins-token-0123456789"
role = "admin"
"#;

async fn status(client: &Client, method: &str, path: &str, token: &str) -> Result<(u16, String)> {
    let authorization = format!("Bearer {token}");
    // Parameters that no route takes: what is let in changes nothing.
    let path = format!("{path}?neverAnyParameter=1");
    let reply = client.admin_call(method, &path, &[("authorization", authorization.as_str())], "").await?;
    Ok((reply.status, reply.code()))
}

/// What each of viewer, operator, admin and metrics token may, by the document: the role a route names.
fn may(operation: &Value) -> Result<[bool; 4]> {
    let schemes = operation["security"].as_array().context("security")?;
    let role = schemes.iter().find_map(|scheme| scheme["adminToken"][0].as_str()).context("a role")?;
    let least =
        ["viewer", "operator", "admin"].iter().position(|name| *name == role).context("a known role")?;
    let metrics = schemes.iter().any(|scheme| scheme["metricsToken"].is_array());
    Ok([least == 0, least <= 1, true, metrics])
}

#[tokio::test]
async fn every_admin_route_needs_the_role_that_the_document_names_and_no_other_will_do() -> Result<()> {
    // proves: SG-9 SG-10
    let server = Server::new()?;
    let file = server.home().join("admins.toml");
    fs::write(&file, TOKENS)?;
    let mut server = server
        .key("eventmesh.admin.security.token.file", file.display())
        .key("eventmesh.admin.security.metrics.token", METRICS)
        .key("eventmesh.security.reload.interval", "100ms");
    let client = server.start().await?;
    let document = client.get("/openapi.json").await?.expect(200)?.json()?;
    let mut walked = 0;
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, operation) in methods.as_object().context("methods")? {
            let is_open = operation["security"].as_array().is_none_or(|schemes| {
                schemes.is_empty() || schemes.iter().any(|scheme| scheme == &serde_json::json!({}))
            });
            if operation["tags"][0] != "admin" || is_open {
                continue;
            }
            walked += 1;
            let method = method.to_ascii_uppercase();
            let path = path.replace("{topic}", "t").replace("{group}", "g");
            let may = may(operation)?;
            for (token, may) in [VIEWER, OPERATOR, ADMIN, METRICS].into_iter().zip(may) {
                let (status, code) = status(&client, &method, &path, token).await?;
                let what = format!("{method} {path} with {token}: {status} {code}");
                match may {
                    true => ensure!(![401, 403, 500, 503].contains(&status), "{what}"),
                    false => ensure!((status, code.as_str()) == (403, "forbidden"), "{what}"),
                }
            }
            for stranger in ["", "not-a-token-of-this-server", &VIEWER[1..], "${TOKEN}"] {
                let (status, code) = status(&client, &method, &path, stranger).await?;
                ensure!(
                    (status, code.as_str()) == (401, "unauthenticated"),
                    "{method} {path}: {status} {code}"
                );
            }
        }
    }
    ensure!(walked >= 20, "only {walked} routes were walked");

    // Another file: who is no longer in it is out, and one that cannot be used changes nothing.
    fs::write(&file, TOKENS.replace("viewers-token", "someones-token"))?;
    let reads = async |token: &str| anyhow::Ok(status(&client, "GET", "/admin/topics", token).await?.0);
    until("the new token file to hold", std::time::Duration::from_secs(20), async || {
        (reads(VIEWER).await.ok()? == 401).then_some(())
    })
    .await?;
    ensure!(reads("someones-token-0123456789").await? != 401);
    fs::write(
        &file,
        "[[token]]\nname = \"viewer\"\nvalue = \"viewers-token-0123456789\"\nrole = \"king\"\n",
    )?;
    until("the unusable token file to be told", std::time::Duration::from_secs(20), async || {
        server.log().contains("admin tokens cannot be read again").then_some(())
    })
    .await?;
    ensure!(reads(VIEWER).await? == 401 && reads(ADMIN).await? != 401);
    ensure!(!server.log().contains("viewers-token"), "a token is in the log");
    Ok(())
}

#[tokio::test]
async fn without_any_token_the_admin_port_is_locked_but_for_health_and_readiness() -> Result<()> {
    // covers: U112  proves: SG-9
    // On loopback the server would make itself a token.
    let mut server = Server::new()?.without_admin_token().key("eventmesh.admin.host", "0.0.0.0");
    let client = server.start().await?;
    client.admin_with("GET", "/admin/health", &[]).await?.expect(200)?;
    for (method, path) in [
        ("GET", "/metrics"),
        ("GET", "/admin/topics"),
        ("DELETE", "/admin/topics/t"),
        ("PUT", "/admin/ratelimit"),
    ] {
        for token in [None, Some("Bearer "), Some("Bearer x"), Some("Bearer ${TOKEN}")] {
            let headers: Vec<(&str, &str)> =
                token.map(|token| ("authorization", token)).into_iter().collect();
            let reply = client.admin_with(method, path, &headers).await?;
            ensure!(reply.header("retry-after").is_none(), "waiting never helps: {reply}");
            let reply = reply.expect_error(503, "admin_locked")?;
            ensure!(reply.json()?["message"].to_string().contains("eventmesh.admin.token"), "{reply}");
        }
    }
    for _ in 0..100 {
        client.admin_with("GET", "/admin/topics", &[]).await?.expect_error(503, "admin_locked")?;
    }
    let audited = server.log().matches("administration is locked").count();
    ensure!((1..=5).contains(&audited), "{audited} of more than 100 are in the log");

    // A token for metrics opens them and nothing else.
    let mut server = server.key("eventmesh.admin.security.metrics.token", METRICS);
    let client = server.start().await?;
    let token = format!("Bearer {METRICS}");
    let headers = [("authorization", token.as_str())];
    client.admin_with("GET", "/metrics", &headers).await?.expect(200)?;
    client.admin_with("GET", "/admin/metrics", &headers).await?.expect(200)?;
    client.admin_with("GET", "/admin/topics", &headers).await?.expect_error(503, "admin_locked")?;
    client.admin_with("GET", "/metrics", &[]).await?.expect_error(401, "unauthenticated")?;
    Ok(())
}

#[tokio::test]
async fn a_standalone_on_loopback_makes_itself_an_admin_token_once_and_names_its_file() -> Result<()> {
    let mut server = Server::new()?.without_admin_token();
    let client = server.start().await?;
    let file = server.data_directory().join("admin.token");
    let token = fs::read_to_string(&file)?;
    ensure!(token.trim().len() >= 32, "{} bytes", token.len());
    ensure!(server.log().contains(&file.display().to_string()), "{}", server.log_end(30));
    ensure!(!server.log().contains(token.trim()), "the token itself is in the log");
    let bearer = format!("Bearer {}", token.trim());
    let with = [("authorization", bearer.as_str())];
    client.admin_with("DELETE", "/admin/ratelimit?topic=t", &with).await?.expect(200)?;
    client.admin_with("GET", "/admin/topics", &[]).await?.expect_error(401, "unauthenticated")?;
    server.stop().await?;
    // It stays the same, and gives way to one that is configured.
    let client = server.start().await?;
    ensure!(fs::read_to_string(&file)? == token);
    client.admin_with("GET", "/admin/topics", &with).await?.expect(200)?;
    let mut server = server.key("eventmesh.admin.token", ADMIN);
    let client = server.start().await?;
    client.admin_with("GET", "/admin/topics", &with).await?.expect_error(401, "unauthenticated")?;
    // A blank one opens nothing and stops the start.
    fs::write(&file, "\n")?;
    let mut blank = Server::new()?.without_admin_token().data(server.data_directory());
    server.kill9();
    blank.spawn()?;
    let status = blank.wait_exit(std::time::Duration::from_secs(20)).await?;
    ensure!(status.code() == Some(1) && blank.log().contains("admin.token"), "{}", blank.log_end(5));
    Ok(())
}
