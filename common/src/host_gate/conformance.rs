//! What every [`HostGate`] must do, run against each implementation by [`host_gate_conformance!`].
#![expect(clippy::unwrap_used, reason = "a test suite")]

use std::time::Duration;

use super::{
    AcquireRequest, Acquired, ExtraRequest, HostGate, Isolation, Permit, Release, Reservation, ReserveRequest, Ticket,
    fresh_nonce,
};
use crate::host::{HostKey, HostLimits};
use crate::time::Timestamp;
use crate::url::{FeedId, Version};

/// Stamps the suite for one implementation: `$make` is a closure that returns a future of a new gate without a past.
#[macro_export]
macro_rules! host_gate_conformance {
    (@tests $make:expr; $($name:ident)+) => {
        $($crate::host_gate_conformance!($make; $name);)+
    };
    (@in_turn $make:expr; $($name:ident)+) => {
        $(
            println!(stringify!($name));
            $crate::host_gate::conformance::$name(&$make().await).await;
        )+
    };
    (@all $form:ident $make:expr) => {
        $crate::host_gate_conformance!(@$form $make;
            an_unopened_gate_refuses_everything
            a_gate_that_never_asked_anybody_opens_at_once
            starts_are_a_gap_apart_after_the_burst
            at_most_parallel_places_are_outstanding
            a_ticket_ends_with_its_job_and_once_redeemed_with_the_permit
            an_unknown_ticket_is_not_now
            acquire_rechecks_the_gap_without_charging_twice
            a_hold_stops_reservations_and_reserved_jobs_and_never_shrinks
            a_block_stops_everything_and_is_lifted_without_touching_a_hold
            a_block_is_there_before_the_gate_opens_and_frees_no_place
            rules_are_shown_to_whoever_does_not_know_them
            a_reported_version_is_not_granted_again
            a_reported_version_is_leased_although_another_epoch_gives_it_out_again
            a_deferred_version_is_granted_again
            one_feed_has_one_live_permit
            release_frees_only_what_its_own_acquire_took
            a_version_that_started_three_times_without_a_report_is_crashed
            a_suspect_starts_only_in_isolation_and_loses_nothing_by_asking
            a_late_release_of_an_earlier_version_forgets_no_start
            an_acquire_whose_answer_was_lost_is_released_by_its_name
            a_redirect_hop_is_charged_to_the_host_it_goes_to
            a_hop_on_the_own_host_waits_for_the_gap_but_not_for_itself
            a_cancelled_ticket_frees_its_place
            a_request_that_left_late_moves_the_next_start_by_the_gates_own_clock
        );
    };
    ($make:expr) => {
        $crate::host_gate_conformance!(@all tests $make);
    };
    // In a test that has to prepare something for all of them.
    ($make:expr; in_turn) => {
        $crate::host_gate_conformance!(@all in_turn $make);
    };
    ($make:expr; $name:ident) => {
        #[tokio::test]
        async fn $name() {
            $crate::host_gate::conformance::$name(&$make().await).await;
        }
    };
}

const LIMITS: HostLimits = HostLimits { gap: Duration::from_secs(1), burst: 1, parallel: 1 };
const FETCH: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(120);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + millis)
}

fn host() -> HostKey {
    HostKey::new("example.com:443")
}

async fn opened(gate: &dyn HostGate) {
    let mark = gate.begin_loading(at(-10_000)).await.unwrap().unwrap();
    assert!(gate.open(&mark, at(-10_000)).await.unwrap());
    assert!(gate.begin_loading(at(-10_000)).await.unwrap().is_none());
}

async fn reserve(gate: &dyn HostGate, limits: HostLimits, now: i64) -> Result<Ticket, Timestamp> {
    let request = ReserveRequest { host: host(), limits, expires: at(now).after(Duration::from_secs(60)) };
    match gate.reserve(&[request], at(now)).await.unwrap()[0] {
        Reservation::Ticket(ticket) => Ok(ticket),
        Reservation::Refused { until } => Err(until),
    }
}

async fn acquire(gate: &dyn HostGate, ticket: Ticket, feed: i64, version: i64, now: i64) -> Acquired {
    acquire_at(gate, LIMITS, ticket, feed, version, now).await
}

async fn acquire_at(
    gate: &dyn HostGate,
    limits: HostLimits,
    ticket: Ticket,
    feed: i64,
    version: i64,
    now: i64,
) -> Acquired {
    let request = AcquireRequest { limits, ..request(ticket, feed, version, now, Isolation::Alone) };
    gate.acquire(&request, at(now)).await.unwrap()
}

