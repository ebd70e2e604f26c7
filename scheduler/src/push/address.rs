//! Where hubs and clouds reach this fleet.

use common::push::PushKind;

/// Returns the path of a subscription's callback.
pub(crate) fn path(kind: PushKind, id: &str) -> String {
    let place = match kind {
        PushKind::WebSub => "websub",
        PushKind::RssCloud => "rsscloud",
    };
    format!("/{place}/{id}")
}

/// Returns the URL of a subscription's callback.
pub(crate) fn callback_url(public_url: &str, kind: PushKind, id: &str) -> String {
    format!("{}{}", public_url.trim_end_matches('/'), path(kind, id))
}
