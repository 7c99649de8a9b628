//! How far apart two ends are: a tier of links, in a world file and resolved.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file::Wrong;
use crate::link::{DELAY_MAX_MS, Latency, Link};

/// What one tier of links is like. Exactly one of `base_ms`, `uniform_ms`, `normal_ms`, `bands` and
/// `matrix` sets how long a message travels, one way.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierFile {
    /// A constant delay, ms one way; with `per_km_ms`, the part that does not grow with distance.
    pub base_ms: Option<f64>,
    /// More for each kilometre between the two ends, ms one way.
    pub per_km_ms: Option<f64>,
    /// Uniform jitter of at most this much either way, ms.
    pub jitter_ms: Option<f64>,
    /// A uniform delay: shortest and longest, ms one way.
    pub uniform_ms: Option<(f64, f64)>,
    /// A normal delay, cut off at zero: mean and standard deviation, ms one way.
    pub normal_ms: Option<(f64, f64)>,
    /// Uniform delays by distance; the first band that reaches far enough counts.
    pub bands: Option<Vec<BandFile>>,
    /// Measured delays by pair of sites, from a CSV file of numbers.
    pub matrix: Option<MatrixFile>,
    /// Megabits a second that enter one direction of a connection; without it, any number.
    pub mbps: Option<f64>,
    /// The share of packets lost, 0 to 0.5. Connections send them again, which takes time.
    pub loss: Option<f64>,
}

/// A delay for ends that are near enough.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BandFile {
    /// It counts for ends at most this far apart, in metres; without it, for all.
    pub within_m: Option<f64>,
    /// Shortest and longest delay, ms one way.
    pub uniform_ms: (f64, f64),
}

/// A matrix of measured delays.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatrixFile {
    /// A CSV file of numbers, row from and column to, without a header. Looked for beside the world
    /// file and in the folder given with `--data`.
    pub csv: PathBuf,
    /// What the numbers are: round trips (the delay is half of each), or one way.
    pub unit: MatrixUnit,
}

/// What a matrix holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatrixUnit {
    /// Round-trip times in ms.
    RttMs,
    /// One-way delays in ms.
    OneWayMs,
}

/// A tier of links, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    delay: Delay,
    mbps: Option<f64>,
    loss: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Delay {
    Distance { base_ms: f64, per_km_ms: f64, jitter_ms: f64 },
    Drawn(Latency),
    Bands(Vec<BandFile>),
    Matrix(Arc<Matrix>),
}

/// Measured one-way delays, ms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: Vec<Vec<f64>>,
}

impl Tier {
    /// A constant delay.
    #[must_use]
    pub fn constant(base_ms: f64) -> Tier {
        let delay = Delay::Distance { base_ms, per_km_ms: 0.0, jitter_ms: 0.0 };
        Tier { delay, mbps: None, loss: 0.0 }
    }

    /// The link between two ends this far apart; `pair` names two sites, for a matrix, which wraps
    /// around where it has fewer rows than there are sites.
    #[must_use]
    pub fn link(&self, distance_m: f64, pair: (usize, usize)) -> Link {
        let latency = match &self.delay {
            Delay::Distance { base_ms, per_km_ms, jitter_ms } => {
                let ms = (base_ms + per_km_ms * distance_m / 1_000.0).min(DELAY_MAX_MS);
                match *jitter_ms {
                    0.0 => Latency::Constant { ms },
                    jitter => Latency::Uniform { from_ms: ms - jitter, to_ms: ms + jitter },
                }
            }
            Delay::Drawn(latency) => *latency,
            Delay::Bands(bands) => {
                let reaches = |band: &&BandFile| band.within_m.is_none_or(|m| distance_m <= m);
                let band = bands.iter().find(reaches).unwrap_or(&bands[bands.len() - 1]);
                Latency::Uniform { from_ms: band.uniform_ms.0, to_ms: band.uniform_ms.1 }
            }
            Delay::Matrix(matrix) => {
                let row = &matrix.rows[pair.0 % matrix.rows.len()];
                Latency::Constant { ms: row[pair.1 % row.len()] }
            }
        };
        Link { latency, mbps: self.mbps, loss: self.loss }
    }
}

