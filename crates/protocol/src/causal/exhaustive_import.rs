//! Every order, within bounds, in which places and writes reach a site that imports them, on the
//! part that its leader runs ([`Import`]).
//!
//! The root has ordered writes of all three sites. It sends places in order, one or two at a time;
//! a message of them may be lost, and the root may begin again at an earlier place. A write comes by
//! itself at any time, twice, or not at all. The site's leader may be lost with all that waits: what
//! it has proposed is applied later, or never. The log applies an import where the last one ended,
//! and nowhere else, as the state machine does.
//!
//! Each import must have the places behind what is imported, without a gap, each with the content
//! that was ordered there. From every state the site comes to the end of the order once messages
//! arrive.

use super::Part as _;
use super::import::{Import, Step};
use super::simulation::{Store, region, write};
use super::trial::Planted;
use model::{CausalCommand, Import as Entry, Position, Revision, SiteId};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;
use wire::causal::Places;

/// The site that imports.
const OWN: u32 = 3;
/// The sites and revisions of the writes, as the root has ordered them.
const ORDER: [(u32, u64); 4] = [(2, 4), (OWN, 1), (1, 7), (2, 5)];
/// Time stands still until all messages arrive: pauses are no part of the search.
const NOW: Duration = Duration::from_secs(1);
/// An import without an effect is proposed again within this.
const LATER: Duration = Duration::from_secs(10);

/// How often each of these may happen.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The root begins again at an earlier place.
    again: u8,
    /// A write comes; of how many writes twice.
    twice: usize,
    /// A leader is lost.
    leaders: u8,
}

#[derive(Clone, Debug)]
struct Proposal {
    from: Position,
    upto: Position,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct State {
    import: Import,
    store: Store,
    /// Of how many places the root has sent messages, since it last began again.
    sent: usize,
    again: u8,
    /// How often the write of each place may come yet.
    copies: [u8; ORDER.len()],
    leaders: u8,
    /// What is proposed, and not applied.
    proposed: VecDeque<Proposal>,
}

impl State {
    fn new(bounds: Bounds, planted: Planted) -> State {
        let mut state = State {
            import: Import::new(planted),
            store: Store::of(OWN),
            sent: 0,
            again: bounds.again,
            copies: std::array::from_fn(|nth| 1 + u8::from(nth < bounds.twice)),
            leaders: bounds.leaders,
            proposed: VecDeque::new(),
        };
        state.poll(NOW);
        state
    }

    fn imported(&self) -> usize {
        self.store.applied.count() as usize
    }

    /// What the leader does next.
    fn poll(&mut self, now: Duration) {
        for step in self.import.poll(now, &self.store, &region(OWN)) {
            if let Step::Propose(CausalCommand::Import { from, upto, entries }) = step {
                self.proposed.push_back(Proposal { from, upto, entries });
            }
        }
    }

    fn take_places(&mut self, count: usize) {
        let entries = &ORDER[self.sent..self.sent + count];
        let (sites, revisions) = entries.iter().copied().unzip();
        let after = position(self.sent).0;
        let first = Position::new(1, self.sent as u64 + 1).0;
        let places = Places { epoch: 1, after, first, sites, revisions, ..Places::default() };
        self.import.take_places(&places, NOW, &region(OWN));
        self.sent += count;
    }

    fn take_write(&mut self, nth: usize) {
        let (site, revision) = ORDER[nth];
        self.import.take_writes(SiteId(site), vec![write(revision)], Duration::ZERO);
    }

    /// The log has come to the first proposal.
    fn apply(&mut self) -> Result<(), String> {
        let Some(Proposal { from, upto, entries }) = self.proposed.pop_front() else {
            return Ok(());
        };
        if from != self.store.applied {
            return Ok(());
        }
        let mut last = self.imported();
        for entry in &entries {
            let (at, is_right) = match entry {
                Entry::Own(at) => (*at, ORDER.get(last).is_some_and(|(site, _)| *site == OWN)),
                Entry::Other { position, site, write: brought } => {
                    let found = ORDER.get(last).copied();
                    let is_right = found == Some((site.0, brought.revision.0))
                        && *brought == write(brought.revision.0);
                    (*position, is_right)
                }
            };
            if at.count() as usize != last + 1 || !is_right {
                return Err(format!("{entry:?} is imported behind place {last}"));
            }
            last += 1;
        }
        if upto.count() as usize != last {
            return Err(format!("{upto} is imported with the content of {last} places"));
        }
        self.store.applied = upto;
        if ORDER[..last].iter().any(|(site, _)| *site == OWN) {
            self.store.own_ordered = Revision(1);
        }
        Ok(())
    }

