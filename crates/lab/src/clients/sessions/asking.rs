//! One request of a session: what is asked, and what its answer shows.
//!
//! Every write can be recognised wherever it is found. Values begin with the write's *mark*
//! (`walker-3.17`), which no other write has. What removes keys or fields also removes one of the
//! mark's name, which was never there.

use model::{
    Answer, Body, Bytes, CausalWrite, Command, Condition, Effect, Expiring, Expiry,
    ExpiryCondition, KeyspaceId, Position, Query, ReadConsistency, Revision, ScanFilter, Step,
    Write, limits,
};

use crate::history::{Assigned, Register};
use crate::workload::causal::{Act, Causal, Steps};

/// The beginning of a key or field that is removed for its name.
const MARKED: char = '~';

/// What was found at a register: the mark of the write, or nothing.
pub(super) type Found = (Register, Option<String>);

/// A request, and what it is about.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) body: Body,
    /// What its answer shows, in order.
    pub(super) reads: Vec<Register>,
    pub(super) writes: Vec<Assigned>,
    /// Of its write, if it is one.
    pub(super) mark: Option<String>,
}

/// Where keys are, and what is put there.
pub(super) struct Making<'c> {
    pub(super) causal: &'c Causal,
    pub(super) keyspace: KeyspaceId,
    pub(super) prefix: &'c str,
    /// Of the write that may come of it.
    pub(super) mark: &'c str,
}

