//! The gate of a cluster, in Redis: each question is one Lua script, and so one step for all processes. Starts and releases that come
//! while the server is busy with earlier ones share a script (`batch`).
//!
//! What is kept: a packed record a host (arrival times, hold, outstanding slots) and a feed (token, reported version,
//! starts without a report), each with an expiry, so that memory follows the hosts and feeds that are active; the mark
//! of an open gate, which names the run of the server's process, so that a dump or a restart never restores a mark, and
//! the gate's generation, so that a server that was away while another one was the gate is detected. All keys begin
//! with `{NAMESPACE}:gate:`: a worker's user needs no other.
//!
//! In a Redis Cluster the hosts are in [`GROUPS`] groups by a hash of their names, and their keys begin with
//! `{NAMESPACE:N/16}:gate:`, which puts each group into one slot. Each group has all of the above and is opened
//! separately; the rules are in the first. A feed's record is in the group of the host at which it is polled. A group
//! whose server is away refuses, and the others continue.

mod batch;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod failover_tests;
#[cfg(test)]
mod generation_tests;
mod group;
mod scripts;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ::redis::{FromRedisValue, Script, ScriptInvocation, Value};
use async_trait::async_trait;
use futures_util::future::join_all;

use self::batch::{Batches, Item, release_item};
use self::group::{Group, Loading};
use self::scripts::Scripts;
use super::{
    AcquireRequest, Acquired, ExtraRequest, GateError, GateUpkeep, HostGate, Isolation, LoadMark, Permit, Release,
    Reservation, ReserveRequest, STARTS_WITHOUT_REPORT, Ticket, UNOPENED_RETRY, fresh_nonce,
};
use crate::host::HostKey;
use crate::redis::{Part, RedisServer, ServerError, Slot, fault};
use crate::time::{Clock, SystemClock, Timestamp};
use crate::url::Version;

/// The number of groups in a cluster: as many masters can share the hosts. Every process must have the same number.
pub const GROUPS: usize = 16;

/// A gate for all processes that use the same server and namespace.
pub struct RedisGate {
    server: RedisServer,
    /// The requests that were out when the gate lost its memory have ended after this time.
    fetch_deadline: Duration,
    /// The time in scripts is the caller's, for tests, and not the server's.
    callers_time: bool,
    groups: Arc<[Group]>,
    parts: Vec<Part>,
    scripts: Scripts,
    batches: Arc<Batches>,
}

impl RedisGate {
    /// Creates a gate on this server, without any request to it yet. No permit has a deadline further ahead than
    /// `fetch_deadline`.
    pub fn new(server: RedisServer, fetch_deadline: Duration) -> Self {
        let parts = if server.is_cluster() { server.parts(GROUPS) } else { vec![server.whole()] };
        let groups: Arc<[Group]> = parts.iter().cloned().map(Group::new).collect();
        let batches = Arc::new(Batches::new(server.clone(), Arc::clone(&groups), scripts::batch()));
        RedisGate { server, fetch_deadline, callers_time: false, groups, parts, scripts: Scripts::new(), batches }
    }

    /// The same, with the time that each call is given in place of the server's own.
    #[cfg(any(test, feature = "conformance"))]
    #[must_use]
    pub fn on_callers_time(mut self) -> Self {
        self.callers_time = true;
        self
    }

    /// Returns the slot of a cluster at whose master a host's permits and holds are.
    pub fn slot_of(&self, host: &HostKey) -> Slot {
        self.groups[self.group_of(host)].part.slot
    }

    fn group_of(&self, host: &HostKey) -> usize {
        let hash = xxhash_rust::xxh3::xxh3_64(host.as_str().as_bytes());
        usize::try_from(hash % self.groups.len() as u64).unwrap_or_default()
    }

