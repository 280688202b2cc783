//! The body of a subscribe: names, mode, the group's settings and where it starts.

use mesh_delivery::{
    AckMode, AskedSettings, Mode, Settings, StartAt,
    settings::{ACK_TIMEOUT_MS, BACKOFF_MS, MAX_ATTEMPTS, MAX_BACKOFF_MS, MAX_IN_FLIGHT},
};
use mesh_frame::{ClientId, Filter, GroupName, TopicName};
use mesh_server::{ApiError, JsonObject};
use serde_json::Value;

use crate::intake::Subscribe;

/// The members that a request may have.
pub(super) const MEMBERS: &[&str] = &[
    "clientId",
    "topic",
    "mode",
    "group",
    "filters",
    "from",
    "ack",
    ACK_TIMEOUT_MS.name,
    MAX_ATTEMPTS.name,
    BACKOFF_MS.name,
    MAX_BACKOFF_MS.name,
    MAX_IN_FLIGHT.name,
];

/// Reads the request, which came as so many bytes.
pub(super) fn parse(request: &JsonObject<'_>, bytes: u64) -> Result<Subscribe, ApiError> {
    let client = request.required_name("clientId", ClientId::new)?;
    let topic = request.required_name("topic", TopicName::client)?;
    let group = request.name("group", GroupName::new)?;
    let max_in_flight = request.number(MAX_IN_FLIGHT)?;
    Ok(Subscribe {
        client,
        topic,
        mode: mode(request)?,
        group,
        asked: asked(request)?,
        max_in_flight: max_in_flight.map(|most| u32::try_from(most).expect("the range fits")),
        start: start(request)?,
        bytes,
    })
}

fn start(request: &JsonObject<'_>) -> Result<StartAt, ApiError> {
    let Some(json) = request.raw("from")? else { return Ok(StartAt::Latest) };
    if json.starts_with('{') {
        request.object("from", &["offsets"])?;
    }
    StartAt::read(json).ok_or_else(|| ApiError::invalid(format!("`from` must be {}", StartAt::FORMS)))
}

fn mode(request: &JsonObject<'_>) -> Result<Mode, ApiError> {
    let valid = || Mode::ALL.map(Mode::as_str).join(", ");
    let Some(raw) = request.raw("mode")? else {
        let mut error = ApiError::missing("mode");
        error.message = format!("{}; valid are {}", error.message, valid());
        return Err(error);
    };
    let name = serde_json::from_str::<String>(raw).unwrap_or_default();
    Mode::read(&name).ok_or_else(|| ApiError::invalid(format!("`mode` must be one of {}", valid())))
}

fn asked(request: &JsonObject<'_>) -> Result<AskedSettings, ApiError> {
    let ack = match request.text("ack")?.as_deref() {
        None => None,
        Some("explicit") => Some(AckMode::Explicit),
        Some("auto") => Some(AckMode::Auto),
        Some(_) => return Err(ApiError::invalid("`ack` must be \"explicit\" or \"auto\"")),
    };
    let max_attempts = request.number(MAX_ATTEMPTS)?;
    let (backoff_ms, max_backoff_ms) = (request.number(BACKOFF_MS)?, request.number(MAX_BACKOFF_MS)?);
    let first = backoff_ms.unwrap_or_else(|| Settings::new(Mode::LoadBalance).backoff_ms);
    if max_backoff_ms.is_some_and(|longest| longest < first) {
        return Err(ApiError::invalid(format!(
            "`maxBackoffMs` must not be below `backoffMs`, which is {first}{}",
            if backoff_ms.is_none() { " where it is left out: give both" } else { "" }
        )));
    }
    Ok(AskedSettings {
        filters: filters(request)?,
        ack,
        ack_timeout_ms: request.number(ACK_TIMEOUT_MS)?,
        max_attempts: max_attempts.map(|most| u32::try_from(most).expect("the range fits")),
        backoff_ms,
        max_backoff_ms,
    })
}

