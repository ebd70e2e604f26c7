//! Where a command takes its configuration from, and which flags override it.

use std::path::PathBuf;

use clap::Args;
use common::config::{ConfigError, Loaded, load};
use toml::Value;

/// The flags of every command that reads the configuration itself.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Configuration file; `feedfleet config print` shows every key
    #[arg(long, value_name = "FILE", env = "FEEDFLEET_CONFIG")]
    config: Option<PathBuf>,

    /// Sets one configuration key, such as policy.salt=0.2; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as policy.salt=0.2")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl SettingsArgs {
    /// The same without what `--set` sets; `None` if it sets nothing.
    pub(crate) fn without_set(&self) -> Option<Self> {
        (!self.set.is_empty()).then(|| SettingsArgs { config: self.config.clone(), set: Vec::new() })
    }

    /// Defaults, file, environment, `--set`, then `flags` (dotted key and value) on top.
    pub(crate) fn load(&self, flags: &[(&str, Value)]) -> Result<Loaded, ConfigError> {
        let environment = std::env::vars_os();
        let readable =
            environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let set = self.set.iter().map(|(key, value)| (key.as_str(), Value::String(value.clone())));
        let flags: Vec<_> = set.chain(flags.iter().cloned()).collect();
        load(self.config.as_deref(), readable, &flags)
    }
}
