//! Performs moves, step by step.
//!
//! Before any move all servers are inspected and open slots are closed ([`Mover::run`]). A slot
//! that cannot be explained is reported and left; so is one whose move fails four times, or that has
//! a key too large for the time that a server has to answer.

use crate::atomic::{self, Kind};
use crate::cluster::{Cluster, ClusterError, Survey};
use crate::connection::{CallError, text};
use crate::plan::{self, Next, SlotState, Step, Trouble};
use crate::view::{NodeId, View};
use bytes::Bytes;
use model::{Slot, SlotSet};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::resp::Reply;

/// `MIGRATE` stops the source while it runs, so its keys are bounded.
const BATCH_KEYS: usize = 256;
/// And their bytes; a larger key goes alone.
const BATCH_BYTES: u64 = 1 << 20;
/// How fast a key is taken to go from server to server: packed, sent and unpacked.
const KEY_BYTES_PER_S: u64 = 32 << 20;
/// Of how many of its keys the sizes are read before a slot's move begins. The keys of a slot are
/// listed from the first one only, and a list stops the source while it is made.
const INSPECTED_KEYS: u64 = 16_384;
/// How many characters of a key a reason has.
const KEY_SHOWN: usize = 64;
/// How many sizes a server is to prepare at once.
const SIZES: usize = 1_024;
/// How often a step that fails is tried again, from a new look at the slot.
const RETRIES: usize = 3;
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long servers may take to agree on owners after a failover or a move.
const AGREE: Duration = Duration::from_secs(3);
/// How long they may take to know of all claims. What a claim does not spread itself comes with
/// their next ping, after half of `cluster-node-timeout`: 7.5 s by default.
const SETTLE: Duration = Duration::from_secs(10);
/// How often they are asked whether they do.
const SETTLED_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What happens while slots move.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A step is done.
    Done {
        /// Of this slot.
        slot: Slot,
        /// The step.
        step: &'a Step,
        /// The addresses of the servers.
        survey: &'a Survey,
    },
    /// Keys have been copied.
    Copied {
        /// Of this slot.
        slot: Slot,
        /// How many.
        keys: u64,
        /// As large as they are in memory.
        bytes: u64,
    },
    /// A slot has arrived, or is closed.
    Arrived(Slot),
    /// A slot is left as it is.
    Left(Slot, &'a str),
    /// The server moves these slots by itself.
    Waiting(&'a str),
}

/// What came of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Slots that arrived, or were closed.
    pub arrived: SlotSet,
    /// Slots that are left, and why.
    pub left: BTreeMap<Slot, String>,
    /// Of those, the ones that nothing was tried with: a server that has a part in them does not
    /// answer, or the servers do not know each other's last claims.
    pub untried: SlotSet,
    /// Keys copied.
    pub keys: u64,
    /// Their bytes in memory. Of moves by the server's own command nothing is known.
    pub bytes: u64,
}

/// The cluster as all of its servers report it.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What they report.
    pub survey: Survey,
    /// Slots that are open and can be closed.
    pub open: SlotSet,
    /// Slots that a person has to look at.
    pub troubles: BTreeMap<Slot, Trouble>,
    /// How many keys each master has of each slot.
    pub keys: BTreeMap<Slot, BTreeMap<NodeId, u64>>,
}

/// Reads the whole cluster.
///
/// # Errors
/// No server answers, or not as expected.
pub async fn inspect(cluster: &mut Cluster) -> Result<Picture, ClusterError> {
    let survey = cluster.survey().await?;
    let keys = cluster.count_keys(&survey, &SlotSet::all()).await?;
    let mut picture = Picture { survey, keys, ..Picture::default() };
    for slot in Slot::all() {
        let state = picture.state(slot);
        match plan::next(&state, None) {
            // Without a mark it is only that a master has yet to learn of the owner.
            Next::Do(_) if state.is_open() => picture.open.insert(slot),
            Next::Do(_) | Next::Done => {}
            Next::Leave(trouble) => {
                picture.troubles.insert(slot, trouble);
            }
        }
    }
    Ok(picture)
}

