//! The bytes that are signed (RFC 9421, 2.5): one line for each part that is covered, and one for how.
//!
//! Every line comes from the request as it was received; a part that the request does not have, or that could be
//! read in two ways, is refused and never left out.

use std::fmt::Write;

use super::{SignedHead, input::Input};

/// The signature base; the error is for the client.
pub(super) fn of(head: &SignedHead<'_>, input: &Input) -> Result<String, &'static str> {
    let mut base = String::new();
    for component in &input.components {
        let value = value(head, component)?;
        writeln!(base, "\"{component}\": {value}").expect("writing to a string does not fail");
    }
    write!(base, "\"@signature-params\": {}", input.params).expect("writing to a string does not fail");
    Ok(base)
}

fn value(head: &SignedHead<'_>, component: &str) -> Result<String, &'static str> {
    let path = if head.path.is_empty() { "/" } else { head.path };
    let value = match component {
        "@method" => head.method.to_owned(),
        "@path" => path.to_owned(),
        "@query" => format!("?{}", head.query.unwrap_or_default()),
        "@request-target" => match head.query {
            None => path.to_owned(),
            Some(query) => format!("{path}?{query}"),
        },
        "@authority" => authority(head)?,
        _ if component.starts_with('@') => return Err("a part that is signed is not supported"),
        _ => field(head, component)?,
    };
    match value.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte == b'\t') {
        true => Ok(value),
        false => Err("a part that is signed has characters that cannot be signed"),
    }
}

/// A header: its values without blanks around them, in their order, with commas between.
fn field(head: &SignedHead<'_>, name: &str) -> Result<String, &'static str> {
    let is_name =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err("a part that is signed is not the name of a header in small letters");
    }
    let values = (head.header)(name);
    if values.is_empty() {
        return Err("a header that is signed was not sent");
    }
    let texts: Result<Vec<_>, _> = values.iter().map(|value| str::from_utf8(value.trim_ascii())).collect();
    Ok(texts.map_err(|_| "a part that is signed has characters that cannot be signed")?.join(", "))
}

/// The host that the request was sent to, without the port where that is the scheme's default.
fn authority(head: &SignedHead<'_>) -> Result<String, &'static str> {
    let hosts = (head.header)("host");
    let [host] = hosts.as_slice() else { return Err("the request does not name one host") };
    let host = str::from_utf8(host.trim_ascii()).map_err(|_| "the request does not name one host")?;
    let host = host.strip_suffix(":443").or_else(|| host.strip_suffix(":80")).unwrap_or(host);
    Ok(host.to_ascii_lowercase())
}
