//! The worked examples of `docs/storage-format.md`, and damage of every kind.

use super::*;
use crate::{EventBuilder, FrameBuilder, FrameKind};

const DOCUMENT: &str = include_str!("../../../../docs/storage-format.md");

/// The event of both examples.
fn plain() -> Record {
    let event = EventBuilder::new("e1", "/s", "t.a").json(r#"{"n":1}"#).build().expect("legal");
    Record { event, accepted_at_ms: 1_767_225_600_000 }
}

fn typed() -> Record {
    let event = EventBuilder::new("e2", "/s", "t.a").integer("n", -5).boolean("b", true).binary(b"\x00\xff");
    Record { event: event.build().expect("legal"), accepted_at_ms: 1_767_225_600_001 }
}

fn encoded(record: &Record) -> Bytes {
    let mut buffer = Vec::new();
    record.encode(&mut buffer);
    assert_eq!(buffer.len(), record.encoded_len());
    buffer.into()
}

/// The hexadecimal digits of the code block that follows the line `heading`.
fn documented(heading: &str) -> Bytes {
    let (_, after) = DOCUMENT.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let block = after.split("```").nth(1).expect("a code block follows");
    let digits: Vec<u32> =
        block.trim_start_matches("text").chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("a byte")).collect()
}

#[test]
fn the_documented_examples_are_what_is_written_and_read() {
    for (heading, record) in [("### Example: JSON data", plain()), ("### Example: typed attributes", typed())]
    {
        let bytes = documented(heading);
        let hex: String = encoded(&record).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, encoded(&record), "{heading}: {hex}");
        assert_eq!(Record::decode(bytes), Ok(record));
    }
    let part = documented("### Example: beside the frame");
    assert_eq!(part, typed().types_part());
    let frame = typed().event.frame().as_bytes().clone();
    assert_eq!(Record::from_parts(frame, Some(part), 0), Ok(typed()));
}

#[test]
fn every_cut_and_every_changed_bit_is_noticed() {
    let bytes = encoded(&typed());
    for length in 0..bytes.len() {
        let error = Record::decode(bytes.slice(..length)).expect_err("cut");
        assert!(matches!(error, RecordError::Corrupt { .. }), "first {length} bytes: {error}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::decode(damaged.into()).is_err(), "bit {bit}");
    }
}

#[test]
fn a_newer_record_is_not_called_damaged() {
    let mut bytes = encoded(&plain()).to_vec();
    bytes[0] = 2;
    assert_eq!(Record::decode(bytes.into()), Err(RecordError::NewerVersion { found: 2 }));
    let frame = plain().event.frame().as_bytes().clone();
    let part = Some(Bytes::from_static(&[9]));
    assert_eq!(Record::from_parts(frame, part, 0), Err(RecordError::NewerVersion { found: 9 }));
}

#[test]
fn types_and_form_must_fit_the_frame() {
    let frame = typed().event.frame().as_bytes().clone();
    let part = |form: u8, types: &[u8]| {
        let count = u8::try_from(types.len() / 3).expect("few");
        let part = [&[1, 0, 0, 0, 0, 0, 0, 0, 7, form, 0, count], types].concat();
        Record::from_parts(frame.clone(), Some(part.into()), 0)
    };
    assert_eq!(part(3, &[0, 4, 1, 0, 5, 2]).map(|record| record.accepted_at_ms), Ok(7));
    let refused = [
        part(4, &[]),
        part(0, &[]),
        part(2, &[]),
        part(3, &[0, 3, 1]),
        part(3, &[0, 4, 2]),
        part(3, &[0, 6, 1]),
        part(3, &[0, 5, 2, 0, 4, 1]),
        part(3, &[0, 4, 1, 0]),
    ];
    for (case, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(RecordError::Corrupt { .. })), "case {case}: {result:?}");
    }
}

#[test]
fn a_frame_without_types_reads_as_text() {
    let builder = FrameBuilder::new(FrameKind::Event).attribute("datacontenttype", "application/json");
    let frame = builder.attribute("n", "5").build(b"[1]").expect("within the limits");
    let record = Record::from_parts(frame.as_bytes().clone(), None, 9).expect("a frame");
    assert_eq!((record.event.form(), record.accepted_at_ms), (DataForm::Json, 9));
    assert!(record.event.types().is_empty());
    assert!(Record::from_parts(Bytes::from_static(b"x"), None, 9).is_err());
    let with = |count: usize, value: &str| {
        let builder = (0..count).fold(FrameBuilder::new(FrameKind::Event), |builder, number| {
            builder.attribute(&format!("{number:04}"), value)
        });
        let frame = builder.build(b"").expect("within what is stored");
        Record::from_parts(frame.as_bytes().clone(), None, 9).map(|_| ())
    };
    let no_room = RecordError::Corrupt { what: "the frame leaves no room for the attributes of the server" };
    assert_eq!((with(1_024, ""), with(1_025, "")), (Ok(()), Err(no_room)));
    assert_eq!((with(4, &"v".repeat(65_532)), with(5, &"v".repeat(60_000))), (Ok(()), Err(no_room)));
}
