//! All causal keys of a world, read once more at each site in the end.

use std::collections::BTreeMap;

use model::{Answer, Body, KeyspaceId};

use super::asking::{Asked, Making};
use super::unresolved::{EXPIRES, Unresolved};
use crate::clients::Ids;
use crate::history::{Got, Register, Request, Seen};
use crate::workload::Spec;
use crate::world::World;

/// One question about some keys.
#[derive(Debug, Clone)]
pub struct Audit {
    keyspace: KeyspaceId,
    asked: Asked,
}

/// The questions to each site of a world.
#[must_use]
pub fn audits(world: &World, ids: &Ids) -> Vec<Audit> {
    let mut audits = Vec::new();
    for group in &world.clients {
        let Spec::Causal(causal) = &group.workload else { continue };
        let (keyspace, prefix) = (ids.of(group.keyspace, 0), world.prefix(group.keyspace));
        let making = Making { causal, keyspace, prefix: &prefix, mark: "" };
        let keys: Vec<String> = causal.strings().collect();
        audits.push(Audit { keyspace, asked: making.read_strings(&keys) });
        audits.extend(keys.iter().map(|key| Audit { keyspace, asked: making.read_expiry(key) }));
        for hash in causal.all_hashes() {
            audits.push(Audit { keyspace, asked: making.read_hash(&hash) });
        }
    }
    audits
}

impl Audit {
    /// As it is asked.
    #[must_use]
    pub fn body(&self) -> Body {
        self.asked.body.clone()
    }

    /// Where its keys are.
    #[must_use]
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// Whether its answer is a line of the history. What expires is only compared with the order.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        !self.asked.reads.iter().any(|register| matches!(register, Register::Expiry(_)))
    }

    /// A site's answer, as a line of the history, and the marks that were found by register.
    #[must_use]
    pub fn answered(
        &self,
        site: &str,
        (call_us, return_us): (u64, u64),
        answer: &Answer,
    ) -> Option<(Unresolved, BTreeMap<String, String>)> {
        let shown = self.asked.shown(answer)?;
        let mark_of = |register: &Register, mark: &String| match register {
            Register::Expiry(_) => EXPIRES.to_owned(),
            _ => mark.clone(),
        };
        let found = shown.iter().filter_map(|(register, mark)| {
            Some((register.to_string(), mark_of(register, mark.as_ref()?)))
        });
        let found = found.collect();
        let (mut reads, mut marks) = (Vec::new(), Vec::new());
        for (register, mark) in shown {
            reads.push(Seen { register, found: None, absent: mark.is_none() });
            marks.push(mark);
        }
        let line = Request {
            client: format!("auditor-{site}"),
            site: site.to_owned(),
            call_us,
            return_us: Some(return_us),
            reads,
            writes: Vec::new(),
            write: None,
            got: Got::Done,
        };
        Some((
            Unresolved {
                line,
                marks,
                mark: None,
                written: None,
                seen: model::Position(0),
                is_void: false,
            },
            found,
        ))
    }
}
