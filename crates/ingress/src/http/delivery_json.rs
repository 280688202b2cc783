//! A delivery as clients get it, by poll and by stream alike.

use mesh_base::UnixMillis;
use mesh_delivery::Delivery;
use mesh_frame::{Epoch, format_timestamp};
use mesh_server::{push_number, push_number_text, push_text};

/// What a delivery takes besides the event, the names of topic and group and its id.
const ENVELOPE: usize = 256;
/// What a gap takes.
const GAP: usize = 96;

/// About how many bytes a delivery takes, and hardly ever fewer.
pub(super) fn size_of(delivery: &Delivery) -> usize {
    let id = delivery.group.id();
    let names = delivery.id.len() + id.topic.as_str().len() + id.name.as_str().len();
    delivery.record.json().len() + names + ENVELOPE + delivery.gap.as_ref().map_or(0, |_| GAP)
}

/// Writes deliveries. Those of one answer are mostly locked until the same time, which is written once.
#[derive(Debug)]
pub(super) struct DeliveryWriter {
    epoch: Epoch,
    locked_until: Option<UnixMillis>,
    locked_until_text: String,
}

impl DeliveryWriter {
    pub(super) fn new(epoch: Epoch) -> Self {
        Self { epoch, locked_until: None, locked_until_text: String::new() }
    }

    /// Appends a delivery around the JSON of its event.
    pub(super) fn push(&mut self, text: &mut Vec<u8>, delivery: &Delivery, event: &[u8]) {
        if self.locked_until != Some(delivery.locked_until) {
            self.locked_until = Some(delivery.locked_until);
            self.locked_until_text = format_timestamp(delivery.locked_until.0);
        }
        let group = delivery.group.id();
        text.extend_from_slice(b"{\"deliveryId\":\"");
        text.extend_from_slice(delivery.id.as_bytes());
        text.extend_from_slice(b"\",\"event\":");
        text.extend_from_slice(event);
        text.extend_from_slice(b",\"attempt\":");
        push_number(text, u64::from(delivery.attempt));
        text.extend_from_slice(b",\"topic\":\"");
        text.extend_from_slice(group.topic.as_str().as_bytes());
        text.extend_from_slice(b"\",\"group\":");
        push_text(text, group.name.as_str());
        text.extend_from_slice(b",\"partition\":");
        push_number(text, u64::from(delivery.partition.0));
        text.extend_from_slice(b",\"offset\":");
        push_number_text(text, delivery.offset.0);
        text.extend_from_slice(b",\"epoch\":");
        push_number_text(text, self.epoch.0);
        text.extend_from_slice(b",\"lockedUntil\":\"");
        text.extend_from_slice(self.locked_until_text.as_bytes());
        text.push(b'"');
        if let Some(gap) = &delivery.gap {
            text.extend_from_slice(b",\"gap\":{\"from\":");
            push_number_text(text, gap.from.0);
            text.extend_from_slice(b",\"to\":");
            push_number_text(text, gap.to.0);
            text.extend_from_slice(b",\"reason\":\"");
            text.extend_from_slice(gap.reason.as_str().as_bytes());
            text.extend_from_slice(b"\"}");
        }
        text.push(b'}');
    }
}
