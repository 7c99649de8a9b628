//! Commuter: at home in the night, at work by day, on the way between the two twice a day.
//!
//! Home is anywhere in the area; work is near a centre, so that in the morning all go where
//! the others go too. That is the pattern of load that sites see from a city: it moves in and out
//! once a day. Departures are normal around two hours of the day. Models of this family: Ekman,
//! Keränen, Karvo and Ott, *Working day movement model* (2008), with evenings out and buses
//! besides.
//!
//! A day may be shortened: then everything of it is faster in proportion, the ways too.
//!
//! Left out: weekends, other errands, and streets; a way is one line or two at a right angle.

use rand::Rng;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Fix, Track, check_speeds,
    way::{Plane, Way},
};
use crate::{
    geo::{Bounds, Point},
    random::Random,
};

const REAL_DAY_S: f64 = 86_400.0;

/// When and how commuters go to work and back.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Commuter {
    /// Mean hour of the day of leaving home, 0 to 24.
    #[serde(default = "eight")]
    pub morning_h: f64,
    /// Mean hour of the day of leaving work, after the morning's.
    #[serde(default = "half_past_five")]
    pub evening_h: f64,
    /// Standard deviation of both, in hours. A departure stays in its half of the day.
    #[serde(default = "one")]
    pub deviation_h: f64,
    /// Speed on the way.
    pub speed_kmh: f64,
    /// How far from the centre people work: the standard deviation in each direction, in metres.
    /// Who would work outside of the area works at its edge.
    pub work_spread_m: f64,
    /// The middle of where people work; without it the middle of the area.
    #[serde(default)]
    pub center: Option<Point>,
    /// The shape of a way.
    #[serde(default)]
    pub way: WayShape,
    /// How many seconds of the run a day lasts, 1 to 86,400. A shorter day passes faster, the ways
    /// included.
    #[serde(default = "real_day")]
    pub day_s: f64,
    /// The hour of the day at which the run begins, 0 to 24.
    #[serde(default)]
    pub start_h: f64,
}

/// The shape of a commuter's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WayShape {
    /// First east or west, then north or south, as on a grid of streets; back the same way.
    #[default]
    Corner,
    /// One straight line.
    Straight,
}

fn eight() -> f64 {
    8.0
}

fn half_past_five() -> f64 {
    17.5
}

fn one() -> f64 {
    1.0
}

fn real_day() -> f64 {
    REAL_DAY_S
}

impl Commuter {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        let Self { morning_h, evening_h, deviation_h, .. } = *self;
        if !(0.0 <= morning_h && morning_h < evening_h && evening_h <= 24.0) {
            return Err("commuter: 0 ≤ morning_h < evening_h ≤ 24".to_owned());
        }
        if !(0.0..=6.0).contains(&deviation_h) {
            return Err(format!("commuter: deviation_h is 0 to 6, is {deviation_h}"));
        }
        check_speeds("commuter", self.speed_kmh, self.speed_kmh)?;
        if !(0.0..=1e6).contains(&self.work_spread_m) {
            let is = self.work_spread_m;
            return Err(format!("commuter: work_spread_m is 0 to 1000000, is {is}"));
        }
        if self.center.is_some_and(|center| !center.is_on_earth()) {
            return Err("commuter: center: lat is −90 to 90 and lon −180 to 180".to_owned());
        }
        if !(1.0..=REAL_DAY_S).contains(&self.day_s) {
            return Err(format!("commuter: day_s is 1 to 86400, is {}", self.day_s));
        }
        if !(0.0..=24.0).contains(&self.start_h) {
            return Err(format!("commuter: start_h is 0 to 24, is {}", self.start_h));
        }
        Ok(())
    }

    /// Goes from one place to another over the corner, if there is one.
    fn go(&self, way: &mut Way, corner: Option<Point>, from: Point, to: Point) {
        let run_s_per_s = self.day_s / REAL_DAY_S;
        let mut at = from;
        for next in corner.into_iter().chain([to]) {
            way.go(next, at.distance_m(next) / (self.speed_kmh / 3.6) * run_s_per_s);
            at = next;
        }
    }
}

