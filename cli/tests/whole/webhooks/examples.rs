//! The receivers in docs/example: in Python with the official library of Standard Webhooks, in JavaScript with Node's own crypto, and in
//! Rust; the official library for JavaScript; and for Ed25519 the package cryptography of PyPI.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use common::testing::Port;

use super::{busy, home, operator, stored};
use crate::harness::{Fleet, Home};

#[path = "../../../../docs/example/webhook_receiver.rs"]
#[expect(dead_code, unreachable_pub, reason = "an example is a program")]
mod webhook_receiver;

/// A receiver with the official library for JavaScript.
const NPM: &str = "cli/tests/whole/webhooks/npm/receiver.mjs";
/// The private key of the specification's example.
const ED25519: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Installs what this file or folder names, once; returns where it is.
pub(crate) fn installed(what: &str) -> String {
    let output = Command::new(tree().join("dev/receivers")).arg(what).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
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
        let script = tree().join(script);
        command.arg(script.canonicalize().unwrap()).args([key, &port.number().to_string()]).current_dir(home.path(""));
        command.arg(installed("cli/tests/whole/webhooks/npm"));
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

    /// Returns the numbers of the events that it has processed.
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
    let python = installed("docs/example/requirements.txt");
    let with_cryptography = installed("cli/tests/whole/webhooks/ed25519.txt");
    let home = home("");
    let (_origin, urls) = busy(2).await;
    let mut fleet = home.start(&[&urls[0], &urls[1]]);
    let node = || Command::new("node");
    let (script, hmac) = ("docs/example/webhook_receiver.mjs", "hmac-sha256");
    let examples = [
        subscribed(&home, &fleet, Command::new(python), "docs/example/webhook_receiver.py", hmac, "secret"),
        subscribed(&home, &fleet, node(), script, hmac, "secret"),
        subscribed(&home, &fleet, node(), script, "ed25519", "public_key"),
        subscribed(&home, &fleet, node(), NPM, hmac, "secret"),
        subscribed(
            &home,
            &fleet,
            Command::new(with_cryptography),
            "cli/tests/whole/webhooks/ed25519_receiver.py",
            "ed25519",
            "public_key",
        ),
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

/// The limit that docs/webhooks.md states: both packages skip every version but `v1`.
#[tokio::test(flavor = "multi_thread")]
async fn the_official_packages_accept_both_signatures_of_a_rotation_and_cannot_verify_ed25519_alone() {
    let python = installed("docs/example/requirements.txt");
    let home = home("");
    let (_origin, urls) = busy(1).await;
    let mut fleet = home.start(&[&urls[0]]);
    let examples = [
        subscribed(&home, &fleet, Command::new(python), "docs/example/webhook_receiver.py", "hmac-sha256", "secret"),
        subscribed(&home, &fleet, Command::new("node"), NPM, "hmac-sha256", "secret"),
    ];
    for (example, id) in examples.iter().zip(["1", "2"]) {
        fleet.wait_for("an entry", async |_| (!example.seqs().is_empty()).then_some(())).await;
        let set = operator(&home, &fleet, &["subscription", "set", id, "--secret", ED25519]);
        assert_eq!((&set["signature"], set["old_secret_until"].is_string()), (&"ed25519".into(), true));
    }
    let newest = *stored(&fleet, "kind=entry.new").await.last().unwrap();
    for example in &examples {
        // A request that was sent before may have the newest events of then.
        let later = async |_: &Fleet| example.seqs().iter().any(|seq| *seq > newest).then_some(());
        fleet.wait_for("an entry that is signed in both ways", later).await;
        let target = format!("http://{}/", example.port.address());
        let added = operator(&home, &fleet, &["subscription", "add", &target, "--after", "0", "--secret", ED25519]);
        let path = format!("/api/v1/subscriptions/{}", added["id"]);
        let refused = async |fleet: &Fleet| (fleet.get(&path).await["last"]["status"] == 401).then_some(());
        fleet.wait_for("a refusal", refused).await;
    }
    fleet.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_in_rust_verifies_and_processes_what_is_delivered() {
    let home = home("");
    let (_origin, urls) = busy(1).await;
    let mut fleet = home.start(&[&urls[0]]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    let added = operator(&home, &fleet, &["subscription", "add", &target, "--after", "0", "--batch", "1"]);
    let receiver = webhook_receiver::receiver(added["secret"].as_str().unwrap()).unwrap();
    let state = webhook_receiver::Receiver::clone(&receiver);
    let router = Router::new().route("/", post(webhook_receiver::receive)).with_state(state);
    tokio::spawn(async move { axum::serve(listener, router).await });
    fleet.wait_for("requests", async |_| (receiver.1.lock().unwrap().len() >= 4).then_some(())).await;
    // A delivery counts when its answer was stored, which is some time after the receiver had it.
    let counted = async |fleet: &Fleet| {
        let shown = fleet.get("/api/v1/subscriptions/1").await;
        shown["delivered"].as_u64().filter(|delivered| *delivered >= 4)
    };
    fleet.wait_for("counted deliveries", counted).await;
    assert!(webhook_receiver::receiver("whsk_AAAA").is_none());
    fleet.stop();
}
