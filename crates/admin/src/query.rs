//! Query parameters of the admin routes: decoded once, refused when repeated or empty.

use mesh_frame::{NameError, TopicName};
use mesh_ingress::http::{ApiError, ErrorCode};
use percent_encoding::percent_decode_str;

/// The parameters of one request.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a raw query.
    pub(crate) fn read(raw: Option<&str>) -> Result<Self, ApiError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| {
                percent_decode_str(&text.replace('+', " "))
                    .decode_utf8()
                    .map(|text| text.into_owned())
                    .map_err(|_| {
                        ApiError::new(
                            ErrorCode::InvalidArgument,
                            "a query parameter is not UTF-8 after decoding",
                        )
                    })
            };
            let (name, value) = (decode(name)?, decode(value)?);
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::new(ErrorCode::InvalidArgument, format!("{name} is given twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    fn get(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.0.iter().find(|(other, _)| other == name) {
            Some((_, value)) if value.is_empty() => {
                Err(ApiError::new(ErrorCode::InvalidArgument, format!("{name} is empty")))
            }
            found => Ok(found.map(|(_, value)| value.as_str())),
        }
    }

    /// The topic; it must be given.
    pub(crate) fn topic(&self) -> Result<TopicName, ApiError> {
        self.maybe_topic()?
            .ok_or_else(|| ApiError::new(ErrorCode::MissingParameter, "the query parameter topic is missing"))
    }

    /// The topic, when one is given.
    pub(crate) fn maybe_topic(&self) -> Result<Option<TopicName>, ApiError> {
        self.get("topic")?
            .map(|topic| {
                TopicName::new(topic)
                    .map_err(|error| ApiError::new(ErrorCode::InvalidArgument, format!("topic: {error}")))
            })
            .transpose()
    }

    /// A text, when it is given.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        self.get(name)
    }

    /// `true` or `false`, which is also meant when it is not given.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::invalid(format!("{name} must be true or false"))),
        }
    }

    /// A name of some kind, when it is given.
    pub(crate) fn name<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, NameError>,
    ) -> Result<Option<T>, ApiError> {
        self.get(name)?.map(read).transpose().map_err(|error| ApiError::of_name(name, error))
    }

    /// Refuses parameters that are not among these: a selector that is misspelt must not select everything.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::invalid(format!(
                "there is no query parameter {name} here; there are {}",
                known.join(", ")
            ))),
        }
    }

    /// `max`: 1 to 1,000, 100 when it is not given.
    pub(crate) fn max(&self) -> Result<usize, ApiError> {
        let Some(text) = self.get("max")? else { return Ok(100) };
        text.parse().ok().filter(|max| (1..=1_000).contains(max)).ok_or_else(|| {
            ApiError::new(ErrorCode::InvalidArgument, "max must be a whole number from 1 to 1000")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once_and_refused_when_repeated_or_empty() {
        // covers: U29
        let topic =
            |raw| Query::read(Some(raw)).and_then(|query| query.topic()).map(|topic| topic.to_string());
        assert_eq!(topic("topic=a%2Db").ok().as_deref(), Some("a-b"));
        for bad in ["topic=a&topic=b", "topic", "topic=", "", "topic=a%252Db", "topic=%ff", "topic=a%20b"] {
            assert!(topic(bad).is_err(), "{bad}");
        }
        let max = |raw| Query::read(Some(raw)).and_then(|query| query.max()).ok();
        assert_eq!(max(""), Some(100));
        assert_eq!(max("max=1000"), Some(1_000));
        for bad in ["max=0", "max=1001", "max=-1", "max=x", "max="] {
            assert_eq!(max(bad), None, "{bad}");
        }
    }
}
