//! What is shown of values that hold secrets.

use toml::Value;

use super::server::hosts_of;

/// The section whose values are never shown.
pub(super) const SECRETS: &str = "secrets.";

/// Returns the value without what must not be shown.
pub(super) fn masked(key: &str, value: Value) -> Value {
    match value {
        Value::Array(tokens) if key == "api.tokens" => {
            let masked = tokens.into_iter().map(|token| match token {
                Value::Table(mut token) => {
                    for secret in ["token", "token_hash"] {
                        if let Some(value) = token.get_mut(secret) {
                            *value = Value::String("***".to_owned());
                        }
                    }
                    Value::Table(token)
                }
                other => other,
            });
            Value::Array(masked.collect())
        }
        Value::String(secret) if key.starts_with(SECRETS) && !secret.is_empty() => Value::String("***".to_owned()),
        Value::Array(secrets) if key.starts_with(SECRETS) => {
            Value::Array(secrets.iter().map(|_| Value::String("***".to_owned())).collect())
        }
        Value::String(url) if key.ends_with("url") => Value::String(without_password(&url)),
        other => other,
    }
}

/// Returns a URL to show: its passwords, before the host or in the query, as stars; all of one that has no
/// host and may hold a password.
pub fn without_password(text: &str) -> String {
    // The form with several hosts is not one that can be parsed.
    if let Some((before, hosts, after)) = hosts_of(text)
        && hosts.len() > 1
    {
        return without_password(&format!("{before}hosts{after}")).replacen("hosts", &hosts.join(","), 1);
    }
    let parsed = url::Url::parse(text).ok().filter(url::Url::has_host);
    let Some(mut url) = parsed else {
        let may_hold_one = text.contains('@') || text.contains('?');
        return if may_hold_one { "***".to_owned() } else { text.to_owned() };
    };
    let has_password = url.password().is_some();
    if has_password && url.set_password(Some("***")).is_err() {
        return "***".to_owned();
    }
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["pass", "pwd", "secret", "token"].iter().any(|word| name.contains(word))
    };
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let has_secret = pairs.iter().any(|(name, _)| is_secret(name));
    if has_secret {
        let shown = |(name, value): &(String, String)| {
            let value = if is_secret(name) { "***".to_owned() } else { value.clone() };
            (name.clone(), value)
        };
        url.query_pairs_mut().clear().extend_pairs(pairs.iter().map(shown));
    }
    if has_password || has_secret { url.to_string() } else { text.to_owned() }
}
