//! JSON in which every member has one meaning: an object that names a member twice is refused, at any depth.
//!
//! Parsers differ in which of two they take; what one checked another may read differently.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// The object that these bytes are; `None` where they are not one.
pub(crate) fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(bytes).ok()? {
        Strict(Value::Object(object)) => Some(object),
        Strict(_) => None,
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, _>()? {
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a member is named twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn a_member_named_twice_is_refused_at_any_depth() {
        let good = br#"{"a":1,"b":{"a":[{"a":null,"b":-1.5,"c":true,"d":"x"}]}}"#;
        let read = object(good).expect("an object");
        assert_eq!(serde_json::to_vec(&read).expect("JSON"), good);
        for bad in [r#"{"a":1,"a":1}"#, r#"{"b":[{"a":1,"\u0061":2}]}"#, "[]", "", "{}x", r#"{"a":NaN}"#] {
            assert_eq!(object(bad.as_bytes()), None, "{bad}");
        }
        let deep = format!("{}{}", r#"{"a":"#.repeat(500), "}".repeat(500));
        assert_eq!(object(deep.as_bytes()), None);
    }
}
