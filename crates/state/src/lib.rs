//! The six state stores.
