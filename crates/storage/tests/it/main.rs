//! The log drivers against their contract, and what each promises beyond it.

mod dedup;
mod embedded;
mod faulty;
mod memory;
