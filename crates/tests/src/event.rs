//! CloudEvents as the tests send them.

use serde_json::{Value, json};

/// An event with that id, whose data repeats it.
pub fn event(id: impl ToString) -> Value {
    let id = id.to_string();
    json!({
        "specversion": "1.0",
        "id": id,
        "source": "/tests",
        "type": "test.event",
        "datacontenttype": "application/json",
        "data": {"n": id},
    })
}

/// The same with a partition key.
pub fn keyed(id: impl ToString, key: &str) -> Value {
    let mut event = event(id);
    event["partitionkey"] = key.into();
    event
}

/// The id of an event.
///
/// # Panics
/// When it has none.
pub fn id_of(event: &Value) -> &str {
    event["id"].as_str().expect("an event of the tests has a text id")
}
