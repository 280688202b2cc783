//! The body of a request as a JSON object whose members are read one by one, each with a message of its own.
//!
//! Nothing is coerced: a number is no text. `null` counts as absent. The reader of an object says which members it may
//! have; another one is refused, so that one that is misspelt is not taken for one that is not there.

use std::{borrow::Cow, fmt, str};

use mesh_base::Range;
use mesh_frame::NameError;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor},
};
use serde_json::{error::Category, value::RawValue};

use crate::ApiError;

/// More members than this are no request of ours.
const MOST_MEMBERS: usize = 100;

/// What a request says of something that may be set, given back, or left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given<T> {
    /// Nothing.
    Absent,
    /// `null`.
    Null,
    /// This.
    Value(T),
}

/// An object whose members are still JSON text.
#[derive(Debug)]
pub struct JsonObject<'a> {
    members: Vec<(Cow<'a, str>, &'a str)>,
    known: &'static [&'static str],
}

/// Members that other clients of EventMesh send and this server does not need: they are passed over wherever they
/// stand. A member that would change what a request does never belongs here.
///
/// `type`: the acknowledgements of WebSocket clients (`{"type":"ack","deliveryId":…}`), whose route says the same.
const PASSED_OVER: [&str; 1] = ["type"];

impl<'a> JsonObject<'a> {
    /// An object without members that may have these.
    pub fn empty(known: &'static [&'static str]) -> Self {
        Self { members: Vec::new(), known }
    }

    /// The object that a body is, which may have the members `known`.
    pub fn parse(body: &'a [u8], known: &'static [&'static str]) -> Result<Self, ApiError> {
        let text = str::from_utf8(body).map_err(|error| {
            ApiError::invalid(format!("the body is not UTF-8 at byte {}", error.valid_up_to()))
        })?;
        if text.trim_ascii().is_empty() {
            return Err(ApiError::invalid("the body is empty; it must be a JSON object"));
        }
        if text.starts_with('\u{feff}') {
            return Err(ApiError::invalid(
                "the body begins with a byte order mark, which JSON must not have",
            ));
        }
        let object: Self = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            ApiError::invalid(match error.classify() {
                Category::Data if error.to_string().contains(TOO_MANY) => {
                    format!("the body has more than {MOST_MEMBERS} members")
                }
                Category::Data => "the body must be a JSON object".to_owned(),
                Category::Eof => format!("the JSON ends too early, at line {line}, column {column}"),
                Category::Syntax | Category::Io => {
                    format!("the body is not JSON at line {line}, column {column}")
                }
            })
        })?;
        object.only("the body", known)
    }

    /// As [`JsonObject::parse`], of a body that may be left out; `null` is none too.
    pub fn parse_optional(body: &'a [u8], known: &'static [&'static str]) -> Result<Self, ApiError> {
        match body.trim_ascii() {
            b"" | b"null" => Ok(Self::empty(known)),
            _ => Self::parse(body, known),
        }
    }

    /// The object, if it has no members but these.
    fn only(mut self, of: &str, known: &'static [&'static str]) -> Result<Self, ApiError> {
        let is_known = |name: &str| known.contains(&name) || PASSED_OVER.contains(&name);
        if let Some((name, _)) = self.members.iter().find(|(name, _)| !is_known(name)) {
            return Err(ApiError::unknown_name(of, "member", name, known));
        }
        self.known = known;
        Ok(self)
    }

    /// The JSON of a member; given twice it is refused.
    pub fn raw(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        Ok(match self.given(name)? {
            Given::Absent | Given::Null => None,
            Given::Value(raw) => Some(raw),
        })
    }

    /// As [`JsonObject::raw`], where `null` says something else than nothing.
    ///
    /// # Panics
    /// In a debug build, when the name is not one that the object may have.
    pub fn given(&self, name: &str) -> Result<Given<&'a str>, ApiError> {
        debug_assert!(self.known.contains(&name), "`{name}` is read and would be refused");
        let mut given = self.members.iter().filter(|(member, _)| member == name).map(|(_, value)| *value);
        let first = given.next();
        if given.next().is_some() {
            return Err(ApiError::invalid(format!("`{name}` is given twice")));
        }
        Ok(match first {
            None => Given::Absent,
            Some("null") => Given::Null,
            Some(raw) => Given::Value(raw),
        })
    }

    /// As [`JsonObject::raw`], for what must be there.
    pub fn required_raw(&self, name: &str) -> Result<&'a str, ApiError> {
        self.raw(name)?.ok_or_else(|| ApiError::missing(name))
    }

    /// A member of the type, which `expected` describes.
    pub fn get<T: DeserializeOwned>(&self, name: &str, expected: &str) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.raw(name)? else { return Ok(None) };
        let value = serde_json::from_str(raw);
        value.map(Some).map_err(|error| {
            // The JSON is whole: what is left to go wrong within a string is such an escape.
            ApiError::invalid(if error.classify() == Category::Syntax && raw.contains("\\u") {
                format!("`{name}` has a `\\u` escape that is no character")
            } else {
                format!("`{name}` must be {expected}, not {}", kind_of(raw))
            })
        })
    }

    /// An object in the object, which may have the members `known`.
    pub fn object(&self, name: &str, known: &'static [&'static str]) -> Result<Given<Self>, ApiError> {
        Ok(match self.given(name)? {
            Given::Absent => Given::Absent,
            Given::Null => Given::Null,
            Given::Value(raw) => {
                let object: Self = serde_json::from_str(raw).map_err(|_| {
                    ApiError::invalid(format!("`{name}` must be an object, not {}", kind_of(raw)))
                })?;
                Given::Value(object.only(&format!("`{name}`"), known)?)
            }
        })
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        self.get(name, "a string")
    }

    /// A name of some kind.
    pub fn name<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<Option<T>, ApiError> {
        let text = self.text(name)?;
        text.map(|text| read(&text)).transpose().map_err(|error| ApiError::of_name(name, error))
    }

    /// A name that must be there.
    pub fn required_name<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<T, ApiError> {
        self.name(name, read)?.ok_or_else(|| ApiError::missing(name))
    }

    /// `true` or `false`.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.get(name, "true or false")
    }

    /// A whole number in a range.
    pub fn number(&self, range: Range) -> Result<Option<u64>, ApiError> {
        let Range { name, least, most } = range;
        let Some(raw) = self.raw(name)? else { return Ok(None) };
        match serde_json::from_str::<u64>(raw) {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(ApiError::invalid(format!("`{name}` must be a whole number from {least} to {most}"))),
        }
    }
}

