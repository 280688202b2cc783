//! SecurityGate: who may do what.