/// Moves one commuter for `duration_s` seconds from time 0, which is `start_h` of the first day.
///
/// The same generator state gives the same track.
pub fn track(
    name: impl Into<String>,
    area: &Bounds,
    parameters: &Commuter,
    duration_s: f64,
    rng: &mut impl Rng,
) -> Track {
    let Commuter { morning_h, evening_h, deviation_h, work_spread_m, day_s, start_h, .. } =
        *parameters;
    let mut chance = Random::new(rng.random());
    let plane = Plane::new(area);
    let home = plane.point((chance.fraction() * plane.width_m, chance.fraction() * plane.height_m));
    let (east_m, north_m) = plane.meters(parameters.center.unwrap_or(area.center()));
    let work =
        plane.point((chance.normal(east_m, work_spread_m), chance.normal(north_m, work_spread_m)));
    let corner = (parameters.way == WayShape::Corner).then_some(Point::new(home.lat, work.lon));

    let hour_s = day_s / 24.0;
    let noon_h = (morning_h + evening_h) / 2.0;
    let mut midnight_s = -start_h * hour_s;
    let mut way = Way::begin(midnight_s, home);
    while way.t_s() < duration_s {
        let to_work_h = chance.normal(morning_h, deviation_h).clamp(0.0, noon_h);
        let to_home_h = chance.normal(evening_h, deviation_h).clamp(noon_h, 24.0);
        // Who arrives after the time to leave leaves at once.
        way.wait_until(midnight_s + to_work_h * hour_s);
        parameters.go(&mut way, corner, home, work);
        way.wait_until(midnight_s + to_home_h * hour_s);
        parameters.go(&mut way, corner, work, home);
        midnight_s += day_s;
        way.wait_until(midnight_s);
    }
    from_zero(way.track(name))
}

