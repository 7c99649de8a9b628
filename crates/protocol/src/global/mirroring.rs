//! The mirror of a site, sent by its leader to its backup.
//!
//! The state has the backup and the mirror's number ([`crate::site::machine::global::mirroring`]);
//! the backup has its progress, and a new leader begins by asking for it:
//!
//! ```text
//! original                                backup
//! SetMirror: changes are kept from here
//!              ── Begin ────────────────▶ what is not complete is dropped; answers with what is
//! copy, send   ── chunks 0, 1, 2, … ────▶ a handover's chunks; slots are gained and given away
//! ```
//!
//! The chunks are a stream ([`crate::stream`]) that never ends. When the backup has been away for
//! so long that the changes it lacks are not kept any more, the mirror begins anew under a higher
//! number.
//!
//! When the site gets another backup, the stream to the former one goes on beside the new one,
//! until the new backup has acknowledged everything complete: `EndMirror`. So what is written
//! meanwhile survives the loss of the site. The former backup drops its copies when this site
//! reports that the new one has them (`site::release`). A stream to a former backup does not begin
//! anew: when it lacks what is not kept any more, or that site does not take it, it ends.

use crate::job::{self, Effect, Job, View};
use crate::site::machine::Machine;
use crate::site::machine::Stopped;
use crate::site::machine::global::copying::{Gathered, Sent, SlotPlace, must_begin_anew};
use crate::site::machine::global::mirroring::OwnMirror;
use crate::site::machine::global::tokens::Token;
use crate::stream::sender::{Chunk, Event, Outbox, Sender, Stage, TIMEOUT};
use model::{
    Answer, BackupError, BySlot, Command, Epoch, Failure, GlobalCommand, KeyspaceId, MirrorStep,
    Reached, Refusal, Revision, SiteId, Slot, SlotEpochs, SlotRun, SlotSet,
};
use std::collections::VecDeque;
use std::time::Duration;
use storage::state::State;
use wire::row;

/// The shortest time between two chunks of what changed: more changes a chunk cost less each.
const PAUSE: Duration = Duration::from_millis(20);
/// An idle mirror receives a chunk this often, to confirm that it is caught up.
const NOTHING_NEW: Duration = Duration::from_secs(60);
/// The cursor follows when the backup is so many revisions further, or after this time.
const CURSOR_STEP: u64 = 4_096;
const CURSOR_PAUSE: Duration = Duration::from_secs(10);

/// Of a chunk after which the backup is caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CaughtUp {
    sequence: u64,
    at: Duration,
    revision: u64,
}

/// One mirror under way.
#[derive(Debug)]
struct Transfer {
    mirror: OwnMirror,
    sender: Sender<Option<CaughtUp>>,
    source: Source,
    /// What the backup has for sure.
    acknowledged: Sent,
    last_cursor: Duration,
    /// The last moment of which the backup has acknowledged everything.
    caught_up: Option<Duration>,
    /// The last chunk of those after which it is caught up, since the backup was asked.
    safe: Option<CaughtUp>,
    /// Slots with tokens that changed since they were looked at.
    tokens_changed: SlotSet,
}

/// What is sent.
#[derive(Debug, Default)]
struct Source {
    sent: Sent,
    /// Slots that this site holds.
    held: BySlot<Epoch>,
    held_set: SlotSet,
    /// The slots of which everything was sent.
    complete: BySlot<Epoch>,
    /// The chunk that last changed which are complete.
    complete_since: u64,
    /// To be copied.
    queue: VecDeque<Slot>,
    /// Where the first of them goes on.
    at: Option<SlotPlace>,
    /// Copied, and not yet reported complete to the backup.
    copied: Vec<Slot>,
    /// Not held any more.
    gone: SlotSet,
    last_chunk: Duration,
}

/// How far a site's mirror has come, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The backup.
    pub to: SiteId,
    /// The mirror's number.
    pub number: u64,
    /// Slots that this site holds, and how many of them the backup has whole.
    pub holds: u32,
    /// See above.
    pub complete: u32,
    /// Revisions that the backup does not have yet.
    pub behind: u64,
    /// How long ago it was caught up; `None`: never since this leader began.
    pub caught_up_ago: Option<Duration>,
    /// Bytes that were sent by this leader.
    pub sent_bytes: u64,
}

