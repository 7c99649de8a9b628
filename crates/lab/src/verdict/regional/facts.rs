//! Which write assigned what, and where it comes in the order.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::{History, Position, Register, Request, Seen, WriteId};

/// A place in the order: a position and, at one position, what comes below the write that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Rank(u64, u64);

impl Rank {
    fn ordered(position: u64) -> Rank {
        Rank(position, u64::MAX)
    }

    fn below(position: u64, own: u64) -> Rank {
        Rank(position, own)
    }

    fn lost(revision: u64) -> Rank {
        Rank(u64::MAX, revision)
    }
}

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rank(u64::MAX, _) => f.write_str("no position, lost with its site"),
            Rank(position, u64::MAX) => write!(f, "position {position}"),
            Rank(position, _) => write!(f, "a place below position {position}"),
        }
    }
}

/// A write.
#[derive(Debug)]
pub(super) struct Write<'h> {
    pub(super) id: &'h WriteId,
    /// What asked for it, if that is known.
    pub(super) request: Option<usize>,
    /// The line of what is done one after the other: a session, or this write alone.
    pub(super) line: usize,
    /// Its place in the line, from 1.
    pub(super) number: u32,
    /// Its own place in the order; none: not known.
    pub(super) position: Option<Rank>,
}

/// An assignment of a register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) position: Rank,
    /// Where it counts.
    pub(super) rank: Rank,
    pub(super) write: usize,
    pub(super) deletes: bool,
    /// The highest rank up to here, and whose.
    highest: (Rank, usize, bool),
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The version of this write, which counts there.
    Version(usize, Rank),
    /// Nothing, and what left it is not named.
    Nothing,
    /// It cannot be judged.
    Unclear,
}

/// What requests did, and the order of it.
#[derive(Debug)]
pub(super) struct Facts<'h> {
    pub(super) history: &'h History,
    /// By session: its requests, one after the other.
    pub(super) sessions: Vec<Vec<usize>>,
    /// Sessions, and writes that belong to none.
    pub(super) lines: usize,
    pub(super) writes: Vec<Write<'h>>,
    ids: HashMap<&'h WriteId, usize>,
    registers: HashMap<Register, usize>,
    /// By register: the registers by which it is assigned.
    covers: Vec<Vec<usize>>,
    /// By register as assigned: its assignments by position.
    orders: Vec<Vec<Entry>>,
    /// By register as assigned: from when on it may have been deleted by a write that was not
    /// answered.
    loose_delete: Vec<Option<u64>>,
    places: HashMap<(&'h str, u64), &'h Position>,
    problem: Option<String>,
}

