//! Hash slots: the units in which the keys of global keyspaces have their place.
//!
//! A key's slot is the CRC16 (XMODEM) of the key modulo 16,384, as in Redis Cluster; of a key with
//! a tag in braces, only the tag counts, so that keys which belong together can share a slot.

use std::fmt;
use std::str::FromStr;

/// One of the [`Slot::COUNT`] hash slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// How many there are.
    pub const COUNT: u16 = 16_384;

    /// The slot of this number; `None`: there is none.
    pub fn new(number: u16) -> Option<Slot> {
        (number < Slot::COUNT).then_some(Slot(number))
    }

    /// Its number, below [`Slot::COUNT`].
    pub fn number(self) -> u16 {
        self.0
    }

    /// Which slot a key belongs to.
    pub fn of_key(key: &[u8]) -> Slot {
        Slot(crc16(tag(key)) % Slot::COUNT)
    }

    /// The last one.
    pub const LAST: Slot = Slot(Slot::COUNT - 1);
    /// The first one.
    pub const FIRST: Slot = Slot(0);

    /// The slot before it, if it is not the first one.
    pub fn before(self) -> Option<Slot> {
        self.0.checked_sub(1).map(Slot)
    }

    /// The slot behind it, if it is not the last one.
    pub fn next(self) -> Option<Slot> {
        Slot::new(self.0 + 1)
    }

    /// All of them, in order.
    pub fn all() -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator {
        (0..Slot::COUNT).map(Slot)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Neighbouring slots, one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRun {
    /// The first one.
    pub first: Slot,
    /// The last one, not before the first.
    pub last: Slot,
}

impl SlotRun {
    /// All slots.
    pub const ALL: SlotRun = SlotRun { first: Slot(0), last: Slot::LAST };

    /// A slot alone.
    pub fn one(slot: Slot) -> SlotRun {
        SlotRun { first: slot, last: slot }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> usize {
        usize::from(self.last.0 - self.first.0) + 1
    }

    /// Whether a slot is among them.
    pub fn contains(self, slot: Slot) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// All of them, ascending.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        (self.first.0..=self.last.0).map(Slot)
    }

    /// Its first `count` slots and the rest of it; `None`: it has fewer, or that is none.
    pub fn split_at(self, count: usize) -> Option<(SlotRun, Option<SlotRun>)> {
        if count == 0 || count > self.len() {
            return None;
        }
        let last = Slot(self.first.0 + (count - 1) as u16);
        let rest = last.next().filter(|first| *first <= self.last);
        let rest = rest.map(|first| SlotRun { first, last: self.last });
        Some((SlotRun { first: self.first, last }, rest))
    }

    /// Cuts it into runs of slots that are alike: `until` names, of a slot, one up to which all are
    /// like it.
    pub fn cut(self, until: impl Fn(Slot) -> Slot) -> impl Iterator<Item = SlotRun> {
        let mut at = Some(self.first);
        std::iter::from_fn(move || {
            let first = at.filter(|first| *first <= self.last)?;
            let last = until(first).min(self.last);
            at = last.next();
            Some(SlotRun { first, last })
        })
    }
}

/// What of a key decides its slot: what stands between the first `{` and the next `}`, if that is
/// not empty; otherwise all of it.
pub fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let behind = &key[open + 1..];
    match behind.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

const CRC16: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A checksum of 16 bits (XMODEM), that which Redis Cluster makes slots of.
pub fn crc16<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u16 {
    bytes
        .into_iter()
        .fold(0, |crc: u16, byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

/// A set of slots, small where its slots are neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotSet {
    /// First and last of each run, ascending, with a gap between any two.
    ranges: Vec<(u16, u16)>,
}

impl SlotSet {
    /// Every slot.
    pub fn all() -> SlotSet {
        SlotSet { ranges: vec![(0, Slot::COUNT - 1)] }
    }

    /// The set of these ranges, first and last each; `None`: one of them is none, or they are not
    /// ascending with gaps.
    pub fn from_ranges(ranges: Vec<(u16, u16)>) -> Option<SlotSet> {
        let whole = ranges.iter().all(|(first, last)| first <= last && *last < Slot::COUNT);
        let apart = ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0);
        (whole && apart).then_some(SlotSet { ranges })
    }

    /// First and last slot of each run, ascending.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.ranges
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ranges.iter().map(|(first, last)| usize::from(last - first) + 1).sum()
    }

    /// Whether a slot is in it.
    pub fn contains(&self, slot: Slot) -> bool {
        let next = self.ranges.partition_point(|(_, last)| *last < slot.0);
        self.ranges.get(next).is_some_and(|(first, _)| *first <= slot.0)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.ranges.iter().flat_map(|(first, last)| (*first..=*last).map(Slot))
    }

    /// Its runs, ascending.
    pub fn runs(&self) -> impl Iterator<Item = SlotRun> + '_ {
        self.ranges.iter().map(|(first, last)| SlotRun { first: Slot(*first), last: Slot(*last) })
    }

    /// Whether a slot is in it, and a slot up to which all are in it, or none is.
    pub fn run_at(&self, slot: Slot) -> (Slot, bool) {
        let next = self.ranges.partition_point(|(_, last)| *last < slot.0);
        match self.ranges.get(next) {
            Some((first, last)) if *first <= slot.0 => (Slot(*last), true),
            Some((first, _)) => (Slot(*first - 1), false),
            None => (Slot::LAST, false),
        }
    }

    /// Adds a run.
    pub fn insert_run(&mut self, run: SlotRun) {
        let (mut first, mut last) = (run.first.0, run.last.0);
        // Those that it touches become one with it.
        let from = self.ranges.partition_point(|(_, last)| *last + 1 < first);
        let until = from + self.ranges[from..].partition_point(|(first, _)| *first <= last + 1);
        if from < until {
            first = first.min(self.ranges[from].0);
            last = last.max(self.ranges[until - 1].1);
        }
        self.ranges.splice(from..until, [(first, last)]);
    }

    /// Removes a run.
    pub fn remove_run(&mut self, run: SlotRun) {
        let (first, last) = (run.first.0, run.last.0);
        let from = self.ranges.partition_point(|(_, last)| *last < first);
        let until = from + self.ranges[from..].partition_point(|(first, _)| *first <= last);
        let Some((at_first, at_last)) =
            self.ranges[from..until].first().zip(self.ranges[from..until].last())
        else {
            return;
        };
        let left = (at_first.0 < first).then(|| (at_first.0, first - 1));
        let right = (last < at_last.1).then(|| (last + 1, at_last.1));
        self.ranges.splice(from..until, [left, right].into_iter().flatten());
    }

    /// Adds a slot.
    pub fn insert(&mut self, slot: Slot) {
        let next = self.ranges.partition_point(|(_, last)| *last < slot.0);
        if self.ranges.get(next).is_some_and(|(first, _)| *first <= slot.0) {
            return;
        }
        let joins_left = next > 0 && self.ranges[next - 1].1 + 1 == slot.0;
        let joins_right = self.ranges.get(next).is_some_and(|(first, _)| *first == slot.0 + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[next - 1].1 = self.ranges[next].1;
                self.ranges.remove(next);
            }
            (true, false) => self.ranges[next - 1].1 = slot.0,
            (false, true) => self.ranges[next].0 = slot.0,
            (false, false) => self.ranges.insert(next, (slot.0, slot.0)),
        }
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: Slot) {
        let at = self.ranges.partition_point(|(_, last)| *last < slot.0);
        let Some(&(first, last)) = self.ranges.get(at) else { return };
        if slot.0 < first {
            return;
        }
        let mut left = Vec::with_capacity(2);
        if first < slot.0 {
            left.push((first, slot.0 - 1));
        }
        if slot.0 < last {
            left.push((slot.0 + 1, last));
        }
        self.ranges.splice(at..=at, left);
    }
}