/// The mirror of a site that leads itself.
#[derive(Debug, Default)]
pub(crate) struct MirrorDriver {
    transfer: Option<Transfer>,
    /// To the former backup, while the new one does not have everything.
    former: Option<Transfer>,
    last_id: u64,
    bytes_per_s_max: u64,
    proposed: Duration,
}

impl<S: State> Job<S> for MirrorDriver {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let (machine, now) = (view.machine, view.now);
        let mut effects = Vec::new();
        if view.disk_is_full {
            (self.transfer, self.former) = (None, None);
            return effects;
        }
        let to = view.backup.filter(|_| machine.has_globals());
        let own = machine.own_mirror();
        if own.map(|own| own.to) != to {
            if self.proposed <= now {
                self.proposed = now + TIMEOUT;
                effects.push(Effect::Propose(Command::Global(GlobalCommand::SetMirror { to })));
            }
            return effects;
        }
        let mut running = [self.transfer.take(), self.former.take()];
        let (Some(own), Some(member)) = (own, machine.membership()) else { return effects };
        let mut resume = |mirror: OwnMirror| {
            let same = |one: &mut Transfer| one.mirror == mirror;
            let running = running.iter_mut().find_map(|running| running.take_if(same));
            running.unwrap_or_else(|| Transfer::new(mirror, now))
        };
        let current = self.transfer.insert(resume(own));
        if let Some(former) = machine.former_mirror() {
            let is_listed = member.registry.site(former.to).is_some();
            if is_listed && !current.has_everything() {
                self.former = Some(resume(former));
            } else if self.proposed <= now {
                self.proposed = now + TIMEOUT;
                effects.push(end(member.own, former));
            }
        }
        // Both together keep to the limit; 0 is none.
        let parts = if self.former.is_some() { 2 } else { 1 };
        let bytes_per_s_max = self.bytes_per_s_max.div_ceil(parts);
        for transfer in [&mut self.transfer, &mut self.former].into_iter().flatten() {
            let last_id = &mut self.last_id;
            let mut out = Outbox { now, to: transfer.mirror.to, last_id, effects: &mut effects };
            transfer.poll(machine, member.own, bytes_per_s_max, &mut out);
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
        let transfers = [&mut self.transfer, &mut self.former].into_iter().flatten();
        let transfer = transfers.into_iter().find(|transfer| transfer.sender.has(id));
        let Some(transfer) = transfer else { return Vec::new() };
        let mirror = transfer.mirror;
        let is_former = machine.former_mirror() == Some(mirror);
        match outcome {
            Ok(Answer::Mirrored { chunks, resume, complete }) => {
                let (event, mark) = transfer.sender.acknowledged(id, chunks, now);
                transfer.acknowledged = row::decode(&resume).unwrap_or_default();
                if let Some(Some(mark)) = mark {
                    transfer.caught_up = Some(mark.at);
                    transfer.safe = transfer.safe.max(Some(mark));
                }
                match event {
                    Event::Begun => {
                        transfer.sender.resume(chunks);
                        transfer.safe = None;
                        let (sent, at) =
                            (transfer.acknowledged.clone(), transfer.source.last_chunk);
                        transfer.source = Source::resume(sent, chunks, &complete, machine, at);
                    }
                    Event::Gap => transfer.sender.restart(now),
                    Event::Acknowledged | Event::Nothing => {}
                }
                Vec::new()
            }
            Err(Failure::Refused(Refusal::Backup(error)))
                if is_former || error == BackupError::Outdated =>
            {
                transfer.sender.restart(now + 4 * TIMEOUT);
                view.machine
                    .membership()
                    .map(|member| give_up(machine, member.own, mirror))
                    .into_iter()
                    .collect()
            }
            _ => {
                transfer.sender.restart(now + TIMEOUT);
                Vec::new()
            }
        }
    }

    fn progress(&self, view: &View<'_, S>) -> job::Progress {
        let progress = self.progress(view.machine, view.now);
        progress.map_or(job::Progress::default(), |progress| job::Progress {
            left: progress.behind,
            sent_bytes: progress.sent_bytes,
        })
    }

    fn stop(&mut self) -> Vec<Effect> {
        (self.transfer, self.former) = (None, None);
        Vec::new()
    }
}

