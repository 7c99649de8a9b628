//! The four guarantees of sessions, by positions.

use std::collections::HashMap;

use super::facts::{Facts, Found, Rank};
use super::{Flaw, violation};
use crate::history::{Promise, Register, Seen};
use crate::verdict::Violation;

/// What a session had written, or read, of a register up to a place: what counts last, and its
/// request.
#[derive(Debug, Clone, Copy)]
struct Mark {
    place: usize,
    rank: Rank,
    request: usize,
}

/// By session and register, marks in the order of places.
type Marks = HashMap<(usize, usize), Vec<Mark>>;

/// Looks for what breaks one of them.
pub(super) fn judge(facts: &Facts<'_>, promise: Promise) -> Result<(), Flaw> {
    let judge = Judge { facts, promise, marks: Marks::new(), floors: HashMap::new() };
    judge.run().map_err(Flaw::Broken)
}

struct Judge<'f, 'h> {
    facts: &'f Facts<'h>,
    promise: Promise,
    marks: Marks,
    /// By session and register: the earliest delete that nothing found there can be.
    floors: HashMap<(usize, usize), Rank>,
}

/// What a session has seen of another's writes: the last one, its place there, and by which
/// request.
#[derive(Debug, Clone, Copy)]
struct LastSeen {
    place: usize,
    write: usize,
    by: usize,
}

impl Judge<'_, '_> {
    fn run(mut self) -> Result<(), Violation> {
        let is_own = matches!(self.promise, Promise::ReadYourWrites | Promise::MonotonicReads);
        for session in 0..self.facts.sessions.len() {
            let mut highest: Option<(Rank, usize)> = None;
            for place in 0..self.facts.sessions[session].len() {
                self.take(session, place, &mut highest, is_own)?;
            }
        }
        if is_own { Ok(()) } else { self.judge_others() }
    }

    /// Whether marks are of writes; else of reads.
    fn is_of_writes(&self) -> bool {
        matches!(self.promise, Promise::ReadYourWrites | Promise::MonotonicWrites)
    }

    /// Judges a request by what its own session did before, and notes what it did.
    fn take(
        &mut self,
        session: usize,
        place: usize,
        highest: &mut Option<(Rank, usize)>,
        is_own: bool,
    ) -> Result<(), Violation> {
        let facts = self.facts;
        let index = facts.sessions[session][place];
        let request = &facts.history.requests[index];
        if !request.is_done() {
            return Ok(());
        }
        let mut read = Vec::new();
        for seen in &request.reads {
            let register = facts.register(&seen.register);
            let found = facts.found(seen).unwrap_or(Found::Unclear);
            let own = self.before(session, register, place);
            if is_own {
                self.judge_own(session, index, seen, found, own)?;
            }
            if let Found::Version(write, rank) = found {
                read.push((register, rank));
                let position = facts.writes[write].position.unwrap_or_default();
                if !self.is_of_writes() {
                    *highest = (*highest).max(Some((position, index)));
                }
            }
        }
        for (register, rank) in read {
            if !self.is_of_writes() {
                self.note(session, register, Mark { place, rank, request: index });
            }
        }
        let Some(write) = facts.write_of(request) else { return Ok(()) };
        let Some(position) = facts.writes[write].position else { return Ok(()) };
        if let Some((seen, by)) = *highest
            && !is_own
            && seen >= position
        {
            let word = if self.is_of_writes() { "written" } else { "read" };
            let what = format!(
                "a session's write has {position}, which is not after what it had {word} before, with \
                 {seen}: first {}, then {request}.",
                facts.history.requests[by]
            );
            return Err(self.violation(&request.writes[0].register, what, &[by, index]));
        }
        if self.is_of_writes() {
            *highest = Some((position, index));
            for assigned in &request.writes {
                let rank = facts.rank_of(write, &assigned.register).unwrap_or(position);
                let register = facts.register(&assigned.register);
                self.note(session, register, Mark { place, rank, request: index });
            }
        }
        Ok(())
    }

