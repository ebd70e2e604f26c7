//! The guarantees of every [`Schedule`], tested against each implementation by [`schedule_conformance!`].

use std::time::Duration;

use common::host::HostKey;
use common::time::Timestamp;
use common::url::FeedId;

use super::{Band, Claim, Parking, Schedule, Slot};

/// Generates the suite for one implementation: `$make` is a closure that returns a future of an empty schedule.
#[macro_export]
macro_rules! schedule_conformance {
    (@tests $make:expr; $($name:ident)+) => {
        $($crate::schedule_conformance!($make; $name);)+
    };
    (@in_turn $make:expr; $($name:ident)+) => {
        $(
            println!(stringify!($name));
            $crate::schedule::conformance::$name(&$make().await).await;
        )+
    };
    (@all $form:ident $make:expr) => {
        $crate::schedule_conformance!(@$form $make;
            what_is_due_is_claimed_earliest_first
            a_claim_hides_a_feed_until_its_lease_ends
            a_lease_is_extended_and_nothing_else_is
            put_ends_a_lease_and_sets_the_time
            lower_brings_forward_and_never_back
            a_lower_under_a_lease_is_remembered_for_the_next_put
            a_put_after_the_lease_has_ended_undoes_no_wake
            only_put_off_moves_a_waiting_feed_to_a_later_time
            a_remembered_wake_survives_parking
            each_band_gets_its_share_of_a_claim_and_the_most_urgent_gets_what_is_left
            what_one_band_leaves_the_others_take
            of_a_band_the_oldest_is_claimed_whether_it_waits_or_its_lease_has_ended
            only_the_most_urgent_band_is_claimed_where_that_is_asked_for
            a_removed_feed_is_never_claimed
            correct_adds_what_is_absent_and_lowers_what_is_too_late
            correct_leaves_a_feed_that_was_claimed_late_to_its_lease
            correct_ends_a_lease_that_is_longer_than_any
            a_parked_feed_comes_out_at_its_hosts_head_lowest_rank_first
            unpark_brings_the_head_forward_only
            a_host_s_head_is_as_early_and_as_urgent_as_any_of_its_feeds
            claiming_a_head_rearms_it_while_others_stay_parked
            a_held_host_with_several_feeds_is_left_alone_until_its_hold_ends
            only_a_claimed_feed_can_be_parked
            a_woken_parked_feed_goes_first_and_when_it_is_wanted
            removing_the_last_parked_feed_removes_the_head
            depth_tells_feeds_due_parked_and_the_oldest
            the_next_claim_may_be_of_a_head_or_of_a_lease_that_ends
            what_waits_is_listed_in_order_from_any_place
            what_is_claimed_or_parked_does_not_wait_and_is_listed_apart
            a_schedule_wants_to_be_filled_until_it_was
            nothing_is_lost_or_doubled_in_a_random_life
        );
    };
    ($make:expr) => {
        $crate::schedule_conformance!(@all tests $make);
    };
    // In a test that has to prepare something for all of them.
    ($make:expr; in_turn) => {
        $crate::schedule_conformance!(@all in_turn $make);
    };
    ($make:expr; $name:ident) => {
        #[tokio::test]
        async fn $name() {
            $crate::schedule::conformance::$name(&$make().await).await;
        }
    };
}

const LEASE: Duration = Duration::from_secs(120);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1000)
}

fn slot(feed: i64, due: i64) -> Slot {
    Slot { feed: FeedId(feed), due_at: at(due), band: Band::Steady }
}

fn urgent(feed: i64, due: i64) -> Slot {
    Slot { band: Band::Urgent, ..slot(feed, due) }
}

async fn claim(schedule: &dyn Schedule, now: i64, limit: usize) -> Vec<i64> {
    claims(schedule, now, limit).await.iter().map(|claim| claim.feed.0).collect()
}

async fn claims(schedule: &dyn Schedule, now: i64, limit: usize) -> Vec<Claim> {
    schedule.claim_due(at(now), limit, LEASE).await.unwrap()
}

