//! The gate of a cluster, in Redis: each question is one Lua script, and so one step for all processes.
//!
//! What is kept: a packed record a host (arrival times, hold, outstanding places) and a feed (token, reported version, starts
//! without a report), each with an expiry, so that memory follows the hosts and feeds that are active; the mark of an open
//! gate, which names the run of the server's process, so that no dump and no restart brings one along, and the gate's
//! generation, so that a server that was away while another one was the gate is found out. All keys begin with
//! `{NAMESPACE}:gate:`: a worker's user needs no other, and the braces keep them in one slot of a Redis cluster.

#[cfg(test)]
mod failover_tests;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ::redis::{FromRedisValue, Script, ScriptInvocation, Value};
use async_trait::async_trait;

use super::{
    AcquireRequest, Acquired, ExtraRequest, GateError, HostGate, Isolation, LoadMark, Permit, Release, Reservation,
    ReserveRequest, STARTS_WITHOUT_REPORT, Ticket, fresh_nonce,
};
use crate::host::HostKey;
use crate::redis::{RedisServer, ServerError};
use crate::time::{Clock, Timestamp};
use crate::url::{FeedId, Version};

/// A gate for all processes that use the same server and namespace.
pub struct RedisGate {
    server: RedisServer,
    /// The requests that were out when the gate lost its memory are over after this.
    fetch_deadline: Duration,
    /// The time in scripts is the caller's, for tests, and not the server's.
    callers_time: bool,
    /// The newest generation of the gate that this process has seen.
    generation: AtomicI64,
    prefix: String,
    mark: String,
    loading: String,
    holds: String,
    rules: [String; 2],
    scripts: Scripts,
}

struct Scripts {
    reserve: Script,
    acquire: Script,
    acquire_extra: Script,
    release: Script,
    cancel: Script,
    hold: Script,
    block: Script,
    show_rules: Script,
    shown_rules: Script,
    held: Script,
    begin_loading: Script,
    open: Script,
    open_new: Script,
}

/// A script after the functions that it uses.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

impl RedisGate {
    /// A gate on this server; nothing is asked of it yet. No permit has a deadline further ahead than `fetch_deadline`.
    pub fn new(server: RedisServer, fetch_deadline: Duration) -> Self {
        let prefix = format!("{{{}}}:gate:", server.namespace());
        RedisGate {
            server,
            fetch_deadline,
            callers_time: false,
            generation: AtomicI64::new(0),
            mark: format!("{prefix}open"),
            loading: format!("{prefix}loading"),
            holds: format!("{prefix}holds"),
            rules: [format!("{prefix}rules"), format!("{prefix}rules-hash")],
            prefix,
            scripts: Scripts {
                reserve: script!("host.lua", "reserve.lua"),
                acquire: script!("host.lua", "feed.lua", "acquire.lua"),
                acquire_extra: script!("host.lua", "acquire_extra.lua"),
                release: script!("host.lua", "feed.lua", "release.lua"),
                cancel: script!("host.lua", "cancel.lua"),
                hold: script!("host.lua", "hold.lua"),
                block: script!("host.lua", "block.lua"),
                show_rules: script!("show_rules.lua"),
                shown_rules: script!("shown_rules.lua"),
                held: script!("host.lua", "held.lua"),
                begin_loading: script!("host.lua", "begin_loading.lua"),
                open: script!("host.lua", "open.lua"),
                open_new: script!("host.lua", "open_new.lua"),
            },
        }
    }

    /// The same, with the time that each call is given in place of the server's own.
    #[cfg(any(test, feature = "conformance"))]
    #[must_use]
    pub fn on_callers_time(mut self) -> Self {
        self.callers_time = true;
        self
    }

    /// Remembers a generation of the gate that was seen: an older one counts as lost from here on.
    fn note_generation(&self, seen: i64) {
        self.generation.fetch_max(seen, Ordering::Relaxed);
    }

    /// When a call that begins now is given up.
    fn gives_up(&self, now: Timestamp) -> i64 {
        now.after(self.server.patience()).millis()
    }

    fn host(&self, host: &HostKey) -> String {
        format!("{}host:{host}", self.prefix)
    }

    fn feed(&self, feed: FeedId) -> String {
        format!("{}feed:{}", self.prefix, feed.0)
    }

    /// Runs a script over the marks and what `fill` adds.
    async fn eval<T: FromRedisValue>(
        &self,
        action: &'static str,
        script: &Script,
        now: Timestamp,
        fill: impl Fn(&mut ScriptInvocation<'_>) + Send + Sync,
    ) -> Result<T, GateError> {
        let answer = self.server.eval(script, |call, run| {
            call.key(&self.mark).key(&self.loading).arg(run);
            if self.callers_time {
                call.arg(now.millis())
            } else {
                call.arg("")
            };
            call.arg(self.generation.load(Ordering::Relaxed));
            fill(call);
        });
        answer.await.map_err(|error| failed(action, error))
    }
}

fn failed(action: &'static str, error: ServerError) -> GateError {
    GateError::Backend { action, source: Box::new(error) }
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
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let tickets: Vec<Ticket> = requests.iter().map(|_| Ticket(fresh_nonce())).collect();
        let answers: Vec<i64> = self
            .eval("reserve places", &self.scripts.reserve, now, |call| {
                for (request, ticket) in requests.iter().zip(&tickets) {
                    call.key(self.host(&request.host));
                    call.arg(millis(request.limits.gap)).arg(request.limits.burst).arg(request.limits.parallel);
                    call.arg(request.expires.millis()).arg(&ticket.0.to_be_bytes()[..]);
                }
            })
            .await?;
        let reservation = |(answer, ticket)| match answer {
            0 => Reservation::Ticket(ticket),
            until => Reservation::Refused { until: Timestamp::from_millis(until) },
        };
        Ok(answers.into_iter().zip(tickets).map(reservation).collect())
    }

