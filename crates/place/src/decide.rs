//! Which slots move where: each to the master at which its users wait least, if that is worth it
//! and there is room. [`protocol::placement`] decides; here is what it is asked, and what its
//! answers mean for a cluster.

use crate::clients::Client;
use crate::problem::{Indices, Problem};
use crate::view::NodeId;
use model::{Slot, SlotSet};
use protocol::placement::{
    Assignment, Bar, Explanation, Ledger, Limits, Matrix, Near, Origin, Prices, Regrets, Site,
    Solution, Stability, Terms, Why, Window, plan, quantile,
};
use std::collections::BTreeMap;
use std::str::FromStr;

/// What moving a byte costs in waiting, in milliseconds: 100 MB/s that others could have used.
const BYTE_MS: f32 = 1e-5;
/// For how long users of a slot are redirected while it moves, in milliseconds: a few round trips.
const PAUSE_MS: f32 = 50.0;
/// Bids of an auction for room, at most.
const BIDS_MAX: u64 = 1_000_000;

/// A slot as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its owner.
    pub owner: NodeId,
    /// How many keys it has.
    pub keys: u64,
}

/// A move and what it brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The slot.
    pub slot: Slot,
    /// Its owner.
    pub from: NodeId,
    /// The server that gets it.
    pub to: NodeId,
    /// Milliseconds of waiting saved each second, by all users together; with a quantile as
    /// objective, only what is above its threshold counts.
    pub gain: f64,
    /// What would be saved if each key could go to a server of its own; the rest of it is lost
    /// because the slot has several users.
    pub gain_apart: f64,
    /// About how many bytes are copied.
    pub bytes: u64,
}

/// What a window may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Moves.
    pub moves: usize,
    /// Bytes copied.
    pub bytes: u64,
}

/// What is to be least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// The mean latency.
    Mean,
    /// A quantile of the latencies of all uses; 0.95 is p95.
    Quantile(f32),
}

impl FromStr for Objective {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Objective, Self::Err> {
        if text == "mean" {
            return Ok(Objective::Mean);
        }
        let percent = text.strip_prefix('p').and_then(|digits| digits.parse::<f32>().ok());
        match percent.filter(|percent| *percent > 0.0 && *percent < 100.0) {
            Some(percent) => Ok(Objective::Quantile(percent / 100.0)),
            None => Err("neither mean nor a quantile such as p95"),
        }
    }
}

impl std::fmt::Display for Objective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Objective::Mean => f.write_str("mean"),
            // 0.95 has no exact float: 95 comes back by rounding.
            Objective::Quantile(share) => {
                write!(f, "p{}", (f64::from(*share) * 1e5).round() / 1e3)
            }
        }
    }
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Uses: least waiting, if what clients send is true.
    Uses,
    /// Each client of a slot as much as any other: no client moves a slot away from as many others.
    Clients,
}

/// How moves are decided.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is to be least.
    pub objective: Objective,
    /// What counts.
    pub weights: Weights,
    /// Slots that stay.
    pub keep: SlotSet,
    /// What a window may cost.
    pub budget: Budget,
}

/// What a window shows.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What clients do, and how far masters are from them.
    pub clients: &'a [Client],
    /// The slots that they use.
    pub placed: &'a BTreeMap<Slot, Placed>,
    /// The masters that answer.
    pub masters: &'a [NodeId],
    /// How many bytes more a master may hold; no bound where it is absent.
    pub room: &'a BTreeMap<NodeId, u64>,
    /// Slots that stay in this window: they were left, and are tried later.
    pub waiting: &'a SlotSet,
}

/// What comes of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The moves, best first by gain a byte.
    pub moves: Vec<Move>,
    /// How many more are worth it and exceed the budget or the room.
    pub left: usize,
    /// The objective now, in milliseconds an access; `None`: no key is used, or not all is known.
    pub now_ms: Option<f64>,
    /// The objective after the moves.
    pub after_ms: Option<f64>,
    /// The objective with every slot at its best master, whatever that costs.
    pub best_ms: Option<f64>,
    /// The mean that no placement goes below with the room that masters have: the dual value of the
    /// auction's prices. `None`: no master has a bound, or the objective is a quantile.
    pub bound_ms: Option<f64>,
    /// The window that has ended: what moves have saved and cost.
    pub ended: Option<Window>,
}

/// Why a slot is where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Its owner.
    pub owner: NodeId,
    /// About how large it is.
    pub bytes: u64,
    /// Uses a second by the number of the client, most first.
    pub uses: Vec<(usize, f64)>,
    /// The masters, cheapest first: milliseconds an access, and why it must not go there.
    pub candidates: Vec<(NodeId, Option<f64>, Option<&'static str>)>,
    /// What an access would take if each client had the slot to itself, in milliseconds.
    pub alone_ms: f64,
    /// A sentence.
    pub why: String,
}

