//! The documents made from the declarations: the shipped properties file and the reference page.
//!
//! `eventmesh config reference` prints them; a test compares the ones in the repository with what is printed.

use super::{
    declared::{Declared, Fallback},
    keys,
};

/// How wide comments of the properties file are.
const WIDTH: usize = 100;

/// `conf/eventmesh.properties`: every key, commented out, with its default and what it means.
pub fn properties() -> String {
    let mut text = String::from(
        "# EventMesh: every key of this release, commented out, with its default.\n\
         #\n\
         # Use it with `eventmesh server --config FILE`. A key can also be set by an environment variable (its name in\n\
         # capitals, `.` written `_`: EVENTMESH_HTTP_PORT) or by -Dkey=value; -D beats the environment, the environment\n\
         # beats this file. A blank value counts as unset, or stops the start where it says \"not blank\". An unknown key stops\n\
         # the start.\n\
         #\n\
         # Durations: 250ms, 10s, 5m, 2h, 7d; sizes: 512KiB, 12MiB, 1GiB; without a unit: milliseconds and bytes.\n",
    );
    for (group, keys) in keys::groups() {
        text.push_str(&format!("\n\n# ---- {} {}\n", group.title, "-".repeat(WIDTH - 8 - group.title.len())));
        wrap(&mut text, "# ", group.about);
        for key in keys {
            text.push('\n');
            property(&mut text, *key);
        }
    }
    text
}

fn property(text: &mut String, key: &dyn Declared) {
    let about = key.about();
    wrap(text, "# ", about.meaning);
    for (word, meaning) in key.options() {
        wrap(text, "#   ", &format!("{word}: {meaning}"));
    }
    wrap(text, "# ", &format!("Accepted: {}.", accepted(key)));
    let value = match about.fallback {
        Fallback::Value(value) => value,
        Fallback::PerMode { standalone, server } => {
            wrap(text, "# ", &format!("Default: {server}; under `eventmesh standalone` {standalone}."));
            server
        }
        Fallback::RequiredByServer { .. } => "",
        Fallback::Unset(without) => {
            wrap(text, "# ", &format!("Unset: {without}."));
            ""
        }
    };
    text.push_str(&format!("#{}={value}\n", about.name));
}

