//! The nouns, the wire frame and the CloudEvents codec: what everything else along the line talks about.
//!
//! * [`TopicName`], [`ClientId`], [`Offset`] and the other ids are types that cannot hold an illegal value.
//! * [`Frame`] is the wire form of an event or a stream message, checked once, then read without copies.
//! * [`Event`] is a frame with what the frame cannot say: attribute types and how the data was given.
//! * [`Record`] is an event as a log stores it: versioned, checksummed, with its time of acceptance.
//! * [`parse_structured`], [`parse_batch`] and [`parse_binary`] read CloudEvents 1.0 from HTTP, after
//!   [`ContentMode::of`] told which of them applies; [`Event::json`] writes them.
//! * [`Filter`] decides which events a group wants.
//!
//! Nothing here does I/O, reads a clock or logs. Input from network or disk never panics.

mod cloudevents;
mod data_form;
mod event;
mod event_builder;
mod event_json;
mod filter;
mod frame;
mod frame_builder;
mod limits;
mod media_type;
mod nouns;
mod record;
mod timestamp;
mod types;

pub use cloudevents::{
    ContentMode, EventError, EventErrorKind, HeaderValueError, decode_header_value, encode_header_value,
    parse_batch, parse_binary, parse_structured,
};
pub use data_form::DataForm;
pub use event::Event;
pub use event_builder::EventBuilder;
pub use event_json::single_line;
pub use filter::{Filter, FilterError};
pub use frame::{Attributes, Flags, Frame, FrameError, FrameKind};
pub use frame_builder::FrameBuilder;
pub use limits::{Limits, SERVER_ATTRIBUTE_BYTES, SERVER_ATTRIBUTES};
pub use nouns::{
    ClientId, Epoch, GroupName, Incarnation, InstanceId, NameError, Offset, PartitionId, SubscriptionId,
    TaskId, TenantId, TopicName,
};
pub use record::{Record, RecordError};
pub use timestamp::{format_timestamp, parse_timestamp};
pub use types::{AttributeType, AttributeTypes};
