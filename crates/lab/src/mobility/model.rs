//! Which model moves a client: that part of a world file.

use std::path::PathBuf;

use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Track,
    manhattan::{self, Manhattan},
    way::Way,
    waypoint::{self, Waypoint},
};
use crate::geo::{Bounds, Point};

/// How clients move.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum Mobility {
    /// Not at all.
    Still(Still),
    /// Straight to random places, at random speeds.
    Waypoint(Waypoint),
    /// Along the streets of a grid.
    Manhattan(Manhattan),
    /// As a recorded trace does.
    Trace(Replay),
}

/// A client that stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Still {
    /// Where; without it each client has a place of its own, drawn uniformly from the area.
    #[serde(default)]
    pub at: Option<Point>,
}

/// Which part of a recorded trace to replay, and how fast.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The trace: CSV with a header `cab,t_s,lat,lon`, plain or gzip.
    pub file: PathBuf,
    /// The trace's second at which the run begins; without it the trace's first.
    #[serde(default)]
    pub from_s: Option<f64>,
    /// The trace's second at which to stop; without it the trace's last.
    #[serde(default)]
    pub to_s: Option<f64>,
    /// Seconds of the trace that pass in one second of the run, 0.001 to 10,000.
    #[serde(default = "real_time")]
    pub speed: f64,
}

fn real_time() -> f64 {
    1.0
}

impl Mobility {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Mobility::Still(still) => still.check(),
            Mobility::Waypoint(waypoint) => waypoint.check(),
            Mobility::Manhattan(manhattan) => manhattan.check(),
            Mobility::Trace(replay) => replay.check(),
        }
    }

    /// One client's track of `duration_s` seconds from time 0, inside the area. None for a trace:
    /// its tracks are read ([`super::trace::load`]), not made.
    ///
    /// The same generator state gives the same track.
    pub fn track(
        &self,
        name: impl Into<String>,
        area: &Bounds,
        duration_s: f64,
        rng: &mut impl Rng,
    ) -> Option<Track> {
        Some(match self {
            Mobility::Still(still) => {
                let at = still.at.unwrap_or_else(|| waypoint::place(area, rng));
                let mut way = Way::begin(0.0, at);
                way.wait_until(duration_s);
                way.track(name)
            }
            Mobility::Waypoint(waypoint) => waypoint::track(name, area, waypoint, duration_s, rng),
            Mobility::Manhattan(manhattan) => {
                manhattan::track(name, area, manhattan, duration_s, rng)
            }
            Mobility::Trace(_) => return None,
        })
    }
}

impl Still {
    fn check(&self) -> Result<(), String> {
        if self.at.is_some_and(|at| !at.is_on_earth()) {
            return Err("still: at: lat is −90 to 90 and lon −180 to 180".to_owned());
        }
        Ok(())
    }
}

impl Replay {
    fn check(&self) -> Result<(), String> {
        let (from_s, to_s) =
            (self.from_s.unwrap_or(f64::NEG_INFINITY), self.to_s.unwrap_or(f64::INFINITY));
        if !self.from_s.unwrap_or(0.0).is_finite() || !self.to_s.unwrap_or(0.0).is_finite() {
            return Err("trace: from_s and to_s are numbers".to_owned());
        }
        if from_s >= to_s {
            return Err(format!("trace: from_s must be before to_s, is {from_s} and {to_s}"));
        }
        if !(0.001..=10_000.0).contains(&self.speed) {
            return Err(format!("trace: speed is 0.001 to 10000, is {}", self.speed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::way::tests::{CITY, assert_sound},
        *,
    };
    use crate::random::Random;

    fn parse(text: &str) -> Result<Mobility, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    const ALL: [&str; 4] = [
        "model = \"still\"",
        "model = \"waypoint\"\nspeed_min_kmh = 15\nspeed_max_kmh = 55.0\npause_max_s = 120",
        "model = \"manhattan\"\nblock_m = 200\nspeed_min_kmh = 15\nspeed_max_kmh = 55",
        "model = \"trace\"\nfile = \"cabs.csv.gz\"\nfrom_s = 3600\nspeed = 10",
    ];

    #[test]
    fn each_model_is_read_from_a_world_and_moves_a_client() {
        for text in ALL {
            let mobility = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            mobility.check().unwrap();
            if matches!(mobility, Mobility::Trace(_)) {
                assert_eq!(mobility.track("1", &CITY, 60.0, &mut Random::new(1)), None);
            } else {
                assert_sound(|duration_s, rng| {
                    mobility.track("1", &CITY, duration_s, rng).unwrap()
                });
            }
        }
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for text in ALL {
            let error = parse(&format!("{text}\nspeed_kph = 3")).unwrap_err();
            assert!(error.contains("unknown field `speed_kph`"), "{text}: {error}");
        }
        let error = parse("model = \"teleport\"").unwrap_err();
        assert!(error.contains("unknown variant `teleport`"), "{error}");
        assert!(parse("speed = 1").unwrap_err().contains("model"));
    }

    #[test]
    fn a_static_client_stays_where_it_was_put() {
        let here = Point::new(37.75, -122.4);
        let put = parse("model = \"still\"\nat = { lat = 37.75, lon = -122.4 }").unwrap();
        let track = put.track("1", &CITY, 900.0, &mut Random::new(1)).unwrap();
        assert!(track.fixes().iter().all(|fix| fix.at == here));
        let drawn = Mobility::Still(Still::default());
        let one = drawn.track("1", &CITY, 900.0, &mut Random::new(1)).unwrap();
        assert!(one.fixes().iter().all(|fix| fix.at == one.fixes()[0].at));
    }

    #[test]
    fn bad_parameters_are_refused_with_the_models_name() {
        let bad = [
            ("model = \"still\"\nat = { lat = 97, lon = 0 }", "still: at"),
            (
                "model = \"waypoint\"\nspeed_min_kmh = 0\nspeed_max_kmh = 5\npause_max_s = 1",
                "waypoint: 1 ≤",
            ),
            ("model = \"trace\"\nfile = \"a\"\nfrom_s = 5\nto_s = 5", "trace: from_s must be"),
            ("model = \"trace\"\nfile = \"a\"\nfrom_s = nan", "trace: from_s and to_s"),
            ("model = \"trace\"\nfile = \"a\"\nspeed = 0", "trace: speed"),
        ];
        for (text, words) in bad {
            let sentence = parse(text).unwrap().check().unwrap_err();
            assert!(sentence.starts_with(words), "{sentence}");
        }
    }

    #[test]
    fn the_schema_names_each_model_and_explains_its_fields() {
        let schema = serde_json::to_string(&schemars::schema_for!(Mobility)).unwrap();
        for model in ["still", "waypoint", "manhattan", "trace"] {
            assert!(schema.contains(&format!("\"const\":\"{model}\"")), "{model}: {schema}");
        }
        assert!(schema.contains("Metres from one crossing to the next"), "{schema}");
    }
}
