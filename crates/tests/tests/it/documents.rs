//! What the repository says of itself, held against its files: who may name the topology, who may use whom.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust source file of the crates but this one, by its path below `crates/`.
fn sources() -> Result<BTreeMap<String, String>> {
    let crates = root().join("crates");
    let mut sources = BTreeMap::new();
    let mut folders = vec![crates.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(&crates)?.display().to_string();
                sources.insert(name, std::fs::read_to_string(&path)?);
            }
        }
    }
    sources.retain(|name, _| !name.starts_with("tests/"));
    Ok(sources)
}

/// What cargo says of the workspace's packages.
fn packages() -> Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    serde_json::from_value(metadata["packages"].take()).context("packages")
}

/// The name of a crate as the documents write it.
fn short(package: &str) -> &str {
    package.strip_prefix("mesh-").unwrap_or(package)
}

/// The dependencies of a package that are ours, of the given kind (`null` is the normal one).
fn ours<'a>(package: &'a Value, kind: &'a Value) -> impl Iterator<Item = &'a Value> {
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    let of_us =
        |dependency: &&Value| dependency["name"].as_str().is_some_and(|name| name.starts_with("mesh-"));
    dependencies.iter().filter(of_us).filter(move |dependency| dependency["kind"] == *kind)
}

#[test]
fn only_its_module_and_the_composition_root_name_the_topology() -> Result<()> {
    // proves: DT-7 DT-8
    let allowed = [
        // The type, its export, and the one reader that asks it.
        "delivery/src/topology.rs",
        "delivery/src/lib.rs",
    ];
    // Its key, and what is built of it.
    let composition_root = ["runtime/src/config", "runtime/src/boot"];
    let mut named = BTreeSet::new();
    for (name, text) in sources()? {
        if text.contains("DeliveryTopology") {
            named.insert(name);
        }
    }
    let astray: Vec<&String> = named
        .iter()
        .filter(|name| {
            !allowed.contains(&name.as_str()) && !composition_root.iter().any(|root| name.starts_with(root))
        })
        // Tests wire the line themselves.
        .filter(|name| !name.contains("/tests/") && !name.ends_with("/tests.rs"))
        .collect();
    ensure!(astray.is_empty(), "DeliveryTopology is named in {astray:?}");
    ensure!(named.contains(allowed[0]), "the allow list of this test is out of date: {named:?}");
    Ok(())
}

#[test]
fn protocols_talk_to_the_gate_through_the_intake_alone() -> Result<()> {
    let sources = sources()?;
    let (intake, protocols): (Vec<_>, Vec<_>) = sources
        .iter()
        .filter(|(name, text)| name.starts_with("ingress/src/") && text.contains("SecurityGate"))
        .map(|(name, _)| name.as_str())
        .partition(|name| name.starts_with("ingress/src/intake"));
    ensure!(protocols.is_empty(), "the gate is named in {protocols:?}");
    ensure!(intake.contains(&"ingress/src/intake.rs"), "the intake has no gate: {intake:?}");
    Ok(())
}

#[test]
fn no_production_crate_is_built_with_an_in_memory_store() -> Result<()> {
    // covers: U07  proves: ST-7
    for package in packages()? {
        let name = package["name"].as_str().context("a name")?.to_owned();
        for dependency in ours(&package, &Value::Null) {
            let features = dependency["features"].as_array().context("features")?;
            ensure!(
                !features.contains(&"conformance".into()),
                "{name} uses {} with conformance",
                dependency["name"]
            );
        }
        let defaults = package["features"]["default"].as_array().cloned().unwrap_or_default();
        ensure!(!defaults.contains(&"conformance".into()), "{name} has conformance among its defaults");
    }
    // In-memory stores are behind that feature or in tests; no source of the composition root names one.
    for (name, text) in sources()?.iter().filter(|(name, _)| name.starts_with("runtime/src")) {
        for store in [
            "MemoryMetaStore",
            "MemoryMeta",
            "InMemory",
            "MemoryPositions",
            "MemoryOffsetStore",
            "MemoryDeliveryStateStore",
        ] {
            ensure!(!text.contains(store), "{name} names {store}");
        }
    }
    for store in ["offset", "delivery", "dead_letter", "subscription", "session", "task"] {
        let in_memory = format!("memory_{store}");
        let found: Vec<String> = sources()?.into_keys().filter(|name| name.contains(&in_memory)).collect();
        ensure!(found.is_empty(), "there is an in-memory store in {found:?}");
    }
    Ok(())
}

