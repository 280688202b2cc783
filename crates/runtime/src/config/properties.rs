//! Reads the Java properties format.
//!
//! `#` and `!` begin a comment; `=`, `:` or a blank ends the key; a backslash at the end of a line continues it,
//! elsewhere it escapes (`\t`, `\n`, `\r`, `\f`, `\uXXXX`, and any other character as itself). Values are trimmed.

/// A key with its value and the line it begins on, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    pub(crate) wrong: &'static str,
}

/// Reads a whole file, line by line; a bad line does not hide the others.
pub(crate) fn parse(text: &str) -> Vec<Result<Entry, Unreadable>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    logical_lines(text).into_iter().map(|(line, content)| entry(line, &content)).collect()
}

/// Lines with their continuations, without blank lines and comments.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut natural = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).zip(1..);
    while let Some((first, number)) = natural.next() {
        let first = first.trim_start_matches(is_blank);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = first.to_owned();
        while continues(&whole) {
            whole.pop();
            match natural.next() {
                Some((next, _)) => whole.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        lines.push((number, whole));
    }
    lines
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\u{c}')
}

/// An odd number of backslashes at the end: the last one escapes the line break.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn entry(line: usize, content: &str) -> Result<Entry, Unreadable> {
    let (key, value) = split(content);
    let read = |text| unescape(text).map_err(|wrong| Unreadable { line, wrong });
    let (key, value) = (read(key)?, read(value)?);
    if key.is_empty() {
        return Err(Unreadable { line, wrong: "there is no key before the separator" });
    }
    Ok(Entry { line, key, value: value.trim().to_owned() })
}

/// The raw key and the raw value.
fn split(content: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = content
        .char_indices()
        .find(|(_, character)| {
            let ends = !escaped && (is_blank(*character) || matches!(character, '=' | ':'));
            escaped = !escaped && *character == '\\';
            ends
        })
        .map_or(content.len(), |(at, _)| at);
    let (key, rest) = content.split_at(end);
    let rest = rest.trim_start_matches(is_blank);
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest))
}

fn unescape(text: &str) -> Result<String, &'static str> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // UTF-16, because that is what `\u` escapes count in: a pair of them is one character.
    let mut units = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let plain = match character {
            '\\' => match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = characters.by_ref().take(4).collect();
                    let hex = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                    let unit = if hex { u16::from_str_radix(&digits, 16).ok() } else { None };
                    units.push(unit.ok_or("\\u is not followed by four hexadecimal digits")?);
                    continue;
                }
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).map_err(|_| "\\u escapes do not make a character")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_properties_file_reads_as_java_reads_it() {
        type Read = &'static [(usize, &'static str, &'static str)];
        let cases: [(&str, Read); 14] = [
            ("a=1\nb=2", &[(1, "a", "1"), (2, "b", "2")]),
            ("# a=1\n! b=2\n\n  # c\nd=4", &[(5, "d", "4")]),
            ("  a  =  1  \r\nb : 2\r\n", &[(1, "a", "1"), (2, "b", "2")]),
            ("a 1", &[(1, "a", "1")]),
            ("a", &[(1, "a", "")]),
            ("a=", &[(1, "a", "")]),
            ("a=b=c:d", &[(1, "a", "b=c:d")]),
            ("a=1,\\\n   2,\\\n   3\nb=4", &[(1, "a", "1,2,3"), (4, "b", "4")]),
            ("a=x\\\\\nb=1", &[(1, "a", "x\\"), (2, "b", "1")]),
            ("a=1\\", &[(1, "a", "1")]),
            ("a\\=b=1", &[(1, "a=b", "1")]),
            ("a=\\u00e9\\uD83D\\uDE00\\t.", &[(1, "a", "é😀\t.")]),
            ("\u{feff}a=1", &[(1, "a", "1")]),
            ("a=1 # no comment", &[(1, "a", "1 # no comment")]),
        ];
        for (text, expected) in cases {
            let read: Vec<_> = parse(text).into_iter().map(Result::unwrap).collect();
            let read: Vec<_> = read.iter().map(|e| (e.line, e.key.as_str(), e.value.as_str())).collect();
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn a_bad_line_is_told_by_its_number_and_hides_no_other() {
        let read = parse("a=\\u00g0\n=2\nc=\\uD83D\nd=4");
        let lines: Vec<_> = read.iter().filter_map(|r| r.as_ref().err()).map(|e| e.line).collect();
        assert_eq!(lines, [1, 2, 3]);
        assert_eq!(read[3], Ok(Entry { line: 4, key: "d".to_owned(), value: "4".to_owned() }));
    }
}