    /// All states that may come next.
    fn next(&self) -> Result<Vec<State>, String> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut State)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        let left = ORDER.len() - self.sent;
        (1..=left.min(2)).for_each(|count| with(&|next| next.take_places(count)));
        if left > 0 {
            // The message is lost.
            with(&|next| next.sent += 1);
        }
        if self.again > 0 {
            (0..self.sent)
                .for_each(|place| with(&|next| (next.sent, next.again) = (place, self.again - 1)));
        }
        for nth in (0..ORDER.len()).filter(|nth| self.copies[*nth] > 0 && ORDER[*nth].0 != OWN) {
            with(&|next| {
                next.copies[nth] -= 1;
                next.take_write(nth);
            });
        }
        with(&|next| next.poll(NOW));
        if self.leaders > 0 {
            for is_kept in [true, false] {
                with(&|next| {
                    next.leaders -= 1;
                    next.import.stop();
                    next.sent = next.imported();
                    if !is_kept {
                        next.proposed.clear();
                    }
                    next.poll(NOW);
                });
            }
        }
        if !self.proposed.is_empty() {
            let mut next = self.clone();
            next.apply()?;
            all.push(next);
        }
        Ok(all)
    }

    /// From here on messages arrive.
    fn comes_to_the_end(&self) -> Result<(), String> {
        let (mut state, mut now) = (self.clone(), NOW);
        for _ in 0..ORDER.len() + 2 {
            now += LATER;
            state.sent = state.imported();
            state.take_places(ORDER.len() - state.sent);
            (0..ORDER.len())
                .filter(|nth| ORDER[*nth].0 != OWN)
                .for_each(|nth| state.take_write(nth));
            state.poll(now);
            while !state.proposed.is_empty() {
                state.apply()?;
            }
        }
        match state.imported() == ORDER.len() {
            true => Ok(()),
            false => Err(format!("it stays at place {}: {state:?}", state.imported())),
        }
    }

    /// What makes it another state than others.
    fn form(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }
}

fn position(count: usize) -> Position {
    if count == 0 { Position::default() } else { Position::new(1, count as u64) }
}

/// All states within bounds: how many there are, and how deep.
fn explore(bounds: Bounds, planted: Planted) -> Result<(usize, u32), String> {
    let first = State::new(bounds, planted);
    let mut seen = HashSet::from([first.form()]);
    let mut queue = VecDeque::from([(first, 0)]);
    let mut deepest = 0;
    while let Some((state, depth)) = queue.pop_front() {
        deepest = depth;
        let wrong = |why| format!("{why} at depth {depth}");
        state.comes_to_the_end().map_err(wrong)?;
        for next in state.next().map_err(wrong)? {
            if seen.insert(next.form()) {
                queue.push_back((next, depth + 1));
            }
        }
    }
    Ok((seen.len(), deepest))
}

#[test]
fn no_order_of_messages_makes_an_import_wrong_or_endless() {
    for (again, twice, leaders) in [(0, 1, 1), (1, 2, 1), (2, 1, 1)] {
        let bounds = Bounds { again, twice, leaders };
        let found = explore(bounds, Planted::none());
        let (states, depth) = found.unwrap_or_else(|why| panic!("{bounds:?}: {why}"));
        eprintln!("{bounds:?}: {states} states, depth {depth}");
        assert!(states > 1_000);
    }
}

#[test]
#[cfg(feature = "trial")]
fn a_place_without_its_write_is_found() {
    let bounds = Bounds { again: 0, twice: 0, leaders: 0 };
    let found = explore(bounds, Planted::of(super::trial::Bug::PayloadSkipped));
    assert!(found.is_err_and(|why| why.contains("with the content of")));
}
