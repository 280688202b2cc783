//! The API document held against the process that serves it: what it answers to bad and to good input is what the
//! document says, by status, media type and required members.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Server, Subscribe, document, event, operations};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

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

/// Every row names a route of the document, with a parameter that it has, and every route has a row.
#[tokio::test]
async fn the_page_lists_the_routes_of_the_document() -> Result<()> {
    // covers: U08
    let mut server = Server::new()?;
    let document = document(&server.start().await?).await?;
    let operations = operations(&document)?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    let page = std::fs::read_to_string(page)?;
    let mut rows = BTreeSet::new();
    for line in page.lines().skip_while(|line| *line != "| route | what it does |").skip(2) {
        let Some(route) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) else { break };
        let (method, path) = route.split_once(' ').with_context(|| format!("no method: {line}"))?;
        let (path, parameter) = path.split_once('?').unwrap_or((path, ""));
        let operation = operations.iter().find(|of| of.method == method && of.path == path);
        let operation = operation.with_context(|| format!("{method} {path} is not in the document"))?;
        if let Some(name) = parameter.strip_suffix('=') {
            let named = operation.described["parameters"].as_array().into_iter().flatten();
            ensure!(named.clone().any(|of| of["name"] == name && of["in"] == "query"), "{line}: no {name}");
        }
        ensure!(rows.insert((method.to_owned(), path.to_owned())), "twice: {line}");
    }
    let served: BTreeSet<(String, String)> =
        operations.iter().map(|of| (of.method.clone(), of.path.to_owned())).collect();
    assert_eq!(rows, served);
    Ok(())
}

/// Every route is shown with an exchange, on the page of the API or on that of the admin port.
#[tokio::test]
async fn every_route_of_the_document_has_a_worked_exchange() -> Result<()> {
    let mut server = Server::new()?;
    let document = document(&server.start().await?).await?;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut shown: Vec<(String, String)> = Vec::new();
    for page in ["http-api.md", "admin.md"] {
        let text = std::fs::read_to_string(docs.join(page))?;
        for block in text.split("\n```http\n").skip(1) {
            let first = block.lines().next().unwrap_or_default();
            let Some((method, target)) = first.split_once(' ').filter(|(_, target)| target.starts_with('/'))
            else {
                continue;
            };
            let path = target.split('?').next().unwrap_or_default();
            // The answer stands in the next block.
            let answer = block.split("\n```").nth(1).unwrap_or_default();
            ensure!(answer.trim().is_empty(), "{page}: {first} is not followed by its answer");
            shown.push((method.to_owned(), path.to_owned()));
        }
    }
    let fits = |path: &str, template: &str| {
        let (path, template) = (path.split('/'), template.split('/'));
        path.clone().count() == template.clone().count()
            && path.zip(template).all(|(part, of)| part == of || of.starts_with('{'))
    };
    let missing: Vec<String> = operations(&document)?
        .iter()
        .filter(|of| !shown.iter().any(|(method, path)| *method == of.method && fits(path, of.path)))
        .map(|of| format!("{} {}", of.method, of.path))
        .collect();
    ensure!(missing.is_empty(), "no exchange shows {missing:?}");
    Ok(())
}
