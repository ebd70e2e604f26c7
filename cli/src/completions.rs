//! `feedfleet completions`: the script by which a shell completes the command line.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// Prints the completion script of a shell
///
/// For bash: feedfleet completions bash > ~/.local/share/bash-completion/completions/feedfleet
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs it for this command line.
pub(crate) fn run(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    let name = command.get_name().to_owned();
    // into memory first: the generator panics when its output is closed
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
