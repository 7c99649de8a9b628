//! Slots on their way to another site, driven by the source's leader.
//!
//! The state has the moves and their progress where it matters (begun, frozen, gone); everything
//! here can be lost, and a new leader begins by asking the destination what it has. A move's steps,
//! each a command at one of the two sites:
//!
//! ```text
//! source                                  destination
//! begin        ── Begin ────────────────▶ room is made
//! copy, send   ── chunks 0, 1, 2, … ────▶ staged
//! freeze: what comes now waits
//! send the rest ─ chunk n ──────────────▶ staged
//!              ── Install ──────────────▶ the slots are its own
//! release: what waited is sent on;
//! the records become a copy
//! ```
//!
//! The source keeps that copy until the slots' owner reports that its backup has them, complete
//! (`crate::site::release`).
//!
//! Nothing fails on the way, and a crash of either side at any step leaves a state from which the
//! same steps go on. The chunks are a stream ([`crate::stream`]). A frozen move is taken back only
//! when the destination has refused it for ever, or has left and no site owns the slots.

use crate::bugs::{Bug, Planted};
use crate::job::{self, Effect, Job, View};
use crate::site::machine::Machine;
use crate::site::machine::global::copying::{self, CopiedChunk, Position};
use crate::site::machine::global::source::Move;
use crate::stream::sender::{Chunk, Event, Outbox, Sender, Stage, TIMEOUT};
use model::{
    Answer, Command, DestinationStep, Failure, GlobalCommand, MoveError, MoveId, Refusal,
    SourceStep,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;
use wire::row;

/// A destination that is so many changes behind is near enough for the freeze,
const LAG_MAX: u64 = 256;
/// if no more than so much is on its way to it: what is frozen waits for that.
const INFLIGHT_BYTES_MAX: usize = 64 << 10;

/// Between two chunks other requests are served.
const YIELD_INTERVAL: Duration = Duration::from_micros(1);

/// A move under way, as the source's leader sees it.
#[derive(Debug)]
struct Transfer {
    sender: Sender<()>,
    /// The destination has refused, or will.
    is_refusing: bool,
    at: Position,
    slots: usize,
    begun: Duration,
    frozen: Option<Duration>,
    /// Of a frozen move: the revision by which all that was due in its slots is removed. A key that
    /// was read here as expired is not to come back there.
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
    transfers: BTreeMap<u64, Transfer>,
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
        let (machine, now) = (view.machine, view.now);
        let transfer = self.transfers.iter_mut().find(|(_, one)| one.sender.has(id));
        let Some((&number, transfer)) = transfer else { return Vec::new() };
        let Some(one) = machine.outgoing().get(&number) else { return Vec::new() };
        match outcome {
            Ok(Answer::Staged { chunks, resume }) => {
                let (event, _) = transfer.sender.acknowledged(id, chunks, now);
                if matches!(event, Event::Begun | Event::Gap) {
                    transfer.sender.resume(chunks);
                    let at = row::decode(&resume).filter(|_| chunks > 0);
                    transfer.at = at.unwrap_or_else(|| Position::first(one));
                }
                Vec::new()
            }
            // It may have been installed by a message of an earlier leader.
            Ok(Answer::Installed) => {
                transfer.sender.restart(now + TIMEOUT);
                transfer.installed.get_or_insert(now);
                let slots = machine.epochs_to_give(number, one);
                let served = Effect::Owned { slots, by: one.to };
                vec![served, give(number, SourceStep::Release)]
            }
            // It never installs them.
            Ok(_) | Err(Failure::Refused(Refusal::Move(MoveError::Refused))) => {
                transfer.sender.restart(now + TIMEOUT);
                vec![give(number, SourceStep::Abort { refused: true })]
            }
            Err(failure) => {
                let was_install = transfer.sender.failed(id, now) && !transfer.is_refusing;
                let error = match failure {
                    Failure::Refused(Refusal::Move(error)) => Some(error),
                    _ => None,
                };
                transfer.is_refusing = error == Some(MoveError::NoDestination);
                // A chunk was lost on the way, and requests wait for its slots.
                let is_short = was_install && matches!(error, Some(MoveError::NotReady(_)));
                if is_short || transfer.is_refusing && one.frozen.is_none() {
                    transfer.sender.wait_until(now);
                }
                Vec::new()
            }
        }
    }

    fn progress(&self, view: &View<'_, S>) -> job::Progress {
        let left = view.machine.outgoing().values().map(|one| one.slots.len() as u64).sum();
        let sent = self.transfers.values().map(|one| one.sender.sent_bytes()).sum::<u64>();
        job::Progress { left, sent_bytes: self.done.bytes + sent }
    }

    /// The next leader asks anew.
    fn stop(&mut self) -> Vec<Effect> {
        self.transfers.clear();
        Vec::new()
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        self.transfers.values().filter_map(|one| one.sender.next_due(now)).min()
    }
}

