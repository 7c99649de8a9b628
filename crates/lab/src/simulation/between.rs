//! The links between sites, over which nodes of one site talk to nodes of another.
//!
//! A link belongs to two sites; connections over it belong to two nodes. What goes wrong goes wrong
//! for whole sites: they are cut off from all others or from one, or far away for a while. Chance
//! is drawn from a stream of its own, so a world whose sites exchange no messages runs as if this
//! was not there.

use super::connections::Connections;
use super::{DRAINS_PERMILLE, Event, NodeIndex, Simulation};
use crate::link::Link;
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::peer::Message;

/// One way between any two sites, unless it is set, ms.
const DELAY_MS: f64 = 10.0;

/// A node and its site.
pub(super) type End = (NodeIndex, usize);

/// All links between sites.
pub(super) struct Between {
    /// What the link from one site to another is like.
    links: Box<dyn Fn(usize, usize) -> Link>,
    connections: Connections<NodeIndex>,
    /// Sites that reach no other and are not reached.
    parted: BTreeSet<usize>,
    /// Directed pairs of sites between which nothing passes.
    cut: BTreeSet<(usize, usize)>,
    /// Sites whose messages to and from others travel this much longer.
    slow: BTreeMap<usize, Duration>,
    /// Directed pairs of sites whose messages wait until they are released.
    held: BTreeSet<(usize, usize)>,
    waiting: Vec<(NodeIndex, NodeIndex, Message)>,
    random: Random,
}

impl Between {
    pub(super) fn new(seed: u64) -> Between {
        Between {
            links: Box::new(|_, _| Link::constant(DELAY_MS)),
            connections: Connections::new(),
            parted: BTreeSet::new(),
            cut: BTreeSet::new(),
            slow: BTreeMap::new(),
            held: BTreeSet::new(),
            waiting: Vec::new(),
            random: Random::stream(seed, "between sites", 0),
        }
    }

    pub(super) fn link(&self, from_site: usize, to_site: usize) -> Link {
        (self.links)(from_site, to_site)
    }

    /// When a message of so many bytes sent at `now` over a link arrives, and over which
    /// connection; `None`: never.
    pub(super) fn send(
        &mut self,
        from: End,
        to: End,
        now: Duration,
        bytes: usize,
        link: &Link,
    ) -> Option<(Duration, u64)> {
        if self.is_cut(from.1, to.1) {
            return None;
        }
        let extra = self.extra(from.1, to.1);
        self.connections.send((from.0, to.0), now, bytes, link, extra, &mut self.random)
    }

    /// Whether a connection of that number is still there: what it carries arrives then.
    pub(super) fn holds(&self, from: NodeIndex, to: NodeIndex, connection: u64) -> bool {
        self.connections.holds(from, to, connection)
    }

    /// Nothing arrives any more that one node had sent to another before their connection broke.
    pub(super) fn drained(&mut self, from: NodeIndex, to: NodeIndex) {
        self.connections.drained(from, to);
    }

    /// The same of all that a node had sent or was sent.
    pub(super) fn drained_at(&mut self, node: NodeIndex) {
        self.connections.drained_at(node);
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        let alone = |site| self.parted.contains(&site);
        alone(from) || alone(to) || self.cut.contains(&(from, to))
    }

    fn extra(&self, a: usize, b: usize) -> Duration {
        let of = |site| self.slow.get(site).copied().unwrap_or_default();
        of(&a) + of(&b)
    }

    /// Breaks the connection of two nodes; after how long each of them is notified. `None`: there
    /// is none. `drains`: the first one is dead, and whether what it had sent arrives.
    fn break_one(&mut self, a: End, b: End, drains: Option<bool>) -> Option<[Duration; 2]> {
        let was_there = match drains {
            Some(drains) => self.connections.break_dead(a.0, b.0, drains),
            None => self.connections.break_one(a.0, b.0),
        };
        was_there.then(|| {
            let extra = self.extra(a.1, b.1);
            let mut delay = |from, to| (self.links)(from, to).latency.draw(&mut self.random);
            [delay(b.1, a.1) + extra, delay(a.1, b.1) + extra]
        })
    }
}

