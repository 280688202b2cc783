//! What the queries of several admin routes have in common.

use mesh_frame::TopicName;
use mesh_server::{ApiError, Query};

/// The topic; it must be given.
pub(crate) fn topic(query: Query<'_>) -> Result<TopicName, ApiError> {
    query.required_name("topic", TopicName::new)
}

/// `max`: 1 to 1,000, 100 when it is not given. A larger one is refused, not clamped: whoever moves or removes more
/// than is shown learns that it is not done.
pub(crate) fn max(query: Query<'_>) -> Result<usize, ApiError> {
    let Some(text) = query.get("max")? else { return Ok(100) };
    let max = text.parse().ok().filter(|max| (1..=1_000).contains(max));
    max.ok_or_else(|| ApiError::invalid("parameter `max` must be a whole number from 1 to 1000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_decoded_once_and_max_keeps_to_its_range() {
        // covers: U29
        let topic = |raw| topic(Query::new(Some(raw))).map(|topic| topic.to_string());
        assert_eq!(topic("topic=a%2Db").ok().as_deref(), Some("a-b"));
        for bad in ["topic=a&topic=b", "topic", "topic=", "", "topic=a%252Db", "topic=%ff", "topic=a%20b"] {
            assert!(topic(bad).is_err(), "{bad}");
        }
        let max = |raw| max(Query::new(Some(raw))).ok();
        assert_eq!((max(""), max("max=1000")), (Some(100), Some(1_000)));
        for bad in ["max=0", "max=1001", "max=-1", "max=x", "max="] {
            assert_eq!(max(bad), None, "{bad}");
        }
    }
}
