//! The head of a request, as far as a signature can cover it.

/// The head of a request whose signature is verified.
#[derive(Clone, Copy)]
pub struct SignedHead<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path as it was sent.
    pub path: &'a str,
    /// The query as it was sent, without `?`.
    pub query: Option<&'a str>,
    /// The values of a header by its name in small letters, in their order. `host` is taken for `@authority`.
    pub header: &'a dyn Fn(&str) -> Vec<&'a [u8]>,
    /// The names of the headers that decide what the request means, in small letters: the attributes of an event in
    /// binary mode, and `content-type`. A signature must cover each of them.
    pub speaking: &'a [&'a str],
}
