//! What clients have sent lately: their uses by the newest sketch, latencies by the last ten or so.
//!
//! A latency is known as its mean and, where the client sends spreads, as a distribution. Servers
//! of which a client has too few answers to show a tail are taken to vary as its other servers do,
//! in proportion: or what was seldom measured would look steadier than what is in use.

use crate::sketch::{Refused, Sketch};
use crate::view::{Address, NodeId};
use model::Slot;
use protocol::placement::Distribution;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// A latency above this is a broken clock.
const LATENCY_MAX_US: f64 = 60e6;
/// So many answers beyond a quantile show where it is.
const TAIL_ANSWERS_MIN: f64 = 2.0;
/// Parts that one answer has in a distribution, as old answers weigh less than one.
const PARTS: f64 = 256.0;
/// The noise of one latency, as a part of it, that is reckoned with.
const NOISE: f64 = 0.3;
/// A server is taken to be as far as its mean and so many standard deviations of that.
const CAUTION_SIGMAS: f64 = 2.0;
/// A mean that is so many standard deviations away is of another place.
const MOVED_SIGMAS: f64 = 4.0;
/// What answers still weigh, a sketch later.
const KEPT: f64 = 0.9;
/// Clients that are kept; others are refused.
const CLIENTS_MAX: usize = 10_000;

/// What was refused or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Sketches that could not be read.
    pub malformed: u64,
    /// Entries of servers that are no masters of the cluster.
    pub unknown_servers: u64,
    /// Entries with a latency that is negative, no number, or above a minute.
    pub absurd_latencies: u64,
    /// Sketches of clients beyond the limit.
    pub clients: u64,
    /// Sketches of a client with the token of another one.
    pub other_names: u64,
}

/// What one client has sent lately.
#[derive(Debug, Default)]
struct Sent {
    /// When the newest sketch came (since any fixed moment), and that.
    at: Duration,
    newest: Sketch,
    /// Its servers that are none of the cluster have not been counted.
    is_new: bool,
    /// By `HOST:PORT`.
    servers: BTreeMap<String, Answers>,
}

/// Answers of a server to a client: those of the last ten sketches or so, the newest weigh most.
#[derive(Clone, Debug)]
struct Answers {
    at: Duration,
    count: f64,
    sum_us: f64,
    /// By bucket; empty if the client sends none.
    spread: BTreeMap<i16, f64>,
}

impl Answers {
    /// Adds those of one sketch. If they cannot be of the same place as the earlier ones, these are
    /// forgotten: the client or the server has moved.
    fn add(&mut self, new: Answers) {
        let (mean, new_mean) = (self.sum_us / self.count, new.sum_us / new.count);
        let error = NOISE * mean * (1.0 / self.count + 1.0 / new.count).sqrt();
        let kept = if (new_mean - mean).abs() > MOVED_SIGMAS * error { 0.0 } else { KEPT };
        self.at = new.at;
        self.count = kept * self.count + new.count;
        self.sum_us = kept * self.sum_us + new.sum_us;
        self.spread.values_mut().for_each(|count| *count *= kept);
        for (bucket, count) in new.spread {
            *self.spread.entry(bucket).or_default() += count;
        }
        self.spread.retain(|_, count| *count * PARTS >= 1.0);
    }

    /// Adds those of the same server under another of its addresses.
    fn join(&mut self, other: &Answers) {
        self.at = self.at.max(other.at);
        self.count += other.count;
        self.sum_us += other.sum_us;
        for (bucket, count) in &other.spread {
            *self.spread.entry(*bucket).or_default() += count;
        }
    }

    /// `None`: the client sends none.
    fn spread(&self) -> Option<Spread> {
        let parts = |(bucket, count): (&i16, &f64)| (*bucket, (count * PARTS) as u32);
        let mut latencies = Distribution::default();
        // More buckets than one sketch may have: the lowest are one.
        for row in self.spread.iter().map(parts) {
            latencies.merge(&Distribution::from_rows(&[row])?);
        }
        let answers = self.spread.values().sum();
        (latencies.count() > 0).then_some(Spread { latencies, answers })
    }
}

