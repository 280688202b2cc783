//! The recipes of docs/security.md, started as they stand there.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use mesh_tests::{Authority, Server};

/// Where the documents say that files are.
const FOLDER: &str = "/etc/eventmesh/";

/// One block of a document: its language and its text.
fn blocks(document: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = document.split("\n```").collect();
    // Every other part is a block, beginning with its language.
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

fn read(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The key that a file of that name goes with.
fn key_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "tokens.toml" => "eventmesh.security.gate.token.file",
        "certificates.toml" => "eventmesh.security.gate.certificate.file",
        "keys.toml" => "eventmesh.security.gate.signature.file",
        "rules.toml" => "eventmesh.security.gate.acl.file",
        "tenants.toml" => "eventmesh.security.gate.quota.file",
        "admins.toml" => "eventmesh.admin.security.token.file",
        _ => return None,
    })
}

/// Starts a server with these keys and files, and sees it do what they say.
async fn starts(keys: &BTreeMap<String, String>, files: &BTreeMap<String, String>) -> Result<()> {
    let server = Server::new()?;
    let home = server.home().to_owned();
    for (name, text) in files {
        fs::write(home.join(name), text)?;
    }
    let authority = Authority::new("authority")?;
    authority.server()?.write(&home.join("server.pem"), &home.join("server.key"))?;
    fs::write(home.join("clients-ca.pem"), authority.pem())?;
    let mut server = server.key("eventmesh.admin.tls", false);
    for (key, value) in keys {
        server = server.key(key, value.replace(FOLDER, &format!("{}/", home.display())));
    }
    let client = server.start().await?;
    let health = client.admin("/admin/health").await?.expect(200)?.json()?;
    if keys.get("eventmesh.security.gate.failClosed").is_some_and(|value| value == "true") {
        ensure!(health.to_string().contains("closed"), "{health}");
        ensure!(server.log().contains("the security gate is closed"), "{}", server.log_end(20));
    }
    if keys.contains_key("eventmesh.security.gate.acl.file") {
        let (all, malformed) = ("eventmesh_gate_acl_rules", "eventmesh_gate_acl_rules_malformed");
        ensure!(client.metric(all).await? > 0.0 && client.metric(malformed).await? == 0.0);
    }
    server.stop().await
}

#[tokio::test]
async fn a_server_starts_with_every_recipe_and_every_example_of_the_security_document() -> Result<()> {
    // proves: SG-2
    let text = format!("{}\n{}", read("docs/security.md")?, read("README.md")?);
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    // Examples that no recipe has used yet, and those that another one of their name came after.
    let mut unused: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    let mut recipes = 0;
    for (language, block) in blocks(&text) {
        match language {
            "toml" => {
                let name = block.lines().next().and_then(|line| line.strip_prefix("# "));
                let name = name.filter(|name| key_of(name).is_some());
                let name =
                    name.with_context(|| format!("an example without the name of its file:\n{block}"))?;
                files.insert(name.to_owned(), block.to_owned());
                let last = unused.iter_mut().find(|set| !set.contains_key(name));
                match last {
                    Some(set) => drop(set.insert(name.to_owned(), block.to_owned())),
                    None => unused.push(BTreeMap::from([(name.to_owned(), block.to_owned())])),
                }
            }
            "properties" => {
                let keys = block.lines().filter_map(|line| line.split_once('='));
                let keys: BTreeMap<String, String> =
                    keys.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect();
                starts(&keys, &files).await.with_context(|| format!("the recipe\n{block}"))?;
                for (name, file) in &files {
                    let is_used = keys.values().any(|value| value.ends_with(&format!("/{name}")));
                    for set in unused.iter_mut().filter(|_| is_used) {
                        if set.get(name) == Some(file) {
                            set.remove(name);
                        }
                    }
                }
                recipes += 1;
            }
            _ => {}
        }
    }
    ensure!(recipes >= 8, "only {recipes} recipes were found");
    for set in unused.iter().filter(|set| !set.is_empty()) {
        let mut keys: BTreeMap<String, String> = set
            .keys()
            .filter_map(|name| Some((key_of(name)?.to_owned(), format!("{FOLDER}{name}"))))
            .collect();
        if set.contains_key("certificates.toml") {
            for (key, value) in [
                ("eventmesh.tls.certificate.file", "server.pem"),
                ("eventmesh.tls.key.file", "server.key"),
                ("eventmesh.tls.client.ca.file", "clients-ca.pem"),
            ] {
                keys.insert(key.to_owned(), format!("{FOLDER}{value}"));
            }
            keys.insert("eventmesh.tls.client.auth".to_owned(), "required".to_owned());
        }
        starts(&keys, set).await.with_context(|| format!("the examples {:?}", set.keys()))?;
    }
    Ok(())
}

#[tokio::test]
async fn the_roles_in_the_admin_document_are_those_of_the_routes() -> Result<()> {
    // proves: SG-9
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = client.get("/openapi.json").await?.expect(200)?.json()?;
    let text = read("docs/admin.md")?;
    let (_, table) = text.split_once("\n| Role | Routes |\n").context("the table of roles")?;
    let mut listed: BTreeMap<&str, &str> = BTreeMap::new();
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let (role, routes) = row.trim_matches('|').split_once('|').context("two cells")?;
        listed.insert(role.trim().trim_matches('`'), routes);
    }
    let mut seen = 0;
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, operation) in methods.as_object().context("methods")? {
            if operation["tags"][0] != "admin" {
                continue;
            }
            let method = method.to_ascii_uppercase();
            let schemes = operation["security"].as_array().context("security")?;
            let is_open = schemes.is_empty() || schemes.iter().any(|scheme| scheme == &serde_json::json!({}));
            let role = match schemes.iter().find_map(|scheme| scheme["adminToken"][0].as_str()) {
                _ if is_open => "none",
                _ if schemes.iter().any(|scheme| scheme["metricsToken"].is_array()) => "metrics",
                Some(role) => role,
                None => anyhow::bail!("no role for {method} {path}"),
            };
            if role == "viewer" {
                ensure!(method == "GET", "{method} {path} is a viewer's");
                continue;
            }
            seen += 1;
            let routes = listed.get(role).with_context(|| format!("no row {role}"))?;
            let route = format!("`{method} {path}`");
            ensure!(routes.contains(&route), "{route} needs {role}, and is not in that row: {routes}");
        }
    }
    let in_table: usize = listed.values().map(|routes| routes.matches(" /").count()).sum();
    ensure!(in_table == seen, "{seen} routes, and {in_table} in the table: {listed:?}");
    Ok(())
}

/// How long a request may take.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn no_port_serves_the_routes_of_the_other() -> Result<()> {
    // covers: U114
    let mut server = Server::new()?;
    let client = server.start().await?;
    let document = client.get("/openapi.json").await?.expect(200)?.json()?;
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, operation) in methods.as_object().context("methods")? {
            let method = method.to_ascii_uppercase();
            let path = path.replace("{topic}", "t").replace("{group}", "g");
            let reply = if operation["tags"][0] == "admin" {
                client.call(&method, &path, &[], "", SOON).await?
            } else {
                client.admin_call(&method, &path, &[], "").await?
            };
            reply.expect_error(404, "not_found").with_context(|| format!("{method} {path}"))?;
        }
    }
    Ok(())
}
