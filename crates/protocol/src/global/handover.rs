//! Slots on their way to another site, driven by the source's leader.
//!
//! The state has the moves and their progress where it matters (begun, frozen, gone); everything
//! here can be lost, and a new leader begins by asking the destination what it has. A move's steps,
//! each a command at one of the two sites:
//!
//! ```text
//! source                                  destination
//! begin        ── Begin ────────────────▶ room is made
//! copy, send   ── Piece 0, 1, 2, … ─────▶ staged
//! freeze: what comes now waits
//! send the rest ─ Piece n ──────────────▶ staged
//!              ── Install ──────────────▶ the slots are its own
//! release: what waited is sent on;
//! the records become a copy
//! ```
//!
//! The source keeps that copy until the slots' owner reports that its backup has them, complete
//! (`crate::site::release`).
//!
//! Nothing fails on the way, and a crash of either side at any step leaves a state from which the
//! same steps go on. A frozen move is taken back only when the destination has refused it for ever, or has
//! left and no site owns the slots.

use crate::job::{self, Effect, Job, View};
use crate::site::machine::Machine;
use crate::site::machine::copying::{self, Position};
use crate::site::machine::giving::Move;
use crate::site::trial::{Bug, Planted};
use model::{
    Answer, Command, Failure, Giving, GlobalCommand, MoveError, MoveId, Receiving, Refusal,
    Registry, SiteId, limits,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;

/// How long a step that was proposed or asked for is waited for before it is looked at again.
const PATIENCE: Duration = Duration::from_millis(500);
/// A destination that is so many changes behind is near enough for the freeze,
const LAG_MAX: u64 = 256;
/// if no more than so much is on its way to it: what is frozen waits for that.
const ON_ITS_WAY_BYTES_MAX: usize = 64 << 10;

/// Between two pieces other requests are served.
const BREATH: Duration = Duration::from_micros(1);

/// What a request to a destination was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Begin,
    Piece { sequence: u64, bytes: usize },
    Install,
    Refuse,
}

/// Where a move stands, as its carrier sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To ask the destination what it has.
    Ask,
    /// The destination was asked.
    Asking,
    /// Pieces go.
    Telling,
    /// The destination is to install.
    Installing,
    /// The destination has refused, or will.
    Refusing,
}

#[derive(Debug)]
struct Carried {
    stage: Stage,
    first: Position,
    at: Position,
    /// Of the next piece.
    sequence: u64,
    /// Pieces without an acknowledgement, and their bytes.
    unanswered: usize,
    unanswered_bytes: usize,
    /// A piece was not taken in, as one before it is missing: nothing more is sent until all are
    /// answered.
    lacks: bool,
    /// Nothing is asked or proposed before.
    not_before: Duration,
    /// When the next piece may go, by the throttle.
    next_piece: Duration,
    bytes: u64,
    slots: usize,
    begun: Duration,
    frozen: Option<Duration>,
    /// Of a frozen move: the revision by which all that was due in its slots is removed. A key that was
    /// read here as expired is not to come back there.
    expired: Option<u64>,
    installed: Option<Duration>,
}

/// How far a move has come, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its number.
    pub number: u64,
    /// Which slots, and their destination.
    pub what: Move,
    /// Keys in its slots.
    pub keys: u64,
    /// Bytes that were sent by this leader.
    pub sent_bytes: u64,
    /// Whether all records were copied once; changes are sent behind them.
    pub copied: bool,
    /// Changes that the destination does not have yet.
    pub lag: u64,
}

/// What a node has carried to its end as a leader, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// How many moves.
    pub moves: u64,
    /// How many slots.
    pub slots: u64,
    /// How many bytes were sent for them.
    pub bytes: u64,
    /// How long they took, from their beginning to their release.
    pub took: Duration,
    /// How long no site served their slots: from the freeze until the destination's report that it
    /// serves them.
    pub paused: Duration,
}

/// The moves of a site that leads itself.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    /// What has been handed over.
    pub(crate) done: HandedOver,
    carried: BTreeMap<u64, Carried>,
    asked: BTreeMap<u64, (u64, Asked)>,
    last_id: u64,
    /// Bytes a second that all moves together may send; 0: as many as go.
    bytes_per_s_max: u64,
    planted: Planted,
}

