//! Starts and releases that share a call: they cost fewer calls, and each gets its own answer.

use super::*;
use crate::host::HostLimits;
use crate::redis::testing::PrivateServer;
use crate::time::{Clock, SystemClock};
use crate::url::FeedId;

const LIMITS: HostLimits = HostLimits { gap: Duration::from_millis(1), burst: 1, parallel: 1 };
const MANY: i64 = 300;
const AN_HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    SystemClock.now()
}

fn host(number: i64) -> HostKey {
    HostKey::new(&format!("host-{number}.example:80"))
}

/// Returns an open gate, with a slot at each of many hosts.
async fn reserved(private: &PrivateServer) -> (RedisGate, Vec<AcquireRequest>) {
    let gate = RedisGate::new(private.client("batches"), Duration::ZERO);
    gate.open_new(now()).await.unwrap();
    let expires = now().after(AN_HOUR);
    let requests: Vec<ReserveRequest> =
        (0..MANY).map(|number| ReserveRequest { host: host(number), limits: LIMITS, expires }).collect();
    let mut reservations = gate.reserve(&requests, now()).await.unwrap();
    // Within a gap after the gate opened nothing may start.
    while matches!(reservations[0], Reservation::Refused { .. }) {
        tokio::time::sleep(LIMITS.gap * 5).await;
        reservations = gate.reserve(&requests, now()).await.unwrap();
    }
    let request = |(number, reservation)| match reservation {
        Reservation::Ticket(ticket) => AcquireRequest {
            host: host(number),
            limits: LIMITS,
            ticket,
            feed: FeedId(number),
            version: Version(1),
            deadline: expires,
            leased_until: Timestamp::EPOCH,
            nonce: fresh_nonce(),
            isolation: Isolation::Alone,
        },
        Reservation::Refused { .. } => unreachable!("it was reserved"),
    };
    (gate, (0..MANY).zip(reservations).map(request).collect())
}

/// Returns how many scripts the server has run.
fn calls(private: &PrivateServer) -> u64 {
    let stats = private.cli(&["INFO", "commandstats"]);
    let counts = ["cmdstat_evalsha:calls=", "cmdstat_eval:calls="].map(|name| {
        let after = stats.split(name).nth(1).unwrap_or("0,");
        after.split(',').next().unwrap_or_default().parse::<u64>().unwrap_or_default()
    });
    counts.iter().sum()
}

#[tokio::test]
async fn starts_and_releases_that_come_together_share_calls_and_each_gets_its_own_answer() {
    let private = PrivateServer::started(&[]);
    let (gate, requests) = reserved(&private).await;
    let before = calls(&private);
    // Every second one has a ticket that was never given.
    let asked: Vec<AcquireRequest> = requests
        .iter()
        .map(|request| match request.feed.0 % 2 {
            0 => request.clone(),
            _ => AcquireRequest { ticket: Ticket(fresh_nonce()), ..request.clone() },
        })
        .collect();
    let answers = join_all(asked.iter().map(|request| gate.acquire(request, now()))).await;
    for (request, answer) in asked.iter().zip(&answers) {
        match request.feed.0 % 2 {
            0 => assert_eq!(*answer.as_ref().unwrap(), Acquired::Granted(request.permit())),
            _ => assert!(matches!(answer.as_ref().unwrap(), Acquired::NotNow { .. }), "{answer:?}"),
        }
    }
    let release = Release { remembered: Some(AN_HOUR), next_start_in: None };
    let permits: Vec<Permit> = asked.iter().step_by(2).map(AcquireRequest::permit).collect();
    let released = join_all(permits.iter().map(|permit| gate.release(permit, release, now()))).await;
    released.into_iter().for_each(|released| released.unwrap());
    let items = u64::try_from(MANY + MANY / 2).unwrap();
    assert!(calls(&private) - before < items / 4, "{} calls for {items} items", calls(&private) - before);
    let again = join_all(asked.iter().step_by(2).map(|request| gate.acquire(request, now()))).await;
    assert!(
        again.into_iter().all(|answer| matches!(answer, Ok(Acquired::Reported))),
        "each feed's release was remembered"
    );
}

#[tokio::test]
async fn one_that_the_server_refuses_does_not_make_the_others_of_its_call_fail() {
    let private = PrivateServer::started(&[]);
    let (gate, requests) = reserved(&private).await;
    // A script that reads this host's record fails.
    let spoilt = gate.groups[0].host(&host(7));
    private.cli(&["DEL", &spoilt]);
    private.cli(&["LPUSH", &spoilt, "not a record"]);
    let answers = join_all(requests.iter().map(|request| gate.acquire(request, now()))).await;
    for (request, answer) in requests.iter().zip(answers) {
        match request.feed.0 {
            7 => assert!(answer.is_err()),
            _ => assert_eq!(answer.unwrap(), Acquired::Granted(request.permit())),
        }
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_takes_nobody_along() {
    let private = PrivateServer::started(&[]);
    let (gate, requests) = reserved(&private).await;
    let (impatient, patient): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.feed.0 % 3 == 0);
    let given_up = async {
        let calls = join_all(impatient.iter().map(|request| gate.acquire(request, now())));
        // Polled once, so that all of them are in line, and dropped.
        let _ = futures_util::FutureExt::now_or_never(calls);
    };
    let ((), answers) = tokio::join!(given_up, join_all(patient.iter().map(|request| gate.acquire(request, now()))));
    for (request, answer) in patient.iter().zip(answers) {
        assert_eq!(answer.unwrap(), Acquired::Granted(request.permit()));
    }
}
