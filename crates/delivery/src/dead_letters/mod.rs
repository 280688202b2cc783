//! What an operator does with dead letters: replay them to the group that failed, or discard them.
//!
//! [`DeadLetters`] is the handle. Replay and discard take turns, a page of rows at a time, so that two of them
//! share out what is there instead of doing it twice; `docs/decisions` says why a row goes after its copy, and how
//! a copy is made once although the process may die in between.

mod discard;
mod intent;
mod leaving;
mod letters;
mod replay;
mod retention;
mod time_index;
mod turn;
mod writer;

pub use letters::{DeadLetters, Interrupted, LetterSelector, LettersError, Replayed};
pub(crate) use retention::KEPT_FOR;
