//! The log drivers against their contract, and what each promises beyond it.

mod embedded;
mod faulty;
mod memory;