fn request(ticket: Ticket, feed: i64, version: i64, now: i64, isolation: Isolation) -> AcquireRequest {
    AcquireRequest {
        host: host(),
        limits: LIMITS,
        ticket,
        feed: FeedId(feed),
        version: Version(version),
        deadline: at(now).after(FETCH),
        leased_until: Timestamp::EPOCH,
        nonce: fresh_nonce(),
        isolation,
    }
}

fn granted(acquired: Acquired) -> Permit {
    match acquired {
        Acquired::Granted(permit) => permit,
        other => panic!("not granted: {other:?}"),
    }
}

async fn reported(gate: &dyn HostGate, permit: &Permit, now: i64) {
    let remembered = Some(LEASE);
    gate.release(permit, Release { remembered, ..Release::default() }, at(now)).await.unwrap();
}

macro_rules! cases {
    ($($(#[$meta:meta])* $name:ident($gate:ident) $body:block)+) => {
        $(
            #[expect(missing_docs, reason = "the names say it")]
            $(#[$meta])*
            pub async fn $name($gate: &dyn HostGate) $body
        )+
    };
}

cases! {
    an_unopened_gate_refuses_everything(gate) {
        assert!(reserve(gate, LIMITS, 0).await.is_err());
        gate.hold(&[(host(), at(50_000))], at(0)).await.unwrap();
        opened(gate).await;
        assert_eq!(reserve(gate, LIMITS, 0).await, Err(at(50_000)));
    }

    a_gate_that_never_asked_anybody_opens_at_once(gate) {
        assert!(reserve(gate, LIMITS, 0).await.is_err());
        gate.open_new(at(0)).await.unwrap();
        assert!(gate.begin_loading(at(0)).await.unwrap().is_none());
        reserve(gate, LIMITS, 0).await.unwrap();
        gate.open_new(at(1)).await.unwrap();
        assert!(reserve(gate, LIMITS, 1).await.is_err());
    }

    starts_are_a_gap_apart_after_the_burst(gate) {
        opened(gate).await;
        let limits = HostLimits { burst: 3, parallel: 10, ..LIMITS };
        for feed in 0..3 {
            let ticket = reserve(gate, limits, 0).await.unwrap();
            granted(acquire_at(gate, limits, ticket, feed, 0, 0).await);
        }
        assert_eq!(reserve(gate, limits, 0).await, Err(at(1000)));
        assert!(reserve(gate, limits, 1000).await.is_ok());
        assert_eq!(reserve(gate, limits, 1000).await, Err(at(2000)));
    }

    at_most_parallel_places_are_outstanding(gate) {
        opened(gate).await;
        let limits = HostLimits { parallel: 2, ..LIMITS };
        reserve(gate, limits, 0).await.unwrap();
        let ticket = reserve(gate, limits, 1000).await.unwrap();
        assert!(reserve(gate, limits, 5000).await.is_err());
        let permit = granted(acquire_at(gate, limits, ticket, 1, 0, 5000).await);
        assert!(reserve(gate, limits, 8000).await.is_err());
        reported(gate, &permit, 8000).await;
        assert!(reserve(gate, limits, 8000).await.is_ok());
    }

    a_ticket_ends_with_its_job_and_once_redeemed_with_the_permit(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        assert!(reserve(gate, LIMITS, 59_999).await.is_err());
        let next = reserve(gate, LIMITS, 60_000).await.unwrap();
        assert!(matches!(acquire(gate, ticket, 1, 0, 60_002).await, Acquired::NotNow { .. }));
        granted(acquire(gate, next, 2, 0, 60_003).await);
        assert!(reserve(gate, LIMITS, 90_002).await.is_err());
        assert!(reserve(gate, LIMITS, 90_003).await.is_ok());
    }

    an_unknown_ticket_is_not_now(gate) {
        opened(gate).await;
        assert!(matches!(acquire(gate, Ticket(7), 1, 0, 0).await, Acquired::NotNow { .. }));
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let permit = granted(acquire(gate, ticket, 1, 0, 0).await);
        gate.release(&permit, Release::default(), at(10)).await.unwrap();
        assert!(matches!(acquire(gate, ticket, 1, 0, 5000).await, Acquired::NotNow { .. }));
    }

    acquire_rechecks_the_gap_without_charging_twice(gate) {
        opened(gate).await;
        let limits = HostLimits { parallel: 2, ..LIMITS };
        let first = reserve(gate, limits, 0).await.unwrap();
        let second = reserve(gate, limits, 1000).await.unwrap();
        // The first job waited in the queue until the second's turn: both at once would break the gap.
        let permit = granted(acquire_at(gate, limits, first, 1, 0, 1500).await);
        assert_eq!(acquire_at(gate, limits, second, 2, 0, 1600).await, Acquired::NotNow { until: at(2500) });
        reported(gate, &permit, 1700).await;
        let third = reserve(gate, limits, 2500).await.unwrap();
        granted(acquire_at(gate, limits, third, 2, 0, 2500).await);
        assert_eq!(reserve(gate, limits, 3499).await, Err(at(3500)));
    }

    a_hold_stops_reservations_and_reserved_jobs_and_never_shrinks(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        gate.hold(&[(host(), at(100_000))], at(1)).await.unwrap();
        gate.hold(&[(HostKey::new("other:80"), at(1)), (host(), at(20_000))], at(2)).await.unwrap();
        assert_eq!(acquire(gate, ticket, 1, 0, 3).await, Acquired::NotNow { until: at(100_000) });
        assert_eq!(reserve(gate, LIMITS, 4).await, Err(at(100_000)));
        assert_eq!(gate.held(at(5)).await.unwrap(), 1);
        assert!(reserve(gate, LIMITS, 100_000).await.is_ok());
    }

    a_block_stops_everything_and_is_lifted_without_touching_a_hold(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        gate.block(&host(), Some(at(100_000)), at(1)).await.unwrap();
        assert_eq!(acquire(gate, ticket, 1, 0, 2).await, Acquired::NotNow { until: at(100_000) });
        let own = host();
        let request = ExtraRequest { host: &own, limits: LIMITS, during: None, deadline: at(30_000) };
        assert_eq!(gate.acquire_extra(&request, at(2_000)).await.unwrap(), Err(at(100_000)));
        assert_eq!(reserve(gate, LIMITS, 2_000).await, Err(at(100_000)));
        gate.hold(&[(host(), at(20_000))], at(3)).await.unwrap();
        assert_eq!((reserve(gate, LIMITS, 4).await, gate.held(at(5)).await.unwrap()), (Err(at(100_000)), 1));
        gate.block(&host(), Some(at(50_000)), at(6)).await.unwrap();
        assert_eq!(reserve(gate, LIMITS, 7).await, Err(at(50_000)), "the last word counts");
        gate.block(&host(), None, at(8)).await.unwrap();
        assert_eq!((reserve(gate, LIMITS, 9).await, gate.held(at(9)).await.unwrap()), (Err(at(20_000)), 1));
        assert_eq!(gate.held(at(20_001)).await.unwrap(), 0);
        assert!(reserve(gate, LIMITS, 20_000).await.is_ok());
        gate.block(&host(), Some(at(60_000)), at(30_000)).await.unwrap();
        assert_eq!(gate.held(at(30_001)).await.unwrap(), 1);
        gate.block(&host(), None, at(30_002)).await.unwrap();
        assert_eq!(gate.held(at(30_003)).await.unwrap(), 0);
    }

    a_block_is_there_before_the_gate_opens_and_frees_no_place(gate) {
        gate.block(&host(), Some(at(5_000)), at(-20_000)).await.unwrap();
        opened(gate).await;
        let limits = HostLimits { parallel: 2, ..LIMITS };
        assert_eq!(reserve(gate, limits, 0).await, Err(at(5_000)));
        // The block itself does not take a slot either, and ends automatically.
        reserve(gate, limits, 5_000).await.unwrap();
        reserve(gate, limits, 6_000).await.unwrap();
        assert!(reserve(gate, limits, 7_000).await.is_err());
    }

    rules_are_shown_to_whoever_does_not_know_them(gate) {
        assert_eq!(gate.shown_rules(None).await.unwrap(), None);
        gate.show_rules("[1]").await.unwrap();
        assert_eq!(gate.shown_rules(None).await.unwrap().as_deref(), Some("[1]"));
        assert_eq!(gate.shown_rules(Some("[1]")).await.unwrap(), None);
        gate.show_rules("[1]").await.unwrap();
        gate.show_rules("[]").await.unwrap();
        assert_eq!(gate.shown_rules(Some("[1]")).await.unwrap().as_deref(), Some("[]"));
    }

    a_reported_version_is_not_granted_again(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let permit = granted(acquire(gate, ticket, 1, 4, 0).await);
        reported(gate, &permit, 100).await;
        let ticket = reserve(gate, LIMITS, 2000).await.unwrap();
        assert_eq!(acquire(gate, ticket, 1, 4, 2000).await, Acquired::Reported);
        // The refused one returned its ticket.
        let ticket = reserve(gate, LIMITS, 4000).await.unwrap();
        granted(acquire(gate, ticket, 1, 5, 4000).await);
    }

    a_reported_version_is_leased_although_another_epoch_gives_it_out_again(gate) {
        opened(gate).await;
        let ask = async |feed, version: Version, now| {
            let ticket = reserve(gate, LIMITS, now).await.unwrap();
            let asked = request(ticket, feed, version.0, now, Isolation::Alone);
            let asked = AcquireRequest { leased_until: at(60_000), ..asked };
            gate.acquire(&asked, at(now)).await.unwrap()
        };
        for (feed, now) in [(1, 0), (2, 2_000)] {
            reported(gate, &granted(ask(feed, Version(4), now).await), now + 100).await;
        }
        // The store gives out again what it lost, or what was not stored yet.
        for (version, now) in [(4, 4_000), (3, 6_000)] {
            let asked = ask(1, Version(version).in_epoch(1), now).await;
            assert_eq!(asked, Acquired::NotNow { until: at(60_000) }, "version {version}");
        }
        granted(ask(2, Version(5).in_epoch(1), 8_000).await);
        granted(ask(1, Version(4).in_epoch(1), 60_000).await);
    }

    a_deferred_version_is_granted_again(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let permit = granted(acquire(gate, ticket, 1, 4, 0).await);
        gate.release(&permit, Release::default(), at(100)).await.unwrap();
        let ticket = reserve(gate, LIMITS, 2000).await.unwrap();
        granted(acquire(gate, ticket, 1, 4, 2000).await);
    }

    one_feed_has_one_live_permit(gate) {
        opened(gate).await;
        let limits = HostLimits { parallel: 5, ..LIMITS };
        let first = reserve(gate, limits, 0).await.unwrap();
        let second = reserve(gate, limits, 1000).await.unwrap();
        granted(acquire_at(gate, limits, first, 1, 0, 1000).await);
        assert_eq!(acquire_at(gate, limits, second, 1, 0, 2500).await, Acquired::NotNow { until: at(31_000) });
    }

    release_frees_only_what_its_own_acquire_took(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let paused = granted(acquire(gate, ticket, 1, 0, 0).await);
        // Its permit ran out while the worker was paused; another worker has the feed now.
        let ticket = reserve(gate, LIMITS, 40_000).await.unwrap();
        let live = granted(acquire(gate, ticket, 1, 0, 40_000).await);
        gate.release(&paused, Release::default(), at(41_000)).await.unwrap();
        assert!(reserve(gate, LIMITS, 42_000).await.is_err());
        reported(gate, &live, 43_000).await;
        assert!(reserve(gate, LIMITS, 43_000).await.is_ok());
    }

    a_version_that_started_three_times_without_a_report_is_crashed(gate) {
        opened(gate).await;
        for round in 0..3 {
            let now = round * 40_000;
            let ticket = reserve(gate, LIMITS, now).await.unwrap();
            granted(acquire(gate, ticket, 1, 0, now).await);
        }
        let ticket = reserve(gate, LIMITS, 120_000).await.unwrap();
        let Acquired::Crashed(permit) = acquire(gate, ticket, 1, 0, 120_000).await else { panic!("not crashed") };
        let other = acquire(gate, ticket, 1, 0, 120_500).await;
        assert_eq!(other, Acquired::NotNow { until: at(120_000).after(FETCH) }, "one worker reports it");
        reported(gate, &permit, 120_501).await;
        let ticket = reserve(gate, LIMITS, 130_000).await.unwrap();
        granted(acquire(gate, ticket, 1, 1, 130_000).await);
    }

    a_suspect_starts_only_in_isolation_and_loses_nothing_by_asking(gate) {
        opened(gate).await;
        for (round, needed) in [(0, Isolation::None), (1, Isolation::FewSuspects), (2, Isolation::Alone)] {
            let now = round * 40_000;
            let ticket = reserve(gate, LIMITS, now).await.unwrap();
            for too_little in [Isolation::None, Isolation::FewSuspects].into_iter().filter(|have| *have < needed) {
                let asked = gate.acquire(&request(ticket, 1, 0, now, too_little), at(now)).await.unwrap();
                assert_eq!(asked, Acquired::Suspect(needed), "round {round}");
            }
            // The ticket is still good, and no start was counted.
            granted(gate.acquire(&request(ticket, 1, 0, now, needed), at(now)).await.unwrap());
        }
        let ticket = reserve(gate, LIMITS, 120_000).await.unwrap();
        let known = gate.acquire(&request(ticket, 1, 0, 120_000, Isolation::None), at(120_000)).await.unwrap();
        assert!(matches!(known, Acquired::Crashed(_)), "a feed that is known to kill workers needs no isolation");
        // Another version is not suspected.
        let ticket = reserve(gate, LIMITS, 160_000).await.unwrap();
        granted(gate.acquire(&request(ticket, 1, 1, 160_000, Isolation::None), at(160_000)).await.unwrap());
    }

    a_late_release_of_an_earlier_version_forgets_no_start(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let owed = granted(acquire(gate, ticket, 1, 0, 0).await);
        for now in [40_000, 80_000] {
            let ticket = reserve(gate, LIMITS, now).await.unwrap();
            granted(acquire(gate, ticket, 1, 1, now).await);
        }
        reported(gate, &owed, 81_000).await;
        let ticket = reserve(gate, LIMITS, 120_000).await.unwrap();
        let suspect = request(ticket, 1, 1, 120_000, Isolation::FewSuspects);
        assert_eq!(gate.acquire(&suspect, at(120_000)).await.unwrap(), Acquired::Suspect(Isolation::Alone));
    }

    an_acquire_whose_answer_was_lost_is_released_by_its_name(gate) {
        opened(gate).await;
        for round in 0..5 {
            let now = round * 2_000;
            let ticket = reserve(gate, LIMITS, now).await.unwrap();
            let lost = request(ticket, 1, 0, now, Isolation::None);
            granted(gate.acquire(&lost, at(now)).await.unwrap());
            // The caller does not know whether it was granted, and may release it more than once.
            gate.release(&lost.permit(), Release::default(), at(now + 1_000)).await.unwrap();
            gate.release(&lost.permit(), Release::default(), at(now + 1_000)).await.unwrap();
        }
    }

    a_redirect_hop_is_charged_to_the_host_it_goes_to(gate) {
        opened(gate).await;
        let other = HostKey::new("other.example:443");
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let permit = granted(acquire(gate, ticket, 1, 0, 0).await);
        let request = ExtraRequest { host: &other, limits: LIMITS, during: Some(&permit), deadline: at(30_000) };
        let hop = gate.acquire_extra(&request, at(10)).await.unwrap().unwrap();
        assert!(gate.acquire_extra(&request, at(500)).await.unwrap().is_err());
        assert!(gate.acquire_extra(&request, at(1500)).await.unwrap().is_err());
        gate.release(&hop, Release::default(), at(1600)).await.unwrap();
        let hop = gate.acquire_extra(&request, at(1700)).await.unwrap().unwrap();
        gate.release(&hop, Release::default(), at(1800)).await.unwrap();
        assert_eq!(gate.acquire_extra(&request, at(1900)).await.unwrap(), Err(at(2700)));
    }

    a_hop_on_the_own_host_waits_for_the_gap_but_not_for_itself(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let permit = granted(acquire(gate, ticket, 1, 0, 0).await);
        let own = host();
        let request = ExtraRequest { host: &own, limits: LIMITS, during: Some(&permit), deadline: at(30_000) };
        assert_eq!(gate.acquire_extra(&request, at(10)).await.unwrap(), Err(at(1000)));
        let hop = gate.acquire_extra(&request, at(1000)).await.unwrap().unwrap();
        gate.release(&hop, Release::default(), at(1100)).await.unwrap();
        assert!(reserve(gate, LIMITS, 5000).await.is_err());
    }

    a_cancelled_ticket_frees_its_place(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        gate.cancel(&host(), ticket, at(10)).await.unwrap();
        assert!(reserve(gate, LIMITS, 1000).await.is_ok());
    }

    a_request_that_left_late_moves_the_next_start_by_the_gates_own_clock(gate) {
        opened(gate).await;
        let ticket = reserve(gate, LIMITS, 0).await.unwrap();
        let permit = granted(acquire(gate, ticket, 1, 0, 0).await);
        let release = Release { next_start_in: Some(Duration::from_millis(900)), ..Release::default() };
        gate.release(&permit, release, at(500)).await.unwrap();
        assert_eq!(reserve(gate, LIMITS, 1399).await, Err(at(1400)));
        let ticket = reserve(gate, LIMITS, 1400).await.unwrap();
        granted(acquire(gate, ticket, 1, 0, 1400).await);
    }
}