impl Handovers {
    /// None yet. All together send so many bytes a second at most; 0: as many as go.
    pub(crate) fn new(bytes_per_s_max: u64, planted: Planted) -> Handovers {
        Handovers { bytes_per_s_max, planted, ..Handovers::default() }
    }

    /// Advances every move that may go on.
    fn advance<S: State>(
        &mut self,
        view: &View<'_, S>,
        goes_on: impl Fn(&Move) -> bool,
    ) -> Vec<Effect> {
        let (machine, now) = (view.machine, view.now);
        let mut effects = Vec::new();
        if view.disk_is_full {
            self.transfers.clear();
        }
        let moves = machine.outgoing();
        let is_idle = moves.is_empty() && self.transfers.is_empty();
        let Some(member) = machine.membership().filter(|_| !is_idle && !view.disk_is_full) else {
            return effects;
        };
        let done = &mut self.done;
        self.transfers.retain(|number, one| {
            let is_open = moves.contains_key(number);
            if !is_open {
                done.count(one, now);
            }
            is_open
        });
        for (number, one) in moves {
            let transfer = self.transfers.entry(*number);
            let transfer = transfer.or_insert_with(|| Transfer::new(one, now));
            if one.frozen.is_some() {
                transfer.frozen.get_or_insert(now);
            }
        }
        let share = match self.bytes_per_s_max {
            0 => 0,
            all => (all / self.transfers.len().max(1) as u64).max(1),
        };
        for (&number, transfer) in &mut self.transfers {
            let (one, id) = (&moves[&number], MoveId { from: member.own, number });
            let Some(stage) = transfer.sender.stage(now).filter(|_| goes_on(one)) else { continue };
            let (last_id, effects) = (&mut self.last_id, &mut effects);
            let mut out = Outbox { now, to: one.to, last_id, effects };
            let is_silent = transfer.frozen.is_some_and(|frozen| frozen + TIMEOUT <= now);
            // The destination left before the move reached it: there is no site to ask. What is
            // frozen may have been taken all the same: the other sites are asked (crate::site).
            let is_gone = member.registry.site(one.to).is_none();
            if is_silent && !is_gone && self.planted.is(Bug::AbortUnasked) {
                transfer.sender.wait_until(now + TIMEOUT);
                out.effects.push(give(number, SourceStep::Abort { refused: true }));
            } else if is_gone || transfer.is_refusing {
                transfer.sender.wait_until(now + TIMEOUT);
                match one.frozen {
                    // Nothing was ever sent that could be installed.
                    None => out.effects.push(give(number, SourceStep::Abort { refused: false })),
                    Some(_) if is_gone => {}
                    Some(_) => {
                        let refuse = Command::Global(GlobalCommand::Destination {
                            id,
                            step: DestinationStep::Refuse,
                        });
                        transfer.sender.ask(&mut out, refuse);
                    }
                }
            } else if stage == Stage::Ask {
                let open_from = machine.open_from().unwrap_or(number);
                let slots = machine.epochs_to_give(number, one);
                let step = DestinationStep::Begin { slots, open_from, pinned: one.pinned };
                let begin = Command::Global(GlobalCommand::Destination { id, step });
                transfer.sender.begin(&mut out, begin);
            } else if stage == Stage::Sending {
                transfer.send(machine, id, one, share, &mut out);
            }
        }
        effects
    }

