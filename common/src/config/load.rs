//! placeholder
use super::Config;
/// x
pub type Setting = ();
/// x
pub type Source = ();
/// x
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct ConfigError;
/// x
pub struct Loaded {
    /// x
    pub config: Config,
}
/// x
pub fn load() -> Result<Loaded, ConfigError> {
    let config = toml::from_str(super::DEFAULT_TOML).map_err(|_| ConfigError)?;
    Ok(Loaded { config })
}
