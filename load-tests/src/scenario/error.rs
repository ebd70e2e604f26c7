//! Why a scenario could not be run.

use std::path::PathBuf;

/// Why a scenario could not be run. A run with bad results is not an error: see [`super::Report`].
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file does not exist, or cannot be read.
    #[error("reading {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// An error in the file.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, String),
    /// Another error with files, addresses or processes.
    #[error("{0}")]
    Io(String, #[source] std::io::Error),
    /// The set-up is not possible.
    #[error("{0}")]
    Set(String),
    /// An error with certificates.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// An error of the fleet's API.
    #[error("asking the fleet")]
    Api(#[from] reqwest::Error),
}
