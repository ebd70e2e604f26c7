//! The program as a child process that says where it listens.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::judge::{GateLog, Watched};

/// How long it may take to start, or to end: far more than a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running program. Killed when dropped. What goes wrong with it panics, with everything that it wrote to stderr.
pub struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    watched: Watched,
}

impl Process {
    /// Starts a command, without input and output; what it writes to stderr is collected.
    pub fn start(command: &mut Command) -> Self {
        Self::start_watched(command, &GateLog::default())
    }

    /// The same, except that what it writes about the host gate goes into this log.
    pub fn start_watched(command: &mut Command, gate: &GateLog) -> Self {
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (seen, watched) = (Arc::clone(&lines), gate.watch());
        let watching = watched.clone();
        let stderr = child.stderr.take().map(BufReader::new);
        // A full pipe would block its writer.
        std::thread::spawn(move || {
            for line in stderr.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if !watching.takes(&line) {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            }
            watching.read();
        });
        Process { child, lines, watched }
    }

    /// Waits until it says where it listens; returns `http://127.0.0.1:PORT`.
    pub fn address(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.stderr().lines().find_map(|line| {
                let rest = &line[line.find("http://127.0.0.1:")?..];
                Some(rest.split([';', ' ']).next()?.to_owned())
            });
            if let Some(address) = found {
                return address;
            }
            let goes_on = self.is_alive() && Instant::now() < deadline;
            assert!(goes_on, "the program did not say where it listens:\n{}", self.stderr());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Returns whether it is still running.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal, such as `HUP`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no signal {signal} could be sent:\n{}", self.stderr());
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if self.is_alive() {
            self.watched.kill();
        }
        // It may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watched.end();
    }

    /// Sends SIGTERM, and waits for a clean exit.
    pub fn stop(&mut self) {
        self.signal("TERM");
        self.wait();
    }

    /// Waits for a clean exit after a signal to stop.
    pub fn wait(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_alive() {
            assert!(Instant::now() < deadline, "the program does not end:\n{}", self.stderr());
            std::thread::sleep(LOOK_EVERY);
        }
        let clean = self.child.wait().is_ok_and(|status| status.success());
        self.watched.end();
        assert!(clean, "the program ended with an error:\n{}", self.stderr());
    }

    /// Returns its memory in bytes: now (`VmRSS:`), or at its peak (`VmHWM:`). It must run.
    pub fn memory(&self, which: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("a process that runs has a status");
        let value =
            status.lines().find_map(|line| line.strip_prefix(which)).and_then(|rest| rest.split_whitespace().next());
        let kilobytes: u64 = value.and_then(|value| value.parse().ok()).expect("a size in kB");
        kilobytes * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
