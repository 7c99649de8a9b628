//! What the vehicles asked and what came back, as a history that can be judged.
//!
//! A zone's hazards are one hash, and every report is a field of its own. So each report is a key
//! of the history, `<site>:<key of the zone>/<field>`, and what vehicles do becomes:
//!
//! | vehicle | history |
//! | --- | --- |
//! | reports: HSET | a `put` of that key |
//! | clears: HDEL | a `delete` of that key |
//! | looks: HGETALL | a `get` of each key that it showed; and of each that was put, with no attempt to clear it, but that it did not show: these gets found nothing |
//!
//! A vehicle's own record, a global key, is a key of the history as it is: SET is a `put` of it and
//! GET a `get`, at whatever site.
//!
//! That is sound, for HGETALL reads the whole hash at one moment, and what is true of a hash at one
//! moment is true of each of its fields. Which gets are written does not matter: a history that can
//! be explained can be explained with fewer reads.
//!
//! Writes are another matter, for every one of them may be seen. Each attempt is an operation: one
//! that got no answer is `unknown` for ever, since it may still arrive after the next one was
//! answered. It is written down before it is sent, so that one whose vehicle was stopped meanwhile
//! is there as well.
//!
//! Limit: from [`OPERATIONS_MAX`] operations on, new reports are left out, with all that is done to
//! them, and records from the next time that they are written. Reads may take three quarters of
//! that, spread over the length of the run, so that a long run is observed to its end; beyond it
//! they are left out. A mark has the number of each. What is done to older reports, and what is
//! read back at the end, is always written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use lab::history::{Action, Header, History, Mark, MarkKind, Operation, Outcome, Promise};
use wire::resp::Reply;

use super::hazards;

/// From so many operations on nothing new is taken up: about 100 MB of memory, and 50 of a file.
pub(super) const OPERATIONS_MAX: usize = 250_000;

/// Records while vehicles drive.
#[derive(Debug)]
pub(super) struct Recorder {
    sites: Vec<String>,
    history: History,
    /// Reports that are keys of the history.
    known: HashSet<String>,
    /// Of each zone the fields that were put, with no attempt to clear them.
    standing: HashMap<String, BTreeSet<String>>,
    /// Records of which a write was left out, and with it all that came later.
    closed: HashSet<String>,
    length: Duration,
    operations_max: usize,
    reads_left_out: u64,
    writes_left_out: u64,
}

/// A command that was sent and whose answer is still to come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    /// A write: where it is in the history.
    Write(usize),
    /// A read.
    Read {
        /// When it was sent.
        call_us: u64,
    },
}

/// Who sends what to where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command<'a> {
    /// Which vehicle; none is the audit at the end.
    pub(super) vehicle: Option<usize>,
    /// Index of the site.
    pub(super) site: usize,
    /// The words of the command.
    pub(super) words: &'a [&'a str],
}

impl Command<'_> {
    fn client(&self) -> String {
        self.vehicle.map_or("audit".to_owned(), |vehicle| format!("v{vehicle}"))
    }
}

fn micros(at: Duration) -> u64 {
    at.as_micros() as u64
}

impl Recorder {
    /// An empty history of these sites and of a run of about this length.
    pub(super) fn new(sites: Vec<String>, length: Duration) -> Self {
        Self {
            sites,
            history: History::default(),
            known: HashSet::new(),
            standing: HashMap::new(),
            closed: HashSet::new(),
            length,
            operations_max: OPERATIONS_MAX,
            reads_left_out: 0,
            writes_left_out: 0,
        }
    }