    async fn acquire(&self, request: &AcquireRequest, now: Timestamp) -> Result<Acquired, GateError> {
        let answer: Value = self
            .eval("start a request", &self.scripts.acquire, now, |call| {
                call.key(self.host(&request.host)).key(self.feed(request.feed));
                call.arg(millis(request.limits.gap)).arg(request.limits.burst);
                call.arg(&request.ticket.0.to_be_bytes()[..]).arg(request.version.0);
                call.arg(request.deadline.millis()).arg(&request.nonce.to_be_bytes()[..]).arg(STARTS_WITHOUT_REPORT);
                call.arg(request.isolation as u8).arg(self.gives_up(now));
            })
            .await?;
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
        let until: i64 = self
            .eval("start a request", &self.scripts.acquire_extra, now, |call| {
                call.key(self.host(request.host));
                call.arg(millis(request.limits.gap)).arg(request.limits.burst).arg(request.limits.parallel);
                call.arg(request.deadline.millis()).arg(&nonce.to_be_bytes()[..]).arg(own_place);
                call.arg(self.gives_up(now));
            })
            .await?;
        Ok(match until {
            0 => Ok(Permit { host: request.host.clone(), feed: None, version: Version::default(), nonce }),
            until => Err(Timestamp::from_millis(until)),
        })
    }

    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError> {
        self.eval("release a permit", &self.scripts.release, now, |call| {
            call.key(self.host(&permit.host));
            let next_start_in = release.next_start_in.unwrap_or_default().as_millis();
            call.arg(&permit.nonce.to_be_bytes()[..]).arg(u64::try_from(next_start_in).unwrap_or(u64::MAX));
            if let Some(feed) = permit.feed {
                call.key(self.feed(feed)).arg(permit.version.0);
                call.arg(release.remember_until.unwrap_or_default().millis());
            }
        })
        .await
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, now: Timestamp) -> Result<(), GateError> {
        self.eval("cancel a ticket", &self.scripts.cancel, now, |call| {
            call.key(self.host(host)).arg(&ticket.0.to_be_bytes()[..]);
        })
        .await
    }

    async fn hold(&self, holds: &[(HostKey, Timestamp)], now: Timestamp) -> Result<(), GateError> {
        for some in holds.chunks(HOLDS_AT_ONCE) {
            let () = self
                .eval("hold hosts", &self.scripts.hold, now, |call| {
                    call.key(&self.holds);
                    for (host, until) in some {
                        call.key(self.host(host)).arg(until.millis()).arg(host.as_str());
                    }
                })
                .await?;
        }
        Ok(())
    }

    async fn block(&self, host: &HostKey, until: Option<Timestamp>, now: Timestamp) -> Result<(), GateError> {
        self.eval("block a host", &self.scripts.block, now, |call| {
            call.key(self.host(host)).key(&self.holds).arg(until.unwrap_or_default().millis()).arg(host.as_str());
        })
        .await
    }

    async fn show_rules(&self, rules: &str) -> Result<(), GateError> {
        self.eval("show the host rules", &self.scripts.show_rules, Timestamp::EPOCH, |call| {
            call.key(&self.rules).arg(hash(rules)).arg(rules);
        })
        .await
    }

    async fn shown_rules(&self, known: Option<&str>) -> Result<Option<String>, GateError> {
        self.eval("tell the host rules", &self.scripts.shown_rules, Timestamp::EPOCH, |call| {
            call.key(&self.rules).arg(known.map_or_else(String::new, hash));
        })
        .await
    }

    async fn begin_loading(&self, now: Timestamp) -> Result<Option<LoadMark>, GateError> {
        let nonce = format!("{:016x}", fresh_nonce());
        let begun: (String, i64, i64) = self
            .eval("say whether it is open", &self.scripts.begin_loading, now, |call| {
                call.arg(&nonce).arg(millis(self.fetch_deadline));
            })
            .await?;
        let (nonce, generation, begun) = begun;
        if nonce.is_empty() {
            self.note_generation(generation);
            return Ok(None);
        }
        Ok(Some(LoadMark(format!("{nonce} {begun} {generation}"))))
    }

    async fn open(&self, mark: &LoadMark, now: Timestamp) -> Result<bool, GateError> {
        let mut words = mark.0.split(' ');
        let [nonce, begun, generation] = [(); 3].map(|()| words.next().unwrap_or_default());
        let opened = self
            .eval("open", &self.scripts.open, now, |call| {
                call.arg(nonce).arg(begun);
            })
            .await?;
        if opened {
            self.note_generation(generation.parse().unwrap_or_default());
        }
        Ok(opened)
    }

    async fn open_new(&self, now: Timestamp) -> Result<(), GateError> {
        let nonce = format!("{:016x}", fresh_nonce());
        let generation = self
            .eval("open", &self.scripts.open_new, now, |call| {
                call.arg(&nonce);
            })
            .await?;
        self.note_generation(generation);
        Ok(())
    }

    async fn check(&self, clock: &dyn Clock) -> Result<(), GateError> {
        let mark = self.server.check_reading(&self.mark, clock).await.map_err(|error| failed("be used", error))?;
        // The fourth word; one of a program that knows no generations has none.
        let generation = mark.as_deref().and_then(|mark| mark.split(' ').nth(3)).and_then(|word| word.parse().ok());
        self.note_generation(generation.unwrap_or_default());
        Ok(())
    }

    async fn held(&self, now: Timestamp) -> Result<usize, GateError> {
        self.eval("count its holds", &self.scripts.held, now, |call| {
            call.key(&self.holds);
        })
        .await
    }
}
