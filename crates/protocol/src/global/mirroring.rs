//! The mirror of a site, sent by its leader to its backup.
//!
//! The state has the backup and the mirror's number ([`crate::site::machine::mirroring`]); the
//! backup has its progress, and a new leader begins by asking for it:
//!
//! ```text
//! original                                backup
//! SetMirror: changes are kept from here
//!              ── Begin ────────────────▶ what is not whole is thrown away; answers with what is
//! copy, send   ── Piece 0, 1, 2, … ─────▶ a handover's pieces; slots are gained and given away
//! ```
//!
//! It never ends. When the backup has been away for so long that the changes it lacks are not kept
//! any more, the mirror begins anew under a higher number.

use crate::job::{self, Effect, Job, View};
use crate::site::machine::Machine;
use crate::site::machine::copying::must_begin_anew;
use crate::site::machine::mirroring::{CURSOR, Gathered, OwnMirror, Told};
use crate::site::machine::tokens::Token;
use model::{
    Answer, BackupError, BySlot, Bytes, Command, Epoch, Failure, GlobalCommand, KeyspaceId,
    Mirroring, Reached, Refusal, Revision, SiteId, Slot, SlotEpochs, SlotRun, SlotSet, limits,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use storage::state::State;

/// How long a step that failed or was proposed is waited for before it is looked at again.
const PATIENCE: Duration = Duration::from_millis(500);
/// The shortest time between two pieces of what changed: more changes a piece cost less each.
const PAUSE: Duration = Duration::from_millis(20);
/// An idle mirror receives a piece this often, to confirm that it is in step.
const NOTHING_NEW: Duration = Duration::from_secs(60);
/// The cursor follows when the backup is so many revisions further, or after this time.
const CURSOR_STEP: u64 = 4_096;
const CURSOR_PAUSE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To ask the backup what it has, or asked.
    Ask,
    Asking,
    /// Pieces go.
    Telling,
}

/// What a request to the backup was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Begin,
    /// A piece; when it was sent, if the mirror is in step after it.
    Piece {
        sequence: u64,
        in_step: Option<(Duration, u64)>,
    },
}

/// One mirror under way.
#[derive(Debug)]
struct Carried {
    own: OwnMirror,
    stage: Stage,
    /// Of the next piece.
    sequence: u64,
    /// Pieces without an acknowledgement.
    unanswered: usize,
    /// A piece was not taken in, as one before it is missing: nothing more is sent until all are
    /// answered.
    lacks: bool,
    told: Told,
    /// What the backup has for sure.
    known: Told,
    /// Slots that this site holds.
    held: BySlot<Epoch>,
    held_set: SlotSet,
    /// The slots that were sent whole.
    whole: BySlot<Epoch>,
    /// To be copied.
    queue: VecDeque<Slot>,
    /// Where the first of them goes on.
    at: Option<(KeyspaceId, Bytes)>,
    /// Copied, and not yet reported whole to the backup.
    copied: Vec<Slot>,
    /// Not held any more.
    gone: SlotSet,
    not_before: Duration,
    next_piece: Duration,
    last_piece: Duration,
    last_cursor: Duration,
    bytes: u64,
    /// The last moment of which the backup has acknowledged everything.
    in_step: Option<Duration>,
    /// The piece that last changed which slots are whole.
    whole_since: u64,
    /// The last piece in step that the backup has acknowledged, and its revision.
    safe: Option<(u64, u64)>,
}

/// How far a site's mirror has come, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The backup.
    pub to: SiteId,
    /// Slots that this site holds, and how many of them the backup has whole.
    pub holds: u32,
    /// See above.
    pub whole: u32,
    /// Revisions that the backup does not have yet.
    pub behind: u64,
    /// How long ago it was in step; `None`: never as far as this leader knows.
    pub in_step_ago: Option<Duration>,
    /// Bytes that were sent by this leader.
    pub sent_bytes: u64,
}

/// The mirror of a site that leads itself.
#[derive(Debug, Default)]
pub(crate) struct MirrorDriver {
    carried: Option<Carried>,
    asked: BTreeMap<u64, Asked>,
    last_id: u64,
    bytes_per_s_max: u64,
    /// Slots with tokens that changed since they were looked at.
    tokens_changed: SlotSet,
    proposed: Duration,
}

