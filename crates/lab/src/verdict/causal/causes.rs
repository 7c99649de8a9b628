//! What each operation was caused by, and the patterns that cannot be.

use std::collections::VecDeque;

use super::{Fact, Facts, Source, violation};
use crate::history::{History, Operation};
use crate::verdict::session::Sessions;
use crate::verdict::{Violation, describe};

/// Most numbers that are kept: 200 MB of them.
const NUMBERS_MAX: usize = 50_000_000;

/// A place in a line: a session's operations, or one write that happened at an unknown time.
#[derive(Debug, Clone, Copy)]
struct Place {
    line: usize,
    /// From 1; what is caused by the first `n` of a line has its number `n`.
    number: u32,
}

/// A write, in the list of its line's writes of its key.
#[derive(Debug, Clone, Copy)]
struct Write {
    number: u32,
    operation: usize,
    deletes: bool,
}

pub(super) struct Causes<'h> {
    history: &'h History,
    sessions: &'h Sessions,
    facts: &'h Facts,
    /// By operation.
    place: Vec<Place>,
    lines: usize,
    /// By key, by line: its writes in order.
    writes: Vec<Vec<(usize, Vec<Write>)>>,
    /// By operation: how far it was caused by each line, itself included; only of writes, once
    /// they are reached.
    causes: Vec<Option<Box<[u32]>>>,
    /// Pairs of writes of a key of which the first must come first.
    conflicts: Vec<(usize, usize)>,
}

