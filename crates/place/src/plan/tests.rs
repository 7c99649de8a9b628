//! A cluster of three masters in memory that does what Redis 7.0 does with `SETSLOT` and `MIGRATE`,
//! stopped everywhere.

use super::*;

const IDS: [&str; 3] = ["a", "b", "c"];

fn id(n: usize) -> NodeId {
    IDS[n].into()
}

/// One slot at three masters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cluster {
    owner: [Option<usize>; 3],
    migrating: [Option<usize>; 3],
    importing: [Option<usize>; 3],
    keys: [BTreeSet<u8>; 3],
    epoch: [u64; 3],
    silent: Option<usize>,
}

impl Cluster {
    /// The first master owns the slot and has three keys.
    fn new() -> Cluster {
        Cluster {
            owner: [Some(0); 3],
            migrating: [None; 3],
            importing: [None; 3],
            keys: [[1, 2, 3].into(), [].into(), [].into()],
            epoch: [3, 2, 1],
            silent: None,
        }
    }

    fn state(&self) -> SlotState {
        let part = |n: usize| Part {
            owner: self.owner[n].map(id),
            migrating: self.migrating[n].map(id),
            importing: self.importing[n].map(id),
            keys: self.keys[n].len() as u64,
        };
        let parts = (0..3).filter(|n| self.silent != Some(*n)).map(|n| (id(n), part(n)));
        let silent = self.silent.map(id).into_iter().collect();
        SlotState { parts: parts.collect(), silent, ..SlotState::default() }
    }

    /// As the server does it; an error is a refusal.
    fn perform(&mut self, step: &Step) -> Result<(), &'static str> {
        let n = |id: &NodeId| IDS.iter().position(|one| *one == id.as_str()).unwrap();
        assert_ne!(self.silent, Some(n(step.at())), "{step:?} to a silent server");
        match step {
            Step::Import { at, .. } if self.owner[n(at)] == Some(n(at)) => Err("it owns it"),
            Step::Import { at, from } => {
                self.importing[n(at)] = Some(n(from));
                Ok(())
            }
            Step::Migrate { at, .. } if self.owner[n(at)] != Some(n(at)) => Err("not its own"),
            Step::Migrate { at, to } => {
                self.migrating[n(at)] = Some(n(to));
                Ok(())
            }
            Step::Copy { from, to } => {
                let takes = self.importing[n(to)].is_some() || self.owner[n(to)] == Some(n(to));
                if !takes {
                    return Err("MOVED");
                }
                let key = self.keys[n(from)].pop_first().ok_or("NOKEY")?;
                self.keys[n(to)].insert(key);
                Ok(())
            }
            Step::Assign { at, owner } => {
                let (at, owner) = (n(at), n(owner));
                if self.owner[at] == Some(at) && owner != at && !self.keys[at].is_empty() {
                    return Err("it has keys");
                }
                if self.keys[at].is_empty() {
                    self.migrating[at] = None;
                }
                self.owner[at] = Some(owner);
                if at == owner && self.importing[at].take().is_some() {
                    self.epoch[at] = self.epoch.iter().max().unwrap() + 1;
                }
                Ok(())
            }
            Step::Stable { at } => {
                (self.migrating[n(at)], self.importing[n(at)]) = (None, None);
                Ok(())
            }
        }
    }

    /// The owner of the highest epoch wins everywhere; an owner that loses the slot deletes its
    /// keys, and a server that imports a slot keeps its opinion.
    fn gossip(&mut self) {
        let owners = (0..3).filter(|n| self.owner[*n] == Some(*n) && self.silent != Some(*n));
        let Some(winner) = owners.max_by_key(|n| self.epoch[*n]) else { return };
        for n in (0..3).filter(|n| *n != winner && self.silent != Some(*n)) {
            if self.importing[n].is_none() {
                if self.owner[n] == Some(n) {
                    self.keys[n].clear();
                }
                self.owner[n] = Some(winner);
            }
        }
    }

    /// Runs until nothing is left to do, at most `steps` steps; the number of steps and the end.
    fn run(&mut self, goal: Option<usize>, steps: usize, gossips: bool) -> (usize, Option<Next>) {
        let goal = goal.map(id);
        for step in 0..steps {
            match next(&self.state(), goal.as_ref()) {
                Next::Do(what) => self.perform(&what).unwrap_or_else(|e| panic!("{what:?}: {e}")),
                end => return (step, Some(end)),
            }
            if gossips {
                self.gossip();
            }
        }
        (steps, None)
    }

    fn all_keys(&self) -> BTreeSet<u8> {
        self.keys.iter().flatten().copied().collect()
    }

    fn assert_at(&self, owner: usize, keys: &BTreeSet<u8>) {
        assert_eq!(self.owner, [Some(owner); 3], "{self:?}");
        assert_eq!(&self.keys[owner], keys, "{self:?}");
        assert!((0..3).all(|n| n == owner || self.keys[n].is_empty()), "{self:?}");
        assert_eq!((self.migrating, self.importing), ([None; 3], [None; 3]), "{self:?}");
    }
}

