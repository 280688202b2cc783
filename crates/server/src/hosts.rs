//! Whom a request is for: the name in its `Host` or `:authority`.
//!
//! A page in a browser can let its own name point to this machine, and then it speaks to a server on loopback as if that
//! were its own site. Its requests carry the page's name: a server on loopback answers to its own names only. What RFC 9112
//! (3.2) and RFC 9113 (8.3.1) say must be refused is refused by every server.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, Uri, Version, header::HOST, uri::Authority};

use crate::{ApiError, ErrorCode};

/// The names that a server answers to, beside addresses and the names of loopback. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hosts(Arc<[String]>);

impl Hosts {
    /// These names; in any case of letters.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(|name| plain(name).to_ascii_lowercase()).collect())
    }

    fn has(&self, host: &str) -> bool {
        // As nearly every request says it; what follows asks the same of every other spelling.
        if host == "localhost" || host == "127.0.0.1" || self.0.iter().any(|name| name == host) {
            return true;
        }
        let host = plain(host).to_ascii_lowercase();
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
        host == "localhost"
            || host.ends_with(".localhost")
            || address.parse::<IpAddr>().is_ok()
            || self.0.contains(&host)
    }
}

/// A name without the dot that may end it.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Why a request is not answered, if it is not: for its form, or because it names another server.
pub(crate) fn refusal(
    hosts: Option<&Hosts>,
    version: Version,
    headers: &HeaderMap,
    uri: &Uri,
) -> Option<ApiError> {
    if version < Version::HTTP_2 && uri.authority().is_none() {
        let mut values = headers.get_all(HOST).iter();
        if let (Some(value), None) = (values.next(), values.next())
            && let Some(host) = simple_host(value.as_bytes())
            && hosts.is_none_or(|hosts| hosts.has(host))
        {
            return None;
        }
    }
    let named = match named(version, headers, uri) {
        Ok(named) => named,
        Err(reason) => return Some(ApiError::invalid(reason)),
    };
    let (hosts, named) = (hosts?, named?);
    let host = named.as_ref().map_or("", Authority::host);
    (!hosts.has(host)).then(|| {
        let shown: String = host.chars().take(255).collect();
        let message =
            format!("this server is not called `{shown}`: eventmesh.http.hosts lists what else it is called");
        ApiError::new(ErrorCode::Forbidden, message)
    })
}

/// Whom the request names; the inner `None` is an empty name, the outer one no name at all.
fn named(
    version: Version,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Option<Option<Authority>>, &'static str> {
    let mut values = headers.get_all(HOST).iter();
    let host = values.next();
    if values.next().is_some() {
        return Err("there is more than one Host header");
    }
    let host = match host.map(|value| value.as_bytes()) {
        None if version == Version::HTTP_11 => return Err("an HTTP/1.1 request needs a Host header"),
        None => None,
        Some(b"") => Some(None),
        Some(value) => match Authority::try_from(value) {
            Ok(authority) if is_host_and_port(&authority) => Some(Some(authority)),
            _ => return Err("the Host header is not a host with or without a port"),
        },
    };
    match (uri.authority(), host) {
        (Some(target), Some(Some(host))) if version >= Version::HTTP_2 && *target != host => {
            Err("Host and :authority name different servers")
        }
        // RFC 9112, 3.2.2: the target wins.
        (Some(target), _) => Ok(Some(Some(target.clone()))),
        (None, host) => Ok(host),
    }
}

/// The host of a value that is nothing but letters, digits, hyphens and dots, with a port or without: what nearly every
/// request sends is read without a parser. `None`: any other value, which may be as good.
fn simple_host(value: &[u8]) -> Option<&str> {
    let end =
        value.iter().position(|byte| !matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.'));
    let (host, rest) = value.split_at(end.unwrap_or(value.len()));
    let is_port = |port: &[u8]| {
        (1..=5).contains(&port.len())
            && port.iter().all(u8::is_ascii_digit)
            && port.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
                <= u32::from(u16::MAX)
    };
    let is_rest = rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port);
    if host.is_empty() || !is_rest { None } else { str::from_utf8(host).ok() }
}

