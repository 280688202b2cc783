//! A mailbox: what is ready for one stream and not written yet.
//!
//! It is bounded in items and bytes; one item is taken in any size when there is no other. Whoever fills it asks
//! for room first and is told, once, when a reader that left none has taken something. The reader is woken once
//! a delivery round, not once an item. A closed mailbox takes nothing: what is put into it comes back.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// What a reader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Items to take.
    Items {
        /// The bytes of the first.
        first: usize,
        /// The bytes of all of them.
        all: usize,
    },
    /// Something to tell the client beside them.
    Comment(&'static str),
    /// It was closed, and why.
    Closed(&'static str),
}

/// What still fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Items.
    pub items: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Whether nothing is there: then one item of any size fits.
    pub is_empty: bool,
}

/// What happens to items that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// They come back, with everything behind them.
    Refuse,
    /// They are kept: there is nowhere else where they are.
    Keep,
}

/// The mailbox of one stream.
#[derive(Debug)]
pub struct Mailbox<T> {
    most_items: usize,
    most_bytes: usize,
    contents: Mutex<Contents<T>>,
}

#[derive(Debug)]
struct Contents<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    /// Since when the reader has taken nothing although something lay here, in milliseconds.
    unread_since: Option<u64>,
    /// A producer asked for room while something lay here.
    awaited: bool,
    comment: Option<&'static str>,
    closed: Option<&'static str>,
    reader: Option<Waker>,
}

impl<T> Contents<T> {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<T> Mailbox<T> {
    /// An empty mailbox.
    pub fn new(most_items: usize, most_bytes: usize) -> Self {
        let contents = Contents {
            items: VecDeque::new(),
            bytes: 0,
            unread_since: None,
            awaited: false,
            comment: None,
            closed: None,
            reader: None,
        };
        Self { most_items, most_bytes, contents: Mutex::new(contents) }
    }

    /// What still fits. When something lies here the next [`Mailbox::take`] says that it was asked for.
    pub fn room(&self) -> Room {
        let mut contents = self.contents.lock();
        contents.awaited |= !contents.items.is_empty();
        if contents.closed.is_some() {
            return Room { items: 0, bytes: 0, is_empty: false };
        }
        Room {
            items: self.most_items.saturating_sub(contents.items.len()),
            bytes: self.most_bytes.saturating_sub(contents.bytes),
            is_empty: contents.items.is_empty(),
        }
    }

    /// Whether it is open and at most half full: what it could take soon may be left to it.
    pub fn has_plenty(&self) -> bool {
        let contents = self.contents.lock();
        contents.closed.is_none()
            && contents.items.len() <= self.most_items / 2
            && contents.bytes <= self.most_bytes / 2
    }

    /// Puts items in, each with its bytes, and wakes the reader once. Gives back what does not fit, or all of
    /// them when it is closed.
    pub fn put(&self, items: Vec<(usize, T)>, overflow: Overflow, now_ms: u64) -> Vec<T> {
        let mut contents = self.contents.lock();
        let mut back = Vec::new();
        for (bytes, item) in items {
            let fits = contents.items.is_empty()
                || contents.items.len() < self.most_items && contents.bytes + bytes <= self.most_bytes;
            let refused = !back.is_empty() || !fits && overflow == Overflow::Refuse;
            if refused || contents.closed.is_some() {
                back.push(item);
            } else {
                contents.bytes += bytes;
                contents.items.push_back((bytes, item));
            }
        }
        contents.awaited |= !back.is_empty();
        if !contents.items.is_empty() {
            contents.unread_since.get_or_insert(now_ms);
            contents.wake();
        }
        back
    }

    /// Leaves a word for the client.
    pub fn say(&self, comment: &'static str) {
        let mut contents = self.contents.lock();
        contents.comment = Some(comment);
        contents.wake();
    }