fn filters(request: &JsonObject<'_>) -> Result<Option<Vec<Filter>>, ApiError> {
    let Some(json) = request.get::<Value>("filters", "an array of filters")? else { return Ok(None) };
    let filters = Filter::parse_list(&json);
    filters.map(Some).map_err(|error| ApiError::invalid(format!("`filters`: {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mesh_base::UnixMillis;
    use mesh_frame::{Offset, PartitionId};
    use mesh_server::ErrorCode;

    use super::*;

    fn read(more: &str) -> Result<Subscribe, ApiError> {
        let body = format!(r#"{{"clientId":"c","topic":"t","mode":"LOAD_BALANCE"{more}}}"#);
        parse(&JsonObject::parse(body.as_bytes(), MEMBERS)?, body.len() as u64)
    }

    #[test]
    fn every_form_of_a_start_is_read() {
        let offsets = BTreeMap::from([(PartitionId(0), Offset(12)), (PartitionId(3), Offset(u64::MAX))]);
        let cases = [
            ("", StartAt::Latest),
            (r#","from":null"#, StartAt::Latest),
            (r#","from":"latest""#, StartAt::Latest),
            (r#","from":"earliest""#, StartAt::Earliest),
            (r#","from":"1970-01-01T00:00:01Z""#, StartAt::Time(UnixMillis(1_000))),
            (r#","from":"42""#, StartAt::Offset(Offset(42))),
            (r#","from":42"#, StartAt::Offset(Offset(42))),
            (r#","from":{"offsets":{"0":"12","3":18446744073709551615}}"#, StartAt::Offsets(offsets)),
        ];
        for (from, expected) in cases {
            assert_eq!(read(from).map(|request| request.start), Ok(expected), "{from}");
        }
        for bad in [
            "\"\"",
            "\"soon\"",
            "-1",
            "1.5",
            "[]",
            "true",
            "{}",
            r#"{"offsets":{"x":"1"}}"#,
            r#"{"offsets":["1"]}"#,
        ] {
            let error = read(&format!(r#","from":{bad}"#)).expect_err(bad);
            assert!(
                error.message.contains("`from`") && error.message.contains("RFC 3339"),
                "{bad}: {error:?}"
            );
        }
    }

    #[test]
    fn settings_are_read_and_kept_to_their_ranges() {
        let request = read(
            r#","group":"g","ack":"auto","ackTimeoutMs":100,"maxAttempts":0,"backoffMs":5,"maxBackoffMs":5,
               "maxInFlight":7,"filters":[{"exact":{"type":"t"}}]"#,
        );
        let request = request.expect("legal");
        assert_eq!(request.asked.ack, Some(AckMode::Auto));
        assert_eq!(
            (request.max_in_flight, request.asked.filters.map(|filters| filters.len())),
            (Some(7), Some(1))
        );
        let cases = [
            (r#""ackTimeoutMs":99"#, "from 100 to 43200000"),
            (r#""backoffMs":3600001"#, "from 0 to 3600000"),
            (r#""maxInFlight":10001"#, "from 1 to 10000"),
            (r#""maxInFlight":"7""#, "`maxInFlight`"),
            (r#""maxAttempts":-1"#, "`maxAttempts`"),
            (r#""backoffMs":10,"maxBackoffMs":9"#, "`maxBackoffMs`"),
            (r#""maxBackoffMs":999"#, "which is 1000 where it is left out"),
            (r#""ack":"maybe""#, "explicit"),
            (r#""ack":true"#, "`ack`"),
            (r#""filters":{}"#, "`filters`"),
            (r#""filters":[{"exact":{}}]"#, "`filters`"),
            (r#""group":"""#, "`group`"),
            (r#""group":7"#, "`group`"),
            (r#""maxAttempt":3"#, "did you mean `maxAttempts`?"),
            (r#""from":{"offset":{"0":"1"}}"#, "did you mean `offsets`?"),
        ];
        for (member, word) in cases {
            let error = read(&format!(",{member}")).expect_err(member);
            assert!(
                error.code == ErrorCode::InvalidArgument && error.message.contains(word),
                "{member}: {error:?}"
            );
        }
    }

    #[test]
    fn an_unknown_mode_is_answered_with_the_modes() {
        // covers: U32
        for mode in ["\"LOAD_BALANCE_STICKY\"", "\"broadcast\"", "\"\"", "3", "null"] {
            let body = format!(r#"{{"clientId":"c","topic":"t","mode":{mode}}}"#);
            let request = JsonObject::parse(body.as_bytes(), MEMBERS).expect("an object");
            let error = parse(&request, 0).expect_err(mode);
            assert!(error.message.contains("LOAD_BALANCE, BROADCAST, MULTICAST"), "{mode}: {error:?}");
        }
    }
}
