//! What is printed: tables for people, JSON for programs.

use std::io::{self, Write};

use serde_json::Value;

use crate::{connect::Form, problem::Failure};

/// A text as a person may see it: control characters are written out, so that an event cannot steer the terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // Beside controls those that turn the direction of the text around.
        if character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A JSON value as a cell of a table.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => shown(text),
        other => shown(&other.to_string()),
    }
}

/// A table: columns as wide as what stands in them, the last as wide as it is.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    let heads: Vec<String> = heads.iter().map(|head| head.to_uppercase()).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Prints to the standard output. `false`: its reader has gone, which ends a command and is no failure.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::other(format!("cannot write to the standard output: {error}"))),
    }
}

/// Prints an answer: as it came, or what `people` makes of it.
pub(crate) fn answer(
    form: Form,
    value: &Value,
    people: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    let text = match form {
        Form::Json => format!("{value}\n"),
        Form::Table => people(value),
    };
    print(&text).map(drop)
}

/// Prints a list: each element on a line as it came, or a table.
pub(crate) fn list(
    form: Form,
    values: &[Value],
    heads: &[&str],
    row: impl Fn(&Value) -> Vec<String>,
) -> Result<(), Failure> {
    let text = match form {
        Form::Json => values.iter().map(|value| format!("{value}\n")).collect(),
        Form::Table => table(heads, &values.iter().map(row).collect::<Vec<_>>()),
    };
    print(&text).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_in_a_table_steers_a_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\r\n\tü"), "a\\u{1b}[2Jb\\r\\n\\tü");
        assert_eq!(shown("a\u{202e}b\u{9b}"), "a\\u{202e}b\\u{9b}");
        assert_eq!(cell(&json!({"a": "\u{1b}"})), "{\"a\":\"\\u001b\"}");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [vec!["orders".to_owned(), "4".to_owned()], vec!["ü".to_owned(), "10".to_owned()]];
        assert_eq!(table(&["topic", "n"], &rows), "TOPIC   N\norders  4\nü       10\n");
        assert_eq!(table(&["topic"], &[]), "TOPIC\n");
    }
}
