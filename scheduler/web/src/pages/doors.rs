//! Which paths are whose.

use crate::api::guard::Door;

/// Pages that show everything, by the first part of their path.
const FOR_OPERATORS: [&str; 10] =
    ["", "audit", "config", "entries", "feeds", "fleet", "hosts", "live", "requeues", "subscriptions"];

/// Returns how a path is opened.
pub(crate) fn door(path: &str) -> Door {
    match first_part(path) {
        "api" => Door::Api,
        "entries.atom" | "entries.json" => Door::Feed,
        "hub" => Door::Hub,
        "login" | "logout" => Door::Login,
        "rsscloud" | "websub" => Door::Callback,
        part if FOR_OPERATORS.contains(&part) => Door::Page,
        _ => Door::Public,
    }
}

/// Returns whether people look at this path: its refusals are pages.
pub(super) fn is_page(path: &str) -> bool {
    matches!(door(path), Door::Page | Door::Login) || matches!(first_part(path), "status" | "docs")
}

/// Returns a path without the slash at its beginning.
pub(super) fn path_from_root(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn first_part(path: &str) -> &str {
    path_from_root(path).split('/').next().unwrap_or_default()
}