impl<S: State> Job<S> for MirrorDriver {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let (machine, now) = (view.machine, view.now);
        let mut effects = Vec::new();
        if view.disk_is_full {
            self.drop_all();
            return effects;
        }
        let to = view.backup.filter(|_| machine.has_globals());
        let own = machine.own_mirror();
        if own.map(|own| own.to) != to {
            self.drop_all();
            if self.proposed <= now {
                self.proposed = now + PATIENCE;
                effects.push(Effect::Propose(Command::Global(GlobalCommand::SetMirror { to })));
            }
            return effects;
        }
        let Some(own) = own else { return effects };
        if self.carried.as_ref().is_none_or(|carried| carried.own != own) {
            self.asked.clear();
            self.carried = Some(Carried::new(own, now));
        }
        let Some(member) = machine.membership() else { return effects };
        let from = member.own;
        if self.carried.as_ref().is_none_or(|carried| carried.not_before > now) {
            return effects;
        }
        let tokens_changed = std::mem::take(&mut self.tokens_changed);
        let Some(carried) = &mut self.carried else { return effects };
        match carried.stage {
            Stage::Asking => self.tokens_changed = tokens_changed,
            Stage::Ask => {
                carried.stage = Stage::Asking;
                effects.push(self.ask(from, own, Mirroring::Begin, Asked::Begin));
            }
            Stage::Telling => {
                if !tokens_changed.is_empty() {
                    carried.follow(machine, &tokens_changed);
                }
                self.tell(machine, from, now, &mut effects);
            }
        }
        effects
    }

    /// The backup's answer.
    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        let (machine, now) = (view.machine, view.now);
        let Some(asked) = self.asked.remove(&id) else { return Vec::new() };
        let is_begin = asked == Asked::Begin;
        let Some(carried) = &mut self.carried else { return Vec::new() };
        match outcome {
            Ok(Answer::Mirrored { pieces, resume, whole }) if is_begin => {
                carried.go_on_from(pieces, &resume, &whole, machine);
                // Answers to earlier pieces do not count for those that go now.
                self.asked.clear();
            }
            // Another leader has asked it what it has; since then it waits for other pieces.
            Ok(Answer::Mirrored { pieces, .. }) if pieces > carried.sequence => {
                carried.stage = Stage::Ask;
                carried.unanswered = 0;
                self.asked.clear();
            }
            Ok(Answer::Mirrored { pieces, resume, .. }) => {
                carried.unanswered = carried.unanswered.saturating_sub(1);
                if let Some(told) = Told::decode(&resume) {
                    carried.known = told;
                }
                if let Asked::Piece { sequence, in_step } = asked {
                    match pieces > sequence {
                        true => {
                            if let Some((at, revision)) = in_step {
                                carried.in_step = Some(at);
                                carried.safe = carried.safe.max(Some((sequence, revision)));
                            }
                        }
                        false => carried.lacks = true,
                    }
                }
                // What it lacks may be on its way yet, until everything is answered.
                if carried.unanswered == 0 && (carried.lacks || pieces < carried.sequence) {
                    carried.stage = Stage::Ask;
                }
            }
            Err(Failure::Refused(Refusal::Backup(BackupError::Outdated))) => {
                carried.stage = Stage::Ask;
                carried.not_before = now + 4 * PATIENCE;
                let to = Some(carried.own.to);
                return vec![Effect::Propose(Command::Global(GlobalCommand::SetMirror { to }))];
            }
            _ => {
                carried.stage = Stage::Ask;
                carried.unanswered = 0;
                carried.not_before = now + PATIENCE;
                self.asked.clear();
            }
        }
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> job::Progress {
        let progress = self.progress(view.machine, view.now);
        progress.map_or(job::Progress::default(), |progress| job::Progress {
            left: progress.behind,
            sent_bytes: progress.sent_bytes,
        })
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.drop_all();
        Vec::new()
    }
}