    /// The freeze was applied: there is no need to wait for it any longer.
    pub(crate) fn wake(&mut self, now: Duration) {
        self.transfers.values_mut().for_each(|one| one.sender.wake(now));
    }

    /// How far the moves have come.
    pub(crate) fn progress<S: State>(&self, machine: &Machine<S>) -> Vec<Progress> {
        let moves = machine.outgoing().iter();
        let progress = moves.map(|(&number, one)| {
            let transfer = self.transfers.get(&number);
            Progress {
                number,
                what: one.clone(),
                keys: machine.keys_in(&one.slots),
                sent_bytes: transfer.map_or(0, |one| one.sender.sent_bytes()),
                copied: transfer.is_some_and(|one| one.at.copy.is_none()),
                lag: transfer.map_or(0, |one| machine.lag(number, &one.at)),
            }
        });
        progress.collect()
    }
}

impl HandedOver {
    fn count(&mut self, one: &Transfer, now: Duration) {
        if let (Some(frozen), Some(installed)) = (one.frozen, one.installed) {
            self.moves += 1;
            self.slots += one.slots as u64;
            self.bytes += one.sender.sent_bytes();
            self.took += now.saturating_sub(one.begun);
            self.paused += installed.saturating_sub(frozen);
        }
    }
}

impl Transfer {
    fn new(one: &Move, now: Duration) -> Transfer {
        Transfer {
            sender: Sender::new(now),
            is_refusing: false,
            at: Position::first(one),
            slots: one.slots.len(),
            begun: now,
            frozen: None,
            expired: None,
            installed: None,
        }
    }

    /// Sends chunks; freezes when the destination is near, and has it install when it has all.
    fn send<S: State>(
        &mut self,
        machine: &Machine<S>,
        id: MoveId,
        one: &Move,
        bytes_per_s_max: u64,
        out: &mut Outbox<'_>,
    ) {
        let number = id.number;
        let Transfer { sender, at, .. } = self;
        if sender.has_gap() || one.paused && one.frozen.is_none() {
            return;
        }
        // The last chunks of a frozen move are not held up: requests wait for them.
        let (bytes_per_s_max, pause) = match one.frozen {
            None => (bytes_per_s_max, YIELD_INTERVAL),
            Some(_) => (0, Duration::ZERO),
        };
        if one.frozen.is_some() {
            sender.pause_until(out.now);
        }
        let sent = sender.send(out, bytes_per_s_max, |sequence| {
            let CopiedChunk { items, next, bytes } = machine.chunk(number, one, at)?;
            *at = next;
            if items.is_empty() {
                return Ok(None);
            }
            let resume = row::encode(at).into();
            let step = DestinationStep::Chunk { sequence, resume, items };
            let command = Command::Global(GlobalCommand::Destination { id, step });
            Ok(Some(Chunk { command, bytes, mark: (), pause }))
        });
        match sent {
            Ok(_) => {}
            Err(stopped) if copying::must_begin_anew(&stopped) => {
                self.is_refusing = true;
                return;
            }
            Err(stopped) => return out.effects.push(Effect::Fail(stopped.to_string())),
        }
        let has_expired = machine.has_expired_due();
        match one.frozen {
            None => {
                let is_near = at.copy.is_none()
                    && sender.inflight_bytes() <= INFLIGHT_BYTES_MAX
                    && machine.lag(number, at) <= LAG_MAX;
                if is_near && has_expired {
                    sender.wait_until(out.now + TIMEOUT);
                    out.effects.push(give(number, SourceStep::Freeze));
                }
            }
            Some(frozen) => {
                if has_expired {
                    self.expired.get_or_insert(frozen.max(machine.revision().0));
                }
                // The last chunks are on their way yet: what is sent in order comes in order,
                // mostly, and what is not there is not installed.
                if self.expired.is_some_and(|upto| machine.is_sent(number, at, upto)) {
                    let step = DestinationStep::Install {
                        chunks: sender.chunks(),
                        revision: machine.revision(),
                    };
                    sender.ask(out, Command::Global(GlobalCommand::Destination { id, step }));
                }
            }
        }
    }
}

fn give(number: u64, step: SourceStep) -> Effect {
    Effect::Propose(Command::Global(GlobalCommand::Source { number, step }))
}