/// What a tier is like, for people.
impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.delay {
            Delay::Distance { base_ms, per_km_ms, jitter_ms } => {
                write!(f, "{base_ms} ms")?;
                if *per_km_ms > 0.0 {
                    write!(f, " and {per_km_ms} ms a kilometre")?;
                }
                if *jitter_ms > 0.0 {
                    write!(f, ", give or take {jitter_ms} ms")?;
                }
            }
            Delay::Drawn(Latency::Constant { ms }) => write!(f, "{ms} ms")?,
            Delay::Drawn(Latency::Uniform { from_ms, to_ms }) => {
                write!(f, "{from_ms} to {to_ms} ms")?;
            }
            Delay::Drawn(Latency::Normal { mean_ms, deviation_ms }) => {
                write!(f, "{mean_ms} ± {deviation_ms} ms")?;
            }
            Delay::Bands(bands) => {
                let texts: Vec<String> = bands
                    .iter()
                    .map(|band| {
                        let (from, to) = band.uniform_ms;
                        match band.within_m {
                            Some(m) => format!("{from} to {to} ms within {m} m"),
                            None => format!("{from} to {to} ms"),
                        }
                    })
                    .collect();
                f.write_str(&texts.join(", "))?;
            }
            Delay::Matrix(_) => f.write_str("as measured")?,
        }
        if let Some(mbps) = self.mbps {
            write!(f, ", {mbps} Mbit/s")?;
        }
        if self.loss > 0.0 {
            write!(f, ", {} % of packets lost", self.loss * 100.0)?;
        }
        Ok(())
    }
}

impl TierFile {
    /// The tier that this describes; a matrix is read by `read`.
    pub(super) fn resolve(
        &self,
        read: &dyn Fn(&MatrixFile) -> Result<Matrix, String>,
    ) -> Result<Tier, Wrong> {
        let given = [
            ("base_ms", self.base_ms.is_some()),
            ("uniform_ms", self.uniform_ms.is_some()),
            ("normal_ms", self.normal_ms.is_some()),
            ("bands", self.bands.is_some()),
            ("matrix", self.matrix.is_some()),
        ];
        let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        let [one] = given[..] else {
            let there = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
            return Err(Wrong::here(format!(
                "link: exactly one of base_ms, uniform_ms, normal_ms, bands and matrix states how \
                 long a message travels; there is {there}"
            )));
        };
        for (field, there) in
            [("per_km_ms", self.per_km_ms.is_some()), ("jitter_ms", self.jitter_ms.is_some())]
        {
            if there && one != "base_ms" {
                return Err(Wrong::at(field, format!("link: {field} goes with base_ms")));
            }
        }
        let delay = self.delay(read)?;
        if let Some(mbps) = self.mbps.filter(|mbps| !(0.001..=1e6).contains(mbps)) {
            let message = format!("link: mbps is 0.001 to 1000000, is {mbps}");
            return Err(Wrong::at("mbps", message));
        }
        let loss = self.loss.unwrap_or(0.0);
        if !(0.0..=0.5).contains(&loss) {
            return Err(Wrong::at("loss", format!("link: loss is 0 to 0.5, is {loss}")));
        }
        Ok(Tier { delay, mbps: self.mbps, loss })
    }