impl MirrorDriver {
    /// Nothing yet. So many bytes a second are sent at most; 0: as many as go.
    pub(crate) fn new(bytes_per_s_max: u64) -> MirrorDriver {
        MirrorDriver { bytes_per_s_max, ..MirrorDriver::default() }
    }

    fn drop_all(&mut self) {
        self.carried = None;
        self.asked.clear();
    }

    /// Tokens changed hands.
    pub(crate) fn look_again(&mut self, changed: &SlotSet) {
        changed.runs().for_each(|run| self.tokens_changed.insert_run(run));
    }

    fn ask(&mut self, from: SiteId, own: OwnMirror, step: Mirroring, asked: Asked) -> Effect {
        self.last_id += 1;
        self.asked.insert(self.last_id, asked);
        let command = Command::Global(GlobalCommand::Mirror { from, number: own.number, step });
        Effect::ask(self.last_id, own.to, command)
    }

    fn tell<S: State>(
        &mut self,
        machine: &Machine<S>,
        from: SiteId,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        loop {
            let bytes_per_s_max = self.bytes_per_s_max;
            let Some(carried) = &mut self.carried else { return };
            let own = carried.own;
            let is_full = carried.unanswered >= limits::MOVE_PIECES_INFLIGHT_MAX;
            if is_full || carried.lacks || carried.next_piece > now {
                return;
            }
            let sequence = carried.sequence;
            let (piece, bytes, is_step) = match carried.piece(machine, now) {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    carried.next_piece = now + PAUSE;
                    break;
                }
                Err(stopped) if must_begin_anew(&stopped) => {
                    // Too far behind: it begins anew.
                    carried.not_before = now + PATIENCE;
                    return effects.push(Effect::Propose(Command::Global(
                        GlobalCommand::SetMirror { to: Some(own.to) },
                    )));
                }
                Err(error) => return effects.push(Effect::Fail(error.to_string())),
            };
            carried.unanswered += 1;
            carried.bytes += bytes as u64;
            carried.last_piece = now;
            carried.next_piece = if is_step { now + PAUSE } else { now };
            if let Some(span) = (bytes as u64 * 1_000_000).checked_div(bytes_per_s_max) {
                carried.next_piece = carried.next_piece.max(now + Duration::from_micros(span));
            }
            let revision = machine.revision().0;
            let asked = Asked::Piece { sequence, in_step: is_step.then_some((now, revision)) };
            effects.push(self.ask(from, own, piece, asked));
        }
        let Some(carried) = &mut self.carried else { return };
        if carried.unanswered == 0 {
            carried.known = carried.told.clone();
            carried.in_step = Some(now);
        }
        if carried.last_cursor + CURSOR_PAUSE <= now || carried.is_far(machine) {
            carried.last_cursor = now;
            for (keyspace, position) in carried.known.changes.clone() {
                if machine.mirror_cursor(keyspace).is_some_and(|at| at < position) {
                    let position = Revision(position);
                    let name = CURSOR.to_owned();
                    effects.push(Effect::Propose(Command::SetCursor { name, keyspace, position }));
                }
            }
        }
    }

    /// The latest moment at which the backup had everything there was, as far as this leader knows.
    pub(crate) fn in_step<S: State>(&self, machine: &Machine<S>) -> Option<Duration> {
        let own = machine.own_mirror()?;
        let carried = self.carried.as_ref().filter(|carried| carried.own == own);
        carried.and_then(|carried| carried.in_step)
    }

    /// Which of these slots the backup has acknowledged, complete, at the epochs at which they are
    /// owned here; the generation and the position of those copies.
    pub(crate) fn safe<S: State>(
        &self,
        machine: &Machine<S>,
        slots: &SlotSet,
    ) -> Option<(SlotEpochs, u64, u64)> {
        let own = machine.own_mirror()?;
        let carried = self.carried.as_ref().filter(|carried| carried.own == own)?;
        let (sequence, position) = carried.safe.filter(|safe| safe.0 >= carried.whole_since)?;
        debug_assert!(sequence < carried.sequence);
        let alike = slots.runs().flat_map(|run| run.cut(|slot| carried.whole.run_at(slot).0));
        let whole = alike.filter_map(|run| Some((run, *carried.whole.get(run.first)?)));
        Some((SlotEpochs::of_runs(whole), own.number, position))
    }

    /// How far the mirror has come.
    pub(crate) fn progress<S: State>(
        &self,
        machine: &Machine<S>,
        now: Duration,
    ) -> Option<Progress> {
        let own = machine.own_mirror()?;
        let carried = self.carried.as_ref().filter(|carried| carried.own == own);
        let whole = carried.map_or(0, |carried| carried.whole.len());
        let is_in_step = carried.is_some_and(|carried| carried.is_in_step(machine));
        let behind = match carried {
            _ if is_in_step => 0,
            Some(carried) => {
                machine.revision().0.saturating_sub(machine.mirror_told(&carried.known))
            }
            None => machine.revision().0.saturating_sub(own.number),
        };
        let in_step = self.in_step(machine);
        Some(Progress {
            to: own.to,
            holds: carried.map_or(0, |carried| carried.held.len() as u32),
            whole: whole as u32,
            behind,
            in_step_ago: match is_in_step {
                true => Some(Duration::ZERO),
                false => in_step.map(|at| now.saturating_sub(at)),
            },
            sent_bytes: carried.map_or(0, |carried| carried.bytes),
        })
    }
}