impl<'h> Facts<'h> {
    /// # Errors
    /// It is no history of sessions.
    pub(super) fn of(history: &'h History) -> Result<Facts<'h>, String> {
        let sessions = sessions(history)?;
        let mut facts = Facts {
            history,
            lines: sessions.len(),
            sessions,
            writes: Vec::new(),
            ids: HashMap::new(),
            registers: HashMap::new(),
            covers: Vec::new(),
            orders: Vec::new(),
            loose_delete: Vec::new(),
            places: HashMap::new(),
            problem: None,
        };
        facts.take_positions()?;
        facts.name_registers();
        for line in 0..facts.sessions.len() {
            for place in 0..facts.sessions[line].len() {
                facts.take_write(line, place)?;
            }
        }
        facts.take_removals();
        facts.take_loose();
        for order in &mut facts.orders {
            order.sort_by_key(|entry| (entry.position, entry.rank));
            let mut highest = (Rank::default(), 0, false);
            for entry in order {
                highest = highest.max((entry.rank, entry.write, entry.deletes));
                entry.highest = highest;
            }
        }
        Ok(facts)
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn take_positions(&mut self) -> Result<(), String> {
        let mut taken: HashMap<u64, &Position> = HashMap::new();
        for place in &self.history.positions {
            let id = (place.site.as_str(), place.revision);
            if let Some(other) = self.places.insert(id, place)
                && other != place
            {
                return Err(format!("write {}:{} has two positions", place.site, place.revision));
            }
            if let Some(position) = place.position
                && let Some(other) = taken.insert(position, place)
                && (&other.site, other.revision) != (&place.site, place.revision)
            {
                return Err(format!(
                    "writes {}:{} and {}:{} both have position {position}",
                    other.site, other.revision, place.site, place.revision
                ));
            }
        }
        Ok(())
    }

    /// Numbers all registers, and finds by which each is assigned.
    fn name_registers(&mut self) {
        let history = self.history;
        let assigned = history.requests.iter().flat_map(|request| &request.writes);
        let assigned = assigned.map(|assigned| &assigned.register);
        let removed = history.positions.iter().flat_map(|place| &place.removes);
        let read = history.requests.iter().flat_map(|request| &request.reads);
        let mut keyspaces = BTreeMap::new();
        for register in assigned.chain(removed).chain(read.map(|seen| &seen.register)) {
            let number = self.number(register);
            if let Register::Keyspace(prefix) = register {
                keyspaces.insert(prefix.as_str(), number);
            }
        }
        self.covers = vec![Vec::new(); self.registers.len()];
        for (register, number) in &self.registers {
            let key = match register {
                Register::Key(key) | Register::Field(key, _) | Register::Expiry(key) => key,
                Register::Keyspace(_) => continue,
            };
            let covers = &mut self.covers[*number];
            covers.push(*number);
            let whole = self.registers.get(&Register::Key(key.clone()));
            covers.extend(whole.filter(|whole| *whole != number));
            let begins = keyspaces.iter().filter(|(prefix, _)| key.starts_with(*prefix));
            covers.extend(begins.map(|(_, keyspace)| *keyspace));
        }
        self.orders = vec![Vec::new(); self.registers.len()];
        self.loose_delete = vec![None; self.registers.len()];
    }

    fn number(&mut self, register: &Register) -> usize {
        if let Some(number) = self.registers.get(register) {
            return *number;
        }
        let number = self.registers.len();
        self.registers.insert(register.clone(), number);
        number
    }

    /// The number of a register of this history.
    pub(super) fn register(&self, register: &Register) -> usize {
        self.registers.get(register).copied().unwrap_or(usize::MAX)
    }

    /// The registers by which this one is assigned.
    pub(super) fn covers(&self, register: usize) -> &[usize] {
        self.covers.get(register).map_or(&[], Vec::as_slice)
    }

    fn problem_with(&mut self, why: impl FnOnce() -> String) {
        self.problem.get_or_insert_with(why);
    }

    fn take_write(&mut self, line: usize, place: usize) -> Result<(), String> {
        let index = self.sessions[line][place];
        let history = self.history;
        let request: &'h Request = &history.requests[index];
        if request.writes.is_empty() {
            return Ok(());
        }
        if !request.is_done() {
            let may = !is_failed(request);
            if may
                && let Some(id) = &request.write
                && let Some(position) = self.place(id)
            {
                let write = self.stranger(id, Some(position));
                for assigned in &request.writes {
                    self.assign(write, &assigned.register, assigned.deletes);
                }
                return Ok(());
            }
            for assigned in request.writes.iter().filter(|assigned| may && assigned.deletes) {
                let register = self.register(&assigned.register);
                let since = self.loose_delete[register].get_or_insert(request.call_us);
                *since = request.call_us.min(*since);
            }
            return Ok(());
        }
        let Some(id) = &request.write else {
            self.problem_with(|| format!("a write has no identity: {request}"));
            return Ok(());
        };
        let position = self.place(id);
        if position.is_none() {
            self.problem_with(|| format!("an acknowledged write has no position: {request}"));
        }
        let write = self.writes.len();
        let number = place as u32 + 1;
        self.writes.push(Write { id, request: Some(index), line, number, position });
        if let Some(other) = self.ids.insert(id, write) {
            let other = self.writes[other].request.unwrap_or(index);
            return Err(format!(
                "two writes have the identity {id}: {}, and {request}",
                history.requests[other]
            ));
        }
        for assigned in &request.writes {
            self.assign(write, &assigned.register, assigned.deletes);
        }
        Ok(())
    }

    fn place(&self, id: &WriteId) -> Option<Rank> {
        let place = self.places.get(&(id.site.as_str(), id.revision))?;
        Some(place.position.map_or(Rank::lost(id.revision), Rank::ordered))
    }

    fn assign(&mut self, write: usize, register: &Register, deletes: bool) {
        let Some(position) = self.writes[write].position else { return };
        let rank = self.rank_at(write, register).unwrap_or(position);
        let number = self.register(register);
        let highest = (Rank::default(), 0, false);
        self.orders[number].push(Entry { position, rank, write, deletes, highest });
    }

    /// Where a write counts on a register.
    fn rank_at(&self, write: usize, register: &Register) -> Option<Rank> {
        let write = &self.writes[write];
        let place = self.places.get(&(write.id.site.as_str(), write.id.revision))?;
        let covers = |of: &Register| of == register || self.is_covered(register, of);
        let instead = place
            .instead
            .iter()
            .find(|instead| instead.registers.is_empty() || instead.registers.iter().any(covers));
        match (instead, place.position) {
            (Some(instead), _) if instead.same => Some(Rank::ordered(instead.of)),
            (Some(instead), Some(own)) => Some(Rank::below(instead.of, own)),
            _ => write.position,
        }
    }

    fn is_covered(&self, register: &Register, by: &Register) -> bool {
        let (register, by) = (self.register(register), self.register(by));
        self.covers(register).contains(&by)
    }

    /// Deletes that the region itself ordered.
    fn take_removals(&mut self) {
        let history = self.history;
        let removals = || history.positions.iter().filter(|place| !place.removes.is_empty());
        if removals().next().is_none() {
            return;
        }
        let seen = history.requests.iter().flat_map(|request| &request.reads);
        let named: HashSet<&WriteId> = seen.filter_map(|seen| seen.found.as_ref()).collect();
        for place in removals() {
            let Some(position) = place.position.map(Rank::ordered) else { continue };
            let id = WriteId { site: place.site.clone(), revision: place.revision };
            let write = match (self.ids.get(&id), named.get(&id)) {
                (Some(write), _) => *write,
                (None, Some(id)) => self.stranger(id, Some(position)),
                (None, None) => self.stranger(&UNNAMED, Some(position)),
            };
            for register in &place.removes {
                let number = self.register(register);
                let highest = (Rank::default(), 0, false);
                let entry = Entry { position, rank: position, write, deletes: true, highest };
                self.orders[number].push(entry);
            }
        }
    }

    /// A write that belongs to no session.
    fn stranger(&mut self, id: &'h WriteId, position: Option<Rank>) -> usize {
        let write = self.writes.len();
        let line = self.lines;
        self.lines += 1;
        self.writes.push(Write { id, request: None, line, number: 1, position });
        if id != &UNNAMED {
            self.ids.insert(id, write);
        }
        write
    }

    /// Writes that got no answer and were read.
    fn take_loose(&mut self) {
        let history = self.history;
        let asked: HashSet<&Register> = history
            .requests
            .iter()
            .filter(|request| !request.is_done() && !is_failed(request))
            .flat_map(|request| request.writes.iter().map(|assigned| &assigned.register))
            .collect();
        if asked.is_empty() {
            return;
        }
        let asked: HashSet<usize> = asked.into_iter().map(|one| self.register(one)).collect();
        let mut assigned: HashSet<(usize, usize)> = HashSet::new();
        for request in history.requests.iter().filter(|request| request.is_done()) {
            for seen in &request.reads {
                let Some(id) = &seen.found else { continue };
                let register = self.register(&seen.register);
                let may = self.covers(register).iter().any(|cover| asked.contains(cover));
                let write = match self.ids.get(id) {
                    Some(write) if self.writes[*write].request.is_some() => continue,
                    Some(write) => *write,
                    None if may => {
                        let position = self.place(id);
                        if position.is_none() {
                            self.problem_with(|| {
                                format!("write {id} was read and has no position: {request}")
                            });
                        }
                        self.stranger(id, position)
                    }
                    None => continue,
                };
                let has = |entry: &Entry| entry.write == write;
                let known =
                    self.covers(register).iter().any(|cover| self.orders[*cover].iter().any(has));
                if may && !known && assigned.insert((write, register)) {
                    self.assign(write, &seen.register, seen.absent);
                }
            }
        }
    }

    /// What a read found, and where that comes on its register.
    ///
    /// # Errors
    /// No write left that there.
    pub(super) fn found(&self, seen: &Seen) -> Result<Found, String> {
        let register = self.register(&seen.register);
        let Some(id) = &seen.found else {
            return Ok(if seen.absent { Found::Nothing } else { Found::Unclear });
        };
        let Some(write) = self.ids.get(id).copied() else {
            return Err(format!("no request wrote {id}, which was read of {}", seen.register));
        };
        if self.writes[write].position.is_none() {
            return Ok(Found::Unclear);
        }
        let ranks = self.covers(register).iter().flat_map(|cover| {
            let order = &self.orders[*cover];
            let position = self.writes[write].position.unwrap_or_default();
            let from = order.partition_point(|entry| entry.position < position);
            order[from..].iter().take_while(move |entry| entry.position == position)
        });
        let rank = ranks.filter(|entry| entry.write == write).map(|entry| entry.rank).max();
        match rank {
            Some(rank) => Ok(Found::Version(write, rank)),
            None => Err(format!("write {id} did not assign {}, and was read there", seen.register)),
        }
    }

    /// Of the assignments of a register with positions up to this one, what counts last.
    pub(super) fn latest(&self, register: usize, upto: Rank) -> Option<(Rank, usize, bool)> {
        let last = |cover: &usize| {
            let order = &self.orders[*cover];
            let count = order.partition_point(|entry| entry.position <= upto);
            Some(order[count.checked_sub(1)?].highest)
        };
        self.covers(register).iter().filter_map(last).max()
    }

    /// The rank of the earliest delete of a register that comes at this rank or later.
    pub(super) fn delete_from(&self, register: usize, from: Rank) -> Option<Rank> {
        let entries = self.covers(register).iter().flat_map(|cover| &self.orders[*cover]);
        let deletes = entries.filter(|entry| entry.deletes && entry.rank >= from);
        deletes.map(|entry| entry.rank).min()
    }

    /// Whether a write without an answer may have deleted it before a read returned.
    pub(super) fn is_loosely_deleted(&self, register: usize, read: &Request) -> bool {
        let began = self.covers(register).iter().filter_map(|cover| self.loose_delete[*cover]);
        let began = began.min();
        began.is_some_and(|began| read.return_us.is_none_or(|returned| began <= returned))
    }

    /// The assignments that assign this register.
    pub(super) fn assignments(&self, cover: usize) -> &[Entry] {
        &self.orders[cover]
    }

    /// How many registers there are.
    pub(super) fn register_count(&self) -> usize {
        self.orders.len()
    }

    /// Where a write of this session counts on a register that it assigned.
    pub(super) fn rank_of(&self, write: usize, register: &Register) -> Option<Rank> {
        self.rank_at(write, register)
    }

    /// The write of a request.
    pub(super) fn write_of(&self, request: &Request) -> Option<usize> {
        if !request.is_done() || request.writes.is_empty() {
            return None;
        }
        self.ids.get(request.write.as_ref()?).copied()
    }

    /// A write, for people.
    pub(super) fn describe(&self, write: usize) -> String {
        let write = &self.writes[write];
        match write.request {
            Some(request) => self.history.requests[request].to_string(),
            None => format!("write {}, of no answered request", write.id),
        }
    }
}

/// What stands for the identity of a write that nothing names.
static UNNAMED: WriteId = WriteId { site: String::new(), revision: 0 };

fn is_failed(request: &Request) -> bool {
    matches!(request.got, crate::history::Got::Failed { .. })
}

/// The requests of each client, in order.
fn sessions(history: &History) -> Result<Vec<Vec<usize>>, String> {
    let mut clients: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, request) in history.requests.iter().enumerate() {
        let unreadable = |seen: &Seen| matches!(seen.register, Register::Keyspace(_));
        if request.reads.iter().any(unreadable) {
            return Err(format!(
                "request {index} reads a whole keyspace as one register: {request}"
            ));
        }
        clients.entry(&request.client).or_default().push(index);
    }
    for (client, chain) in &mut clients {
        chain.sort_by_key(|&index| history.requests[index].call_us);
        for pair in chain.windows(2) {
            let (first, second) = (&history.requests[pair[0]], &history.requests[pair[1]]);
            if first.return_us > Some(second.call_us) {
                return Err(format!(
                    "client {client:?} is no session: it called request {} before request {} had \
                     returned",
                    pair[1], pair[0]
                ));
            }
        }
    }
    Ok(clients.into_values().collect())
}