impl<C> Simulation<C> {
    /// What the link from one site to another is like, for all pairs of sites; until this is
    /// called, all are of 10 ms.
    pub fn set_site_links(&mut self, links: impl Fn(usize, usize) -> Link + 'static) {
        self.between.links = Box::new(links);
    }

    /// A site reaches no other and none reaches it.
    pub fn part_site(&mut self, site: usize) {
        self.note_of_site(site, "is cut off from all other sites");
        self.break_connections(site, None);
        self.between.parted.insert(site);
    }

    /// A site reaches others again, and they it.
    pub fn rejoin_site(&mut self, site: usize) {
        self.note_of_site(site, "is no longer cut off from all other sites");
        self.between.parted.remove(&site);
    }

    /// Whether a site reaches no other.
    #[must_use]
    pub fn is_parted(&self, site: usize) -> bool {
        self.between.parted.contains(&site)
    }

    /// Two sites do not reach each other.
    pub fn part_sites(&mut self, a: usize, b: usize) {
        self.note_of_two(a, b, |a, b| format!("{a} and {b} are cut off from each other"));
        self.break_connections(a, Some(b));
        self.between.cut.extend([(a, b), (b, a)]);
    }

    /// Nothing passes from one site to another; the other way all does.
    pub fn part_sites_one_way(&mut self, from: usize, to: usize) {
        self.note_of_two(from, to, |from, to| format!("nothing passes from {from} to {to}"));
        self.break_connections(from, Some(to));
        self.between.cut.insert((from, to));
    }

    /// Whether nothing passes between two sites.
    pub fn are_parted(&self, a: usize, b: usize) -> bool {
        self.between.cut.contains(&(a, b)) && self.between.cut.contains(&(b, a))
    }

    /// Two sites reach each other again.
    pub fn mend_sites(&mut self, a: usize, b: usize) {
        self.note_of_two(a, b, |a, b| format!("{a} and {b} reach each other again"));
        self.between.cut.remove(&(a, b));
        self.between.cut.remove(&(b, a));
    }

    /// Messages between a site and all others travel this much longer.
    pub fn slow_site(&mut self, site: usize, extra: Duration) {
        let ms = extra.as_millis();
        self.note_of_site(site, &format!("is {ms} ms further from other sites"));
        self.between.slow.insert(site, extra);
        self.between.slow.retain(|_, extra| !extra.is_zero());
    }

    /// All connections of a site to others break once.
    pub fn break_site(&mut self, site: usize) {
        self.note_of_site(site, "loses its connections to other sites");
        self.break_connections(site, None);
    }

    /// Messages from one site to another wait from now on, for [`Self::deliver_held`],
    /// [`Self::drop_held`] or [`Self::release_sites`].
    pub fn hold_sites(&mut self, from: usize, to: usize) {
        self.between.held.insert((from, to));
    }

    /// The first `count` messages that wait between two sites arrive now; how many there were.
    pub fn deliver_held(&mut self, from: usize, to: usize, count: usize) -> usize {
        let some = self.take_held(from, to, count);
        let delivered = some.len();
        for (from, to, message) in some {
            self.send_now(from, to, message);
        }
        delivered
    }

    /// The first `count` messages that wait between two sites are lost; how many there were.
    pub fn drop_held(&mut self, from: usize, to: usize, count: usize) -> usize {
        let some = self.take_held(from, to, count);
        for (from, to, message) in &some {
            self.note_message(*from, "✗", *to, message);
        }
        some.len()
    }

    /// Nothing waits between two sites any more: all that does arrives.
    pub fn release_sites(&mut self, from: usize, to: usize) -> usize {
        self.between.held.remove(&(from, to));
        self.deliver_held(from, to, usize::MAX)
    }

    /// Holds a message back, if those of its two sites are held; gives it back if not.
    pub(super) fn hold_back(
        &mut self,
        from: NodeIndex,
        to: NodeIndex,
        message: Message,
    ) -> Option<Message> {
        let way = (self.nodes[from].site, self.nodes[to].site);
        if !self.between.held.contains(&way) {
            return Some(message);
        }
        self.note_message(from, "⇥", to, &message);
        self.between.waiting.push((from, to, message));
        None
    }

