//! The three sources: a file, the environment, `-D`. Reads them into pairs; judges none of them.

use std::{ffi::OsString, path::Path};

use super::{
    origin::{Origin, Pair},
    problems::Problem,
    properties,
};

/// What the sources gave, in no particular order of precedence: [`Origin`] knows that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Every name with its value.
    pub pairs: Vec<Pair>,
    /// What could not be read at all.
    pub problems: Vec<Problem>,
}

impl Given {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file. One that cannot be read is a problem: it was asked for.
    #[must_use]
    pub fn with_file(mut self, path: &Path) -> Self {
        match std::fs::read(path) {
            Ok(bytes) => match str::from_utf8(&bytes) {
                Ok(text) => self.add_text(path, text),
                Err(error) => {
                    let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
                    self.problem_in(path, line, "the file is not UTF-8 here");
                }
            },
            Err(error) => self.problem_in(path, 0, &format!("the file cannot be read: {error}")),
        }
        self
    }

    /// Adds the variables that begin with `EVENTMESH_`, or would with capitals.
    #[must_use]
    pub fn with_environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut ours: Vec<_> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| {
                let capitals = name.to_ascii_uppercase().replace('.', "_");
                // Those of the commands of users are theirs.
                capitals.starts_with("EVENTMESH_") && !capitals.starts_with("EVENTMESH_CLI_")
            })
            .collect();
        ours.sort();
        for (name, value) in ours {
            let origin = Origin::Environment(name.clone());
            match value.into_string() {
                Ok(value) => self.pairs.push(Pair { name, value: value.trim().to_owned(), origin }),
                Err(_) => self.problems.push(Problem::with_source(name, origin, "its value is not UTF-8")),
            }
        }
        self
    }

    /// Adds what stood behind `-D`, `key=value` each; of several for one key the last holds.
    #[must_use]
    pub fn with_definitions<'a>(mut self, definitions: impl IntoIterator<Item = &'a str>) -> Self {
        for definition in definitions {
            let (name, value) = match definition.split_once('=') {
                Some((name, value)) if !name.trim().is_empty() => {
                    (name.trim().to_owned(), value.trim().to_owned())
                }
                // The text is not repeated: what is behind a misplaced blank could be a secret.
                _ => {
                    let name =
                        definition.split(|c: char| c.is_whitespace() || c == ':').next().unwrap_or_default();
                    let wrong = "it is not -Dkey=value";
                    self.problems.push(Problem::with_source(format!("-D{name}"), Origin::CommandLine, wrong));
                    continue;
                }
            };
            self.pairs.push(Pair { name, value, origin: Origin::CommandLine });
        }
        self
    }

    fn add_text(&mut self, path: &Path, text: &str) {
        for read in properties::parse(text) {
            match read {
                Ok(entry) => self.pairs.push(Pair {
                    name: entry.key,
                    value: entry.value,
                    origin: Origin::File { path: path.to_owned(), line: entry.line },
                }),
                Err(unreadable) => self.problem_in(path, unreadable.line, unreadable.wrong),
            }
        }
    }

    fn problem_in(&mut self, path: &Path, line: usize, wrong: &str) {
        let origin = Origin::File { path: path.to_owned(), line };
        self.problems.push(Problem::with_source("--config", origin, wrong));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str, origin: Origin) -> Pair {
        Pair { name: name.to_owned(), value: value.to_owned(), origin }
    }

    #[test]
    fn definitions_are_split_at_the_first_equals_sign_and_trimmed() {
        let given = Given::new().with_definitions(["a = b=c ", "a=", "nothing", "=x"]);
        let expected = [pair("a", "b=c", Origin::CommandLine), pair("a", "", Origin::CommandLine)];
        assert_eq!(given.pairs, expected);
        let about: Vec<_> = given.problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(about, ["-Dnothing", "-D=x"]);
    }

    #[test]
    fn only_our_variables_are_taken() {
        let variables = [
            ("PATH", "/bin"),
            ("EVENTMESH_HTTP_PORT", " 1 "),
            ("eventmesh.admin.token", "x"),
            ("EVENTMESH", "y"),
        ];
        let given = Given::new().with_environment(variables.map(|(name, value)| (name.into(), value.into())));
        let variable = |name: &str| Origin::Environment(name.to_owned());
        let expected = [
            pair("EVENTMESH_HTTP_PORT", "1", variable("EVENTMESH_HTTP_PORT")),
            pair("eventmesh.admin.token", "x", variable("eventmesh.admin.token")),
        ];
        assert_eq!(given.pairs, expected);
    }

    #[test]
    fn a_file_that_is_not_there_is_a_problem_that_names_it() {
        let given = Given::new().with_file(Path::new("/nowhere/eventmesh.properties"));
        assert_eq!(given.problems.len(), 1);
        assert!(
            given.problems[0].to_string().contains("/nowhere/eventmesh.properties"),
            "{:?}",
            given.problems
        );
    }
}
