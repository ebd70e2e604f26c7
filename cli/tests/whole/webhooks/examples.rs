//! The receivers in docs/example: in Python with the official library of Standard Webhooks, in JavaScript with Node's own crypto.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::testing::Port;

use super::{busy, home, operator, stored};
use crate::harness::{Fleet, Home};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A receiver that runs. Killed when dropped.
struct Example {
    child: Child,
    port: Port,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Example {
    /// Starts a receiver that verifies with this key.
    fn start(home: &Home, mut command: Command, script: &str, key: &str) -> Self {
        let port = Port::reserved();
        let script = tree().join("docs/example").join(script);
        command.arg(script.canonicalize().unwrap()).args([key, &port.number().to_string()]).current_dir(home.path(""));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                seen.lock().unwrap().push(line);
            }
        });
        Example { child, port, lines }
    }

    /// The numbers of the events that it has processed.
    fn seqs(&self) -> Vec<i64> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds a subscription for a receiver that is started with the key that the answer has under `name`.
fn subscribed(home: &Home, fleet: &Fleet, command: Command, script: &str, signature: &str, name: &str) -> Example {
    let target = "http://127.0.0.1:9/";
    let wish = ["subscription", "add", target, "--after", "0", "--kind", "entry.new", "--signature", signature];
    let added = operator(home, fleet, &wish);
    let example = Example::start(home, command, script, added[name].as_str().unwrap());
    let target = format!("http://{}/", example.port.address());
    operator(home, fleet, &["subscription", "set", &added["id"].to_string(), "--target", &target]);
    example
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receivers_verify_and_process_what_is_delivered() {
    let python = Command::new(tree().join("dev/receivers")).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let python = String::from_utf8(python.stdout).unwrap();
    let home = home("");
    let (_origin, urls) = busy(2).await;
    let mut fleet = home.start(&[&urls[0], &urls[1]]);
    let node = || Command::new("node");
    let (script, hmac) = ("webhook_receiver.mjs", "hmac-sha256");
    let examples = [
        subscribed(&home, &fleet, Command::new(python.trim()), "webhook_receiver.py", hmac, "secret"),
        subscribed(&home, &fleet, node(), script, hmac, "secret"),
        subscribed(&home, &fleet, node(), script, "ed25519", "public_key"),
    ];
    for example in &examples {
        let seqs = fleet.wait_for("entries at a receiver", async |_| {
            let seqs = example.seqs();
            (seqs.len() >= 8).then_some(seqs)
        });
        let seqs = seqs.await;
        assert_eq!(seqs, stored(&fleet, "kind=entry.new").await[..seqs.len()]);
    }
    fleet.stop();
}
