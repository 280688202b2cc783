//! An event in the making: takes attributes one by one, judges each, and writes the frame as it goes.

use super::{
    error::{EventError, EventErrorKind},
    rules::{fault_of_value, is_attribute_name},
};
use crate::{
    data_form::DataForm,
    event::Event,
    frame::{ATTRIBUTE_HEADER, FrameError, FrameKind, check_attribute},
    frame_builder::FrameBuilder,
    limits::Limits,
    types::{AttributeType, AttributeTypes},
};

/// The attributes that every event has, in the order in which a missing one is told.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// Collects one event. The caller sees to it that no name comes twice.
pub(crate) struct Draft<'limits> {
    limits: &'limits Limits,
    frame: FrameBuilder,
    types: Vec<(usize, AttributeType)>,
    present: [bool; REQUIRED.len()],
}

impl<'limits> Draft<'limits> {
    /// An empty draft with room for a frame of `bytes` bytes.
    ///
    /// `specversion` is written at once, since it comes first and can have one value only; that the client
    /// gave it is checked at the end.
    pub(crate) fn new(limits: &'limits Limits, bytes: usize) -> Self {
        let mut frame =
            FrameBuilder::with_capacity(FrameKind::Event, bytes + "specversion1.0".len() + ATTRIBUTE_HEADER);
        frame.push("specversion", "1.0").expect("the first attribute is within the limits");
        Self { limits, frame, types: Vec::new(), present: [false; REQUIRED.len()] }
    }

    /// Adds an attribute; `value` is its canonical text.
    pub(crate) fn attribute(
        &mut self,
        name: &str,
        value: &str,
        attribute_type: Option<AttributeType>,
    ) -> Result<(), EventError> {
        if !is_attribute_name(name) {
            return Err(EventError::of_attribute(
                name,
                "is not a legal name: only a-z and 0-9 may be in one",
            ));
        }
        let total = self.frame.attributes_bytes() + name.len() + value.len();
        check_attribute(name.len(), value.len(), total, self.limits)
            .map_err(|error| over_limit(name, &error))?;
        if let Some(fault) = fault_of_value(name, value) {
            return Err(EventError::of_attribute(name, fault));
        }
        if let Some(required) = REQUIRED.iter().position(|required| *required == name) {
            self.present[required] = true;
            if required == 0 {
                return Ok(());
            }
        }
        if self.frame.attribute_count() == self.limits.attribute_count {
            let error = FrameError::TooManyAttributes { limit: self.limits.attribute_count };
            return Err(over_limit(name, &error));
        }
        if let Some(attribute_type) = attribute_type {
            debug_assert!(attribute_type.is_text(value), "the text of a typed attribute is canonical");
            self.types.push((self.frame.attribute_count(), attribute_type));
        }
        self.frame.push(name, value).map_err(|error| over_limit(name, &error))
    }

    /// The event with data of this form, which `write_data` appends; `data_bytes` is its exact size.
    pub(crate) fn finish(
        self,
        form: DataForm,
        data_bytes: usize,
        write_data: impl FnOnce(&mut Vec<u8>) -> Result<(), EventError>,
    ) -> Result<Event, EventError> {
        if let Some(missing) = self.present.iter().position(|present| !present) {
            return Err(EventError::of_attribute(REQUIRED[missing], "is missing"));
        }
        if data_bytes > self.limits.data_bytes {
            return Err(FrameError::DataTooLarge { limit: self.limits.data_bytes }.into());
        }
        let frame = self.frame.finish(write_data)?;
        if frame.as_bytes().len() > self.limits.frame_bytes {
            return Err(FrameError::FrameTooLarge { limit: self.limits.frame_bytes }.into());
        }
        Ok(Event::of_parts(frame, form, AttributeTypes::collect(self.types)))
    }
}

/// A limit of attributes was passed at this one.
fn over_limit(name: &str, error: &FrameError) -> EventError {
    EventError {
        kind: EventErrorKind::Invalid,
        ..EventError::of_attribute(name, format_args!("is too much: {error}"))
    }
}
