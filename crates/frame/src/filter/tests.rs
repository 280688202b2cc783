//! What filters match, and what is no filter.

use serde_json::json;

use super::*;
use crate::EventBuilder;

fn event() -> Event {
    let event = EventBuilder::new("e1", "/shop/orders", "order.created")
        .attribute("time", "2026-01-01T00:00:00+02:00");
    event.integer("n", 5).boolean("b", true).attribute("empty", "").build().expect("legal")
}

#[test]
fn every_dialect_matches_on_canonical_text() {
    let cases = [
        (json!({"exact":{"type":"order.created"}}), true),
        (json!({"exact":{"type":"Order.created"}}), false),
        (json!({"exact":{"type":"order.created","source":"/x"}}), false),
        (json!({"exact":{"n":"5","b":"true","time":"2026-01-01T00:00:00+02:00"}}), true),
        (json!({"prefix":{"type":"order.","source":"/shop"}}), true),
        (json!({"prefix":{"type":"rder"}}), false),
        (json!({"suffix":{"type":".created"}}), true),
        (json!({"suffix":{"type":".create"}}), false),
        (json!({"all":[{"exact":{"id":"e1"}},{"prefix":{"n":"5"}}]}), true),
        (json!({"all":[{"exact":{"id":"e1"}},{"prefix":{"n":"6"}}]}), false),
        (json!({"any":[{"exact":{"id":"e2"}},{"suffix":{"id":"1"}}]}), true),
        (json!({"any":[{"exact":{"id":"e2"}}]}), false),
        (json!({"not":{"exact":{"id":"e1"}}}), false),
        (json!({"exact":{"specversion":"1.0"}}), true),
    ];
    for (json, expected) in cases {
        let filter = Filter::parse(&json).expect("legal");
        assert_eq!(filter.matches(&event()), expected, "{json}");
        assert_eq!(filter.to_json(), json);
        let text = serde_json::to_string(&filter).expect("text");
        assert_eq!(serde_json::from_str::<Filter>(&text).expect("legal"), filter);
    }
}

#[test]
fn an_absent_attribute_never_matches_a_comparison() {
    // covers: U38
    for name in ["subject", "e1", "empty"] {
        for dialect in ["exact", "prefix", "suffix"] {
            let json = json!({dialect: {name: "a"}});
            assert!(!Filter::parse(&json).expect("legal").matches(&event()), "{json}");
            assert!(Filter::parse(&json!({"not": json})).expect("legal").matches(&event()));
        }
    }
}

#[test]
fn what_can_never_match_or_is_ambiguous_is_refused() {
    // covers: U38
    let dialect = "exact";
    let value = |name: &str| FilterError::Value { dialect, name: name.to_owned() };
    let name = |name: &str| FilterError::Name { dialect, name: name.to_owned() };
    let cases = [
        (json!({"exact":{"subject":""}}), value("subject")),
        (json!({"exact":{"e1":""}}), value("e1")),
        (json!({"exact":{"e1":5}}), value("e1")),
        (json!({"exact":{"":"x"}}), name("")),
        (json!({"exact":{"My-Ext":"x"}}), name("My-Ext")),
        (json!({"exact":{}}), FilterError::Empty { dialect }),
        (json!({"any":[]}), FilterError::Empty { dialect: "any" }),
        (json!({"all":[]}), FilterError::Empty { dialect: "all" }),
        (json!({"all":{}}), FilterError::Argument { dialect: "all", expected: "an array of filters" }),
        (json!({"not":[]}), FilterError::NotAnObject),
        (json!({"sql":"TRUE"}), FilterError::UnknownDialect { dialect: "sql".to_owned() }),
        (json!({}), FilterError::NotOneDialect { members: 0 }),
        (json!({"not":{"exact":{"id":"1"}},"exact":{"id":"1"}}), FilterError::NotOneDialect { members: 2 }),
        (json!("type"), FilterError::NotAnObject),
    ];
    for (json, expected) in cases {
        assert_eq!(Filter::parse(&json), Err(expected), "{json}");
    }
}

#[test]
fn depth_and_number_are_bounded() {
    let nested =
        |depth: usize| (1..depth).fold(json!({"exact":{"id":"e1"}}), |inner, _| json!({"not": inner}));
    assert!(Filter::parse(&nested(32)).is_ok());
    assert_eq!(Filter::parse(&nested(33)), Err(FilterError::TooDeep));
    let list = |count: usize| Value::Array(vec![json!({"exact":{"id":"e1"}}); count]);
    assert_eq!(Filter::parse_list(&list(500)).map(|filters| filters.len()), Ok(500));
    assert_eq!(Filter::parse_list(&list(501)), Err(FilterError::TooMany));
    assert_eq!(Filter::parse_list(&json!([])), Ok(Vec::new()));
    assert_eq!(Filter::parse_list(&json!({})), Err(FilterError::NotAnArray));
}

#[test]
fn what_filters_say_is_bounded_together() {
    let of = |bytes: usize, number: usize| {
        let one = json!({"suffix": {"subject": "x".repeat(bytes)}});
        Filter::parse_list(&Value::Array(vec![one; number])).map(|filters| filters.len())
    };
    assert_eq!(of((64 << 10) - 7, 1), Ok(1));
    assert_eq!(of((64 << 10) - 6, 1), Err(FilterError::TooLarge));
    assert_eq!(of(1 << 10, 63), Ok(63));
    assert_eq!(of(1 << 10, 64), Err(FilterError::TooLarge));
    // One that was stored before there was a bound is read.
    let old = json!({"exact": {"subject": "x".repeat(1 << 20)}});
    assert!(Filter::parse(&old).is_ok());
}

#[test]
fn a_filter_costs_as_many_comparisons_as_it_can_make() {
    let cost = |json: Value| Filter::parse(&json).expect("a filter").cost();
    assert_eq!(cost(json!({"exact": {"type": "t"}})), 2);
    assert_eq!(cost(json!({"exact": {"type": "t", "source": "s"}})), 3);
    assert_eq!(cost(json!({"not": {"any": [{"prefix": {"type": "a"}}, {"suffix": {"type": "b"}}]}})), 6);
}
