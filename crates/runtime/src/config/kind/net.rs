//! Hosts, ports and addresses, checked for their form only: nothing is looked up while reading.

use std::net::{IpAddr, Ipv6Addr};

use super::Kind;

/// A name or an IP address to listen on.
#[derive(Debug)]
pub struct Host;

impl Kind for Host {
    type Value = String;

    fn read(&self, text: &str) -> Result<String, String> {
        host(text).ok_or_else(|| "is neither an IP address nor a host name".to_owned())
    }

    fn accepted(&self) -> String {
        "an IP address or a host name (127.0.0.1, 0.0.0.0, ::, mesh.example.org)".to_owned()
    }
}

/// A TCP port to listen on.
#[derive(Debug)]
pub struct Port;

impl Kind for Port {
    type Value = u16;

    fn read(&self, text: &str) -> Result<u16, String> {
        port(text).ok_or_else(|| "is not a port".to_owned())
    }

    fn accepted(&self) -> String {
        "a port from 1 to 65535; 0 means any free one, named in the log".to_owned()
    }
}

/// Where others reach this instance; read into the start of its URLs, `http://host:port`.
#[derive(Debug)]
pub struct AdvertisedAddress;

impl Kind for AdvertisedAddress {
    type Value = String;

    fn read(&self, text: &str) -> Result<String, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        if !matches!(scheme, "http" | "https") {
            return Err("has a scheme that is neither http nor https".to_owned());
        }
        let (host, port) = address(rest).ok_or("is not host:port")?;
        if port == 0 {
            return Err("has port 0, which nobody can reach".to_owned());
        }
        if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
            return Err("is a wildcard address, which nobody can reach".to_owned());
        }
        Ok(if host.contains(':') {
            format!("{scheme}://[{host}]:{port}")
        } else {
            format!("{scheme}://{host}:{port}")
        })
    }

    fn accepted(&self) -> String {
        "host:port or http(s)://host:port, as clients reach it; no wildcard address".to_owned()
    }
}

/// Where a key set is fetched from, checked as the gate checks it.
#[derive(Debug)]
pub struct KeySetUrl;

impl Kind for KeySetUrl {
    type Value = String;

    fn read(&self, text: &str) -> Result<String, String> {
        mesh_gate::check_key_set_url(text).map(|()| text.to_owned()).map_err(str::to_owned)
    }

    fn accepted(&self) -> String {
        "an https:// URL, or an http:// one of this machine; without a user part".to_owned()
    }
}

/// One or more addresses, with commas between them.
#[derive(Debug)]
pub struct Addresses;

impl Kind for Addresses {
    type Value = Vec<String>;

    fn read(&self, text: &str) -> Result<Vec<String>, String> {
        let checked = |part: &str| match address(part) {
            Some((_, port)) if port > 0 => Ok(part.to_owned()),
            _ => Err(format!("has a part that is not host:port (part {part:?})")),
        };
        text.split(',').map(|part| checked(part.trim())).collect()
    }

    fn accepted(&self) -> String {
        "host:port, several with commas between them".to_owned()
    }
}

/// The host and the port of `host:port`; an IPv6 address stands in brackets, and comes back without.
fn address(text: &str) -> Option<(String, u16)> {
    let (name, number) = text.rsplit_once(':')?;
    if name.contains(':') && !name.starts_with('[') {
        return None;
    }
    Some((host(name)?, port(number)?))
}

fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn host(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('[') {
        return inner.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(|ip| ip.to_string());
    }
    if text.parse::<IpAddr>().is_ok() {
        return Some(text.to_owned());
    }
    // Digits and dots only would be an address with a slip in it, never a name.
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (!numeric && text.len() <= 253 && text.split('.').all(is_label)).then(|| text.to_owned())
}

/// Whether this is a name of a host, or an address of one.
pub fn is_host_name(text: &str) -> bool {
    host(text).is_some()
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_names() {
        for (text, expected) in [
            ("127.0.0.1", Some("127.0.0.1")),
            ("::", Some("::")),
            ("[::1]", Some("::1")),
            ("localhost", Some("localhost")),
            ("a-b.example.org", Some("a-b.example.org")),
            ("256.0.0.1", None),
            ("127.0.0", None),
            ("http://a", None),
            ("a b", None),
            ("a..b", None),
            ("localhost:80", None),
        ] {
            assert_eq!(Host.read(text).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn ports_are_numbers_below_65536() {
        for (text, expected) in [
            ("0", Some(0)),
            ("65535", Some(65_535)),
            ("65536", None),
            ("-1", None),
            ("+1", None),
            ("http", None),
        ] {
            assert_eq!(Port.read(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_advertised_can_be_reached() {
        for (text, expected) in [
            ("mesh:10105", Some("http://mesh:10105")),
            ("https://mesh:443", Some("https://mesh:443")),
            ("[fd00::1]:10105", Some("http://[fd00::1]:10105")),
            ("0.0.0.0:10105", None),
            ("[::]:10105", None),
            ("mesh:0", None),
            ("mesh", None),
            ("ftp://mesh:1", None),
            ("fd00::1:10105", None),
        ] {
            assert_eq!(AdvertisedAddress.read(text).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn every_address_of_a_list_is_checked() {
        assert_eq!(Addresses.read("a:1, b:2"), Ok(vec!["a:1".to_owned(), "b:2".to_owned()]));
        for text in ["a", "a:1,", "a:1,b", "a:0"] {
            assert!(Addresses.read(text).is_err(), "{text}");
        }
    }
}