#[test]
fn the_crate_table_says_who_uses_whom() -> Result<()> {
    let text =
        std::fs::read_to_string(root().join("ARCHITECTURE.md")).context("ARCHITECTURE.md is to be read")?;
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    let mut rows = text.lines().skip_while(|line| {
        let cells = cells(line);
        !(line.starts_with('|')
            && cells.first().is_some_and(|cell| cell == "crate")
            && cells.iter().any(|cell| cell == "uses"))
    });
    let header = cells(rows.next().context("no table `| crate | owns | uses |` in ARCHITECTURE.md")?);
    let uses = header.iter().position(|cell| cell == "uses").context("a column `uses`")?;
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in rows.skip(1).take_while(|line| line.starts_with('|')) {
        let cells = cells(line);
        let listed = cells.get(uses).map_or("", String::as_str);
        let names = listed
            .split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'))
            .filter(|name| !matches!(*name, "" | "-" | "nothing" | "of" | "ours" | "and"));
        documented.insert(short(&cells[0]).to_owned(), names.map(|name| short(name).to_owned()).collect());
    }
    let mut real: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages()? {
        let name = package["name"].as_str().context("a name")?;
        let names = ours(&package, &Value::Null).filter_map(|dependency| dependency["name"].as_str());
        real.insert(short(name).to_owned(), names.map(|name| short(name).to_owned()).collect());
    }
    assert_eq!(documented.keys().collect::<Vec<_>>(), real.keys().collect::<Vec<_>>());
    let wrong: Vec<String> = real
        .iter()
        .filter(|(name, uses)| {
            documented[*name] != **uses && documented[*name] != BTreeSet::from(["all".to_owned()])
        })
        .map(|(name, uses)| format!("{name} uses {uses:?}, the table says {:?}", documented[name]))
        .collect();
    ensure!(wrong.is_empty(), "the crate table of ARCHITECTURE.md is wrong:\n{}", wrong.join("\n"));
    Ok(())
}

/// The suites that hold the configuration as such against its rules, and show no effect of a key.
const OF_THE_CONFIGURATION: [&str; 4] = ["config.rs", "documents.rs", "gate_document.rs", "unknown_names.rs"];

#[test]
fn every_key_has_a_test_that_shows_what_it_does() -> Result<()> {
    let page = std::fs::read_to_string(root().join("docs/configuration.md"))?;
    let keys: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|key| key.starts_with("eventmesh.") && key.is_ascii())
        .collect();
    ensure!(keys.len() > 80, "only {} keys in the reference", keys.len());
    // A test shows a key that it gives to a server, or that it says it shows.
    let mut shown = BTreeSet::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        for list in text.lines().filter_map(|line| line.trim().strip_prefix("// shows: ")) {
            for key in list.split_whitespace() {
                ensure!(keys.contains(key), "{}: there is no key {key:?}", path.display());
                shown.insert(key.to_owned());
            }
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !OF_THE_CONFIGURATION.contains(&name) {
            let given = |key: &&&str| text.contains(&format!(".key(\"{key}\""));
            shown.extend(keys.iter().filter(given).map(|key| (*key).to_owned()));
        }
    }
    let missing: Vec<&&str> = keys.iter().filter(|key| !shown.contains(**key)).collect();
    ensure!(missing.is_empty(), "no test shows what these do: {missing:#?}");
    Ok(())
}

fn is_entry(id: &str) -> bool {
    id.strip_prefix('U')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[test]
fn every_failure_that_a_test_covers_is_described_and_the_other_way_round() -> Result<()> {
    let page = std::fs::read_to_string(root().join("docs/failures.md"))?;
    let described: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| U")?.split(' ').next())
        .map(|number| format!("U{number}"))
        .collect();
    let mut covered = BTreeSet::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path)?;
                let comments = text.lines().filter(|line| line.trim_start().starts_with("// "));
                let lists = comments.filter_map(|line| Some(line.split_once("covers: ")?.1));
                let ids = lists.flat_map(str::split_whitespace).filter(|id| is_entry(id));
                covered.extend(ids.map(str::to_owned));
            }
        }
    }
    let missing: Vec<_> = covered.difference(&described).collect();
    let idle: Vec<_> = described.difference(&covered).collect();
    ensure!(missing.is_empty() && idle.is_empty(), "not described: {missing:?}; not covered: {idle:?}");
    Ok(())
}

#[test]
fn every_test_that_names_a_catalogue_entry_names_one_of_a_known_form() -> Result<()> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(tests)? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        for line in text.lines().map(str::trim) {
            let Some(list) = line.strip_prefix("// covers: ").or(line.strip_prefix("// proves: ")) else {
                continue;
            };
            for id in list.replace("proves:", "").split_whitespace() {
                let number = id.strip_prefix('U').or_else(|| id.split_once('-').map(|(_, number)| number));
                let known = number.is_some_and(|number| number.parse::<u16>().is_ok());
                ensure!(known, "{}: {id:?} in {line:?}", path.display());
            }
        }
    }
    Ok(())
}