impl MirrorDriver {
    /// Nothing yet. So many bytes a second are sent at most; 0: as many as go.
    pub(crate) fn new(bytes_per_s_max: u64) -> MirrorDriver {
        MirrorDriver { bytes_per_s_max, ..MirrorDriver::default() }
    }

    /// Tokens changed hands.
    pub(crate) fn wake(&mut self, changed: &SlotSet) {
        for transfer in [&mut self.transfer, &mut self.former].into_iter().flatten() {
            changed.runs().for_each(|run| transfer.tokens_changed.insert_run(run));
        }
    }

    /// The stream of a mirror, if it is under way.
    fn transfer_of(&self, mirror: OwnMirror) -> Option<&Transfer> {
        let transfers = [&self.transfer, &self.former].into_iter().flatten();
        transfers.into_iter().find(|transfer| transfer.mirror == mirror)
    }

    /// Which of these slots the backup has acknowledged, complete, at the epochs at which they are
    /// owned here; the generation and the position of those copies.
    pub(crate) fn safe<S: State>(
        &self,
        machine: &Machine<S>,
        slots: &SlotSet,
    ) -> Option<(SlotEpochs, u64, u64)> {
        let transfer = self.transfer_of(machine.own_mirror()?)?;
        let complete = &transfer.source.complete;
        let safe = transfer.safe()?;
        debug_assert!(safe.sequence < transfer.sender.chunks());
        let alike = slots.runs().flat_map(|run| run.cut(|slot| complete.run_at(slot).0));
        let complete = alike.filter_map(|run| Some((run, *complete.get(run.first)?)));
        Some((SlotEpochs::of_runs(complete), transfer.mirror.number, safe.revision))
    }

    /// How far the mirror has come.
    pub(crate) fn progress<S: State>(
        &self,
        machine: &Machine<S>,
        now: Duration,
    ) -> Option<Progress> {
        machine.own_mirror().map(|own| self.progress_of(own, machine, now))
    }

    /// The same of the former mirror, while that is fed.
    pub(crate) fn progress_of_former<S: State>(
        &self,
        machine: &Machine<S>,
        now: Duration,
    ) -> Option<Progress> {
        machine.former_mirror().map(|former| self.progress_of(former, machine, now))
    }

    fn progress_of<S: State>(
        &self,
        mirror: OwnMirror,
        machine: &Machine<S>,
        now: Duration,
    ) -> Progress {
        let OwnMirror { to, number } = mirror;
        let revision = machine.revision().0;
        let Some(transfer) = self.transfer_of(mirror) else {
            let (behind, caught_up_ago) = (revision.saturating_sub(number), None);
            return Progress {
                to,
                number,
                holds: 0,
                complete: 0,
                behind,
                caught_up_ago,
                sent_bytes: 0,
            };
        };
        let is_caught_up = transfer.is_caught_up(machine);
        let behind = revision.saturating_sub(machine.mirror_sent(mirror, &transfer.acknowledged));
        let ago = transfer.caught_up.map(|at| now.saturating_sub(at));
        Progress {
            to,
            number,
            holds: transfer.source.held.len() as u32,
            complete: transfer.source.complete.len() as u32,
            behind: if is_caught_up { 0 } else { behind },
            caught_up_ago: if is_caught_up { Some(Duration::ZERO) } else { ago },
            sent_bytes: transfer.sender.sent_bytes(),
        }
    }
}

/// Ends the stream to a former backup.
fn end(own: SiteId, former: OwnMirror) -> Effect {
    let number = former.number;
    Effect::Propose(Command::Global(GlobalCommand::EndMirror { of: own, number }))
}

/// A stream cannot go on: a mirror begins anew, and a former one ends.
fn give_up<S: State>(machine: &Machine<S>, own: SiteId, mirror: OwnMirror) -> Effect {
    match machine.former_mirror() == Some(mirror) {
        true => end(own, mirror),
        false => {
            let to = Some(mirror.to);
            Effect::Propose(Command::Global(GlobalCommand::SetMirror { to }))
        }
    }
}

impl Transfer {
    fn new(mirror: OwnMirror, now: Duration) -> Transfer {
        Transfer {
            mirror,
            sender: Sender::new(now),
            source: Source { last_chunk: now, ..Source::default() },
            acknowledged: Sent::default(),
            last_cursor: now,
            caught_up: None,
            safe: None,
            tokens_changed: SlotSet::default(),
        }
    }