impl Carried {
    fn new(own: OwnMirror, now: Duration) -> Carried {
        Carried {
            own,
            stage: Stage::Ask,
            sequence: 0,
            unanswered: 0,
            lacks: false,
            told: Told::default(),
            known: Told::default(),
            held: BySlot::default(),
            held_set: SlotSet::default(),
            whole: BySlot::default(),
            queue: VecDeque::new(),
            at: None,
            copied: Vec::new(),
            gone: SlotSet::default(),
            not_before: now,
            next_piece: now,
            last_piece: now,
            last_cursor: now,
            bytes: 0,
            in_step: None,
            whole_since: 0,
            safe: None,
        }
    }

    /// The backup has reported what it has.
    fn go_on_from<S: State>(
        &mut self,
        pieces: u64,
        resume: &[u8],
        whole: &SlotEpochs,
        machine: &Machine<S>,
    ) {
        self.stage = Stage::Telling;
        (self.whole_since, self.safe) = (pieces, None);
        self.sequence = pieces;
        self.unanswered = 0;
        self.lacks = false;
        self.told = Told::decode(resume).filter(|_| pieces > 0).unwrap_or_default();
        self.known = self.told.clone();
        self.whole = whole.runs().collect();
        (self.queue, self.at) = (VecDeque::new(), None);
        (self.copied, self.gone, self.held) = (Vec::new(), SlotSet::default(), BySlot::default());
        self.held_set = SlotSet::default();
        self.follow(machine, &SlotSet::all());
        // What the backup has of slots that this site does not hold, or holds anew.
        let held = &self.held;
        let alike = |(run, epoch): (SlotRun, &Epoch)| {
            let epoch = *epoch;
            let alike = run.cut(|slot| held.run_at(slot).0);
            alike.filter(move |run| held.get(run.first) != Some(&epoch))
        };
        let old: Vec<SlotRun> = self.whole.runs().flat_map(alike).collect();
        for run in old {
            self.whole.set(run, None);
            self.gone.insert_run(run);
            if self.held.contains(run.first) {
                // It was not queued, as the backup has it; at another epoch, though.
                self.queue.extend(run.slots());
            }
        }
    }