    fn delay(&self, read: &dyn Fn(&MatrixFile) -> Result<Matrix, String>) -> Result<Delay, Wrong> {
        let in_range = |ms: f64| (0.0..=DELAY_MAX_MS).contains(&ms);
        let refuse = |field, what: &str| {
            Err(Wrong::at(field, format!("link: {what}; delays are 0 to {DELAY_MAX_MS} ms")))
        };
        let (per_km_ms, jitter_ms) = (self.per_km_ms.unwrap_or(0.0), self.jitter_ms.unwrap_or(0.0));
        if let Some(base_ms) = self.base_ms {
            if !in_range(base_ms) || !in_range(per_km_ms) || !in_range(jitter_ms) {
                return refuse("base_ms", "each of its numbers is a delay");
            }
            if jitter_ms > base_ms {
                return refuse("jitter_ms", "jitter_ms above base_ms would deliver before sending");
            }
            return Ok(Delay::Distance { base_ms, per_km_ms, jitter_ms });
        }
        if let Some((from_ms, to_ms)) = self.uniform_ms {
            if !in_range(from_ms) || !in_range(to_ms) || from_ms > to_ms {
                return refuse("uniform_ms", "uniform_ms is [shortest, longest]");
            }
            return Ok(Delay::Drawn(Latency::Uniform { from_ms, to_ms }));
        }
        if let Some((mean_ms, deviation_ms)) = self.normal_ms {
            if !in_range(mean_ms) || !in_range(deviation_ms) {
                return refuse("normal_ms", "normal_ms is [mean, standard deviation]");
            }
            return Ok(Delay::Drawn(Latency::Normal { mean_ms, deviation_ms }));
        }
        if let Some(bands) = &self.bands {
            let well = |band: &BandFile| {
                let (from, to) = band.uniform_ms;
                in_range(from) && in_range(to) && from <= to
            };
            if bands.is_empty() || !bands.iter().all(well) {
                return refuse(
                    "bands",
                    "each band is { within_m, uniform_ms = [shortest, longest] }",
                );
            }
            return Ok(Delay::Bands(bands.clone()));
        }
        let Some(matrix) = &self.matrix else { return refuse("base_ms", "it has no delay") };
        let found = read(matrix).map_err(|message| Wrong::at("matrix", message))?;
        Ok(Delay::Matrix(Arc::new(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(text: &str) -> Result<Tier, String> {
        let file: TierFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let read = |_: &MatrixFile| Ok(Matrix { rows: vec![vec![0.0, 4.0], vec![5.0, 0.0]] });
        file.resolve(&read).map_err(|wrong| wrong.message)
    }

    fn latency(text: &str, distance_m: f64, pair: (usize, usize)) -> Latency {
        tier(text).unwrap().link(distance_m, pair).latency
    }

    #[test]
    fn a_link_grows_with_distance() {
        let text = "base_ms = 3.0\nper_km_ms = 0.5\njitter_ms = 0.25";
        let far = latency(text, 4_000.0, (0, 1));
        assert_eq!(far, Latency::Uniform { from_ms: 4.75, to_ms: 5.25 });
        assert_eq!(latency(text, 0.0, (0, 1)).mean_ms(), 3.0);
        assert_eq!(latency("base_ms = 3", 9_000.0, (0, 1)), Latency::Constant { ms: 3.0 });
    }

    #[test]
    fn each_form_of_a_delay_is_read() {
        let uniform = |from_ms, to_ms| Latency::Uniform { from_ms, to_ms };
        assert_eq!(latency("uniform_ms = [5, 10]", 0.0, (0, 0)), uniform(5.0, 10.0));
        let normal = Latency::Normal { mean_ms: 5.0, deviation_ms: 2.0 };
        assert_eq!(latency("normal_ms = [5, 2]", 0.0, (0, 0)), normal);
        let bands = "bands = [{ within_m = 300, uniform_ms = [5, 10] }, { uniform_ms = [40, 50] }]";
        assert_eq!(latency(bands, 299.0, (0, 0)), uniform(5.0, 10.0));
        assert_eq!(latency(bands, 301.0, (0, 0)), uniform(40.0, 50.0));
        let matrix = "matrix = { csv = 'm.csv', unit = 'rtt_ms' }";
        assert_eq!(latency(matrix, 0.0, (1, 0)), Latency::Constant { ms: 5.0 });
        assert_eq!(latency(matrix, 0.0, (2, 3)), Latency::Constant { ms: 4.0 });
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert!(tier("mbps = 5").unwrap_err().ends_with("there is none"));
        assert!(tier("base_ms = 1\nuniform_ms = [1, 2]").unwrap_err().contains("base_ms and uni"));
        assert!(tier("uniform_ms = [1, 2]\njitter_ms = 1").unwrap_err().contains("goes with"));
        assert!(tier("base_ms = 1\njitter_ms = 2").unwrap_err().contains("before sending"));
        assert!(tier("uniform_ms = [3, 2]").unwrap_err().contains("[shortest, longest]"));
        assert!(tier("base_ms = 1\nloss = 0.9").unwrap_err().contains("loss is 0 to 0.5"));
        assert!(tier("base_ms = 1\nmbps = 0").unwrap_err().contains("mbps is 0.001"));
    }
}
