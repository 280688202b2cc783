//! Makes an event of the server's own, by the rules that hold for the events of clients.

use crate::{
    cloudevents::{Draft, EventError},
    data_form::DataForm,
    event::Event,
    limits::Limits,
    media_type::DEEPEST_JSON,
    types::AttributeType,
};

/// Builds one event; attributes come out in the order in which they were added.
///
/// It may set the attributes that are reserved for the server, and is held to everything else that a
/// published event is held to.
#[derive(Debug)]
pub struct EventBuilder {
    attributes: Vec<(String, String, Option<AttributeType>)>,
    form: DataForm,
    data: Vec<u8>,
}

impl EventBuilder {
    /// An event with what every event must have, and no data.
    pub fn new(id: &str, source: &str, event_type: &str) -> Self {
        let builder = Self { attributes: Vec::new(), form: DataForm::None, data: Vec::new() };
        builder.attribute("id", id).attribute("source", source).attribute("type", event_type)
    }

    /// Adds an attribute that is text.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        self.attributes.push((name.to_owned(), value.to_owned(), None));
        self
    }

    /// Adds an attribute that is a number.
    #[must_use]
    pub fn integer(mut self, name: &str, value: i32) -> Self {
        self.attributes.push((name.to_owned(), value.to_string(), Some(AttributeType::Integer)));
        self
    }

    /// Adds an attribute that is `true` or `false`.
    #[must_use]
    pub fn boolean(mut self, name: &str, value: bool) -> Self {
        self.attributes.push((name.to_owned(), value.to_string(), Some(AttributeType::Boolean)));
        self
    }

    /// Sets the data to a JSON value, given as its text.
    #[must_use]
    pub fn json(self, text: &str) -> Self {
        self.data(DataForm::Json, text.as_bytes())
    }

    /// Sets the data to text of the type that the attribute `datacontenttype` gives, which is not JSON.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.data(DataForm::Text, text.as_bytes())
    }

    /// Sets the data to bytes.
    #[must_use]
    pub fn binary(self, bytes: &[u8]) -> Self {
        self.data(DataForm::Binary, bytes)
    }

    fn data(self, form: DataForm, data: &[u8]) -> Self {
        Self { form, data: data.to_vec(), ..self }
    }

    /// The event.
    ///
    /// # Errors
    ///
    /// [`EventError`] names the attribute that breaks a rule, or says what is wrong with the data.
    pub fn build(self) -> Result<Event, EventError> {
        if self.form == DataForm::Json {
            if serde_json::from_slice::<&serde_json::value::RawValue>(&self.data).is_err() {
                return Err(EventError::invalid("the data is not JSON"));
            }
            if crate::media_type::is_too_deep(&self.data) {
                return Err(EventError::invalid(format!("the data is nested deeper than {DEEPEST_JSON}")));
            }
        }
        let names = self.attributes.iter().map(|(name, ..)| name.as_str());
        if let Some(name) = crate::frame::first_duplicate(names) {
            return Err(EventError::of_attribute(name, "is given twice"));
        }
        let mut draft = Draft::new(&Limits::DEFAULT, self.data.len() + 512);
        draft.attribute("specversion", "1.0", None)?;
        for (name, value, attribute_type) in &self.attributes {
            draft.attribute(name, value, *attribute_type)?;
        }
        draft.finish(self.form, self.data.len(), |buffer| {
            buffer.extend_from_slice(&self.data);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_held_to_the_rules_of_events_but_may_use_its_own_names() {
        let event = || EventBuilder::new("e1", "/s", "t");
        assert!(event().attribute("emreplaygroup", "g").build().is_ok());
        let refused = [
            (EventBuilder::new("", "/s", "t"), Some("id")),
            (event().attribute("My-Ext", "x"), Some("My-Ext")),
            (event().attribute("id", "e2"), Some("id")),
            (event().json("{"), None),
            (event().json(&("[".repeat(129) + &"]".repeat(129))), None),
        ];
        for (builder, attribute) in refused {
            let error = builder.build().expect_err("a rule is broken");
            assert_eq!(error.attribute.as_deref(), attribute, "{error}");
        }
    }
}
