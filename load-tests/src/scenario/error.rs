//! Why a scenario could not be run.

use std::path::PathBuf;

/// Why a scenario could not be run: not what came of it, that is in its [`Report`].
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// No such file, or not to be read.
    #[error("reading {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// A mistake in the file.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, String),
    /// Something else with files, addresses or processes.
    #[error("{0}")]
    Io(String, #[source] std::io::Error),
    /// The set-up cannot be.
    #[error("{0}")]
    Set(String),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// The fleet's API.
    #[error("asking the fleet")]
    Api(#[from] reqwest::Error),
}
