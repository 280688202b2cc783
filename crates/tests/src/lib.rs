//! Child-process tests, fault plans, and the tests that read the docs.