    fn judge_own(
        &mut self,
        session: usize,
        index: usize,
        seen: &Seen,
        found: Found,
        own: Option<Mark>,
    ) -> Result<(), Violation> {
        let facts = self.facts;
        let register = facts.register(&seen.register);
        let floor = self.floors.get(&(session, register)).copied();
        let floor = floor.filter(|_| self.promise == Promise::MonotonicReads);
        let need = own.map(|own| own.rank).max(floor);
        let kept = match (found, need) {
            (Found::Unclear, _) | (_, None) => true,
            (Found::Version(_, rank), Some(need)) => rank >= need,
            (Found::Nothing, Some(need)) => {
                // One that was not answered may have come before all others.
                let read = &facts.history.requests[index];
                let is_loose = facts.is_loosely_deleted(register, read);
                let delete = facts.delete_from(register, need).filter(|_| !is_loose);
                self.floors.extend(delete.map(|delete| ((session, register), delete)));
                delete.is_some() || is_loose
            }
        };
        if kept {
            return Ok(());
        }
        let word = if self.is_of_writes() { "written" } else { "read" };
        let request = &facts.history.requests[index];
        let first = own.map_or_else(
            || "nothing, which some delete had left".to_owned(),
            |own| format!("{}, which has {}", facts.history.requests[own.request], own.rank),
        );
        let what = format!(
            "a session's read is older than what it had {word}: first {first}, then {request}."
        );
        let shows: Vec<usize> = own.map(|own| own.request).into_iter().chain([index]).collect();
        Err(self.violation(&seen.register, what, &shows))
    }

    fn note(&mut self, session: usize, register: usize, mut mark: Mark) {
        let marks = self.marks.entry((session, register)).or_default();
        if let Some(last) = marks.last().filter(|last| last.rank > mark.rank) {
            mark = Mark { place: mark.place, ..*last };
        }
        marks.push(mark);
    }

    /// What counts last of what a session had written, or read, of a register before a place.
    fn before(&self, session: usize, register: usize, place: usize) -> Option<Mark> {
        let itself = [register];
        let covers =
            if self.is_of_writes() { self.facts.covers(register) } else { itself.as_slice() };
        let marks = covers.iter().filter_map(|cover| self.marks.get(&(session, *cover)));
        let last = marks.filter_map(|marks| {
            let count = marks.partition_point(|mark| mark.place < place);
            Some(marks[count.checked_sub(1)?])
        });
        last.max_by_key(|mark| mark.rank)
    }

    /// Reads that miss what the writer of something seen before had written, or read, before that.
    fn judge_others(&self) -> Result<(), Violation> {
        let facts = self.facts;
        for chain in &facts.sessions {
            let mut known: HashMap<usize, LastSeen> = HashMap::new();
            let mut upto = Rank::default();
            for &index in chain {
                let request = &facts.history.requests[index];
                for seen in request.reads.iter().filter(|_| request.is_done()) {
                    self.judge_other(&known, upto, index, seen)?;
                }
                for seen in request.reads.iter().filter(|_| request.is_done()) {
                    let Ok(Found::Version(write, _)) = facts.found(seen) else { continue };
                    let one = &facts.writes[write];
                    upto = upto.max(one.position.unwrap_or_default());
                    if one.request.is_some() {
                        let place = one.number as usize - 1;
                        let new = LastSeen { place, write, by: index };
                        let old = known.entry(one.line).or_insert(new);
                        if old.place < place {
                            *old = new;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn judge_other(
        &self,
        known: &HashMap<usize, LastSeen>,
        upto: Rank,
        index: usize,
        seen: &Seen,
    ) -> Result<(), Violation> {
        let facts = self.facts;
        let register = facts.register(&seen.register);
        let found = match facts.found(seen) {
            Ok(Found::Version(_, rank)) => Some(rank),
            Ok(Found::Nothing) => None,
            _ => return Ok(()),
        };
        // What a writer had written or read before has a lower position than what was seen of it.
        if facts.latest(register, upto).map(|(rank, ..)| rank) <= found {
            return Ok(());
        }
        let mut writers: Vec<(&usize, &LastSeen)> = known.iter().collect();
        writers.sort_unstable_by_key(|(writer, _)| **writer);
        for (writer, known) in writers {
            let Some(mark) = self.before(*writer, register, known.place) else { continue };
            let explained = match found {
                Some(rank) => rank >= mark.rank,
                None => {
                    facts.delete_from(register, mark.rank).is_some()
                        || facts.is_loosely_deleted(register, &facts.history.requests[index])
                }
            };
            if explained {
                continue;
            }
            let word = if self.is_of_writes() { "wrote" } else { "read" };
            let requests = &facts.history.requests;
            let what = format!(
                "a session {word} {}, with {}, before it wrote {}. {} saw that write, and after it {} found \
                 what is older.",
                requests[mark.request],
                mark.rank,
                facts.describe(known.write),
                requests[known.by],
                requests[index],
            );
            let of_write = facts.writes[known.write].request;
            let shows = [Some(mark.request), of_write, Some(known.by), Some(index)];
            let shows: Vec<usize> = shows.into_iter().flatten().collect();
            return Err(self.violation(&seen.register, what, &shows));
        }
        Ok(())
    }

    fn violation(&self, register: &Register, what: String, shows: &[usize]) -> Violation {
        violation(self.facts.history, self.promise, register.to_string(), what, shows)
    }
}