impl Picture {
    /// A slot at all masters.
    pub fn state(&self, slot: Slot) -> SlotState {
        self.survey.state(slot, self.keys.get(&slot).unwrap_or(&BTreeMap::new()))
    }

    /// The owner of each slot that is not in trouble.
    pub fn owner(&self, slot: Slot) -> Option<&NodeId> {
        let mut owners = self.survey.owners(slot);
        owners.next().filter(|_| !self.troubles.contains_key(&slot))
    }

    /// Whether servers may only have to hear of each other.
    fn may_agree_soon(&self) -> bool {
        let is_passing =
            |trouble: &Trouble| matches!(trouble, Trouble::TwoOwners(..) | Trouble::NoOwner);
        self.troubles.values().any(is_passing)
    }
}

/// Why a step is not done.
#[derive(Debug)]
enum Obstacle {
    /// A call failed; it may succeed when tried again.
    Failed(CallError),
    /// A claim could lose.
    Unsettled(String),
    /// A key is larger than may go.
    Large {
        /// The key.
        key: Bytes,
        /// Its size in memory.
        bytes: u64,
        /// What may go.
        most: u64,
    },
}

impl From<CallError> for Obstacle {
    fn from(error: CallError) -> Obstacle {
        Obstacle::Failed(error)
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Obstacle::Failed(error) => error.fmt(f),
            Obstacle::Unsettled(why) => f.write_str(why),
            Obstacle::Large { key, bytes, most } => {
                let key: String = String::from_utf8_lossy(key).chars().take(KEY_SHOWN).collect();
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                write!(
                    f,
                    "the key {key:?} has {} MiB, and the source stops while it goes: above {} MiB \
                     (two thirds of --timeout, at {} MiB/s) none goes",
                    mib(*bytes),
                    most >> 20,
                    mib(KEY_BYTES_PER_S)
                )
            }
        }
    }
}

/// Moves slots of one cluster.
pub struct Mover<'a> {
    cluster: &'a mut Cluster,
    /// The least time between two steps: a brake.
    pace: Duration,
    /// Whether the server's own command is used where there is one.
    atomic: bool,
    /// Slots that are not touched.
    except: SlotSet,
    /// Why no slot is moved any more, once claims could lose for long.
    unsettled: Option<String>,
    report: &'a mut dyn FnMut(Event<'_>),
}

impl<'a> Mover<'a> {
    /// Over a cluster; `report` gets what happens.
    pub fn new(cluster: &'a mut Cluster, report: &'a mut dyn FnMut(Event<'_>)) -> Mover<'a> {
        let (pace, atomic, except, unsettled) = (Duration::ZERO, true, SlotSet::default(), None);
        Mover { cluster, pace, atomic, except, unsettled, report }
    }

    /// With a pause after each step.
    pub fn pace(self, pace: Duration) -> Mover<'a> {
        Mover { pace, ..self }
    }

    /// Whether to use the server's own command where there is one.
    pub fn atomic(self, atomic: bool) -> Mover<'a> {
        Mover { atomic, ..self }
    }

