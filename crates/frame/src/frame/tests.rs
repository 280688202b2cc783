//! The two worked examples of the wire layout, and what must not be read as a frame.

use super::*;
use crate::FrameBuilder;

const EVENT: &str = "ef01030000000000000400000007000b7370656376657273696f6e00000003312e300002696400000002653100\
                     06736f75726365000000022f7300047479706500000003742e617b226e223a317d";
const CHUNK: &str = "ef0102050000000700030000000200037369640000000461673a3100056574797065\
                     00000005746f6b656e00046d657461000000027b7d6869";

fn bytes_of(hex: &str) -> Bytes {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(text(pair), 16).expect("two hex digits");
    digits.chunks(2).map(byte).collect()
}

fn event_example() -> Frame {
    FrameBuilder::new(FrameKind::Event)
        .attribute("specversion", "1.0")
        .attribute("id", "e1")
        .attribute("source", "/s")
        .attribute("type", "t.a")
        .build(br#"{"n":1}"#)
        .expect("within the limits")
}

#[test]
fn the_event_example_is_written_and_read_to_the_byte() {
    let bytes = bytes_of(EVENT);
    assert_eq!(bytes.len(), 78);
    assert_eq!(event_example().as_bytes(), &bytes);
    let frame = Frame::decode(bytes).expect("the example is a frame");
    assert_eq!(frame, event_example());
    assert_eq!(frame.kind(), FrameKind::Event);
    assert_eq!((frame.flags(), frame.sequence()), (Flags::NONE, 0));
    let expected = [("specversion", "1.0"), ("id", "e1"), ("source", "/s"), ("type", "t.a")];
    assert_eq!(frame.attributes().collect::<Vec<_>>(), expected);
    assert_eq!(frame.attribute("type"), Some("t.a"));
    assert_eq!(frame.attribute("subject"), None);
    assert_eq!(frame.data(), &br#"{"n":1}"#[..]);
}

#[test]
fn the_stream_example_is_written_and_read_to_the_byte() {
    let bytes = bytes_of(CHUNK);
    assert_eq!(bytes.len(), 57);
    let built = FrameBuilder::new(FrameKind::StreamChunk)
        .flags(Flags::DONE.with(Flags::META))
        .sequence(7)
        .attribute("sid", "ag:1")
        .attribute("etype", "token")
        .attribute("meta", "{}")
        .build(b"hi")
        .expect("within the limits");
    assert_eq!(built.as_bytes(), &bytes);
    let frame = Frame::decode(bytes).expect("the example is a frame");
    assert_eq!(frame, built);
    assert!(frame.flags().contains(Flags::DONE) && frame.flags().contains(Flags::META));
    assert!(!frame.flags().contains(Flags::ERROR));
    assert_eq!(frame.sequence(), 7);
}

#[test]
fn every_cut_and_every_surplus_is_noticed() {
    let bytes = bytes_of(EVENT);
    for length in 0..bytes.len() {
        assert_eq!(Frame::decode(bytes.slice(..length)), Err(FrameError::Truncated), "first {length} bytes");
    }
    let longer: Bytes = [bytes.as_ref(), b"x"].concat().into();
    assert_eq!(Frame::decode(longer), Err(FrameError::Surplus { surplus: 1 }));
}

#[test]
fn what_is_no_frame_is_told_by_name() {
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes_of(EVENT).to_vec();
        bytes[at] = value;
        Frame::decode(bytes.into()).expect_err("one byte is wrong")
    };
    assert_eq!(changed(0, 0xEE), FrameError::Magic { found: 0xEE });
    assert_eq!(changed(1, 2), FrameError::Version { found: 2 });
    assert_eq!(changed(2, 4), FrameError::Kind { found: 4 });
    assert_eq!(changed(8, 0xFF), FrameError::TooManyAttributes { limit: 1040 });
    assert_eq!(changed(10, 0xFF), FrameError::DataTooLarge { limit: 8 << 20 });
    assert_eq!(changed(16, 0xFF), FrameError::NotText);
    assert_eq!(changed(15, 0), FrameError::Truncated);
    assert_eq!(changed(14, 1), FrameError::Truncated);
}

#[test]
fn the_limits_are_inclusive_and_checked_in_the_builder_too() {
    let name = |length: usize| "n".repeat(length);
    let with =
        |name: &str, value: &str| FrameBuilder::new(FrameKind::Event).attribute(name, value).build(b"");
    assert!(with(&name(256), "").is_ok());
    assert_eq!(with(&name(257), ""), Err(FrameError::NameTooLong { limit: 256 }));
    assert_eq!(with("", "x"), Err(FrameError::EmptyName));
    let frame = with("n", &name(65_536)).expect("64 KiB are allowed");
    assert_eq!(Frame::decode(frame.as_bytes().clone()), Ok(frame));
    assert_eq!(with("n", &name(65_537)), Err(FrameError::ValueTooLong { limit: 65_536 }));
    let many = |count: usize| {
        let builder = (0..count).fold(FrameBuilder::new(FrameKind::Event), |builder, number| {
            builder.attribute(&format!("n{number}"), "")
        });
        builder.build(b"")
    };
    let frame = many(1040).expect("1,024 of the client and 16 of the server");
    assert_eq!(Frame::decode(frame.as_bytes().clone()), Ok(frame));
    assert_eq!(many(1041), Err(FrameError::TooManyAttributes { limit: 1040 }));
    let data = |length: usize| FrameBuilder::new(FrameKind::Event).build(&vec![0; length]);
    assert!(data(8 << 20).is_ok());
    assert_eq!(data((8 << 20) + 1), Err(FrameError::DataTooLarge { limit: 8 << 20 }));
}

#[test]
fn a_name_stands_once_among_few_and_among_many() {
    for count in [2, 24, 25, 200] {
        let mut builder = FrameBuilder::new(FrameKind::Event);
        for number in 1..count {
            builder = builder.attribute(&format!("n{number}"), "");
        }
        let expected = Err(FrameError::Duplicate { name: "n1".to_owned() });
        assert_eq!(builder.attribute("n1", "x").build(b""), expected, "{count}");
    }
}