impl<S: State> Job<S> for Handovers {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        self.advance(view, |_| true)
    }

    /// Requests wait for slots that are frozen.
    fn poll_paused(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        self.advance(view, |one| one.frozen.is_some())
    }

    /// A destination's answer.
    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        let now = view.now;
        let Some((number, asked)) = self.asked.remove(&id) else { return Vec::new() };
        let Some(carried) = self.carried.get_mut(&number) else { return Vec::new() };
        let give =
            |step| vec![Effect::Propose(Command::Global(GlobalCommand::Giving { number, step }))];
        match outcome {
            // It may have been installed by a message of an earlier leader.
            Ok(Answer::Installed) => {
                carried.not_before = now + PATIENCE;
                carried.stage = Stage::Ask;
                carried.installed.get_or_insert(now);
                let served = view.machine.giving().get(&number).map(|one| Effect::Owned {
                    slots: view.machine.epochs_to_give(number, one),
                    by: one.to,
                });
                return served.into_iter().chain(give(Giving::Release)).collect();
            }
            Ok(Answer::Staged { pieces, resume }) => {
                let is_begin = asked == Asked::Begin;
                if let Asked::Piece { sequence, bytes } = asked {
                    carried.lacks |= pieces <= sequence;
                    carried.unanswered = carried.unanswered.saturating_sub(1);
                    carried.unanswered_bytes = carried.unanswered_bytes.saturating_sub(bytes);
                }
                // Another leader has asked it what it has; since then it waits for other pieces.
                if !is_begin && pieces > carried.sequence {
                    carried.stage = Stage::Ask;
                    carried.not_before = now;
                    return Vec::new();
                }
                // What it lacks may be on its way yet, until everything is answered: go back to what it has.
                let is_short = carried.lacks || pieces < carried.sequence;
                if is_begin || carried.unanswered == 0 && is_short {
                    carried.lacks = false;
                    carried.sequence = pieces;
                    carried.unanswered = 0;
                    carried.unanswered_bytes = 0;
                    carried.stage = Stage::Telling;
                    match Position::decode(&resume).filter(|_| pieces > 0) {
                        Some(at) => carried.at = at,
                        None => carried.at = carried.first.clone(),
                    }
                    // Answers to earlier pieces do not count for those that go now.
                    self.asked.retain(|_, (other, _)| *other != number);
                }
            }
            Ok(_) if asked == Asked::Refuse => {
                carried.not_before = now + PATIENCE;
                return give(Giving::TakeBack { refused: true });
            }
            Err(Failure::Refused(Refusal::Move(MoveError::Refused))) => {
                carried.not_before = now + PATIENCE;
                return give(Giving::TakeBack { refused: true });
            }
            Err(Failure::Refused(Refusal::Move(MoveError::NoReceiver))) => {
                carried.stage = Stage::Refusing;
                let is_frozen =
                    view.machine.giving().get(&number).is_some_and(|one| one.frozen.is_some());
                carried.not_before = if is_frozen { now + PATIENCE } else { now };
            }
            // A piece was lost on the way, and requests wait for its slots.
            Err(Failure::Refused(Refusal::Move(MoveError::NotReady(_))))
                if asked == Asked::Install =>
            {
                carried.stage = Stage::Ask;
                carried.not_before = now;
            }
            // The outcome is unknown: the destination is asked what it has.
            _ => {
                carried.stage = Stage::Ask;
                carried.lacks = false;
                carried.unanswered = 0;
                carried.unanswered_bytes = 0;
                carried.not_before = now + PATIENCE;
            }
        }
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> job::Progress {
        let left = view.machine.giving().values().map(|one| one.slots.len() as u64).sum();
        let carried = self.carried.values().map(|one| one.bytes).sum::<u64>();
        job::Progress { left, sent_bytes: self.done.bytes + carried }
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.stop_all()
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        let due = |one: &Carried| {
            one.not_before.max(if one.next_piece > now { one.next_piece } else { Duration::ZERO })
        };
        self.carried.values().map(due).filter(|at| *at > now).min()
    }
}

impl Handovers {
    /// None yet. All together send so many bytes a second at most; 0: as many as go.
    pub(crate) fn new(bytes_per_s_max: u64, planted: Planted) -> Handovers {
        Handovers { bytes_per_s_max, planted, ..Handovers::default() }
    }

