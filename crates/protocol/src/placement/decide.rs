//! One decision of an owner: which of its groups move now.
//!
//! Groups come one after the other and are looked at in batches, so that a decision about 200,000
//! groups takes no more memory than one about a few thousand: none of them depends on another one.
//! Where a site takes only so much ([`super::room`]), its price counts, and what has no room there
//! goes to the best site that has; it is wanted there. What stays from one decision to the next is
//! what users have waited longer than they would elsewhere, of the groups for which that is anything
//! ([`Waiting`]).

use super::carried::Carried;
use super::counter::GroupKey;
use super::greedy::Assignment;
use super::groups::Groups;
use super::latencies::{Matrix, Origin, Site};
use super::near::Near;
use super::plan::{Limits, Move, moves, plan};
use super::rules::Rules;
use super::scan::Scan;
use super::solver::{Method, Solution, Solver};
use super::stability::{Regrets, Stability};
use model::limits;
use std::collections::BTreeMap;

/// Groups that are looked at together.
const BATCH: usize = 4_096;
/// Moves that are kept before those that the budget has no place for are dropped.
const MOVES_KEPT: usize = 4_096;

/// What a batch takes of each group beside its accesses: a key, a solution, what it has lost,
/// whether it is ready and where it is to be.
const BESIDE_BYTES: usize = 8 + (2 + 3 * 4) + 4 + 1 + 2;

/// What groups have lost where they are, in ms, since they moved.
///
/// Of at most [`Waiting::GROUPS_MAX`] groups: others begin to wait when some of these have moved,
/// or have lost nothing for [`Waiting::DECISIONS_MAX`] decisions: what they lost before is
/// forgotten, as no site was better for so long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    groups: BTreeMap<GroupKey, Lost>,
    decision: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Lost {
    ms: f32,
    /// The last decision that looked at it.
    decision: u32,
    /// The last decision at which it had lost more than before.
    grown: u32,
}

impl Waiting {
    /// How many groups can wait for a move.
    pub const GROUPS_MAX: usize = 1 << 15;
    /// For how many decisions a group waits that loses nothing meanwhile: ten minutes.
    pub const DECISIONS_MAX: u32 = 600;

    /// What a group has lost.
    pub fn of(&self, group: GroupKey) -> f32 {
        self.groups.get(&group).map_or(0.0, |lost| lost.ms)
    }

    /// A group has moved: that is paid.
    pub fn moved(&mut self, group: GroupKey) {
        self.groups.remove(&group);
    }

    /// How many groups wait.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The memory that they take, at most about: a node of the tree is at least half full.
    pub fn memory_bytes(&self) -> usize {
        2 * self.groups.len() * (size_of::<GroupKey>() + size_of::<Lost>())
    }

    fn set(&mut self, group: GroupKey, ms: f32) {
        let decision = self.decision;
        let known = self.groups.get(&group);
        let grown = known.filter(|known| known.ms >= ms).map_or(decision, |known| known.grown);
        if ms <= 0.0 {
            self.groups.remove(&group);
        } else if known.is_some() || self.groups.len() < Waiting::GROUPS_MAX {
            self.groups.insert(group, Lost { ms, decision, grown });
        }
    }

    /// Groups that no decision looks at any more are forgotten, and those that lose nothing any
    /// more.
    fn end(&mut self) {
        let decision = self.decision;
        let is_recent = |lost: &Lost| decision.wrapping_sub(lost.grown) < Waiting::DECISIONS_MAX;
        self.groups.retain(|_, lost| lost.decision == decision && is_recent(lost));
        self.decision = self.decision.wrapping_add(1);
    }
}

/// A group that moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Which.
    pub group: GroupKey,
    /// The better site.
    pub to: Site,
    /// What its users are spared, in ms a second.
    pub gain: f32,
    /// Its accesses a second.
    pub rate: f32,
    /// What these wait while it moves, in ms: an estimate.
    pub waits_ms: f32,
}

/// What a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// When a better site is worth a move.
    pub stability: &'a Stability,
    /// What an access costs.
    pub matrix: &'a Matrix,
    /// The sites near to each origin.
    pub near: &'a Near,
    /// Where nothing may go.
    pub rules: &'a Rules,
    /// Where all the groups are.
    pub at: Site,
    /// Operations of the solver, for each of `groups` groups the same share.
    pub operations_max: u64,
    /// How many groups there are, at most about.
    pub groups: usize,
    /// The budget.
    pub limits: Limits,
    /// Seconds since the last decision.
    pub elapsed_s: f32,
    /// What a byte costs at each site; empty: nothing.
    pub prices: &'a [f32],
    /// For how many bytes each site has room; empty: for all that comes.
    pub room: &'a [u64],
    /// Of groups that are not at home: where they have their place for nothing.
    pub homes: &'a BTreeMap<GroupKey, Site>,
}