    fn take_held(
        &mut self,
        from: usize,
        to: usize,
        count: usize,
    ) -> Vec<(NodeIndex, NodeIndex, Message)> {
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for one in std::mem::take(&mut self.between.waiting) {
            let is_one = (self.nodes[one.0].site, self.nodes[one.1].site) == (from, to);
            if is_one && taken.len() < count { taken.push(one) } else { kept.push(one) }
        }
        self.between.waiting = kept;
        taken
    }

    /// Breaks what connects a dead node to nodes of other sites. These notice; what it had sent
    /// arrives before that, or does not.
    pub(super) fn break_inter_site(&mut self, node: NodeIndex) {
        for other in self.between.connections.of(node) {
            let drains = self.dying.chance(DRAINS_PERMILLE);
            self.break_connection(node, other, Some(drains));
        }
    }

    /// All links between sites work as they should.
    pub(super) fn heal_between(&mut self) {
        self.between.parted.clear();
        self.between.cut.clear();
        self.between.slow.clear();
    }

    /// Breaks what connects a site to another one, or to all.
    fn break_connections(&mut self, site: usize, only: Option<usize>) {
        for node in self.sites[site].nodes.clone() {
            for other in 0..self.nodes.len() {
                if only.is_none_or(|only| self.nodes[other].site == only) {
                    self.between.drained(node, other);
                    self.between.drained(other, node);
                }
            }
            for other in self.between.connections.of(node) {
                if only.is_none_or(|only| self.nodes[other].site == only) {
                    self.break_connection(node, other, None);
                }
            }
        }
    }

    fn break_connection(&mut self, a: NodeIndex, b: NodeIndex, drains: Option<bool>) {
        let end = |node: NodeIndex| (node, self.nodes[node].site);
        let Some(delays) = self.between.break_one(end(a), end(b), drains) else { return };
        for ((node, other), delay) in [(a, b), (b, a)].into_iter().zip(delays) {
            let life = self.nodes[node].life;
            if self.nodes[node].up {
                self.after(delay, Event::InterSiteLost { node, life, other });
            }
        }
    }

    fn note_of_site(&mut self, site: usize, what: &str) {
        if self.trace.is_some() {
            let line = format!("{} {what}", self.sites[site].name);
            self.note(|| line);
        }
    }