/// A track without what comes before time 0.
fn from_zero(track: Track) -> Track {
    let now = track.position(0.0).map(|at| Fix { t_s: 0.0, at });
    let later = track.fixes().iter().filter(|fix| fix.t_s > 0.0).copied();
    Track::new(track.name(), now.into_iter().chain(later).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::way::tests::{CITY, assert_sound},
        *,
    };

    const TOWN: Commuter = Commuter {
        morning_h: 8.0,
        evening_h: 17.0,
        deviation_h: 0.75,
        speed_kmh: 25.0,
        work_spread_m: 800.0,
        center: None,
        way: WayShape::Corner,
        day_s: REAL_DAY_S,
        start_h: 0.0,
    };

    fn tracks(parameters: &Commuter, count: u64, days: f64) -> Vec<Track> {
        let duration_s = parameters.day_s * days;
        let one = |seed| track("1", &CITY, parameters, duration_s, &mut Random::new(seed));
        (0..count).map(one).collect()
    }

    /// Home, and the place where most other time is spent.
    fn home_and_work(track: &Track) -> (Point, Point) {
        let home = track.fixes()[0].at;
        let work = track.position(track.span_s().unwrap().0 + 12.5 / 24.0 * 86_400.0).unwrap();
        (home, work)
    }

    /// The times at which a track leaves a place, in seconds.
    fn departures_s(track: &Track, place: Point) -> Vec<f64> {
        let leaves = |pair: &&[Fix]| pair[0].at == place && pair[1].at != place;
        track.fixes().windows(2).filter(leaves).map(|pair| pair[0].t_s).collect()
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt())
    }

    #[test]
    fn it_is_sound() {
        assert_sound(|duration_s, rng| track("1", &CITY, &TOWN, duration_s, rng));
        let brief = Commuter { day_s: 600.0, start_h: 7.9, way: WayShape::Straight, ..TOWN };
        assert_sound(|duration_s, rng| track("1", &CITY, &brief, duration_s, rng));
    }

    #[test]
    fn departures_have_their_mean_and_deviation() {
        let (mut mornings, mut evenings) = (Vec::new(), Vec::new());
        for track in tracks(&TOWN, 100, 20.0) {
            let (home, work) = home_and_work(&track);
            let hours = |t_s: f64| t_s.rem_euclid(REAL_DAY_S) / 3_600.0;
            mornings.extend(departures_s(&track, home).into_iter().map(hours));
            evenings.extend(departures_s(&track, work).into_iter().map(hours));
        }
        for (values, expected_h) in [(mornings, 8.0), (evenings, 17.0)] {
            assert!((1_990..=2_010).contains(&values.len()), "{}", values.len());
            let (mean, deviation) = mean_and_deviation(&values);
            assert!((mean - expected_h).abs() < 0.07, "{mean}");
            assert!((deviation - 0.75).abs() < 0.05, "{deviation}");
        }
    }

    #[test]
    fn time_is_shared_between_home_work_and_the_way() {
        for shape in [WayShape::Corner, WayShape::Straight] {
            let (mut shares, mut expected) = ([0.0; 3], [0.0; 3]);
            for track in tracks(&Commuter { way: shape, ..TOWN }, 200, 5.0) {
                let (home, work) = home_and_work(&track);
                for pair in track.fixes().windows(2) {
                    let step_s = pair[1].t_s - pair[0].t_s;
                    let place = match (pair[0].at == pair[1].at, pair[0].at) {
                        (true, at) if at == home => 0,
                        (true, at) if at == work => 1,
                        _ => 2,
                    };
                    shares[place] += step_s / (5.0 * REAL_DAY_S) / 200.0;
                }
                let corner = Point::new(home.lat, work.lon);
                let way_m = match shape {
                    WayShape::Corner => home.distance_m(corner) + corner.distance_m(work),
                    WayShape::Straight => home.distance_m(work),
                };
                let way_h = way_m / 1_000.0 / 25.0;
                let day = [24.0 - 9.0 - way_h, 9.0 - way_h, 2.0 * way_h];
                for (sum, hours) in expected.iter_mut().zip(day) {
                    *sum += hours / 24.0 / 200.0;
                }
            }
            for (share, expected) in shares.into_iter().zip(expected) {
                assert!((share - expected).abs() < 0.004, "{shape:?}: {shares:?} {expected}");
            }
        }
    }

    #[test]
    fn homes_are_everywhere_and_work_is_around_the_centre() {
        let center = Point::new(37.79, -122.40);
        let tracks = tracks(&Commuter { center: Some(center), ..TOWN }, 1_000, 1.0);
        let plane = Plane::new(&CITY);
        let (mut homes, mut east, mut north) = (Vec::new(), Vec::new(), Vec::new());
        for track in &tracks {
            let (home, work) = home_and_work(track);
            homes.push(plane.meters(home).0 / plane.width_m);
            let ((x, y), (center_x, center_y)) = (plane.meters(work), plane.meters(center));
            east.push(x - center_x);
            north.push(y - center_y);
        }
        let (mean, deviation) = mean_and_deviation(&homes);
        assert!((mean - 0.5).abs() < 0.04 && (deviation - 12_f64.sqrt().recip()).abs() < 0.02);
        for values in [east, north] {
            let (mean, deviation) = mean_and_deviation(&values);
            assert!(mean.abs() < 100.0 && (deviation - 800.0).abs() < 80.0, "{mean} {deviation}");
        }
    }

    #[test]
    fn a_shortened_day_is_the_same_day_faster() {
        let real = &tracks(&TOWN, 1, 2.0)[0];
        let short = &tracks(&Commuter { day_s: 864.0, ..TOWN }, 1, 2.0)[0];
        for minute in 0..2_880 {
            let real_s = f64::from(minute) * 60.0;
            let (a, b) = (real.position(real_s), short.position(real_s / 100.0));
            assert!(a.unwrap().distance_m(b.unwrap()) < 0.01, "{minute}");
        }
        let late = &tracks(&Commuter { start_h: 7.0, ..TOWN }, 1, 1.0)[0];
        for minute in 0..1_440 {
            let at_s = f64::from(minute) * 60.0;
            let (a, b) = (real.position(at_s + 7.0 * 3_600.0), late.position(at_s));
            assert!(a.unwrap().distance_m(b.unwrap()) < 0.01, "{minute}");
        }
    }

    #[test]
    fn bad_parameters_are_refused() {
        TOWN.check().unwrap();
        let bad = [
            (Commuter { evening_h: 7.0, ..TOWN }, "morning_h < evening_h"),
            (Commuter { deviation_h: 7.0, ..TOWN }, "deviation_h"),
            (Commuter { speed_kmh: 0.0, ..TOWN }, "speed"),
            (Commuter { work_spread_m: -1.0, ..TOWN }, "work_spread_m"),
            (Commuter { center: Some(Point::new(91.0, 0.0)), ..TOWN }, "center"),
            (Commuter { day_s: 0.0, ..TOWN }, "day_s"),
            (Commuter { start_h: 25.0, ..TOWN }, "start_h"),
        ];
        for (parameters, words) in bad {
            let sentence = parameters.check().unwrap_err();
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
