//! `[placement]`: what placement goes by at this site: how accesses are weighed, how the latencies
//! to other sites are measured, and how much the site takes of what others own.

use super::ConfigError;
use model::limits;
use protocol::placement::probing::Rule;
use serde::{Deserialize, Serialize};

/// How a site places the keys that it serves. Only where a keyspace has a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlacementConfig {
    /// What a client of a key weighs.
    pub weights: Weights,
    /// The nearest sites, whose latency is measured each ten seconds, beside what requests measure.
    pub probe_nearest: usize,
    /// All sites are measured again when the latency of a near one has changed by more than this.
    pub probe_change_percent: u32,
    /// The rate of the site's link to others, by which the bytes of a move are weighed.
    pub link_mbit_per_s: u32,
    /// How many bytes of other sites' groups the site takes; 0: as many as come. `None`: what the
    /// registry has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed_bytes_max: Option<u64>,
}

/// What a client of a key weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// What it asks.
    #[default]
    Accesses,
    /// As much as any other, whatever it asks: a user; where there are no users, a client's name.
    Clients,
}

/// The most sites that can be measured each ten seconds: a site sends three questions a second.
const NEAREST_MAX: usize = 20;

impl Default for PlacementConfig {
    fn default() -> PlacementConfig {
        let rule = Rule::default();
        PlacementConfig {
            weights: Weights::default(),
            probe_nearest: rule.nearest,
            probe_change_percent: (rule.change * 100.0).round() as u32,
            link_mbit_per_s: limits::LINK_MBIT_PER_S_DEFAULT,
            borrowed_bytes_max: None,
        }
    }
}

impl PlacementConfig {
    /// The rule of the site's probes.
    pub(crate) fn rule(self) -> Rule {
        let change = self.probe_change_percent as f32 / 100.0;
        Rule { nearest: self.probe_nearest, change, ..Rule::default() }
    }
}

/// Refuses impossible settings.
pub(super) fn check(config: PlacementConfig) -> Result<(), ConfigError> {
    let value = |setting: &str, what: String| ConfigError::Value { setting: setting.into(), what };
    if !(1..=NEAREST_MAX).contains(&config.probe_nearest) {
        return Err(value("--probe-nearest", format!("must be 1 to {NEAREST_MAX}")));
    }
    if !(1..=100).contains(&config.probe_change_percent) {
        return Err(value("--probe-change-percent", "must be 1 to 100".into()));
    }
    if config.link_mbit_per_s == 0 {
        return Err(value("placement.link_mbit_per_s", "must be 1 or more".into()));
    }
    Ok(())
}
