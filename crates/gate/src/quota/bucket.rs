//! A token bucket.
