//! The user that is to be there, and the role's settings with it.

use clap::ValueEnum;
use common::config::Config;
use common::server_password::ServerPassword;

/// What the user is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Role {
    Scheduler,
    Worker,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Scheduler => "scheduler",
            Role::Worker => "worker",
        }
    }
}

/// The user that is to be there.
pub(super) struct User {
    pub(super) role: Role,
    pub(super) name: String,
    /// None: it is there and keeps its own.
    pub(super) password: Option<ServerPassword>,
    /// It may receive jobs with logins.
    pub(super) logins: bool,
}

/// What is printed: the commands, and what to set in the role's environment.
pub(super) struct Setup {
    /// Where to paste the commands.
    pub(super) paste: &'static str,
    pub(super) commands: String,
    pub(super) settings: Vec<String>,
}

/// Returns a user's name that needs no quotes anywhere.
pub(super) fn user_name(text: &str) -> Result<String, &'static str> {
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let fits = (1..=60).contains(&text.len()) && text.chars().all(plain);
    if fits { Ok(text.to_owned()) } else { Err("it must be 1 to 60 letters, digits, '-', '_' and '.'") }
}

/// Returns the last part of a server's URL: the name of a database or of a virtual host, as it is written there.
pub(super) fn path_of(url: &str) -> Option<&str> {
    let (_, _, after) = common::config::hosts_of(url)?;
    let path = after.strip_prefix('/')?.split(['?', '#']).next()?;
    (!path.is_empty()).then_some(path)
}

/// Returns whether this is a URL of PostgreSQL, Redis or RabbitMQ, and not one of this process.
pub(super) fn is_server(url: &str) -> bool {
    !(url.starts_with("memory:") || url.starts_with("sqlite:"))
}

/// Returns the setting for a role: the configured URL with this user and path in it, or one with `HOST` where nothing
/// is configured. None if the user keeps its password, which is not known here.
pub(super) fn setting(configured: &str, variable: &str, user: &User, scheme: &str, path: &str) -> Option<String> {
    let login = format!("{}:{}", user.name, user.password.as_ref()?.reveal());
    let known = is_server(configured).then(|| common::config::hosts_of(configured)).flatten();
    let (scheme, hosts, query) = match known {
        Some((before, hosts, after)) => {
            let scheme = before.split("://").next().unwrap_or(scheme);
            (scheme, hosts.join(","), after.find('?').map_or("", |at| &after[at..]))
        }
        None => (scheme, "HOST".to_owned(), ""),
    };
    Some(format!("{variable}={scheme}://{login}@{hosts}/{path}{query}"))
}

/// Returns the settings of both Redis servers, which may be one.
pub(super) fn redis_settings(config: &Config, user: &User) -> Vec<String> {
    let of = |url: &str, variable| setting(url, variable, user, "redis", path_of(url).unwrap_or_default());
    let gate = of(&config.gate.url, "FEEDFLEET_GATE__URL");
    let schedule = of(&config.schedule.url, "FEEDFLEET_SCHEDULE__URL").filter(|_| user.role == Role::Scheduler);
    gate.into_iter().chain(schedule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_the_configured_url_with_the_user_in_place_of_another() {
        let password = Some(ServerPassword::read("0123456789abcdef").unwrap());
        let user = User { role: Role::Worker, name: "w".into(), password, logins: false };
        let of = |url: &str, path| setting(url, "URL", &user, "amqps", path).unwrap();
        assert_eq!(of("memory:", "%2f"), "URL=amqps://w:0123456789abcdef@HOST/%2f");
        assert_eq!(
            of("amqp://guest:guest@a:5672,b:5673/old?heartbeat=9", "new"),
            "URL=amqp://w:0123456789abcdef@a:5672,b:5673/new?heartbeat=9"
        );
        assert_eq!(path_of("postgres://u@h/db?sslmode=require"), Some("db"));
        assert_eq!(path_of("redis://h:6379"), None);
    }

    #[test]
    fn names_need_no_quotes() {
        assert!(user_name("fleet-worker.2").is_ok());
        for name in ["", "a b", "a'b", "a\"b", "$(id)"] {
            assert!(user_name(name).is_err(), "{name}");
        }
    }
}
