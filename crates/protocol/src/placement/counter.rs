//! What an owner counts: a profile for each of its heavier groups, and one for each slot for the
//! rest.
//!
//! The table has a fixed size. A group has two places where it can be. If others have both, the
//! lighter of these loses as much as the newcomer brings, which counts for its slot; when it is no
//! heavier than the newcomer, it gives way, and what it had counts for its slot from then on. So a
//! group stays that is used more than all that want its place. 2^18 profiles and the slots are 18
//! MB.
//!
//! An access is counted once: as of the site that forwards it, or that its client is attached to.

use super::latencies::Site;
use super::profile::{Client, Profile, Tick};

/// Slots of the keyspace.
const SLOTS: usize = 1 << 14;

/// A group: its slot, its class, and a hash of its name with a secret of the site.
///
/// ```text
/// 1 ‖ may be lent ‖ class (10 bits) ‖ hash (38 bits) ‖ slot (14 bits)
/// ```
///
/// A class is what rules of placement can be about: a part of the keyspace's id, as the key tells
/// nothing else of it. Keyspaces of one class share the stricter rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(u64);

/// Never 0, which is no group.
const IS_GROUP: u64 = 1 << 63;
/// The group may be lent by itself.
const MAY_BE_LENT: u64 = 1 << 62;
/// Where the class begins, and how many there are.
const CLASS_AT: u32 = 52;
const CLASSES: u64 = 1 << 10;

impl GroupKey {
    /// Of a slot below 16,384.
    pub fn new(slot: u16, hash: u64) -> GroupKey {
        let (above, within) = (!(SLOTS as u64 - 1) & !MAY_BE_LENT, SLOTS as u64 - 1);
        GroupKey::of_number(hash & above | u64::from(slot) & within)
    }

    /// The same of a group of a keyspace that may be lent by itself.
    pub fn lendable(slot: u16, keyspace: u32, hash: u64) -> GroupKey {
        let class = u64::from(GroupKey::class_of(keyspace)) << CLASS_AT;
        let hash = hash & !((CLASSES - 1) << CLASS_AT);
        GroupKey(GroupKey::new(slot, hash | class).0 | MAY_BE_LENT)
    }

    /// The class of a keyspace. Ids go on from block to block when a registry is recovered: each
    /// begins at another class.
    pub fn class_of(keyspace: u32) -> u16 {
        let (block, number) = (keyspace / CLASSES as u32, keyspace % CLASSES as u32);
        let begin = block.wrapping_mul(0x9e37_79b1) >> (u32::BITS - CLASSES.ilog2());
        ((begin + number) % CLASSES as u32) as u16
    }

    /// Its class, if it may be lent by itself.
    pub fn class(self) -> u16 {
        (self.0 >> CLASS_AT & (CLASSES - 1)) as u16
    }

    /// Whether it may be lent by itself.
    pub fn is_lendable(self) -> bool {
        self.0 & MAY_BE_LENT != 0
    }

    /// As it travels within a site.
    pub fn number(self) -> u64 {
        self.0
    }

    /// From how it travels.
    pub fn of_number(number: u64) -> GroupKey {
        GroupKey(number | IS_GROUP)
    }

    /// Its slot.
    pub fn slot(self) -> u16 {
        (self.0 & (SLOTS as u64 - 1)) as u16
    }
}

/// The profiles of a site's groups.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Pairs, a power of two of them.
    profiles: Vec<Profile>,
    /// A bit for each that is some group's, so that a look at all of few groups is a short one.
    used: Vec<u64>,
    slots: Vec<Profile>,
    tau_s: f32,
    has_votes: bool,
}

impl Counter {
    /// For about that many groups; counts fade in τ.
    pub fn new(groups: usize, tau_s: f32) -> Counter {
        let profiles = vec![Profile::default(); groups.next_power_of_two().max(2)];
        let slots = vec![Profile::default(); SLOTS];
        let used = vec![0; profiles.len().div_ceil(64)];
        Counter { profiles, used, slots, tau_s, has_votes: false }
    }

