//! The range that a whole number must lie in, with the number's name.

/// A range of whole numbers, such as milliseconds or counts; ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// What the number is called where it is given.
    pub name: &'static str,
    /// The lowest value.
    pub least: u64,
    /// The highest value.
    pub most: u64,
}
