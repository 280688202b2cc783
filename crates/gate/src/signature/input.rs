//! What `Signature-Input` and `Signature` say: which parts were signed, when, by which key, and the signature.

use sfv::{Dictionary, FieldType, InnerList, List, ListEntry, Parser};

use super::SignedHead;

/// The largest header that is parsed, in bytes.
const LARGEST_HEADER: usize = 8 << 10;
/// The most signatures that are looked through for one under a known key: a proxy may add its own.
const MOST_SIGNATURES: usize = 4;
/// The most parts a signature may cover.
const MOST_COMPONENTS: usize = 64;
/// The longest nonce, in bytes.
const LONGEST_NONCE: usize = 256;

/// One signature of a request.
#[derive(Debug)]
pub(super) struct Input {
    /// The names of what was signed, in order, each once.
    pub(super) components: Vec<String>,
    /// The components and parameters, as they are part of what is signed.
    pub(super) params: String,
    pub(super) created: u64,
    pub(super) expires: Option<u64>,
    pub(super) nonce: String,
    pub(super) algorithm: Option<String>,
    pub(super) signature: Vec<u8>,
}

impl Input {
    /// The first signature whose key `known` finds, with what it found. The error is for the client.
    pub(super) fn find<K>(
        head: &SignedHead<'_>,
        known: impl Fn(&str) -> Option<K>,
    ) -> Result<(Self, K), &'static str> {
        let inputs = dictionary(head, "signature-input")?.ok_or("a signature is needed")?;
        let signatures = dictionary(head, "signature")?.ok_or("the header Signature is missing")?;
        if inputs.len() > MOST_SIGNATURES {
            return Err("there are too many signatures");
        }
        for (label, input) in inputs {
            let ListEntry::InnerList(input) = input else {
                return Err("a member of Signature-Input is not a list");
            };
            let Some(key) = text(&input, "keyid").and_then(|id| known(&id)) else { continue };
            let signature = match signatures.get(&label) {
                Some(ListEntry::Item(item)) => item.bare_item.as_byte_sequence(),
                _ => None,
            };
            let signature = signature.ok_or("Signature has no bytes for a member of Signature-Input")?;
            return Ok((Self::new(input, signature.to_vec())?, key));
        }
        Err("the signature's key is not known")
    }

    fn new(input: InnerList, signature: Vec<u8>) -> Result<Self, &'static str> {
        if input.items.len() > MOST_COMPONENTS {
            return Err("the signature covers too many parts");
        }
        let mut components = Vec::new();
        for item in &input.items {
            let name = item.bare_item.as_string().ok_or("a part that is signed is not named by a string")?;
            if !item.params.is_empty() {
                return Err("parameters of parts that are signed are not supported");
            }
            let name = name.as_str().to_owned();
            if components.contains(&name) {
                return Err("a part is signed twice");
            }
            components.push(name);
        }
        let seconds = |name: &str| match input.params.get(name) {
            None => Ok(None),
            Some(value) => {
                let seconds = value.as_integer().and_then(|seconds| u64::try_from(i64::from(seconds)).ok());
                seconds.map(Some).ok_or("created and expires must be whole seconds since 1970")
            }
        };
        let created = seconds("created")?.ok_or("the signature does not say when it was created")?;
        let expires = seconds("expires")?;
        let nonce = text(&input, "nonce").ok_or("the signature has no nonce")?;
        if nonce.is_empty() || nonce.len() > LONGEST_NONCE {
            return Err("the nonce must have 1 to 256 characters");
        }
        let algorithm = match input.params.contains_key("alg") {
            true => Some(text(&input, "alg").ok_or("alg must be a string")?),
            false => None,
        };
        let list: List = vec![ListEntry::InnerList(input)];
        let params = list.serialize().ok_or("the signature covers nothing")?;
        Ok(Self { components, params, created, expires, nonce, algorithm, signature })
    }

    /// Whether it covers that.
    pub(super) fn covers(&self, component: &str) -> bool {
        self.components.iter().any(|covered| covered == component)
    }
}

/// The text of a parameter.
fn text(input: &InnerList, name: &str) -> Option<String> {
    Some(input.params.get(name)?.as_string()?.as_str().to_owned())
}

/// A header that is a dictionary of structured fields (RFC 9651); nothing where it is not sent.
pub(super) fn dictionary(head: &SignedHead<'_>, name: &str) -> Result<Option<Dictionary>, &'static str> {
    let values = (head.header)(name);
    if values.is_empty() {
        return Ok(None);
    }
    let joined = values.join(&b", "[..]);
    if joined.len() > LARGEST_HEADER {
        return Err("a header of the signature is too large");
    }
    let parsed = Parser::new(&joined).parse::<Dictionary>();
    parsed.map(Some).map_err(|_| "a header of the signature cannot be parsed")
}
