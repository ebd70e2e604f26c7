//! Values of flags, and what is said about one that cannot be read: what would be accepted.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Parses a whole number that fits the type.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, &'static str> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| match is_number {
        true => "the number is too large",
        false => "it must be a whole number, such as 100",
    })
}

/// Parses an address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "it must be an address and a port, such as 127.0.0.1:7878")
}

/// Parses a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "it must be a duration, such as 500ms, 30s or 1h 30m")
}

/// Returns where a store is kept. An empty text is a variable of a script that was not set: the root folder is not what
/// is meant.
pub(crate) fn folder(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("it must be a folder, or :memory: to keep nothing"),
        _ => Ok(text.to_owned()),
    }
}