    /// Takes the next steps.
    fn poll<S: State>(
        &mut self,
        machine: &Machine<S>,
        from: SiteId,
        bytes_per_s_max: u64,
        out: &mut Outbox<'_>,
    ) {
        match self.sender.stage(out.now) {
            None | Some(Stage::Asked) => {}
            Some(Stage::Ask) => {
                // All tokens are looked at when it has answered.
                self.tokens_changed = SlotSet::default();
                let (number, step) = (self.mirror.number, MirrorStep::Begin);
                let begin = GlobalCommand::Mirror { from, number, step };
                self.sender.begin(out, Command::Global(begin));
            }
            Some(Stage::Sending) => {
                let changed = std::mem::take(&mut self.tokens_changed);
                if !changed.is_empty() {
                    self.source.follow(machine, &changed);
                }
                self.send(machine, from, bytes_per_s_max, out);
            }
        }
    }

    /// The last chunk after which the backup was caught up, if it has reported since then which
    /// slots are complete.
    fn safe(&self) -> Option<CaughtUp> {
        self.safe.filter(|safe| safe.sequence >= self.source.complete_since)
    }

    /// Whether the backup has all slots, complete, as they were at a moment since it was asked.
    fn has_everything(&self) -> bool {
        let Source { queue, copied, .. } = &self.source;
        let is_all = queue.is_empty() && copied.is_empty() && self.tokens_changed.is_empty();
        self.sender.is_sending() && is_all && self.safe().is_some()
    }

    /// Sends chunks, and has the cursors follow.
    fn send<S: State>(
        &mut self,
        machine: &Machine<S>,
        from: SiteId,
        bytes_per_s_max: u64,
        out: &mut Outbox<'_>,
    ) {
        let (now, mirror, source) = (out.now, self.mirror, &mut self.source);
        let number = mirror.number;
        let sent = self.sender.send(out, bytes_per_s_max, |sequence| {
            let Some((step, bytes, is_all)) = source.chunk(mirror, sequence, machine, now)? else {
                return Ok(None);
            };
            let caught_up = CaughtUp { sequence, at: now, revision: machine.revision().0 };
            Ok(Some(Chunk {
                command: Command::Global(GlobalCommand::Mirror { from, number, step }),
                bytes,
                mark: is_all.then_some(caught_up),
                pause: if is_all { PAUSE } else { Duration::ZERO },
            }))
        });
        match sent {
            Ok(true) => self.sender.pause_until(now + PAUSE),
            Ok(false) => return,
            Err(stopped) if must_begin_anew(&stopped) => {
                self.sender.wait_until(now + TIMEOUT);
                return out.effects.push(give_up(machine, from, mirror));
            }
            Err(stopped) => return out.effects.push(Effect::Fail(stopped.to_string())),
        }
        if self.sender.is_acknowledged() {
            self.acknowledged = self.source.sent.clone();
            self.caught_up = Some(now);
        }
        if self.last_cursor + CURSOR_PAUSE > now && !self.is_far(machine) {
            return;
        }
        self.last_cursor = now;
        for (&keyspace, &position) in &self.acknowledged.changes {
            let cursor = machine.mirror_cursor(mirror, keyspace);
            if let Some((name, _)) = cursor.filter(|(_, at)| *at < position) {
                let (name, position) = (name.to_owned(), Revision(position));
                let set = Command::SetCursor { name, keyspace, position };
                out.effects.push(Effect::Propose(set));
            }
        }
    }

    fn is_caught_up<S: State>(&self, machine: &Machine<S>) -> bool {
        let (sender, source) = (&self.sender, &self.source);
        let has_all = |sent| machine.mirror_sent(self.mirror, sent) >= machine.revision().0;
        let has_all =
            has_all(&self.acknowledged) || sender.is_acknowledged() && has_all(&source.sent);
        let is_complete = source.queue.is_empty() && source.copied.is_empty();
        sender.is_sending() && has_all && is_complete
    }