/// The mark of the write that put a value.
pub(super) fn mark_of(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// The mark of a write, by its effects.
pub(super) fn mark_of_write(write: &CausalWrite) -> Option<String> {
    let marked = |name: &Bytes| {
        let text = String::from_utf8_lossy(name).into_owned();
        text.split_once(MARKED).map(|(_, mark)| mark.to_owned())
    };
    write.effects.iter().find_map(|effect| match effect {
        Effect::Put { value, .. } | Effect::Replace { value, .. } => Some(mark_of(value)),
        Effect::SetFields { fields, .. } => fields.first().map(|(_, value)| mark_of(value)),
        Effect::Delete { key } => marked(key),
        Effect::SetExpiry { .. } | Effect::Expire { .. } | Effect::Clear | Effect::Mark(_) => None,
        Effect::DeleteFields { fields, .. } => fields.iter().find_map(marked),
    })
}

/// The mark of a clear, which is known by its position; of several regions by that and the region.
pub(super) fn mark_of_clear(revision: Revision) -> String {
    format!("{OF_CLEAR}{}", revision.0)
}

/// The position of a clear whose region is not named yet.
pub(super) fn position_of_clear(mark: &str) -> Option<Position> {
    mark.strip_prefix(OF_CLEAR)?.parse().ok().map(Position)
}

const OF_CLEAR: &str = "clear ";

pub(super) fn is_mark_of_clear(mark: &str) -> bool {
    mark.starts_with(OF_CLEAR)
}

/// The mark of the write that let a key expire at a moment, if no other one named the same.
pub(super) const OF_MOMENT: char = '@';

/// See [`OF_MOMENT`].
pub(super) fn mark_of_moment(key: &str, ms: u64) -> String {
    format!("{key}{OF_MOMENT}{ms}")
}

impl Making<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn bytes(&self, key: &str) -> Bytes {
        self.name(key).into()
    }

    fn value(&self) -> Bytes {
        let padding = self.causal.value_bytes.saturating_sub(self.mark.len() + 1);
        match padding {
            0 => self.mark.to_owned().into(),
            padding => format!("{} {}", self.mark, ".".repeat(padding)).into(),
        }
    }

    fn string(&self, key: &str) -> Register {
        Register::Key(self.name(key))
    }

    fn field(&self, key: &str, field: &str) -> Register {
        Register::Field(self.name(key), field.to_owned())
    }

    /// The request of an act; none for one that is done without.
    pub(super) fn request(&self, act: Act) -> Option<Asked> {
        let asked = match act {
            Act::Go | Act::Renew => return None,
            Act::Attach => self.read(Query::GetMany { keys: Vec::new() }, Vec::new()),
            Act::Get(key) => {
                self.read(Query::Get { key: self.bytes(&key) }, vec![self.string(&key)])
            }
            Act::GetMany(keys) => self.read_strings(&keys),
            Act::GetHash(key) => self.read_hash(&key),
            Act::GetFields(key, fields) => {
                let reads = fields.iter().map(|field| self.field(&key, field)).collect();
                let mut names: Vec<Bytes> = fields.into_iter().map(Bytes::from).collect();
                let key = self.bytes(&key);
                let query = match names.len() {
                    1 => Query::HashGet { key, field: names.remove(0) },
                    _ => Query::HashGetMany { key, fields: names },
                };
                self.read(query, reads)
            }
            Act::Scan => {
                let query = Query::Scan {
                    from: Bytes::new(),
                    until: None,
                    examine_max: limits::SCAN_PAGE_ITEMS_MAX,
                    filter: ScanFilter::default(),
                    with_values: true,
                };
                self.read(query, self.causal.strings().map(|key| self.string(&key)).collect())
            }
            Act::PutExpiring(key, after_ms) => {
                let mut put = self.put(&key);
                if let Write::Put { expiry, .. } = &mut put {
                    *expiry = Expiry::AfterMs(after_ms);
                }
                let mut assigned = self.put_assigned(&key);
                assigned.last_mut().expect("an expiry").deletes = false;
                self.write(put, assigned)
            }
            Act::Expire(key, after_ms) => {
                let expiry = after_ms.map_or(Expiry::Never, Expiry::AfterMs);
                let condition = ExpiryCondition::Always;
                let set = Write::SetExpiry { key: self.bytes(&key), expiry, condition };
                let marked = self.bytes(&format!("{MARKED}{}", self.mark));
                let delete = Write::Delete { keys: vec![marked] };
                let assigned = self.assigned(self.expiry(&key), after_ms.is_none());
                let keyspace = self.keyspace;
                let steps = vec![Step::Write(set), Step::Write(delete)];
                let command =
                    Command::Transaction { keyspace, guards: Vec::new(), steps, request: None };
                let (body, mark) = (Body::Write(command), Some(self.mark.to_owned()));
                Asked { body, reads: Vec::new(), writes: vec![assigned], mark }
            }
            Act::Expiry(key) => self.read_expiry(&key),
            Act::Clear => {
                let assigned = self.assigned(Register::Keyspace(self.prefix.to_owned()), true);
                Asked { mark: None, ..self.write(Write::Clear, vec![assigned]) }
            }
            Act::Transaction(steps) => self.transaction(steps),
            Act::Swap(key) => {
                let mut put = self.put(&key);
                if let Write::Put { return_old, .. } = &mut put {
                    *return_old = true;
                }
                let register = self.string(&key);
                let asked = self.write(put, self.put_assigned(&key));
                Asked { reads: vec![register], ..asked }
            }
            Act::Put(keys) => {
                let assigned = keys.iter().flat_map(|key| self.put_assigned(key)).collect();
                let write = match keys.as_slice() {
                    [key] => self.put(key),
                    keys => Write::PutMany {
                        pairs: keys.iter().map(|key| (self.bytes(key), self.value())).collect(),
                        if_all_absent: false,
                    },
                };
                self.write(write, assigned)
            }
            Act::Delete(keys) => {
                let assigned = keys.iter().map(|key| self.assigned(self.string(key), true));
                let assigned = assigned.collect();
                let marked = self.bytes(&format!("{MARKED}{}", self.mark));
                let keys = keys.iter().map(|key| self.bytes(key)).chain([marked]).collect();
                self.write(Write::Delete { keys }, assigned)
            }
            Act::SetFields(key, fields) => {
                let assigned = self.assigned_fields(&key, &fields, false);
                self.write(self.set_fields(&key, fields), assigned)
            }
            Act::DeleteFields(key, fields) => {
                let assigned = self.assigned_fields(&key, &fields, true);
                let marked = Bytes::from(format!("{MARKED}{}", self.mark));
                let fields = fields.into_iter().map(Bytes::from).chain([marked]).collect();
                self.write(Write::HashDelete { key: self.bytes(&key), fields }, assigned)
            }
        };
        Some(asked)
    }

    /// A read of several strings.
    pub(super) fn read_strings(&self, keys: &[String]) -> Asked {
        let reads = keys.iter().map(|key| self.string(key)).collect();
        self.read(Query::GetMany { keys: keys.iter().map(|key| self.bytes(key)).collect() }, reads)
    }

    /// A read of when a key expires.
    pub(super) fn read_expiry(&self, key: &str) -> Asked {
        self.read(Query::Expiry { key: self.bytes(key) }, vec![self.expiry(key)])
    }

    /// A read of a whole hash.
    pub(super) fn read_hash(&self, key: &str) -> Asked {
        let reads = self.causal.all_fields().map(|field| self.field(key, &field)).collect();
        self.read(Query::HashGetAll { key: self.bytes(key) }, reads)
    }

    fn read(&self, query: Query, reads: Vec<Register>) -> Asked {
        let consistency = ReadConsistency::Linearizable;
        let body = Body::Read { keyspace: self.keyspace, query, consistency };
        Asked { body, reads, writes: Vec::new(), mark: None }
    }

    fn write(&self, write: Write, writes: Vec<Assigned>) -> Asked {
        let command = Command::Write { keyspace: self.keyspace, write, request: None };
        let mark = Some(self.mark.to_owned());
        Asked { body: Body::Write(command), reads: Vec::new(), writes, mark }
    }

    fn put(&self, key: &str) -> Write {
        Write::Put {
            key: self.bytes(key),
            value: self.value(),
            condition: Condition::Always,
            expiry: Expiry::Never,
            return_old: false,
        }
    }

    fn set_fields(&self, key: &str, fields: Vec<String>) -> Write {
        let fields = fields.into_iter().map(|field| (Bytes::from(field), self.value())).collect();
        Write::HashSet { key: self.bytes(key), fields }
    }

    /// What a put assigns. It ends an expiry, also one that only other clients set and read.
    fn put_assigned(&self, key: &str) -> Vec<Assigned> {
        vec![self.assigned(self.string(key), false), self.assigned(self.expiry(key), true)]
    }

    fn expiry(&self, key: &str) -> Register {
        Register::Expiry(self.name(key))
    }

    fn assigned(&self, register: Register, deletes: bool) -> Assigned {
        Assigned { register, deletes }
    }

    fn assigned_fields(&self, key: &str, fields: &[String], deletes: bool) -> Vec<Assigned> {
        fields.iter().map(|field| self.assigned(self.field(key, field), deletes)).collect()
    }

    fn transaction(&self, asked: Steps) -> Asked {
        let reads = asked.reads.iter().map(|key| self.string(key)).collect();
        let get = |key: &String| Step::Read(Query::Get { key: self.bytes(key) });
        let mut steps: Vec<Step> = asked.reads.iter().map(get).collect();
        let mut writes = Vec::new();
        for key in &asked.puts {
            steps.push(Step::Write(self.put(key)));
            writes.extend(self.put_assigned(key));
        }
        if let Some((key, fields)) = asked.fields {
            writes.extend(self.assigned_fields(&key, &fields, false));
            steps.push(Step::Write(self.set_fields(&key, fields)));
        }
        if let Some(key) = asked.deletes {
            writes.push(self.assigned(self.string(&key), true));
            steps.push(Step::Write(Write::Delete { keys: vec![self.bytes(&key)] }));
        }
        let (keyspace, mark) = (self.keyspace, (!writes.is_empty()).then(|| self.mark.to_owned()));
        let command = Command::Transaction { keyspace, guards: Vec::new(), steps, request: None };
        Asked { body: Body::Write(command), reads, writes, mark }
    }
}