    /// A command is about to be sent. None if there is nothing to record of it.
    pub(super) fn asked(&mut self, command: Command<'_>, at: Duration) -> Option<Asked> {
        let (key, field, action) = match *command.words {
            ["HSET", key, field, value] => (key, field, Action::Put { value: value.to_owned() }),
            ["HDEL", key, field] => (key, field, Action::Delete),
            ["HGETALL", _] | ["GET", _] => return Some(Asked::Read { call_us: micros(at) }),
            ["SET", key, value] => return self.saves(command, key, value, at),
            _ => return None,
        };
        let zone = self.zone(command.site, key);
        let name = format!("{zone}/{field}");
        match action {
            Action::Delete => drop(self.standing.get_mut(&zone).map(|zone| zone.remove(field))),
            _ if self.is_full() && !self.known.contains(&name) => self.writes_left_out += 1,
            _ if self.known.insert(name.clone()) => {
                self.standing.entry(zone).or_default().insert(field.to_owned());
            }
            _ => {}
        }
        if !self.known.contains(&name) {
            return None;
        }
        Some(self.writes(command, name, action, at))
    }

    /// A record is written. Once one write of it is left out nothing more of it can be explained.
    fn saves(
        &mut self,
        command: Command<'_>,
        key: &str,
        value: &str,
        at: Duration,
    ) -> Option<Asked> {
        if self.is_full() || self.closed.contains(key) {
            self.closed.insert(key.to_owned());
            self.writes_left_out += 1;
            return None;
        }
        let action = Action::Put { value: value.to_owned() };
        Some(self.writes(command, key.to_owned(), action, at))
    }

    fn writes(&mut self, command: Command<'_>, key: String, action: Action, at: Duration) -> Asked {
        let outcome = Outcome::Unknown { why: "no answer".to_owned() };
        self.push(command, key, (micros(at), None), action, outcome);
        Asked::Write(self.history.operations.len() - 1)
    }

    /// It was answered.
    pub(super) fn answered(
        &mut self,
        asked: Asked,
        command: Command<'_>,
        reply: &Reply,
        at: Duration,
    ) {
        match (asked, command.words) {
            (Asked::Write(index), _) => {
                if let Some(operation) = self.history.operations.get_mut(index) {
                    operation.return_us = Some(micros(at));
                    operation.outcome = Outcome::Written { version: None };
                }
            }
            (Asked::Read { call_us }, ["HGETALL", key]) => {
                self.looked(command, key, reply, (call_us, Some(micros(at))));
            }
            (Asked::Read { call_us }, ["GET", key]) => {
                self.recalled(command, key, reply, (call_us, Some(micros(at))));
            }
            (Asked::Read { .. }, _) => {}
        }
    }

    /// What a record was. A write that was left out is seen only by reads that end after it was
    /// asked.
    fn recalled(
        &mut self,
        command: Command<'_>,
        key: &str,
        reply: &Reply,
        times_us: (u64, Option<u64>),
    ) {
        let value = match reply {
            Reply::Null => None,
            Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => return,
        };
        let has_room = command.vehicle.is_none() || self.has_room_for_a_read(times_us.0);
        if self.closed.contains(key) || !has_room {
            self.reads_left_out += 1;
            return;
        }
        let outcome = Outcome::Value { value, version: None };
        self.push(command, key.to_owned(), times_us, Action::Get, outcome);
    }

    /// What a look showed, and what it did not. The audit's are never left out: they are few.
    fn looked(
        &mut self,
        command: Command<'_>,
        key: &str,
        reply: &Reply,
        times_us: (u64, Option<u64>),
    ) {
        if !matches!(reply, Reply::Array(_)) {
            return;
        }
        let is_vehicle = command.vehicle.is_some();
        if is_vehicle && !self.has_room_for_a_read(times_us.0) {
            self.reads_left_out += 1;
            return;
        }
        let zone = self.zone(command.site, key);
        let shown: HashMap<String, String> = hazards::fields(reply).into_iter().collect();
        let standing = self.standing.get(&zone);
        let missing: Vec<String> = standing.into_iter().flatten().cloned().collect();
        let missing = missing.into_iter().filter(|field| !shown.contains_key(field));
        let missing: Vec<_> = missing.map(|field| (field, None)).collect();
        let shown = shown.into_iter().map(|(field, value)| (field, Some(value)));
        let mut found: Vec<(String, Option<String>)> = shown.chain(missing).collect();
        found.sort();
        for (field, value) in found {
            let name = format!("{zone}/{field}");
            // What vehicles see was put before anything was left out, or was not put at all.
            if !is_vehicle && !self.known.contains(&name) {
                continue;
            }
            let outcome = Outcome::Value { value, version: None };
            self.push(command, name, times_us, Action::Get, outcome);
        }
    }

