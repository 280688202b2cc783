//! The nouns, the wire frame and the CloudEvents codec; no I/O.
