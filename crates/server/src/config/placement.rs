//! `[placement]`: how a site measures the latencies to other sites that placement goes by.

use super::ConfigError;
use protocol::placement::probing::Rule;
use serde::{Deserialize, Serialize};

/// Which sites are probed beside what requests measure. Only where a keyspace has a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlacementConfig {
    /// The nearest sites, whose latency is measured each ten seconds.
    pub probe_nearest: usize,
    /// All sites are measured again when the latency of a near one has changed by more than this.
    pub probe_change_percent: u32,
}

/// The most sites that can be measured each ten seconds: a site sends three questions a second.
const NEAREST_MAX: usize = 20;

impl Default for PlacementConfig {
    fn default() -> PlacementConfig {
        let rule = Rule::default();
        PlacementConfig {
            probe_nearest: rule.nearest,
            probe_change_percent: (rule.change * 100.0).round() as u32,
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
    Ok(())
}
