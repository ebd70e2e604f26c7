//! Several addresses, of which some do not answer.

use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::queue::rabbitmq::dial::Dialer;

/// Returns the URL of the broker with one more address before its own.
fn with_dead_address(port: u16) -> String {
    url().replace('@', &format!("@127.0.0.1:{port},"))
}

/// Returns the threads of lapin's connections.
fn connection_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        // It may have ended meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.starts_with("lapin-io")).count()
}

#[tokio::test]
async fn an_address_that_accepts_connections_and_says_nothing_delays_by_seconds_and_leaves_nothing_behind() {
    let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ServerConfig::at(&with_dead_address(frozen.local_addr().unwrap().port()));
    let addresses = Arc::new(Addresses::of(&server).unwrap());
    let stalls = crate::testing::Stalls::watched();
    let (mut delayed, mut at_once) = (0, 0);
    while delayed < 2 || at_once < 2 {
        let before = stalls.so_far();
        let begun = Instant::now();
        // A new one each time: one that connected before begins with the other address.
        let connection = Dialer::new(Arc::clone(&addresses), "test".to_owned()).connect().await.unwrap();
        let took = begun.elapsed().saturating_sub(stalls.so_far() - before);
        assert!(took < Duration::from_secs(8), "{took:?}");
        if took > Duration::from_secs(2) {
            delayed += 1;
        } else {
            at_once += 1;
        }
        connection.close(200, "goodbye".into()).await.unwrap();
        drop(connection);
        let begun = Instant::now();
        while connection_threads() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} threads are left", connection_threads());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_lost_connection_is_replaced_by_one_to_another_address() {
    let server: lapin::uri::AMQPUri = url().parse().unwrap();
    let proxy = crate::redis::testing::CuttingProxy::before(server.authority.port).await;
    let both = ServerConfig::at(&with_dead_address(proxy.port));
    let mut dialer = Dialer::new(Arc::new(Addresses::of(&both).unwrap()), "test".to_owned());
    let mut ports = Vec::new();
    for _ in 0..6 {
        let connection = dialer.connect().await.unwrap();
        ports.push(dialer.last().unwrap().port());
        connection.close(200, "goodbye".into()).await.unwrap();
    }
    assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "{ports:?}");
}