    /// What there is for the reader; it is woken when something comes.
    pub fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<Waiting> {
        let mut contents = self.contents.lock();
        if let Some(reason) = contents.closed {
            return Poll::Ready(Waiting::Closed(reason));
        }
        if let Some(comment) = contents.comment.take() {
            return Poll::Ready(Waiting::Comment(comment));
        }
        if let Some((first, _)) = contents.items.front() {
            return Poll::Ready(Waiting::Items { first: *first, all: contents.bytes });
        }
        contents.unread_since = None;
        contents.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes items of that many bytes together, in their order, and at least one. `true`: a producer asked for room.
    pub fn take(&self, most_bytes: usize, now_ms: u64) -> (Vec<T>, bool) {
        let mut contents = self.contents.lock();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some((size, _)) = contents.items.front() {
            if !taken.is_empty() && bytes + size > most_bytes {
                break;
            }
            let Some((size, item)) = contents.items.pop_front() else { break };
            bytes += size;
            taken.push(item);
        }
        contents.bytes -= bytes;
        contents.unread_since = (!contents.items.is_empty()).then_some(now_ms);
        (taken, std::mem::take(&mut contents.awaited))
    }

    /// For how many milliseconds the reader has left lie what was here.
    pub fn unread_for_ms(&self, now_ms: u64) -> u64 {
        self.contents.lock().unread_since.map_or(0, |since| now_ms.saturating_sub(since))
    }

    /// Takes out what a condition holds for.
    pub fn remove_if(&self, mut holds: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut contents = self.contents.lock();
        let mut removed = Vec::new();
        for (bytes, item) in std::mem::take(&mut contents.items) {
            if holds(&item) {
                contents.bytes -= bytes;
                removed.push(item);
            } else {
                contents.items.push_back((bytes, item));
            }
        }
        removed
    }

    /// Closes it and gives back what was not taken. The first reason stands.
    pub fn close(&self, reason: &'static str) -> Vec<T> {
        let mut contents = self.contents.lock();
        contents.closed.get_or_insert(reason);
        contents.bytes = 0;
        contents.wake();
        std::mem::take(&mut contents.items).into_iter().map(|(_, item)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn sized(items: &[usize]) -> Vec<(usize, usize)> {
        items.iter().map(|bytes| (*bytes, *bytes)).collect()
    }

    #[test]
    fn it_holds_no_more_than_its_bounds_and_one_item_of_any_size() {
        let mailbox = Mailbox::new(3, 100);
        assert_eq!(mailbox.room(), Room { items: 3, bytes: 100, is_empty: true });
        assert_eq!(mailbox.put(sized(&[40, 40, 40, 1]), Overflow::Refuse, 0), [40, 1], "the rest in order");
        assert_eq!(mailbox.room(), Room { items: 1, bytes: 20, is_empty: false });
        assert_eq!(mailbox.take(1_000, 0), (vec![40, 40], true));
        assert_eq!(mailbox.put(sized(&[500, 1]), Overflow::Refuse, 0), [1]);
        assert_eq!(mailbox.take(0, 0), (vec![500], true), "at least one");
        assert_eq!(mailbox.put(sized(&[60, 60, 1, 1, 1]), Overflow::Keep, 0), [0; 0]);
        assert_eq!(mailbox.remove_if(|item| *item == 1), [1, 1, 1]);
        assert_eq!(mailbox.take(100, 0), (vec![60], false), "nobody asked for room");
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_items_a_word_and_the_end() {
        let mailbox = Mailbox::new(3, 100);
        let waiting = || poll_fn(|cx| mailbox.poll_waiting(cx));
        let put = async {
            assert!(mailbox.put(sized(&[7, 8]), Overflow::Refuse, 0).is_empty());
        };
        let (found, ()) = tokio::join!(waiting(), put);
        assert_eq!(found, Waiting::Items { first: 7, all: 15 });
        mailbox.say("a word");
        assert_eq!(waiting().await, Waiting::Comment("a word"));
        assert_eq!(mailbox.take(7, 0), (vec![7], false));
        assert_eq!(mailbox.close("over"), [8]);
        assert_eq!(mailbox.close("again"), [0; 0]);
        assert_eq!(waiting().await, Waiting::Closed("over"));
        assert_eq!(mailbox.put(sized(&[1]), Overflow::Keep, 0), [1]);
        assert_eq!(mailbox.room().items, 0);
    }

    #[test]
    fn who_leaves_lie_what_is_there_is_known_by_its_time_and_a_caught_up_reader_is_not() {
        let mailbox = Mailbox::new(3, 100);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(mailbox.unread_for_ms(50), 0);
        assert!(mailbox.put(sized(&[1, 2]), Overflow::Refuse, 100).is_empty());
        assert_eq!(mailbox.unread_for_ms(150), 50);
        assert_eq!(mailbox.take(1, 200).0, [1]);
        assert_eq!(mailbox.unread_for_ms(230), 30, "it reads");
        assert_eq!(mailbox.remove_if(|_| true), [2]);
        assert!(mailbox.put(sized(&[3]), Overflow::Refuse, 240).is_empty());
        assert_eq!(mailbox.unread_for_ms(250), 50, "what was taken away was not read");
        assert_eq!(mailbox.remove_if(|_| true), [3]);
        assert!(mailbox.poll_waiting(&mut cx).is_pending());
        assert_eq!(mailbox.unread_for_ms(900), 0, "it waits for more");
    }
}
