//! What each request was caused by, exactly: for each session, up to which of its requests.
//!
//! It takes a number for each write and session, so it is done only where positions alone leave a
//! doubt.

use std::collections::{HashMap, VecDeque};

use super::facts::{Facts, Found, Rank};
use super::{Flaw, violation};
use crate::history::{Promise, Seen};
use crate::verdict::Violation;

/// Most numbers that are kept: 200 MB of them.
const NUMBERS_MAX: usize = 50_000_000;

/// An assignment in a line: the highest rank of the line's assignments of a register up to here.
#[derive(Debug, Clone, Copy)]
struct Assigned {
    number: u32,
    rank: Rank,
    write: usize,
}

pub(super) struct Past<'f, 'h> {
    facts: &'f Facts<'h>,
    /// By register as assigned: by line, its assignments in the order of the line.
    assigned: Vec<Vec<(usize, Vec<Assigned>)>>,
    /// By write: how far it was caused by each line, itself included; none until it is reached.
    causes: Vec<Option<Box<[u32]>>>,
    /// By session and register: the earliest delete that nothing found there can be.
    floors: HashMap<(usize, usize), (Rank, usize)>,
}

impl<'f, 'h> Past<'f, 'h> {
    /// # Errors
    /// There are too many writes and sessions.
    pub(super) fn of(facts: &'f Facts<'h>) -> Result<Past<'f, 'h>, Flaw> {
        let (writes, lines) = (facts.writes.len(), facts.lines);
        if writes.checked_mul(lines).is_none_or(|numbers| numbers > NUMBERS_MAX) {
            return Err(Flaw::TooMuch(format!(
                "{writes} writes of {lines} sessions are too many to keep what caused each: at most \
                 {NUMBERS_MAX} numbers are kept"
            )));
        }
        let of_register = |register| {
            let mut lines: Vec<(usize, Vec<Assigned>)> = Vec::new();
            let mut entries = facts.assignments(register).to_vec();
            let place = |write: usize| (facts.writes[write].line, facts.writes[write].number);
            entries.sort_by_key(|entry| place(entry.write));
            for entry in entries {
                let (line, number) = place(entry.write);
                let (rank, write) = (entry.rank, entry.write);
                let mut one = Assigned { number, rank, write };
                match lines.last_mut().filter(|(last, _)| *last == line) {
                    Some((_, assigned)) => {
                        if let Some(last) = assigned.last().filter(|last| last.rank > rank) {
                            one = Assigned { number, ..*last };
                        }
                        assigned.push(one);
                    }
                    None => lines.push((line, vec![one])),
                }
            }
            lines
        };
        Ok(Past {
            facts,
            assigned: (0..facts.register_count()).map(of_register).collect(),
            causes: vec![None; writes],
            floors: HashMap::new(),
        })
    }

