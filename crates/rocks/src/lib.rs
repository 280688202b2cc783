//! How every local database is opened, synced, checked and measured.
