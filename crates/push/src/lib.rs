//! How a subscriber is reached once something is for it.