impl FromIterator<SlotRun> for SlotSet {
    fn from_iter<I: IntoIterator<Item = SlotRun>>(runs: I) -> SlotSet {
        let mut set = SlotSet::default();
        runs.into_iter().for_each(|run| set.insert_run(run));
        set
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        let mut slots: Vec<u16> = slots.into_iter().map(|slot| slot.0).collect();
        slots.sort_unstable();
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in slots {
            match ranges.last_mut() {
                Some((_, last)) if slot <= *last + 1 => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        SlotSet { ranges }
    }
}

/// As Redis Cluster writes them: `0-99,105,200-300`; `none` for the empty set.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranges.is_empty() {
            return f.write_str("none");
        }
        for (nth, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// What [`SlotSet`]'s `Display` writes, in any order; `all` for every slot.
impl FromStr for SlotSet {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotSet, String> {
        match text {
            "all" => return Ok(SlotSet::all()),
            "none" => return Ok(SlotSet::default()),
            _ => {}
        }
        let number = |text: &str| text.parse().ok().and_then(Slot::new);
        let mut slots = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => {
                    slots.extend((first.0..=last.0).map(Slot));
                }
                _ => {
                    let max = Slot::COUNT - 1;
                    return Err(format!(
                        "{part:?} is no slot and no range of slots: use 0 to {max}, or a range as 0-99"
                    ));
                }
            }
        }
        Ok(slots.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_fall_into_the_slots_of_redis_cluster() {
        // By CLUSTER KEYSLOT of a real one.
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("123456789", 12_739),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
        ] {
            assert_eq!(Slot::of_key(key.as_bytes()).number(), slot, "{key}");
        }
    }

    #[test]
    fn sets_are_written_and_read() {
        let set: SlotSet = "200-300,0-99,105,100".parse().unwrap();
        assert_eq!(set.to_string(), "0-100,105,200-300");
        assert_eq!(set.len(), 203);
        assert_eq!("all".parse(), Ok(SlotSet::all()));
        assert_eq!("none".parse(), Ok(SlotSet::default()));
        for wrong in ["16384", "5-3", "a", "1,,2", "-1"] {
            assert!(wrong.parse::<SlotSet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_taken_only_as_they_are_given() {
        assert!(SlotSet::from_ranges(vec![(0, 4), (6, 6)]).is_some());
        for wrong in [vec![(0, 4), (5, 6)], vec![(4, 0)], vec![(6, 7), (1, 2)], vec![(0, 16_384)]] {
            assert_eq!(SlotSet::from_ranges(wrong.clone()), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_set_of_numbers_is(ops in proptest::collection::vec((any::<bool>(), 0u16..40), 0..80)) {
            let (mut set, mut plain) = (SlotSet::default(), BTreeSet::new());
            for (add, slot) in ops {
                match add {
                    true => { set.insert(Slot(slot)); plain.insert(slot); }
                    false => { set.remove(Slot(slot)); plain.remove(&slot); }
                }
                prop_assert_eq!(set.iter().map(Slot::number).collect::<Vec<_>>(), plain.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.len(), plain.len());
                prop_assert!(SlotSet::from_ranges(set.ranges().to_vec()).is_some());
                prop_assert!((0..41).all(|slot| set.contains(Slot(slot)) == plain.contains(&slot)));
                prop_assert_eq!(set.iter().collect::<SlotSet>(), set.clone());
            }
        }

        #[test]
        fn runs_are_added_and_removed_whole(ops in proptest::collection::vec((any::<bool>(), 0u16..40, 0u16..9), 0..40)) {
            let (mut set, mut plain) = (SlotSet::default(), SlotSet::default());
            for (add, first, more) in ops {
                let run = SlotRun { first: Slot(first), last: Slot(first + more) };
                match add {
                    true => { set.insert_run(run); run.slots().for_each(|slot| plain.insert(slot)); }
                    false => { set.remove_run(run); run.slots().for_each(|slot| plain.remove(slot)); }
                }
                prop_assert_eq!(&set, &plain);
                prop_assert_eq!(set.runs().collect::<SlotSet>(), plain.clone());
                for slot in (0..60).map(Slot) {
                    let (last, is_in) = set.run_at(slot);
                    prop_assert_eq!(is_in, set.contains(slot));
                    prop_assert!((slot.0..=last.0).all(|slot| set.contains(Slot(slot)) == is_in));
                    prop_assert!(last == Slot::LAST || set.contains(Slot(last.0 + 1)) != is_in);
                }
            }
        }
    }
}
