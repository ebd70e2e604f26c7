//! A wrong use of the command line.

/// The command line requests something impossible.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);