impl<'h> Causes<'h> {
    /// Puts operations in their places.
    ///
    /// # Errors
    /// There are too many to be judged.
    pub(super) fn of(
        history: &'h History,
        sessions: &'h Sessions,
        facts: &'h Facts,
    ) -> Result<Causes<'h>, String> {
        let count = history.operations.len();
        let mut causes = Causes {
            history,
            sessions,
            facts,
            place: vec![Place { line: 0, number: 0 }; count],
            lines: sessions.chains.len(),
            writes: vec![Vec::new(); facts.loose_delete.len()],
            causes: vec![None; count],
            conflicts: Vec::new(),
        };
        let mut writes = 0;
        for (session, chain) in sessions.chains.iter().enumerate() {
            for (number, &index) in (1..).zip(chain) {
                let fact = facts.facts[index];
                let loose = fact.is_some_and(|fact| fact.loose);
                let place = match loose {
                    true => Place { line: causes.lines, number: 1 },
                    false => Place { line: session, number },
                };
                causes.lines += usize::from(loose);
                causes.place[index] = place;
                if let Some(Fact { key, writes: true, deletes, .. }) = fact {
                    let lines = &mut causes.writes[key];
                    let write = Write { number: place.number, operation: index, deletes };
                    // A session's writes come one after the other, but for the loose ones between.
                    match lines.iter_mut().rev().find(|(line, _)| *line == place.line) {
                        Some((_, writes)) => writes.push(write),
                        None => lines.push((place.line, vec![write])),
                    }
                    writes += 1;
                }
            }
        }
        match causes.lines.checked_mul(writes) {
            Some(numbers) if numbers <= NUMBERS_MAX => Ok(causes),
            _ => Err(format!(
                "{writes} writes of {} sessions and unanswered calls are too many to keep what caused \
                 each: at most {NUMBERS_MAX} numbers are kept",
                causes.lines
            )),
        }
    }

    /// Looks for patterns that cannot be.
    pub(super) fn judge(mut self, convergence: bool) -> Result<(), Violation> {
        let mut now: Vec<Box<[u32]>> = vec![vec![0; self.lines].into(); self.sessions.chains.len()];
        let mut reached = vec![0_usize; self.sessions.chains.len()];
        // Sessions that wait for a write to be reached.
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.history.operations.len()];
        let mut ready: VecDeque<usize> = (0..self.sessions.chains.len()).collect();
        while let Some(session) = ready.pop_front() {
            while let Some(&index) = self.sessions.chains[session].get(reached[session]) {
                if let Some(Source::Write(write)) = self.source(index)
                    && self.causes[write].is_none()
                {
                    waiting[write].push(session);
                    break;
                }
                self.reach(index, &mut now[session], convergence)?;
                reached[session] += 1;
                ready.extend(waiting[index].drain(..));
            }
        }
        match (0..reached.len()).find(|&at| reached[at] < self.sessions.chains[at].len()) {
            Some(stuck) => Err(self.circle(&reached, stuck)),
            None if convergence => self.conflicting(),
            None => Ok(()),
        }
    }

    fn source(&self, index: usize) -> Option<Source> {
        self.facts.facts[index]?.source
    }

    /// Takes up the next operation of a session, of which all causes are known.
    fn reach(
        &mut self,
        index: usize,
        now: &mut Box<[u32]>,
        convergence: bool,
    ) -> Result<(), Violation> {
        let place = self.place[index];
        let Some(fact) = self.facts.facts[index] else {
            now[place.line] = place.number;
            return Ok(());
        };
        match fact.source {
            Some(Source::Write(write)) => {
                if let Some(causes) = &self.causes[write] {
                    for (own, its) in now.iter_mut().zip(causes) {
                        *own = (*its).max(*own);
                    }
                }
                self.check_read(index, fact.key, write, now, convergence)?;
            }
            Some(Source::Nothing) => self.check_nothing(index, fact.key, now)?,
            None => {}
        }
        if fact.loose {
            let mut own = now.clone();
            own[place.line] = place.number;
            self.causes[index] = Some(own);
            return Ok(());
        }
        if fact.writes {
            self.check_version(index, fact, now)?;
        }
        now[place.line] = place.number;
        if fact.writes {
            self.causes[index] = Some(now.clone());
        }
        Ok(())
    }

    /// Of each line, the last write of a key among these causes.
    fn last_writes<'s>(&'s self, key: usize, now: &'s [u32]) -> impl Iterator<Item = Write> + 's {
        self.writes[key].iter().filter_map(|(line, writes)| {
            let count = writes.partition_point(|write| write.number <= now[*line]);
            count.checked_sub(1).map(|last| writes[last])
        })
    }

    /// Whether the first is among the causes of the second, a write.
    fn caused(&self, first: usize, second: usize) -> bool {
        let place = self.place[first];
        let causes = self.causes[second].as_ref();
        first != second && causes.is_some_and(|causes| causes[place.line] >= place.number)
    }

    fn version(&self, index: usize) -> Option<u64> {
        self.facts.facts[index]?.version.filter(|_| self.facts.versions)
    }

    fn operation(&self, index: usize) -> &'h Operation {
        &self.history.operations[index]
    }

    /// Old causes, and versions that are older than a cause's.
    fn check_read(
        &mut self,
        index: usize,
        key: usize,
        source: usize,
        now: &[u32],
        convergence: bool,
    ) -> Result<(), Violation> {
        let mut conflicts = Vec::new();
        for write in self.last_writes(key, now).filter(|write| write.operation != source) {
            let newer = write.operation;
            if self.caused(source, newer) {
                let what = format!(
                    "{} found what had been overwritten among its causes: {} was caused by {}, and is \
                     among the causes of the read.",
                    describe(self.operation(index)),
                    describe(self.operation(newer)),
                    describe(self.operation(source)),
                );
                return Err(violation(self.history, what, vec![source, newer, index], index));
            }
            if let (Some(found), Some(cause)) = (self.version(source), self.version(newer))
                && found < cause
            {
                let what = format!(
                    "{} found version {found}, though a later version, {cause}, is among its causes: {}.",
                    describe(self.operation(index)),
                    describe(self.operation(newer)),
                );
                return Err(violation(self.history, what, vec![source, newer, index], index));
            }
            if !self.caused(newer, source) {
                conflicts.push((newer, source));
            }
        }
        if convergence {
            self.conflicts.append(&mut conflicts);
        }
        Ok(())
    }

    /// Lost causes.
    fn check_nothing(&self, index: usize, key: usize, now: &[u32]) -> Result<(), Violation> {
        let last: Vec<Write> = self.last_writes(key, now).collect();
        let values = last.iter().filter_map(|write| self.last_value(key, *write));
        let values: Vec<usize> = values.collect();
        let Some(&lost) = values.first() else { return Ok(()) };
        if self.facts.loose_delete[key] {
            return Ok(());
        }
        let explains = |delete: &Write| {
            let place = self.place[delete.operation];
            let later =
                place.line == self.place[index].line && delete.number >= self.place[index].number;
            let among = delete.number <= now[place.line];
            let overwritten = values.iter().any(|&value| self.caused(delete.operation, value));
            !later && (!among || !overwritten)
        };
        let mut deletes = self.writes[key].iter().flat_map(|(_, writes)| writes);
        if deletes.any(|write| write.deletes && explains(write)) {
            return Ok(());
        }
        let what = format!(
            "{} found nothing, though a write is among its causes and no delete explains it: {}.",
            describe(self.operation(index)),
            describe(self.operation(lost)),
        );
        Err(violation(self.history, what, vec![lost, index], index))
    }

    /// The last write of a value in a line up to this write.
    fn last_value(&self, key: usize, last: Write) -> Option<usize> {
        let line = self.place[last.operation].line;
        let (_, writes) = self.writes[key].iter().find(|(at, _)| *at == line)?;
        let upto = writes.iter().rev().skip_while(|write| write.number > last.number);
        upto.into_iter().find(|write| !write.deletes).map(|write| write.operation)
    }

    /// Versions of writes that are not later than a cause's.
    fn check_version(&self, index: usize, fact: Fact, now: &[u32]) -> Result<(), Violation> {
        let Some(version) = self.version(index) else { return Ok(()) };
        for write in self.last_writes(fact.key, now) {
            if let Some(cause) = self.version(write.operation)
                && cause > version
            {
                let what = format!(
                    "the versions of the key contradict causes: {} has version {version}, and among its \
                     causes is version {cause}, {}.",
                    describe(self.operation(index)),
                    describe(self.operation(write.operation)),
                );
                return Err(violation(self.history, what, vec![write.operation, index], index));
            }
        }
        Ok(())
    }

    /// Reads of which each waits for a write that comes after another of them.
    fn circle(&self, reached: &[usize], stuck: usize) -> Violation {
        let mut way: Vec<(usize, usize)> = Vec::new();
        let mut sessions: Vec<usize> = Vec::new();
        let mut at = stuck;
        while !sessions.contains(&at) {
            sessions.push(at);
            let read = self.sessions.chains[at][reached[at]];
            let Some(Source::Write(write)) = self.source(read) else { break };
            way.push((read, write));
            let next = |chain: &Vec<usize>| chain.contains(&write);
            at = self.sessions.chains.iter().position(next).unwrap_or(at);
        }
        let first = sessions.iter().position(|&session| session == at).unwrap_or(0);
        let circle = &way[first..];
        let steps = circle.iter().map(|&(read, write)| {
            format!(
                "{} comes from {}",
                describe(self.operation(read)),
                describe(self.operation(write))
            )
        });
        let what = format!(
            "operations are causes of one another in a circle: {}; and each of these writes comes \
             after the read of its own session.",
            steps.collect::<Vec<_>>().join("; ")
        );
        let operations = circle.iter().flat_map(|&(read, write)| [read, write]).collect();
        violation(self.history, what, operations, circle.first().map_or(0, |&(read, _)| read))
    }

    /// Cyclic conflicts: whether causes and conflicts together have no order.
    fn conflicting(&self) -> Result<(), Violation> {
        let count = self.history.operations.len();
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); count];
        for chain in &self.sessions.chains {
            let mut last: Option<usize> = None;
            for &index in chain {
                if let Some(last) = last {
                    after[last].push(index);
                }
                if self.facts.facts[index].is_none_or(|fact| !fact.loose) {
                    last = Some(index);
                }
            }
        }
        for index in 0..count {
            if let Some(Source::Write(write)) = self.source(index) {
                after[write].push(index);
            }
        }
        for &(first, second) in &self.conflicts {
            after[first].push(second);
        }
        let mut before = vec![0_u32; count];
        after.iter().flatten().for_each(|&next| before[next] += 1);
        let mut free: Vec<usize> = (0..count).filter(|&index| before[index] == 0).collect();
        while let Some(index) = free.pop() {
            for &next in &after[index] {
                before[next] -= 1;
                if before[next] == 0 {
                    free.push(next);
                }
            }
        }
        let Some(start) = (0..count).find(|&index| before[index] > 0) else { return Ok(()) };
        let circle = circle_of(&after, &before, start);
        let writes =
            circle.iter().filter(|&&i| self.facts.facts[i].is_some_and(|fact| fact.writes));
        let tellings: Vec<String> = writes.map(|&index| describe(self.operation(index))).collect();
        let what = format!(
            "no order of each key's writes agrees with what was read and with causes; in a circle, each \
             has to come before the next: {}.",
            tellings.join("; ")
        );
        let at = circle.first().copied().unwrap_or(start);
        Err(violation(self.history, what, circle, at))
    }
}

/// A circle among what is left when all that is free of circles before it was taken away: going
/// back from anything that is left leads round one.
fn circle_of(after: &[Vec<usize>], left: &[u32], start: usize) -> Vec<usize> {
    let mut back = vec![None; after.len()];
    for (index, next) in after.iter().enumerate().filter(|&(index, _)| left[index] > 0) {
        next.iter().for_each(|&next| back[next] = Some(index));
    }
    let mut way = Vec::new();
    let mut seen = vec![false; after.len()];
    let mut at = start;
    while !seen[at] {
        seen[at] = true;
        way.push(at);
        match back[at] {
            Some(index) => at = index,
            None => break,
        }
    }
    let first = way.iter().position(|&index| index == at).unwrap_or(0);
    let mut circle = way.split_off(first);
    circle.reverse();
    circle
}
