//! A row of the ledger: one delivery that is not finished.
//!
//! A row exists for every outstanding offset below a cursor's `next_to_read`. It says how often the event
//! was handed out and until when; it holds neither the event nor a delivery id. 67 bytes, and the reason a client
//! gave for the last attempt that failed, if it gave one.

use mesh_base::UnixMillis;
use mesh_frame::Epoch;

use super::LastError;

const VERSION: u8 = 1;
/// The version of a row with a client's reason.
const WITH_REASON: u8 = 2;
/// Up to the reason.
const FIXED: usize = 63;
const CHECKSUM: usize = 4;
/// The bits of the flags that say why the last attempt failed.
const ERROR_SHIFT: u8 = 2;
const ERROR_MASK: u8 = 0b111;
/// The bit of the flags that says that the newest hand-out never reached its member.
const RETURNED_SHIFT: u8 = 5;
/// The bits of the flags that count lost locks.
const LOST_SHIFT: u8 = 6;
/// As many lost locks are counted.
const MOST_LOST: u8 = 3;

/// Why a delivery ends in the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its attempts are used up.
    AttemptsExhausted,
    /// A client rejected it.
    Rejected,
}

impl EndReason {
    /// As `emdlreason` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::Rejected => "rejected",
        }
    }
}

/// What a row waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// To be handed out, not before `at`.
    Waiting,
    /// For an ack, until `at`.
    InFlight,
    /// For its dead letter to be stored.
    Dead(EndReason),
}

/// One outstanding delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it waits for.
    pub state: RowState,
    /// Whether it was last written to a stream: after a restart such a row is due at once.
    pub by_stream: bool,
    /// How many hand-outs count. 0: not handed out.
    pub attempt: u32,
    /// How many hand-outs there were, withdrawn ones included; what a delivery id carries.
    pub serial: u32,
    /// Hand-outs with a serial below this were withdrawn: they can be neither given back nor extended.
    pub void_below: u32,
    /// The newest hand-out never reached its member: its id is void, older ones are not.
    pub returned: bool,
    /// How often its lock was lost: the deadline passed, or the stream ended that it was written to. Three at most.
    pub lost: u8,
    /// The first hand-out.
    pub first: UnixMillis,
    /// The last hand-out.
    pub last: UnixMillis,
    /// Until when it is locked, or from when it is due.
    pub at: UnixMillis,
    /// A 64-bit hash of the event's key; `None` for an event without one.
    pub key: Option<u64>,
    /// A hash of the member that has it or had it last.
    pub member: u64,
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// Why the last attempt failed.
    pub error: LastError,
}

