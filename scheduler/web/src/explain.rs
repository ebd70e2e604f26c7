//! Explains why a feed is due when it is, term by term, and what else keeps it waiting.

use common::calm::calm_subscribers;
use common::config::PolicyConfig;
use common::feed::{Feed, OverQuota};
use common::policy::{Audience, Category, Rule, Status, category, explain as explain_terms, next_open, sla_unmet};
use common::push::{FeedPush, PushKind, PushState, RELIABLE_AFTER};
use common::secrets::SecretError;
use common::time::Timestamp;
use common::words::{full, status as words_of};

use crate::error::ApiError;
use crate::readiness::dispatch_stopped;
use crate::state::Api;
use scheduler::poll::subject::subject;
use scheduler::wire::ExplainView;
use store::HostRefusal;

/// Explains when this feed is due and why.
pub(crate) async fn of(api: &Api, feed: &Feed) -> Result<ExplainView, ApiError> {
    let now = api.ops.clock.now();
    let fleet_paused = api.ops.store.paused().await?;
    let host = api.ops.store.hosts_among(std::slice::from_ref(&feed.host), now).await?.pop();
    let host_hold = host.as_ref().and_then(|host| host.hold_until).filter(|until| *until > now);
    let block = host.as_ref().and_then(|host| host.blocked_until).filter(|until| *until > now);
    let category = category(&subject(&api.ops.rules.get(), feed));
    let sealed = feed.credentials.as_ref().map(|sealed| api.ops.secrets.open(sealed, &feed.url).err());
    let unreadable = sealed.flatten();
    let gate_closed = api.ops.condition.gate.closed().map(|closed| closed.to_string());
    let queue_blocked = api.ops.jobs.blocked();
    let dispatch_stopped = dispatch_stopped(&api.ops);
    let config = api.ops.condition.config.get();
    let refresh_while_paused = config.scheduler.refresh_while_paused;
    let refusal = api.ops.condition.refusals.of(&feed.host);
    let policy = &config.policy;
    let waits = Waits {
        unreadable,
        fleet_paused,
        refresh_while_paused,
        gate_closed,
        queue_blocked,
        dispatch_stopped,
        host_hold,
        refusal,
        block,
        policy,
        now,
    };
    Ok(view(feed, category, &waits))
}

/// What may keep a feed waiting beside its own due time.
struct Waits<'a> {
    /// Why its login cannot be used here.
    unreadable: Option<SecretError>,
    fleet_paused: bool,
    refresh_while_paused: bool,
    /// Why no request starts at any host.
    gate_closed: Option<String>,
    /// Why no job is sent.
    queue_blocked: Option<String>,
    /// Why no feed is dispatched.
    dispatch_stopped: Option<String>,
    host_hold: Option<Timestamp>,
    /// Its host refuses us.
    refusal: Option<HostRefusal>,
    /// An operator's, of its host.
    block: Option<Timestamp>,
    policy: &'a PolicyConfig,
    now: Timestamp,
}

fn view(feed: &Feed, category: Category, waits: &Waits<'_>) -> ExplainView {
    let base = feed.state.last_polled.unwrap_or(feed.added);
    // What is not polled has no due time to explain. The terms are of the time when the stored category applied.
    let mut terms = if feed.due().is_some() { explain_terms(feed.category, base, &feed.terms) } else { Vec::new() };
    if feed.state.last_polled.is_some() {
        for term in terms.iter_mut().filter(|term| term.rule == Rule::Added) {
            term.text = "a person resumed it or added it again: at once".to_owned();
        }
    }
    if is_changed_since_its_poll(feed) {
        // The stored category may be that of the new audience.
        let named = format!("category {}", feed.category);
        for term in terms.iter_mut().filter(|term| matches!(term.rule, Rule::Category | Rule::Adaptive)) {
            term.text = term.text.replacen(&named, "its category when it was planned", 1);
        }
    }
    let notes = notes(feed, category, base, waits);
    let texts = terms.iter().map(|term| term.text.as_str()).chain(notes.iter().map(String::as_str));
    let text = texts.collect::<Vec<_>>().join("; ");
    ExplainView {
        id: feed.id,
        url: feed.url.to_string(),
        category,
        status: feed.status,
        base,
        last_polled: feed.state.last_polled,
        next_due: feed.next_due.filter(|_| feed.status == Status::Active),
        wake_at: feed.wake_at,
        terms,
        notes,
        text,
    }
}

fn is_changed_since_its_poll(feed: &Feed) -> bool {
    // A poll that a host rule postponed begins category F.
    let by_rule = feed.category == Category::F && feed.terms.iter().any(|term| term.rule == Rule::HostInterval);
    !by_rule && feed.state.last_polled.is_some_and(|polled| feed.audience_at > polled)
}

