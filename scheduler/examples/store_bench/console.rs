//! What the console's lists show, for measurements of the pages: subscriptions, changes, requeues, and hosts that rest.

use std::time::Duration;

use common::host::HostKey;
use common::outcome::FailureKind;
use common::secrets::Sealed;
use common::time::{Clock, SystemClock, Timestamp};
use common::url::FeedId;
use store::{
    AuditOutcome, Audited, DeliveryFormat, EventFilter, NewRequeue, NewSubscription, RefusedHost, RequeueFilter, Store,
    SubscriptionKind, Wish,
};

const SUBSCRIPTIONS: i64 = 5_000;
const CHANGES: u64 = 10_000;
const REQUEUES: i64 = 20;
/// Hosts that are blocked, and as many that refuse us; those are held, too.
const HOSTS: i64 = 50;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Adds them to a store with feeds, whose last event has the number `last`.
pub(crate) async fn fill(store: &dyn Store, last: i64) -> anyhow::Result<()> {
    let now = SystemClock.now();
    for number in 1..=SUBSCRIPTIONS {
        store.add_subscription(&subscription(number, last), now).await?;
    }
    let changes: Vec<Audited> = (1..=CHANGES).map(|number| change(number, now)).collect();
    for some in changes.chunks(500) {
        store.write_audit(some, &[]).await?;
    }
    for number in 1..=REQUEUES {
        let filter = RequeueFilter { feeds: vec![FeedId(number)], ..RequeueFilter::default() };
        let new = NewRequeue { filter, rate: 1.0, lift_penalties: false, by: "ann".into(), matched: 1, queued: 1 };
        // One that ran would wake a feed, and be gone from the list one day.
        if let Some(begun) = store.begin_requeue(&new, now).await? {
            store.cancel_requeue(begun.id, now).await?;
        }
    }
    rests(store, now).await
}

fn subscription(number: i64, last: i64) -> NewSubscription {
    let filter = EventFilter { feed: Some(FeedId(number)), ..EventFilter::default() };
    let wish = Wish {
        kind: SubscriptionKind::Webhook,
        target: format!("https://hook.example/{number}"),
        filter,
        format: DeliveryFormat::Feedfleet,
        batch: 100,
        delay: Duration::ZERO,
    };
    NewSubscription { wish, secret: Sealed::from_bytes(vec![7; 60]), by: "ann".into(), after: last, hub: None }
}

fn change(number: u64, now: Timestamp) -> Audited {
    Audited {
        at: now.before(Duration::from_secs(CHANGES - number)),
        who: "ann".into(),
        from: "192.0.2.1".into(),
        action: "POST /feeds/{id}/pause".into(),
        on: format!("feeds/{number}"),
        outcome: AuditOutcome::Done,
        status: 303,
        millis: number % 100,
    }
}

/// Blocks hosts, and has others refuse us.
async fn rests(store: &dyn Store, now: Timestamp) -> anyhow::Result<()> {
    let host = |number: i64| HostKey::new(&format!("b{number}.blogs.example:443"));
    let blocked: Vec<HostKey> = (0..HOSTS).map(host).collect();
    store.block_hosts(&blocked, Some(now.after(DAY))).await?;
    for number in HOSTS..2 * HOSTS {
        let refused = RefusedHost {
            host: &host(number),
            feed: FeedId(number),
            failure: FailureKind::Status,
            status: Some(403),
            first: DAY,
            ceiling: DAY,
            is_known: false,
        };
        store.refuse_host(&refused, now).await?;
    }
    Ok(())
}
