//! Servers that are absent, hang, break off, or are not what they should be.

mod cluster;
mod sentinel;
mod tls;

use std::future::Future;
use std::process::Command;

use super::testing::{CuttingProxy, PrivateServer, patient, shared};
use super::*;
use crate::testing::Stalls;
use crate::time::{ManualClock, SystemClock};

/// More than any call needs, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

fn ping() -> Script {
    Script::new("return 'pong'")
}

async fn answers(server: &RedisServer) -> bool {
    server.eval::<String>(Slot::default(), &ping(), |_, _| {}).await.is_ok_and(|answer| answer == "pong")
}

/// Waits until the server answers.
async fn back(server: &RedisServer) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !answers(server).await {
        assert!(Instant::now() < deadline, "the server was not found again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the future's result, and how long it took, less the time for which we stood still.
async fn timed<T>(stalls: &Stalls, future: impl Future<Output = T>) -> (T, Duration) {
    let (start, before) = (Instant::now(), stalls.so_far());
    let result = future.await;
    let took = start.elapsed();
    // A stall that just ended is counted at the watch's next turn.
    tokio::time::sleep(Duration::from_millis(20)).await;
    (result, took.saturating_sub(stalls.so_far() - before))
}

/// Returns a client as the program has it, with little patience.
fn hurried(private: &PrivateServer, namespace: &str) -> RedisServer {
    RedisServer::connect(&ServerConfig::at(&private.url()), namespace).unwrap()
}

#[tokio::test]
async fn once_a_node_is_known_to_be_silent_no_call_waits_for_its_answer_any_longer() {
    let private = PrivateServer::started(&[]);
    let info = ::redis::Client::open(private.url()).unwrap().get_connection_info().clone();
    let node =
        Arc::new(Node::new(Address::server(info, TlsPaths::of(&ServerConfig::at(&private.url()))), Limits::default()));
    let call = async |patience| {
        node.eval_promptly::<String>(&ping(), &|_: &mut ScriptInvocation<'_>, _: &str| {}, Instant::now() + patience)
            .await
    };
    call(PATIENCE).await.unwrap();
    private.signal("STOP");
    let begun = Instant::now();
    let later = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        call(PATIENCE).await
    };
    let (first, second) = tokio::join!(call(Duration::from_secs(1)), later);
    private.signal("CONT");
    assert!(matches!(&first, Err(ServerError::Silent(_))), "{first:?}");
    assert!(matches!(&second, Err(ServerError::Silent(_))), "{second:?}");
    assert!(begun.elapsed() < PATIENCE, "the second call began while the first one waited");
}

#[tokio::test]
async fn a_server_that_is_absent_at_start_is_found_when_it_comes() {
    let mut private = PrivateServer::stopped(&[]);
    let (server, stalls) = (hurried(&private, "absent"), Stalls::watched());
    for _ in 0..3 {
        let (answered, took) = timed(&stalls, answers(&server)).await;
        assert!(!answered && took < Duration::from_millis(1800), "{took:?}");
    }
    private.start();
    back(&server).await;
    private.kill();
    assert!(!answers(&server).await);
    private.start();
    back(&server).await;
}

#[tokio::test]
async fn a_server_that_stands_still_costs_every_call_a_bounded_time() {
    let private = PrivateServer::started(&[]);
    let (server, stalls) = (hurried(&private, "still"), Arc::new(Stalls::watched()));
    back(&server).await;
    private.signal("STOP");
    // Some come together, and some while others wait or connect.
    let calls = (0..200).map(|call| {
        let (server, stalls) = (server.clone(), Arc::clone(&stalls));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(call % 50 * 100)).await;
            timed(&stalls, answers(&server)).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let (answered, took) = call.await.unwrap();
        assert!(!answered && took < Duration::from_millis(2400), "{took:?}");
    }
    private.signal("CONT");
    back(&server).await;
}

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced_after_one_timeout() {
    let private = PrivateServer::started(&[]);
    let proxy = CuttingProxy::before(private.port).await;
    let (server, stalls) =
        (RedisServer::connect(&ServerConfig::at(&proxy.url()), "silent").unwrap(), Stalls::watched());
    // A driver's own timeout may win or lose a race against ours: one round would prove nothing.
    for round in 0..4 {
        back(&server).await;
        proxy.silence_connections();
        let (answered, took) = timed(&stalls, answers(&server)).await;
        assert!(!answered && took < Duration::from_millis(2400), "round {round}: {took:?}");
        let ((), took) = timed(&stalls, back(&server)).await;
        assert!(took < Duration::from_millis(1800), "round {round}: found again after {took:?}");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_closed_costs_no_call() {
    let private = PrivateServer::started(&[]);
    let server = private.client("closed");
    for _ in 0..20 {
        assert!(answers(&server).await);
        private.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    assert!(answers(&server).await);
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let private = PrivateServer::started(&[]);
    let server = private.client("forgot");
    assert!(answers(&server).await);
    private.cli(&["SCRIPT", "FLUSH"]);
    assert!(answers(&server).await);
}

#[tokio::test]
async fn a_server_is_used_only_if_its_clock_agrees_and_it_forgets_nothing() {
    let judged =
        async |server: &RedisServer| server.check_reading(Slot::default(), "key".to_owned(), &SystemClock).await;
    let common = shared();
    assert_eq!(judged(&common).await.unwrap(), None);
    let late = ManualClock::new(SystemClock.now().before(Duration::from_secs(5)));
    let early = common.check_reading(Slot::default(), "key".to_owned(), &late).await;
    assert!(matches!(early, Err(ServerError::Clock(_))), "{early:?}");

    let private = PrivateServer::started(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let server = private.client("evicts");
    let refused = judged(&server).await;
    assert!(matches!(&refused, Err(ServerError::Evicts(policy)) if policy == "allkeys-lru"), "{refused:?}");
    private.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    judged(&server).await.unwrap();
    private.cli(&["CONFIG", "SET", "maxmemory", "100kb"]);
    let refused = judged(&server).await;
    assert!(matches!(&refused, Err(ServerError::ReadOnly(why)) if why.contains("OOM")), "{refused:?}");
}

#[tokio::test]
async fn a_connection_to_a_server_that_became_a_replica_is_left_for_the_primary() {
    let (demoted, promoted) = (PrivateServer::started(&[]), PrivateServer::started(&[]));
    let server = demoted.client("demoted");
    server.check_reading(Slot::default(), "key".to_owned(), &SystemClock).await.unwrap();
    demoted.cli(&["REPLICAOF", "127.0.0.1", &promoted.port.to_string()]);
    let refused = server.check_reading(Slot::default(), "key".to_owned(), &SystemClock).await;
    assert!(matches!(refused, Err(ServerError::Unreachable(_))), "{refused:?}");
    let Topology::One(node) = &server.shared.topology else { panic!("not a server") };
    assert!(!node.is_connected(), "the connection to the replica was kept");
    demoted.cli(&["REPLICAOF", "NO", "ONE"]);
    server.check_reading(Slot::default(), "key".to_owned(), &SystemClock).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_told_as_such() {
    let private = PrivateServer::started(&["--requirepass", "right"]);
    let at = |password: &str| {
        let url = format!("redis://:{password}@127.0.0.1:{}/", private.port);
        patient(&url, "secret")
    };
    assert!(answers(&at("right")).await);
    let refused = at("wrong").eval::<String>(Slot::default(), &ping(), |_, _| {}).await.unwrap_err();
    let told = format!("{:?}", sources(&refused));
    assert!(told.contains("password") || told.contains("auth"), "{told}");
}

/// Returns an error with its sources, as it is logged.
fn sources(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

/// TLS trusts what the system trusts, which a process learns from its environment; so the client is a separate process.
#[tokio::test]
async fn rediss_is_spoken_and_its_certificate_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, secret) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, key.cert.pem()).unwrap();
    std::fs::write(&secret, key.signing_key.serialize_pem()).unwrap();
    let (certificate, secret) = (certificate.to_str().unwrap(), secret.to_str().unwrap());
    let files = ["--tls-cert-file", certificate, "--tls-key-file", secret, "--tls-ca-cert-file", certificate];
    let mut private = PrivateServer::stopped(&[&files[..], &["--port", "0", "--tls-auth-clients", "no"]].concat());
    private.tls = true;
    private.start();
    let port = private.port;
    let client = |trusted: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "redis::tests::client_of_rediss", "--ignored", "--nocapture"]);
        command.env("FEEDFLEET_TEST_REDISS", format!("rediss://localhost:{port}/"));
        if let Some(trusted) = trusted {
            command.env("SSL_CERT_FILE", trusted);
        }
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (worked, told) = client(Some(certificate));
    assert!(worked && told.contains("rediss answers"), "{told}");
    let (worked, told) = client(None);
    assert!(!worked && told.contains("1 failed"), "{told}");
}

#[tokio::test]
#[ignore = "the client of `rediss_is_spoken_and_its_certificate_is_checked`"]
async fn client_of_rediss() {
    let server =
        RedisServer::connect(&ServerConfig::at(&std::env::var("FEEDFLEET_TEST_REDISS").unwrap()), "tls").unwrap();
    // The first handshake of an unoptimised process on a busy machine may take longer than a call.
    while let Err(error) = server.eval::<String>(Slot::default(), &ping(), |_, _| {}).await {
        let told = format!("{:?}", sources(&error));
        assert!(!told.to_lowercase().contains("certificate"), "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("rediss answers");
}
