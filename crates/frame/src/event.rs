//! An event: its frame, and what a frame cannot say about it.
//!
//! A frame holds text and bytes. Beside it stand the attributes that were given as Integer or Boolean and
//! whether the data was given as JSON, as text or as Base64, so that a consumer sees what the producer sent.

use bytes::Bytes;

use crate::{
    data_form::DataForm,
    frame::{Frame, FrameError},
    frame_builder::FrameBuilder,
    media_type,
    timestamp::parse_timestamp,
    types::AttributeTypes,
};

/// An event. Cloning shares all memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    frame: Frame,
    form: DataForm,
    types: AttributeTypes,
}

impl Event {
    /// The event of a frame that came alone, as other runtimes write them: every attribute is text, and the
    /// form of the data follows from `datacontenttype` (a JSON type that parses is JSON, `text/*` in UTF-8 is
    /// text, all else is binary).
    ///
    /// Whether the frame has the attributes that CloudEvents requires is not checked; without them
    /// [`Event::id`] and its like give an empty text.
    pub fn from_frame(frame: Frame) -> Self {
        let mut form = media_type::form_of_bytes(frame.attribute("datacontenttype"), frame.data_ref());
        if form == DataForm::Json && media_type::is_too_deep(frame.data_ref()) {
            form = DataForm::Binary;
        }
        Self { frame, form, types: AttributeTypes::all_text() }
    }

    /// The event of parts that belong together: data of the form, types of attributes with such a text.
    pub(crate) fn of_parts(frame: Frame, form: DataForm, types: AttributeTypes) -> Self {
        Self { frame, form, types }
    }

    /// The frame.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// How the data was given.
    pub fn form(&self) -> DataForm {
        self.form
    }

    /// Which attributes are not text.
    pub fn types(&self) -> &AttributeTypes {
        &self.types
    }

