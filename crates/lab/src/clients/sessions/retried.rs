//! Puts that were sent to two sites: which writes of the first one have given way to them, by the
//! order.
//!
//! From its place on, a retry is in the place of the first site, until that site's own attempt or a
//! write that has seen the retry. What the site has written meanwhile to the same keys counts below
//! the retry: so its readers have seen it, and so it is judged.

use std::collections::BTreeMap;

use model::{Bytes, CausalWrite, ClientId, Effect, KeyspaceId, Mark, NO_SITE, Position, SiteId};

use crate::history::{Instead, Register};

/// Retries whose first site may still offer something.
#[derive(Debug, Default)]
pub(super) struct Retried(BTreeMap<(ClientId, u64), Open>);

#[derive(Debug)]
struct Open {
    at: Position,
    tried: SiteId,
    keyspace: KeyspaceId,
    keys: Vec<Bytes>,
}

impl Retried {
    /// The next place of the order.
    pub(super) fn follow(&mut self, at: Position, write: &CausalWrite) {
        for effect in &write.effects {
            match effect {
                Effect::Mark(Mark::Retried { client, sequence, tried }) if *tried != NO_SITE => {
                    let keys = write.effects.iter().filter_map(Effect::key).cloned().collect();
                    let open = Open { at, tried: *tried, keyspace: write.keyspace, keys };
                    self.0.insert((*client, *sequence), open);
                }
                Effect::Mark(Mark::Matched { client, sequence }) => {
                    self.0.remove(&(*client, *sequence));
                }
                _ => {}
            }
        }
    }

    /// Whether a site's write is itself the first attempt of a retry: it has that one's identity.
    pub(super) fn is_attempt(&self, own: &CausalWrite) -> bool {
        own.effects.iter().any(|effect| match effect {
            Effect::Mark(Mark::Numbered { client, sequence }) => {
                self.0.contains_key(&(*client, *sequence))
            }
            _ => false,
        })
    }

    /// Where a site's write that has lost its effects, or some, counts on the registers of these.
    pub(super) fn instead_of(&self, site: SiteId, own: &CausalWrite) -> Vec<Instead> {
        let covers = |open: &&Open| {
            open.tried == site && open.keyspace == own.keyspace && own.seen < open.at
        };
        let mut over: Vec<&Open> = self.0.values().filter(covers).collect();
        over.sort_by_key(|open| open.at);
        let below = |open: &Open| {
            let lost = |key: &&Bytes| own.effects.iter().any(|effect| effect.key() == Some(*key));
            let name = |key: &Bytes| Register::Key(String::from_utf8_lossy(key).into_owned());
            let registers: Vec<Register> = open.keys.iter().filter(lost).map(name).collect();
            let of = open.at.count();
            (!registers.is_empty()).then_some(Instead { of, same: false, registers })
        };
        over.into_iter().filter_map(below).collect()
    }
}