/// A group that would go to a site which has no room for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Which.
    pub group: GroupKey,
    /// Where to.
    pub to: Site,
    /// What its users would be spared, in ms a second.
    pub gain: f32,
    /// What each byte of it would spare them.
    pub value: f32,
}

/// What is decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The groups that move now, the most worth first.
    pub moves: Vec<Chosen>,
    /// How many groups were placed by near sites, or by the most of their accesses, alone.
    pub inexact: u64,
    /// The groups that would rather go where there is no room, the most worth a byte first, so many at
    /// most.
    pub wanted: Vec<Wanted>,
    /// The groups that the next decision has to look at, whether they are accessed or not, as this
    /// one has not settled them; above [`Carried::OPEN_MAX`] not all.
    pub open: Vec<GroupKey>,
    /// The most memory that it took beside what waits.
    pub memory_bytes_max: usize,
}

/// A batch, and what came of those before it.
struct Batches<'a> {
    of: Decision<'a>,
    solver: Solver<'a>,
    keys: Vec<GroupKey>,
    groups: Groups,
    waiting: &'a mut Waiting,
    /// The groups of the moves, by the moves' indices.
    chosen: Vec<Chosen>,
    moves: Vec<Move>,
    inexact: u64,
    wanted: Vec<Wanted>,
    open: Vec<GroupKey>,
    memory_bytes_max: usize,
}

impl Decision<'_> {
    /// The groups that move now. `groups`: their keys, sizes and accesses, each once.
    pub fn choose<A: IntoIterator<Item = (Origin, f32)>>(
        &self,
        groups: impl Iterator<Item = (GroupKey, u32, A)>,
        waiting: &mut Waiting,
    ) -> Choice {
        let mut batches = Batches {
            of: *self,
            solver: self.solver(self.rules),
            keys: Vec::new(),
            groups: self.no_groups(),
            waiting,
            chosen: Vec::new(),
            moves: Vec::new(),
            inexact: 0,
            wanted: Vec::new(),
            open: Vec::new(),
            memory_bytes_max: 0,
        };
        for (key, bytes, accesses) in groups {
            batches.keys.push(key);
            let index = batches.groups.push(self.at, bytes, accesses);
            let home = self.homes.get(&key);
            if let Some((index, home)) = index.zip(home) {
                batches.groups.set_home(index, *home);
            }
            if batches.keys.len() >= BATCH {
                batches.decide();
            }
        }
        batches.decide();
        batches.cut();
        batches.waiting.end();
        let Batches { chosen: moves, inexact, wanted, open, memory_bytes_max, .. } = batches;
        Choice { moves, inexact, wanted, open, memory_bytes_max }
    }

    fn solver<'s>(&'s self, rules: &'s Rules) -> Solver<'s> {
        Solver::with_prices(self.matrix, self.near, rules, self.prices)
    }

    fn no_groups(&self) -> Groups {
        Groups::new(self.matrix.origins(), self.matrix.sites())
    }
}

