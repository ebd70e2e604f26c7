//! Whether hubs can reach this fleet: one request to its own public URL, sent as requests to hubs are.

use common::delivery::DeliveryRequest;
use common::outcome::DeliveryOutcome;
use common::push::PushKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::address::path;
use crate::ops::Ops;

/// A token that no subscription has.
pub const TOKEN: &str = "check";
/// How the answer to it begins.
pub const REACHED: &str = "feedfleet takes deliveries here";

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PushCheck {
    /// The configured `api.public_url`; empty if there is none: then push is off.
    pub public_url: String,
    /// What a proxy must pass to the schedulers, with GET and POST.
    pub paths: Vec<String>,
    /// The request came back to a feedfleet.
    pub reachable: bool,
    /// The status code of the response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What that means, and what to do.
    pub detail: String,
}

/// Sends a request to where hubs would send theirs.
pub async fn check_reach(ops: &Ops) -> PushCheck {
    let public_url = ops.config.api.public_url.trim_end_matches('/').to_owned();
    let paths = PushKind::ALL.map(|kind| format!("{public_url}{}", path(kind, "*"))).to_vec();
    let found = |reachable, status, detail: String| {
        let (public_url, paths) = (public_url.clone(), paths.clone());
        PushCheck { public_url, paths, reachable, status, detail }
    };
    let Ok(url) = Url::parse(&format!("{public_url}{}", path(PushKind::WebSub, TOKEN))) else {
        return found(
            false,
            None,
            "push is off; set api.public_url to the address at which hubs reach this fleet".into(),
        );
    };
    let Some(sender) = ops.sender.get() else {
        return found(false, None, "this process sends nothing".into());
    };
    let answer = (sender.send)(DeliveryRequest { url, fields: Vec::new(), body: Some(Vec::new()) }).await;
    let reached = answer.outcome == DeliveryOutcome::Delivered && answer.detail.starts_with(REACHED);
    let detail = match (reached, answer.status) {
        (true, _) => "hubs can reach this fleet".to_owned(),
        (false, Some(status)) => format!(
            "something else answers at the public URL (status {status}): have the proxy pass /websub/ and /rsscloud/ to the schedulers"
        ),
        (false, None) => format!("the public URL cannot be reached: {}", answer.detail),
    };
    found(reached, answer.status, detail)
}
