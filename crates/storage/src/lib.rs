//! The log plugins: memory and embedded.