    /// Goes through all sessions, each as far as the writes that it read have been reached.
    pub(super) fn judge(mut self) -> Result<(), Flaw> {
        let facts = self.facts;
        for write in facts.writes.iter().enumerate().filter(|(_, one)| one.request.is_none()) {
            let mut alone = vec![0; facts.lines].into_boxed_slice();
            alone[write.1.line] = 1;
            self.causes[write.0] = Some(alone);
        }
        let count = facts.sessions.len();
        let mut now: Vec<Box<[u32]>> = vec![vec![0; facts.lines].into(); count];
        let mut reached = vec![0_usize; count];
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); facts.writes.len()];
        let mut ready: VecDeque<usize> = (0..count).collect();
        while let Some(session) = ready.pop_front() {
            while let Some(&index) = facts.sessions[session].get(reached[session]) {
                if let Some(write) = self.unreached(index) {
                    waiting[write].push(session);
                    break;
                }
                let number = reached[session] as u32 + 1;
                if let Some(write) = self.reach(session, index, number, &mut now[session])? {
                    ready.extend(waiting[write].drain(..));
                }
                reached[session] += 1;
            }
        }
        // Causes in a circle have no ascending positions, and were found before.
        Ok(())
    }

    fn unreached(&self, index: usize) -> Option<usize> {
        let request = &self.facts.history.requests[index];
        let reads = request.reads.iter().filter(|_| request.is_done());
        let mut found = reads.filter_map(|read| match self.facts.found(read) {
            Ok(Found::Version(write, _)) => Some(write),
            _ => None,
        });
        found.find(|write| self.causes[*write].is_none())
    }

    /// Judges a request of which all causes are known; returns its write.
    fn reach(
        &mut self,
        session: usize,
        index: usize,
        number: u32,
        now: &mut Box<[u32]>,
    ) -> Result<Option<usize>, Violation> {
        let facts = self.facts;
        let request = &facts.history.requests[index];
        if !request.is_done() {
            return Ok(None);
        }
        let before = now.clone();
        let found: Vec<Found> =
            request.reads.iter().map(|read| facts.found(read).unwrap_or(Found::Unclear)).collect();
        for one in &found {
            if let Found::Version(write, _) = one
                && let Some(causes) = &self.causes[*write]
            {
                now.iter_mut().zip(causes).for_each(|(now, cause)| *now = (*now).max(*cause));
            }
        }
        for (read, found) in request.reads.iter().zip(&found) {
            self.judge_read((session, index), read, *found, now, &before)?;
        }
        let Some(write) = facts.write_of(request) else { return Ok(None) };
        for assigned in &request.writes {
            let register = facts.register(&assigned.register);
            let Some(rank) = facts.rank_of(write, &assigned.register) else { continue };
            if let Some(last) = self.last(register, now).filter(|last| last.rank > rank) {
                return Err(self.overtaken(&assigned.register.to_string(), write, rank, last));
            }
        }
        now[session] = number;
        self.causes[write] = Some(now.clone());
        Ok(Some(write))
    }

    /// What counts last of a register's assignments in a past.
    fn last(&self, register: usize, past: &[u32]) -> Option<Assigned> {
        let lines = self.facts.covers(register).iter().flat_map(|cover| &self.assigned[*cover]);
        let last = lines.filter_map(|(line, assigned)| {
            let count = assigned.partition_point(|one| one.number <= past[*line]);
            Some(assigned[count.checked_sub(1)?])
        });
        last.max_by_key(|one| one.rank)
    }

    fn judge_read(
        &mut self,
        (session, index): (usize, usize),
        read: &Seen,
        found: Found,
        past: &[u32],
        before: &[u32],
    ) -> Result<(), Violation> {
        let register = self.facts.register(&read.register);
        let last = self.last(register, past);
        let floor = self.floors.get(&(session, register)).copied();
        match found {
            Found::Unclear => {}
            Found::Version(write, rank) => {
                if let Some(last) = last.filter(|last| last.rank > rank) {
                    return Err(self.older(
                        (session, index),
                        read,
                        Some((write, rank)),
                        last,
                        before,
                    ));
                }
                if let Some((floor, nothing)) = floor.filter(|(floor, _)| *floor > rank) {
                    let what = format!(
                        "a version came back after its delete: {} found {}, which has {rank}; but nothing \
                         was found there before, and the earliest delete that this can have been has \
                         {floor}.",
                        self.facts.history.requests[index],
                        self.facts.describe(write),
                    );
                    return Err(self.violation(read, what, &[nothing, index]));
                }
            }
            Found::Nothing => {
                let need = last.map(|last| last.rank).max(floor.map(|(floor, _)| floor));
                let Some(need) = need else { return Ok(()) };
                let delete = self.facts.delete_from(register, need);
                // One that was not answered may have come before it.
                let request = &self.facts.history.requests[index];
                if self.facts.is_loosely_deleted(register, request) {
                    return Ok(());
                }
                if let Some(delete) = delete {
                    self.floors.insert((session, register), (delete, index));
                } else if let Some(last) = last {
                    return Err(self.older((session, index), read, None, last, before));
                }
            }
        }
        Ok(())
    }

    fn older(
        &self,
        (session, index): (usize, usize),
        read: &Seen,
        found: Option<(usize, Rank)>,
        last: Assigned,
        before: &[u32],
    ) -> Violation {
        let facts = self.facts;
        let mut what = match found {
            Some((write, rank)) => format!(
                "a read found what is older than its past: {} found {}, which has {rank}",
                facts.history.requests[index],
                facts.describe(write),
            ),
            None => format!(
                "a read found nothing, and no delete explains it: {}",
                facts.history.requests[index]
            ),
        };
        what.push_str(&format!(
            "; but {} has {}, and is in its past",
            facts.describe(last.write),
            last.rank
        ));
        let via = self.via(session, index, last.write);
        let is_of_this_request =
            before[facts.writes[last.write].line] < facts.writes[last.write].number;
        match via {
            _ if is_of_this_request => what.push_str(
                ": what the same request found elsewhere was caused by it or is part of it.",
            ),
            Some(via) if Some(via) != facts.writes[last.write].request => {
                what.push_str(&format!(": by {}.", facts.history.requests[via]));
            }
            _ => what.push('.'),
        }
        let of_found = found.and_then(|(write, _)| facts.writes[write].request);
        let shows = [of_found, facts.writes[last.write].request, via, Some(index)];
        self.violation(read, what, &shows.into_iter().flatten().collect::<Vec<_>>())
    }

    /// The request of a session by which a write came into its past.
    fn via(&self, session: usize, upto: usize, write: usize) -> Option<usize> {
        let cause = self.facts.writes.get(write)?;
        let brings = |read: &Seen| match self.facts.found(read) {
            Ok(Found::Version(found, _)) => {
                let causes = self.causes[found].as_ref();
                causes.is_some_and(|causes| causes[cause.line] >= cause.number)
            }
            _ => false,
        };
        let upto_here = self.facts.sessions[session].iter().copied();
        let mut upto_here = upto_here.take_while(|at| *at != upto);
        upto_here.find(|at| {
            let request = &self.facts.history.requests[*at];
            cause.request == Some(*at) || (request.is_done() && request.reads.iter().any(brings))
        })
    }

    fn overtaken(&self, register: &str, write: usize, rank: Rank, last: Assigned) -> Violation {
        let what = format!(
            "a write counts below what caused it on {register}: {} has {rank} there, and {}, which is in \
             its past, has {}.",
            self.facts.describe(write),
            self.facts.describe(last.write),
            last.rank
        );
        let shows = [self.facts.writes[last.write].request, self.facts.writes[write].request];
        let shows: Vec<usize> = shows.into_iter().flatten().collect();
        violation(self.facts.history, Promise::Causal, register.to_owned(), what, &shows)
    }

    fn violation(&self, read: &Seen, what: String, shows: &[usize]) -> Violation {
        violation(self.facts.history, Promise::Causal, read.register.to_string(), what, shows)
    }
}
