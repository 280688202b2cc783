use std::collections::HashSet;

use super::*;
use crate::config::mode::Mode;

#[test]
fn every_default_is_a_value_that_its_key_accepts() {
    for key in all() {
        for mode in [Mode::Standalone, Mode::Server] {
            if let Some(value) = key.about().fallback.value(mode) {
                assert_eq!(key.check(value), Ok(()), "{} = {value} under {mode}", key.about().name);
            }
        }
    }
}

#[test]
fn no_two_keys_share_a_name_or_a_variable() {
    let (mut names, mut variables) = (HashSet::new(), HashSet::new());
    for key in all() {
        let name = key.about().name;
        assert!(name.starts_with("eventmesh."), "{name}");
        assert!(names.insert(name), "{name}");
        assert!(variables.insert(variable(name)), "{name}");
    }
}

#[test]
fn a_variable_is_the_key_in_capitals_with_its_humps_kept_together() {
    assert_eq!(variable("eventmesh.storage.lowWatermark"), "EVENTMESH_STORAGE_LOWWATERMARK");
}

#[test]
fn every_key_says_what_it_means_in_sentences() {
    for key in all() {
        let about = key.about();
        assert!(
            about.meaning.ends_with('.') && !about.meaning.contains("  "),
            "{}: {}",
            about.name,
            about.meaning
        );
        assert!(key.options().iter().all(|(_, meaning)| meaning.ends_with('.')), "{}", about.name);
    }
}
