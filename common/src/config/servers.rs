//! Checks of the servers' URLs: each is read as its driver reads it, and what the driver would ignore is refused.

use std::net::IpAddr;
use std::str::FromStr;

use lapin::uri::AMQPUri;
use url::{Host, Url};

use super::server::invalid;
use super::{PostgresServer, ServerConfig};
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
/// What a short string of AMQP holds.
const LONGEST_VHOST: usize = 255;
const RABBITMQ: [&str; 5] = ["frame_max", "channel_max", "heartbeat", "connection_timeout", "auth_mechanism"];

/// Parameters that name a host, which the URL's own list of hosts would contradict.
const HOST: [&str; 3] = ["host", "hostaddr", "port"];
const VERIFYING: [&str; 2] = ["verify-ca", "verify-full"];

/// Returns what is wrong with the URL of a PostgreSQL, if anything is. The reason holds no password.
pub(super) fn postgres(server: &ServerConfig) -> Option<String> {
    let read = match PostgresServer::of(server) {
        Ok(read) => read,
        Err(reason) => return Some(reason),
    };
    let several = read.urls.len() > 1;
    read.urls.iter().find_map(|url| one_postgres(url, several, !server.ca_file.is_empty()))
}

fn one_postgres(text: &str, several: bool, has_ca_file: bool) -> Option<String> {
    let url = match parse(text, &POSTGRES) {
        Ok(url) => url,
        Err(reason) => return Some(reason),
    };
    if several && url.host().is_none() {
        return Some("has an empty name among its hosts".to_owned());
    }
    url.query_pairs().find_map(|(key, value)| match &*key {
        key if several && HOST.contains(&key) => Some(format!("names its hosts and has {key} too: leave {key} out")),
        key if HOST.contains(&key) && value.contains(',') => {
            Some(format!("has several values in {key}: write HOST:PORT,HOST:PORT before the database"))
        }
        "sslmode" | "ssl-mode" => {
            let mode = value.to_ascii_lowercase();
            if !SSL_MODES.contains(&mode.as_str()) {
                return Some(format!("has an unknown {key}: one of {}", SSL_MODES.join(", ")));
            }
            let unused = has_ca_file && !VERIFYING.contains(&mode.as_str());
            unused.then(|| {
                format!("has {key}={mode}, which never uses store.ca_file: leave {key} out, or use verify-full")
            })
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
        Ok(_) => match AMQPUri::from_str(text) {
            // The driver would panic.
            Ok(read) if read.vhost.len() > LONGEST_VHOST => {
                Some(format!("has a virtual host with more than {LONGEST_VHOST} bytes"))
            }
            read => read.err().map(|reason| format!("cannot be read: {reason}")),
        },
        Err(reason) => Some(reason),
    }
}

/// Parses a URL of one host. Refuses a parameter that is not known.
pub(super) fn parse(text: &str, known: &[&str]) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|reason| invalid(text, reason))?;
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

    fn postgres(url: &str) -> Option<String> {
        super::postgres(&ServerConfig::at(url))
    }

    #[test]
    fn urls_that_the_drivers_read_are_accepted() {
        for url in [
            "postgres://u:p@h:5432/db?sslmode=verify-full&sslrootcert=/ca.pem",
            "postgresql:///db?host=/run/postgresql&options[search_path]=a",
            "postgres://u:p@a:5432,b:5433,c/db?target_session_attrs=read-write&sslmode=verify-ca",
        ] {
            assert_eq!(postgres(url), None, "{url}");
        }
        for url in ["amqp://u:p@h/%2f?heartbeat=20", "amqps://h:5671/vhost", "amqp://127.0.0.1:5672/%2f"] {
            assert_eq!(rabbitmq(url), None, "{url}");
        }
    }

    #[test]
    fn a_mode_that_would_not_use_the_authorities_is_refused() {
        let with_ca = |mode: &str| ServerConfig {
            ca_file: "/ca.pem".to_owned(),
            ..ServerConfig::at(&format!("postgres://h/db{mode}"))
        };
        for mode in ["", "?sslmode=verify-ca", "?sslmode=verify-full"] {
            assert_eq!(super::postgres(&with_ca(mode)), None, "{mode}");
        }
        for mode in ["?sslmode=require", "?sslmode=prefer", "?sslmode=disable"] {
            let reason = super::postgres(&with_ca(mode)).unwrap_or_default();
            assert!(reason.contains("never uses store.ca_file"), "{mode}: {reason}");
        }
    }

    #[test]
    fn what_a_driver_would_refuse_or_ignore_is_named_and_passwords_are_not() {
        for (reason, says) in [
            (postgres("postgres://u:secret@h:x/db"), "invalid port"),
            (postgres("postgres://u:secret@h/db?sslmod=require"), "sslmod; did you mean sslmode?"),
            (postgres("postgres://u:secret@h/db?sslmode=on"), "one of disable, allow"),
            (postgres("postgres://u:secret@h/db?hostaddr=h"), "hostaddr"),
            (postgres("postgres://u:secret@a,b/db?host=c"), "leave host out"),
            (postgres("postgres:///db?password=secret&host=a,b"), "before the database"),
            (postgres("postgres://u:secret@a,b:x/db"), "invalid port"),
            (postgres("postgres://u:secret@a,b/db?target_session_attrs=any"), "use read-write or primary"),
            (postgres("postgres://u:secret@h/db?target_session_attr=any"), "unknown parameter"),
            (rabbitmq("amqp://u:secret@h/%2f?heartbeet=1"), "did you mean heartbeat?"),
            (rabbitmq("amqp://u:secret@h/%2f?heartbeat=often"), "cannot be read"),
            (rabbitmq("amqp://u:secret@[::1]/%2f"), "IPv6"),
            (rabbitmq(&format!("amqp://u:secret@h/{}", "v".repeat(256))), "more than 255 bytes"),
        ] {
            let reason = reason.unwrap_or_default();
            assert!(reason.contains(says) && !reason.contains("secret"), "{reason:?} should say {says:?}");
        }
    }
}
