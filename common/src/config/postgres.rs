//! What `store.url` says about PostgreSQL beyond what its driver reads: several hosts, and which of them is wanted.

use url::Url;

use super::ServerConfig;
use super::server::invalid;

const ATTRIBUTE: &str = "target_session_attrs";

/// Which server a connection may be to, with the meaning that libpq gives these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTarget {
    /// One that accepts writes: not in recovery, and its sessions are not read-only by default.
    ReadWrite,
    /// One that is not in recovery.
    Primary,
}

/// A PostgreSQL as its driver reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct PostgresServer {
    /// A URL for each host, in their order.
    pub urls: Vec<String>,
    /// `None`: one host, and whatever it is.
    pub target: Option<SessionTarget>,
}

impl PostgresServer {
    /// Reads the URL of this section. The error says what is wrong with it, and holds no password.
    pub fn of(section: &ServerConfig) -> Result<Self, String> {
        let mut server = PostgresServer { urls: section.urls(), target: None };
        for text in &mut server.urls {
            let mut url = Url::parse(text).map_err(|reason| invalid(text, reason))?;
            let (wanted, others): (Vec<_>, Vec<_>) =
                url.query_pairs().into_owned().partition(|(key, _)| key == ATTRIBUTE);
            let Some((_, wanted)) = wanted.last() else { continue };
            server.target = Some(target(wanted)?);
            if others.is_empty() {
                url.set_query(None);
            } else {
                url.query_pairs_mut().clear().extend_pairs(others);
            }
            *text = url.into();
        }
        if server.urls.len() > 1 {
            server.target = server.target.or(Some(SessionTarget::ReadWrite));
        }
        Ok(server)
    }
}

fn target(wanted: &str) -> Result<SessionTarget, String> {
    match wanted {
        "read-write" => Ok(SessionTarget::ReadWrite),
        "primary" => Ok(SessionTarget::Primary),
        "any" | "read-only" | "standby" | "prefer-standby" => Err(format!(
            "has {ATTRIBUTE}={wanted}, but feedfleet writes to every connection: use read-write or primary"
        )),
        _ => Err(format!("has an unknown {ATTRIBUTE}: use read-write or primary")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<PostgresServer, String> {
        PostgresServer::of(&ServerConfig::at(url))
    }

    #[test]
    fn several_hosts_want_one_that_accepts_writes_and_a_single_one_is_taken_as_it_is() {
        let target = |url| read(url).unwrap().target;
        assert_eq!(target("postgres://u@h/db"), None);
        assert_eq!(target("postgres://u@h/db?target_session_attrs=primary"), Some(SessionTarget::Primary));
        assert_eq!(target("postgres://u@a,b:5433/db"), Some(SessionTarget::ReadWrite));
        assert_eq!(target("postgres://u@a,b/db?target_session_attrs=primary"), Some(SessionTarget::Primary));
        assert_eq!(
            read("postgres://u:p@a,b:5433/db?sslmode=require&target_session_attrs=read-write").unwrap().urls,
            ["postgres://u:p@a/db?sslmode=require", "postgres://u:p@b:5433/db?sslmode=require"]
        );
        assert_eq!(read("postgres://a/db?target_session_attrs=primary").unwrap().urls, ["postgres://a/db"]);
    }

    #[test]
    fn a_target_that_may_be_a_standby_is_refused_with_what_to_write() {
        for wanted in ["any", "read-only", "standby", "prefer-standby", "master"] {
            let reason = read(&format!("postgres://u:secret@a,b/db?target_session_attrs={wanted}")).unwrap_err();
            assert!(reason.contains("use read-write or primary") && !reason.contains("secret"), "{reason}");
        }
    }
}