/// Decides window by window.
#[derive(Debug)]
pub struct Decider {
    options: Options,
    stability: Stability,
    indices: Indices,
    prices: Prices,
    regrets: Regrets,
    ledger: Ledger,
    /// The last decided move of each slot that has not arrived.
    wanted: BTreeMap<Slot, protocol::placement::Move>,
    last: Option<Problem>,
}

impl Decider {
    /// Nothing is remembered yet.
    pub fn new(options: Options) -> Decider {
        Decider {
            options,
            stability: Stability {
                byte_ms: BYTE_MS,
                pause_ms: PAUSE_MS,
                // Clients are not servers.
                sites_are_origins: false,
                ..Stability::default()
            },
            indices: Indices::default(),
            prices: Prices::none(0),
            regrets: Regrets::new(0),
            ledger: Ledger::default(),
            wanted: BTreeMap::new(),
            last: None,
        }
    }

    /// The moves of a window of so many seconds.
    pub fn decide(&mut self, seen: &Seen<'_>, window_s: f32) -> Decision {
        let is_first = self.last.is_none();
        self.stability.memory_s = window_s;
        let problem = Problem::new(seen, &self.options, &mut self.indices);
        let groups = &problem.groups;
        self.regrets.resize(groups.len());
        if self.prices.per_byte().len() != self.indices.masters.len() {
            self.prices = Prices::none(self.indices.masters.len());
        }
        let ended =
            (!is_first).then(|| self.ledger.close(&problem.measured(), groups, window_s.into()));

        let prices = self.prices.clone();
        let solver = problem.solver(&prices);
        let solution = solver.solve(groups, u64::MAX);
        let ready = self.regrets.ready(&self.stability, &solver, groups, &solution, window_s);
        let wanted = self.assign(&problem, &solution, &ready);
        let solver = problem.solver(&self.prices);
        let Budget { moves, bytes } = self.options.budget;
        let limits = Limits { moves_max: moves, bytes_max: bytes, ..Limits::NONE };
        let moves = plan::moves(&solver, groups, &wanted);
        let plan = plan::plan(&moves, groups, problem.capacities.as_ref(), limits);

        let best = problem.measured().solve(groups, u64::MAX);
        let mut after = groups.clone();
        for one in &plan.moves {
            after.set_owner(one.group as usize, one.to);
        }
        let decision = Decision {
            moves: plan.moves.iter().map(|one| self.described(&problem, seen, one)).collect(),
            left: plan.left.len(),
            now_ms: self.measure(&problem, |group| groups.owner(group)),
            after_ms: self.measure(&problem, |group| after.owner(group)),
            best_ms: self.measure(&problem, |group| best.site(group)),
            bound_ms: self.bound_ms(&problem),
            ended,
        };
        let slot = |group: u32| self.indices.slots[group as usize];
        self.wanted.extend(plan.moves.iter().map(|one| (slot(one.group), *one)));
        self.last = Some(problem);
        decision
    }

    fn assign(&mut self, problem: &Problem, solution: &Solution, ready: &[bool]) -> Assignment {
        let decided = (&problem.matrix, &problem.near);
        let Some(terms) = self.terms(problem, decided, ready) else {
            return Assignment::of_ready(&problem.groups, solution, ready);
        };
        self.prices.auction(&terms, &problem.groups)
    }

