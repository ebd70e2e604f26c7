//! Hosts: what is known of them, the rules that operators set, blocks.

use std::str::FromStr;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use common::config::check_host_rule;
use common::host::HostRule;
use common::host_name::{HostName, NoHost};
use common::suggest::field_names;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::change::run_to_completion;
use crate::error::ApiError;
use crate::request::{Accepts, Body, Params, limit};
use crate::state::{Api, State};
use scheduler::ops;
use scheduler::ops::hosts::RuleChange;
use scheduler::wire::{HostView, List, RULE_DURATIONS};
use store::{HostOrders, HostQuery};

/// A rule in a request: the keys of a `[[host_rule]]`, with durations in seconds. Null means the same as absent.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct RuleBody(HostRule);

impl TryFrom<Map<String, Value>> for RuleBody {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Self, String> {
        fields.retain(|_, value| !value.is_null());
        for field in RULE_DURATIONS {
            let Some(value) = fields.get_mut(field) else { continue };
            let seconds = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let seconds = seconds.ok_or_else(|| format!("{field} is not a number of seconds"))?;
            *value = common::duration::as_text(seconds).into();
        }
        serde_json::from_value(Value::Object(fields)).map(RuleBody).map_err(|error| error.to_string())
    }
}

impl Accepts for RuleBody {
    fn fields() -> &'static [&'static str] {
        field_names::<HostRule>()
    }

    fn accepts(field: &str) -> &'static str {
        match field {
            "gap" | "interval" | "soft_for" => "a number of seconds",
            "burst" | "parallel" => "a whole number from 1 to 4294967295",
            "soft_statuses" => "a list of statuses, such as [404]",
            "match" | "reason" | "user_agent" => "text",
            _ => "true or false",
        }
    }
}

/// For how long to block.
#[derive(Debug, Deserialize)]
pub(crate) struct BlockBody {
    /// Seconds.
    #[serde(default)]
    r#for: Option<f64>,
}

impl Accepts for BlockBody {
    fn accepts(_: &str) -> &'static str {
        BLOCK_FOR
    }
}

const BLOCK_FOR: &str = "longer than 0 s and at most ten years; in JSON it is a number of seconds";
const LONGEST_BLOCK: Duration = Duration::from_secs(315_360_000);

/// The `{host}` of the path.
#[derive(Debug)]
pub(crate) struct PathHost(pub(crate) HostName);

impl<S: Send + Sync> FromRequestParts<S> for PathHost {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(host) =
            Path::<String>::from_request_parts(parts, state).await.map_err(|_| ApiError::bad(NoHost.to_string()))?;
        HostName::from_str(&host).map(PathHost).map_err(|error| ApiError::bad(error.to_string()))
    }
}

/// The parameters of `GET /hosts`.
#[derive(Debug, Deserialize)]
pub(crate) struct ListParams {
    after: Option<String>,
    limit: Option<String>,
}

/// `GET /hosts`
pub(crate) async fn list(
    State(api): State<Api>,
    Params(params): Params<ListParams>,
) -> Result<Json<List<HostView>>, ApiError> {
    let limit = limit(params.limit.as_deref(), 100, 1000)?;
    let page = ops::hosts::page(&api.ops, &HostQuery::all(params.after, limit)).await?;
    Ok(Json(List { items: page.items.into_iter().map(HostView::of).collect(), next: page.next }))
}

/// `GET /hosts/{host}`: also of a host that has no feeds yet.
pub(crate) async fn show(State(api): State<Api>, PathHost(host): PathHost) -> Result<Json<HostView>, ApiError> {
    Ok(Json(HostView::of(ops::hosts::state_of(&api.ops, &host).await?)))
}

