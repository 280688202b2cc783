//! Writes an event as structured CloudEvents JSON.
//!
//! `specversion` comes first, the other attributes in stored order, the data last. JSON data keeps its bytes;
//! line breaks that it has between its tokens stay, which [`single_line`] turns into blanks for carriers
//! that frame by lines.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;

use crate::{data_form::DataForm, event::Event};

impl Event {
    /// The event as structured JSON.
    pub fn json(&self) -> Bytes {
        let mut json = Vec::with_capacity(self.json_size_hint());
        self.write_json(&mut json);
        json.into()
    }

    /// Appends the event as structured JSON.
    ///
    /// Attributes named `data` and `data_base64`, which only frames of other origin can have, are left out.
    pub fn write_json(&self, json: &mut Vec<u8>) {
        json.extend_from_slice(b"{\"specversion\":");
        write_text(json, self.attribute("specversion").unwrap_or("1.0"));
        let mut types = self.types().iter().peekable();
        for (position, (name, value)) in self.frame().attributes().enumerate() {
            let is_text = types.next_if(|(typed, _)| *typed == position).is_none();
            if matches!(name, "specversion" | "data" | "data_base64") {
                continue;
            }
            json.push(b',');
            write_text(json, name);
            json.push(b':');
            if is_text {
                write_text(json, value);
            } else {
                json.extend_from_slice(value.as_bytes());
            }
        }
        self.write_data(json);
        json.push(b'}');
    }

    fn write_data(&self, json: &mut Vec<u8>) {
        let data = self.frame().data_ref();
        match self.form() {
            DataForm::None => {}
            DataForm::Json => {
                json.extend_from_slice(b",\"data\":");
                json.extend_from_slice(data);
            }
            DataForm::Text => {
                json.extend_from_slice(b",\"data\":");
                write_text(
                    json,
                    std::str::from_utf8(data).expect("data of the form Text was checked to be UTF-8"),
                );
            }
            DataForm::Binary => {
                json.extend_from_slice(b",\"data_base64\":\"");
                let start = json.len();
                json.resize(start + data.len().div_ceil(3) * 4, 0);
                let written =
                    STANDARD.encode_slice(data, &mut json[start..]).expect("the room was just made");
                json.truncate(start + written);
                json.push(b'"');
            }
        }
    }

    /// What the JSON takes when nothing in it has to be escaped.
    fn json_size_hint(&self) -> usize {
        let data = self.frame().data_ref().len();
        let extra = if self.form() == DataForm::Binary { data / 3 + 4 } else { 0 };
        self.frame().as_bytes().len() + extra + 24
    }
}

/// The JSON text on one line: line breaks, which JSON has between its tokens only, become blanks.
pub fn single_line(json: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &json).is_none() {
        return json;
    }
    json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Appends a JSON string. Most texts need no escapes.
fn write_text(json: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        serde_json::to_writer(json, text).expect("a string can be written to memory");
    } else {
        json.push(b'"');
        json.extend_from_slice(text.as_bytes());
        json.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventBuilder, FrameBuilder, FrameKind};

    #[test]
    fn every_form_of_data_is_written_as_it_was_given() {
        const HEAD: &str =
            r#"{"specversion":"1.0","id":"e\"1","source":"/s","type":"t","n":-5,"b":false,"u":"ü""#;
        let event = || {
            let event = EventBuilder::new("e\"1", "/s", "t").integer("n", -5).boolean("b", false);
            event.attribute("u", "ü")
        };
        let cases = [
            (event(), String::new()),
            (event().json("{ \"z\":1.0,\n\"a\":1e400}"), ",\"data\":{ \"z\":1.0,\n\"a\":1e400}".to_owned()),
            (event().json("null"), r#","data":null"#.to_owned()),
            (event().attribute("datacontenttype", "text/plain").text("a\n\u{1}"), {
                r#","datacontenttype":"text/plain","data":"a\n\u0001""#.to_owned()
            }),
            (event().binary(b"\xff\x00"), r#","data_base64":"/wA=""#.to_owned()),
            (event().binary(b""), r#","data_base64":"""#.to_owned()),
        ];
        for (event, tail) in cases {
            let json = event.build().expect("legal").json();
            assert_eq!(String::from_utf8_lossy(&json), format!("{HEAD}{tail}}}"));
        }
    }

    #[test]
    fn a_foreign_frame_gives_json_whatever_its_names_are() {
        let builder = FrameBuilder::new(FrameKind::Event).attribute("My\"Ext", "1").attribute("data", "x");
        let json = Event::from_frame(builder.build(b"x").expect("within the limits")).json();
        assert_eq!(json, &br#"{"specversion":"1.0","My\"Ext":"1","data_base64":"eA=="}"#[..]);
    }

    #[test]
    fn line_breaks_between_tokens_become_blanks() {
        let json = Bytes::from_static(b"{\"a\":\r\n\"x\\n\"}");
        assert_eq!(single_line(json), &b"{\"a\":  \"x\\n\"}"[..]);
    }
}