    /// The same where each client of a group counts as much as any other, whatever it claims. A
    /// group then takes the place of another only if it has more clients.
    #[must_use]
    pub fn with_votes(mut self) -> Counter {
        self.has_votes = true;
        self.slots.fill(Profile::new(0, Tick::default(), true));
        self
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        (self.profiles.len() + self.slots.len()) * size_of::<Profile>() + size_of_val(&*self.used)
    }

    /// Counts a sampled access by a site.
    pub fn count(&mut self, now: Tick, group: GroupKey, client: Client, site: Site, weight: f32) {
        let (tau_s, slot) = (self.tau_s, usize::from(group.slot()));
        let weight = if self.has_votes { 1.0 } else { weight };
        let Some(index) = self.place(now, group, weight) else {
            self.slots[slot].count(now, tau_s, client, site, weight);
            return;
        };
        self.profiles[index].count(now, tau_s, client, site, weight);
    }

    fn pair(&self, group: GroupKey) -> usize {
        let pairs = self.profiles.len() as u64 / 2;
        // Bits above those of the slot.
        ((group.0 >> 14) & (pairs - 1)) as usize * 2
    }

    fn find(&self, group: GroupKey) -> Option<usize> {
        let pair = self.pair(group);
        (pair..pair + 2).find(|index| self.profiles[*index].tag == group.0)
    }

    /// Where a group is counted; `None`: both its places are taken by heavier ones.
    fn place(&mut self, now: Tick, group: GroupKey, weight: f32) -> Option<usize> {
        if let Some(index) = self.find(group) {
            return Some(index);
        }
        let pair = self.pair(group);
        for index in pair..pair + 2 {
            self.profiles[index].fade(now, self.tau_s);
        }
        let [a, b] = [&self.profiles[pair], &self.profiles[pair + 1]];
        let index = if b.total() < a.total() { pair + 1 } else { pair };
        let lighter = &mut self.profiles[index];
        let total = lighter.total();
        if self.has_votes && total >= weight {
            return None;
        }
        if total > weight {
            lighter.scale((total - weight) / total);
            return None;
        }
        let before = std::mem::replace(lighter, Profile::new(group.0, now, self.has_votes));
        self.used[index / 64] |= 1 << (index % 64);
        if before.tag != 0 && before.total() > 0.0 {
            let slot = usize::from(GroupKey(before.tag).slot());
            self.slots[slot].absorb(&before, now, self.tau_s);
        }
        Some(index)
    }

    /// The profile of a group that is followed.
    pub fn profile(&mut self, now: Tick, group: GroupKey) -> Option<&mut Profile> {
        let index = self.find(group)?;
        self.profiles[index].fade(now, self.tau_s);
        Some(&mut self.profiles[index])
    }

    /// What is counted for a slot's groups that are not followed.
    pub fn slot(&mut self, now: Tick, slot: u16) -> &Profile {
        let profile = &mut self.slots[usize::from(slot)];
        profile.fade(now, self.tau_s);
        profile
    }

    /// A group has gone to another owner, and is followed no more.
    pub fn remove(&mut self, now: Tick, group: GroupKey) -> Option<Profile> {
        let index = self.find(group)?;
        self.profiles[index].fade(now, self.tau_s);
        self.used[index / 64] &= !(1 << (index % 64));
        Some(std::mem::take(&mut self.profiles[index]))
    }

    /// All groups that are followed and have users.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &Profile)> {
        let words = self.used.iter().enumerate().filter(|(_, word)| **word != 0);
        let used = words.flat_map(|(at, word)| ones(*word).map(move |bit| at * 64 + bit));
        let profiles = used.map(|index| &self.profiles[index]);
        let profiles = profiles.filter(|profile| profile.total() > 0.0);
        profiles.map(|profile| (GroupKey(profile.tag), profile))
    }
}

/// The places of the bits that are one.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
