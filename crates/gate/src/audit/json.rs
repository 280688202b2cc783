//! A record as the members of a JSON object.
//!
//! Texts that clients chose are cut at [`LONGEST`] bytes, and what could end a line or steer a terminal is written
//! as `\u….`: one record is one line, whatever is in it.

use mesh_frame::format_timestamp;

use super::AuditRecord;
use crate::Action;

/// How many bytes of a text are kept.
pub(super) const LONGEST: usize = 1_024;

/// The members of a record, without braces; what is not known is left out.
pub(super) fn members(record: &AuditRecord<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"\"at\":\"");
    out.extend_from_slice(format_timestamp(record.at.0).as_bytes());
    out.extend_from_slice(b"\",\"kind\":\"decision\",\"outcome\":\"");
    out.extend_from_slice(record.outcome.as_str().as_bytes());
    out.push(b'"');
    let texts = [
        ("filter", record.filter),
        ("reason", Some(record.reason)),
        ("operation", record.operation.map(Action::as_str)),
        ("resource", Some(record.resource)),
        ("tenant", Some(record.tenant)),
        ("principal", record.principal),
        ("credential", Some(record.credential.as_str())),
        ("protocol", Some(record.protocol.as_str())),
        ("trace", record.trace),
    ];
    for (name, text) in texts {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            member(&mut out, name, text);
        }
    }
    if let Some(remote) = record.remote {
        member(&mut out, "remote", &remote.to_string());
    }
    out
}

/// One more member, a text.
pub(super) fn member(out: &mut Vec<u8>, name: &str, text: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    let kept = cut(text);
    escape(out, kept);
    if kept.len() < text.len() {
        out.extend_from_slice("…".as_bytes());
    }
    out.push(b'"');
}

/// The beginning of a text that is too long to be kept.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

fn escape(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut buffer = [0; 4];
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
            // Control characters, line ends of JavaScript, marks that turn the direction of writing.
            char if char.is_control() || matches!(u32::from(char), 0x2028..=0x202e | 0x2066..=0x2069) => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
            }
            char => out.extend_from_slice(char.encode_utf8(&mut buffer).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use mesh_base::UnixMillis;

    use super::*;
    use crate::{CredentialKind, Outcome, Protocol};

    #[test]
    fn hostile_texts_stay_in_one_line_and_short() {
        // covers: U110
        let hostile = "a\"b\\c\nd\re\u{1b}[31m\u{9b}\u{2028}\u{202e}ü𝄞\0";
        let long = "ü".repeat(100_000);
        let record = AuditRecord {
            at: UnixMillis(1_000),
            outcome: Outcome::Denied,
            filter: Some("acl"),
            reason: "no",
            operation: Some(Action::Publish),
            resource: hostile,
            tenant: "t",
            principal: Some(&long),
            credential: CredentialKind::Jwt,
            remote: "[::1]:9".parse().ok(),
            protocol: Protocol::Http,
            trace: Some(hostile),
        };
        let members = String::from_utf8(members(&record)).expect("UTF-8");
        assert!(!members.contains(char::is_control) && members.len() < 3_000, "{members}");
        let read: serde_json::Value = serde_json::from_str(&format!("{{{members}}}")).expect("JSON");
        assert_eq!((&read["resource"], &read["trace"]), (&hostile.into(), &hostile.into()));
        assert_eq!(read["principal"], format!("{}…", "ü".repeat(512)));
        assert_eq!(read["at"], "1970-01-01T00:00:01.000Z");
        let same = ["outcome", "filter", "operation", "tenant", "credential", "remote", "protocol"];
        let same = same.map(|name| read[name].as_str().unwrap_or_default());
        assert_eq!(same, ["denied", "acl", "PUBLISH", "t", "jwt", "[::1]:9", "http"]);
    }
}
