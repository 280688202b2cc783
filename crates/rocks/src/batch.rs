//! Changes that are written together or not at all.

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
    /// From the first key, up to but without the second.
    DeleteRange,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    kind: Kind,
    family: &'static str,
    /// The length of its key, which is followed by its value or by the key that ends its range.
    key: usize,
    other: usize,
}

/// Changes of a database in their order. It belongs to no open database: the same batch can be written again after
/// the database was closed and opened.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    bytes: Vec<u8>,
}

impl Batch {
    /// Nothing to change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing to change, with room for so many changes of about `each` bytes.
    pub fn with_room(changes: usize, each: usize) -> Self {
        Self { changes: Vec::with_capacity(changes), bytes: Vec::with_capacity(changes * each) }
    }

    /// Puts a value under a key.
    pub fn put(&mut self, family: &'static str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(Kind::Put, family, key.as_ref(), value.as_ref());
    }

    /// Removes a key.
    pub fn delete(&mut self, family: &'static str, key: impl AsRef<[u8]>) {
        self.push(Kind::Delete, family, key.as_ref(), b"");
    }

    /// Removes the keys from `from` on that are below `to`.
    pub fn delete_range(&mut self, family: &'static str, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
        self.push(Kind::DeleteRange, family, from.as_ref(), to.as_ref());
    }

    /// Empties it; the room it took is kept for what comes next, up to `most` bytes.
    pub fn clear(&mut self, most: usize) {
        self.changes.clear();
        self.bytes.clear();
        self.bytes.shrink_to(most);
        self.changes.shrink_to(most / size_of::<Change>());
    }

    /// About the bytes that RocksDB takes for the same changes: each has its kind, its family and two lengths.
    pub(crate) fn native_bytes(&self) -> usize {
        self.bytes.len() + 16 * self.changes.len() + 16
    }

    /// Whether it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The bytes of its keys and values.
    pub fn size_in_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn push(&mut self, kind: Kind, family: &'static str, key: &[u8], other: &[u8]) {
        self.changes.push(Change { kind, family, key: key.len(), other: other.len() });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(other);
    }

    /// Every change in order: what, in which family, the key, and the value or the end of the range.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Kind, &'static str, &[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.changes.iter().map(move |change| {
            let (key, tail) = rest.split_at(change.key);
            let (other, tail) = tail.split_at(change.other);
            rest = tail;
            (change.kind, change.family, key, other)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_out_in_the_order_they_went_in() {
        let mut batch = Batch::new();
        assert!(batch.is_empty());
        batch.put("a", "key", "value");
        batch.delete("b", "gone");
        batch.delete_range("a", "from", "to");
        batch.put("b", "", "");
        let each: Vec<_> = batch.each().collect();
        assert_eq!(
            each,
            [
                (Kind::Put, "a", &b"key"[..], &b"value"[..]),
                (Kind::Delete, "b", b"gone", b""),
                (Kind::DeleteRange, "a", b"from", b"to"),
                (Kind::Put, "b", b"", b""),
            ]
        );
        assert_eq!((batch.is_empty(), batch.size_in_bytes()), (false, 18));
        batch.clear(1 << 10);
        assert_eq!((batch.is_empty(), batch.size_in_bytes(), batch.each().count()), (true, 0, 0));
        batch.put("a", "key", [0; 10_000]);
        batch.clear(1 << 10);
        assert!(batch.bytes.capacity() < 10_000, "a large one does not keep its room");
    }
}
