//! The state stores against real files and scripted faults.
//!
//! One module a scenario of the failure matrix, with the names that its table uses.

mod positions;
mod shared;