/// Enough for any end.
const MANY: usize = 40;

#[test]
fn a_move_takes_the_steps_in_order() {
    let mut state = Cluster::new().state();
    let (a, b, c) = (id(0), id(1), id(2));
    let mut steps = Vec::new();
    while let Next::Do(step) = next(&state, Some(&b)) {
        match &step {
            Step::Copy { .. } => {
                state.part(&a).keys = 0;
                state.part(&b).keys = 3;
            }
            step => state.apply(step),
        }
        steps.push(step);
    }
    let assign = |at: &NodeId| Step::Assign { at: at.clone(), owner: b.clone() };
    let expect = [
        Step::Import { at: b.clone(), from: a.clone() },
        Step::Migrate { at: a.clone(), to: b.clone() },
        Step::Copy { from: a.clone(), to: b.clone() },
        assign(&b),
        assign(&a),
        assign(&c),
    ];
    assert_eq!(steps, expect);
    assert_eq!(next(&state, Some(&b)), Next::Done);
}

#[test]
fn wherever_a_move_stops_one_run_closes_it_and_a_second_does_nothing() {
    for gossips in [false, true] {
        for late_gossip in [false, true] {
            let (whole, end) = Cluster::new().run(Some(1), MANY, gossips);
            assert_eq!(end, Some(Next::Done));
            for stop in 0..=whole {
                let mut cluster = Cluster::new();
                cluster.run(Some(1), stop, gossips);
                if late_gossip {
                    cluster.gossip();
                }
                let (_, end) = cluster.run(None, MANY, gossips);
                assert_eq!(end, Some(Next::Done), "stopped after {stop}");
                let owner = if stop == 0 { 0 } else { 1 };
                cluster.gossip();
                cluster.assert_at(owner, &[1, 2, 3].into());
                assert_eq!(cluster.run(None, MANY, gossips), (0, Some(Next::Done)));
                // Then it can go anywhere.
                assert_eq!(cluster.run(Some(2), MANY, gossips).1, Some(Next::Done));
                cluster.assert_at(2, &[1, 2, 3].into());
            }
        }
    }
}

#[test]
fn the_run_that_closes_may_itself_stop_anywhere() {
    for first in 0..12 {
        for second in 0..12 {
            let mut cluster = Cluster::new();
            cluster.run(Some(1), first, false);
            cluster.run(None, second, true);
            cluster.run(Some(2), first, false);
            assert_eq!(cluster.run(None, MANY, false).1, Some(Next::Done));
            let owner = cluster.owner[0].unwrap();
            cluster.assert_at(owner, &[1, 2, 3].into());
        }
    }
}

/// Every combination of owners, marks and keys at three masters, whether reachable or not.
fn every_state(mut visit: impl FnMut(Cluster)) {
    let mark = |n: usize| (n < 3).then_some(n);
    // All that differs by the owner in the second or third view being unknown is the same.
    for owners in (0..4_usize.pow(3)).filter(|owners| owners / 4 % 4 < 3 && owners / 16 < 3) {
        for marks in 0..4_usize.pow(6) {
            for keys in 0..8 {
                let digit = |number: usize, n: u32| mark(number / 4_usize.pow(n) % 4);
                let three = |number| [digit(number, 0), digit(number, 1), digit(number, 2)];
                let mut cluster = Cluster::new();
                cluster.owner = three(owners);
                (cluster.migrating, cluster.importing) = (three(marks % 64), three(marks / 64));
                for n in 0..3 {
                    let has = keys >> n & 1 == 1;
                    cluster.keys[n] = if has { [n as u8].into() } else { [].into() };
                }
                visit(cluster);
            }
        }
    }
}