/// What a JSON text is, in words.
pub fn kind_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a Boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

const TOO_MANY: &str = "too many members";

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Members {
    type Value = JsonObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(Name(name)) = map.next_key()? {
            if members.len() == MOST_MEMBERS {
                return Err(serde::de::Error::custom(TOO_MANY));
            }
            let value: &'de RawValue = map.next_value()?;
            members.push((name, value.get()));
        }
        Ok(JsonObject { members, known: &[] })
    }
}

#[cfg(test)]
mod tests {
    use mesh_frame::TopicName;

    use super::*;
    use crate::ErrorCode;

    const MAX_IN_FLIGHT: Range = Range { name: "maxInFlight", least: 1, most: 10_000 };

    #[test]
    fn what_is_no_object_is_refused_with_a_place() {
        for (body, word) in [
            ("", "empty"),
            (" \n", "empty"),
            ("{", "too early"),
            ("nope", "line 1, column"),
            ("{\"a\":1} x", "not JSON"),
            ("[]", "object"),
            ("null", "object"),
            ("\"text\"", "object"),
            ("7", "object"),
            ("\u{feff}{}", "byte order mark"),
        ] {
            let error = JsonObject::parse(body.as_bytes(), &[]).expect_err(body);
            assert!(
                error.code == ErrorCode::InvalidArgument && error.message.contains(word),
                "{body}: {error:?}"
            );
        }
        assert!(JsonObject::parse(b"{\"a\":\"\xff\"}", &["a"]).expect_err("bytes").message.contains("UTF-8"));
    }

