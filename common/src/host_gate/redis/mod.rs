//! The gate of a cluster, in Redis: each question is one Lua script, and so one step for all processes.
//!
//! What is kept: a packed record a host (arrival times, hold, outstanding places) and a feed (token, reported version, starts
//! without a report), each with an expiry, so that memory follows the hosts and feeds that are active; the mark of an open
//! gate, which names the run of the server's process, so that no dump and no restart brings one along. All keys begin with
//! `{NAMESPACE}:gate:`: a worker's user needs no other, and the braces keep them in one slot of a Redis cluster.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ::redis::{FromRedisValue, Script, ScriptInvocation, Value};
use async_trait::async_trait;
use rand::RngExt;

use super::{
    AcquireRequest, Acquired, ExtraRequest, GateError, HostGate, LoadMark, Permit, Release, Reservation,
    ReserveRequest, STARTS_WITHOUT_REPORT, Ticket,
};
use crate::host::HostKey;
use crate::redis::{RedisServer, ServerError};
use crate::time::Timestamp;
use crate::url::{FeedId, Version};

/// A gate for all processes that use the same server and namespace.
pub struct RedisGate {
    server: RedisServer,
    /// The requests that were out when the gate lost its memory are over after this.
    fetch_deadline: Duration,
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
            call.key(&self.mark).key(&self.loading).arg(run).arg(now.millis());
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

/// A name that no other ticket or permit has.
fn fresh() -> u64 {
    rand::rng().random()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl HostGate for RedisGate {
    async fn reserve(&self, requests: &[ReserveRequest], now: Timestamp) -> Result<Vec<Reservation>, GateError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let tickets: Vec<Ticket> = requests.iter().map(|_| Ticket(fresh())).collect();
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
        let nonce = fresh();
        let answer: Value = self
            .eval("start a request", &self.scripts.acquire, now, |call| {
                call.key(self.host(&request.host)).key(self.feed(request.feed));
                call.arg(millis(request.limits.gap)).arg(request.limits.burst);
                call.arg(&request.ticket.0.to_be_bytes()[..]).arg(request.version.0);
                call.arg(request.deadline.millis()).arg(&nonce.to_be_bytes()[..]).arg(STARTS_WITHOUT_REPORT);
            })
            .await?;
        let permit =
            || Permit { host: request.host.clone(), feed: Some(request.feed), version: request.version, nonce };
        Ok(match &answer {
            Value::Int(until) => Acquired::NotNow { until: Timestamp::from_millis(*until) },
            Value::BulkString(word) if word == b"granted" => Acquired::Granted(permit()),
            Value::BulkString(word) if word == b"crashed" => Acquired::Crashed(permit()),
            _ => Acquired::Reported,
        })
    }

    async fn acquire_extra(
        &self,
        request: &ExtraRequest<'_>,
        now: Timestamp,
    ) -> Result<Result<Permit, Timestamp>, GateError> {
        let nonce = fresh();
        let own_place = request.during.is_some_and(|permit| permit.host == *request.host);
        let until: i64 = self
            .eval("start a request", &self.scripts.acquire_extra, now, |call| {
                call.key(self.host(request.host));
                call.arg(millis(request.limits.gap)).arg(request.limits.burst).arg(request.limits.parallel);
                call.arg(request.deadline.millis()).arg(&nonce.to_be_bytes()[..]).arg(own_place);
            })
            .await?;
        Ok(match until {
            0 => Ok(Permit { host: request.host.clone(), feed: None, version: Version::default(), nonce }),
            until => Err(Timestamp::from_millis(until)),
        })
    }

    async fn release(&self, permit: &Permit, release: Release, now: Timestamp) -> Result<(), GateError> {
        self.eval("give back a permit", &self.scripts.release, now, |call| {
            call.key(self.host(&permit.host));
            call.arg(&permit.nonce.to_be_bytes()[..]).arg(release.next_start.unwrap_or_default().millis());
            if let Some(feed) = permit.feed {
                call.key(self.feed(feed)).arg(permit.version.0);
                call.arg(release.remember_until.unwrap_or_default().millis());
            }
        })
        .await
    }

    async fn cancel(&self, host: &HostKey, ticket: Ticket, now: Timestamp) -> Result<(), GateError> {
        self.eval("give back a ticket", &self.scripts.cancel, now, |call| {
            call.key(self.host(host)).arg(&ticket.0.to_be_bytes()[..]);
        })
        .await
    }

    async fn hold(&self, host: &HostKey, until: Timestamp, now: Timestamp) -> Result<(), GateError> {
        self.eval("hold a host", &self.scripts.hold, now, |call| {
            call.key(self.host(host)).key(&self.holds).arg(until.millis()).arg(host.as_str());
        })
        .await
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
        let nonce = format!("{:016x}", fresh());
        let begun: Option<String> = self
            .eval("say whether it is open", &self.scripts.begin_loading, now, |call| {
                call.arg(&nonce).arg(millis(self.fetch_deadline));
            })
            .await?;
        Ok(begun.map(|nonce| LoadMark(format!("{nonce} {}", now.millis()))))
    }

    async fn open(&self, mark: &LoadMark, now: Timestamp) -> Result<bool, GateError> {
        let (nonce, begun) = mark.0.split_once(' ').unwrap_or_default();
        self.eval("open", &self.scripts.open, now, |call| {
            call.arg(nonce).arg(begun);
        })
        .await
    }

    async fn open_new(&self, now: Timestamp) -> Result<(), GateError> {
        let nonce = format!("{:016x}", fresh());
        self.eval("open", &self.scripts.open_new, now, |call| {
            call.arg(&nonce);
        })
        .await
    }

    async fn check(&self, now: Timestamp) -> Result<(), GateError> {
        self.server.check(now).await.map_err(|error| failed("be used", error))
    }

    async fn held(&self, now: Timestamp) -> Result<usize, GateError> {
        self.eval("count its holds", &self.scripts.held, now, |call| {
            call.key(&self.holds);
        })
        .await
    }
}
