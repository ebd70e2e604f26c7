//! Checks of the servers' URLs: each is read as its driver reads it, and what the driver would ignore is refused.

use std::net::IpAddr;
use std::str::FromStr;

use lapin::uri::AMQPUri;
use url::{Host, Url};

use crate::suggest::nearest;
use crate::words::plain;

/// The parameters of PostgreSQL that sqlx 0.9 reads, without `application_name`, which feedfleet sets itself.
const POSTGRES: [&str; 17] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "options",
];
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
const RABBITMQ: [&str; 5] = ["frame_max", "channel_max", "heartbeat", "connection_timeout", "auth_mechanism"];

/// Returns what is wrong with the URL of a PostgreSQL, if anything is. The reason holds no password.
pub(super) fn postgres(text: &str) -> Option<String> {
    let url = match parse(text, &POSTGRES) {
        Ok(url) => url,
        Err(reason) => return Some(reason),
    };
    url.query_pairs().find_map(|(key, value)| match &*key {
        "sslmode" | "ssl-mode" if !SSL_MODES.contains(&value.to_ascii_lowercase().as_str()) => {
            Some(format!("has an unknown {key}: one of {}", SSL_MODES.join(", ")))
        }
        "port" | "statement-cache-capacity" if value.parse::<u16>().is_err() => Some(format!("has a wrong {key}")),
        "hostaddr" if value.parse::<IpAddr>().is_err() => Some("has a hostaddr that is not an address".to_owned()),
        _ => None,
    })
}

/// Returns what is wrong with the URL of a RabbitMQ, if anything is.
pub(super) fn rabbitmq(text: &str) -> Option<String> {
    match parse(text, &RABBITMQ) {
        // The driver would connect to localhost.
        Ok(url) if matches!(url.host(), Some(Host::Ipv6(_))) => {
            Some("names its server by an IPv6 address: use a host name".to_owned())
        }
        Ok(_) => AMQPUri::from_str(text).err().map(|reason| format!("cannot be read: {reason}")),
        Err(reason) => Some(reason),
    }
}

/// Parses a URL of one host. Refuses a parameter that is not known.
pub(super) fn parse(text: &str, known: &[&str]) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|reason| format!("is not a valid URL: {reason}"))?;
    // options[NAME] is one parameter of many names.
    let unknown = |key: &str| !known.contains(&key.split('[').next().unwrap_or_default());
    match url.query_pairs().find(|(key, _)| unknown(key)) {
        Some((key, _)) => {
            let near = nearest(&key, known.iter().copied());
            let hint = near.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
            Err(format!("has an unknown parameter {}{hint}", plain(&key, 40)))
        }
        None => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_the_drivers_read_are_accepted() {
        for url in [
            "postgres://u:p@h:5432/db?sslmode=verify-full&sslrootcert=/ca.pem",
            "postgresql:///db?host=/run/postgresql&options[search_path]=a",
        ] {
            assert_eq!(postgres(url), None, "{url}");
        }
        for url in ["amqp://u:p@h/%2f?heartbeat=20", "amqps://h:5671/vhost", "amqp://127.0.0.1:5672/%2f"] {
            assert_eq!(rabbitmq(url), None, "{url}");
        }
    }

    #[test]
    fn what_a_driver_would_refuse_or_ignore_is_named_and_passwords_are_not() {
        for (reason, says) in [
            (postgres("postgres://u:secret@h:x/db"), "invalid port"),
            (postgres("postgres://u:secret@h/db?sslmod=require"), "sslmod; did you mean sslmode?"),
            (postgres("postgres://u:secret@h/db?sslmode=on"), "one of disable, allow"),
            (postgres("postgres://u:secret@h/db?hostaddr=h"), "hostaddr"),
            (rabbitmq("amqp://u:secret@h/%2f?heartbeet=1"), "did you mean heartbeat?"),
            (rabbitmq("amqp://u:secret@h/%2f?heartbeat=often"), "cannot be read"),
            (rabbitmq("amqp://u:secret@[::1]/%2f"), "IPv6"),
        ] {
            let reason = reason.unwrap_or_default();
            assert!(reason.contains(says) && !reason.contains("secret"), "{reason:?} should say {says:?}");
        }
    }
}
