//! Within a crate files import downwards only: no two modules use each other, at whatever distance.

use std::path::Path;

use anyhow::{Result, ensure};
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
