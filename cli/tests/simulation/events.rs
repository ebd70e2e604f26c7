//! The events of a simulated fleet: what the store has, and what was published to the exchange.

use std::collections::BTreeMap;

use common::queue::Announcement;
use common::url::FeedId;
use store::{Event, Events};

use crate::blocking;
use crate::lives::PATIENCE;
use crate::origin::entry_id;
use crate::rules::Rule;
use crate::world::World;

/// An event that was published to the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    epoch: String,
    seq: i64,
    feed: i64,
    entry: Option<String>,
}

impl Announced {
    pub(crate) fn of(message: &Announcement) -> Self {
        let body: serde_json::Value = serde_json::from_slice(&message.body).expect("an event in JSON");
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        Announced {
            epoch: text(&body["epoch"]).expect("an epoch"),
            seq: body["seq"].as_i64().expect("a number"),
            feed: body["feed_id"].as_i64().expect("a feed"),
            entry: text(&body["entry"]["id"]),
        }
    }

    fn is(&self, event: &Event, epochs: &[(String, i64)]) -> bool {
        let entry = event.entry.as_ref().map(|stored| &stored.entry.id);
        // The epoch in which it was numbered, or one that took it over.
        let numbered = epochs.iter().rposition(|(_, taken_over)| event.seq > *taken_over).unwrap_or(0);
        let epoch = epochs.iter().rposition(|(epoch, _)| *epoch == self.epoch);
        (self.seq, self.feed, self.entry.as_ref()) == (event.seq, event.feed_id.0, entry)
            && epoch.is_some_and(|epoch| epoch >= numbered)
    }
}

/// Every stored entry has one event, in the order of the document, and all of them were published to the exchange in
/// order.
pub(crate) fn judge_events(world: &World, relays: bool) {
    let (now, store, epochs) = (world.now(), world.store.current(), world.store.epochs());
    let mut next: BTreeMap<FeedId, u64> = BTreeMap::new();
    let (mut wrong, mut events) = (Vec::new(), Vec::new());
    let mut after = 0;
    loop {
        let page = blocking::run(store.events(after, 1_000)).expect("events");
        let Some(last) = page.items.last() else { break };
        after = last.seq;
        for event in page.items {
            if let (Some(stored), "entry.new") = (&event.entry, event.kind.as_str()) {
                let expected = next.entry(event.feed_id).or_insert(1);
                if stored.entry.id != entry_id(*expected) {
                    wrong.push(format!(
                        "feed {} has an event for {} in place of {expected}",
                        event.feed_id, stored.entry.id
                    ));
                }
                *expected += 1;
            }
            // The last ones are in transit.
            if event.at.after(PATIENCE) < now {
                events.push(event);
            }
        }
    }
    let mut judge = world.judge();
    for (feed, newest) in judge.newest() {
        let stored = next.get(&feed).map_or(0, |next| next - 1);
        if stored != newest {
            wrong.push(format!("feed {feed} has {stored} entries of {newest} that were reported"));
        }
    }
    let mut announced = judge.announced.iter();
    if let Some(missing) =
        events.iter().filter(|_| relays).find(|event| !announced.any(|other| other.is(event, &epochs)))
    {
        let (seq, feed) = (missing.seq, missing.feed_id);
        wrong.push(format!("the exchange did not receive event {seq} of feed {feed} in order"));
    }
    for what in wrong {
        judge.accuse(Rule::Lost, now, &what);
    }
}