/// What clients have sent lately.
#[derive(Debug, Default)]
pub struct Sketches {
    by_client: BTreeMap<String, Sent>,
    /// What was not taken.
    pub dropped: Dropped,
}

/// Keys of one slot: id, uses a second, bytes.
pub type Uses = Vec<(u64, f64, u32)>;

/// How far a server is from a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The mean in milliseconds.
    pub ms: f64,
    /// Of about how many answers.
    pub answers: f64,
}

impl Latency {
    /// What it is at most, given the noise of so few answers.
    pub fn at_most_ms(self) -> f64 {
        self.ms * self.caution()
    }

    /// How many times as long it may be as was measured.
    pub fn caution(self) -> f64 {
        1.0 + CAUTION_SIGMAS * NOISE / self.answers.sqrt()
    }
}

/// How the latencies of a server vary.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// In any unit of counts.
    pub latencies: Distribution,
    /// Of about how many answers.
    pub answers: f64,
}

/// What one client does now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    /// By server.
    pub latency: BTreeMap<NodeId, Latency>,
    /// By server, where the client sends spreads.
    pub spread: BTreeMap<NodeId, Spread>,
    /// The keys that it uses.
    pub slots: BTreeMap<Slot, Uses>,
}

impl Client {
    /// How the latencies of each server vary, for that quantile; none if the client sends no
    /// spreads. The mean of each is about the server's own.
    pub fn spreads(&self, quantile: f64) -> BTreeMap<&NodeId, Distribution> {
        let mut relative = Distribution::default();
        for (server, spread) in &self.spread {
            if let Some(mean) = self.latency.get(server).filter(|mean| mean.ms > 0.0) {
                relative.merge(&spread.latencies.stretched(1.0 / mean.ms as f32));
            }
        }
        let shows = |spread: &&Spread| spread.answers * (1.0 - quantile) >= TAIL_ANSWERS_MIN;
        let of_server = |(server, mean): (_, &Latency)| match self.spread.get(server) {
            Some(spread) if shows(&spread) => Some((server, spread.latencies.clone())),
            _ if relative.count() == 0 || mean.ms <= 0.0 => None,
            _ => Some((server, relative.stretched(mean.ms as f32))),
        };
        self.latency.iter().filter_map(of_server).collect()
    }
}

impl Sketches {
    /// Takes a sketch that arrives now.
    ///
    /// # Errors
    /// It is refused, and counted.
    pub fn take(&mut self, bytes: &[u8], now: Duration) -> Result<(), Refused> {
        self.take_from(None, bytes, now)
    }

    /// Takes a sketch which only the client of that name may send, if there is one.
    ///
    /// # Errors
    /// It is refused, and counted.
    pub fn take_from(
        &mut self,
        sender: Option<&str>,
        bytes: &[u8],
        now: Duration,
    ) -> Result<(), Refused> {
        let mut sketch = Sketch::read(bytes).inspect_err(|_| self.dropped.malformed += 1)?;
        if let Some(sender) = sender.filter(|sender| *sender != sketch.client) {
            self.dropped.other_names += 1;
            let why =
                format!("the token is that of client '{sender}', and not of '{}'", sketch.client);
            return Err(Refused(why));
        }
        if self.by_client.len() >= CLIENTS_MAX && !self.by_client.contains_key(&sketch.client) {
            self.dropped.clients += 1;
            return Err(Refused("there are too many clients".to_owned()));
        }
        let sent = self.by_client.entry(sketch.client.clone()).or_default();
        for (server, (count, sum_us)) in std::mem::take(&mut sketch.servers) {
            let spread = sketch.spreads.remove(&server).unwrap_or_default().into_iter();
            let spread = spread.map(|(bucket, count)| (bucket, f64::from(count))).collect();
            let new = Answers { at: now, count: f64::from(count), sum_us, spread };
            // Zero answers have no mean either.
            if !(0.0..=LATENCY_MAX_US).contains(&(new.sum_us / new.count)) {
                self.dropped.absurd_latencies += 1;
                continue;
            }
            match sent.servers.entry(server) {
                Entry::Occupied(mut known) => known.get_mut().add(new),
                Entry::Vacant(place) => drop(place.insert(new)),
            }
        }
        // Those of servers without a mean.
        sketch.spreads.clear();
        (sent.at, sent.newest, sent.is_new) = (now, sketch, true);
        Ok(())
    }