/// `PUT /hosts/{host}`: this rule and no other for the name and all names below it.
pub(crate) async fn set(
    State(api): State<Api>,
    PathHost(host): PathHost,
    Body(RuleBody(rule)): Body<RuleBody>,
) -> Result<Json<HostView>, ApiError> {
    let domain = rule_domain(&host)?;
    if !rule.r#match.is_empty() && rule.domain() != domain {
        return Err(ApiError::bad(format!("match must be the host of the path ({domain}), or absent")));
    }
    let rule = HostRule { r#match: domain.clone(), ..rule };
    if rule.reason.trim().is_empty() {
        let message = "reason is missing; say why the rule exists, for the person who finds it next year";
        return Err(ApiError::bad(message));
    }
    if let Some(refusal) = check_host_rule(&rule).into_iter().next() {
        return Err(ApiError::bad(format!("{} {}", refusal.key, refusal.reason)));
    }
    let ops = api.ops.clone();
    let changed = run_to_completion(async move { ops::hosts::set_rule(&ops, &rule).await }).await?;
    accepted(&domain, changed)?;
    show(State(api), PathHost(HostName::Name(domain))).await
}

/// `DELETE /hosts/{host}`: takes an operator's rule back.
pub(crate) async fn remove(State(api): State<Api>, PathHost(host): PathHost) -> Result<Json<HostView>, ApiError> {
    let domain = rule_domain(&host)?;
    let (ops, of) = (api.ops.clone(), domain.clone());
    let changed = run_to_completion(async move { ops::hosts::remove_rule(&ops, &of).await }).await?;
    accepted(&domain, changed)?;
    show(State(api), PathHost(HostName::Name(domain))).await
}

/// `POST /hosts/{host}/block {"for"}`: stops sending requests to it for that many seconds.
pub(crate) async fn block(
    State(api): State<Api>,
    PathHost(host): PathHost,
    Body(body): Body<BlockBody>,
) -> Result<Json<HostView>, ApiError> {
    let seconds = body.r#for.ok_or_else(|| ApiError::bad(format!("for is missing; it must be {BLOCK_FOR}")))?;
    let duration = Duration::try_from_secs_f64(seconds).ok();
    let duration = duration.filter(|duration| !duration.is_zero() && *duration <= LONGEST_BLOCK);
    let duration = duration.ok_or_else(|| ApiError::bad(format!("for must be {BLOCK_FOR}")))?;
    let (ops, name) = (api.ops.clone(), host.clone());
    run_to_completion(async move { ops::hosts::block(&ops, &name, duration).await }).await?;
    show(State(api), PathHost(host)).await
}

/// `POST /hosts/{host}/unblock`: lifts a block; a hold that the server requested stays.
pub(crate) async fn unblock(State(api): State<Api>, PathHost(host): PathHost) -> Result<Json<HostView>, ApiError> {
    let (ops, name) = (api.ops.clone(), host.clone());
    run_to_completion(async move { ops::hosts::unblock(&ops, &name).await }).await?;
    show(State(api), PathHost(host)).await
}

/// A rule covers a name at all of its ports, and all names below.
fn rule_domain(host: &HostName) -> Result<String, ApiError> {
    match host {
        HostName::Name(name) => Ok(name.clone()),
        HostName::Key(key) if key.as_str().starts_with("*.") => Ok(key.name().to_owned()),
        HostName::Key(key) => {
            Err(ApiError::bad(format!("a rule is for a name at all its ports: write {}", key.name())))
        }
    }
}

fn accepted(domain: &str, change: RuleChange) -> Result<(), ApiError> {
    let message = match change {
        RuleChange::Done => return Ok(()),
        RuleChange::NoRule => {
            let message = format!(
                "{domain} has no operator's rule to remove; rules of the configuration are changed in its file"
            );
            return Err(ApiError::new(StatusCode::NOT_FOUND, message));
        }
        RuleChange::TooMany => format!("there are {} rules already; take one back first", HostOrders::MOST_RULES),
        RuleChange::Held(host, until) => {
            format!(
                "{host} allows no requests before {until}, which would be forgotten if shared changed now; wait, or unblock it"
            )
        }
    };
    Err(ApiError::new(StatusCode::CONFLICT, message))
}