    /// The canonical text of the attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.frame.attribute(name)
    }

    /// The `id`; with [`Event::source`] it names the event.
    pub fn id(&self) -> &str {
        self.attribute("id").unwrap_or_default()
    }

    /// The `source`.
    pub fn source(&self) -> &str {
        self.attribute("source").unwrap_or_default()
    }

    /// The `type`.
    pub fn event_type(&self) -> &str {
        self.attribute("type").unwrap_or_default()
    }

    /// The `partitionkey`: events of one key keep their order. An empty one counts as none.
    pub fn partition_key(&self) -> Option<&str> {
        self.attribute("partitionkey").filter(|key| !key.is_empty())
    }

    /// The data, sharing the frame's memory; empty if there is none.
    pub fn data(&self) -> Bytes {
        self.frame.data()
    }

    /// When the event expires, in milliseconds since 1970: the earlier of `expirytime` and `emttl`
    /// milliseconds after `time`, or after acceptance when there is no `time`. Clients cannot publish an `emttl` that
    /// is not a number of milliseconds or an `expirytime` that is not a timestamp; in the log of an older release they never
    /// expire anything.
    pub fn expires_at_ms(&self, accepted_at_ms: u64) -> Option<u64> {
        let instant = |name| Some(u64::try_from(parse_timestamp(self.attribute(name)?)?).unwrap_or(0));
        let lifetime_end = self
            .attribute("emttl")
            .and_then(|lifetime| lifetime.parse::<u64>().ok())
            .map(|lifetime| instant("time").unwrap_or(accepted_at_ms).saturating_add(lifetime));
        match (lifetime_end, instant("expirytime")) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The event with attributes that the server sets: each replaces the attribute of its name, or comes
    /// last; a name that stands twice takes the last value. They are text.
    ///
    /// The server's attributes fit into what is set aside for them beyond the limits of clients
    /// ([`SERVER_ATTRIBUTES`](crate::SERVER_ATTRIBUTES), [`SERVER_ATTRIBUTE_BYTES`](crate::SERVER_ATTRIBUTE_BYTES)),
    /// which [`Frame::decode`] allows; what goes beyond that is written, but cannot be read back.
    ///
    /// # Panics
    ///
    /// On an empty name or one over 256 bytes.
    #[must_use]
    pub fn with_attributes(&self, attributes: &[(&str, &str)]) -> Self {
        let names = attributes.iter().enumerate();
        let mut are_new = names.map(|(at, (name, _))| {
            self.attribute(name).is_none() && !attributes[..at].iter().any(|(other, _)| other == name)
        });
        if are_new.all(|is_new| is_new) {
            // As nearly always: nothing of the event is looked at again.
            let frame = self.frame.with_appended(attributes);
            return Self { frame, form: self.form, types: self.types.clone() };
        }
        let last = |name| attributes.iter().rfind(|(set, _)| *set == name).map(|(_, value)| *value);
        let kept = self.frame.attributes().map(|(name, value)| match last(name) {
            Some(set) => (name, set, false),
            None => (name, value, true),
        });
        let is_new = |at: usize, name: &str| {
            self.attribute(name).is_none() && !attributes[at + 1..].iter().any(|(later, _)| *later == name)
        };
        let added = attributes.iter().enumerate().filter(|(at, (name, _))| is_new(*at, name));
        let added = added.map(|(_, (name, value))| (*name, *value, false));
        self.rebuilt(kept.map(Some).chain(added.map(Some)))
    }

    /// The event without the attributes for which `is_dropped` says so.
    #[must_use]
    pub fn without_attributes(&self, is_dropped: impl Fn(&str) -> bool) -> Self {
        let kept =
            self.frame.attributes().map(|(name, value)| (!is_dropped(name)).then_some((name, value, true)));
        self.rebuilt(kept)
    }

    /// The event with other attributes and the same data. The first ones stand where those of the frame do,
    /// `None` for one that is dropped; an attribute that says so keeps its type.
    fn rebuilt<'a>(&'a self, attributes: impl Iterator<Item = Option<(&'a str, &'a str, bool)>>) -> Self {
        let mut builder = FrameBuilder::like(&self.frame, 256);
        let mut types = Vec::new();
        let mut old_types = self.types.iter().peekable();
        for (old_position, attribute) in attributes.enumerate() {
            let old_type = old_types.next_if(|(position, _)| *position == old_position);
            let Some((name, value, keeps_type)) = attribute else { continue };
            if let Some((_, attribute_type)) = old_type.filter(|_| keeps_type) {
                types.push((builder.attribute_count(), attribute_type));
            }
            builder.push(name, value).expect("the attributes of the server have legal names and are few");
        }
        let copied = builder.finish(|buffer| {
            buffer.extend_from_slice(self.frame.data_ref());
            Ok::<(), FrameError>(())
        });
        let frame = copied.expect("the data was within the limits before");
        Self { frame, form: self.form, types: AttributeTypes::collect(types) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventBuilder, FrameKind, types::AttributeType};

    fn event() -> EventBuilder {
        EventBuilder::new("e1", "/s", "t.a")
    }

    #[test]
    fn expiry_is_the_earlier_of_lifetime_and_instant() {
        // covers: U41
        const TIME: (&str, &str) = ("time", "1970-01-01T00:00:10Z");
        type Attributes = &'static [(&'static str, &'static str)];
        let cases: [(Attributes, Option<u64>); 9] = [
            (&[], None),
            (&[("emttl", "500")], Some(1_500)),
            (&[("emttl", "500"), TIME], Some(10_500)),
            (&[("emttl", "500"), TIME, ("expirytime", "1970-01-01T00:00:10.4Z")], Some(10_400)),
            (&[("emttl", "500"), ("expirytime", "1970-01-01T00:01:00Z")], Some(1_500)),
            (&[("expirytime", "1969-01-01T00:00:00Z")], Some(0)),
            (&[("emttl", "18446744073709551615"), TIME], Some(u64::MAX)),
            (&[("emttl", "soon"), ("expirytime", "never")], None),
            (&[("emttl", "-1")], None),
        ];
        for (attributes, expected) in cases {
            let event = event().build().expect("legal").with_attributes(attributes);
            assert_eq!(event.expires_at_ms(1_000), expected, "{attributes:?}");
        }
    }

    #[test]
    fn server_attributes_replace_or_come_last_and_other_types_stay() {
        let event = event().integer("n", 5).boolean("b", true).attribute("x", "1").json("{}");
        let event = event.build().expect("legal");
        let changed = event.with_attributes(&[("n", "7"), ("emdltime", "old"), ("emdltime", "t")]);
        let expected = [
            ("specversion", "1.0"),
            ("id", "e1"),
            ("source", "/s"),
            ("type", "t.a"),
            ("n", "7"),
            ("b", "true"),
        ];
        let expected: Vec<_> = expected.into_iter().chain([("x", "1"), ("emdltime", "t")]).collect();
        assert_eq!(changed.frame().attributes().collect::<Vec<_>>(), expected);
        assert_eq!(changed.types().iter().collect::<Vec<_>>(), [(5, AttributeType::Boolean)]);
        assert_eq!((changed.data(), changed.form()), (event.data(), event.form()));
        let back = changed.without_attributes(|name| name == "n" || name.starts_with("emdl"));
        assert_eq!(back.types().iter().collect::<Vec<_>>(), [(4, AttributeType::Boolean)]);
        assert_eq!(back.attribute("n").or(back.attribute("emdltime")), None);
    }

    #[test]
    fn what_is_new_is_appended_as_it_would_be_built() {
        let event = event().integer("n", 5).attribute("x", "1").json("{\"a\":1}").build().expect("legal");
        let new = [("emtenantid", "shop"), ("emdltime", "")];
        let added = event.with_attributes(&new);
        let kept = event.frame().attributes().map(|(name, value)| Some((name, value, true)));
        let whole = event.rebuilt(kept.chain(new.iter().map(|(name, value)| Some((*name, *value, false)))));
        assert_eq!(added, whole);
        assert_eq!(Frame::decode(added.frame().as_bytes().clone()).as_ref(), Ok(added.frame()));
        assert_eq!(event.with_attributes(&[]), event);
    }

    #[test]
    fn an_event_as_full_as_clients_may_make_it_has_room_for_the_server() {
        let value = "v".repeat(63_000);
        let full = ["a", "b", "c", "d"].iter().fold(event(), |event, name| event.attribute(name, &value));
        let full = (0..1_016).fold(full, |event, number| event.attribute(&format!("n{number}"), ""));
        let full = full.build().expect("within the limits");
        assert_eq!(full.frame().attribute_count(), 1_024);
        let names: Vec<String> = (0..16).map(|number| format!("emdl{number}")).collect();
        let group = "g".repeat(1_020);
        let attributes: Vec<_> = names.iter().map(|name| (name.as_str(), group.as_str())).collect();
        let changed = full.with_attributes(&attributes);
        assert_eq!(Frame::decode(changed.frame().as_bytes().clone()).as_ref(), Ok(changed.frame()));
        // Beyond that nothing breaks here; its reader is told.
        let beyond = changed.with_attributes(&[("emdlmore", "x")]);
        assert_eq!(beyond.attribute("emdlmore"), Some("x"));
        let error = FrameError::TooManyAttributes { limit: 1_040 };
        assert_eq!(Frame::decode(beyond.frame().as_bytes().clone()), Err(error));
    }

    #[test]
    fn an_empty_partition_key_is_none() {
        let with = |key| event().attribute("partitionkey", key).build().expect("legal");
        assert_eq!(with("k").partition_key(), Some("k"));
        assert_eq!(with("").partition_key(), None);
    }

    #[test]
    fn a_frame_alone_reads_as_text_with_the_form_its_type_implies() {
        let frame = |media_type: &str, data: &[u8]| {
            let builder = FrameBuilder::new(FrameKind::Event).attribute("datacontenttype", media_type);
            Event::from_frame(builder.build(data).expect("within the limits"))
        };
        assert_eq!(frame("application/json", b"[1]").form(), DataForm::Json);
        let deep = "[".repeat(129) + &"]".repeat(129);
        assert_eq!(frame("application/json", deep.as_bytes()).form(), DataForm::Binary);
        assert_eq!(frame("text/plain", b"x").form(), DataForm::Text);
        assert_eq!(frame("image/png", b"x").form(), DataForm::Binary);
        assert_eq!(frame("image/png", b"").form(), DataForm::None);
        assert_eq!(frame("image/png", b"").id(), "");
    }
}
