//! Configuration, wiring, main.
