//! Properties of every decoder: nothing panics, what is accepted comes back unchanged.

use bytes::Bytes;
use mesh_frame::{
    ContentMode, DataForm, Event, EventBuilder, Filter, Flags, Frame, FrameBuilder, FrameKind, Limits,
    Record, decode_header_value, encode_header_value, parse_batch, parse_binary, parse_structured,
    parse_timestamp,
};
use proptest::{collection::vec, option, prelude::*};

/// Text that a CloudEvents string may hold.
fn legal_text() -> impl Strategy<Value = String> {
    let characters = prop_oneof![
        4 => proptest::char::range(' ', '~'),
        1 => proptest::char::range('\u{a0}', '\u{d7ff}'),
        1 => proptest::char::range('\u{10000}', '\u{1fffd}'),
    ];
    vec(characters, 1..24).prop_map(String::from_iter)
}

/// JSON text with odd numbers, blanks, escapes and repeated keys, which parsers like to change.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1.0".to_owned()),
        Just("-0".to_owned()),
        Just("1e400".to_owned()),
        Just("9007199254740993".to_owned()),
        Just(r#""\u00e9\/""#.to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).expect("text")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|values| format!("[ {} ]", values.join(" ,\n"))),
            vec((any::<String>(), inner), 0..4).prop_map(|members| {
                let member = |(name, value): &(String, String)| {
                    format!("{}:\t{value}", serde_json::to_string(name).expect("text"))
                };
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Integer(i32),
    Boolean(bool),
}

#[derive(Clone, Debug)]
enum Data {
    None,
    Json(String),
    Text(String),
    Binary(Vec<u8>),
}

/// What may be a source: any text whose escapes hold.
fn source() -> impl Strategy<Value = String> {
    legal_text().prop_map(|text| text.replace('%', "%25").replace('#', "%23"))
}

/// An event of any shape that the rules allow.
fn event() -> impl Strategy<Value = Event> {
    let value = prop_oneof![
        legal_text().prop_map(Value::Text),
        any::<i32>().prop_map(Value::Integer),
        any::<bool>().prop_map(Value::Boolean)
    ];
    let extensions = proptest::collection::btree_map("x[a-z0-9]{0,24}", value, 0..6);
    let data = prop_oneof![
        Just(Data::None),
        json_text().prop_map(Data::Json),
        any::<String>().prop_map(Data::Text),
        vec(any::<u8>(), 0..40).prop_map(Data::Binary)
    ];
    let content_type = prop_oneof![Just("application/json"), Just("text/plain"), Just("image/png")];
    (legal_text(), source(), legal_text(), extensions, data, option::of(content_type)).prop_map(
        |(id, source, event_type, extensions, data, content_type)| {
            let mut builder = EventBuilder::new(&id, &source, &event_type);
            for (name, value) in &extensions {
                builder = match value {
                    Value::Text(text) => builder.attribute(name, text),
                    Value::Integer(number) => builder.integer(name, *number),
                    Value::Boolean(is_set) => builder.boolean(name, *is_set),
                };
            }
            // A JSON string under a type that is not JSON is text, so each form comes with a type of its own.
            let (builder, content_type) = match data {
                Data::None => (builder, content_type),
                Data::Json(text) => (builder.json(&text), content_type.and(Some("application/x+json"))),
                Data::Text(text) => (builder.text(&text), Some("text/plain")),
                Data::Binary(bytes) => (builder.binary(&bytes), content_type),
            };
            let builder = match content_type {
                Some(media_type) => builder.attribute("datacontenttype", media_type),
                None => builder,
            };
            builder.build().expect("the strategy makes legal events")
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let kind =
        prop_oneof![Just(FrameKind::StreamRequest), Just(FrameKind::StreamChunk), Just(FrameKind::Event)];
    let attributes = proptest::collection::btree_map(".{1,12}", any::<String>(), 0..40);
    (kind, any::<u8>(), any::<u32>(), attributes, vec(any::<u8>(), 0..64)).prop_map(
        |(kind, flags, sequence, attributes, data)| {
            let builder = FrameBuilder::new(kind).flags(Flags(flags)).sequence(sequence);
            let with =
                |builder: FrameBuilder, (name, value): (&String, &String)| builder.attribute(name, value);
            attributes.iter().fold(builder, with).build(&data).expect("within the limits")
        },
    )
}

/// Changes to bytes: overwrite, insert, remove.
fn changes() -> impl Strategy<Value = Vec<(u8, prop::sample::Index, u8)>> {
    vec((0..3_u8, any::<prop::sample::Index>(), any::<u8>()), 1..6)
}

fn changed(bytes: &[u8], changes: &[(u8, prop::sample::Index, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (what, at, byte) in changes {
        match what {
            0 if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            1 if !bytes.is_empty() => {
                bytes.remove(at.index(bytes.len()));
            }
            _ => bytes.insert(at.index(bytes.len() + 1), *byte),
        }
    }
    bytes
}

/// Puts bytes through every decoder. What one accepts must come back unchanged.
fn feed_every_decoder(bytes: &[u8]) {
    let shared = Bytes::copy_from_slice(bytes);
    if let Ok(frame) = Frame::decode(shared.clone()) {
        assert_eq!(frame.as_bytes(), &shared);
        let json = Event::from_frame(frame).json();
        serde_json::from_slice::<&serde_json::value::RawValue>(&json)
            .expect("any frame can be written as JSON");
    }
    if let Ok(record) = Record::decode(shared.clone()) {
        assert_eq!(encoded(&record), bytes);
    }
    if let Ok(record) = Record::from_parts(shared.clone(), Some(shared.clone()), 0) {
        panic!("a frame is not its own types: {record:?}");
    }
    if let Ok(event) = parse_structured(bytes, &Limits::DEFAULT) {
        comes_back_unchanged(&event);
    }
    if let Ok(events) = parse_batch(bytes, &Limits::DEFAULT) {
        events.iter().for_each(comes_back_unchanged);
    }
    let headers: [(&str, &[u8]); 4] =
        [("ce-specversion", b"1.0"), ("ce-id", bytes), ("ce-source", b"/s"), ("ce-type", b"t")];
    if let Ok(event) = parse_binary(headers, Some("application/json"), shared, &Limits::DEFAULT) {
        comes_back_as_record(&event);
    }
    let text = String::from_utf8_lossy(bytes);
    parse_timestamp(&text);
    if let Ok(mode) = ContentMode::of(Some(&text), false) {
        assert_ne!(mode, ContentMode::Binary);
    }
    if let Ok(json) = serde_json::from_slice(bytes)
        && let Ok(filter) = Filter::parse(&json)
    {
        assert_eq!(Filter::parse(&filter.to_json()), Ok(filter));
    }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

fn comes_back_as_record(event: &Event) -> Event {
    let record = Record { event: event.clone(), accepted_at_ms: 42 };
    let apart = Record::from_parts(event.frame().as_bytes().clone(), Some(record.types_part()), 0)
        .expect("what was written");
    let read = Record::decode(encoded(&record).into()).expect("what was written");
    assert_eq!(read, record);
    assert_eq!(apart, record);
    read.event
}

fn comes_back_unchanged(event: &Event) {
    let stored = comes_back_as_record(event);
    let json = stored.json();
    assert_eq!(json, event.json());
    let again = parse_structured(&json, &Limits::DEFAULT)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&json)));
    assert_eq!(&again, event);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(bytes in vec(any::<u8>(), 0..200)) {
        feed_every_decoder(&bytes);
    }

    #[test]
    fn arbitrary_json_never_panics_a_decoder(json in json_text()) {
        feed_every_decoder(json.as_bytes());
    }

    #[test]
    fn changed_events_never_panic_a_decoder(event in event(), changes in changes()) {
        feed_every_decoder(&changed(&event.json(), &changes));
        feed_every_decoder(&changed(event.frame().as_bytes(), &changes));
        let record = Record { event, accepted_at_ms: 42 };
        feed_every_decoder(&changed(&encoded(&record), &changes));
        let frame = record.event.frame().as_bytes().clone();
        let part = changed(&record.types_part(), &changes);
        if let Ok(read) = Record::from_parts(frame, Some(part.into()), 0) {
            serde_json::from_slice::<&serde_json::value::RawValue>(&read.event.json()).expect("JSON");
        }
    }

    #[test]
    fn every_event_comes_back_unchanged(event in event()) {
        comes_back_unchanged(&event);
    }

    #[test]
    fn a_batch_gives_what_its_events_give_alone(events in vec(event(), 0..4)) {
        let json: Vec<String> =
            events.iter().map(|event| String::from_utf8(event.json().to_vec()).expect("UTF-8")).collect();
        let batch = format!("[{}]", json.join(" , "));
        prop_assert_eq!(parse_batch(batch.as_bytes(), &Limits::DEFAULT), Ok(events));
    }

    #[test]
    fn frames_come_back_unchanged(frame in frame(), changes in changes()) {
        prop_assert_eq!(Frame::decode(frame.as_bytes().clone()), Ok(frame.clone()));
        feed_every_decoder(&changed(frame.as_bytes(), &changes));
    }

    #[test]
    fn header_values_come_back_unchanged(text in any::<String>()) {
        let encoded = encode_header_value(&text);
        prop_assert!(encoded.bytes().all(|byte| (0x21..=0x7E).contains(&byte)));
        prop_assert_eq!(decode_header_value(encoded.as_bytes()).expect("encoded"), text.as_str());
    }

    #[test]
    fn header_values_never_panic_the_decoder(value in "[%\"\\\\a-f0-9 ü]{0,12}") {
        if let Ok(text) = decode_header_value(value.as_bytes()) {
            prop_assert!(text.len() <= value.len());
        }
    }

    #[test]
    fn binary_mode_gives_the_attributes_and_the_bytes(event in event(), body in vec(any::<u8>(), 0..40)) {
        let attributes = event.frame().attributes().filter(|(name, _)| *name != "datacontenttype");
        let headers: Vec<(String, String)> =
            attributes.map(|(name, value)| (format!("ce-{name}"), encode_header_value(value).into_owned())).collect();
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let content_type = event.attribute("datacontenttype");
        let read = parse_binary(headers, content_type, body.clone().into(), &Limits::DEFAULT).expect("legal");
        let sorted = |event: &Event| {
            let pairs = event.frame().attributes().map(|(name, value)| (name.to_owned(), value.to_owned()));
            pairs.collect::<std::collections::BTreeMap<_, _>>()
        };
        prop_assert_eq!(sorted(&read), sorted(&event));
        prop_assert_eq!(read.data(), body);
        prop_assert_eq!(read.form() == DataForm::None, read.data().is_empty());
        comes_back_as_record(&read);
    }

    #[test]
    fn server_attributes_stand_and_others_stay(event in event(), value in legal_text()) {
        let changed = event.with_attributes(&[("emdlgroup", &value), ("emdltime", "t")]);
        prop_assert_eq!(changed.attribute("emdlgroup"), Some(value.as_str()));
        comes_back_as_record(&changed);
        prop_assert_eq!(changed.without_attributes(|name| name.starts_with("emdl")), event);
    }
}
