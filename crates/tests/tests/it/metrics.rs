//! The metrics as a strict scraper reads them, and what is left of them when topics and clients have gone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use mesh_tests::{Client, Server, Subscribe, TOKEN, event};
use serde_json::json;

/// The samples of a text: series to value.
type Samples = BTreeMap<String, f64>;

/// Reads the text as OpenMetrics wants it: every family once, its type and help before its samples, nothing of
/// another family between them, no series twice, label values escaped, the end said.
fn read(text: &str) -> Result<Samples> {
    let (mut families, mut samples) = (BTreeSet::new(), Samples::new());
    let mut current: Option<(String, &str)> = None;
    let mut lines = text.lines();
    for line in lines.by_ref() {
        if line == "# EOF" {
            current = None;
            break;
        }
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').with_context(|| format!("no word: {line}"))?;
            let (name, value) = rest.split_once(' ').with_context(|| format!("no name: {line}"))?;
            match what {
                "HELP" => {
                    ensure!(families.insert(name.to_owned()), "a second family {name}");
                    current = Some((name.to_owned(), ""));
                }
                "TYPE" | "UNIT" => {
                    let (family, kind) = current.as_mut().with_context(|| format!("alone: {line}"))?;
                    ensure!(family == name, "{line} stands in {family}");
                    if what == "TYPE" {
                        ensure!(["counter", "gauge", "histogram", "info"].contains(&value), "{line}");
                        *kind = value;
                    }
                }
                _ => bail!("a comment: {line}"),
            }
            continue;
        }
        let (family, kind) = current.as_ref().with_context(|| format!("a sample of no family: {line}"))?;
        let (series, value) = line.rsplit_once(' ').with_context(|| format!("no value: {line}"))?;
        let name = series.split('{').next().unwrap_or_default();
        let legal = match *kind {
            "counter" => name.strip_suffix("_total") == Some(family),
            "gauge" => name == family,
            _ => name.starts_with(family.as_str()),
        };
        ensure!(legal, "{name} is not of the {kind} {family}");
        labels(series.strip_prefix(name).unwrap_or_default()).with_context(|| line.to_owned())?;
        let value: f64 = value.parse().with_context(|| line.to_owned())?;
        ensure!(samples.insert(series.to_owned(), value).is_none(), "{series} is there twice");
    }
    ensure!(current.is_none() && lines.next().is_none() && text.ends_with("# EOF\n"), "no end");
    Ok(samples)
}

/// `{name="value",…}` or nothing.
fn labels(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut rest = text.strip_prefix('{').context("no brace")?;
    loop {
        let (name, value) = rest.split_once("=\"").context("no label")?;
        ensure!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "label {name:?}");
        let mut escaped = false;
        let end = value.char_indices().find(|(_, character)| {
            let ends = !escaped && *character == '"';
            escaped = !escaped && *character == '\\';
            ends
        });
        let (end, _) = end.context("a value without an end")?;
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    ensure!(rest == "}", "behind the labels: {rest:?}");
    Ok(())
}

async fn samples(client: &Client) -> Result<(Samples, usize)> {
    let reply = client.admin("/metrics").await?.expect(200)?;
    let kind = reply.header("content-type").unwrap_or_default();
    ensure!(kind == "application/openmetrics-text; version=1.0.0; charset=utf-8", "{kind}");
    let text = String::from_utf8(reply.body.to_vec())?;
    Ok((read(&text).with_context(|| text.clone())?, text.len()))
}

#[tokio::test]
async fn they_are_read_by_a_strict_scraper_and_do_not_grow_with_what_has_gone() -> Result<()> {
    // covers: U118
    let mut server = Server::new()?.key("eventmesh.storage.partitions", 1);
    let client = server.start().await?;
    let odd = ["quo\"te", "back\\slash", "ünï", "{brace}", "a=\"b\",c=\"d"];
    let visit = async |round: u32| -> Result<()> {
        for number in 0..20 {
            let (topic, name) = (format!("t{round}-{number}"), format!("c{round}-{number}"));
            let group = odd[number as usize % odd.len()];
            client.subscribed(&Subscribe::load_balance(&name, &topic).group(group)).await?;
            client.subscribed(&Subscribe::broadcast(&format!("{name}\""), &topic)).await?;
            client.published(&topic, [event(1)]).await?;
            client.poll(&name, 1, 5_000).await?;
        }
        Ok(())
    };
    let leave = async |round: u32| -> Result<()> {
        for number in 0..20 {
            let path = format!("/admin/topics/t{round}-{number}?force=true");
            client.administer("DELETE", &path, &json!({})).await?.expect(200)?;
        }
        Ok(())
    };
    visit(0).await?;
    let (with, _) = samples(&client).await?;
    let of_groups = with.keys().filter(|series| series.starts_with("eventmesh_group_lag{")).count();
    ensure!(of_groups == 20, "{of_groups} series of 20 groups");
    leave(0).await?;
    let (before, bytes) = samples(&client).await?;
    for round in 1..4 {
        visit(round).await?;
        leave(round).await?;
    }
    let (after, bytes_after) = samples(&client).await?;
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    ensure!(bytes_after < bytes + 500, "{bytes} bytes grew to {bytes_after}");
    Ok(())
}

#[tokio::test]
async fn every_family_is_there_once_whatever_keeps_the_events() -> Result<()> {
    for storage in ["memory", "embedded"] {
        let mut server = Server::new()?.key("eventmesh.storage.type", storage);
        let client = server.start().await?;
        client.published("t", [event(1)]).await?;
        let (samples, _) = samples(&client).await.context(storage)?;
        ensure!(samples.contains_key("eventmesh_storage_cold_reads_total"), "{storage}: {samples:?}");
    }
    Ok(())
}

#[tokio::test]
async fn metrics_come_in_the_text_that_was_asked_for() -> Result<()> {
    let mut server = Server::new()?;
    let client = server.start().await?;
    let token = format!("Bearer {TOKEN}");
    let get = async |accept: &str| {
        let headers = [("authorization", token.as_str()), ("accept", accept)];
        client.admin_with("GET", "/metrics", &headers).await?.expect(200)
    };
    let plain = get("text/plain").await?;
    ensure!(plain.header("content-type") == Some("text/plain; version=0.0.4; charset=utf-8"), "{plain}");
    let text = String::from_utf8(plain.body.to_vec())?;
    ensure!(text.contains("# TYPE eventmesh_publish_total counter\neventmesh_publish_total 0\n"), "{text}");
    ensure!(!text.contains("# EOF"), "{text}");
    for accept in ["application/openmetrics-text; version=1.0.0, text/plain;q=0.5", "*/*"] {
        let reply = get(accept).await?;
        let kind = reply.header("content-type").unwrap_or_default();
        ensure!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{accept}: {kind}");
        read(&String::from_utf8(reply.body.to_vec())?)?;
    }
    Ok(())
}