    fn terms<'a>(
        &self,
        problem: &'a Problem,
        (matrix, near): (&'a Matrix, &'a Near),
        ready: &'a [bool],
    ) -> Option<Terms<'a>> {
        let capacities = problem.capacities.as_ref()?;
        let (rules, margin) = (&problem.rules, self.stability.margin);
        Some(Terms { matrix, near, rules, capacities, margin, ready, bids_max: BIDS_MAX })
    }

    /// By the latencies as they were measured, as what it is shown beside; what is decided goes by
    /// what they may be at most.
    fn bound_ms(&self, problem: &Problem) -> Option<f64> {
        let (matrix, near) = &problem.measured;
        let terms = self.terms(problem, (matrix, near), &[])?;
        let groups = &problem.groups;
        let rate: f64 = (0..groups.len()).map(|at| f64::from(groups.accesses(at).rate())).sum();
        let bound_ms = self.prices.bound(&terms, groups) / rate;
        (self.options.objective == Objective::Mean && bound_ms.is_finite()).then_some(bound_ms)
    }

    fn described(
        &self,
        problem: &Problem,
        seen: &Seen<'_>,
        one: &protocol::placement::Move,
    ) -> Move {
        let group = one.group as usize;
        let slot = self.indices.slots[group];
        let cost = |site| problem.measured().cost(&problem.groups, group, site);
        Move {
            slot,
            from: self.indices.master(one.from).clone(),
            to: self.indices.master(one.to).clone(),
            gain: (cost(one.from) - cost(one.to)).into(),
            gain_apart: problem.gain_apart((slot, group), seen, &self.options),
            bytes: one.bytes.into(),
        }
    }

    /// The objective with each group at this site.
    fn measure(&self, problem: &Problem, site: impl Fn(usize) -> Site) -> Option<f64> {
        let Problem { latencies, groups, .. } = problem;
        let ms = match self.options.objective {
            Objective::Quantile(share) => quantile::measure(latencies, groups, share, site)?.into(),
            Objective::Mean => {
                let (mut waiting, mut rate) = (0.0, 0.0);
                for group in 0..groups.len() {
                    for (origin, uses) in groups.accesses(group).iter() {
                        let ms = latencies.mean().cost(origin, site(group));
                        waiting += f64::from(uses * ms);
                        rate += f64::from(uses);
                    }
                }
                waiting / rate
            }
        };
        ms.is_finite().then_some(ms)
    }

    /// Slots that are where they were to go have arrived, whatever became of the run that moved
    /// them: it may have ended with an error, or a later one or the server itself went on. To be
    /// called before [`Decider::decide`].
    pub fn settle<'a>(&mut self, owner: impl Fn(Slot) -> Option<&'a NodeId>) {
        let is_there = |(slot, one): &(&Slot, &protocol::placement::Move)| {
            owner(**slot) == Some(self.indices.master(one.to))
        };
        let there: Vec<Slot> = self.wanted.iter().filter(is_there).map(|(slot, _)| *slot).collect();
        for slot in there {
            self.arrived(slot);
        }
    }

    /// A slot has moved as decided: its account is settled, and the ledger follows it.
    fn arrived(&mut self, slot: Slot) {
        let (Some(group), Some(one)) = (self.indices.group(slot), self.wanted.remove(&slot)) else {
            return;
        };
        let rate = |problem: &Problem| problem.groups.accesses(group).rate();
        let rate = self.last.as_ref().map_or(0.0, rate);
        self.ledger.moved(&one, self.stability.cost_of_move_ms(rate, one.bytes, PAUSE_MS).into());
        self.regrets.moved(&self.stability, group);
    }

    /// Why a slot is where it is, by the last window; `shown` names a server in the sentence.
    /// `None`: no client uses it, or it has no owner that answers.
    pub fn explain(&self, slot: Slot, shown: impl Fn(&NodeId) -> String) -> Option<Explained> {
        let (problem, group) = (self.last.as_ref()?, self.indices.group(slot)?);
        let solver = problem.solver(&self.prices);
        let explanation = self.regrets.explain(&self.stability, &solver, &problem.groups, group);
        if explanation.accesses.is_empty() {
            return None;
        }
        let master = |site: Site| self.indices.master(site);
        let rate = problem.groups.accesses(group).rate();
        let ms = |site| {
            let cost = problem.measured().cost(&problem.groups, group, site);
            cost.is_finite().then(|| f64::from(cost / rate))
        };
        let gain_ms =
            |site| ms(explanation.owner).zip(ms(site)).map_or(0.0, |(here, there)| here - there);
        let why = sentence(explanation.why, |site| shown(master(site)), gain_ms);
        let Explanation { owner, bytes, accesses, candidates, alone_ms, .. } = explanation;
        let uses = accesses.into_iter();
        Some(Explained {
            owner: master(owner).clone(),
            bytes: bytes.into(),
            uses: uses.map(|(Origin(number), rate)| (number.into(), rate.into())).collect(),
            candidates: candidates
                .into_iter()
                .map(|one| (master(one.site).clone(), ms(one.site), one.bar.map(barred)))
                .collect(),
            alone_ms: alone_ms.into(),
            why,
        })
    }
}

fn barred(bar: Bar) -> &'static str {
    match bar {
        Bar::Barred => "it takes no slots",
        Bar::Pinned => "the slot is kept where it is",
        Bar::Domain => "it fails together with the slot's mirror",
        Bar::LendTo => "slots of this kind do not go there",
        Bar::Unknown => "a client has not measured it",
        Bar::Room => "it has no room",
    }
}

fn sentence(why: Why, shown: impl Fn(Site) -> String, gain_ms: impl Fn(Site) -> f64) -> String {
    let less = |to: Site| format!("at {} an access takes {:.1} ms less", shown(to), gain_ms(to));
    match why {
        Why::Best => "no other master is surely nearer to its users".to_owned(),
        Why::Unused => "no client uses it".to_owned(),
        Why::Pinned => "it is kept where it is".to_owned(),
        Why::UnknownHere => "a client has not measured its owner, so no gain is known".to_owned(),
        Why::NoCandidate => "a client has not measured any other master".to_owned(),
        Why::WithinMargin { to, needed_ms, .. } => {
            format!("{}; below {needed_ms:.1} ms nothing moves", less(to))
        }
        Why::WithinNoise { to, noise_ms, .. } => {
            format!("{}; so few uses show a gain of {noise_ms:.1} ms or more only", less(to))
        }
        Why::Waits { to, lost_ms, needed_ms, .. } => format!(
            "{}; it moves when its users have waited {needed_ms:.0} ms longer than there, so far {lost_ms:.0} ms",
            less(to)
        ),
        Why::Moves { to, .. } => {
            format!("it moves to {}, where an access takes {:.1} ms less", shown(to), gain_ms(to))
        }
    }
}

#[cfg(test)]
mod tests;
