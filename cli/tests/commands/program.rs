//! The program, run as a person would run it, without this machine's environment.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Returns the program with these arguments.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedfleet"));
    command.args(arguments).env_clear();
    command
}

/// The result of a finished run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    command(arguments).output().unwrap().into()
}

/// Runs the program with this standard input.
pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child =
        command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}