#[test]
fn from_every_state_it_ends_and_keeps_every_key() {
    let (mut ends, mut left) = (0, 0);
    every_state(|start| {
        let mut cluster = start.clone();
        for step in 0.. {
            assert!(step < MANY, "no end from {start:?}");
            match next(&cluster.state(), None) {
                Next::Do(what) => {
                    let owners = |c: &Cluster| (0..3).filter(|n| c.owner[*n] == Some(*n)).count();
                    let before = owners(&cluster);
                    // A refusal changes nothing; the mover reports it.
                    if cluster.perform(&what).is_err() {
                        break;
                    }
                    let moves = matches!(&what, Step::Assign { at, owner } if at == owner);
                    assert!(owners(&cluster) <= before + usize::from(moves), "{start:?}");
                }
                Next::Done => {
                    ends += 1;
                    let owner = (0..3).find(|n| cluster.owner[*n] == Some(*n)).unwrap();
                    cluster.assert_at(owner, &start.all_keys());
                    break;
                }
                Next::Leave(_) => {
                    left += 1;
                    break;
                }
            }
        }
        assert_eq!(cluster.all_keys(), start.all_keys(), "{start:?}");
    });
    assert!(ends > 1_000 && left > 1_000, "{ends} ended, {left} left");
}

#[test]
fn a_refused_step_is_impossible_where_servers_agree_on_one_owner() {
    every_state(|start| {
        if (0..3).any(|n| start.owner[n] != Some(0)) {
            return;
        }
        // `run` panics on a refusal.
        let (_, end) = start.clone().run(None, MANY, false);
        assert!(end.is_some());
    });
}

/// X9: the target owns the slot, the source never learned by command and keeps its mark.
#[test]
fn a_stale_migrating_mark_is_closed_before_it_sends_the_slot_back() {
    let mut cluster = Cluster::new();
    let (to_target, _) = (0..MANY)
        .map(|steps| {
            let mut cluster = Cluster::new();
            cluster.run(Some(1), steps, false);
            (steps, cluster)
        })
        .find(|(_, cluster)| cluster.owner[1] == Some(1))
        .unwrap();
    cluster.run(Some(1), to_target, false);
    cluster.gossip();
    assert_eq!((cluster.owner, cluster.migrating[0]), ([Some(1); 3], Some(1)));
    // Any move of the slot takes the mark away first.
    let close = Step::Assign { at: id(0), owner: id(1) };
    assert_eq!(next(&cluster.state(), None), Next::Do(close.clone()));
    assert_eq!(next(&cluster.state(), Some(&id(0))), Next::Do(close));
    assert_eq!(cluster.run(Some(0), MANY, true).1, Some(Next::Done));
    cluster.assert_at(0, &[1, 2, 3].into());
}

#[test]
fn what_cannot_be_explained_is_left() {
    // Two owners.
    let mut cluster = Cluster::new();
    cluster.owner[1] = Some(1);
    assert_eq!(next(&cluster.state(), None), Next::Leave(Trouble::TwoOwners(id(0), id(1))));
    // Two owners, the source marked, but with keys.
    cluster.migrating[0] = Some(1);
    assert_eq!(next(&cluster.state(), None), Next::Leave(Trouble::TwoOwners(id(0), id(1))));
    // No owner.
    let mut cluster = Cluster::new();
    cluster.owner = [None; 3];
    assert_eq!(next(&cluster.state(), None), Next::Leave(Trouble::NoOwner));
    // Keys at a server that does not own the slot: no move begins.
    let mut cluster = Cluster::new();
    cluster.keys[2] = [9].into();
    let stray = Next::Leave(Trouble::Stray { at: id(2), keys: 1 });
    assert_eq!(next(&cluster.state(), None), stray);
    assert_eq!(next(&cluster.state(), Some(&id(1))), stray);
    // The source has failed over in mid-move: its successor has no mark, the target has keys.
    let mut cluster = Cluster::new();
    cluster.run(Some(1), 3, true);
    (cluster.owner, cluster.migrating[0]) = ([Some(2); 3], None);
    cluster.keys.swap(0, 2);
    assert_eq!(next(&cluster.state(), None), Next::Leave(Trouble::Stray { at: id(1), keys: 1 }));
    // A target that is no master.
    let state = Cluster::new().state();
    assert_eq!(next(&state, Some(&"x".into())), Next::Leave(Trouble::NoTarget("x".into())));
}

/// The target has failed over to the third server, which has its keys and no mark. It is away, or
/// back as a replica: no master either way.
fn failed_over(steps: usize) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.run(Some(1), steps, true);
    cluster.keys.swap(1, 2);
    (cluster.importing[1], cluster.silent) = (None, Some(1));
    cluster
}

