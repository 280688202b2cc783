//! Takes server-sent events out of the bytes of a stream.

/// What the server said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The data of an event.
    Data(Vec<u8>),
    /// A comment.
    Comment(String),
}

/// Bytes that have come and are not understood yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// Before this, `bytes` was taken.
    taken: usize,
    /// Before this, `bytes` has no end of a line.
    searched: usize,
    data: Option<Vec<u8>>,
}

impl Lines {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.searched -= self.taken;
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are held.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken + self.data.as_ref().map_or(0, Vec::len)
    }

    /// The next thing that was said, once all of it has come.
    pub(crate) fn next(&mut self) -> Option<Said> {
        while let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + length;
            let line = &self.bytes[self.taken..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mut said = None;
            if line.is_empty() {
                said = self.data.take().map(Said::Data);
            } else if let Some(comment) = line.strip_prefix(b":") {
                said = Some(Said::Comment(String::from_utf8_lossy(comment).trim().to_owned()));
            } else if let Some(value) = line.strip_prefix(b"data:") {
                let value = value.strip_prefix(b" ").unwrap_or(value);
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    None => self.data = Some(value.to_vec()),
                }
            }
            self.taken = end + 1;
            self.searched = self.taken;
            if said.is_some() {
                return said;
            }
        }
        self.searched = self.bytes.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_the_bytes_are_cut_the_same_is_said() {
        let text =
            b": hello\n\nid: 1\ndata: {\"a\":1}\n\nid: 2\r\ndata:x\r\ndata: y\r\n\r\nevent: z\n\ndata: cut";
        let expected = [
            Said::Comment("hello".to_owned()),
            Said::Data(b"{\"a\":1}".to_vec()),
            Said::Data(b"x\ny".to_vec()),
        ];
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut said = Vec::new();
            for part in text.chunks(size) {
                lines.push(part);
                said.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(said, expected, "in parts of {size}");
        }
    }
}