/// Puts and claims feeds, then parks them at one host until `until`, in this order.
async fn parked(schedule: &dyn Schedule, feeds: &[i64], until: i64) {
    for (rank, feed) in (0..).zip(feeds) {
        schedule.put(&[slot(*feed, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [*feed]);
        schedule.park(&[parking(*feed, until, rank)]).await.unwrap();
    }
}

fn parking(feed: i64, until: i64, rank: i64) -> Parking {
    Parking { feed: FeedId(feed), host: HostKey::new("busy:80"), until: at(until), band: Band::Steady, rank }
}

macro_rules! cases {
    ($($name:ident($schedule:ident) $body:block)+) => {
        $(
            #[expect(missing_docs, reason = "the names say it")]
            pub async fn $name($schedule: &dyn Schedule) $body
        )+
    };
}

cases! {
    what_is_due_is_claimed_earliest_first(schedule) {
        schedule.put(&[slot(1, 30), slot(2, 10), slot(3, 20), slot(4, 99)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 30, 2).await, [2, 3]);
        assert_eq!(claim(schedule, 30, 10).await, [1]);
        assert!(claim(schedule, 30, 10).await.is_empty());
    }

    a_claim_hides_a_feed_until_its_lease_ends(schedule) {
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        assert!(!claims(schedule, 0, 10).await[0].lease_expired);
        assert!(claim(schedule, 119, 10).await.is_empty());
        assert!(claims(schedule, 120, 10).await[0].lease_expired);
    }

    a_lease_is_extended_and_nothing_else_is(schedule) {
        schedule.put(&[slot(1, 0), slot(2, 0), slot(3, 50)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [1, 2]);
        schedule.lower(&[urgent(2, 5)], at(5)).await.unwrap();
        schedule.extend(&[FeedId(1), FeedId(2), FeedId(3), FeedId(4)], at(200)).await.unwrap();
        schedule.extend(&[FeedId(1)], at(100)).await.unwrap();
        assert_eq!(claim(schedule, 60, 10).await, [3], "it was not claimed");
        schedule.put(&[slot(2, 900)], at(70)).await.unwrap();
        assert_eq!(claim(schedule, 70, 10).await, [2], "a wake stays remembered");
        assert!(claim(schedule, 150, 10).await.is_empty(), "later, never earlier");
        assert_eq!(schedule.depth(at(150)).await.unwrap().feeds, 3);
        assert_eq!(claim(schedule, 200, 10).await, [2, 3, 1], "a woken one comes first");
    }

    put_ends_a_lease_and_sets_the_time(schedule) {
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        claim(schedule, 0, 1).await;
        schedule.put(&[slot(1, 500)], at(10)).await.unwrap();
        assert!(claim(schedule, 499, 10).await.is_empty());
        assert_eq!(claim(schedule, 500, 10).await, [1]);
    }

    lower_brings_forward_and_never_back(schedule) {
        schedule.put(&[slot(1, 50), slot(2, 50)], at(0)).await.unwrap();
        schedule.lower(&[slot(1, 20), slot(2, 90), slot(3, 20)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 20, 10).await, [1, 3]);
        assert_eq!(claim(schedule, 50, 10).await, [2]);
    }

    a_lower_under_a_lease_is_remembered_for_the_next_put(schedule) {
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        claim(schedule, 0, 1).await;
        schedule.lower(&[urgent(1, 5)], at(5)).await.unwrap();
        assert!(claim(schedule, 6, 10).await.is_empty());
        schedule.put(&[slot(1, 900)], at(7)).await.unwrap();
        assert_eq!(claim(schedule, 7, 10).await, [1]);
        schedule.put(&[slot(1, 900)], at(8)).await.unwrap();
        assert!(claim(schedule, 8, 10).await.is_empty());
    }

    a_put_after_the_lease_has_ended_undoes_no_wake(schedule) {
        parked(schedule, &[2], 300).await;
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [1]);
        // The claimant is stopped; its lease ends, and a person requests the feed.
        schedule.lower(&[urgent(1, 130)], at(130)).await.unwrap();
        schedule.put(&[slot(1, 900)], at(131)).await.unwrap();
        assert_eq!(claim(schedule, 131, 10).await, [1]);
        schedule.park(&[Parking { band: Band::Urgent, ..parking(1, 200, 9) }]).await.unwrap();
        schedule.put(&[slot(1, 900)], at(132)).await.unwrap();
        assert_eq!(claim(schedule, 200, 10).await.len(), 1);
        assert_eq!(schedule.depth(at(200)).await.unwrap().parked, 1, "it waits for its host like before");
    }

    only_put_off_moves_a_waiting_feed_to_a_later_time(schedule) {
        schedule.put(&[slot(1, 10), slot(2, 10)], at(0)).await.unwrap();
        schedule.put(&[slot(1, 900), slot(2, 5)], at(0)).await.unwrap();
        assert_eq!(schedule.waiting(None, 10).await.unwrap(), [(at(5), FeedId(2)), (at(10), FeedId(1))]);
        schedule.put_off(&[slot(1, 900)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 899, 10).await, [2]);
        assert_eq!(claim(schedule, 900, 1).await.len(), 1);
        parked(schedule, &[3], 9000).await;
        schedule.put_off(&[slot(3, 950)], at(901)).await.unwrap();
        assert_eq!(schedule.depth(at(901)).await.unwrap().parked, 0);
    }

    a_remembered_wake_survives_parking(schedule) {
        parked(schedule, &[1], 50).await;
        schedule.put(&[slot(2, 0)], at(0)).await.unwrap();
        claim(schedule, 0, 1).await;
        schedule.lower(&[urgent(2, 1)], at(1)).await.unwrap();
        schedule.park(&[parking(2, 60, 7)]).await.unwrap();
        assert_eq!(claim(schedule, 50, 1).await, [2]);
    }

    each_band_gets_its_share_of_a_claim_and_the_most_urgent_gets_what_is_left(schedule) {
        let many = |band: Band| (0..100).map(move |n| Slot { feed: FeedId(band as i64 * 100 + n), due_at: at(0), band });
        for band in Band::ALL {
            schedule.put(&many(band).collect::<Vec<_>>(), at(0)).await.unwrap();
        }
        let of_each = |claimed: &[i64]| Band::ALL.map(|of| claimed.iter().filter(|feed| **feed / 100 == of as i64).count());
        assert_eq!(of_each(&claim(schedule, 0, 20).await), [8, 4, 4, 4]);
        let urgent: Vec<FeedId> = many(Band::Urgent).map(|slot| slot.feed).collect();
        schedule.remove(&urgent).await.unwrap();
        assert_eq!(of_each(&claim(schedule, 0, 20).await), [0, 12, 4, 4]);
        let mut singly = Vec::new();
        for now in 0..64 {
            singly.extend(claim(schedule, now, 1).await);
        }
        let [_, prompt, steady, patient] = of_each(&singly);
        assert!(prompt > 30 && steady >= 10 && patient >= 10, "one at a time the shares are the same: {singly:?}");
    }

    only_the_most_urgent_band_is_claimed_where_that_is_asked_for(schedule) {
        schedule.put(&[slot(1, 0), urgent(2, 1), urgent(3, 2), urgent(4, 99)], at(0)).await.unwrap();
        let claimed = schedule.claim_urgent(at(5), 10, LEASE).await.unwrap();
        assert_eq!(claimed.iter().map(|claim| claim.feed.0).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(claim(schedule, 6, 10).await, [1]);
    }

    what_one_band_leaves_the_others_take(schedule) {
        schedule.put(&(0..50).map(|feed| slot(feed, 0)).collect::<Vec<_>>(), at(0)).await.unwrap();
        schedule.put(&[urgent(100, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 40).await.len(), 40);
        assert_eq!(claim(schedule, 0, 40).await.len(), 11);
    }

    of_a_band_the_oldest_is_claimed_whether_it_waits_or_its_lease_has_ended(schedule) {
        schedule.put(&[slot(1, 0), slot(2, 130)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [1]);
        assert_eq!(claim(schedule, 140, 1).await, [1], "its lease ended at 120");
        assert_eq!(claim(schedule, 140, 1).await, [2]);
    }

    a_removed_feed_is_never_claimed(schedule) {
        parked(schedule, &[3], 10).await;
        schedule.put(&[slot(1, 0), slot(2, 0)], at(0)).await.unwrap();
        schedule.remove(&[FeedId(1), FeedId(3), FeedId(99)]).await.unwrap();
        assert_eq!(claim(schedule, 1000, 10).await, [2]);
    }

    correct_adds_what_is_absent_and_lowers_what_is_too_late(schedule) {
        parked(schedule, &[5], 9000).await;
        schedule.put(&[slot(1, 100), slot(2, 9000), slot(3, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [3]);
        let truth = [slot(1, 10), slot(2, 10), slot(3, 10), slot(4, 10), slot(5, 10)];
        assert_eq!(schedule.correct(&truth, LEASE, at(10)).await.unwrap(), 2);
        assert_eq!(claim(schedule, 10, 10).await, [2, 4]);
    }

    correct_leaves_a_feed_that_was_claimed_late_to_its_lease(schedule) {
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 600, 10).await, [1]);
        assert_eq!(schedule.correct(&[slot(1, 0)], LEASE, at(610)).await.unwrap(), 0);
        assert!(claim(schedule, 610, 10).await.is_empty());
    }

    correct_ends_a_lease_that_is_longer_than_any(schedule) {
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [1]);
        schedule.extend(&[FeedId(1)], at(5000)).await.unwrap();
        assert_eq!(schedule.correct(&[slot(1, 0)], LEASE, at(10)).await.unwrap(), 1);
        assert_eq!(claim(schedule, 10, 10).await, [1]);
    }

    a_parked_feed_comes_out_at_its_hosts_head_lowest_rank_first(schedule) {
        parked(schedule, &[3, 1, 2], 50).await;
        assert!(claim(schedule, 49, 10).await.is_empty());
        let first = claims(schedule, 50, 10).await;
        assert_eq!(first.len(), 1, "{first:?}");
        assert_eq!(first[0].feed, FeedId(3));
        assert_eq!(first[0].parked_at, Some(HostKey::new("busy:80")));
    }

    unpark_brings_the_head_forward_only(schedule) {
        parked(schedule, &[1], 50).await;
        let host = HostKey::new("busy:80");
        schedule.unpark(&[(host.clone(), at(90))]).await.unwrap();
        schedule.unpark(&[(host.clone(), at(20)), (HostKey::new("idle:80"), at(0))]).await.unwrap();
        schedule.unpark(&[(host, at(30))]).await.unwrap();
        assert!(claim(schedule, 19, 10).await.is_empty());
        assert_eq!(claim(schedule, 20, 10).await, [1]);
    }

    a_host_s_head_is_as_early_and_as_urgent_as_any_of_its_feeds(schedule) {
        schedule.put(&[slot(1, 0), slot(2, 0), slot(3, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [1, 2, 3]);
        let urgent_one = Parking { band: Band::Urgent, ..parking(2, 50, 8) };
        schedule.park(&[parking(1, 60, 7), urgent_one, parking(3, 70, 9)]).await.unwrap();
        // A wake of less urgency takes nothing away.
        schedule.lower(&[slot(2, 55)], at(0)).await.unwrap();
        // Nor when it is given out again after its lease.
        for now in [50, 170] {
            let claimed = schedule.claim_urgent(at(now), 10, LEASE).await.unwrap();
            assert_eq!(claimed.iter().map(|claim| claim.feed.0).collect::<Vec<_>>(), [2], "{now}");
        }
    }

    claiming_a_head_rearms_it_while_others_stay_parked(schedule) {
        parked(schedule, &[1, 2], 50).await;
        assert_eq!(claim(schedule, 50, 10).await, [1]);
        schedule.put(&[slot(1, 9000)], at(51)).await.unwrap();
        assert!(claim(schedule, 169, 10).await.is_empty());
        assert_eq!(claim(schedule, 170, 10).await, [2]);
        schedule.park(&[parking(2, 180, 0)]).await.unwrap();
        assert_eq!(claim(schedule, 180, 10).await, [2]);
    }

    a_held_host_with_several_feeds_is_left_alone_until_its_hold_ends(schedule) {
        parked(schedule, &[1, 2], 50).await;
        assert_eq!(claim(schedule, 50, 10).await, [1]);
        schedule.park(&[parking(1, 9000, 0)]).await.unwrap();
        assert!(claim(schedule, 8999, 10).await.is_empty(), "not when its lease would have ended");
        assert_eq!(claim(schedule, 9000, 10).await, [1]);
        // Its host became free while it was claimed.
        schedule.unpark(&[(HostKey::new("busy:80"), at(9010))]).await.unwrap();
        schedule.park(&[parking(1, 20_000, 0)]).await.unwrap();
        assert_eq!(claim(schedule, 9010, 10).await, [1]);
    }

    only_a_claimed_feed_can_be_parked(schedule) {
        schedule.put(&[slot(1, 5)], at(0)).await.unwrap();
        schedule.park(&[parking(1, 9000, 0), parking(2, 9000, 0)]).await.unwrap();
        assert_eq!(claim(schedule, 5, 10).await, [1]);
        assert!(claim(schedule, 9000, 10).await.iter().all(|feed| *feed == 1));
    }

    a_woken_parked_feed_goes_first_and_when_it_is_wanted(schedule) {
        // Its host may be free again: the others wait for a minute that is not hot.
        parked(schedule, &[1, 2, 3], 50).await;
        schedule.lower(&[urgent(3, 20)], at(0)).await.unwrap();
        assert!(claim(schedule, 19, 10).await.is_empty());
        assert_eq!(claim(schedule, 20, 10).await, [3]);
        schedule.park(&[parking(3, 60, 0)]).await.unwrap();
        schedule.lower(&[urgent(2, 90)], at(30)).await.unwrap();
        assert!(claim(schedule, 59, 10).await.is_empty());
        assert_eq!(claim(schedule, 60, 1).await, [2]);
    }

    removing_the_last_parked_feed_removes_the_head(schedule) {
        parked(schedule, &[1], 50).await;
        schedule.put(&[slot(1, 700)], at(1)).await.unwrap();
        let depth = schedule.depth(at(1)).await.unwrap();
        assert_eq!((depth.parked, depth.next), (0, Some(at(700))));
        assert!(claim(schedule, 600, 10).await.is_empty());
        assert_eq!(claim(schedule, 700, 10).await, [1]);
    }

    depth_tells_feeds_due_parked_and_the_oldest(schedule) {
        parked(schedule, &[9], 50).await;
        schedule.put(&[slot(1, 5), slot(2, 10), slot(3, 99), urgent(4, 7)], at(0)).await.unwrap();
        let depth = schedule.depth(at(10)).await.unwrap();
        assert_eq!((depth.feeds, depth.due, depth.parked, depth.leased), (5, 4, 1, 0));
        assert_eq!(depth.next, Some(at(5)));
        assert_eq!(claim(schedule, 5, 10).await, [1]);
        assert_eq!(schedule.depth(at(10)).await.unwrap().leased, 1);
        schedule.put(&[slot(1, 5)], at(10)).await.unwrap();
        let depth = schedule.depth(at(10)).await.unwrap();
        assert_eq!(depth.leased, 0);
        assert_eq!(depth.oldest, [Some(at(7)), None, Some(at(5)), None]);
    }

    the_next_claim_may_be_of_a_head_or_of_a_lease_that_ends(schedule) {
        parked(schedule, &[9], 50).await;
        assert_eq!(schedule.depth(at(0)).await.unwrap().next, Some(at(50)));
        schedule.remove(&[FeedId(9)]).await.unwrap();
        schedule.put(&[slot(1, 0)], at(0)).await.unwrap();
        assert_eq!(claim(schedule, 0, 10).await, [1]);
        assert_eq!(schedule.depth(at(0)).await.unwrap().next, Some(at(120)));
        schedule.lower(&[urgent(1, 5)], at(5)).await.unwrap();
        assert_eq!(schedule.depth(at(5)).await.unwrap().next, Some(at(120)));
    }

    what_waits_is_listed_in_order_from_any_place(schedule) {
        // Many feeds in each millisecond, with ids whose numeric and text orders differ.
        let slots: Vec<Slot> = (1..120)
            .map(|n| Slot { band: Band::ALL[usize::try_from(n % 4).unwrap()], ..slot(n * n, n % 7 * 10) })
            .collect();
        schedule.put(&slots, at(0)).await.unwrap();
        let mut order: Vec<(Timestamp, FeedId)> = slots.iter().map(|slot| (slot.due_at, slot.feed)).collect();
        order.sort_unstable();
        assert_eq!(schedule.waiting(None, 1000).await.unwrap(), order);
        for limit in [1, 2, 17, 119] {
            for from in [0, 1, 16, 17, 50, 118] {
                let expected: Vec<_> = order[from + 1..].iter().take(limit).copied().collect();
                assert_eq!(schedule.waiting(Some(order[from]), limit).await.unwrap(), expected, "{limit} from {from}");
                let before: Vec<_> = order[..from].iter().rev().take(limit).copied().collect();
                let found = schedule.waiting_before(Some(order[from]), limit).await.unwrap();
                assert_eq!(found, before, "{limit} before {from}");
            }
        }
        let last: Vec<_> = order.iter().rev().take(20).copied().collect();
        assert_eq!(schedule.waiting_before(None, 20).await.unwrap(), last);
        let between = (at(15), FeedId(0));
        assert_eq!(schedule.waiting_before(Some(between), 1).await.unwrap(), order.iter().rfind(|(due, _)| *due == at(10)).copied().as_slice());
        assert_eq!(schedule.waiting(Some(between), 1).await.unwrap()[0], (at(20), FeedId(4)));
        assert!(schedule.waiting(Some((at(61), FeedId(0))), 1).await.unwrap().is_empty());
    }

    what_is_claimed_or_parked_does_not_wait_and_is_listed_apart(schedule) {
        parked(schedule, &[1, 2, 3], 50).await;
        schedule.put(&[slot(4, 0), slot(5, 0), slot(6, 9)], at(0)).await.unwrap();
        assert_eq!(schedule.taken(10).await.unwrap().len(), 3);
        assert_eq!(claim(schedule, 0, 10).await, [4, 5]);
        schedule.lower(&[urgent(5, 0)], at(0)).await.unwrap();
        let mut taken = schedule.taken(10).await.unwrap();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 3, 4, 5].map(FeedId));
        assert_eq!(schedule.taken(2).await.unwrap().len(), 2);
        assert_eq!(schedule.waiting(None, 10).await.unwrap(), [(at(9), FeedId(6))]);
        assert_eq!(schedule.waiting_before(None, 10).await.unwrap(), [(at(9), FeedId(6))]);
        schedule.put(&[slot(1, 30), slot(4, 8)], at(0)).await.unwrap();
        let waiting = [(at(8), FeedId(4)), (at(9), FeedId(6)), (at(30), FeedId(1))];
        assert_eq!(schedule.waiting(None, 10).await.unwrap(), waiting);
        assert_eq!(schedule.taken(10).await.unwrap().len(), 3);
    }

    a_schedule_wants_to_be_filled_until_it_was(schedule) {
        let mark = schedule.begin_rebuild().await.unwrap().unwrap();
        assert!(schedule.begin_rebuild().await.unwrap().is_some());
        assert!(schedule.finish_rebuild(&mark).await.unwrap());
        assert_eq!(schedule.begin_rebuild().await.unwrap(), None);
        assert!(schedule.finish_rebuild(&mark).await.unwrap());
    }

    nothing_is_lost_or_doubled_in_a_random_life(schedule) {
        let mut seed = 7_u64;
        let mut draw = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((seed >> 33) % below).unwrap()
        };
        schedule.put(&(0..50).map(|feed| slot(feed, feed)).collect::<Vec<_>>(), at(0)).await.unwrap();
        let mut last_claim = [-1_i64; 50];
        for now in 0..3000 {
            for claim in claims(schedule, now, 5).await {
                let feed = claim.feed.0;
                let gap = now - std::mem::replace(&mut last_claim[usize::try_from(feed).unwrap()], now);
                assert!(gap > 0, "feed {feed} was claimed twice at {now}");
                match draw(4) {
                    0 => schedule.park(&[parking(feed, now + draw(30), now)]).await.unwrap(),
                    1 => schedule.put(&[slot(feed, now + draw(60))], at(now)).await.unwrap(),
                    2 => schedule.lower(&[urgent(feed, now)], at(now)).await.unwrap(),
                    _ => {}
                }
            }
            schedule.unpark(&[(HostKey::new("busy:80"), at(now + draw(20)))]).await.unwrap();
            schedule.lower(&[urgent(draw(50), now)], at(now)).await.unwrap();
        }
        assert!(last_claim.iter().all(|last| 3000 - last < 600), "{last_claim:?}");
        assert_eq!(schedule.depth(at(3000)).await.unwrap().feeds, 50);
    }
}
