//! The parameters of a list of feeds, which the API and the search page share.

use common::host::HostKey;
use common::host_name::HostName;
use common::labels::{LONGEST_EXTERNAL_ID, LONGEST_LABEL};
use common::outcome::FailureKind;
use common::policy::{Category, Status};
use serde::Deserialize;

use crate::error::ApiError;
use crate::pages::is_reversed;
use crate::request::limit;
use crate::state::Api;
use scheduler::ops;
use store::{FeedQuery, FeedSort, HostQuery};

/// The parameters of `GET /feeds`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ListParams {
    pub(crate) q: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) failure: Option<String>,
    pub(crate) failing: Option<String>,
    pub(crate) penalised: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) external_id: Option<String>,
    pub(crate) sort: Option<String>,
    pub(crate) order: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) limit: Option<String>,
}

impl ListParams {
    /// Returns the query for the store, limited to what the caller may see; with `usual` feeds when no `limit` is
    /// given.
    pub(crate) async fn query(self, api: &Api, usual: u32) -> Result<FeedQuery, ApiError> {
        let sort = named("sort", self.sort.as_deref(), &FeedSort::ALL, FeedSort::as_str)?.unwrap_or_default();
        let hosts = match &self.host {
            Some(host) => {
                let name = host.parse::<HostName>().map_err(|error| ApiError::bad(error.to_string()))?;
                hosts_meant(api, &name).await?
            }
            None => Vec::new(),
        };
        Ok(FeedQuery {
            hosts,
            category: named("category", self.category.as_deref(), &Category::ALL, Category::as_str)?,
            status: named("status", self.status.as_deref(), &Status::ALL, Status::as_str)?,
            failure: named("failure", self.failure.as_deref(), &FailureKind::ALL, FailureKind::as_str)?,
            failing: flag("failing", self.failing.as_deref())?,
            penalised: flag("penalised", self.penalised.as_deref())?,
            label: self.label.map(|label| mark("label", &label, LONGEST_LABEL)).transpose()?,
            external_id: self.external_id.map(|id| mark("external_id", &id, LONGEST_EXTERNAL_ID)).transpose()?,
            reversed: is_reversed(self.order.as_deref(), sort == FeedSort::Subscribers)?,
            sort,
            limit: limit(self.limit.as_deref(), usual, 1000)?,
            visible: api.labels().to_vec(),
            after: self.after,
            text: self.q.filter(|text| !text.is_empty()).map(searched).transpose()?,
        })
    }
}

/// Characters of a search: beyond it no title and few URLs differ, and a database refuses long patterns.
const LONGEST_SEARCH: usize = 200;

/// Returns a label, or an id of the caller's own.
fn mark(name: &str, text: &str, longest: usize) -> Result<String, ApiError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > longest || text.chars().any(char::is_control) {
        return Err(ApiError::bad(format!("{name} must be 1 to {longest} characters, without control characters")));
    }
    Ok(text.to_owned())
}

pub(crate) fn searched(text: String) -> Result<String, ApiError> {
    if text.chars().count() > LONGEST_SEARCH || text.chars().any(char::is_control) {
        let message = format!("q must be at most {LONGEST_SEARCH} characters, without control characters");
        return Err(ApiError::bad(message));
    }
    Ok(text)
}

/// Returns whether a filter is on; without a value it is off.
fn flag(parameter: &str, text: Option<&str>) -> Result<bool, ApiError> {
    let name = |yes: bool| if yes { "true" } else { "false" };
    Ok(named(parameter, text, &[true, false], name)?.unwrap_or(false))
}

/// One of a few names, in any case.
pub(crate) fn named<T: Copy>(
    parameter: &str,
    text: Option<&str>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Option<T>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let found = all.iter().copied().find(|value| name(*value).eq_ignore_ascii_case(text));
    let names = || all.iter().copied().map(name).collect::<Vec<_>>().join(", ");
    found.map(Some).ok_or_else(|| ApiError::bad(format!("{parameter} must be one of {}", names())))
}

/// Returns the hosts that a name means: without a port those with feeds, whatever their ports, the one with the usual port first.
pub(crate) async fn hosts_meant(api: &Api, name: &HostName) -> Result<Vec<HostKey>, ApiError> {
    let mut keys = ops::hosts::keys(&api.ops, name).await?;
    let usual = HostKey::new(&format!("{}:{USUAL_PORT}", name.name()));
    if keys.len() > 1 {
        let known = api.ops.store.hosts(&HostQuery::of_name(name.name()), api.ops.clock.now()).await?.items;
        keys = known.into_iter().filter(|host| host.feeds > 0).map(|host| host.host).collect();
        keys.sort_by_key(|key| *key != usual);
    }
    if keys.is_empty() {
        keys.push(usual);
    }
    Ok(keys)
}

/// The port of hosts without an explicit port.
const USUAL_PORT: u16 = 443;

pub(crate) fn host_key(text: &str) -> Result<HostKey, ApiError> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port || text.starts_with("*.") {
        return Ok(HostKey::new(text));
    }
    Err(ApiError::bad("host must be a name and port, such as example.com:443, or *.example.com for a shared one"))
}