    /// Goes on with every move there is that may go on.
    fn advance<S: State>(
        &mut self,
        view: &View<'_, S>,
        goes_on: impl Fn(&Move) -> bool,
    ) -> Vec<Effect> {
        let (machine, now) = (view.machine, view.now);
        if view.disk_is_full {
            return self.stop_all();
        }
        let mut effects = Vec::new();
        if machine.giving().is_empty() && self.carried.is_empty() {
            return effects;
        }
        let Some(member) = machine.membership() else { return effects };
        let moves = machine.giving();
        let done = &mut self.done;
        self.carried.retain(|number, one| {
            let is_open = moves.contains_key(number);
            if !is_open && let (Some(frozen), Some(installed)) = (one.frozen, one.installed) {
                done.moves += 1;
                done.slots += one.slots as u64;
                done.bytes += one.bytes;
                done.took += now.saturating_sub(one.begun);
                done.paused += installed.saturating_sub(frozen);
            }
            is_open
        });
        for (&number, one) in moves {
            let carried = self.carried.entry(number).or_insert_with(|| Carried {
                stage: Stage::Ask,
                first: Position::first(one),
                at: Position::first(one),
                sequence: 0,
                unanswered: 0,
                unanswered_bytes: 0,
                lacks: false,
                not_before: now,
                next_piece: now,
                bytes: 0,
                slots: one.slots.len(),
                begun: now,
                frozen: None,
                expired: None,
                installed: None,
            });
            if one.frozen.is_some() {
                carried.frozen.get_or_insert(now);
            }
            if carried.not_before > now || !goes_on(one) {
                continue;
            }
            let id = MoveId { from: member.own, number };
            let open_from = machine.open_from().unwrap_or(number);
            self.go_on(machine, id, one, open_from, now, &mut effects);
        }
        effects
    }

    /// The next leader asks anew.
    fn stop_all(&mut self) -> Vec<Effect> {
        self.carried.clear();
        self.asked.clear();
        Vec::new()
    }

    fn ask(&mut self, id: MoveId, to: SiteId, asked: Asked, step: Receiving) -> Effect {
        self.last_id += 1;
        self.asked.insert(self.last_id, (id.number, asked));
        Effect::ask(self.last_id, to, Command::Global(GlobalCommand::Receiving { id, step }))
    }

    fn go_on<S: State>(
        &mut self,
        machine: &Machine<S>,
        id: MoveId,
        one: &Move,
        open_from: u64,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let number = id.number;
        let Some(carried) = self.carried.get_mut(&number) else { return };
        // The destination left before the move reached it: there is no site to ask. What is frozen
        // may have been taken all the same: the other sites are asked (crate::site).
        let is_gone = machine.membership().is_none_or(|own| own.registry.site(one.to).is_none());
        if is_gone {
            carried.not_before = now + PATIENCE;
            if one.frozen.is_none() {
                let step = Giving::TakeBack { refused: false };
                effects
                    .push(Effect::Propose(Command::Global(GlobalCommand::Giving { number, step })));
            }
            return;
        }
        let is_silent = carried.frozen.is_some_and(|frozen| frozen + PATIENCE <= now);
        if is_silent && self.planted.is(Bug::AbortUnasked) {
            carried.not_before = now + PATIENCE;
            let step = Giving::TakeBack { refused: true };
            return effects
                .push(Effect::Propose(Command::Global(GlobalCommand::Giving { number, step })));
        }
        match carried.stage {
            Stage::Asking | Stage::Installing => {}
            Stage::Ask => {
                carried.stage = Stage::Asking;
                // Answers to earlier questions do not count any more.
                self.asked.retain(|_, (other, _)| *other != number);
                let slots = machine.epochs_to_give(number, one);
                effects.push(self.ask(
                    id,
                    one.to,
                    Asked::Begin,
                    Receiving::Begin { slots, open_from, pinned: one.pinned },
                ));
            }
            Stage::Refusing => {
                carried.not_before = now + PATIENCE;
                effects.push(match one.frozen {
                    // Nothing was ever sent that could be installed.
                    None => {
                        let step = Giving::TakeBack { refused: false };
                        Effect::Propose(Command::Global(GlobalCommand::Giving { number, step }))
                    }
                    Some(_) => self.ask(id, one.to, Asked::Refuse, Receiving::Refuse),
                });
            }
            Stage::Telling => self.tell(machine, id, one, now, effects),
        }
    }