    /// Follows which of these slots are held; of all others that is known.
    fn follow<S: State>(&mut self, machine: &Machine<S>, changed: &SlotSet) {
        let (mut gone, mut new) = (SlotSet::default(), Vec::new());
        for (run, token) in machine.tokens(changed.runs()) {
            let epoch = match token {
                Token::Held(epoch) | Token::Leaving { epoch, .. } => Some(epoch),
                Token::Never | Token::Gone { .. } => None,
            };
            for run in run.cut(|slot| self.held.run_at(slot).0).collect::<Vec<_>>() {
                let before = self.held.get(run.first).copied();
                if before == epoch {
                    continue;
                }
                if before.is_some() {
                    gone.insert_run(run);
                }
                self.held.set(run, epoch);
                match epoch {
                    Some(_) => self.held_set.insert_run(run),
                    None => self.held_set.remove_run(run),
                }
                new.extend(epoch.map(|_| run));
            }
        }
        if self.queue.front().is_some_and(|slot| gone.contains(*slot)) {
            self.at = None;
        }
        if !gone.is_empty() {
            gone.runs().for_each(|run| self.whole.set(run, None));
            self.copied.retain(|slot| !gone.contains(*slot));
            self.queue.retain(|slot| !gone.contains(*slot));
            gone.runs().for_each(|run| self.gone.insert_run(run));
        }
        let whole = &self.whole;
        let new = new.into_iter().flat_map(|run| run.cut(|slot| whole.run_at(slot).0));
        let new = new.filter(|run| !whole.contains(run.first));
        self.queue.extend(new.flat_map(SlotRun::slots));
    }

    fn is_in_step<S: State>(&self, machine: &Machine<S>) -> bool {
        let told = |told| machine.mirror_told(told) >= machine.revision().0;
        let is_told = told(&self.known) || self.unanswered == 0 && told(&self.told);
        self.stage == Stage::Telling && is_told && self.queue.is_empty() && self.copied.is_empty()
    }

    fn is_far<S: State>(&self, machine: &Machine<S>) -> bool {
        let far = |(keyspace, position): (&KeyspaceId, &u64)| {
            machine.mirror_cursor(*keyspace).is_some_and(|at| at + CURSOR_STEP <= *position)
        };
        self.known.changes.iter().any(far)
    }

    /// The next piece, how long it is, and whether the mirror is in step after it. `None`: there is
    /// nothing to send now.
    fn piece<S: State>(
        &mut self,
        machine: &Machine<S>,
        now: Duration,
    ) -> Result<Option<(Mirroring, usize, bool)>, crate::site::machine::Stopped> {
        let mut gathered = Gathered::default();
        let mut told = self.told.clone();
        let mut copied = Vec::new();
        let mut at = self.at.clone();
        for slot in &self.queue {
            if gathered.is_full() {
                break;
            }
            at = machine.copy_slot(*slot, at.take(), &mut gathered)?;
            if at.is_some() {
                break;
            }
            copied.push(*slot);
        }
        // A piece with a very large record has no room for another.
        let has_room = gathered.bytes <= 2 * limits::MOVE_PIECE_BYTES_MAX;
        let is_all =
            has_room && machine.tell_changes_of(&self.held_set, &mut told, &mut gathered)?;
        let is_new = !gathered.items.is_empty()
            || !self.gone.is_empty()
            || !copied.is_empty()
            || !self.copied.is_empty()
            || !is_all;
        if !is_new && self.last_piece + NOTHING_NEW > now {
            self.told = told;
            return Ok(None);
        }
        self.told = told;
        self.at = at;
        self.queue.drain(..copied.len());
        self.copied.append(&mut copied);
        let reached = is_all.then(|| {
            let epoch = |slot: Slot| Some((slot, *self.held.get(slot)?));
            let whole: Vec<_> = self.copied.drain(..).filter_map(epoch).collect();
            self.whole.extend(whole.iter().copied());
            Reached {
                revision: machine.revision(),
                log_time_ms: 0,
                whole: SlotEpochs::gather(whole),
                holds: self.held.len() as u32,
            }
        });
        machine.say_time(&mut gathered.items);
        let piece = Mirroring::Piece {
            sequence: self.sequence,
            resume: self.told.encode(),
            gone: std::mem::take(&mut self.gone),
            items: gathered.items,
            reached,
        };
        let Mirroring::Piece { gone, reached, .. } = &piece else { unreachable!("it is a piece") };
        if !gone.is_empty() || reached.as_ref().is_some_and(|one| !one.whole.0.is_empty()) {
            self.whole_since = self.sequence;
        }
        self.sequence += 1;
        Ok(Some((piece, gathered.bytes, is_all && self.queue.is_empty())))
    }
}