    /// Returns the items of each group that has any, with their places in the list.
    fn by_group<'a, T>(&self, items: &'a [T], host: impl Fn(&T) -> &HostKey) -> Vec<(&Group, Vec<(usize, &'a T)>)> {
        let mut groups: Vec<(&Group, Vec<(usize, &T)>)> = self.groups.iter().map(|group| (group, Vec::new())).collect();
        for (place, item) in items.iter().enumerate() {
            groups[self.group_of(host(item))].1.push((place, item));
        }
        groups.retain(|(_, items)| !items.is_empty());
        groups
    }

    /// Returns when a call that begins now is given up.
    fn gives_up(&self, now: Timestamp) -> i64 {
        now.after(self.server.patience()).millis()
    }

    /// Returns the time that scripts are given in place of the server's own.
    fn time(&self, now: Timestamp) -> Option<i64> {
        self.callers_time.then(|| now.millis())
    }

    /// Runs a start or a release in a host's group, with others of this process if the server is busy with earlier ones.
    async fn run(
        &self,
        action: &'static str,
        host: &HostKey,
        now: Timestamp,
        item: impl FnOnce(&Group) -> Item,
    ) -> Result<Value, GateError> {
        let group = self.group_of(host);
        let answer = self.batches.run(group, self.time(now), item(&self.groups[group])).await;
        answer.map_err(|error| self.failed(action, error))
    }

    /// Runs a script over the marks of a host's group and what `fill` adds, which gets the group for its keys.
    async fn eval<T: FromRedisValue>(
        &self,
        action: &'static str,
        host: &HostKey,
        script: &Script,
        now: Timestamp,
        fill: impl Fn(&mut ScriptInvocation<'_>, &Group) + Send + Sync,
    ) -> Result<T, GateError> {
        let group = &self.groups[self.group_of(host)];
        let answer = self.eval_in(group, script, now, |call| fill(call, group)).await;
        answer.map_err(|error| self.failed(action, error))
    }

    fn failed(&self, action: &'static str, error: ServerError) -> GateError {
        let (part, source) = (error.is_away() && self.groups.len() > 1, Box::new(error));
        if part { GateError::PartAway { action, source } } else { GateError::Backend { action, source } }
    }

    /// The same for a group.
    async fn eval_in<T: FromRedisValue>(
        &self,
        group: &Group,
        script: &Script,
        now: Timestamp,
        fill: impl Fn(&mut ScriptInvocation<'_>) + Send + Sync,
    ) -> Result<T, ServerError> {
        let answer = self.server.eval(group.part.slot, script, |call, run| {
            group.begin(call, run, self.time(now));
            fill(call);
        });
        answer.await
    }

    /// Runs a script in every group; the errors come last.
    async fn eval_all<T: FromRedisValue>(
        &self,
        script: &Script,
        now: Timestamp,
        fill: impl Fn(&mut ScriptInvocation<'_>, &Group) + Send + Sync,
    ) -> (Vec<(usize, T)>, Option<ServerError>) {
        let fill = &fill;
        let answers =
            self.groups.iter().map(async |group| self.eval_in::<T>(group, script, now, |call| fill(call, group)).await);
        let (mut known, mut failure) = (Vec::new(), None);
        for (place, answer) in join_all(answers).await.into_iter().enumerate() {
            match answer {
                Ok(answer) => known.push((place, answer)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (known, failure)
    }

    /// Reserves in one group, unless the call arrives after it was given up.
    async fn reserve_in(
        &self,
        group: &Group,
        requests: &[(usize, &ReserveRequest)],
        (now, gives_up): (Timestamp, i64),
    ) -> Result<Vec<Reservation>, ServerError> {
        let tickets: Vec<Ticket> = requests.iter().map(|_| Ticket(fresh_nonce())).collect();
        let answered = self.eval_in(group, &self.scripts.reserve, now, |call| {
            call.arg(gives_up);
            for ((_, request), ticket) in requests.iter().zip(&tickets) {
                call.key(group.host(&request.host));
                call.arg(millis(request.limits.gap)).arg(request.limits.burst).arg(request.limits.parallel);
                call.arg(request.expires.millis()).arg(&ticket.0.to_be_bytes()[..]);
            }
        });
        let answers: Vec<i64> = match answered.await {
            Ok(answers) => answers,
            // As if it were closed: the hosts of the other groups must not wait for these.
            Err(error) if error.is_away() && self.groups.len() > 1 => {
                vec![now.after(UNOPENED_RETRY).millis(); requests.len()]
            }
            Err(error) => return Err(error),
        };
        let reservation = |(answer, ticket)| match answer {
            0 => Reservation::Ticket(ticket),
            until => Reservation::Refused { until: Timestamp::from_millis(until) },
        };
        Ok(answers.into_iter().zip(tickets).map(reservation).collect())
    }

    async fn hold_in(
        &self,
        group: &Group,
        holds: &[(usize, &(HostKey, Timestamp))],
        now: Timestamp,
    ) -> Result<(), ServerError> {
        for some in holds.chunks(HOLDS_AT_ONCE) {
            let generation = self
                .eval_in(group, &self.scripts.hold, now, |call| {
                    call.key(&group.holds).arg(now.millis());
                    for (_, (host, until)) in some {
                        call.key(group.host(host)).arg(until.millis()).arg(host.as_str());
                    }
                })
                .await?;
            group.note_generation(generation);
        }
        Ok(())
    }

    /// Checks the servers, and learns the generations of all groups.
    async fn check_groups(&self, clock: &dyn Clock, must_answer: bool) -> Result<(), GateError> {
        let mut checked = self.server.check(&self.parts, ":gate:open", clock).await;
        let others = self.groups.iter().zip(&mut checked).filter(|(_, checked)| checked.is_none());
        join_all(others.map(async |(group, checked)| {
            let mark = self.server.eval(group.part.slot, &self.scripts.mark, |call, _| {
                call.key(&group.mark);
            });
            *checked = Some(mark.await);
        }))
        .await;
        for (group, checked) in self.groups.iter().zip(&checked) {
            if let Some(Ok(mark)) = checked {
                group.note_mark(mark.as_deref());
            }
        }
        fault(&checked, must_answer).map_or(Ok(()), |error| Err(self.failed("be used", error)))
    }
}

fn hash(rules: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(rules.as_bytes()))
}

/// Hosts that one script holds.
const HOLDS_AT_ONCE: usize = 500;

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl HostGate for RedisGate {
    async fn reserve(&self, requests: &[ReserveRequest], now: Timestamp) -> Result<Vec<Reservation>, GateError> {
        let groups = self.by_group(requests, |request| &request.host);
        // Not from the caller's time: its round may have taken long before it comes to this.
        let gives_up = if self.callers_time { i64::MAX } else { self.gives_up(SystemClock.now()) };
        let by = (now, gives_up);
        let answered = join_all(groups.iter().map(|(group, requests)| self.reserve_in(group, requests, by))).await;
        let mut reservations = vec![None; requests.len()];
        for ((_, requests), answers) in groups.iter().zip(answered) {
            let answers = answers.map_err(|error| self.failed("reserve places", error))?;
            for ((place, _), answer) in requests.iter().zip(answers) {
                reservations[*place] = Some(answer);
            }
        }
        let unanswered = Reservation::Refused { until: now.after(UNOPENED_RETRY) };
        Ok(reservations.into_iter().map(|reservation| reservation.unwrap_or(unanswered)).collect())
    }

    async fn acquire(&self, request: &AcquireRequest, now: Timestamp) -> Result<Acquired, GateError> {
        let item = |group: &Group| {
            Item::new("acquire")
                .key(group.host(&request.host))
                .key(group.feed(request.feed))
                .arg(millis(request.limits.gap))
                .arg(request.limits.burst)
                .arg(&request.ticket.0.to_be_bytes()[..])
                .arg(request.version.0)
                .arg(request.deadline.millis())
                .arg(&request.nonce.to_be_bytes()[..])
                .arg(STARTS_WITHOUT_REPORT)
                .arg(request.isolation as u8)
                .arg(self.gives_up(now))
                .arg(request.leased_until.millis())
        };
        let answer = self.run("start a request", &request.host, now, item).await?;
        Ok(match &answer {
            Value::Int(until) => Acquired::NotNow { until: Timestamp::from_millis(*until) },
            Value::BulkString(word) if word == b"granted" => Acquired::Granted(request.permit()),
            Value::BulkString(word) if word == b"crashed" => Acquired::Crashed(request.permit()),
            Value::BulkString(word) if word == b"suspect" => Acquired::Suspect(Isolation::FewSuspects),
            Value::BulkString(word) if word == b"alone" => Acquired::Suspect(Isolation::Alone),
            _ => Acquired::Reported,
        })
    }

    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        now: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError> {
        let nonce = fresh_nonce();
        let own_place = request.during.is_some_and(|permit| permit.host == *request.host);
        let until: Result<i64, GateError> = self
            .eval("start a request", request.host, &self.scripts.acquire_extra, now, |call, group| {
                call.key(group.host(request.host));
                call.arg(millis(request.limits.gap)).arg(request.limits.burst).arg(request.limits.parallel);
                call.arg(request.deadline.millis()).arg(&nonce.to_be_bytes()[..]).arg(own_place);
                call.arg(self.gives_up(now));
            })
            .await;
        let permit = Permit { host: request.host.clone(), feed: None, version: Version::default(), nonce };
        match until {
            Ok(0) => Ok(Ok(permit)),
            Ok(until) => Ok(Err(Timestamp::from_millis(until))),
            Err(error) => {
                let batches = Arc::clone(&self.batches);
                let (group, time) = (self.group_of(request.host), self.time(now));
                tokio::spawn(batches.release_unanswered(group, time, permit, request.deadline, now));
                Err(error)
            }
        }
    }

    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError> {
        let item = |group: &Group| release_item(group, permit, release, now);
        let answer = self.run("release a permit", &permit.host, now, item).await?;
        if let Value::Int(generation) = answer {
            self.groups[self.group_of(&permit.host)].note_generation(generation);
        }
        Ok(())
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, now: Timestamp) -> Result<(), GateError> {
        self.eval("cancel a ticket", host, &self.scripts.cancel, now, |call, group| {
            call.key(group.host(host)).arg(&ticket.0.to_be_bytes()[..]);
        })
        .await
    }

    async fn hold(&self, holds: &[(HostKey, Timestamp)], now: Timestamp) -> Result<(), GateError> {
        let groups = self.by_group(holds, |(host, _)| host);
        let held = join_all(groups.iter().map(|(group, holds)| self.hold_in(group, holds, now))).await;
        held.into_iter().collect::<Result<(), ServerError>>().map_err(|error| self.failed("hold hosts", error))
    }

    async fn block(&self, host: &HostKey, until: Option<Timestamp>, now: Timestamp) -> Result<(), GateError> {
        let blocked = self.eval("block a host", host, &self.scripts.block, now, |call, group| {
            call.key(group.host(host)).key(&group.holds).arg(until.unwrap_or_default().millis()).arg(host.as_str());
        });
        self.groups[self.group_of(host)].note_generation(blocked.await?);
        Ok(())
    }
}

#[async_trait]
impl GateUpkeep for RedisGate {
    async fn show_rules(&self, rules: &str) -> Result<(), GateError> {
        let first = &self.groups[0];
        let shown = self.eval_in(first, &self.scripts.show_rules, Timestamp::EPOCH, |call| {
            call.key(&first.rules).arg(hash(rules)).arg(rules);
        });
        shown.await.map_err(|error| self.failed("show the host rules", error))
    }

    async fn shown_rules(&self, known: Option<&str>) -> Result<Option<String>, GateError> {
        let first = &self.groups[0];
        let shown = self.eval_in(first, &self.scripts.shown_rules, Timestamp::EPOCH, |call| {
            call.key(&first.rules).arg(known.map_or_else(String::new, hash));
        });
        shown.await.map_err(|error| self.failed("tell the host rules", error))
    }

    async fn begin_loading(&self, now: Timestamp) -> Result<Option<LoadMark>, GateError> {
        let nonce = format!("{:016x}", fresh_nonce());
        let (begun, failure): (Vec<(usize, (String, i64, i64, i64))>, _) = self
            .eval_all(&self.scripts.begin_loading, now, |call, _| {
                call.arg(&nonce).arg(millis(self.fetch_deadline));
            })
            .await;
        let mut lost = Vec::new();
        for (group, (nonce, generation, begun, opens)) in begun {
            // Also of a gate that is not open yet: holds are put on it already, which the server before it lacks.
            self.groups[group].note_generation(generation);
            if !nonce.is_empty() {
                lost.push(Loading { group, nonce, begun, generation, opens });
            }
        }
        match failure {
            // Those that lost their memory do not wait for those that are away.
            Some(error) if lost.is_empty() => Err(self.failed("say whether it is open", error)),
            _ => Ok((!lost.is_empty()).then(|| LoadMark(group::to_text(&lost)))),
        }
    }

    fn opens_at(&self, mark: &LoadMark) -> Option<Timestamp> {
        let opens = group::of_text(&mark.0).iter().map(|loading| loading.opens).max();
        opens.map(Timestamp::from_millis)
    }

    fn is_lost(&self, mark: &LoadMark, host: &HostKey) -> bool {
        let own = self.group_of(host);
        group::of_text(&mark.0).iter().any(|loading| loading.group == own)
    }

    fn parts_lost(&self, mark: &LoadMark) -> (usize, usize) {
        (group::of_text(&mark.0).len(), self.groups.len())
    }

    async fn open(&self, mark: &LoadMark, now: Timestamp) -> Result<bool, GateError> {
        let loadings = group::of_text(&mark.0);
        let opened =
            join_all(loadings.iter().filter(|loading| loading.group < self.groups.len()).map(async |loading| {
                let group = &self.groups[loading.group];
                let opened = self.eval_in(group, &self.scripts.open, now, |call| {
                    call.arg(&loading.nonce).arg(loading.begun);
                });
                let opened: bool = opened.await?;
                if opened {
                    group.note_generation(loading.generation);
                }
                Ok(opened)
            }))
            .await;
        let opened: Result<Vec<bool>, ServerError> = opened.into_iter().collect();
        let opened = opened.map_err(|error| self.failed("open", error))?;
        Ok(!opened.is_empty() && opened.into_iter().all(|opened| opened))
    }

    async fn open_new(&self, now: Timestamp) -> Result<(), GateError> {
        let nonce = format!("{:016x}", fresh_nonce());
        let (opened, failure): (Vec<(usize, i64)>, _) = self
            .eval_all(&self.scripts.open_new, now, |call, _| {
                call.arg(&nonce);
            })
            .await;
        opened.into_iter().for_each(|(group, generation)| self.groups[group].note_generation(generation));
        failure.map_or(Ok(()), |error| Err(self.failed("open", error)))
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), GateError> {
        self.check_groups(clock, false).await
    }

    async fn check_whole(&self, clock: &dyn Clock) -> Result<(), GateError> {
        self.check_groups(clock, true).await
    }

    async fn held(&self, now: Timestamp) -> Result<usize, GateError> {
        let (held, failure): (Vec<(usize, usize)>, _) = self
            .eval_all(&self.scripts.held, now, |call, group| {
                call.key(&group.holds);
            })
            .await;
        match failure {
            Some(error) => Err(self.failed("count its holds", error)),
            None => Ok(held.into_iter().map(|(_, held)| held).sum()),
        }
    }
}
