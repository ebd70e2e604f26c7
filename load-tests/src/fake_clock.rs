//! Processes whose wall clock is off. Their timers are right.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the processes load first. libfaketime, which does the same, allocates while it starts, and an allocator that asks for the
/// time meanwhile waits for ever.
const LIBRARY: &str = include_str!("fake_clock.c");

/// A clock of the processes that are started with its variables. It can be set while they run.
#[derive(Debug)]
pub struct FakeClock {
    /// Holds how many nanoseconds it is ahead.
    file: File,
    variables: [(&'static str, String); 2],
}

impl FakeClock {
    /// Returns a clock that is right so far. `file` is new; the library that reads it is built beside it.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written, or there is no C compiler.
    pub fn right(file: &Path) -> io::Result<Self> {
        let library = file.with_extension("so");
        build(&library)?;
        let text = |path: PathBuf| {
            let utf8 = path.into_os_string().into_string();
            utf8.map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path of a clock is not UTF-8"))
        };
        let variables = [("LD_PRELOAD", text(library)?), ("FAKE_CLOCK", text(file.to_owned())?)];
        let clock = FakeClock { file: File::create_new(file)?, variables };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it ahead by these milliseconds, or behind if they are negative; at once, for all processes.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn set(&self, millis: i64) -> io::Result<()> {
        self.file.write_all_at(&millis.saturating_mul(1_000_000).to_ne_bytes(), 0)
    }

    /// Returns the environment variables of a process with this clock.
    pub fn variables(&self) -> [(&str, &str); 2] {
        self.variables.each_ref().map(|(name, value)| (*name, value.as_str()))
    }
}

fn build(library: &Path) -> io::Result<()> {
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(library).stdin(Stdio::piped());
    let mut compiling = compiler.spawn()?;
    if let Some(mut source) = compiling.stdin.take() {
        source.write_all(LIBRARY.as_bytes())?;
    }
    match compiling.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("the library of a wrong clock cannot be built")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_clock_that_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let clock = FakeClock::right(&folder.path().join("clock")).unwrap();
        let seconds = |variables: &[(&str, &str)]| -> i64 {
            let date = Command::new("date").arg("+%s").envs(variables.iter().copied()).output().unwrap();
            String::from_utf8(date.stdout).unwrap().trim().parse().unwrap()
        };
        for ahead in [0, 3600, -600] {
            clock.set(1000 * ahead).unwrap();
            let (before, faked) = (seconds(&[]), seconds(&clock.variables()));
            assert!((before + ahead..=seconds(&[]) + ahead).contains(&faked), "{faked} is not {ahead} after {before}");
        }
    }
}
