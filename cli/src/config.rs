//! `feedfleet config`: what is configured, whether it is accepted, what a fleet has in force.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use common::config::{Config, Setting, Source};
use common::time::{Clock, SystemClock, Timestamp};
use common::words;
use reqwest::Method;
use scheduler::wire::{ConfigView, ReloadView};
use serde_json::json;

use crate::client::{Client, ClientArgs};
use crate::output;
use crate::settings::SettingsArgs;
use crate::terminal::{padded, width_of};

/// Shows and checks the configuration
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks the configuration, and prints everything that is wrong with it
    Check(SettingsArgs),
    /// Prints every key, its value and where it came from; secrets are masked
    Print(PrintArgs),
    /// Shows the policy and host rules that a running fleet uses, and their version
    Show(ClientArgs),
    /// Makes a running fleet read its configuration again
    ///
    /// The scheduler that answers reads its file, environment and flags, as at its start, and checks all of it. Its policy,
    /// host and host_rule sections become the next version of the fleet's, and every scheduler and worker follows within
    /// seconds; a feed follows from its next poll on. Changed tokens (api.tokens) are valid at once, in that scheduler. A
    /// configuration with a mistake changes nothing. Other keys need a restart and are listed. SIGHUP does the same, except in a
    /// process that was started in a terminal, which it ends.
    Reload(ClientArgs),
}

/// `config print`
#[derive(Debug, Args)]
pub(crate) struct PrintArgs {
    /// Prints JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Runs one of them.
pub(crate) async fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Check(settings) => {
            let loaded = settings.load(&[])?;
            loaded.check_tls_files()?;
            crate::logs::filter(&loaded.config.log, true)?;
            warnings(&loaded.config).iter().for_each(|warning| note!("warning: {warning}"));
            output::line("the configuration is accepted")?;
        }
        ConfigCommand::Print(args) => {
            let loaded = args.settings.load(&[])?;
            if args.json {
                loaded.settings.iter().try_for_each(|setting| output::json(&as_json(setting)))?;
            } else {
                output::line(&listing(&loaded.settings))?;
            }
        }
        ConfigCommand::Show(args) => {
            let view: ConfigView = Client::new(&args)?.get("/config", &[]).await?;
            if args.json {
                output::json(&view)?;
            } else {
                output::line(&in_force(&view, SystemClock.now()))?;
            }
        }
        ConfigCommand::Reload(args) => {
            let reloaded: ReloadView = Client::new(&args)?.change(Method::POST, "/config/reload", None).await?;
            if args.json {
                output::json(&reloaded)?;
            } else {
                output::line(&reload_text(&reloaded))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn reload_text(reloaded: &ReloadView) -> String {
    let ReloadView { version, hash, changed, tokens, needs_restart } = reloaded;
    let mut text = match changed {
        true => format!("policy and host rules are version {version} now ({hash})"),
        false => format!("policy and host rules are the same as before: version {version} ({hash})"),
    };
    if *tokens {
        text += "\nthe tokens of the API have changed in the scheduler that reloaded";
    }
    if !needs_restart.is_empty() {
        text += &format!("\nneeds a restart: {}", needs_restart.join(", "));
    }
    text
}

/// Returns the versions, then `key = value`, a line each.
fn in_force(view: &ConfigView, now: Timestamp) -> String {
    let version = match (view.version, &view.hash, view.accepted, &view.accepted_by) {
        (Some(version), Some(hash), Some(at), Some(by)) => {
            format!("{version} ({hash}), accepted {} by {by}", words::moment(at, now))
        }
        _ => "the scheduler's own; the store was not read yet".to_owned(),
    };
    let own = match view.hash.as_ref() == Some(&view.own_hash) {
        true => "the same".to_owned(),
        false => format!("differs ({}): `feedfleet config reload` makes it count", view.own_hash),
    };
    let reload = view.last_reload.as_ref().map(|reload| match &reload.error {
        None => format!("accepted {}", words::moment(reload.at, now)),
        Some(error) => format!("refused {}: {error}", words::moment(reload.at, now)),
    });
    let mut text = output::fields(&[
        ("version", Some(version)),
        ("this scheduler's file", Some(own)),
        ("not in force here", view.refused.clone()),
        ("last reload", reload),
    ]);
    for (name, section) in [("policy", &view.policy), ("host", &view.host)] {
        lines(name, section, &mut text);
    }
    for rule in view.host_rule.as_array().into_iter().flatten() {
        text += &format!("\nhost_rule {rule}");
    }
    text
}

/// Adds `key = value` for every value in a section.
fn lines(key: &str, value: &serde_json::Value, text: &mut String) {
    match value.as_object() {
        Some(section) => section.iter().for_each(|(name, value)| lines(&format!("{key}.{name}"), value, text)),
        None => match value.as_str().and_then(|text| humantime::parse_duration(text).ok()) {
            Some(duration) => *text += &format!("\n{key} = \"{}\"", common::duration::as_text(duration)),
            None => *text += &format!("\n{key} = {value}"),
        },
    }
}

/// Of a schedule on a Redis Cluster.
pub(crate) const ONE_SHARD: &str = "schedule.shards is 1: the whole schedule is on one master of the Redis Cluster, and is lost with it; \
    set it to 16 (docs/operations.md#redis-cluster)";

/// Returns what is accepted but should be changed.
fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.fetch.user_agent_url.is_empty() {
        warnings.push(
            "fetch.user_agent_url is not set: publishers cannot find out who polls them; give the address of a page"
                .to_owned(),
        );
    }
    if config.schedule.url.contains("-cluster://") && config.schedule.shards == 1 {
        warnings.push(ONE_SHARD.to_owned());
    }
    warnings
}

fn as_json(setting: &Setting) -> serde_json::Value {
    let source = match &setting.source {
        Source::Default => json!({ "kind": "default" }),
        Source::File { path, line } => json!({ "kind": "file", "name": path, "line": line }),
        Source::Environment(name) => json!({ "kind": "environment", "name": name }),
        Source::Flag(key) => json!({ "kind": "flag", "name": key }),
    };
    json!({ "key": setting.key, "value": setting.value, "source": source })
}

/// `key = value  # source`, a line each.
fn listing(settings: &[Setting]) -> String {
    let pairs: Vec<String> = settings.iter().map(|setting| format!("{} = {}", setting.key, setting.value)).collect();
    let width = pairs.iter().map(|pair| width_of(pair)).filter(|width| *width <= 60).max().unwrap_or(0);
    let source = |setting: &Setting| match &setting.source {
        Source::Default => "default".to_owned(),
        other => other.to_string(),
    };
    let line = |(pair, setting): (&String, &Setting)| format!("{}  # {}", padded(pair, width), source(setting));
    pairs.iter().zip(settings).map(line).collect::<Vec<_>>().join("\n")
}
