//! Files of entries: TOML with one array of tables, such as `[[token]]`.
//!
//! What they have in common: nothing that is not known is let stand, no text is blank or holds a placeholder
//! that nobody filled in, and what is wrong is told with its line and without the text itself, which may be a
//! secret.

use std::{collections::BTreeMap, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::filter::LoadError;

/// One `[[entry]]`, taken apart member by member.
#[derive(Debug)]
pub(crate) struct Entry {
    path: String,
    /// Where it begins.
    line: usize,
    members: BTreeMap<String, (usize, Member)>,
}

#[derive(Debug)]
enum Member {
    Text(String),
    Texts(Vec<String>),
}

/// The entries of a file, at least one.
pub(crate) fn parse(path: &Path, text: &str, entry: &str) -> Result<Vec<Entry>, LoadError> {
    let lines = Lines { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        lines.unusable(at, format!("this is not TOML: {}", error.message()))
    })?;
    let mut entries = Vec::new();
    for (name, value) in table.get_ref() {
        let tables = match value.get_ref() {
            DeValue::Array(tables) if name.get_ref() == entry => tables,
            _ => {
                return Err(lines.unusable(name.span().start, format!("only [[{entry}]] may stand here")));
            }
        };
        for table in tables.iter() {
            entries.push(lines.entry(table, entry)?);
        }
    }
    if entries.is_empty() {
        let problem = format!("there is no [[{entry}]] in it: nobody could be let in");
        return Err(LoadError::Unusable { origin: path.display().to_string(), problem });
    }
    Ok(entries)
}

/// Where in a file something stands.
struct Lines<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Lines<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
    }

    fn unusable(&self, at: usize, problem: String) -> LoadError {
        LoadError::Unusable { origin: format!("{}:{}", self.path.display(), self.line(at)), problem }
    }

    fn entry(&self, table: &Spanned<DeValue<'_>>, entry: &str) -> Result<Entry, LoadError> {
        let line = self.line(table.span().start);
        let DeValue::Table(members) = table.get_ref() else {
            return Err(self.unusable(table.span().start, format!("only [[{entry}]] may stand here")));
        };
        let mut taken = BTreeMap::new();
        for (name, value) in members {
            let at = value.span().start;
            let member = self.member(name.get_ref(), value)?;
            taken.insert(name.get_ref().to_string(), (self.line(at), member));
        }
        Ok(Entry { path: self.path.display().to_string(), line, members: taken })
    }

    fn member(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Member, LoadError> {
        let at = value.span().start;
        let name = shown(name);
        let text = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::String(text) if text.trim().is_empty() => {
                Err(self.unusable(at, format!("`{name}` is blank")))
            }
            DeValue::String(text) if text.contains("${") => Err(self
                .unusable(at, format!("`{name}` holds a placeholder (`${{…}}`) that nothing has filled in"))),
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.unusable(at, format!("`{name}` must be text, or a list of texts"))),
        };
        match value.get_ref() {
            DeValue::Array(items) => Ok(Member::Texts(items.iter().map(text).collect::<Result<_, _>>()?)),
            DeValue::Datetime(time) => Ok(Member::Text(time.to_string())),
            _ => text(value).map(Member::Text),
        }
    }
}

/// A member's name as it may be told: one that is misspelt can be a secret that lost its quotes.
fn shown(name: &str) -> &str {
    let is_word = name.len() <= 20 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_word { name } else { "…" }
}

impl Entry {
    /// Takes a text out.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, LoadError> {
        match self.members.remove(name) {
            None => Ok(None),
            Some((_, Member::Text(text))) => Ok(Some(text)),
            Some((line, Member::Texts(_))) => {
                Err(self.unusable_at(line, format!("`{name}` must be one text")))
            }
        }
    }

    /// Takes a text out that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<String, LoadError> {
        self.text(name)?.ok_or_else(|| self.unusable(format!("`{name}` is missing")))
    }

    /// Takes a list of texts out; empty where there is none.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, LoadError> {
        match self.members.remove(name) {
            None => Ok(Vec::new()),
            Some((_, Member::Texts(texts))) => Ok(texts),
            Some((line, Member::Text(_))) => {
                Err(self.unusable_at(line, format!("`{name}` must be a list of texts")))
            }
        }
    }

    /// Refuses what was not taken out.
    pub(crate) fn finish(self, known: &str) -> Result<(), LoadError> {
        match self.members.iter().next() {
            None => Ok(()),
            Some((name, &(line, _))) => {
                let problem = format!("`{}` is not known here; {known} are", shown(name));
                Err(self.unusable_at(line, problem))
            }
        }
    }

    /// This entry cannot be used.
    pub(crate) fn unusable(&self, problem: String) -> LoadError {
        self.unusable_at(self.line, problem)
    }

    fn unusable_at(&self, line: usize, problem: String) -> LoadError {
        LoadError::Unusable { origin: format!("{}:{line}", self.path), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file is refused for.
    fn refused(text: &str) -> String {
        match parse(Path::new("f"), text, "token") {
            Ok(entries) => panic!("taken: {entries:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_without_the_text() {
        let cases = [
            ("", "f: there is no [[token]] in it: nobody could be let in"),
            ("[[tokens]]\nname = \"a\"", "f:1: only [[token]] may stand here"),
            ("[token]\nname = \"a\"", "f:1: only [[token]] may stand here"),
            ("token = [\"s3cret\"]", "f:1: only [[token]] may stand here"),
            ("\n[[token]]\nvalue = \" \"", "f:3: `value` is blank"),
            (
                "[[token]]\nvalue = \"${TOKEN}\"",
                "f:2: `value` holds a placeholder (`${…}`) that nothing has filled in",
            ),
            ("[[token]]\nroles = [\"\"]", "f:2: `roles` is blank"),
            ("[[token]]\nvalue = 7", "f:2: `value` must be text, or a list of texts"),
        ];
        for (text, expected) in cases {
            assert_eq!(refused(text), expected, "{text:?}");
        }
        for broken in
            ["[[token]]\nvalue = s3cret", "[[token]]\nvalue = \"s3cret", "[[token]]\ns3cret", "s3cret"]
        {
            let told = refused(broken);
            assert!(told.contains("this is not TOML") && !told.contains("s3cret"), "{broken:?}: {told}");
        }
        let twice = refused("[[token]]\nvalue = \"s3cret\"\nvalue = \"s3cret\"");
        assert!(twice.starts_with("f:3: this is not TOML") && !twice.contains("s3cret"), "{twice}");
    }

    #[test]
    fn members_that_nobody_took_are_refused() {
        let text = "[[token]]\nname = \"a\"\nrols = [\"b\"]";
        let mut entry = parse(Path::new("f"), text, "token").expect("TOML").remove(0);
        assert_eq!(entry.required("name").expect("there"), "a");
        assert!(entry.required("name").is_err());
        let told = entry.finish("`name` and `roles`").expect_err("a misspelt member").to_string();
        assert_eq!(told, "f:3: `rols` is not known here; `name` and `roles` are");
    }
}
