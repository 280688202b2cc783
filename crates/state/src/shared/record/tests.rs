//! Records of other versions: fields are kept, newer ones refused.

use mesh_frame::{ClientId, SubscriptionId};
use serde_json::json;

use super::*;
use crate::shared::{GroupRecord, SubscriptionRecord};

fn value(json: &Value) -> Versioned {
    Versioned { value: serde_json::to_vec(json).expect("JSON").into(), revision: Revision(1) }
}

fn subscription() -> Value {
    json!({
        "v": 1, "writer": "a:1", "counter": 7,
        "subscriptionId": "s-1", "client": "c/1", "maxInFlight": 10, "instance": "i", "principal": "p",
        "createdAtMs": 1_700_000_000_000_u64,
    })
}

fn group() -> Value {
    json!({
        "v": 1, "writer": "a:1", "counter": 7,
        "id": u64::MAX, "generation": 2, "incarnation": u64::MAX - 1, "mode": "LOAD_BALANCE", "home": "i",
        "settings": {
            "filters": [{"exact": {"type": "a"}}], "from": {"offsets": {"0": "12"}}, "ack": "auto",
            "ackTimeoutMs": 30_000, "maxAttempts": 6, "backoffMs": 1_000, "maxBackoffMs": 16_000,
        },
    })
}

fn rewritten<T: SharedRecord>(json: &Value) -> Value {
    let stored = decode::<T>(value(json)).expect("readable");
    serde_json::from_slice(&encode(&stored.record, &stored.stamp)).expect("JSON")
}

#[test]
fn records_look_as_documented() {
    let record = SubscriptionRecord {
        subscription_id: SubscriptionId::new("s-1").expect("legal"),
        client: ClientId::new("c/1").expect("legal"),
        max_in_flight: 10,
        instance: InstanceId::new("i").expect("legal"),
        principal: Some("p".into()),
        created_at_ms: 1_700_000_000_000,
        unknown: Unknown::default(),
    };
    let stamp = Stamp { writer: "a:1".into(), counter: 7 };
    let bytes = encode(&record, &stamp);
    assert_eq!(serde_json::from_slice::<Value>(&bytes).expect("JSON"), subscription());
    assert_eq!(decode::<SubscriptionRecord>(value(&subscription())).expect("readable").record, record);
    assert_eq!(rewritten::<GroupRecord>(&group()), group());
}

#[test]
fn fields_of_newer_writers_are_ignored_and_kept_on_rewrite() {
    // covers: U83
    let mut newer = subscription();
    newer["region"] = json!({"name": "north", "counter": 3});
    assert_eq!(rewritten::<SubscriptionRecord>(&newer), newer);
    let mut newer = group();
    newer["region"] = json!([1, 2.5, null]);
    newer["settings"]["writer"] = json!("not the envelope's");
    assert_eq!(rewritten::<GroupRecord>(&newer), newer);
}

#[test]
fn a_higher_version_is_refused_and_left_out_of_listings() {
    // covers: U83
    let mut newer = subscription();
    newer["v"] = json!(2);
    newer["client"] = json!({"changed": "shape"});
    let refused = decode::<SubscriptionRecord>(value(&newer)).expect_err("newer");
    assert!(matches!(refused, Unreadable::NewerVersion(2)));
    assert_eq!(refused.into_error("reading").kind(), BackendErrorKind::Refused);
    let key = "/em/subs/t/a/lb/g/c%2F1";
    assert!(decode_or_skip::<SubscriptionRecord>(key, value(&newer)).is_none());
    assert!(decode_or_skip::<SubscriptionRecord>(key, value(&subscription())).is_some());
    assert!(decode_or_skip::<SubscriptionRecord>("/em/subs/t/x", value(&subscription())).is_none());
}

#[test]
fn what_is_not_a_record_is_damaged() {
    for json in [
        json!(null),
        json!([]),
        json!({}),
        json!({"v": "1"}),
        json!({"v": 1}),
        json!({"v": 1, "writer": "a"}),
    ] {
        let damaged = decode::<SubscriptionRecord>(value(&json)).expect_err("not a record");
        assert_eq!(damaged.into_error("reading").kind(), BackendErrorKind::Corrupt, "{json}");
    }
    let mut illegal = subscription();
    illegal["client"] = json!("");
    assert!(decode::<SubscriptionRecord>(value(&illegal)).is_err());
}

#[test]
fn no_two_writes_have_the_same_stamp() {
    let instance = InstanceId::new("i").expect("legal");
    let (one, two) = (Writer::new(&instance, &Chance::system()), Writer::new(&instance, &Chance::system()));
    let stamps = [one.stamp(), one.clone().stamp(), two.stamp(), one.stamp()];
    for (n, stamp) in stamps.iter().enumerate() {
        assert!(!stamps[..n].contains(stamp), "{stamps:?}");
        assert!(stamp.writer.starts_with("i:"));
    }
}