    fn is_far<S: State>(&self, machine: &Machine<S>) -> bool {
        let far = |(keyspace, position): (&KeyspaceId, &u64)| {
            let cursor = machine.mirror_cursor(self.mirror, *keyspace);
            cursor.is_some_and(|(_, at)| at + CURSOR_STEP <= *position)
        };
        self.acknowledged.changes.iter().any(far)
    }
}

impl Source {
    /// What the backup has reported: everything up to there, of slots that are complete.
    fn resume<S: State>(
        sent: Sent,
        chunks: u64,
        complete: &SlotEpochs,
        machine: &Machine<S>,
        last_chunk: Duration,
    ) -> Source {
        let (complete, complete_since) = (complete.runs().collect(), chunks);
        let mut source = Source { sent, complete, complete_since, last_chunk, ..Source::default() };
        source.follow(machine, &SlotSet::all());
        // What the backup has of slots that this site does not hold, or holds anew.
        let held = &source.held;
        let alike = |(run, epoch): (SlotRun, &Epoch)| {
            let epoch = *epoch;
            let alike = run.cut(|slot| held.run_at(slot).0);
            alike.filter(move |run| held.get(run.first) != Some(&epoch))
        };
        let old: Vec<SlotRun> = source.complete.runs().flat_map(alike).collect();
        for run in old {
            source.complete.set(run, None);
            source.gone.insert_run(run);
            if source.held.contains(run.first) {
                // It was not queued, as the backup has it; at another epoch, though.
                source.queue.extend(run.slots());
            }
        }
        source
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
            gone.runs().for_each(|run| self.complete.set(run, None));
            self.copied.retain(|slot| !gone.contains(*slot));
            self.queue.retain(|slot| !gone.contains(*slot));
            gone.runs().for_each(|run| self.gone.insert_run(run));
        }
        let complete = &self.complete;
        let new = new.into_iter().flat_map(|run| run.cut(|slot| complete.run_at(slot).0));
        let new = new.filter(|run| !complete.contains(run.first));
        self.queue.extend(new.flat_map(SlotRun::slots));
    }

    /// The next chunk, how long it is, and whether the mirror is caught up after it. `None`: there
    /// is nothing to send now.
    fn chunk<S: State>(
        &mut self,
        mirror: OwnMirror,
        sequence: u64,
        machine: &Machine<S>,
        now: Duration,
    ) -> Result<Option<(MirrorStep, usize, bool)>, Stopped> {
        let mut gathered = Gathered::default();
        let mut sent = self.sent.clone();
        // A clear among the changes is of the slots that were here then. What came since is copied
        // behind it, and so behind all changes.
        let is_all = machine.mirror_changes(mirror, &self.held_set, &mut sent, &mut gathered)?;
        let mut copied = Vec::new();
        let mut at = self.at.clone();
        for slot in self.queue.iter().take_while(|_| is_all) {
            if gathered.is_full() {
                break;
            }
            at = machine.mirror_slot(*slot, at.take(), &mut gathered)?;
            if at.is_some() {
                break;
            }
            copied.push(*slot);
        }
        let is_new = !gathered.items.is_empty()
            || !self.gone.is_empty()
            || !copied.is_empty()
            || !self.copied.is_empty()
            || !is_all;
        self.sent = sent;
        if !is_new && self.last_chunk + NOTHING_NEW > now {
            return Ok(None);
        }
        (self.at, self.last_chunk) = (at, now);
        self.queue.drain(..copied.len());
        self.copied.append(&mut copied);
        let mut changes_complete = !self.gone.is_empty();
        let reached = is_all.then(|| {
            let epoch = |slot: Slot| Some((slot, *self.held.get(slot)?));
            let complete: Vec<_> = self.copied.drain(..).filter_map(epoch).collect();
            self.complete.extend(complete.iter().copied());
            changes_complete |= !complete.is_empty();
            Reached {
                revision: machine.revision(),
                complete: SlotEpochs::gather(complete),
                holds: self.held.len() as u32,
            }
        });
        if changes_complete {
            self.complete_since = sequence;
        }
        machine.send_time(&mut gathered.items);
        let step = MirrorStep::Chunk {
            sequence,
            resume: row::encode(&self.sent).into(),
            gone: std::mem::take(&mut self.gone),
            items: gathered.items,
            reached,
        };
        Ok(Some((step, gathered.bytes, is_all && self.queue.is_empty())))
    }
}
