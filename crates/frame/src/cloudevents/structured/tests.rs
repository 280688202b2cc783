//! What structured events are accepted as, and why others are refused.

use super::*;
use crate::EventErrorKind;

fn parse(body: &str) -> Result<Event, EventError> {
    parse_structured(body.as_bytes(), &Limits::DEFAULT)
}

/// An event with these members after the required ones.
fn event_with(members: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"1","source":"/t","type":"t.e"{members}}}"#)
}

fn json_of(body: &str) -> String {
    let event = parse(body).unwrap_or_else(|error| panic!("{body}: {error}"));
    String::from_utf8(event.json().to_vec()).expect("JSON is UTF-8")
}

#[test]
fn an_event_comes_back_as_it_came_in() {
    // covers: U14, U31
    let tails = [
        "",
        r#","datacontenttype":"application/json","data":{"n":1}"#,
        r#","datacontenttype":"application/xml","data":"<a/>""#,
        r#","datacontenttype":"text/plain;charset=utf-8","data":"x\ny""#,
        r#","datacontenttype":"text/plain","data":{"not":"text"}"#,
        r#","datacontenttype":"image/png","data_base64":"iVBORw==""#,
        r#","datacontenttype":"application/json","data_base64":"e30=""#,
        r#","data_base64":"""#,
        r#","subject":"Zürich","time":"2018-04-05T17:31:00Z","dataschema":"https://x/y""#,
    ];
    for tail in tails {
        assert_eq!(json_of(&event_with(tail)), event_with(tail));
    }
}

#[test]
fn specversion_comes_first_and_the_others_keep_their_order() {
    let body = r#" {"type":"t","z":"1","data":1,"source":"/","specversion":"1.0","a":"2","id":"1"} "#;
    let expected = r#"{"specversion":"1.0","type":"t","z":"1","source":"/","a":"2","id":"1","data":1}"#;
    assert_eq!(json_of(body), expected);
}

