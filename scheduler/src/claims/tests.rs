//! Checks the properties in every order of events, and that each protection is necessary.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};

use super::Sight;
use super::Sight::*;
use super::bounds::Protection::*;
use super::bounds::{Fleet, Kind, Protection, SKEW};

/// Explores a fleet completely, or up to `limit`: no property breaks, and every expected sight occurs.
fn holds(name: &str, fleet: Fleet, limit: Option<Duration>) {
    let sights: BTreeSet<&str> = fleet.sights.iter().map(|sight| sight.property().name).collect();
    let began = Instant::now();
    let checker = fleet.checker().threads(2);
    let checker = limit.into_iter().fold(checker, CheckerBuilder::timeout).spawn_bfs().join();
    let discoveries = checker.discoveries();
    let found: BTreeSet<&str> = discoveries.keys().copied().collect();
    println!(
        "{name}: {} states, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    for (broken, path) in discoveries.iter().filter(|(found, _)| !sights.contains(*found)) {
        println!("{broken}:");
        path.clone().into_actions().iter().for_each(|step| println!("    {step:?}"));
        println!("    {:?}", path.last_state());
    }
    assert_eq!(found, sights, "{name}");
}

/// How long a large fleet is explored.
const LONGEST: Duration = Duration::from_secs(120);

/// The maximum number of worlds to explore; what breaks is found long before.
const MANY: usize = 200_000;

