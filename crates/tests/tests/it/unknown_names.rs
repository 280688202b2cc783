//! What a request says and no route knows is refused on every route of both ports: a slip never does what leaving it
//! out would do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mesh_tests::{Client, Server, Subscribe, TOKEN, document, event, operations};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

/// A name as somebody in a hurry writes it.
fn misspelt(name: &str) -> String {
    match name.to_ascii_lowercase() {
        lower if lower != name => lower,
        lower => format!("{lower}s"),
    }
}

/// The members that a schema lists; none where it allows others.
fn members(document: &Value, schema: &Value) -> Option<Vec<String>> {
    if let Some(to) = schema["$ref"].as_str() {
        return members(document, document.pointer(to.strip_prefix('#')?)?);
    }
    (schema["additionalProperties"] == false)
        .then(|| schema["properties"].as_object().map(|known| known.keys().cloned().collect()))
        .flatten()
}

#[tokio::test]
async fn a_misspelt_parameter_or_member_is_refused_by_every_route_and_the_right_one_is_named() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = document(&client).await?;
    let (mut parameters, mut bodies) = (0, 0);
    for operation in operations(&document)? {
        let path = operation.path("t");
        let body = match operation.described["operationId"].as_str() {
            Some("publish") => event("1").to_string(),
            Some("publishBatch") => "[]".to_owned(),
            _ => String::new(),
        };
        let refused = async |asked: &str, body: &str| -> Result<String> {
            let reply = operation.call(&client, asked, "application/json", body, true).await?;
            Ok(reply.expect_error(400, "invalid_argument")?.json()?["message"].to_string())
        };
        let told = refused(&format!("{path}?noSuchName=1"), &body).await?;
        ensure!(told.contains("`noSuchName`"), "{} {path}: {told}", operation.method);
        for parameter in operation.described["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().context("a name")?;
            if parameter["in"] != "query" || name == "ticket" {
                continue;
            }
            let wrong = misspelt(name);
            let told = refused(&format!("{path}?{wrong}=1"), &body).await?;
            ensure!(
                told.contains(&format!("did you mean `{name}`?")),
                "{} {path} {wrong}: {told}",
                operation.method
            );
            parameters += 1;
        }
        let content = &operation.described["requestBody"]["content"]["application/json"]["schema"];
        for name in members(&document, content).into_iter().flatten() {
            let wrong = misspelt(&name);
            let told = refused(&path, &json!({ &wrong: "1" }).to_string()).await?;
            ensure!(
                told.contains(&format!("did you mean `{name}`?")),
                "{} {path} {wrong}: {told}",
                operation.method
            );
            bodies += 1;
        }
        if operation.method == "GET" && operation.path != "/openapi.json" {
            refused(&path, r#"{"max":1}"#).await?;
        }
    }
    ensure!(parameters > 25 && bodies > 50, "only {parameters} parameters and {bodies} members were tried");
    Ok(())
}

async fn offset(client: &Client) -> Result<Value> {
    Ok(client.admin("/admin/offsets?topic=t").await?.expect(200)?.json()?["default#0"].clone())
}

#[tokio::test]
async fn a_dry_run_is_dry_wherever_it_stands_and_however_it_is_written() -> Result<()> {
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", [event("1"), event("2")]).await?;
    let got = client.receive("c", 2, SOON).await?;
    client.acked(&got).await?;
    let token = format!("Bearer {TOKEN}");
    let seek = async |query: &str, body: Value| {
        let path = format!("/admin/groups/t/default/seek{query}");
        client.admin_call("POST", &path, &[("authorization", token.as_str())], body.to_string()).await
    };
    let before = offset(&client).await?;
    for (query, body) in [
        ("?dryrun=true", json!({"to": "earliest"})),
        ("?dry_run=true", json!({"to": "earliest"})),
        ("", json!({"to": "earliest", "dryrun": true})),
        ("", json!({"to": "earliest", "dryRun": "true"})),
        ("?dryRun=yes", json!({"to": "earliest"})),
        ("?dryRun=true", json!({"to": "earliest", "dryRun": false})),
    ] {
        seek(query, body).await?.expect_error(400, "invalid_argument")?;
        ensure!(offset(&client).await? == before, "{query} moved the group");
    }
    for (query, body) in [
        ("?dryRun=true", json!({"to": "earliest"})),
        ("", json!({"to": "earliest", "dryRun": true})),
        ("?to=earliest&dryRun=true", json!({})),
    ] {
        let told = seek(query, body).await?.expect(200)?.json()?;
        ensure!(told["dryRun"] == true && told["to"]["0"] == "0", "{told}");
        ensure!(offset(&client).await? == before, "{query} moved the group");
    }
    seek("?to=earliest", json!({})).await?.expect(200)?;
    ensure!(offset(&client).await? == "0", "a seek without dryRun moves");

    // What dead-letter routes take in the query they take in the body.
    let path = "/admin/dlq/discard";
    let asked = json!({"topic": "t", "dryRun": true}).to_string();
    let told = client.admin_call("POST", path, &[("authorization", token.as_str())], asked).await?;
    ensure!(told.expect(200)?.json()?["dryRun"] == true);
    Ok(())
}