/// Breaks a text at blanks; each line begins with `prefix`.
fn wrap(text: &mut String, prefix: &str, words: &str) {
    let mut line = prefix.to_owned();
    let continuation = format!("{prefix}{}", if prefix.len() > 2 { "  " } else { "" });
    for word in words.split(' ') {
        if line.len() + word.len() > WIDTH {
            text.push_str(&format!("{}\n", line.trim_end()));
            line.clone_from(&continuation);
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(&format!("{}\n", line.trim_end()));
}

/// `docs/configuration.md`: how configuration works, and a table for every group.
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    for (group, keys) in keys::groups() {
        text.push_str(&format!("\n## {}\n\n{}\n\n", group.title, group.about));
        text.push_str("| Key and variable | Default | Meaning | Accepted |\n| --- | --- | --- | --- |\n");
        for key in keys {
            let about = key.about();
            let mut meaning = about.meaning.to_owned();
            for (word, what) in key.options() {
                meaning.push_str(&format!("<br>`{word}`: {what}"));
            }
            let (name, variable) = (about.name, keys::variable(about.name));
            let (default, accepted) = (default(about.fallback), accepted(*key));
            text.push_str(&format!("| `{name}`<br>`{variable}` | {default} | {meaning} | {accepted} |\n"));
        }
    }
    text
}

fn accepted(key: &dyn Declared) -> String {
    let not_blank = if key.about().never_blank { "; not blank" } else { "" };
    format!("{}{not_blank}", key.accepted())
}

fn default(fallback: Fallback) -> String {
    match fallback {
        Fallback::Value(value) => format!("`{value}`"),
        Fallback::PerMode { standalone, server } => format!("`{server}`; standalone `{standalone}`"),
        Fallback::RequiredByServer { standalone } => format!("none; standalone `{standalone}`"),
        Fallback::Unset(without) => format!("unset: {without}"),
    }
}

const INTRODUCTION: &str = "\
# Configuration

This page and `conf/eventmesh.properties` are made from the declarations in the code
(`eventmesh config reference --format markdown` and `--format properties`); a test compares them.

## Sources

1. `-Dkey=value` on the command line, as often as needed; of several for one key the last holds.
2. The environment variable of the key: its name in capitals with `.` written as `_`, humps not split, as
   `EVENTMESH_STORAGE_LOWWATERMARK`.
3. The file given with `--config FILE`, in the Java properties format. No file is read unless it is given.

A source beats those below it. Values are trimmed; a blank value counts as unset (it also hides a value of a lower
source), except where the table says \"not blank\": secrets, and files and names that something is checked against.
There a blank value stops the start. A value with a placeholder `${…}` that nobody filled in stops it everywhere.

Durations are `250ms`, `10s`, `5m`, `2h`, `7d`, or milliseconds without a unit. Sizes are `512KiB`, `12MiB`, `1GiB`,
`1TiB`, or bytes without a unit. A value out of its range is refused, never clamped.

## Mistakes

All problems are printed together, each with the key, the value, where it comes from and what is accepted; then the
program ends with exit code 64, before anything is opened or bound. Other failures to start are exit code 1.

| What | Then |
| --- | --- |
| unknown `eventmesh.…` key in the file or behind `-D` | problem, with the nearest known key |
| unknown `EVENTMESH_…` variable | warning; under `EVENTMESH_SECURITY_` and `EVENTMESH_ADMIN_` a problem |
| variables that Kubernetes makes for services (`…_SERVICE_HOST`, `…_SERVICE_PORT…`, `…_PORT_<n>_…`, values `tcp://…` and `udp://…`) | ignored, one warning |
| keys of earlier generations, `eventMesh.…` | ignored, a warning that names the new key |
| any other key in the file or behind `-D` | ignored, a warning |

Secrets are masked in every message, misspelt ones too. A secret behind `-D` can be seen in the list of processes:
prefer the file or the environment.

## Commands

| Command | What it does |
| --- | --- |
| `eventmesh standalone` | starts with nothing configured: embedded storage, loopback, `./data` |
| `eventmesh server` | the strict one: `eventmesh.storage.type` must be given |
| `eventmesh config check` | validates as `server`, or with `--standalone` as that, opens every file that a start would, tells all problems at once, and starts nothing |
| `eventmesh config show` | prints every key with the value that holds and where it comes from |
| `eventmesh config reference` | prints this page or the properties file |
";

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::config::{Given, Mode, validate};

    fn committed(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    // proves: CF-5
    #[test]
    fn the_documents_in_the_repository_are_the_ones_the_declarations_make() {
        for (path, made) in
            [("conf/eventmesh.properties", properties()), ("docs/configuration.md", markdown())]
        {
            assert!(committed(path) == made, "{path} is out of date: run `make reference`");
        }
    }

    // proves: DT-9, CF-1, CF-2
    #[test]
    fn the_shipped_file_lists_the_topology_with_its_default_and_both_modes() {
        let text = properties();
        assert!(text.contains("\n#eventmesh.delivery.topology=LOCAL_STICKY_PULL\n"), "{text}");
        assert!(text.contains("\n#eventmesh.security.gate.failClosed=false\n"), "{text}");
        for mode in ["LOCAL_STICKY_PULL", "PARTITION_OWNED_PULL"] {
            assert!(text.contains(&format!("#   {mode}: ")), "{mode} is not explained");
        }
    }

    // proves: CF-3
    #[test]
    fn the_shipped_file_has_no_storage_type() {
        assert!(properties().contains("\n#eventmesh.storage.type=\n"));
    }

    #[test]
    fn every_line_of_the_shipped_file_is_a_comment_until_someone_edits_it() {
        assert!(properties().lines().all(|line| line.is_empty() || line.starts_with('#')));
    }

    #[test]
    fn the_shipped_file_with_every_line_in_force_is_what_the_defaults_are() {
        let text = properties();
        let lines = text.lines().filter(|line| line.starts_with("#eventmesh."));
        // What must not be blank stands there without a value, which a file in force must not have.
        let is_blank = |line: &&str| {
            keys::all().any(|key| key.about().never_blank && **line == format!("{}=", key.about().name))
        };
        let given = lines.map(|line| &line[1..]).filter(|line| !is_blank(line));
        let storage = "eventmesh.storage.type=embedded";
        let all = Given::new().with_definitions(given.chain([storage]));
        let none = Given::new().with_definitions([storage]);
        let of = |given| {
            validate(given, Mode::Server).map(|(s, _)| (s.delivery, s.storage, s.http, s.admin, s.instance))
        };
        assert_eq!(of(all), of(none));
    }
}
