//! The TOML files of the gate: parsed with the place of every value, so that a message can name the line.

use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::filter::LoadError;

/// How much of a bad value a message shows.
const SHOWN: usize = 80;

/// The text of a TOML file with its path, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TomlText<'a> {
    path: &'a Path,
    text: &'a str,
}

impl<'a> TomlText<'a> {
    pub(crate) fn new(path: &'a Path, text: &'a str) -> Self {
        Self { path, text }
    }

    /// The document, if the text is TOML.
    pub(crate) fn parse(self) -> Result<DeTable<'a>, LoadError> {
        DeTable::parse(self.text).map(Spanned::into_inner).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.unusable(at, format!("it is not TOML: {}", error.message()))
        })
    }

    /// The entries `[[name]]` of a document that has nothing else.
    pub(crate) fn entries<'d>(
        self,
        document: &'d DeTable<'a>,
        name: &str,
    ) -> Result<Vec<(usize, &'d DeTable<'a>)>, LoadError> {
        if let Some((other, _)) = document.iter().find(|(key, _)| key.get_ref() != name) {
            let problem = format!("`{}` is not known here; only [[{name}]] is", other.get_ref());
            return Err(self.unusable(other.span().start, problem));
        }
        let Some(value) = document.values().next() else { return Ok(Vec::new()) };
        let list = value.get_ref().as_array();
        let list = list.ok_or_else(|| self.unusable(value.span().start, format!("write [[{name}]]")))?;
        let entry = |entry: &'d Spanned<DeValue<'a>>| {
            let at = entry.span().start;
            let table = entry.get_ref().as_table();
            table.map(|table| (at, table)).ok_or_else(|| self.unusable(at, format!("write [[{name}]]")))
        };
        list.iter().map(entry).collect()
    }

    /// The number of the line where something stands.
    pub(crate) fn line(self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    /// What is written there, in short.
    pub(crate) fn shown(self, value: &Spanned<DeValue<'_>>) -> String {
        let written = self.text.get(value.span()).unwrap_or_default();
        let mut short: String = written.chars().take(SHOWN).collect();
        if short.len() < written.len() {
            short.push('…');
        }
        short
    }

    /// The refusal of the file because of what stands at a place.
    pub(crate) fn unusable(self, at: usize, problem: String) -> LoadError {
        LoadError::Unusable { origin: format!("{}:{}", self.path.display(), self.line(at)), problem }
    }
}

/// The integer that is written, if it is one that fits.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}
