//! Within a crate files import downwards only: no two modules use each other, at whatever distance.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, Result, ensure};
use mesh_tests::modules::Modules;

/// Crates that still have circles.
const NOT_YET: &[&str] = &[];

#[test]
fn modules_of_a_crate_do_not_use_each_other_in_a_circle() -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let circles = Modules::read(&entry.path().join("src"))?.circles();
        if NOT_YET.contains(&name.as_str()) {
            ensure!(!circles.is_empty(), "{name} has no circle any more: take it off the list");
            continue;
        }
        found.extend(circles.into_iter().map(|circle| format!("{name}: {circle:?}")));
    }
    found.sort();
    ensure!(found.is_empty(), "modules use each other in a circle:\n{}", found.join("\n"));
    Ok(())
}

#[test]
fn the_rooms_of_delivery_use_only_the_rooms_before_them() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let (_, table) = text.split_once("| in `crates/delivery/src` |").context("the table of the rooms")?;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let order: Vec<Vec<String>> = rows
        .map(|row| {
            let places = row.split('|').nth(1).unwrap_or_default().split(',');
            let name = |place: &str| place.trim().trim_matches('`').trim_end_matches('/').replace(".rs", "");
            places.map(name).collect()
        })
        .collect();
    let modules = Modules::read(&root.join("crates/delivery/src"))?;
    let listed: BTreeSet<String> = order.iter().flatten().cloned().collect();
    ensure!(listed == modules.places(), "the table lists {listed:?}, there are {:?}", modules.places());
    let against = modules.against(&order);
    ensure!(against.is_empty(), "rooms use later ones:\n{}", against.join("\n"));
    Ok(())
}