    /// Without these slots: they are neither closed nor moved nor reported.
    pub fn except(self, except: SlotSet) -> Mover<'a> {
        Mover { except, ..self }
    }

    /// Closes the slots that an earlier run left open: all that can be explained.
    async fn resume(&mut self, outcome: &mut Outcome) -> Result<Picture, ClusterError> {
        let mut picture = self.settled().await?;
        self.cluster.alone(&picture.survey).await?;
        while let Some(moves) = atomic::running(self.cluster, &picture.survey).await {
            (self.report)(Event::Waiting(&moves));
            sleep(RETRY_AFTER).await;
            picture = self.settled().await?;
        }
        for slot in picture.open.clone().iter() {
            if !self.except.contains(slot) {
                self.carry(&picture, slot, None, outcome).await?;
            }
        }
        if !picture.open.is_empty() {
            picture = self.settled().await?;
        }
        for (slot, trouble) in &picture.troubles {
            // It may be left already: closing it has failed.
            if !self.except.contains(*slot) && !outcome.left.contains_key(slot) {
                outcome.left.insert(*slot, trouble.named(|id| picture.survey.shown(id)));
                if matches!(trouble, Trouble::Silent(_)) {
                    outcome.untried.insert(*slot);
                }
            }
        }
        Ok(picture)
    }

    /// Closes the slots that an earlier run left open (all that can be explained), then moves
    /// slots, in the order given. What comes of it is added to `outcome`, also before an error.
    ///
    /// # Errors
    /// No server answers, or another run moves slots. Before the first move an owner that does not
    /// answer is an error too: its slots may be anywhere.
    pub async fn run(
        &mut self,
        goals: &[(Slot, NodeId)],
        outcome: &mut Outcome,
    ) -> Result<(), ClusterError> {
        let picture = self.resume(outcome).await?;
        if goals.is_empty() {
            return Ok(());
        }
        if let Some(id) = picture.survey.silent_owners().first() {
            return Err(ClusterError::Silent(picture.survey.shown(id)));
        }
        let mut goals: Vec<(Slot, NodeId)> = goals.to_vec();
        goals.retain(|(slot, _)| match picture.troubles.get(slot) {
            _ if self.except.contains(*slot) => false,
            Some(trouble) => {
                let why = trouble.named(|id| picture.survey.shown(id));
                self.leave(*slot, &why, outcome);
                false
            }
            // It was open, and closing it has failed just now.
            None => !outcome.left.contains_key(slot),
        });
        let rest = match self.atomic {
            true => self.by_the_server(&picture, goals, outcome).await?,
            false => goals,
        };
        for (slot, goal) in &rest {
            if let Some(why) = self.unsettled.clone() {
                self.leave_untried(*slot, &why, outcome);
                continue;
            }
            self.carry(&picture, *slot, Some(goal), outcome).await?;
        }
        Ok(())
    }

    /// The cluster once its servers agree on owners, or do not in time.
    async fn settled(&mut self) -> Result<Picture, ClusterError> {
        let began = Instant::now();
        loop {
            let picture = inspect(self.cluster).await?;
            if !picture.may_agree_soon() || began.elapsed() > AGREE {
                return Ok(picture);
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Moves what the servers can move themselves; what they cannot is returned.
    async fn by_the_server(
        &mut self,
        picture: &Picture,
        goals: Vec<(Slot, NodeId)>,
        outcome: &mut Outcome,
    ) -> Result<Vec<(Slot, NodeId)>, ClusterError> {
        let mut rest = Vec::new();
        let mut groups: BTreeMap<(NodeId, NodeId), SlotSet> = BTreeMap::new();
        for (slot, goal) in goals {
            match picture.owner(slot).cloned() {
                Some(owner) if owner != goal && picture.survey.views.contains_key(&goal) => {
                    groups.entry((owner, goal)).or_default().insert(slot);
                }
                _ => rest.push((slot, goal)),
            }
        }
        for ((from, to), slots) in groups {
            self.cluster.still_alone(&picture.survey).await?;
            let kind = atomic::kind(self.cluster, &from, &to).await;
            let Some(kind) = kind else {
                rest.extend(slots.iter().map(|slot| (slot, to.clone())));
                continue;
            };
            if let Err(why) = self.claims_settled(&[&from, &to]).await {
                slots.iter().for_each(|slot| self.leave_untried(slot, &why, outcome));
                continue;
            }
            self.whole(kind, (&from, &to), &slots, outcome).await?;
            sleep(self.pace).await;
        }
        Ok(rest)
    }

    /// One order to a server; the owners afterwards show what came of it.
    async fn whole(
        &mut self,
        kind: Kind,
        (from, to): (&NodeId, &NodeId),
        slots: &SlotSet,
        outcome: &mut Outcome,
    ) -> Result<(), ClusterError> {
        let done = atomic::order(self.cluster, kind, from, to, slots, self.report).await;
        let survey = self.cluster.survey().await?;
        let why = done.err().map(|error| error.to_string());
        let why = why.unwrap_or_else(|| "the server has not moved it".to_owned());
        for slot in slots.iter() {
            match survey.owners(slot).any(|owner| owner == to) {
                true => self.arrive(slot, outcome),
                false => self.leave(slot, &why, outcome),
            }
        }
        Ok(())
    }

    fn arrive(&mut self, slot: Slot, outcome: &mut Outcome) {
        (self.report)(Event::Arrived(slot));
        outcome.arrived.insert(slot);
    }

    fn leave(&mut self, slot: Slot, why: &str, outcome: &mut Outcome) {
        (self.report)(Event::Left(slot, why));
        // It may have been closed first.
        outcome.arrived.remove(slot);
        outcome.left.insert(slot, why.to_owned());
    }

    fn leave_untried(&mut self, slot: Slot, why: &str, outcome: &mut Outcome) {
        self.leave(slot, why, outcome);
        outcome.untried.insert(slot);
    }

    /// Takes one slot through its steps.
    async fn carry(
        &mut self,
        picture: &Picture,
        slot: Slot,
        goal: Option<&NodeId>,
        outcome: &mut Outcome,
    ) -> Result<(), ClusterError> {
        let survey = &picture.survey;
        self.cluster.still_alone(survey).await?;
        // As old as the picture: servers refuse a step that has become wrong, and the one that they
        // would not is confirmed.
        let mut state = picture.state(slot);
        let mut failures = 0;
        loop {
            let step = match plan::next(&state, goal) {
                Next::Do(step) => step,
                Next::Done => {
                    self.arrive(slot, outcome);
                    return Ok(());
                }
                Next::Leave(trouble) => {
                    self.leave(slot, &trouble.named(|id| survey.shown(id)), outcome);
                    return Ok(());
                }
            };
            match self.attempt(survey, slot, goal, &step, &mut state, outcome).await {
                Ok(false) => {}
                Ok(true) => {
                    (self.report)(Event::Done { slot, step: &step, survey });
                    sleep(self.pace).await;
                }
                Err(Obstacle::Unsettled(why)) => {
                    match step {
                        Step::Import { .. } => self.leave_untried(slot, &why, outcome),
                        _ => self.leave(slot, &why, outcome),
                    }
                    return Ok(());
                }
                Err(obstacle)
                    if failures == RETRIES || matches!(obstacle, Obstacle::Large { .. }) =>
                {
                    let at = survey.shown(step.at());
                    self.leave(slot, &format!("{at}: {obstacle}"), outcome);
                    return Ok(());
                }
                Err(_) => {
                    failures += 1;
                    sleep(RETRY_AFTER).await;
                    state = self.look(slot).await?;
                }
            }
        }
    }

    /// A slot at all masters, now.
    async fn look(&mut self, slot: Slot) -> Result<SlotState, ClusterError> {
        let survey = self.cluster.survey().await?;
        let one: SlotSet = [slot].into_iter().collect();
        let keys = self.cluster.count_keys(&survey, &one).await?;
        Ok(survey.state(slot, keys.get(&slot).unwrap_or(&BTreeMap::new())))
    }

    /// Performs a step, unless it is not right any more.
    async fn attempt(
        &mut self,
        survey: &Survey,
        slot: Slot,
        goal: Option<&NodeId>,
        step: &Step,
        state: &mut SlotState,
        outcome: &mut Outcome,
    ) -> Result<bool, Obstacle> {
        // Asked before the first step, so that a slot does not stay open for it.
        let is_claim = matches!(step, Step::Assign { at, owner } if at == owner);
        if is_claim || matches!(step, Step::Import { .. }) {
            let ends: Vec<NodeId> = state.owner().into_iter().chain([step.at()]).cloned().collect();
            let ends: Vec<&NodeId> = ends.iter().collect();
            self.claims_settled(&ends).await.map_err(Obstacle::Unsettled)?;
        }
        let is_right = self.confirmed(slot, step, state, goal).await?;
        if is_right {
            self.perform(survey, slot, step, state, outcome).await?;
        }
        Ok(is_right)
    }

    /// Waits until no claim can lose: the slot would be lost with it, as its new owner deletes its
    /// keys, and both send clients to each other. After it has waited once in vain nothing is moved
    /// any more.
    async fn claims_settled(&mut self, ends: &[&NodeId]) -> Result<(), String> {
        let began = Instant::now();
        while self.unsettled.is_none() {
            let survey = self.cluster.answering().await;
            let Some(unsettled) = survey.unsettled(ends) else { return Ok(()) };
            if began.elapsed() > SETTLE {
                self.unsettled = Some(unsettled.named(|id| survey.shown(id)));
            }
            sleep(SETTLED_AGAIN_AFTER).await;
        }
        Err(self.unsettled.clone().unwrap_or_default())
    }

    /// Whether a step is still right. The mark at the source replaces one that another tool has set
    /// since the picture, and the keys that are at that one's target by now would belong to no
    /// move: the source confirms that it has none. Assigning the slot to its target destroys what
    /// the source has, so the source confirms that its mark stands (without it keys can be made
    /// there) and that it is empty.
    async fn confirmed(
        &mut self,
        slot: Slot,
        step: &Step,
        state: &mut SlotState,
        goal: Option<&NodeId>,
    ) -> Result<bool, CallError> {
        let source = match step {
            Step::Migrate { at, .. } => Some(at),
            Step::Assign { at, owner } if at == owner => state.owner(),
            _ => None,
        };
        let Some(source) = source.cloned() else { return Ok(true) };
        let count = ["CLUSTER".to_owned(), "COUNTKEYSINSLOT".to_owned(), slot.to_string()];
        let view = ["CLUSTER".to_owned(), "NODES".to_owned()];
        let commands = [view.to_vec(), count.to_vec()];
        let replies = self.cluster.pipeline(&source, &commands).await?;
        let strange = || CallError::Strange("CLUSTER NODES".to_owned());
        let [nodes, Reply::Integer(keys)] = &replies[..] else { return Err(strange()) };
        let view = text(nodes.clone()).and_then(|text| View::parse(&text).ok());
        let view = view.ok_or_else(strange)?;
        let part = state.parts.entry(source).or_default();
        part.owner = view.owner(slot).cloned();
        part.migrating = view.migrating.get(&slot).cloned();
        part.keys = keys.unsigned_abs();
        Ok(plan::next(state, goal) == Next::Do(step.clone()))
    }

    async fn perform(
        &mut self,
        survey: &Survey,
        slot: Slot,
        step: &Step,
        state: &mut SlotState,
        outcome: &mut Outcome,
    ) -> Result<(), Obstacle> {
        let Step::Copy { from, to } = step else {
            if let Step::Import { from, .. } = step {
                let keys = state.parts.get(from).map_or(0, |part| part.keys);
                self.inspect_keys(slot, from, keys.min(INSPECTED_KEYS)).await?;
            }
            self.cluster.call(step.at(), step.words(slot)).await?;
            state.apply(step);
            return Ok(());
        };
        let (keys, bytes) = self.copy(survey, slot, from, to).await?;
        (outcome.keys, outcome.bytes) = (outcome.keys + keys, outcome.bytes + bytes);
        let mut move_keys = |id: &NodeId, change: &dyn Fn(u64) -> u64| {
            let part = state.parts.entry(id.clone()).or_default();
            part.keys = change(part.keys);
        };
        move_keys(to, &|had| had + keys);
        // Others may come and go; only a page without a key shows that there are none.
        move_keys(from, &|had| if keys == 0 { 0 } else { had.saturating_sub(keys).max(1) });
        if keys > 0 {
            (self.report)(Event::Copied { slot, keys, bytes });
        }
        Ok(())
    }

    /// Copies some keys; how many, and their bytes.
    async fn copy(
        &mut self,
        survey: &Survey,
        slot: Slot,
        from: &NodeId,
        to: &NodeId,
    ) -> Result<(u64, u64), Obstacle> {
        let keys = self.first_keys(slot, from, BATCH_KEYS as u64).await?;
        let (keys, bytes) = self.small_enough(from, keys).await?;
        if keys.is_empty() {
            return Ok((0, 0));
        }
        let seen = survey.views.get(from).and_then(|view| view.peers.get(to));
        let target = seen.and_then(|peer| peer.address());
        let unknown =
            || CallError::Lost("the source does not know the target's address".to_owned());
        let target = target.ok_or_else(unknown)?;
        let access = self.cluster.access();
        let timeout = timeout(access.deadline).as_millis().to_string();
        let port = target.port.to_string();
        let mut words: Vec<&[u8]> = vec![b"MIGRATE", target.host.as_bytes(), port.as_bytes()];
        words.extend([&b""[..], b"0", timeout.as_bytes(), b"REPLACE"]);
        let credentials = access.credentials.clone();
        match &credentials {
            Some(login) if login.user.is_empty() => {
                words.extend([&b"AUTH"[..], login.password.as_bytes()]);
            }
            Some(login) => {
                words.extend([&b"AUTH2"[..], login.user.as_bytes(), login.password.as_bytes()]);
            }
            None => {}
        }
        words.push(b"KEYS");
        words.extend(keys.iter().map(|key| &key[..]));
        self.cluster.call(from, words).await?;
        Ok((keys.len() as u64, bytes))
    }

    /// Ends with an error if one of the slot's first keys is larger than may go: found in mid-move
    /// it would leave the slot open.
    async fn inspect_keys(&mut self, slot: Slot, at: &NodeId, count: u64) -> Result<(), Obstacle> {
        if count == 0 {
            return Ok(());
        }
        let keys = self.first_keys(slot, at, count).await?;
        for some in keys.chunks(SIZES) {
            self.sizes(at, some).await?;
        }
        Ok(())
    }

    /// So many keys of a slot, or all.
    async fn first_keys(
        &mut self,
        slot: Slot,
        at: &NodeId,
        count: u64,
    ) -> Result<Vec<Bytes>, CallError> {
        let page = ["CLUSTER".to_owned(), "GETKEYSINSLOT".to_owned(), slot.to_string()];
        let page = [&page[..], &[count.to_string()]].concat();
        let strange = || CallError::Strange("GETKEYSINSLOT".to_owned());
        let Reply::Array(page) = self.cluster.call(at, page).await? else {
            return Err(strange());
        };
        let key = |reply: Reply| if let Reply::Bulk(key) = reply { Some(key) } else { None };
        page.into_iter().map(key).collect::<Option<Vec<Bytes>>>().ok_or_else(strange)
    }

    /// As many of the keys as may go at once, and their bytes.
    async fn small_enough(
        &mut self,
        at: &NodeId,
        mut keys: Vec<Bytes>,
    ) -> Result<(Vec<Bytes>, u64), Obstacle> {
        let (mut taken, mut bytes) = (0, 0);
        for size in self.sizes(at, &keys).await? {
            if taken > 0 && bytes + size > BATCH_BYTES {
                break;
            }
            (taken, bytes) = (taken + 1, bytes + size);
        }
        keys.truncate(taken);
        Ok((keys, bytes))
    }

    /// The sizes of keys in memory. `MIGRATE` of a key that is too large for the time that it has
    /// fails each time, after it has stopped the source, so that is an error.
    async fn sizes(&mut self, at: &NodeId, keys: &[Bytes]) -> Result<Vec<u64>, Obstacle> {
        let usage = |key: &Bytes| {
            vec![Bytes::from_static(b"MEMORY"), Bytes::from_static(b"USAGE"), key.clone()]
        };
        let commands: Vec<_> = keys.iter().map(usage).collect();
        let most = key_bytes_max(self.cluster.access().deadline);
        let mut sizes = Vec::with_capacity(keys.len());
        for (key, reply) in keys.iter().zip(self.cluster.pipeline(at, &commands).await?) {
            let bytes = match reply {
                Reply::Integer(bytes) => bytes.unsigned_abs(),
                // Of unknown size, keys could stop the source for long.
                Reply::Error(text) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    return Err(CallError::Refused(text).into());
                }
                // The key is gone.
                _ => 0,
            };
            if bytes > most {
                return Err(Obstacle::Large { key: key.clone(), bytes, most });
            }
            sizes.push(bytes);
        }
        Ok(sizes)
    }
}

/// How long `MIGRATE` may take: the server gives up before this program does.
fn timeout(deadline: Duration) -> Duration {
    deadline * 2 / 3
}

/// How large a key may be so that it goes in that time.
fn key_bytes_max(deadline: Duration) -> u64 {
    (timeout(deadline).as_millis() as u64).saturating_mul(KEY_BYTES_PER_S) / 1_000
}

#[cfg(test)]
mod tests;
