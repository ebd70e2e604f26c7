//! A fleet in memory that polls a scripted origin, for the operator's commands to speak to.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use load_tests::origin::Origin;

use crate::program::{Ran, command};

/// Far beyond what a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running `feedfleet run`; killed when dropped.
pub(crate) struct Fleet {
    child: Child,
    /// Its address.
    pub(crate) server: String,
    /// What it polls.
    pub(crate) origin: Origin,
}

impl Fleet {
    /// A fleet that keeps nothing, started with these arguments beside its own.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_at(":memory:", "127.0.0.1:0", arguments).await
    }

    /// The same over a folder, at an address.
    pub(crate) async fn start_at(data: &str, listen: &str, arguments: &[&str]) -> Self {
        Self::launch(command(&[]), data, listen, arguments).await
    }

    /// The same over a folder; it survives limits on the size of files, which fail its writes instead.
    pub(crate) async fn start_limitable(data: &str, arguments: &[&str]) -> Self {
        let program = command(&[]);
        let mut shell = Command::new("bash");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program.get_program()).env_clear();
        Self::launch(shell, data, "127.0.0.1:0", arguments).await
    }

    /// Limits the size of the files that it writes from now on, in bytes or "unlimited"; 0 is a full disk.
    pub(crate) fn limit_files(&self, bytes: &str) {
        let pid = self.child.id().to_string();
        let limit = format!("--fsize={bytes}:unlimited");
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    }

    /// Ends it as a person does, and starts it again over the same folder; the server that it polls goes on.
    pub(crate) async fn restarted(mut self, data: &str) -> Self {
        let origin = std::mem::replace(&mut self.origin, Origin::start().await.unwrap());
        self.stop();
        let mut fleet = Self::start_at(data, "127.0.0.1:0", &[]).await;
        fleet.origin = origin;
        fleet
    }

    /// Has a feed polled as soon as its host allows it.
    pub(crate) async fn refresh(&self, id: &str) {
        let path = format!("{}/api/v1/feeds/{id}/refresh", self.server);
        let answer = reqwest::Client::new().post(path).send().await.unwrap();
        assert_eq!(answer.status(), 202);
    }

    async fn launch(mut program: Command, data: &str, listen: &str, arguments: &[&str]) -> Self {
        let own = ["run", "--data", data, "--listen", listen, "--set", "host.gap=0s"];
        let open = [
            "--set",
            "log.level=warn",
            "--set",
            "fetch.allow_networks=127.0.0.0/8",
            "--set",
            "fetch.allow_ports=1-65535",
        ];
        let mut child = program
            .args([&own[..], &open, arguments].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let server = log.by_ref().map_while(Result::ok).find_map(|line| {
            let rest = &line[line.find("http://127.0.0.1:")?..];
            Some(rest.split([';', ' ']).next()?.to_owned())
        });
        let server = server.expect("the fleet says where its API is");
        // A full pipe would stop whoever writes to it.
        std::thread::spawn(move || log.for_each(drop));
        Fleet { child, server, origin: Origin::start().await.unwrap() }
    }

    /// Ends it as a person does, and waits for its end.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Runs an operator command against it. A first poll has the time that a busy machine takes for it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let says = |words: &str| arguments.iter().any(|argument| argument.starts_with(words));
        let patient = arguments.starts_with(&["feed", "add"]) && !says("--wait") && !says("--json");
        let more: &[&str] = if patient { &["--wait=2m"] } else { &[] };
        command(&[arguments, more].concat()).env("FEEDFLEET_SERVER", &self.server).output().unwrap().into()
    }

    /// Runs an operator command that must succeed, and gives what it printed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{arguments:?}: {}", ran.out);
        ran.out
    }

    /// Runs a command until what it prints satisfies.
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

impl Drop for Fleet {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