/// Checks that without these protections all of these properties break.
fn breaks(name: &str, fleet: Fleet, expected: &[&'static str]) {
    let expected: BTreeSet<&'static str> = expected.iter().copied().collect();
    let began = Instant::now();
    let checker = fleet.checker().finish_when(HasDiscoveries::AllOf(expected.clone()));
    let checker = checker.target_state_count(MANY).threads(2).spawn_bfs().join();
    let found: BTreeSet<&str> = checker.discoveries().keys().copied().collect();
    println!(
        "{name}: {} states, depth {}, {:.1} s: {found:?}",
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    assert!(expected.is_subset(&found), "{name}: {expected:?} were to break, {found:?} did");
}

fn seeing(fleet: Fleet, sights: &[Sight]) -> Fleet {
    Fleet { sights: sights.to_vec(), ..fleet }
}

fn one() -> Fleet {
    Fleet::new(1)
}

/// Returns one feed with a wake.
fn waking() -> Fleet {
    Fleet { wakes: 1, ..one() }
}

/// Returns two feeds and one scheduler.
fn two() -> Fleet {
    Fleet { tasks: 1, ..Fleet::new(2) }
}

/// Returns two feeds, and a server that throttles once.
fn held() -> Fleet {
    Fleet { throttles: 1, ..two() }
}

/// Returns one feed, and a server that throttles once.
fn held_alone() -> Fleet {
    Fleet { throttles: 1, tasks: 1, ..one() }
}

/// Returns two feeds whose jobs may wait longer than the host's gap.
fn patient() -> Fleet {
    Fleet { queue_lease: 2_000, ..two() }
}

type Case = (&'static str, fn() -> Fleet);

/// Small enough for every test run; together they show almost everything listed in [`Sight`].
const SHORT: &[Case] = &[
    ("one feed, a wake", || seeing(waking(), &[WakeInMidFetch, WakeUnderLease, TwoWorkersAtOnce])),
    ("one feed, each fault but a late one", || {
        let sights = [TwoSchedulersAtOnce, Deferred, RedeliveredAfterReport, ReportTwice, StaleReport];
        let lost = [ScheduleEmpty, GateLostInMidFetch];
        seeing(one().faults(1, &Kind::prompt()), &[&sights[..], &lost].concat())
    }),
    ("one feed, slower than its lease", || seeing(one().faults(1, &[Kind::Late]), &[LeaseEndedUnderWork])),
    ("one feed, clocks apart", || Fleet { skew: SKEW, tasks: 1, ..one() }),
    ("two feeds", || seeing(two(), &[ParkedFeed])),
    ("a feed that kills its workers", || {
        seeing(Fleet { tasks: 1, queue: 1, ..one() }.faults(3, &[Kind::Worker]), &[Crashed])
    }),
    ("a hold, gate lost", || seeing(held_alone().faults(1, &[Kind::Gate]), &[HoldKnownOnlyToReport])),
];

/// Larger fleets, with too many worlds to explore completely: explored for two minutes each.
const LONG: &[Case] = &[
    ("one feed, a wake, clocks apart", || Fleet { skew: SKEW, tasks: 1, ..waking() }),
    ("one feed, clocks apart, 1 fault", || {
        Fleet { skew: SKEW, tasks: 1, ..one() }.faults(1, &[Kind::Worker, Kind::Redeliver, Kind::Schedule])
    }),
    ("one feed, a wake, a scheduler dies", || waking().faults(1, &[Kind::Scheduler])),
    ("two feeds, two schedulers, one goes", || Fleet { gone: true, tasks: 2, ..two() }),
    ("a hold", held),
    ("one feed, a wake, 1 fault of any kind", || waking().faults(1, &Kind::ALL)),
    ("one feed, 2 deaths", || one().faults(2, &[Kind::Worker, Kind::Scheduler])),
    ("one feed, parallel 2, a wake, 1 fault", || {
        Fleet { parallel: 2, ..waking() }.faults(1, &[Kind::Worker, Kind::Pause, Kind::Late, Kind::Schedule])
    }),
    ("two feeds, one goes, 1 fault", || {
        Fleet { gone: true, ..two() }.faults(1, &[Kind::Worker, Kind::Redeliver, Kind::Scheduler])
    }),
    ("a hold, parallel 1, 1 fault", || held().faults(1, &[Kind::Worker, Kind::Scheduler, Kind::Gate])),
    ("a hold, parallel 2, gate lost twice", || Fleet { parallel: 2, ..held() }.faults(2, &[Kind::Gate])),
];

type Broken = (&'static str, fn() -> Fleet, &'static [Protection], &'static [&'static str]);

const TAKEN_OUT: &[Broken] = &[
    ("parking keeps a timed head", || Fleet { gone: true, ..two() }, &[ParkedHead], &["lost", "stranded"]),
    ("a release frees only its own", || one().faults(1, &[Kind::Redeliver]), &[OwnRelease], &["double"]),
    ("the same, two feeds", || two().faults(1, &[Kind::Redeliver]), &[OwnRelease], &["parallel"]),
    ("a lower under a lease is remembered", waking, &[RememberedWake], &["wake-late"]),
    ("reconcile looks at wake_at", || waking().faults(1, &[Kind::Scheduler]), &[ReconciledWake], &["swallowed"]),
    ("lower not remembered, reconcile blind", waking, &[RememberedWake, ReconciledWake], &["swallowed", "wake-late"]),
    ("holds wait for reports", || held().faults(1, &[Kind::Gate]), &[DrainedReports], &["held"]),
    ("an acquire re-checks the hold", || Fleet { parallel: 2, ..held() }, &[HoldAtAcquire], &["held"]),
    ("opening looks for a loss meanwhile", || held_alone().faults(2, &[Kind::Gate]), &[LoadFence], &["held"]),
    ("lease and reconcile", || one().faults(1, &[Kind::Scheduler]), &[Lease, Reconcile], &["lost"]),
    ("reconcile", || one().faults(1, &[Kind::Schedule]), &[Reconcile], &["lost"]),
    ("version check", || one().faults(1, &[Kind::Twice]), &[VersionCheck], &["accepted2"]),
    ("token", || Fleet { parallel: 2, ..one() }.faults(1, &[Kind::Schedule]), &[Token], &["double"]),
    ("memory of reports", || one().faults(1, &[Kind::Late]), &[ReportedMemory], &["refetch"]),
    ("a Deferred is no report", || Fleet { parallel: 2, ..held() }, &[DeferredIsNoReport], &["idle"]),
    ("only answered wakes are cleared", waking, &[YoungerWakes], &["swallowed", "wake-late"]),
    ("a wake moves up", || Fleet { wakes: 2, ..one() }, &[WakeMovesUp], &["swallowed", "wake-late"]),
    ("tickets end", || one().faults(1, &[Kind::Worker]), &[TicketLife], &["lost"]),
    ("short tickets, any ticket is taken", patient, &[LongTicket, TicketCheck], &["parallel"]),
    ("birth mark", || held().faults(1, &[Kind::Gate]), &[BirthMark], &["held", "parallel"]),
    ("a fetch's time closed", || held().faults(1, &[Kind::Gate]), &[FetchDeadline], &["held", "parallel"]),
    ("the same, all of Redis lost", || one().faults(1, &[Kind::Redis]), &[FetchDeadline], &["double"]),
    ("hold first", held, &[HoldFirst], &["held"]),
    (
        "ack at receipt, no lease, no reconcile",
        || waking().faults(1, &[Kind::Worker]),
        &[LateAck, Lease, Reconcile],
        &["lost", "swallowed"],
    ),
    ("crash count", || Fleet { tasks: 1, queue: 1, ..one() }.faults(3, &[Kind::Worker]), &[CrashCount], &["deadly"]),
    ("gap", two, &[GapCharge], &["gap"]),
    (
        "a gap after the loss, a fetch's time closed",
        || Fleet { parallel: 2, ..two() }.faults(1, &[Kind::Gate]),
        &[GapAfterLoss, FetchDeadline],
        &["gap"],
    ),
];

#[test]
fn the_protocol_holds() {
    for (name, fleet) in SHORT {
        holds(name, fleet(), None);
    }
    // The long variant, `dev/soak model`.
    if std::env::var_os("SOAK").is_some() {
        for (name, fleet) in LONG {
            holds(name, fleet(), Some(LONGEST));
        }
    }
}

#[test]
fn each_protection_is_needed() {
    for (name, fleet, removed, expected) in TAKEN_OUT {
        breaks(name, fleet().without(removed), expected);
    }
}