    fn tell<S: State>(
        &mut self,
        machine: &Machine<S>,
        id: MoveId,
        one: &Move,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let number = id.number;
        loop {
            let moves = self.carried.len().max(1) as u64;
            let Some(carried) = self.carried.get_mut(&number) else { return };
            if carried.lacks || one.paused && one.frozen.is_none() {
                return;
            }
            let is_held_up = one.frozen.is_none() && carried.next_piece > now;
            if carried.unanswered >= limits::MOVE_PIECES_INFLIGHT_MAX || is_held_up {
                break;
            }
            let piece = match machine.piece(number, one, &carried.at) {
                Ok(piece) => piece,
                Err(stopped) if copying::must_begin_anew(&stopped) => {
                    carried.stage = Stage::Refusing;
                    return;
                }
                Err(error) => return effects.push(Effect::Fail(error.to_string())),
            };
            if piece.items.is_empty() {
                carried.at = piece.next;
                break;
            }
            let (resume, sequence) = (piece.next.encode(), carried.sequence);
            let step = Receiving::Piece { sequence, resume, items: piece.items };
            carried.at = piece.next;
            carried.sequence += 1;
            carried.unanswered += 1;
            carried.unanswered_bytes += piece.bytes;
            carried.bytes += piece.bytes as u64;
            // The last pieces of a frozen move are not held up: requests wait for them.
            if one.frozen.is_none() {
                let share = (self.bytes_per_s_max / moves).max(1);
                let span = match self.bytes_per_s_max {
                    0 => Duration::ZERO,
                    _ => Duration::from_micros(piece.bytes as u64 * 1_000_000 / share),
                };
                carried.next_piece = now + span.max(BREATH);
            }
            let asked = Asked::Piece { sequence, bytes: piece.bytes };
            effects.push(self.ask(id, one.to, asked, step));
        }
        let Some(carried) = self.carried.get_mut(&number) else { return };
        let has_expired = machine.has_expired_due();
        if let Some(frozen) = one.frozen.filter(|_| has_expired && carried.expired.is_none()) {
            carried.expired = Some(frozen.max(machine.revision().0));
        }
        match one.frozen {
            None if carried.at.copy.is_none()
                && has_expired
                && carried.unanswered_bytes <= ON_ITS_WAY_BYTES_MAX
                && machine.lag(number, &carried.at) <= LAG_MAX =>
            {
                carried.not_before = now + PATIENCE;
                effects.push(Effect::Propose(Command::Global(GlobalCommand::Giving {
                    number,
                    step: Giving::Freeze,
                })));
            }
            // The last pieces are on their way yet: what is sent in order comes in order, mostly, and
            // what is not there is not installed.
            Some(_)
                if carried.expired.is_some_and(|at| machine.is_told(number, &carried.at, at)) =>
            {
                carried.stage = Stage::Installing;
                let registry =
                    machine.membership().filter(|_| one.slots.contains(Registry::slot()));
                let registry = registry.map(|member| Box::new((*member.registry).clone()));
                let step = Receiving::Install {
                    pieces: carried.sequence,
                    log_time_ms: 0,
                    revision: machine.revision(),
                    registry,
                };
                effects.push(self.ask(id, one.to, Asked::Install, step));
            }
            _ => {}
        }
    }

    /// The freeze was applied: there is no need to wait for it any longer.
    pub(crate) fn look_again(&mut self, now: Duration) {
        for one in self.carried.values_mut() {
            if one.stage == Stage::Telling {
                one.not_before = one.not_before.min(now);
            }
        }
    }

    /// How far the moves have come.
    pub(crate) fn progress<S: State>(&self, machine: &Machine<S>) -> Vec<Progress> {
        let moves = machine.giving().iter();
        let progress = moves.map(|(&number, one)| {
            let carried = self.carried.get(&number);
            Progress {
                number,
                what: one.clone(),
                keys: machine.keys_in(&one.slots),
                sent_bytes: carried.map_or(0, |carried| carried.bytes),
                copied: carried.is_some_and(|carried| carried.at.copy.is_none()),
                lag: carried.map_or(0, |carried| machine.lag(number, &carried.at)),
            }
        });
        progress.collect()
    }
}