    /// Forgets what was not sent again within three windows.
    pub fn forget(&mut self, now: Duration, window: Duration) {
        let is_kept = |at: Duration| at + 3 * window > now;
        self.by_client.retain(|_, sent| is_kept(sent.at));
        for sent in self.by_client.values_mut() {
            sent.servers.retain(|_, answers| is_kept(answers.at));
        }
    }

    /// What all clients do, by name: uses by their newest sketch, latencies by the last ones.
    /// `masters` has each of them by all its addresses; a client may name it by any.
    pub fn clients(&mut self, masters: &BTreeMap<Address, NodeId>) -> Vec<(String, Client)> {
        let Sketches { by_client, dropped } = self;
        let clients = by_client.iter_mut().map(|(name, sent)| {
            let mut client = Client::default();
            let mut by_server: BTreeMap<&NodeId, Answers> = BTreeMap::new();
            for (name, answers) in &sent.servers {
                let server = name.parse().ok().and_then(|address: Address| masters.get(&address));
                let Some(server) = server else {
                    dropped.unknown_servers += u64::from(sent.is_new);
                    continue;
                };
                match by_server.entry(server) {
                    Entry::Occupied(mut known) => known.get_mut().join(answers),
                    Entry::Vacant(place) => drop(place.insert(answers.clone())),
                }
            }
            for (server, answers) in by_server {
                let ms = answers.sum_us / answers.count / 1e3;
                if let Some(spread) = answers.spread() {
                    client.spread.insert(server.clone(), spread);
                }
                client.latency.insert(server.clone(), Latency { ms, answers: answers.count });
            }
            sent.is_new = false;
            let seconds = f64::from(sent.newest.duration_ms) / 1e3;
            let rate =
                |(id, count, bytes): &(u64, u32, u32)| (*id, f64::from(*count) / seconds, *bytes);
            let slots = sent.newest.slots.iter().filter_map(|(slot, keys)| {
                Some((Slot::new(*slot)?, keys.iter().map(rate).collect()))
            });
            client.slots = slots.collect();
            (name.clone(), client)
        });
        clients.collect()
    }
}

