//! Why a document was not read.

/// Why a document was not read.
#[derive(Debug)]
pub(in crate::parse) enum Refusal {
    /// Beyond a limit. Repairing does not help.
    TooLarge(String),
    /// Elements are nested too deep: perhaps markup of a text that was not escaped, which a repair does.
    TooDeep(String),
    /// Not read by its deadline.
    Late,
    /// Not well-formed.
    Malformed(String),
    /// The first element is not a feed's.
    NotAFeed(String),
}
