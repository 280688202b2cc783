//! The admin port: the routes of `docs/admin.md`, asked with JSON and answered with it.

use serde_json::Value;

use crate::{
    Error, RetryPolicy,
    delivery::unreadable,
    transport::{Call, Transport, encode},
};

/// A client of one server's admin port; clones share its connections. Made by [`ClientBuilder::build_admin`].
///
/// Nothing is sent again: whether a change took effect is for the caller to look at.
///
/// [`ClientBuilder::build_admin`]: crate::ClientBuilder::build_admin
#[derive(Clone, Debug)]
pub struct AdminClient {
    transport: Transport,
}

impl AdminClient {
    pub(crate) fn new(transport: Transport) -> Self {
        Self { transport }
    }

    /// Asks a route. Each of `parts` is one step of the path behind `/admin`, encoded here, as are the parameters.
    ///
    /// # Errors
    /// What the server or the connection says; [`Error::Answer`] where the answer is no JSON.
    pub async fn get(&self, parts: &[&str], query: &[(&str, &str)]) -> Result<Value, Error> {
        self.send(Call::get(path(parts, query))).await
    }

    /// Has something done, with options in the body.
    ///
    /// # Errors
    /// As [`AdminClient::get`]; after [`Error::Lost`] and [`Error::Timeout`] it may have been done.
    pub async fn post(&self, parts: &[&str], query: &[(&str, &str)], body: &Value) -> Result<Value, Error> {
        self.send(Call::post(path(parts, query), "application/json", body.to_string())).await
    }

    /// Has something removed.
    ///
    /// # Errors
    /// As [`AdminClient::post`].
    pub async fn delete(&self, parts: &[&str], query: &[(&str, &str)]) -> Result<Value, Error> {
        self.send(Call::delete(path(parts, query))).await
    }

    async fn send(&self, call: Call) -> Result<Value, Error> {
        let answer = self.transport.send(&call, RetryPolicy::never()).await?;
        serde_json::from_slice(&answer).map_err(unreadable)
    }
}

fn path(parts: &[&str], query: &[(&str, &str)]) -> String {
    let mut path = String::from("/admin");
    for part in parts {
        path.push('/');
        path.push_str(&encode(part));
    }
    for (place, (name, value)) in query.iter().enumerate() {
        path.push(if place == 0 { '?' } else { '&' });
        path.push_str(&format!("{name}={}", encode(value)));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_and_parameter_is_encoded() {
        assert_eq!(path(&["topics"], &[]), "/admin/topics");
        assert_eq!(
            path(&["groups", "a/b", "ü"], &[("tenant", "a b"), ("kind", "lb")]),
            "/admin/groups/a%2Fb/%C3%BC?tenant=a%20b&kind=lb"
        );
    }
}
