//! The options of a request of an operator: each may stand in the query or in the body, and means the same.

use std::borrow::Cow;

use mesh_delivery::StartAt;
use mesh_frame::{NameError, TopicName};
use mesh_server::{ApiError, Given, JsonObject, Query};

/// Options of a query and of a JSON body, which may be left out.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    query: Query<'a>,
    body: JsonObject<'a>,
}

/// Where an option stands.
enum Place<'a> {
    /// In the query: a text.
    Text(Cow<'a, str>),
    /// In the body: JSON.
    Json,
}

impl<'a> Asked<'a> {
    /// The options `known` of a request.
    ///
    /// # Errors
    /// One that is not known, and a body that is no object.
    pub(crate) fn read(
        query: Option<&'a str>,
        body: &'a [u8],
        known: &'static [&'static str],
    ) -> Result<Self, ApiError> {
        let query = Query::new(query);
        query.only(known)?;
        Ok(Self { query, body: JsonObject::parse_optional(body, known)? })
    }

    /// Where an option stands; in both places it is refused.
    fn given(&self, name: &str) -> Result<Option<Place<'a>>, ApiError> {
        let in_body = matches!(self.body.given(name)?, Given::Value(_));
        match (self.query.get(name)?, in_body) {
            (Some(_), true) => Err(ApiError::invalid(format!(
                "`{name}` stands in the query and in the body: once is enough"
            ))),
            (Some(text), false) => Ok(Some(Place::Text(text))),
            (None, true) => Ok(Some(Place::Json)),
            (None, false) => Ok(None),
        }
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        match self.given(name)? {
            None => Ok(None),
            Some(Place::Text(text)) => Ok(Some(text.into_owned())),
            Some(Place::Json) => self.body.text(name),
        }
    }

    /// A name of some kind.
    pub(crate) fn name<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<Option<T>, ApiError> {
        let text = self.text(name)?;
        text.map(|text| read(&text)).transpose().map_err(|error| ApiError::of_name(name, error))
    }

    /// A name that must be there.
    pub(crate) fn required_name<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<T, ApiError> {
        self.name(name, read)?.ok_or_else(|| ApiError::missing(name))
    }

    /// The topic; it must be given.
    pub(crate) fn topic(&self) -> Result<TopicName, ApiError> {
        self.required_name("topic", TopicName::new)
    }

    /// `true` or `false`, which is also meant when it is not given.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.given(name)? {
            None => Ok(false),
            Some(Place::Text(_)) => self.query.flag(name),
            Some(Place::Json) => Ok(self.body.boolean(name)?.unwrap_or(false)),
        }
    }

    /// `max`: 1 to 1,000, 100 when it is not given. A larger one is refused, not clamped: an operator who moves or removes more
    /// than is shown learns that it is not done.
    pub(crate) fn max(&self) -> Result<usize, ApiError> {
        let max: Option<usize> = match self.given("max")? {
            None => return Ok(100),
            Some(Place::Text(text)) => text.parse().ok(),
            Some(Place::Json) => self.body.get("max", "a number").ok().flatten(),
        };
        max.filter(|max| (1..=1_000).contains(max))
            .ok_or_else(|| ApiError::invalid("`max` must be a whole number from 1 to 1000"))
    }

    /// A place in a log, which must be given: a text in the query, or what it is in JSON.
    pub(crate) fn start(&self, name: &str) -> Result<StartAt, ApiError> {
        let place = match self.given(name)? {
            None => return Err(ApiError::missing(name)),
            Some(Place::Text(text)) => StartAt::read(&serde_json::Value::from(text.as_ref()).to_string())
                .or_else(|| StartAt::read(&text)),
            Some(Place::Json) => {
                let json = self.body.required_raw(name)?;
                if json.starts_with('{') {
                    self.body.object(name, &["offsets"])?;
                }
                StartAt::read(json)
            }
        };
        place.ok_or_else(|| ApiError::invalid(format!("`{name}` must be {}", StartAt::FORMS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["topic", "max", "dryRun", "to"];

    fn asked<'a>(query: &'a str, body: &'a str) -> Result<Asked<'a>, ApiError> {
        Asked::read(Some(query), body.as_bytes(), KNOWN)
    }

    #[test]
    fn an_option_means_the_same_in_the_query_and_in_the_body() {
        for (query, body) in [
            ("topic=t&max=7&dryRun=true&to=earliest", ""),
            ("", r#"{"topic":"t","max":7,"dryRun":true,"to":"earliest"}"#),
            ("topic=t&dryRun=true", r#"{"max":7,"to":"earliest"}"#),
        ] {
            let asked = asked(query, body).expect(query);
            assert_eq!(asked.topic().map(|topic| topic.to_string()), Ok("t".to_owned()), "{query} {body}");
            assert_eq!((asked.max(), asked.flag("dryRun")), (Ok(7), Ok(true)), "{query} {body}");
            assert_eq!(asked.start("to"), Ok(StartAt::Earliest), "{query} {body}");
        }
        let none = asked("", "").expect("nothing");
        assert_eq!((none.max(), none.flag("dryRun"), none.text("to")), (Ok(100), Ok(false), Ok(None)));
    }

    #[test]
    fn an_option_that_is_misspelt_or_given_twice_is_refused() {
        for (query, body) in [("dryrun=true", ""), ("", r#"{"dryrun":true}"#)] {
            let told = asked(query, body).expect_err(query).message;
            assert!(told.contains("did you mean `dryRun`?"), "{query} {body}: {told}");
        }
        let twice = asked("dryRun=true", r#"{"dryRun":false}"#).expect("both are known");
        assert!(twice.flag("dryRun").expect_err("twice").message.contains("in the query and in the body"));
        let nested = asked("", r#"{"to":{"offset":{"0":"1"}}}"#).expect("known");
        assert!(nested.start("to").expect_err("misspelt").message.contains("did you mean `offsets`?"));
    }

    #[test]
    fn a_topic_is_decoded_once_and_max_keeps_to_its_range() {
        // covers: U29
        let topic = |raw| asked(raw, "").and_then(|asked| asked.topic()).map(|topic| topic.to_string());
        assert_eq!(topic("topic=a%2Db").ok().as_deref(), Some("a-b"));
        for bad in ["topic=a&topic=b", "topic", "topic=", "", "topic=a%252Db", "topic=%ff", "topic=a%20b"] {
            assert!(topic(bad).is_err(), "{bad}");
        }
        let max = |raw| asked(raw, "").and_then(|asked| asked.max()).ok();
        assert_eq!((max(""), max("max=1000")), (Some(100), Some(1_000)));
        for bad in ["max=0", "max=1001", "max=-1", "max=x", "max="] {
            assert_eq!(max(bad), None, "{bad}");
        }
        for bad in [r#"{"max":0}"#, r#"{"max":"7"}"#, r#"{"max":1.5}"#, r#"{"max":1001}"#] {
            assert!(asked("", bad).expect("known").max().is_err(), "{bad}");
        }
    }
}
