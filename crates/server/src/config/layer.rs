//! Layers of configuration: the settings of one source, in the file's form, and how they are laid
//! over each other.

use super::file::File;
use super::{Config, ConfigError, Secrets};
use serde::Serialize;
use toml::{Table, Value};

/// The settings of one source; the others are unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    settings: Table,
    /// The secrets that are no part of the file.
    pub secrets: Secrets,
}

impl From<Table> for Layer {
    fn from(settings: Table) -> Layer {
        Layer { settings, secrets: Secrets::default() }
    }
}

impl Layer {
    /// The layer of settings that serialise to the file's form. `None` is unset.
    pub fn of(settings: &impl Serialize) -> Result<Layer, ConfigError> {
        let settings = Table::try_from(settings);
        settings.map(Layer::from).map_err(|error| ConfigError::Setting(error.to_string()))
    }

    /// This layer over `below` over the defaults; not checked as a whole.
    pub(super) fn over(self, below: Layer) -> Result<Config, ConfigError> {
        let mut settings = Table::new();
        lay(below.settings, &mut settings);
        self.secrets.replace(&mut settings);
        lay(self.settings, &mut settings);
        let file: File = settings
            .try_into()
            .map_err(|error: toml::de::Error| ConfigError::Setting(error.message().to_owned()))?;
        let mut config = file.into_config()?;
        let Secrets { secret, site_secret, join_token } = self.secrets;
        config.peers.secret = secret;
        config.peers.site_secret = site_secret;
        config.peers.join_token = join_token;
        Ok(config)
    }
}

/// Lays one table over another. An empty list or table sets nothing.
fn lay(above: Table, below: &mut Table) {
    for (key, value) in above {
        match value {
            Value::Array(list) if list.is_empty() => {}
            Value::Table(above) => {
                let mut both = match below.remove(&key) {
                    Some(Value::Table(below)) => below,
                    _ => Table::new(),
                };
                lay(above, &mut both);
                if !both.is_empty() {
                    below.insert(key, Value::Table(both));
                }
            }
            value => {
                below.insert(key, value);
            }
        }
    }
}
