//! `feedfleet man`: the manual's pages, made of the same descriptions as the help.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};

/// Writes manual pages, one per command, into a folder
///
/// For one user: feedfleet man ~/.local/share/man/man1
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs it for this command line.
pub(crate) fn run(args: &ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&args.folder)?;
        clap_mangen::generate_to(command, &args.folder)
    };
    write().with_context(|| format!("the manual could not be written to {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
