//! Lists of hosts by pace and by state. The store has no index for these, but nearly all hosts have the usual pace and state.
//!
//! Each host has a rank, which is zero for usual hosts. All other hosts are known here and sorted in memory, before or after the
//! usual ones, which the store lists by name.

use std::collections::HashSet;

use common::host::{HostKey, HostLimits};
use common::time::Timestamp;

use crate::error::ApiError;
use crate::state::Api;
use scheduler::ops;
use scheduler::ops::hosts::HostState;
use store::{HostQuery, Page};

/// Ranked hosts that are read for a page, and pages of other hosts that are read for one: it ends there, even with fewer hosts.
const MOST_RANKED: usize = 1_000;
const MOST_PAGES: usize = 3;

/// A host with its rank, in the order of the list.
type Ranked = (i64, HostKey);

/// Returns hosts by pace, the slowest first. A rule for a domain ranks the domain itself, and not the hosts below it: the store cannot
/// find these by their domain.
pub(super) fn by_pace(api: &Api) -> Vec<Ranked> {
    let rules = api.ops.rules.get();
    let millis = |limits: HostLimits| i64::try_from(limits.gap.as_millis()).unwrap_or(i64::MAX);
    let usual = millis(rules.limits(None));
    let mut ranked = Vec::new();
    for rule in rules.all() {
        let rank = usual - millis(rules.limits(Some(rule)));
        let domain = rule.domain();
        let keys = match rule.shared {
            true => vec![rule.shared_key()],
            // As lists have the rule itself, and the host.
            false => vec![HostKey::new(&domain), HostKey::new(&format!("{domain}:443"))],
        };
        ranked.extend(keys.into_iter().filter(|_| rank != 0).map(|host| (rank, host)));
    }
    in_order(ranked.into_iter())
}

/// Returns the hosts that are not polled: blocked ones, those that refuse us, those that are held.
pub(super) async fn by_state(api: &Api, now: Timestamp) -> Result<Vec<Ranked>, ApiError> {
    let blocks = api.ops.store.host_orders(None).await?.unwrap_or_default().blocks.into_iter();
    let blocked = blocks.filter(|(_, until)| *until > now).map(|(host, _)| (-3, host));
    let refusing = api.ops.condition.refusals.list().into_iter().map(|refusal| (-2, refusal.host));
    let held = api.ops.store.holds(now).await?.into_iter().map(|(host, _)| (-1, host));
    Ok(in_order(blocked.chain(refusing).chain(held)))
}

/// Each host once, with its lowest rank.
fn in_order(ranked: impl Iterator<Item = Ranked>) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = ranked.collect();
    ranked.sort_unstable();
    let mut seen = HashSet::new();
    ranked.retain(|(_, host)| seen.insert(host.clone()));
    ranked
}

/// Reads a page of all hosts by rank and name.
pub(super) async fn page(
    api: &Api,
    mut ranked: Vec<Ranked>,
    (after, reversed): (Option<String>, bool),
    limit: usize,
) -> Result<Page<HostState>, ApiError> {
    if reversed {
        ranked.reverse();
    }
    let place = after.as_deref().map(place).transpose()?;
    let is_behind = |one: &Ranked| place.as_ref().is_none_or(|place| if reversed { one < place } else { one > place });
    let is_first = |rank: i64| if reversed { rank > 0 } else { rank < 0 };
    let (first, last): (Vec<Ranked>, Vec<Ranked>) =
        ranked.iter().filter(|one| is_behind(one)).cloned().partition(|(rank, _)| is_first(*rank));
    let mut found = Vec::new();
    // Where the list was looked at: behind this host.
    let mut looked = known(api, &first, limit, &mut found).await?;
    if looked.is_none() && place.as_ref().is_none_or(|(rank, _)| *rank == 0 || is_first(*rank)) {
        let apart: HashSet<&HostKey> = ranked.iter().map(|(_, host)| host).collect();
        let behind = place.as_ref().filter(|(rank, _)| *rank == 0).map(|(_, host)| HostQuery::behind(host));
        looked = others(api, &apart, (behind, reversed), limit, &mut found).await?;
    }
    if looked.is_none() {
        looked = known(api, &last, limit, &mut found).await?;
    }
    if found.len() > limit {
        found.truncate(limit);
        looked = found.last().map(|(ranked, _)| ranked.clone());
    }
    let next = looked.map(|(rank, host)| format!("{rank}.{}", HostQuery::behind(&host)));
    Ok(Page { items: found.into_iter().map(|(_, state)| state).collect(), next })
}

/// Adds ranked hosts of which something is known, until there is one more than a page has; returns the last that was looked at, unless
/// it was the last of all.
async fn known(
    api: &Api,
    ranked: &[Ranked],
    limit: usize,
    found: &mut Vec<(Ranked, HostState)>,
) -> Result<Option<Ranked>, ApiError> {
    for (number, part) in ranked.chunks(limit + 1).enumerate() {
        if found.len() > limit || number * limit >= MOST_RANKED {
            return Ok(ranked.get((number * (limit + 1)).saturating_sub(1)).cloned());
        }
        let hosts: Vec<HostKey> = part.iter().map(|(_, host)| host.clone()).collect();
        for state in ops::hosts::among(&api.ops, &hosts).await? {
            let is_known = state.row.feeds > 0
                || state.row.hold_until.is_some()
                || state.row.blocked_until.is_some()
                || state.refusal.is_some()
                // Lists have an operator's rule under its domain.
                || (state.by_operator && !state.row.host.as_str().contains(':'));
            let rank = part.iter().find(|(_, host)| *host == state.row.host).filter(|_| is_known);
            found.extend(rank.map(|ranked| (ranked.clone(), state)));
        }
    }
    Ok(None)
}

/// Adds hosts by name but for those that are ranked, in the same way.
async fn others(
    api: &Api,
    apart: &HashSet<&HostKey>,
    (mut after, reversed): (Option<String>, bool),
    limit: usize,
    found: &mut Vec<(Ranked, HostState)>,
) -> Result<Option<Ranked>, ApiError> {
    let mut last = None;
    for _ in 0..MOST_PAGES {
        if found.len() > limit {
            return Ok(last);
        }
        let rows = u32::try_from(limit + 1).unwrap_or(u32::MAX);
        let query = HostQuery::all(after, rows).turned(reversed);
        let page = ops::hosts::page(&api.ops, &query).await?;
        last = page.items.last().map(|state| (0, state.row.host.clone())).or(last);
        let others = page.items.into_iter().filter(|state| !apart.contains(&state.row.host));
        found.extend(others.map(|state| ((0, state.row.host.clone()), state)));
        after = page.next;
        if after.is_none() {
            return Ok(None);
        }
    }
    Ok(last)
}

/// Reads the place that a cursor names.
fn place(cursor: &str) -> Result<Ranked, ApiError> {
    let place = cursor.split_once('.').and_then(|(rank, host)| Some((rank.parse().ok()?, HostQuery::named(host)?)));
    place.ok_or_else(|| ApiError::bad("after must be a cursor of this list"))
}