/// Takes any bytes as sketches of one client: what is not refused has only values that a client can
/// have. For tests and the fuzzer.
pub fn check_any(bytes: &[u8]) {
    let master = |text: &&str| Some((text.parse().ok()?, NodeId::from(*text)));
    let masters = ["10.0.0.1:1", "10.0.0.2:1"].iter().filter_map(master).collect();
    let mut sketches = Sketches::default();
    let is_taken = sketches.take(bytes, Duration::ZERO).is_ok();
    assert_eq!(sketches.dropped.malformed, u64::from(!is_taken));
    for (name, client) in sketches.clients(&masters) {
        assert!((1..=255).contains(&name.len()), "{name}");
        let is_sane =
            |one: &Latency| (0.0..=LATENCY_MAX_US / 1e3).contains(&one.ms) && one.answers > 0.0;
        assert!(client.latency.values().all(is_sane), "{client:?}");
        let rates = client.slots.values().flatten().map(|(_, rate, _)| rate);
        assert!(rates.into_iter().all(|rate| (0.0..=1e3 * f64::from(u32::MAX)).contains(rate)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::tests::{JSON, WITH_SPREADS, packed, packed_with_spreads};
    use proptest::prelude::*;

    /// The second one has a hostname as well.
    fn masters() -> BTreeMap<Address, NodeId> {
        let [near, far] = ids();
        let all = [("10.0.0.1:1", &near), ("10.0.0.2:1", &far), ("pier:1", &far)];
        all.map(|(address, id)| (address.parse().unwrap(), id.clone())).into()
    }

    fn ids() -> [NodeId; 2] {
        ["near", "far"].map(NodeId::from)
    }

    proptest! {
        /// Half a sketch and half noise.
        #[test]
        fn any_bytes_are_read_or_refused(
            kept in 0_usize..120,
            noise in proptest::collection::vec(any::<u8>(), 0..60),
            is_packed: bool,
            is_newer: bool,
        ) {
            let texts = [JSON.as_bytes(), WITH_SPREADS.as_bytes()];
            let forms = [packed(), packed_with_spreads()];
            let version = usize::from(is_newer);
            let whole = if is_packed { forms[version].clone() } else { texts[version].to_vec() };
            let mut bytes = whole[..kept.min(whole.len())].to_vec();
            bytes.extend(&noise);
            check_any(&bytes);
            bytes.extend(whole.get(bytes.len()..).unwrap_or_default());
            check_any(&bytes);
            check_any(&whole);
        }
    }
    #[test]
    fn malformed_sketches_are_refused_and_counted() {
        let mut sketches = Sketches::default();
        let packed = packed();
        for cut in 0..packed.len() {
            assert!(sketches.take(&packed[..cut], Duration::ZERO).is_err(), "{cut}");
        }
        let too_long = [&packed[..], b"x"].concat();
        assert!(sketches.take(&too_long, Duration::ZERO).is_err());
        for (old, new) in [
            ("\"v\":1", "\"v\":3"),
            ("app", ""),
            ("10000", "0"),
            ("10000", "99999999"),
            ("\"7\"", "\"16384\""),
            ("100,", "-1,"),
            ("client", "user"),
        ] {
            let text = JSON.replacen(old, new, 1);
            assert!(sketches.take(text.as_bytes(), Duration::ZERO).is_err(), "{new}");
        }
        assert_eq!(sketches.dropped.malformed, packed.len() as u64 + 8);
        assert_eq!(sketches.clients(&masters()), []);
    }

    #[test]
    fn a_client_is_what_it_sent() {
        let mut sketches = Sketches::default();
        sketches.take(JSON.as_bytes(), Duration::ZERO).unwrap();
        let [(name, client)] = &sketches.clients(&masters())[..] else { panic!("one client") };
        assert_eq!(name, "app");
        let latencies = ids().map(|id| client.latency[&id].ms);
        assert_eq!(latencies, [2.0, 50.0]);
        assert_eq!(client.slots[&Slot::new(7).unwrap()], [(5, 10.0, 1_000), (6, 5.0, 10)]);
    }

    #[test]
    fn unknown_servers_and_absurd_latencies_are_dropped_and_counted() {
        let mut sketches = Sketches::default();
        let text = r#"{"v":1,"client":"liar","duration_ms":10000,"servers":{"10.0.0.9:1":[1,1],
            "x":[1,1],"10.0.0.1:1":[1,-5],"10.0.0.2:1":[0,7]}}"#;
        sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
        assert_eq!(sketches.clients(&masters())[0].1.latency, BTreeMap::new());
        assert_eq!((sketches.dropped.unknown_servers, sketches.dropped.absurd_latencies), (2, 2));
    }

    /// A client that changes from IP addresses to hostnames names a server by both.
    #[test]
    fn a_server_is_one_by_all_its_addresses() {
        let mut sketches = Sketches::default();
        let text = r#"{"v":2,"client":"app","duration_ms":10000,
            "servers":{"10.0.0.2:1":[10,20000],"pier:1":[30,100000],"?:1":[1,1]},
            "spreads":{"10.0.0.2:1":[[20,10]],"pier:1":[[20,10],[60,20]]}}"#;
        sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
        let [(_, client)] = &sketches.clients(&masters())[..] else { panic!("one client") };
        let far = &ids()[1];
        assert_eq!(client.latency, [(far.clone(), Latency { ms: 3.0, answers: 40.0 })].into());
        assert_eq!(client.spread[far].latencies.rows(), [(20, 20 * 256), (60, 20 * 256)]);
        assert_eq!(sketches.dropped.unknown_servers, 1);
    }

    #[test]
    fn sketches_die_after_three_windows() {
        let mut sketches = Sketches::default();
        let window = Duration::from_secs(10);
        sketches.take(JSON.as_bytes(), Duration::ZERO).unwrap();
        sketches.forget(window * 3 - Duration::from_secs(1), window);
        assert_eq!(sketches.clients(&masters()).len(), 1);
        sketches.forget(window * 3, window);
        assert_eq!(sketches.clients(&masters()), []);
    }

    #[test]
    fn latencies_are_remembered_until_a_client_moves() {
        let mut sketches = Sketches::default();
        let mut after = |sum_us: u32| {
            let text = format!(
                r#"{{"v":1,"client":"car","duration_ms":10000,"servers":{{"10.0.0.1:1":[10,{sum_us}]}}}}"#
            );
            sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
            let latency = sketches.clients(&masters())[0].1.latency[&ids()[0]];
            (latency.ms, latency.answers)
        };
        assert_eq!(after(200_000), (20.0, 10.0));
        let (ms, answers) = after(240_000);
        assert!((ms - 22.1).abs() < 0.1 && answers == 19.0, "{ms} {answers}");
        assert_eq!(after(400_000), (40.0, 10.0), "it has moved");
    }

    /// The second server has two answers only: it is taken to vary as the first one does.
    #[test]
    fn a_server_that_was_seldom_asked_varies_like_the_others() {
        let mut sketches = Sketches::default();
        // Nine answers of 1 ms and one of 11 ms; two of 50 ms.
        let text = WITH_SPREADS.replace("[[-3,1],[17,9]]", "[[0,90],[60,10]]");
        let text = text.replace("[10,20000]", "[100,200000]");
        sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
        let [(_, client)] = &sketches.clients(&masters())[..] else { panic!("one client") };
        let [near, far] = &ids();
        assert_eq!(client.spread[near].answers, 100.0);
        let spreads = client.spreads(0.95);
        let p = |at, quantile| spreads[at].quantile_ms(quantile).unwrap();
        assert!((p(near, 0.5) - 1.0).abs() < 0.03 && (p(near, 0.95) - 11.0).abs() < 0.3);
        assert!((p(far, 0.5) - 25.0).abs() < 1.5 && (p(far, 0.95) - 275.0).abs() < 15.0);
        // For p99.9 the hundred answers are too few as well; what stands for them is the same.
        assert_eq!(client.spreads(0.999).len(), 2);
    }

    #[test]
    fn old_answers_fade_from_a_spread_and_a_move_ends_it() {
        let mut sketches = Sketches::default();
        let mut after = |sum_us: u32, bucket: i16| {
            let text = format!(
                r#"{{"v":2,"client":"car","duration_ms":10000,"servers":{{"10.0.0.1:1":[10,{sum_us}]}},
                    "spreads":{{"10.0.0.1:1":[[{bucket},10]]}}}}"#
            );
            sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
            let [(_, client)] = &sketches.clients(&masters())[..] else { panic!("one client") };
            let spread = &client.spread[&ids()[0]];
            (spread.answers, spread.latencies.rows().to_vec())
        };
        assert_eq!(after(200_000, 75), (10.0, vec![(75, 2_560)]));
        assert_eq!(after(210_000, 76), (19.0, vec![(75, 2_304), (76, 2_560)]));
        assert_eq!(after(800_000, 110), (10.0, vec![(110, 2_560)]), "it has moved");
    }
}