#[test]
fn names_are_held_to_their_alphabet_but_not_to_20_characters() {
    // covers: U20
    for name in ["my-ext", "MyExt", "my_ext", "dataContentType", "", "é"] {
        let error = parse(&event_with(&format!(r#","{name}":"x""#))).expect_err(name);
        assert_eq!((error.kind, error.attribute.as_deref()), (EventErrorKind::Invalid, Some(name)));
        assert!(error.message.contains(&format!("`{name}`")), "{error}");
    }
    let long = event_with(r#","abcdefghijklmnopqrstuvwxyz":"x""#);
    assert_eq!(json_of(&long), long);
}

#[test]
fn extensions_are_strings_booleans_and_32_bit_integers() {
    // covers: U21
    let kept = event_with(r#","a":5,"b":true,"c":-2147483648,"d":2147483647,"e":false,"f":"5","g":"""#);
    assert_eq!(json_of(&kept), kept);
    assert_eq!(json_of(&event_with(r#","e1":null,"my-ext":null,"subject":null"#)), event_with(""));
    assert_eq!(json_of(&event_with(r#","n":-0"#)), event_with(r#","n":0"#));
    for value in [r#"{"a":1}"#, "[1]", "2147483648", "-2147483649", "1.0", "1e2", "1.5"] {
        let error = parse(&event_with(&format!(r#","e4":{value}"#))).expect_err(value);
        assert_eq!((error.kind, error.attribute.as_deref()), (EventErrorKind::Invalid, Some("e4")));
        assert!(error.message.contains("`e4`"), "{error}");
    }
}

#[test]
fn json_data_keeps_its_text() {
    // covers: U23
    let values = [
        r#""{\"a\":1}""#,
        r#"{"a":1}"#,
        r#""42""#,
        "42",
        "null",
        "\"\\u00e9\\/\"",
        r#"{"z":1.0,"a":1e400,"n":9007199254740993,"a":2}"#,
        "[ 1,\n\t2 ]",
    ];
    for value in values {
        for content_type in ["", r#","datacontenttype":"application/vnd.x+json""#] {
            let body = event_with(&format!(r#"{content_type},"data":{value}"#));
            assert_eq!(json_of(&body), body);
            assert_eq!(parse(&body).expect("legal").data(), value.as_bytes());
        }
    }
    assert_eq!(parse(&event_with("")).expect("legal").form(), DataForm::None);
    assert_eq!(parse(&event_with(r#","data":null"#)).expect("legal").form(), DataForm::Json);
}

#[test]
fn references_are_accepted_as_they_are_and_schemas_are_uris() {
    // covers: U24
    for (name, value) in [("source", "/subscriptions/5df"), ("source", "a b"), ("source", "#")] {
        let body = event_with("").replace(r#""/t""#, &format!("{value:?}"));
        assert_eq!(parse(&body).expect("legal").attribute(name), Some(value));
    }
    let event = parse(&event_with(r#","dataschema":"https://x/y#z""#)).expect("legal");
    assert_eq!(event.attribute("dataschema"), Some("https://x/y#z"));
    // A schema is a URI, not a reference.
    let error = parse(&event_with(r##","dataschema":"#""##)).expect_err("no scheme");
    assert_eq!(error.attribute.as_deref(), Some("dataschema"));
    for name in ["dataschema", "subject", "datacontenttype"] {
        let error = parse(&event_with(&format!(r#","{name}":"""#))).expect_err("empty");
        assert_eq!(error.attribute.as_deref(), Some(name));
    }
}

#[test]
fn what_is_no_event_is_told_so_in_a_sentence() {
    // covers: U26
    let rpc = parse(r#"{"jsonrpc":"2.0","method":"tools/call","id":1}"#).expect_err("JSON-RPC");
    assert!(rpc.kind == EventErrorKind::Invalid && rpc.message.contains("A2A gateway"), "{rpc}");
    assert!(parse(&event_with(r#","jsonrpc":"2.0""#)).is_ok());
    let cases = [("", "empty"), (" \n", "empty"), ("hello", "not a JSON object"), ("7", "not a JSON object")];
    for (body, words) in cases {
        assert!(parse(body).expect_err(body).message.contains(words), "{body}");
    }
}

#[test]
fn a_missing_empty_or_mistyped_attribute_is_named() {
    // covers: U27
    for name in ["specversion", "id", "source", "type"] {
        let member = |value: &str| {
            let value = if value.is_empty() { String::new() } else { format!(r#""{name}":{value},"#) };
            let others = [("specversion", "1.0"), ("id", "1"), ("source", "/t"), ("type", "t")];
            let others = others.iter().filter(|(other, _)| *other != name);
            let others: Vec<_> = others.map(|(other, value)| format!(r#""{other}":"{value}""#)).collect();
            parse(&format!("{{{value}{}}}", others.join(",")))
        };
        for value in ["", "null", "\"\"", "7", "true", "[]", "{}"] {
            let error = member(value).expect_err(value);
            assert_eq!(
                (error.kind, error.attribute.as_deref()),
                (EventErrorKind::Invalid, Some(name)),
                "{value}"
            );
            assert!(error.message.contains(&format!("`{name}`")), "{error}");
        }
    }
    for version in ["0.3", "1", "2.0", "1.0.2"] {
        let error = parse(&event_with("").replace("1.0", version)).expect_err(version);
        assert_eq!(error.attribute.as_deref(), Some("specversion"));
    }
    for time in ["yesterday", "2018-04-05", ""] {
        let error = parse(&event_with(&format!(r#","time":"{time}""#))).expect_err(time);
        assert_eq!(error.attribute.as_deref(), Some("time"));
    }
    assert_eq!(parse("{}").expect_err("empty").attribute.as_deref(), Some("specversion"));
}

#[test]
fn text_that_is_not_json_is_told_by_position_only() {
    // covers: U27
    let whole = event_with(r#","data":{"n":[1,"x"]}"#);
    for length in 1..whole.len() {
        let error = parse(&whole[..length]).expect_err("truncated");
        assert!(error.message.contains("line 1"), "{error}");
    }
    let mut bytes = event_with(r#","subject":"x""#).into_bytes();
    let at = bytes.len() - 3;
    bytes[at] = 0xFF;
    let error = parse_structured(&bytes, &Limits::DEFAULT).expect_err("not UTF-8");
    assert_eq!(error.message, format!("the body is not UTF-8 at byte {at}"));
    for body in [event_with(",}"), event_with("") + "x", event_with("") + "{}", event_with(r#","data":01"#)] {
        assert!(parse(&body).expect_err(&body).message.contains("line 1"), "{body}");
    }
}

#[test]
fn forbidden_characters_are_refused_however_they_are_written() {
    for text in
        [r"\u0000", r"\n", r"\u0085", "\u{7f}", "\u{fdd0}", r"\uffff", r"\ud800", r"\udc00x", r"\ud800\ud800"]
    {
        let error = parse(&event_with(&format!(r#","subject":"a{text}""#))).expect_err(text);
        assert_eq!(error.attribute.as_deref(), Some("subject"), "{error}");
    }
    assert!(parse(&event_with(r#","subject":"a\ud83d\ude00""#)).is_ok());
    assert!(parse(&event_with(",\"subject\":\"a\nb\"")).is_err());
    assert!(parse(&event_with(r#","datacontenttype":"text/plain","data":"\ud800""#)).is_err());
}

#[test]
fn data_is_given_once_and_base64_is_strict() {
    for tail in [
        r#","data":1,"data_base64":"e30=""#,
        r#","data":null,"data_base64":"e30=""#,
        r#","data":1,"data":2"#,
        r#","data_base64":"e30""#,
        r#","data_base64":"e3 0=""#,
        r#","data_base64":"_-8=""#,
        r#","data_base64":"e31=""#,
        r#","data_base64":5"#,
    ] {
        let error = parse(&event_with(tail)).expect_err(tail);
        assert_eq!(error.kind, EventErrorKind::Invalid, "{tail}: {error}");
    }
    assert_eq!(parse(&event_with(r#","data_base64":"\/wA=""#)).expect("legal").data(), &[0xFF, 0][..]);
    assert_eq!(json_of(&event_with(r#","data_base64":null,"data":1"#)), event_with(r#","data":1"#));
}

#[test]
fn a_name_stands_once() {
    for tail in [r#","id":"1""#, r#","a":null,"a":"1""#, r#","\u0061":"1","a":"1""#] {
        let error = parse(&event_with(tail)).expect_err(tail);
        assert!(error.message.contains("twice") && error.attribute.is_some(), "{error}");
    }
}

#[test]
fn server_attributes_are_refused_or_dropped() {
    for name in ["emreplaygroup", "emdlgroup", "emdlanything"] {
        let error = parse(&event_with(&format!(r#","{name}":"x""#))).expect_err(name);
        assert_eq!((error.kind, error.attribute.as_deref()), (EventErrorKind::ReservedAttribute, Some(name)));
        assert!(parse(&event_with(&format!(r#","{name}":null"#))).is_ok());
    }
    let dropped = event_with(r#","emtenantid":"x","emmqoffset":7,"emmqpartition":{},"empopck":"x""#);
    assert_eq!(json_of(&dropped), event_with(""));
    let kept = event_with(r#","emttl":"500","emcorrelationid":"c""#);
    assert_eq!(json_of(&kept), kept);
}

#[test]
fn depth_of_data_is_bounded() {
    let nested = |depth: usize| event_with(&format!(r#","data":{}{}"#, "[".repeat(depth), "]".repeat(depth)));
    assert!(parse(&nested(128)).is_ok());
    for depth in [129, 100_000] {
        let error = parse(&nested(depth)).expect_err("too deep");
        assert!(error.kind == EventErrorKind::Invalid && error.message.contains("128"), "{error}");
    }
    let extension = format!(r#","e":{}{}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(parse(&event_with(&extension)).expect_err("an array").attribute.as_deref(), Some("e"));
}

#[test]
fn limits_are_inclusive_and_say_what_passed_them() {
    let kind_of = |tail: &str, limits: &Limits| parse_structured(event_with(tail).as_bytes(), limits).err();
    let value = |length: usize| format!(r#","e":"{}""#, "v".repeat(length));
    assert_eq!(kind_of(&value(65_536), &Limits::DEFAULT), None);
    let error = kind_of(&value(65_537), &Limits::DEFAULT).expect("over");
    assert_eq!((error.kind, error.attribute.as_deref()), (EventErrorKind::Invalid, Some("e")));
    assert!(kind_of(&value(4_097), &Limits::java_compatible()).is_some());
    let many = |count: usize| (0..count).map(|number| format!(r#","n{number}":"""#)).collect::<String>();
    for (limits, most) in [(Limits::DEFAULT, 1_024), (Limits::java_compatible(), 64)] {
        assert_eq!(kind_of(&many(most - 4), &limits), None);
        for surplus in [1, 500] {
            let error = kind_of(&many(most - 4 + surplus), &limits).expect("over");
            assert!(error.kind == EventErrorKind::Invalid && error.attribute.is_some(), "{error}");
        }
    }
    let name = |length: usize| format!(r#","{}":"""#, "n".repeat(length));
    assert_eq!(kind_of(&name(256), &Limits::DEFAULT), None);
    assert_eq!(kind_of(&name(257), &Limits::DEFAULT).map(|error| error.kind), Some(EventErrorKind::Invalid));
    let five = ["a", "b", "c", "d", "f"].map(|name| format!(r#","{name}":"{}""#, "v".repeat(60_000)));
    let error = kind_of(&five.concat(), &Limits::DEFAULT).expect("over");
    assert_eq!((error.kind, error.attribute.as_deref()), (EventErrorKind::Invalid, Some("f")));
    let small = Limits { data_bytes: 4, ..Limits::DEFAULT };
    let data = [
        (r#","data":1234"#, false),
        (r#","data":12345"#, true),
        (r#","data_base64":"AAAAAA==""#, false),
        (r#","data_base64":"AAAAAAA=""#, true),
        (r#","datacontenttype":"text/plain","data":"1234""#, false),
        (r#","datacontenttype":"text/plain","data":"12345""#, true),
    ];
    for (tail, is_over) in data {
        let error = kind_of(tail, &small).map(|error| error.kind);
        assert_eq!(error, is_over.then_some(EventErrorKind::TooLarge), "{tail}");
    }
}
