//! Failovers by sentinels: feedfleet finds the new master.

use super::*;
use crate::redis::testing::groups::{SERVICE, Watched};

/// Returns the run of the server's process that answers.
async fn run_of(server: &RedisServer) -> Option<String> {
    let script = Script::new("redis.call('SET', KEYS[1], '1') return ARGV[1]");
    let answer = server.eval(Slot::default(), &script, |call, run| {
        call.key("key").arg(run);
    });
    answer.await.ok()
}

/// Returns the run that a server itself reports.
fn own_run(server: &PrivateServer) -> String {
    let info = server.cli(&["INFO", "server"]);
    info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned()
}

/// Waits until the answers are from this server; returns how long that took.
async fn found(server: &RedisServer, wanted: &PrivateServer) -> Duration {
    let (begun, wanted) = (Instant::now(), own_run(wanted));
    while run_of(server).await.as_ref() != Some(&wanted) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the new master was not found");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_that_sentinels_elect_is_found_there_and_back() {
    let mut group = Watched::started(&[]);
    let server = RedisServer::connect(&ServerConfig::at(&group.url()), "failover").unwrap();
    found(&server, &group.servers[0]).await;
    for round in 0..2 {
        let master = tokio::task::block_in_place(|| group.settled());
        // By a kill, and by a freeze: the old master comes back as one, and is demoted.
        if round == 0 {
            group.servers[master].kill();
        } else {
            group.servers[master].signal("STOP");
        }
        let next = tokio::task::block_in_place(|| group.wait_for_another(master));
        let took = found(&server, &group.servers[next]).await;
        println!("round {round}: server {next} found {took:?} after its election");
        assert!(took < Duration::from_secs(30), "{took:?}");
        if round == 0 {
            group.servers[master].start();
        } else {
            group.servers[master].signal("CONT");
        }
        let next = tokio::task::block_in_place(|| {
            group.wait_for_replica(master);
            group.settled()
        });
        assert_ne!(next, master);
        found(&server, &group.servers[next]).await;
    }
    // After a planned failover the old connection stays open; only the refused write shows that its server was demoted.
    let master = tokio::task::block_in_place(|| group.settled());
    assert_eq!(group.sentinels[0].cli(&["SENTINEL", "FAILOVER", SERVICE]), "OK");
    let next = tokio::task::block_in_place(|| group.wait_for_another(master));
    found(&server, &group.servers[next]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_stands_still_or_names_another_master_changes_nothing() {
    let group = Watched::started(&[]);
    let stranger = PrivateServer::started(&[]);
    let lines = format!(
        "port PORT\nsentinel monitor {SERVICE} 127.0.0.1 {} 1\nsentinel down-after-milliseconds {SERVICE} 1000\n",
        stranger.port
    );
    let misled = PrivateServer::sentinel(&lines);
    let hosts = |ports: &[u16]| {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis-sentinel://{}/?sentinelServiceName={SERVICE}", hosts.join(","))
    };
    let [one, two, three] = [0, 1, 2].map(|at| group.sentinels[at].port);
    // Two of four name the right one, one names another, and the first is frozen.
    group.sentinels[0].signal("STOP");
    let stalls = Stalls::watched();
    let url = hosts(&[one, misled.port, two, three]);
    for _ in 0..5 {
        let server = RedisServer::connect(&ServerConfig::at(&url), "outvoted").unwrap();
        let (run, took) = timed(&stalls, run_of(&server)).await;
        assert_eq!(run, Some(own_run(&group.servers[0])));
        assert!(took < Duration::from_millis(1500), "{took:?}");
    }
    // The only sentinel that answers is believed.
    let server = RedisServer::connect(&ServerConfig::at(&hosts(&[one, misled.port])), "alone").unwrap();
    assert_eq!(run_of(&server).await, Some(own_run(&stranger)));
    group.sentinels[0].signal("CONT");
}

#[tokio::test]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let server = PrivateServer::started(&["--requirepass", "of-the-server"]);
    let lines = format!(
        "port PORT\nrequirepass of-the-sentinel\nsentinel monitor {SERVICE} 127.0.0.1 {} 1\n\
         sentinel auth-pass {SERVICE} of-the-server\n",
        server.port
    );
    let sentinel = PrivateServer::sentinel(&lines);
    let at = |password: &str, of_sentinel: &str| {
        patient(
            &format!(
                "redis-sentinel://:{password}@127.0.0.1:{}/3?sentinelServiceName={SERVICE}{of_sentinel}",
                sentinel.port
            ),
            "secret",
        )
    };
    assert!(answers(&at("of-the-server", "&sentinelPassword=of-the-sentinel")).await);
    assert!(!answers(&at("wrong", "&sentinelPassword=of-the-sentinel")).await);
    let refused = at("of-the-server", "").eval::<String>(Slot::default(), &ping(), |_, _| {}).await.unwrap_err();
    let told = format!("{:?}", sources(&refused));
    assert!(told.to_lowercase().contains("auth") && !told.contains("of-the"), "{told}");
    let unknown = format!(
        "redis-sentinel://127.0.0.1:{}/?sentinelServiceName=other&sentinelPassword=of-the-sentinel",
        sentinel.port
    );
    let refused = patient(&unknown, "x").eval::<String>(Slot::default(), &ping(), |_, _| {}).await.unwrap_err();
    let told = format!("{:?}", sources(&refused));
    assert!(told.contains("not found in sentinel"), "{told}");
}