/// Says whether new entries are pushed, and what that means for polls.
fn push_note(push: &FeedPush) -> String {
    let by = match push.kind {
        PushKind::WebSub => "its hub",
        PushKind::RssCloud => "its cloud",
    };
    let until = push.lease_until.map(|until| format!(" until {}", full(until))).unwrap_or_default();
    match push.state {
        PushState::Verified if push.is_reliable() => {
            format!("{by} announces new entries reliably{until}: it is polled less often")
        }
        PushState::Verified if push.is_silent() => {
            format!("{by} accepted the subscription and never announced anything: it is polled as if there were none")
        }
        PushState::Verified => format!(
            "{by} announces new entries{until}; after {RELIABLE_AFTER} in a row that no poll found first it is polled less often ({} so far)",
            push.announced
        ),
        PushState::Pending => format!("{by} has not confirmed the subscription yet"),
        PushState::Denied => format!("{by} denied the subscription"),
        PushState::Lapsed => format!("{by} does not renew the subscription"),
        PushState::Unsubscribing => format!("the subscription with {by} is being ended"),
    }
}

fn notes(feed: &Feed, category: Category, base: Timestamp, waits: &Waits<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if !feed.over_quota.is_empty() {
        let OverQuota { entries, bytes, rows, .. } = feed.over_quota;
        notes.push(format!(
            "it has more than its quotas allow: {} entries were left out, {rows} old ones removed (quota.*)",
            entries + bytes
        ));
    }
    if feed.status != Status::Active {
        notes.push(match feed.due() {
            Some(due) => format!("it is {}; a ping has it polled once, at {}", feed.status.as_str(), full(due)),
            None => format!("it is {} and not polled", feed.status.as_str()),
        });
        return notes;
    }
    notes.extend(feed.push.as_ref().map(push_note));
    let calm = calm_subscribers(&feed.calm);
    if calm > 0 && feed.audience.subscribers > 0 {
        let Audience { subscribers, sla, important, interval, .. } = feed.audience;
        let is_set = interval.is_some() || !waits.policy.interval.is_zero();
        let polled = match (sla, important) {
            (true, _) => "because of its SLA no poll is moved for them",
            (false, true) => "because it is important no poll is moved for them",
            (false, false) if is_set => "because of the set interval no poll is moved for them",
            (false, false) => "it is polled before that too",
        };
        notes.push(format!("besides its {subscribers} other subscribers, {calm} want it at midnight: {polled}"));
    }
    if let Some(wake) = feed.wake_at {
        notes.push(format!("a refresh or ping wants it polled by {}", full(wake)));
    }
    if feed.wake_at.is_none() && is_changed_since_its_poll(feed) {
        notes.push(
            "its settings changed after its last poll: what makes its interval longer counts from the next poll on"
                .to_owned(),
        );
    }
    if let Some(until) = feed.state.hold_until.filter(|until| *until > waits.now) {
        notes.push(format!("its server asked for no requests for it before {}", full(until)));
    }
    if let Some(until) = waits.host_hold {
        notes.push(format!("its host {} is on hold until {}", feed.host, full(until)));
    }
    if let Some(refusal) = &waits.refusal {
        let status = refusal.status.map_or_else(String::new, |status| format!(" ({})", words_of(status)));
        notes.push(format!(
            "its host {} has refused most requests since {}{status}: one feed is tried after {}",
            feed.host,
            full(refusal.since),
            full(refusal.until)
        ));
    }
    if let Some(until) = waits.block {
        notes.push(format!("an operator blocked its host {} until {}", feed.host, full(until)));
    }
    let is_pushed = feed.push.as_ref().is_some_and(|push| push.spares_polls(waits.now));
    let unmet = feed.next_due.is_some_and(|due| sla_unmet(&feed.audience, base, due, waits.policy));
    if category == Category::A && unmet && !is_pushed {
        notes.push("its SLA cannot be met: publisher's wishes and back-off come first".to_owned());
    }
    let was_polled = feed.state.last_polled.is_some();
    let is_overdue = was_polled && feed.wake_at.is_none() && feed.next_due.is_some_and(|due| due <= waits.now);
    if waits.policy.hot_minutes && is_overdue && category != Category::A && next_open(waits.now, 0.0).is_some() {
        notes.push("it is due in a hot minute, and is polled in the next minutes that are not hot".to_owned());
    }
    if let Some(error) = &waits.unreadable {
        notes.push(format!("{error}; it waits for a worker that can open them"));
    }
    if waits.fleet_paused {
        notes.push(match waits.refresh_while_paused {
            true => "all polling is paused, but refreshes are served".to_owned(),
            false => "all polling is paused".to_owned(),
        });
    }
    if let Some(closed) = &waits.gate_closed {
        notes.push(format!("the host gate is {closed}"));
    }
    if let Some(blocked) = &waits.queue_blocked {
        notes.push(format!("no job is sent: {blocked}"));
    }
    notes.extend(waits.dispatch_stopped.clone());
    notes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::calm::CalmGroup;
    use common::policy::{PollState, Term};
    use common::url::FeedId;
    use store::FeedRef;

    use super::*;
    use crate::testing::Fleet;

    fn no_waits(policy: &PolicyConfig, now: Timestamp) -> Waits<'_> {
        Waits {
            unreadable: None,
            fleet_paused: false,
            refresh_while_paused: false,
            gate_closed: None,
            queue_blocked: None,
            dispatch_stopped: None,
            host_hold: None,
            refusal: None,
            block: None,
            policy,
            now,
        }
    }

    #[tokio::test]
    async fn only_a_feed_whose_polls_may_move_is_said_to_be_polled_before_midnight() {
        let fleet = Fleet::new().await;
        let id = FeedId(fleet.feed("https://example.com/feed.xml").await);
        let feed = fleet.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        let calm = vec![CalmGroup { zone: "Europe/Paris".parse().unwrap(), subscribers: 2 }];
        let config = common::config::defaults();
        let now = common::time::Clock::now(&*fleet.clock);
        let note = |audience: Audience, policy: &PolicyConfig| {
            let feed = Feed { audience, calm: calm.clone(), ..feed.clone() };
            let notes = notes(&feed, Category::C, now, &no_waits(policy, now));
            notes.into_iter().find(|note| note.contains("want it at midnight")).unwrap()
        };
        let plain = Audience { subscribers: 4, sla: false, important: false, interval: None, ..feed.audience };
        let hourly = Duration::from_secs(3600);
        assert!(note(plain, &config.policy).ends_with("it is polled before that too"));
        let set = PolicyConfig { interval: hourly, ..config.policy.clone() };
        for (audience, policy, why) in [
            (Audience { sla: true, ..plain }, &config.policy, "its SLA"),
            (Audience { important: true, ..plain }, &config.policy, "it is important"),
            (Audience { interval: Some(hourly), ..plain }, &config.policy, "the set interval"),
            (plain, &set, "the set interval"),
        ] {
            let note = note(audience, policy);
            assert!(note.contains(why) && note.ends_with("no poll is moved for them"), "{note}");
        }
    }

    #[tokio::test]
    async fn a_due_time_is_explained_with_the_category_that_it_was_planned_by() {
        let fleet = Fleet::new().await;
        let id = FeedId(fleet.feed("https://example.com/feed.xml").await);
        let feed = fleet.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        let config = common::config::defaults();
        let now = common::time::Clock::now(&*fleet.clock);
        let terms = vec![Term { rule: Rule::Category, due: now.after(Duration::from_secs(3600)) }];
        let feed = Feed { category: Category::D, terms, ..feed };
        // Its host got an interval since.
        let explained = view(&feed, Category::F, &no_waits(&config.policy, now));
        assert_eq!((explained.category, &*explained.terms[0].text), (Category::F, "category D: 1 h"));
        // Its audience was edited since its last poll, and its stored category with it.
        let state = PollState { last_polled: Some(now), ..feed.state };
        let feed = Feed { category: Category::C, audience_at: now.after(Duration::from_secs(60)), state, ..feed };
        let explained = view(&feed, Category::C, &no_waits(&config.policy, now));
        assert_eq!(explained.terms[0].text, "its category when it was planned: 1 h");
        // A rule of its host, which is newer than its last poll as well, plans it in category F.
        let terms = vec![Term { rule: Rule::HostInterval, due: now.after(Duration::from_secs(7200)) }];
        let feed = Feed { category: Category::F, terms, ..feed };
        let explained = view(&feed, Category::F, &no_waits(&config.policy, now));
        assert_eq!(explained.terms[0].text, "the host's rule: 2 h");
        assert!(!explained.notes.iter().any(|note| note.contains("settings changed")), "{:?}", explained.notes);
    }

    #[tokio::test]
    async fn an_sla_of_a_feed_that_is_polled_less_often_because_of_reliable_pushes_is_met() {
        let fleet = Fleet::new().await;
        let id = FeedId(fleet.feed("https://example.com/feed.xml").await);
        let feed = fleet.ops.feed(&FeedRef::Id(id)).await.unwrap().unwrap();
        let config = common::config::defaults();
        let now = common::time::Clock::now(&*fleet.clock);
        let waits = no_waits(&config.policy, now);
        let later = now.after(Duration::from_secs(3600));
        let is_unmet = |push: Option<FeedPush>| {
            let audience = Audience { sla: true, ..feed.audience };
            let feed = Feed { audience, next_due: Some(later), push, ..feed.clone() };
            notes(&feed, Category::A, now, &waits).iter().any(|note| note.starts_with("its SLA cannot be met"))
        };
        let reliable = FeedPush {
            kind: PushKind::WebSub,
            hub: "https://hub.example/".to_owned(),
            topic: "https://example.com/feed.xml".to_owned(),
            state: PushState::Verified,
            lease_until: Some(later),
            announced: RELIABLE_AFTER,
            missed: 0,
            deliveries: 9,
            heard_at: None,
            light_at: None,
        };
        assert!(is_unmet(None));
        assert!(!is_unmet(Some(reliable.clone())));
        assert!(is_unmet(Some(FeedPush { announced: RELIABLE_AFTER - 1, ..reliable.clone() })));
        assert!(is_unmet(Some(FeedPush { lease_until: Some(now), ..reliable })), "its lease has expired");
    }
}
