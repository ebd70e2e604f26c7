//! A fleet in memory that polls a scripted origin, as the target of operator commands.

use std::process::Command;
use std::time::Instant;

use load_tests::origin::Origin;
pub(crate) use load_tests::process::PATIENCE;
use load_tests::process::Process;

use crate::program::{Ran, command};

/// A running `feedfleet run`.
pub(crate) struct Fleet {
    process: Process,
    /// The address of its API.
    pub(crate) server: String,
    /// The origin that it polls.
    pub(crate) origin: Origin,
}

impl Fleet {
    /// Starts a fleet without storage, with these additional arguments.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_at(":memory:", "127.0.0.1:0", arguments).await
    }

    /// The same with a data folder, at an address.
    pub(crate) async fn start_at(data: &str, listen: &str, arguments: &[&str]) -> Self {
        Self::launch(command(&[]), data, listen, arguments).await
    }

    /// The same with a data folder; it ignores the signal for exceeded file sizes, so that writes fail instead.
    pub(crate) async fn start_limitable(data: &str, arguments: &[&str]) -> Self {
        let program = command(&[]);
        let mut shell = Command::new("bash");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program.get_program()).env_clear();
        Self::launch(shell, data, "127.0.0.1:0", arguments).await
    }

    /// Limits the size of the files that it writes, in bytes or "unlimited"; 0 simulates a full disk.
    pub(crate) fn limit_files(&self, bytes: &str) {
        let pid = self.process.id().to_string();
        let limit = format!("--fsize={bytes}:unlimited");
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    }

    /// Stops it gracefully, and starts it again with the same folder and the same origin.
    pub(crate) async fn restarted(mut self, data: &str) -> Self {
        let origin = std::mem::replace(&mut self.origin, Origin::start().await.unwrap());
        self.stop();
        let mut fleet = Self::start_at(data, "127.0.0.1:0", &[]).await;
        fleet.origin = origin;
        fleet
    }

    /// Returns what it wrote to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Refreshes a feed.
    pub(crate) async fn refresh(&self, id: &str) {
        let path = format!("{}/api/v1/feeds/{id}/refresh", self.server);
        let answer = reqwest::Client::new().post(path).send().await.unwrap();
        assert_eq!(answer.status(), 202);
    }

    async fn launch(mut program: Command, data: &str, listen: &str, arguments: &[&str]) -> Self {
        // A test that began at the full hour would wait for minutes.
        let own =
            ["run", "--data", data, "--listen", listen, "--set", "host.gap=0s", "--set", "policy.hot_minutes=false"];
        let open = [
            "--set",
            "log.level=warn",
            "--set",
            "fetch.allow_networks=127.0.0.0/8",
            "--set",
            "fetch.allow_ports=1-65535",
        ];
        let mut process = Process::start(program.args([&own[..], &open, arguments].concat()));
        let server = process.address();
        Fleet { process, server, origin: Origin::start().await.unwrap() }
    }

    /// Sends SIGHUP: it reads its configuration again.
    pub(crate) fn hang_up(&self) {
        self.process.signal("HUP");
    }

    /// Stops it gracefully, and waits for its exit.
    pub(crate) fn stop(mut self) {
        self.process.stop();
    }

    /// Runs an operator command against it. A first poll may take as long as a busy machine needs.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let says = |words: &str| arguments.iter().any(|argument| argument.starts_with(words));
        let patient = arguments.starts_with(&["feed", "add"]) && !says("--wait") && !says("--json");
        let more: &[&str] = if patient { &["--wait=2m"] } else { &[] };
        command(&[arguments, more].concat()).env("FEEDFLEET_SERVER", &self.server).output().unwrap().into()
    }

    /// Runs an operator command that must succeed, and returns its output.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}: {}", ran.out);
        ran.out
    }

    /// Repeats a command until its output satisfies the predicate.
    pub(crate) fn until(&self, arguments: &[&str], satisfies: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let out = self.done(arguments);
            if satisfies(&out) {
                return out;
            }
            assert!(Instant::now() < deadline, "{arguments:?} still prints {out}");
        }
    }
}