impl Row {
    /// The row's bytes: version, state, flags, then the numbers big-endian in the order of the fields, the reason
    /// as text in a row of version 2, and a CRC-32 of it all. Flags: bit 0 by a stream, bit 1 with a key, bits 2 to 4
    /// why the last attempt failed where that is not a client's reason, bit 5 that the newest hand-out never reached
    /// its member, bits 6 and 7 how many locks were lost.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + CHECKSUM);
        let (version, code) = match self.error.code() {
            Some(code) => (VERSION, code),
            None => (WITH_REASON, 0),
        };
        out.push(version);
        out.push(match self.state {
            RowState::Waiting => 0,
            RowState::InFlight => 1,
            RowState::Dead(EndReason::AttemptsExhausted) => 2,
            RowState::Dead(EndReason::Rejected) => 3,
        });
        out.push(
            u8::from(self.by_stream)
                | u8::from(self.key.is_some()) << 1
                | code << ERROR_SHIFT
                | u8::from(self.returned) << RETURNED_SHIFT
                | self.lost.min(MOST_LOST) << LOST_SHIFT,
        );
        for number in [self.attempt, self.serial, self.void_below] {
            out.extend(number.to_be_bytes());
        }
        let numbers =
            [self.first.0, self.last.0, self.at.0, self.key.unwrap_or(0), self.member, self.epoch.0];
        for number in numbers {
            out.extend(number.to_be_bytes());
        }
        if version == WITH_REASON {
            out.extend(self.error.as_str().as_bytes());
        }
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_be_bytes());
        out
    }

    /// `None` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
        if body.len() < FIXED || sum != crc32fast::hash(body).to_be_bytes() {
            return None;
        }
        let (body, reason) = body.split_at(FIXED);
        let error = match body[0] {
            VERSION if reason.is_empty() => LastError::of_code(body[2] >> ERROR_SHIFT & ERROR_MASK),
            WITH_REASON => LastError::Said(std::str::from_utf8(reason).ok()?.into()),
            _ => return None,
        };
        let state = match body[1] {
            0 => RowState::Waiting,
            1 => RowState::InFlight,
            2 => RowState::Dead(EndReason::AttemptsExhausted),
            3 => RowState::Dead(EndReason::Rejected),
            _ => return None,
        };
        let u32_at = |at: usize| u32::from_be_bytes(*body[at..].first_chunk().expect("the length is fixed"));
        let u64_at = |at: usize| u64::from_be_bytes(*body[at..].first_chunk().expect("the length is fixed"));
        Some(Self {
            state,
            by_stream: body[2] & 1 != 0,
            attempt: u32_at(3),
            serial: u32_at(7),
            void_below: u32_at(11),
            returned: body[2] >> RETURNED_SHIFT & 1 != 0,
            lost: body[2] >> LOST_SHIFT,
            first: UnixMillis(u64_at(15)),
            last: UnixMillis(u64_at(23)),
            at: UnixMillis(u64_at(31)),
            key: (body[2] & 2 != 0).then(|| u64_at(39)),
            member: u64_at(47),
            epoch: Epoch(u64_at(55)),
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            state: RowState::InFlight,
            by_stream: true,
            attempt: 3,
            serial: 4,
            void_below: 2,
            returned: false,
            lost: 0,
            first: UnixMillis(1_700_000_000_001),
            last: UnixMillis(1_700_000_000_002),
            at: UnixMillis(1_700_000_000_003),
            key: Some(0),
            member: u64::MAX,
            epoch: Epoch(9),
            error: LastError::Unknown,
        }
    }

    #[test]
    fn a_row_reads_back_as_it_was_written() {
        for state in [
            RowState::Waiting,
            RowState::InFlight,
            RowState::Dead(EndReason::AttemptsExhausted),
            RowState::Dead(EndReason::Rejected),
        ] {
            for key in [None, Some(0), Some(77)] {
                for lost in 0..=3 {
                    let row = Row { state, key, lost, returned: lost == 1, ..row() };
                    assert_eq!(Row::decode(&row.encode()), Some(row));
                }
            }
        }
    }

    #[test]
    fn the_last_error_reads_back_and_only_a_clients_reason_takes_room() {
        for error in [
            LastError::Unknown,
            LastError::DeadlinePassed,
            LastError::StreamClosed,
            LastError::ClientLeft,
            LastError::Nacked,
            LastError::Rejected,
        ] {
            let row = Row { error, ..row() };
            let bytes = row.encode();
            assert_eq!((bytes.len(), bytes[0]), (67, 1));
            assert_eq!(Row::decode(&bytes), Some(row));
        }
        let row = Row { error: LastError::said(Some("größer"), LastError::Nacked), ..row() };
        let bytes = row.encode();
        assert_eq!((bytes.len(), bytes[0]), (67 + "größer".len(), 2));
        assert_eq!(Row::decode(&bytes), Some(row));
    }

    #[test]
    fn a_row_of_a_release_that_kept_no_errors_is_read() {
        let row = row();
        let mut old = vec![1, 1, 0b11];
        for number in [3_u32, 4, 2] {
            old.extend(number.to_be_bytes());
        }
        for number in [1_700_000_000_001_u64, 1_700_000_000_002, 1_700_000_000_003, 0, u64::MAX, 9] {
            old.extend(number.to_be_bytes());
        }
        old.extend(crc32fast::hash(&old).to_be_bytes());
        assert_eq!((old.len(), Row::decode(&old)), (67, Some(row)));
    }

    #[test]
    fn a_damaged_row_is_not_read() {
        let said = Row { error: LastError::said(Some("no"), LastError::Nacked), ..row() };
        for good in [row().encode(), said.encode()] {
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert_eq!(Row::decode(&bad), None, "byte {at}");
                assert_eq!(Row::decode(&good[..at]), None, "cut at {at}");
            }
        }
    }
}
