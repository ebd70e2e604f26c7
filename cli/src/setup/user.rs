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
    pub(super) password: ServerPassword,
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

/// The setting for a role: the configured URL with this user in it, or one with `HOST` where nothing is configured.
pub(super) fn setting(config_url: &str, variable: &str, user: &User, otherwise: (&str, &str)) -> String {
    let (scheme, path) = otherwise;
    let login = format!("{}:{}", user.name, user.password.reveal());
    let configured = is_server(config_url).then(|| common::config::hosts_of(config_url)).flatten();
    let url = match configured {
        Some((before, hosts, after)) => {
            let scheme = before.split("://").next().unwrap_or(scheme);
            format!("{scheme}://{login}@{}{after}", hosts.join(","))
        }
        None => format!("{scheme}://{login}@HOST/{path}"),
    };
    format!("{variable}={url}")
}

/// The settings of both Redis servers, which may be one.
pub(super) fn redis_settings(config: &Config, user: &User) -> Vec<String> {
    let gate = setting(&config.gate.url, "FEEDFLEET_GATE__URL", user, ("redis", ""));
    let schedule = setting(&config.schedule.url, "FEEDFLEET_SCHEDULE__URL", user, ("redis", ""));
    match user.role {
        Role::Scheduler => vec![gate, schedule],
        Role::Worker => vec![gate],
    }
}
