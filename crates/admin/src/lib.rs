//! What an operator asks the process.