    fn note_of_two(&mut self, a: usize, b: usize, what: impl FnOnce(&str, &str) -> String) {
        if self.trace.is_some() {
            let line = what(&self.sites[a].name, &self.sites[b].name);
            self.note(|| line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Fault, Kind, apply};
    use crate::link::Latency;
    use crate::simulation::{Down, Settings};
    use wire::peer::{Content, SnapshotChunk, SnapshotWanted};

    const MS: Duration = Duration::from_millis(1);
    /// Two nodes of site a, one of b, one of c.
    const A1: NodeIndex = 0;
    const A2: NodeIndex = 1;
    const B: NodeIndex = 2;
    const C: NodeIndex = 3;

    /// Sites whose links are 10 ms for every place that they are apart.
    fn sites(seed: u64) -> Simulation {
        let mut sites = Simulation::new(seed, Settings::default());
        sites.trace = Some(String::new());
        for name in ["a", "b", "c"] {
            sites.add_site(name, Link::constant(1.0));
        }
        for site in [0, 0, 1, 2] {
            sites.add_node(site, false);
        }
        sites.set_site_links(|a, b| Link::constant(10.0 * a.abs_diff(b) as f64));
        assert!(sites.run_until(MS * 5_000, |sites| sites.is_whole(0)));
        sites
    }

    /// A message that is identified by its number.
    fn message(index: u64) -> Message {
        Content::SnapshotWanted(SnapshotWanted { index, offset: 0, is_damaged: false }).into()
    }

    impl Simulation {
        /// Sends messages of these numbers from one node to another.
        fn send_numbers(
            &mut self,
            from: NodeIndex,
            to: NodeIndex,
            numbers: impl IntoIterator<Item = u64>,
        ) {
            for number in numbers {
                self.send_inter_site(from, to, message(number));
            }
        }

        /// What is received from other sites within a span: after how many ms, and what.
        fn heard(&mut self, span: Duration) -> Vec<(u64, String)> {
            let begin = self.now();
            let from = self.trace.as_ref().map_or(0, String::len);
            self.run(span);
            let trace = &self.trace.as_ref().expect("a trace")[from..];
            let (mut heard, mut at_ms) = (Vec::new(), begin.as_secs_f64() * 1e3);
            for line in trace.lines() {
                if let Some(at) = line.strip_prefix("@ ").and_then(|at| at.strip_suffix(" ms")) {
                    at_ms = at.parse().expect("a time");
                } else if line.contains(" ⇒ ") || line.contains(" has lost ") {
                    let line = line.replace("SnapshotWanted ", "").replace(" from byte 0", "");
                    heard.push(((at_ms - begin.as_secs_f64() * 1e3).round() as u64, line));
                }
            }
            heard
        }

        /// Which of all directed pairs of sites reach each other, and after how many ms.
        fn reaches(&mut self) -> String {
            for (from, to) in [(A1, B), (A1, C), (B, A1), (B, C), (C, A1), (C, B)] {
                self.send_numbers(from, to, [0]);
            }
            let heard = self.heard(MS * 1_000);
            let pair = |line: &str| line.replace("/n1", "").replace(" ⇒ ", "").replace("  0", "");
            let messages = heard.iter().filter(|(_, line)| line.contains(" ⇒ "));
            let mut pairs: Vec<_> =
                messages.map(|(ms, line)| format!("{}:{ms}", pair(line))).collect();
            pairs.sort();
            pairs.join(" ")
        }
    }

    fn lines(reported: &[(u64, &str)]) -> Vec<(u64, String)> {
        reported.iter().map(|(ms, line)| (*ms, (*line).to_owned())).collect()
    }

    const ALL_REACH: &str = "ab:10 ac:20 ba:10 bc:10 ca:20 cb:10";

    #[test]
    fn messages_arrive_after_their_links_delay() {
        let mut sites = sites(1);
        sites.send_numbers(A1, B, [1, 2]);
        sites.send_numbers(A2, C, [3]);
        sites.send_numbers(C, B, [4]);
        let reported = [
            (10, "a/n1 ⇒ b/n1  1"),
            (10, "a/n1 ⇒ b/n1  2"),
            (10, "c/n1 ⇒ b/n1  4"),
            (20, "a/n2 ⇒ c/n1  3"),
        ];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
        assert_eq!(sites.reaches(), ALL_REACH);
    }

    #[test]
    fn without_a_word_all_sites_are_ten_ms_apart() {
        let mut sites: Simulation = Simulation::new(1, Settings::default());
        sites.trace = Some(String::new());
        for site in [0, 1] {
            sites.add_site(["a", "b"][site], Link::constant(1.0));
            sites.add_node(site, false);
        }
        sites.send_numbers(0, 1, [7]);
        assert_eq!(sites.heard(MS * 100), lines(&[(10, "a/n1 ⇒ b/n1  7")]));
    }

    #[test]
    fn a_connection_keeps_order_and_a_seed_gives_the_same_run() {
        let run = |seed| {
            let mut sites = sites(seed);
            sites.set_site_links(|_, _| Link {
                loss: 0.1,
                ..Link::of(Latency::Uniform { from_ms: 0.0, to_ms: 50.0 })
            });
            let mut heard = Vec::new();
            for number in 0..100 {
                sites.send_numbers(A1, B, [number]);
                sites.send_numbers(C, B, [number]);
                heard.extend(sites.heard(MS));
            }
            heard.extend(sites.heard(MS * 20_000));
            for from in ["a", "c"] {
                let of = heard.iter().filter_map(|(_, line)| {
                    line.strip_prefix(&format!("{from}/n1 ⇒ b/n1  "))?.parse().ok()
                });
                assert_eq!(of.collect::<Vec<u64>>(), (0..100).collect::<Vec<_>>());
            }
            (heard, sites.trace)
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).0, run(2).0);
    }

    #[test]
    fn bandwidth_makes_messages_wait_and_a_full_buffer_drops_them() {
        let mut sites = sites(1);
        // 8 Mbit/s are 1,000 bytes a millisecond.
        sites.set_site_links(|_, _| Link { mbps: Some(8.0), ..Link::constant(10.0) });
        let chunk = |index| {
            let bytes = vec![0; 400_000].into();
            Content::SnapshotChunk(SnapshotChunk { index, bytes, ..Default::default() }).into()
        };
        for index in 1..=5 {
            sites.send_inter_site(A1, B, chunk(index));
        }
        sites.send_numbers(B, A1, [9]);
        let heard = sites.heard(MS * 5_000);
        let at_ms: Vec<_> = heard.iter().map(|(ms, _)| *ms).collect();
        // More than a second of bytes waits when the fourth comes.
        assert_eq!(at_ms, [10, 410, 810, 1_210], "{heard:?}");
        let trace = sites.trace.as_deref().unwrap_or_default();
        assert_eq!(trace.matches("a/n1 ✗ b/n1  SnapshotChunk").count(), 2);
    }

    #[test]
    fn a_partition_loses_messages_in_flight_and_both_ends_are_notified() {
        let mut sites = sites(1);
        sites.send_numbers(A1, B, [1]);
        sites.send_numbers(A2, C, [2]);
        sites.send_numbers(B, C, [3]);
        assert_eq!(sites.heard(MS * 9), []);
        sites.part_site(0);
        sites.send_numbers(A1, B, [4]);
        sites.send_numbers(C, A1, [5]);
        let reported = [
            (1, "b/n1 ⇒ c/n1  3"),
            (10, "a/n1 has lost b/n1"),
            (10, "b/n1 has lost a/n1"),
            (20, "a/n2 has lost c/n1"),
            (20, "c/n1 has lost a/n2"),
        ];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
        assert_eq!(sites.reaches(), "bc:10 cb:10");
        sites.rejoin_site(0);
        assert_eq!(sites.reaches(), ALL_REACH);
    }

    #[test]
    fn a_pair_of_sites_is_parted_both_ways_or_one_way() {
        let mut sites = sites(1);
        sites.part_sites(0, 1);
        assert_eq!(sites.reaches(), "ac:20 bc:10 ca:20 cb:10");
        sites.mend_sites(0, 1);
        sites.send_numbers(A1, B, [1]);
        sites.part_sites_one_way(0, 1);
        let reported = [(10, "a/n1 has lost b/n1"), (10, "b/n1 has lost a/n1")];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
        assert_eq!(sites.reaches(), "ac:20 ba:10 bc:10 ca:20 cb:10");
        sites.mend_sites(0, 1);
        assert_eq!(sites.reaches(), ALL_REACH);
    }

    #[test]
    fn what_breaks_breaks_once_and_only_what_is_there() {
        let mut sites = sites(1);
        sites.break_site(0);
        assert_eq!(sites.heard(MS * 100), []);
        sites.send_numbers(A1, B, [1]);
        sites.break_site(0);
        sites.send_numbers(A1, B, [2]);
        let reported =
            [(10, "a/n1 has lost b/n1"), (10, "b/n1 has lost a/n1"), (10, "a/n1 ⇒ b/n1  2")];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
    }

    #[test]
    fn a_crash_breaks_what_a_node_had_with_other_sites() {
        let mut sites = sites(1);
        sites.send_numbers(A1, B, [1]);
        sites.send_numbers(A2, B, [2]);
        sites.send_numbers(C, A1, [3]);
        sites.dying = Random::new(crash_that(false));
        sites.crash(A1, &Down::Killed);
        // One that is down receives nothing, and what comes to it is lost.
        sites.send_numbers(B, A1, [4]);
        let reported =
            [(10, "a/n2 ⇒ b/n1  2"), (10, "b/n1 has lost a/n1"), (20, "c/n1 has lost a/n1")];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
        sites.start(A1);
        sites.send_numbers(B, A1, [5]);
        assert_eq!(sites.heard(MS * 100), lines(&[(10, "b/n1 ⇒ a/n1  5")]));
    }

    /// A seed of crashes after which what was sent arrives, or does not.
    fn crash_that(drains: bool) -> u64 {
        let is_it = |seed: &u64| {
            let mut random = Random::new(*seed);
            (0..8).all(|_| random.chance(DRAINS_PERMILLE) == drains)
        };
        (0..).find(is_it).expect("one in 256")
    }

    #[test]
    fn what_a_node_sent_before_it_crashed_arrives() {
        type Then = fn(&mut Simulation);
        let mut sites = sites(1);
        sites.send_numbers(A1, B, [1]);
        sites.send_numbers(C, A1, [3]);
        sites.dying = Random::new(crash_that(true));
        sites.crash(A1, &Down::Killed);
        let reported =
            [(10, "a/n1 ⇒ b/n1  1"), (10, "b/n1 has lost a/n1"), (20, "c/n1 has lost a/n1")];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
        // Not so through a cut that comes behind, nor of a disk that is gone, nor to another life.
        let thens: [(Then, &[&str]); 3] = [
            (|sites| sites.part_sites(0, 1), &["b/n1 has lost a/n1"]),
            (|sites| sites.replace_disk(A1), &["b/n1 has lost a/n1"]),
            (|sites| sites.bounce(B, &Down::Killed, Duration::ZERO), &[]),
        ];
        for (then, expected) in thens {
            let mut sites = self::sites(1);
            sites.send_numbers(A1, B, [1]);
            sites.dying = Random::new(crash_that(true));
            sites.crash(A1, &Down::Killed);
            then(&mut sites);
            let heard = sites.heard(MS * 30);
            let of_b = heard.iter().map(|(_, line)| line.as_str());
            let of_b: Vec<&str> = of_b.filter(|line| line.contains("b/n1")).collect();
            assert_eq!(of_b, expected);
        }
    }

    #[test]
    fn what_comes_to_a_paused_node_waits() {
        let mut sites = sites(1);
        sites.pause(B, MS * 50);
        sites.send_numbers(A1, B, [1, 2]);
        let reported = [(50, "a/n1 ⇒ b/n1  1"), (50, "a/n1 ⇒ b/n1  2")];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
    }

    #[test]
    fn faults_between_sites_begin_and_end() {
        let fault = |kind| Fault {
            number: 0,
            at: Duration::ZERO,
            span: MS * 100,
            kind,
            site: 0,
            node: 0,
            at_leader: false,
            other: 1,
            other_site: 2,
            draw: 5,
        };
        for (kind, reaches) in [
            (Kind::PartSite, "bc:10 cb:10"),
            (Kind::PartSites, "ab:10 ba:10 bc:10 cb:10"),
            (Kind::HalfPartSites, "ab:10 ba:10 bc:10 ca:20 cb:10"),
            (Kind::SlowSites, "ab:146 ac:156 ba:146 bc:10 ca:156 cb:10"),
        ] {
            assert!(kind.is_between_sites());
            let mut sites = sites(1);
            let fault = fault(kind);
            for ends_all in [false, true] {
                assert_eq!(apply::begin(&mut sites, &fault), apply::Begun::For(MS * 100));
                assert_eq!(sites.reaches(), reaches, "{kind}");
                match ends_all {
                    true => apply::end_all(&mut sites),
                    false => {
                        let gone_on = apply::go_on(&mut sites, &fault, MS * 100);
                        assert_eq!(gone_on, apply::Begun::Over);
                    }
                }
                assert_eq!(sites.reaches(), ALL_REACH, "{kind}");
            }
        }
        let mut flapping = sites(1);
        let flaps = Fault { span: MS * 300, ..fault(Kind::FlappingSites) };
        assert_eq!(apply::begin(&mut flapping, &flaps), apply::Begun::For(MS * 120));
        for (since, goes_on, is_cut) in [(120, 120, false), (240, 60, true), (300, 0, false)] {
            let goes_on = (goes_on > 0).then_some(apply::Begun::For(MS * goes_on));
            let gone_on = apply::go_on(&mut flapping, &flaps, MS * since);
            assert_eq!(gone_on, goes_on.unwrap_or(apply::Begun::Over));
            assert_eq!(flapping.reaches() != ALL_REACH, is_cut, "after {since} ms");
        }
        let mut sites = sites(1);
        sites.send_numbers(A1, C, [1]);
        assert_eq!(apply::begin(&mut sites, &fault(Kind::BreakSites)), apply::Begun::Over);
        let reported = [(20, "a/n1 has lost c/n1"), (20, "c/n1 has lost a/n1")];
        assert_eq!(sites.heard(MS * 100), lines(&reported));
        assert_eq!(sites.reaches(), ALL_REACH);
    }
}