    /// Something happened.
    pub(super) fn mark(&mut self, kind: MarkKind, text: String, at: Duration) {
        self.history.marks.push(Mark { at_us: micros(at), kind, text });
    }

    /// The history, recorded until now; the recorder is empty then.
    pub(super) fn take(&mut self, world: String, seed: u64, at: Duration) -> History {
        let (reads, writes) = (self.reads_left_out, self.writes_left_out);
        if reads + writes > 0 {
            let max = self.operations_max;
            let text = format!(
                "of at most {max} operations: {reads} reads and {writes} attempts to write are left out"
            );
            self.mark(MarkKind::Note, text, at);
        }
        let promises = vec![Promise::Linearizable, Promise::Durable];
        let (world, seed) = (Some(world), Some(seed));
        let header =
            Header { source: "demo".to_owned(), world, seed, promises, ..Header::default() };
        History { header, ..std::mem::take(&mut self.history) }
    }

    fn is_full(&self) -> bool {
        self.history.operations.len() >= self.operations_max
    }

    /// Whether the reads up to this time have not used up what they may.
    fn has_room_for_a_read(&self, at_us: u64) -> bool {
        let passed = at_us as f64 / (self.length.as_micros() as f64).max(1.0);
        // A tenth at once, for the beginning is busy.
        let share = 0.75 * (0.1 + 0.9 * passed).min(1.0);
        (self.history.operations.len() as f64) < self.operations_max as f64 * share
    }

    fn zone(&self, site: usize, key: &str) -> String {
        format!("{}:{key}", self.sites[site])
    }