impl Batches<'_> {
    fn decide(&mut self) {
        let of = self.of;
        let groups = std::mem::replace(&mut self.groups, of.no_groups());
        let keys = std::mem::take(&mut self.keys);
        let share = self.of.operations_max * keys.len() as u64 / self.of.groups.max(1) as u64;
        let of_batch = self.of.rules.of_batch(&keys);
        let of_kinds = of_batch.as_ref().map(|rules| of.solver(rules));
        let solver = of_kinds.as_ref().unwrap_or(&self.solver);
        let mut solution = solver.solve(&groups, share.min(self.of.operations_max));
        if !of.room.is_empty() {
            let (wanted, skipped) =
                find_room((&of, solver), (&groups, &keys), &mut solution, share);
            self.wanted.extend(wanted);
            self.inexact += skipped;
        }
        let inexact = solution.count(Method::Pruned) + solution.count(Method::Dominant);
        self.inexact += inexact;
        let lost = keys.iter().map(|key| self.waiting.of(*key));
        let mut regrets = Regrets::of_groups(lost.collect());
        let ready = regrets.ready(of.stability, solver, &groups, &solution, of.elapsed_s);
        let is_open = |group: usize| {
            let waits = inexact > 0 || ready[group] || regrets.of(group) > 0.0;
            waits || is_clear(of.stability, solver, (&groups, group), &solution)
        };
        let open = keys.iter().enumerate().filter(|(group, _)| is_open(*group));
        let room = (Carried::OPEN_MAX + 1).saturating_sub(self.open.len());
        self.open.extend(open.map(|(_, key)| *key).take(room));
        let wanted = Assignment::of_ready(&groups, &solution, &ready);
        let all = moves(solver, &groups, &wanted).into_iter();
        for a_move in all.filter(|one| !of.rules.is_refusing(one.to)) {
            let group = a_move.group as usize;
            let rate = groups.accesses(group).rate();
            let pause_ms = of.stability.pause_ms(of.matrix, of.at, a_move.to);
            let waits_ms = of.stability.cost_of_move_ms(rate, 0, pause_ms);
            self.moves.push(Move { group: self.chosen.len() as u32, ..a_move });
            let (group, to, gain) = (keys[group], a_move.to, a_move.gain);
            self.chosen.push(Chosen { group, to, gain, rate, waits_ms });
        }
        for (index, key) in keys.iter().enumerate() {
            self.waiting.set(*key, regrets.of(index));
        }
        let of_batch = groups.memory_bytes() + keys.len() * BESIDE_BYTES;
        let of_moves = self.moves.len() * (size_of::<Move>() + size_of::<Chosen>());
        let of_open = self.open.len() * size_of::<GroupKey>();
        self.memory_bytes_max = self.memory_bytes_max.max(of_batch + of_moves + of_open);
        if self.moves.len() >= MOVES_KEPT {
            self.cut();
        }
        self.cut_wanted();
    }

    /// Keeps what is worth the most a byte.
    fn cut_wanted(&mut self) {
        self.wanted.sort_by(|a, b| b.value.total_cmp(&a.value));
        self.wanted.truncate(limits::BIDS_MAX);
    }

    /// Keeps the moves that the budget has a place for.
    fn cut(&mut self) {
        let kept = plan(&self.moves, &self.of.no_groups(), None, self.of.limits).moves;
        self.chosen = kept.iter().map(|one| self.chosen[one.group as usize]).collect();
        let again = kept.iter().enumerate();
        self.moves = again.map(|(index, one)| Move { group: index as u32, ..*one }).collect();
    }
}

/// Whether a group's best site is another one, and better by enough.
fn is_clear(
    stability: &Stability,
    solver: &Solver<'_>,
    (groups, group): (&Groups, usize),
    solution: &Solution,
) -> bool {
    let to = solution.site(group);
    let is_other = to != groups.owner(group) && solver.rules().priority(group) > 0.0;
    is_other && stability.judge(solver, groups, group, to).is_clear()
}

/// Groups whose best site has no room for them go to the best one that has, and are wanted there.
/// With fewer operations than that takes the rest stays: how many.
fn find_room(
    (of, solver): (&Decision<'_>, &Solver<'_>),
    (groups, keys): (&Groups, &[GroupKey]),
    solution: &mut Solution,
    operations_max: u64,
) -> (Vec<Wanted>, u64) {
    let (mut wanted, mut stays, mut left) = (Vec::new(), 0, operations_max);
    let mut scan = Scan::new(of.matrix);
    for (group, key) in keys.iter().enumerate() {
        let (to, bytes) = (solution.site(group), groups.bytes(group));
        let lacks_room = |site: Site| {
            let is_here = site == groups.owner(group) || Some(site) == groups.home(group);
            !is_here && of.room[usize::from(site.0)] < u64::from(bytes)
        };
        if !lacks_room(to) {
            continue;
        }
        let gain = solution.gain(group);
        let is_clear = of.stability.judge(solver, groups, group, to).is_clear();
        if is_clear && !of.rules.is_refusing(to) {
            wanted.push(Wanted { group: *key, to, gain, value: gain / bytes as f32 });
        }
        let operations = (groups.accesses(group).len() as u64 + 1) * of.matrix.sites() as u64;
        let answer = match left.checked_sub(operations) {
            Some(rest) => {
                left = rest;
                solver.exact_without(&mut scan, (groups, group), lacks_room)
            }
            None => {
                stays += 1;
                solver.stays_here(groups, group)
            }
        };
        solution.replace(group, answer);
    }
    (wanted, stays)
}
