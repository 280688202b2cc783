//! A row of the ledger: one delivery that is not finished.
//!
//! A row exists for every outstanding offset below a cursor's `next_to_read`. It says how often the event
//! was handed out and until when; it holds neither the event nor a delivery id. 67 bytes.

use mesh_base::UnixMillis;
use mesh_frame::Epoch;

const VERSION: u8 = 1;
const LENGTH: usize = 67;

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
    Condemned(EndReason),
}

/// One outstanding delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it waits for.
    pub state: RowState,
    /// Whether it was last written to a stream: after a restart such a row is due at once.
    pub by_stream: bool,
    /// How many hand-outs count. 0: not handed out.
    pub attempt: u32,
    /// How many hand-outs there were, withdrawn ones included; what a delivery id carries.
    pub serial: u32,
    /// Ids with a serial below this are void.
    pub void_below: u32,
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
}

impl Row {
    /// The row's bytes: version, state, flags, then the numbers big-endian in the order of the fields.
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut out = [0; LENGTH];
        out[0] = VERSION;
        out[1] = match self.state {
            RowState::Waiting => 0,
            RowState::InFlight => 1,
            RowState::Condemned(EndReason::AttemptsExhausted) => 2,
            RowState::Condemned(EndReason::Rejected) => 3,
        };
        out[2] = u8::from(self.by_stream) | u8::from(self.key.is_some()) << 1;
        let mut at = 3;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.attempt.to_be_bytes());
        put(&self.serial.to_be_bytes());
        put(&self.void_below.to_be_bytes());
        put(&self.first.0.to_be_bytes());
        put(&self.last.0.to_be_bytes());
        put(&self.at.0.to_be_bytes());
        put(&self.key.unwrap_or(0).to_be_bytes());
        put(&self.member.to_be_bytes());
        put(&self.epoch.0.to_be_bytes());
        let sum = crc32fast::hash(&out[..LENGTH - 4]);
        out[LENGTH - 4..].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// `None` when the bytes are damaged or of a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let (body, sum) = bytes.split_at(LENGTH - 4);
        if body[0] != VERSION || sum != crc32fast::hash(body).to_be_bytes() {
            return None;
        }
        let state = match body[1] {
            0 => RowState::Waiting,
            1 => RowState::InFlight,
            2 => RowState::Condemned(EndReason::AttemptsExhausted),
            3 => RowState::Condemned(EndReason::Rejected),
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
            first: UnixMillis(u64_at(15)),
            last: UnixMillis(u64_at(23)),
            at: UnixMillis(u64_at(31)),
            key: (body[2] & 2 != 0).then(|| u64_at(39)),
            member: u64_at(47),
            epoch: Epoch(u64_at(55)),
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
            first: UnixMillis(1_700_000_000_001),
            last: UnixMillis(1_700_000_000_002),
            at: UnixMillis(1_700_000_000_003),
            key: Some(0),
            member: u64::MAX,
            epoch: Epoch(9),
        }
    }

    #[test]
    fn a_row_reads_back_as_it_was_written() {
        for state in [
            RowState::Waiting,
            RowState::InFlight,
            RowState::Condemned(EndReason::AttemptsExhausted),
            RowState::Condemned(EndReason::Rejected),
        ] {
            for key in [None, Some(0), Some(77)] {
                let row = Row { state, key, ..row() };
                assert_eq!(Row::decode(&row.encode()), Some(row));
            }
        }
    }

    #[test]
    fn a_damaged_row_is_not_read() {
        let good = row().encode();
        for at in 0..LENGTH {
            let mut bad = good;
            bad[at] ^= 1;
            assert_eq!(Row::decode(&bad), None, "byte {at}");
        }
    }
}