    fn push(
        &mut self,
        command: Command<'_>,
        key: String,
        (call_us, return_us): (u64, Option<u64>),
        action: Action,
        outcome: Outcome,
    ) {
        self.history.operations.push(Operation {
            client: command.client(),
            site: Some(self.sites[command.site].clone()),
            key,
            call_us,
            waited_us: 0,
            return_us,
            action,
            outcome,
            stale: false,
            together: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::verdict::{Options, Verdict, describe, judge};

    const ZONE: &str = "hazard:1.1";

    /// A recorder and a clock that goes on by 10 µs with each call and each answer.
    struct Scripted {
        recorder: Recorder,
        now: Duration,
    }

    impl Scripted {
        fn new() -> Self {
            let recorder = Recorder::new(vec!["a".to_owned(), "b".to_owned()], Duration::ZERO);
            Self { recorder, now: Duration::ZERO }
        }

        fn tick(&mut self) -> Duration {
            self.now += Duration::from_micros(10);
            self.now
        }

        fn does(&mut self, words: &[&str], reply: Option<Reply>) {
            let command = Command { vehicle: Some(1), site: 0, words };
            let at = self.tick();
            let asked = self.recorder.asked(command, at);
            let at = self.tick();
            if let (Some(asked), Some(reply)) = (asked, reply) {
                self.recorder.answered(asked, command, &reply, at);
            }
        }

        fn reports(&mut self, field: &str, reply: Option<Reply>) {
            self.does(&["HSET", ZONE, field, &format!("crash {field}")], reply);
        }

        fn sees(&mut self, fields: &[&str]) {
            self.does(&["HGETALL", ZONE], Some(showing(fields)));
        }

        fn taken(mut self) -> History {
            self.recorder.take("w".to_owned(), 1, self.now)
        }
    }

    const DONE: Option<Reply> = Some(Reply::Integer(1));

    fn showing(fields: &[&str]) -> Reply {
        let bulk = |text: String| Reply::Bulk(text.into());
        let pair = |field: &&str| [bulk((*field).to_owned()), bulk(format!("crash {field}"))];
        Reply::Array(fields.iter().flat_map(pair).collect())
    }

    fn verdicts(history: &History) -> Vec<&'static str> {
        let judged = judge(history, &[], &Options::default());
        let word = |verdict: &Verdict| match verdict {
            Verdict::Holds { .. } => "holds",
            Verdict::Broken(_) => "broken",
            Verdict::Undecided { .. } => "undecided",
        };
        judged.iter().map(|judged| word(&judged.verdict)).collect()
    }

    #[test]
    fn fields_become_keys_and_a_look_reads_those_that_stand() {
        let mut demo = Scripted::new();
        demo.does(&["PING"], Some(Reply::Simple("PONG".into())));
        demo.reports("1-1", DONE);
        demo.reports("1-2", None);
        demo.sees(&["1-1"]);
        demo.does(&["HDEL", ZONE, "1-1"], DONE);
        demo.sees(&["1-2"]);
        let history = demo.taken();
        let lines: Vec<String> =
            history.operations.iter().map(|o| format!("{} {}", o.key, describe(o))).collect();
        assert_eq!(
            lines,
            [
                "a:hazard:1.1/1-1 v1 put \"crash 1-1\" -> done (30 to 40 µs)",
                "a:hazard:1.1/1-2 v1 put \"crash 1-2\" -> unknown (no answer) (50 µs, never returned)",
                "a:hazard:1.1/1-1 v1 get -> \"crash 1-1\" (70 to 80 µs)",
                "a:hazard:1.1/1-2 v1 get -> nothing (70 to 80 µs)",
                "a:hazard:1.1/1-1 v1 delete -> done (90 to 100 µs)",
                "a:hazard:1.1/1-2 v1 get -> \"crash 1-2\" (110 to 120 µs)",
            ]
        );
        assert_eq!(history.header.source, "demo");
        assert_eq!(verdicts(&history), ["holds", "holds"]);
    }

    #[test]
    fn a_report_that_is_lost_breaks_both_promises() {
        let mut demo = Scripted::new();
        demo.reports("1-1", DONE);
        demo.sees(&["1-1"]);
        demo.sees(&[]);
        assert_eq!(verdicts(&demo.taken()), ["broken", "broken"]);
    }

    #[test]
    fn a_report_never_made_or_coming_back_is_not_explained() {
        let mut demo = Scripted::new();
        demo.sees(&["9-9"]);
        assert_eq!(verdicts(&demo.taken())[0], "broken");
        let mut demo = Scripted::new();
        demo.reports("1-1", DONE);
        demo.does(&["HDEL", ZONE, "1-1"], DONE);
        demo.sees(&["1-1"]);
        assert_eq!(verdicts(&demo.taken())[0], "broken");
    }

    #[test]
    fn an_attempt_without_an_answer_may_arrive_after_the_next_one() {
        let mut demo = Scripted::new();
        demo.reports("1-1", None);
        demo.reports("1-1", DONE);
        demo.does(&["HDEL", ZONE, "1-1"], DONE);
        demo.sees(&["1-1"]);
        assert_eq!(verdicts(&demo.taken()), ["holds", "holds"]);
    }

    #[test]
    fn a_full_history_can_be_judged_and_states_its_gaps() {
        let mut demo = Scripted::new();
        demo.recorder.operations_max = 2;
        demo.reports("1-1", DONE);
        demo.reports("1-2", DONE);
        demo.reports("1-3", DONE);
        demo.sees(&["1-1", "1-2", "1-3"]);
        demo.does(&["HDEL", ZONE, "1-1"], DONE);
        demo.does(&["HDEL", ZONE, "1-3"], DONE);
        let audit = Command { vehicle: None, site: 0, words: &["HGETALL", ZONE] };
        let at = demo.tick();
        let asked = demo.recorder.asked(audit, at).unwrap();
        let at = demo.tick();
        demo.recorder.answered(asked, audit, &showing(&["1-2", "1-3"]), at);
        let history = demo.taken();
        let keys: Vec<_> =
            history.operations.iter().map(|o| (o.client.as_str(), &o.key[13..])).collect();
        assert_eq!(keys, [("v1", "1-1"), ("v1", "1-2"), ("v1", "1-1"), ("audit", "1-2")]);
        assert_eq!(
            history.marks[0].text,
            "of at most 2 operations: 1 reads and 1 attempts to write are left out"
        );
        assert_eq!(verdicts(&history), ["holds", "holds"]);
    }

    /// A vehicle of that number at a site saves, or reads (`None`) its record and sees this.
    fn own(demo: &mut Scripted, site: usize, saves: Option<&str>, reply: Option<Reply>) {
        let words = saves.map_or(vec!["GET", "car:1"], |value| vec!["SET", "car:1", value]);
        let command = Command { vehicle: Some(1), site, words: &words };
        let at = demo.tick();
        let asked = demo.recorder.asked(command, at);
        let at = demo.tick();
        if let (Some(asked), Some(reply)) = (asked, reply) {
            demo.recorder.answered(asked, command, &reply, at);
        }
    }

    fn ok() -> Option<Reply> {
        Some(Reply::Simple("OK".into()))
    }

    fn shows(value: &'static str) -> Option<Reply> {
        Some(Reply::Bulk(value.into()))
    }

    #[test]
    fn a_record_is_one_key_at_all_sites() {
        let mut demo = Scripted::new();
        own(&mut demo, 0, None, Some(Reply::Null));
        own(&mut demo, 0, Some("1 x"), ok());
        own(&mut demo, 1, None, shows("1 x"));
        own(&mut demo, 1, Some("2 x"), None);
        own(&mut demo, 1, Some("2 x"), ok());
        own(&mut demo, 0, None, shows("2 x"));
        let history = demo.taken();
        assert!(history.operations.iter().all(|operation| operation.key == "car:1"));
        let sites: Vec<_> = history.operations.iter().map(|o| o.site.as_deref().unwrap()).collect();
        assert_eq!(sites, ["a", "a", "b", "b", "b", "a"]);
        assert_eq!(verdicts(&history), ["holds", "holds"]);
        // A site that still shows what was there before breaks the promise.
        let mut demo = Scripted::new();
        own(&mut demo, 0, Some("1 x"), ok());
        own(&mut demo, 0, Some("2 x"), ok());
        own(&mut demo, 1, None, shows("1 x"));
        assert_eq!(verdicts(&demo.taken())[0], "broken");
    }

    #[test]
    fn a_record_is_left_out_from_the_first_write_that_is() {
        let mut demo = Scripted::new();
        demo.recorder.operations_max = 3;
        own(&mut demo, 0, Some("1 x"), ok());
        own(&mut demo, 0, Some("2 x"), ok());
        let reading = Command { vehicle: None, site: 1, words: &["GET", "car:1"] };
        let at = demo.tick();
        let early = demo.recorder.asked(reading, at).unwrap();
        own(&mut demo, 0, Some("3 x"), ok());
        own(&mut demo, 0, Some("4 x"), ok());
        let at = demo.tick();
        demo.recorder.answered(early, reading, &shows("4 x").unwrap(), at);
        let at = demo.tick();
        let late = demo.recorder.asked(reading, at).unwrap();
        let at = demo.tick();
        demo.recorder.answered(late, reading, &shows("4 x").unwrap(), at);
        let history = demo.taken();
        assert_eq!(history.operations.len(), 3);
        let note = "of at most 3 operations: 2 reads and 1 attempts to write are left out";
        assert_eq!(history.marks[0].text, note);
        // Nothing that was kept was read: so no judge finds that durable.
        assert_eq!(verdicts(&history), ["holds", "undecided"]);
    }

    #[test]
    fn reads_are_spread_over_the_run() {
        let mut demo = Scripted::new();
        demo.recorder.operations_max = 1_000;
        demo.recorder.length = Duration::from_micros(20 * 2_000);
        demo.reports("1-1", DONE);
        let mut counts = Vec::new();
        for _ in 0..4 {
            for _ in 0..500 {
                demo.sees(&["1-1"]);
            }
            counts.push(demo.recorder.history.operations.len());
        }
        // A tenth of three quarters and what the time adds to it.
        for (count, about) in counts.iter().zip([244, 412, 581, 750]) {
            assert!(count.abs_diff(about) <= 2, "{counts:?}");
        }
        assert_eq!(verdicts(&demo.taken()), ["holds", "holds"]);
    }
}
