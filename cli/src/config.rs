//! `feedfleet config`: what is configured, and whether it is accepted.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use common::config::{Config, Setting, Source};
use serde_json::json;

use crate::output;
use crate::settings::SettingsArgs;

/// Shows and checks the configuration
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Says whether the configuration is accepted, or everything that is wrong with it
    Check(SettingsArgs),
    /// Prints every key, its value and where it came from; secrets are masked
    Print(PrintArgs),
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
pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Check(settings) => {
            let loaded = settings.load(&[])?;
            crate::logs::filter(&loaded.config.log)?;
            warnings(&loaded.config).iter().for_each(|warning| eprintln!("warning: {warning}"));
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
    }
    Ok(ExitCode::SUCCESS)
}

/// What is accepted but should be changed.
fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.fetch.user_agent_url.is_empty() {
        warnings.push(
            "fetch.user_agent_url is not set: publishers cannot find out who polls them; give the address of a page"
                .to_owned(),
        );
    }
    warnings
}

fn as_json(setting: &Setting) -> serde_json::Value {
    let source = match &setting.source {
        Source::Default => json!({ "kind": "default" }),
        Source::File(path) => json!({ "kind": "file", "name": path }),
        Source::Environment(name) => json!({ "kind": "environment", "name": name }),
        Source::Flag(key) => json!({ "kind": "flag", "name": key }),
    };
    json!({ "key": setting.key, "value": setting.value, "source": source })
}

/// `key = value  # source`, a line each.
fn listing(settings: &[Setting]) -> String {
    let pairs: Vec<String> = settings.iter().map(|setting| format!("{} = {}", setting.key, setting.value)).collect();
    let width = pairs.iter().map(|pair| pair.chars().count()).filter(|width| *width <= 60).max().unwrap_or(0);
    let source = |setting: &Setting| match &setting.source {
        Source::Default => "default".to_owned(),
        other => other.to_string(),
    };
    let line = |(pair, setting): (&String, &Setting)| format!("{pair:width$}  # {}", source(setting));
    pairs.iter().zip(settings).map(line).collect::<Vec<_>>().join("\n")
}
