//! JSON that is written byte by byte: no value trees on the way of an event.

/// Appends a text as a JSON string.
pub fn push_text(json: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        json.push(b'"');
        json.extend_from_slice(text.as_bytes());
        json.push(b'"');
    } else {
        serde_json::to_writer(json, text).expect("writing to memory does not fail");
    }
}

/// Appends a number.
pub fn push_number(json: &mut Vec<u8>, number: u64) {
    json.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number as a JSON string, for what may pass the integers of JavaScript.
pub fn push_number_text(json: &mut Vec<u8>, number: u64) {
    json.push(b'"');
    push_number(json, number);
    json.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_only_where_they_must_be() {
        for text in ["", "plain", "ü", "a\"b\\c\u{1}\n", "\u{7f}"] {
            let mut json = Vec::new();
            push_text(&mut json, text);
            assert_eq!(serde_json::from_slice::<String>(&json).expect("a string"), text);
        }
        let mut json = Vec::new();
        push_number_text(&mut json, u64::MAX);
        assert_eq!(json, b"\"18446744073709551615\"");
    }
}