    #[test]
    fn members_are_not_coerced_and_named_when_they_are_wrong() {
        let body = br#"{"s":"x","n":7,"nil":null,"twice":1,"twice":2,"maxInFlight":0,"more":{"x":[]}}"#;
        let known = &["s", "n", "nil", "twice", "maxInFlight", "more", "t"];
        let object = JsonObject::parse(body, known).expect("an object");
        assert_eq!(object.text("s"), Ok(Some("x".to_owned())));
        assert_eq!(object.text("nil"), Ok(None));
        assert_eq!(object.required_raw("t").map_err(|e| e.code), Err(ErrorCode::MissingParameter));
        let topic = |name| object.required_name(name, TopicName::client).map_err(|error| error.code);
        assert_eq!(topic("s").map(|topic| topic.to_string()), Ok("x".to_owned()));
        assert_eq!(topic("nil"), Err(ErrorCode::MissingParameter));
        assert_eq!(topic("n"), Err(ErrorCode::InvalidArgument));
        for error in [
            object.text("n").expect_err("a number"),
            object.boolean("s").expect_err("a string"),
            object.text("twice").expect_err("twice"),
            object.number(MAX_IN_FLIGHT).expect_err("below the range"),
        ] {
            assert_eq!(error.code, ErrorCode::InvalidArgument);
            assert!(error.message.starts_with('`'), "{error:?}");
        }
        assert!(object.number(MAX_IN_FLIGHT).expect_err("range").message.contains("from 1 to 10000"));
    }

    #[test]
    fn a_member_that_nobody_knows_is_refused_with_the_nearest() {
        let parse = |body: &'static str| JsonObject::parse(body.as_bytes(), &["dryRun", "retention"]);
        let told = parse(r#"{"dryrun":true}"#).expect_err("misspelt");
        assert_eq!(told.code, ErrorCode::InvalidArgument);
        let expected = "the body has no member `dryrun`; did you mean `dryRun`? It has `dryRun`, `retention`";
        assert_eq!(told.message, expected);
        assert!(parse(r#"{"other":null}"#).is_err(), "one that says nothing is unknown too");
        let nested = parse(r#"{"retention":{"maxAge":"1h"}}"#).expect("an object");
        let told = nested.object("retention", &["maxAgeMs"]).expect_err("misspelt").message;
        assert_eq!(told, "`retention` has no member `maxAge`; did you mean `maxAgeMs`? It has `maxAgeMs`");
        assert!(parse(r#"{"type":"ack","dryRun":true}"#).is_ok(), "what other clients send");
        for (body, is_fine) in
            [("", true), (" \n", true), ("null", true), ("{}", true), ("[]", false), (r#"{"a":1}"#, false)]
        {
            assert_eq!(JsonObject::parse_optional(body.as_bytes(), &[]).is_ok(), is_fine, "{body:?}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_called_what_it_is() {
        for (body, word) in [
            (r#"{"a":"\ud800"}"#, "`a` has a `\\u` escape that is no character"),
            (r#"{"a":["\udc00"]}"#, "`a` must be a string, not an array"),
            (r#"{"a":7}"#, "`a` must be a string, not a number"),
        ] {
            let object = JsonObject::parse(body.as_bytes(), &["a"]).expect("an object");
            assert_eq!(object.text("a").expect_err(body).message, word, "{body}");
        }
        let list = JsonObject::parse(br#"{"a":["\ud800"]}"#, &["a"]).expect("an object");
        let told = list.get::<Vec<String>>("a", "a string or an array of strings").expect_err("no text");
        assert_eq!(told.message, "`a` has a `\\u` escape that is no character");
    }
}