/// Whether there is a host, and a port or none; and no user name before it.
fn is_host_and_port(authority: &Authority) -> bool {
    let text = authority.as_str();
    let rest = text.strip_prefix(authority.host()).unwrap_or("@");
    let port = rest.strip_prefix(':').unwrap_or(rest);
    port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || authority.port_u16().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hosts: Option<&Hosts>, version: Version, target: &str, given: &[&str]) -> Option<ErrorCode> {
        let mut headers = HeaderMap::new();
        for host in given {
            headers.append(HOST, host.parse().expect("a value"));
        }
        let uri = target.parse().expect("a target");
        refusal(hosts, version, &headers, &uri).map(|error| error.code)
    }

    #[test]
    fn a_server_on_loopback_answers_to_its_own_names_only() {
        let hosts = Hosts::new(["mesh.example.org"]);
        let told = |target: &str, given: &[&str]| told(Some(&hosts), Version::HTTP_11, target, given);
        for own in [
            "localhost",
            "LOCALHOST:10105",
            "localhost.",
            "a.localhost",
            "127.0.0.1",
            "127.0.0.1:80",
            "10.1.2.3",
            "[::1]:1",
            "[fd00::1]",
            "mesh.example.org:10105",
            "Mesh.Example.org.",
        ] {
            assert_eq!(told("/x", &[own]), None, "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:10105",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "",
        ] {
            assert_eq!(told("/x", &[other]), Some(ErrorCode::Forbidden), "{other}");
        }
        // The target of a request to a proxy wins.
        assert_eq!(told("http://evil.example/x", &["localhost"]), Some(ErrorCode::Forbidden));
        assert_eq!(told("http://localhost/x", &["evil.example"]), None);
    }

    #[test]
    fn a_value_that_is_read_without_a_parser_is_one_that_the_parser_takes_for_the_same() {
        for value in [
            "a",
            "a-b.c",
            "a:1",
            "127.0.0.1:65535",
            "a.",
            "..",
            "-",
            "1:0",
            "a:65536",
            "a:",
            ":1",
            "",
            "a_b",
            "[::1]",
        ] {
            if let Some(host) = simple_host(value.as_bytes()) {
                let authority: Authority = value.parse().expect("an authority");
                assert!(is_host_and_port(&authority), "{value}");
                assert_eq!(authority.host(), host, "{value}");
            }
        }
        for (value, expected) in [
            ("mesh.example.org:10105", Some("mesh.example.org")),
            ("localhost", Some("localhost")),
            ("a:65535", Some("a")),
            ("a:65536", None),
            ("a:", None),
            (":1", None),
            ("", None),
            ("user@a", None),
            ("[::1]:1", None),
        ] {
            assert_eq!(simple_host(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn what_the_standards_call_malformed_is_malformed_everywhere() {
        for (version, target, given, expected) in [
            (Version::HTTP_11, "/x", &[][..], Some(ErrorCode::InvalidArgument)),
            (Version::HTTP_11, "/x", &["a", "a"], Some(ErrorCode::InvalidArgument)),
            (Version::HTTP_11, "/x", &["a b"], Some(ErrorCode::InvalidArgument)),
            (Version::HTTP_11, "/x", &["user@a"], Some(ErrorCode::InvalidArgument)),
            (Version::HTTP_11, "/x", &["a:99x"], Some(ErrorCode::InvalidArgument)),
            (Version::HTTP_11, "/x", &["anything.example"], None),
            (Version::HTTP_10, "/x", &[], None),
            (Version::HTTP_2, "http://a/x", &["b"], Some(ErrorCode::InvalidArgument)),
            (Version::HTTP_2, "http://a/x", &["a"], None),
            (Version::HTTP_2, "http://a/x", &[], None),
        ] {
            assert_eq!(told(None, version, target, given), expected, "{version:?} {target} {given:?}");
        }
    }
}