#[test]
fn a_move_goes_on_to_the_successor_of_its_target() {
    // The marks are set, then one key goes at a time.
    for steps in 2..=5 {
        for is_back in [false, true] {
            let mut cluster = failed_over(steps);
            let state = |cluster: &Cluster| {
                let mut state = cluster.state();
                state.successors = [(id(1), id(2))].into();
                if is_back {
                    state.silent.clear();
                }
                state
            };
            let mut done = Vec::new();
            while let Next::Do(step) = next(&state(&cluster), None) {
                cluster.perform(&step).unwrap();
                done.push(step);
            }
            assert_eq!(next(&state(&cluster), None), Next::Done, "{done:?}");
            assert_eq!(done[0], Step::Import { at: id(2), from: id(0) });
            assert_eq!(done[1], Step::Migrate { at: id(0), to: id(2) });
            cluster.silent = None;
            (cluster.owner[1], cluster.migrating[1]) = (Some(2), None);
            cluster.assert_at(2, &[1, 2, 3].into());
        }
    }
}

#[test]
fn without_a_known_successor_the_slot_is_left() {
    let cluster = failed_over(3);
    assert_eq!(next(&cluster.state(), None), Next::Leave(Trouble::Silent(id(1))));
    // The keys are at another server than the successor.
    let mut state = cluster.state();
    state.parts.insert("d".into(), Part { owner: Some(id(0)), ..Part::default() });
    state.successors = [(id(1), "d".into())].into();
    let stray = Next::Leave(Trouble::Stray { at: id(2), keys: 1 });
    assert_eq!(next(&state, None), stray);
    // The target was assigned the slot, and its successor has it; the source has yet to learn.
    let mut cluster = Cluster::new();
    cluster.run(Some(1), 6, false);
    assert_eq!((cluster.owner[0], cluster.owner[1]), (Some(0), Some(1)));
    cluster.keys.swap(1, 2);
    (cluster.owner[2], cluster.silent) = (Some(2), Some(1));
    let mut state = cluster.state();
    state.successors = [(id(1), id(2))].into();
    let assign = Step::Assign { at: id(0), owner: id(2) };
    assert_eq!(next(&state, None), Next::Do(assign));
}

#[test]
fn a_silent_server_is_left_alone_and_the_others_go_on() {
    for stop in 1..7 {
        for silent in 0..3 {
            let mut cluster = Cluster::new();
            cluster.run(Some(1), stop, true);
            cluster.silent = Some(silent);
            let before = cluster.clone();
            match (silent, cluster.run(None, MANY, true).1.unwrap()) {
                // It has no part in the move.
                (2, end) => {
                    assert_eq!(end, Next::Done);
                    assert_eq!(cluster.keys[1], [1, 2, 3].into());
                }
                (_, Next::Leave(trouble)) => {
                    assert_eq!(trouble, Trouble::Silent(id(silent)));
                    assert_eq!(cluster, before);
                }
                // Only the silent server itself has seen the move, or has yet to learn of its end.
                (_, end) => {
                    assert_eq!(end, Next::Done);
                    assert_eq!(cluster.keys, before.keys);
                }
            }
        }
    }
}

#[test]
fn a_mark_for_a_server_that_is_gone_is_taken_away_if_no_key_has_gone() {
    let mut state = Cluster::new().state();
    state.part(&id(0)).migrating = Some("gone".into());
    let close = Step::Stable { at: id(0) };
    assert_eq!(next(&state, None), Next::Do(close));
    state.part(&id(1)).keys = 1;
    assert_eq!(next(&state, None), Next::Leave(Trouble::Stray { at: id(1), keys: 1 }));
}

#[test]
fn commands_are_spelled_as_servers_read_them() {
    let slot = Slot::new(5).unwrap();
    let (a, b) = (id(0), id(1));
    let words = |step: Step| step.words(slot).join(" ");
    let import = Step::Import { at: a.clone(), from: b.clone() };
    assert_eq!(words(import), "CLUSTER SETSLOT 5 IMPORTING b");
    let migrate = Step::Migrate { at: a.clone(), to: b.clone() };
    assert_eq!(words(migrate), "CLUSTER SETSLOT 5 MIGRATING b");
    assert_eq!(words(Step::Assign { at: a.clone(), owner: b }), "CLUSTER SETSLOT 5 NODE b");
    assert_eq!(words(Step::Stable { at: a }), "CLUSTER SETSLOT 5 STABLE");
}