impl Asked {
    /// What an answer shows. `None`: it is no answer to this.
    pub(super) fn shown(&self, answer: &Answer) -> Option<Vec<Found>> {
        let one = |value: &Answer| match value {
            Answer::Value(found) => Some(found.as_ref().map(|found| mark_of(&found.value))),
            _ => None,
        };
        let found: Vec<Option<String>> = match answer {
            Answer::Value(_) if self.reads.len() == 1 => vec![one(answer)?],
            Answer::Put { applied: true, old, .. } if self.reads.len() == 1 => {
                vec![old.as_deref().map(mark_of)]
            }
            Answer::Expiry(expiry) => vec![match (expiry, self.reads.first()?) {
                (Expiring::AtMs(ms), Register::Expiry(key)) => Some(mark_of_moment(key, *ms)),
                // By a wall clock: which one of the log's moments it is cannot be seen.
                (Expiring::At { .. }, Register::Expiry(key)) => Some(mark_of_moment(key, 0)),
                _ => None,
            }],
            Answer::Values(values) => {
                values.iter().map(|value| value.as_deref().map(mark_of)).collect()
            }
            Answer::Fields(fields) => {
                let of = |register: &Register| {
                    let Register::Field(_, name) = register else { return None };
                    let found = fields.iter().find(|(field, _)| *field == name.as_bytes());
                    found.map(|(_, value)| mark_of(value))
                };
                self.reads.iter().map(of).collect()
            }
            Answer::Page { items, next: None } => {
                let of = |register: &Register| {
                    let Register::Key(name) = register else { return None };
                    let found = items.iter().find(|item| item.key == name.as_bytes());
                    found.and_then(|item| item.value.as_deref()).map(mark_of)
                };
                self.reads.iter().map(of).collect()
            }
            Answer::Steps(steps) => {
                let reads = steps.iter().take(self.reads.len());
                let found = reads.map(|step| one(step.as_ref().ok()?));
                if steps.iter().any(Result::is_err) {
                    return None;
                }
                found.collect::<Option<Vec<_>>>()?
            }
            _ if self.reads.is_empty() => Vec::new(),
            _ => return None,
        };
        let fits = found.len() == self.reads.len();
        fits.then(|| self.reads.iter().cloned().zip(found).collect())
    }

    /// What it has written, by its answer: a key that was absent does not expire, and a clear is
    /// known by its place.
    pub(super) fn note_written(&mut self, answer: &Answer) {
        if let Answer::Placed(position) = answer
            && self.mark.is_none()
        {
            self.mark = Some(mark_of_clear(Revision(position.0)));
        }
        let [Assigned { register: Register::Expiry(key), .. }] = &self.writes[..] else {
            return;
        };
        let Answer::Steps(steps) = answer else { return };
        if let Some(Ok(Answer::Flag(false))) = steps.first() {
            // Only the key of its mark, which was never there.
            let marked = format!("{key}{MARKED}");
            (self.writes[0].register, self.writes[0].deletes) = (Register::Key(marked), true);
        }
    }

    /// What it weighs on its way.
    pub(super) fn bytes(&self) -> usize {
        match &self.body {
            Body::Write(command) => command.properties().size_bytes,
            _ => 60 + 8 * self.reads.len(),
        }
    }
}
