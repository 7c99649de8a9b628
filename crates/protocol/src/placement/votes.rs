//! The clients of one group where each counts as much as any other, in 40 bytes.
//!
//! How loud a client is must not decide whether it is counted: four liars would take the places of
//! four honest clients. So a group with more than eight clients keeps those with the least
//! fingerprints, a sample that no client can choose to be in (bottom-k; Cohen and Kaplan,
//! *Summarizing data using bottom-k sketches*, PODC 2007). The fingerprint is of the client and of
//! the group's tag, which has a secret of the site; of eight clients two have the same in one group
//! of 150,000.
//!
//! A client keeps its vote for three periods of τ after the one of its last access.

use super::latencies::Site;

/// Clients that are kept.
pub(super) const VOTES_MAX: usize = 8;
/// The votes: of each the lower half of the fingerprint and the site, then in a byte the rest of it
/// and the age.
pub(super) type Words = [u32; 10];

const FINGERPRINT_BITS: u32 = 22;
const AGE_BITS: u32 = 2;

#[derive(Clone, Copy, Default)]
struct Vote {
    /// 0: no client.
    fingerprint: u32,
    site: u16,
    age: u32,
}

fn read(words: &Words, index: usize) -> Vote {
    let (word, byte) = (words[index], words[VOTES_MAX + index / 4] >> (index % 4 * 8) & 0xFF);
    let fingerprint = word >> 16 | byte >> AGE_BITS << 16;
    Vote { fingerprint, site: word as u16, age: byte & ((1 << AGE_BITS) - 1) }
}

fn write(words: &mut Words, index: usize, vote: Vote) {
    words[index] = vote.fingerprint << 16 | u32::from(vote.site);
    let (shift, byte) = (index % 4 * 8, vote.fingerprint >> 16 << AGE_BITS | vote.age);
    let bytes = &mut words[VOTES_MAX + index / 4];
    *bytes = *bytes & !(0xFF << shift) | byte << shift;
}

/// A client of a group: never 0.
pub(super) fn fingerprint(tag: u64, client: u32) -> u32 {
    // The finaliser of MurmurHash3.
    let mut hash = tag ^ u64::from(client).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    ((hash >> (64 - FINGERPRINT_BITS)) as u32).max(1)
}

/// The client with this fingerprint is at a site now.
pub(super) fn cast(words: &mut Words, fingerprint: u32, site: Site) {
    let of = |index: usize| read(words, index).fingerprint;
    let find = |wanted: u32| (0..VOTES_MAX).find(|index| of(*index) == wanted);
    let greatest = || (0..VOTES_MAX).max_by_key(|index| of(*index));
    let greater = || greatest().filter(|index| of(*index) > fingerprint);
    if let Some(index) = find(fingerprint).or_else(|| find(0)).or_else(greater) {
        write(words, index, Vote { fingerprint, site: site.0, age: 0 });
    }
}

/// So many periods have passed.
pub(super) fn age(words: &mut Words, periods: u32) {
    for index in (0..VOTES_MAX).filter(|_| periods > 0) {
        let vote = read(words, index);
        let age = vote.age.saturating_add(periods);
        let is_over = vote.fingerprint == 0 || age >= 1 << AGE_BITS;
        write(words, index, if is_over { Vote::default() } else { Vote { age, ..vote } });
    }
}

/// The site of each client.
pub(super) fn sites(words: &Words) -> impl Iterator<Item = Site> + '_ {
    let votes = (0..VOTES_MAX).map(|index| read(words, index));
    votes.filter(|vote| vote.fingerprint != 0).map(|vote| Site(vote.site))
}
