//! What happened to the city, for the final report.

use std::time::Duration;

use lab::{measure::Counters, world::World};

/// Everything that was done to the city.
#[derive(Debug, Clone, Default)]
pub(super) struct Story {
    /// The site that joined.
    pub(super) arrival: Option<Arrival>,
    /// The leader that was stopped.
    pub(super) kill: Option<Kill>,
    /// The site that left.
    pub(super) departure: Option<Departure>,
    /// Slots that each site held in the end.
    pub(super) slots: Vec<usize>,
}

/// A site that joined.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    /// Its index.
    pub(super) site: usize,
    /// When its nodes were started.
    pub(super) at: Duration,
    /// What was counted by then.
    pub(super) before: Counters,
    /// None: it has not joined yet.
    pub(super) done: Option<Done>,
}

/// A site that left.
#[derive(Debug, Clone)]
pub(super) struct Departure {
    /// Its index.
    pub(super) site: usize,
    /// When it was ordered to.
    pub(super) at: Duration,
    /// Slots that it held then.
    pub(super) slots: usize,
    /// What was counted by then.
    pub(super) before: Counters,
    /// None: it has not left yet.
    pub(super) done: Option<Done>,
}

/// How it went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// How long it took.
    pub(super) took: Duration,
    /// Slots that changed hands for it.
    pub(super) slots: usize,
    /// Operations that failed meanwhile.
    pub(super) errors: u64,
    /// Attempts that failed meanwhile and were made again.
    pub(super) retries: u64,
}

impl Done {
    /// From the counts before and after.
    pub(super) fn new(took: Duration, slots: usize, before: Counters, after: Counters) -> Self {
        let (errors, retries) = (after.errors - before.errors, after.retries - before.retries);
        Self { took, slots, errors, retries }
    }

    /// What went wrong meanwhile, in a few words.
    pub(super) fn meanwhile(self) -> String {
        match (self.errors, self.retries) {
            (0, 0) => "nothing failed meanwhile".to_owned(),
            (errors, retries) => {
                format!("meanwhile {errors} errors and {retries} attempts made again")
            }
        }
    }
}

/// The leader that was stopped.
#[derive(Debug, Clone)]
pub(super) struct Kill {
    /// Index of its site.
    pub(super) site: usize,
    /// When.
    pub(super) at: Duration,
    /// How long the site had none; none if it has none yet.
    pub(super) leaderless: Option<Duration>,
}

impl Story {
    /// What became of a site, in a word; none: it was there all the time.
    pub(super) fn fate(&self, site: usize) -> Option<&'static str> {
        let word = |is_done, done, begun| if is_done { done } else { begun };
        let arrival = self.arrival.as_ref().filter(|arrival| arrival.site == site);
        let departure = self.departure.as_ref().filter(|departure| departure.site == site);
        let came = arrival.map(|one| word(one.done.is_some(), "joined", "joining"));
        came.or_else(|| departure.map(|one| word(one.done.is_some(), "left", "leaving")))
    }

    /// What came of the sites that joined and left, a line each.
    pub(super) fn lines(&self, world: &World) -> Vec<String> {
        let name = |site: usize| &world.sites[site].name;
        let mut lines = Vec::new();
        if let Some(arrival) = &self.arrival {
            let name = name(arrival.site);
            lines.push(match arrival.done {
                Some(done) => format!(
                    "{name} joined and was given {} slots in {:.1} s; {}",
                    done.slots,
                    done.took.as_secs_f64(),
                    done.meanwhile()
                ),
                None => format!("{name} had begun to join, and had not finished in the end"),
            });
        }
        if let Some(departure) = &self.departure {
            let name = name(departure.site);
            lines.push(match departure.done {
                Some(done) => format!(
                    "{name} handed over {} slots in {:.1} s and left; {}",
                    done.slots,
                    done.took.as_secs_f64(),
                    done.meanwhile()
                ),
                None => format!("{name} had begun to leave, and had not finished in the end"),
            });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use lab::world::ready;

    use super::*;

    #[test]
    fn it_reports_joins_leaves_and_failures() {
        let world = ready::san_francisco();
        let before = Counters { errors: 1, retries: 5, ..Counters::default() };
        let took = Duration::from_millis(1_250);
        let mut story = Story::default();
        assert!(story.lines(&world).is_empty() && story.fate(5).is_none());
        story.arrival = Some(Arrival { site: 5, at: took, before, done: None });
        story.departure = Some(Departure { site: 1, at: took, slots: 7, before, done: None });
        assert_eq!(
            [5, 1, 0].map(|site| story.fate(site)),
            [Some("joining"), Some("leaving"), None]
        );
        let reported = story.lines(&world);
        assert_eq!(reported[0], "mission had begun to join, and had not finished in the end");
        assert_eq!(
            reported[1],
            "pacific-heights had begun to leave, and had not finished in the end"
        );
        let after = Counters { errors: 1, retries: 7, ..before };
        story.arrival.as_mut().unwrap().done = Some(Done::new(took, 1_800, before, before));
        story.departure.as_mut().unwrap().done = Some(Done::new(took, 7, before, after));
        assert_eq!([5, 1, 0].map(|site| story.fate(site)), [Some("joined"), Some("left"), None]);
        let reported = story.lines(&world);
        assert_eq!(
            reported,
            [
                "mission joined and was given 1800 slots in 1.2 s; nothing failed meanwhile",
                "pacific-heights handed over 7 slots in 1.2 s and left; \
                 meanwhile 0 errors and 2 attempts made again",
            ]
        );
    }
}
