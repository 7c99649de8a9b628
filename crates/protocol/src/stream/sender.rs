//! The sending side of a stream.
//!
//! Volatile: a sender that is lost begins anew with the question what the destination has. Pure:
//! time comes in as a number.

use crate::job::Effect;
use model::{Command, SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the sender waits after a failure, and its user for a step that was proposed.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The destination is to be asked what it has.
    Ask,
    /// It was asked for something that must be answered first.
    Asked,
    /// Chunks go.
    Sending,
}

/// A request to the destination.
#[derive(Debug)]
enum Request<M> {
    Begin,
    Chunk { sequence: u64, bytes: usize, mark: M },
    Other,
}

/// A chunk to be sent.
#[derive(Debug)]
pub(crate) struct Chunk<M> {
    /// What carries it.
    pub(crate) command: Command,
    pub(crate) bytes: usize,
    /// Comes back with its acknowledgement.
    pub(crate) mark: M,
    /// The shortest time until the next one.
    pub(crate) pause: Duration,
}

/// What a sender asks of its destination goes here.
pub(crate) struct Outbox<'a> {
    pub(crate) now: Duration,
    pub(crate) to: SiteId,
    /// Numbers the requests of all senders of a job.
    pub(crate) last_id: &'a mut u64,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl Outbox<'_> {
    fn ask(&mut self, command: Command) -> u64 {
        *self.last_id += 1;
        self.effects.push(Effect::ask(*self.last_id, self.to, command));
        *self.last_id
    }
}

/// What an answer of the destination was to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The question what it has.
    Begun,
    /// A chunk, and there is nothing to be done about it.
    Acknowledged,
    /// A chunk; it was the last one under way, and some were not taken in.
    Gap,
    /// Something that does not count any more.
    Nothing,
}

/// One stream, at its source. `M` is what its user remembers of each chunk until that is
/// acknowledged.
#[derive(Debug)]
pub(crate) struct Sender<M> {
    stage: Stage,
    /// Of the next chunk.
    sequence: u64,
    /// Those without an answer, by their numbers.
    requests: BTreeMap<u64, Request<M>>,
    /// A chunk was not taken in, as one before it is missing: nothing more is sent until all are
    /// answered.
    has_gap: bool,
    /// Nothing is asked or sent before.
    not_before: Duration,
    /// When the next chunk may go, by the throttle.
    next_chunk: Duration,
    sent_bytes: u64,
}

impl<M> Sender<M> {
    /// A sender that begins now.
    pub(crate) fn new(now: Duration) -> Sender<M> {
        Sender {
            stage: Stage::Ask,
            sequence: 0,
            requests: BTreeMap::new(),
            has_gap: false,
            not_before: now,
            next_chunk: now,
            sent_bytes: 0,
        }
    }

    /// What comes next; `None`: nothing before its time.
    pub(crate) fn stage(&self, now: Duration) -> Option<Stage> {
        (self.not_before <= now).then_some(self.stage)
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.stage == Stage::Sending
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// The number of the next chunk: so many there are.
    pub(crate) fn chunks(&self) -> u64 {
        self.sequence
    }

    /// Bytes of all chunks that were sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn inflight(&self) -> impl Iterator<Item = usize> + '_ {
        self.requests.values().filter_map(|request| match request {
            Request::Chunk { bytes, .. } => Some(*bytes),
            Request::Begin | Request::Other => None,
        })
    }

    /// Bytes of chunks without an acknowledgement.
    pub(crate) fn inflight_bytes(&self) -> usize {
        self.inflight().sum()
    }

    /// Whether every chunk is acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.inflight().next().is_none()
    }

    /// Whether an answer under this number is this sender's.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.requests.contains_key(&id)
    }

    /// When it must be polled, if that is known.
    pub(crate) fn next_due(&self, now: Duration) -> Option<Duration> {
        let throttled = if self.next_chunk > now { self.next_chunk } else { Duration::ZERO };
        Some(self.not_before.max(throttled)).filter(|at| *at > now)
    }

    /// Nothing is asked or sent before.
    pub(crate) fn wait_until(&mut self, at: Duration) {
        self.not_before = at;
    }

    /// What it waits for is there.
    pub(crate) fn wake(&mut self, now: Duration) {
        if self.is_sending() {
            self.not_before = self.not_before.min(now);
        }
    }

    /// The next chunk does not go before, whatever the throttle.
    pub(crate) fn pause_until(&mut self, at: Duration) {
        self.next_chunk = at;
    }

    /// Asks the destination what it has. Answers to all before do not count.
    pub(crate) fn begin(&mut self, out: &mut Outbox<'_>, command: Command) {
        self.requests = [(out.ask(command), Request::Begin)].into();
        self.stage = Stage::Asked;
    }

    /// Asks the destination for something else, behind all chunks.
    pub(crate) fn ask(&mut self, out: &mut Outbox<'_>, command: Command) {
        self.requests.insert(out.ask(command), Request::Other);
        self.stage = Stage::Asked;
    }

    /// From now on the destination has so many chunks: the next one has that number.
    pub(crate) fn resume(&mut self, chunks: u64) {
        self.requests.clear();
        self.sequence = chunks;
        self.has_gap = false;
        self.stage = Stage::Sending;
    }

    /// What the destination has is unknown: it is asked, not before this time.
    pub(crate) fn restart(&mut self, at: Duration) {
        self.requests.clear();
        self.has_gap = false;
        self.not_before = at;
        self.stage = Stage::Ask;
    }

    /// The destination has answered that it has so many chunks. Also returns the mark of a chunk
    /// that is taken in.
    pub(crate) fn acknowledged(
        &mut self,
        id: u64,
        chunks: u64,
        now: Duration,
    ) -> (Event, Option<M>) {
        let (sequence, mark) = match self.requests.remove(&id) {
            Some(Request::Begin) => return (Event::Begun, None),
            Some(Request::Chunk { sequence, mark, .. }) => (sequence, mark),
            Some(Request::Other) | None => return (Event::Nothing, None),
        };
        // Another leader has asked it what it has; since then it waits for other chunks.
        if chunks > self.sequence {
            self.restart(now);
            return (Event::Nothing, None);
        }
        let is_taken = chunks > sequence;
        self.has_gap |= !is_taken;
        // What is missing may be on its way yet, until everything is answered.
        let is_short = self.has_gap || chunks < self.sequence;
        let event = match self.is_acknowledged() && is_short {
            true => Event::Gap,
            false => Event::Acknowledged,
        };
        (event, is_taken.then_some(mark))
    }

    /// A request has failed: what the destination has is unknown. Whether it was one that comes
    /// behind all chunks.
    pub(crate) fn failed(&mut self, id: u64, now: Duration) -> bool {
        let is_other = matches!(self.requests.remove(&id), Some(Request::Other));
        self.restart(now + TIMEOUT);
        is_other
    }

    /// Sends what there is, as far as the window and the throttle let it (`bytes_per_s_max`; 0: as
    /// much as goes). Returns whether there is nothing more to send now.
    ///
    /// # Errors
    /// Those of `next`, which makes the chunk of a number.
    pub(crate) fn send<E>(
        &mut self,
        out: &mut Outbox<'_>,
        bytes_per_s_max: u64,
        mut next: impl FnMut(u64) -> Result<Option<Chunk<M>>, E>,
    ) -> Result<bool, E> {
        loop {
            let is_full = self.inflight().count() >= limits::MOVE_CHUNKS_INFLIGHT_MAX;
            if is_full || self.has_gap || self.next_chunk > out.now {
                return Ok(false);
            }
            let sequence = self.sequence;
            let Some(Chunk { command, bytes, mark, pause }) = next(sequence)? else {
                return Ok(true);
            };
            self.requests.insert(out.ask(command), Request::Chunk { sequence, bytes, mark });
            self.sequence += 1;
            self.sent_bytes += bytes as u64;
            let span_us = (bytes as u64 * 1_000_000).checked_div(bytes_per_s_max).unwrap_or(0);
            self.next_chunk = out.now + pause.max(Duration::from_micros(span_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::GlobalCommand;

    const ROUND: Duration = Duration::from_millis(10);
    const CHUNK_BYTES: usize = 1_000;

    /// A source with so many chunks to send, and a destination at a distance, in virtual time.
    struct World {
        sender: Sender<u64>,
        left: u64,
        bytes_per_s_max: u64,
        now: Duration,
        last_id: u64,
        effects: Vec<Effect>,
        /// Requests on their way: when they arrive, and of a chunk its number.
        under_way: Vec<(Duration, u64, Option<u64>)>,
        /// What the destination has taken in.
        taken: Vec<u64>,
        has: u64,
        /// The numbers of requests that are lost, or late by a round.
        lost: Vec<u64>,
        late: Vec<u64>,
        acknowledged: Vec<u64>,
        begun: u32,
    }

    impl World {
        fn new(chunks: u64) -> World {
            World {
                sender: Sender::new(Duration::ZERO),
                left: chunks,
                bytes_per_s_max: 0,
                now: Duration::ZERO,
                last_id: 0,
                effects: Vec::new(),
                under_way: Vec::new(),
                taken: Vec::new(),
                has: 0,
                lost: Vec::new(),
                late: Vec::new(),
                acknowledged: Vec::new(),
                begun: 0,
            }
        }

        fn poll(&mut self) {
            let (now, last_id, effects) = (self.now, &mut self.last_id, &mut self.effects);
            let mut out = Outbox { now, to: SiteId(2), last_id, effects };
            let command = || Command::Global(GlobalCommand::SetMirror { to: None });
            let mut asked = Vec::new();
            match self.sender.stage(now) {
                None | Some(Stage::Asked) => {}
                Some(Stage::Ask) => {
                    self.sender.begin(&mut out, command());
                    asked.push(None);
                }
                Some(Stage::Sending) => {
                    let first = self.sender.chunks();
                    let until = self.left;
                    let next = |sequence: u64| -> Result<_, ()> {
                        // When chunks are numbered anew, they go on from a multiple of this.
                        Ok((sequence % 1_000 < until).then(|| Chunk {
                            command: command(),
                            bytes: CHUNK_BYTES,
                            mark: sequence,
                            pause: Duration::ZERO,
                        }))
                    };
                    self.sender.send(&mut out, self.bytes_per_s_max, next).unwrap();
                    asked.extend((first..self.sender.chunks()).map(Some));
                }
            }
            let ids = self.last_id - asked.len() as u64 + 1..;
            for (id, chunk) in ids.zip(asked) {
                let is_late = self.late.contains(&id);
                let at = self.now + if is_late { 2 * ROUND } else { ROUND };
                self.under_way.push((at, id, chunk));
            }
        }

        /// What arrives by now is answered at once.
        fn take(&mut self) {
            let (due, rest) = std::mem::take(&mut self.under_way)
                .into_iter()
                .partition::<Vec<_>, _>(|(at, ..)| *at <= self.now);
            self.under_way = rest;
            for (_, id, chunk) in due {
                if self.lost.contains(&id) {
                    self.sender.failed(id, self.now);
                    continue;
                }
                if chunk == Some(self.has) {
                    self.taken.push(self.has % 1_000);
                    self.has += 1;
                }
                if !self.sender.has(id) {
                    continue;
                }
                let (event, mark) = self.sender.acknowledged(id, self.has, self.now);
                self.acknowledged.extend(mark);
                match event {
                    Event::Begun | Event::Gap => {
                        self.begun += u32::from(event == Event::Begun);
                        self.sender.resume(self.has);
                    }
                    Event::Acknowledged | Event::Nothing => {}
                }
            }
        }

        fn run(&mut self, ms: u64) {
            let until = self.now + Duration::from_millis(ms);
            while self.now < until {
                self.poll();
                self.take();
                self.now += Duration::from_millis(1);
            }
        }

        fn has_all(&self) -> bool {
            self.taken == (0..self.left).collect::<Vec<_>>() && self.sender.is_acknowledged()
        }
    }

    #[test]
    fn chunks_go_in_a_window_and_each_is_taken_in_once() {
        let mut world = World::new(40);
        world.run(11);
        assert_eq!(world.begun, 1);
        world.poll();
        assert_eq!(world.under_way.len(), limits::MOVE_CHUNKS_INFLIGHT_MAX);
        assert_eq!(world.sender.inflight_bytes(), 16 * CHUNK_BYTES);
        world.run(100);
        assert!(world.has_all(), "{:?}", world.taken);
        assert_eq!(world.acknowledged.len(), 40);
        assert_eq!(world.sender.sent_bytes(), 40 * CHUNK_BYTES as u64);
    }

    #[test]
    fn a_chunk_that_is_late_leaves_a_gap_that_is_sent_again_when_all_are_answered() {
        let mut world = World::new(10);
        // The first request is the question; this is chunk 3.
        world.late = vec![5];
        world.run(22);
        assert!(world.sender.has_gap());
        world.poll();
        assert_eq!(world.under_way.len(), 1, "nothing more is sent before that");
        world.run(30);
        assert!(world.has_all(), "{:?}", world.taken);
        assert_eq!(world.begun, 1, "it is not asked again what it has");
        assert!(!world.sender.has_gap());
    }

    #[test]
    fn after_a_failure_the_destination_is_asked_what_it_has() {
        let mut world = World::new(10);
        world.lost = vec![5];
        world.run(30);
        assert_eq!(world.taken, [0, 1, 2]);
        assert_eq!(world.sender.stage(world.now), None, "not before its time");
        world.run(TIMEOUT.as_millis() as u64 + 40);
        assert!(world.has_all(), "{:?}", world.taken);
        assert_eq!(world.begun, 2);
    }

    #[test]
    fn a_throttle_spreads_chunks_over_time() {
        let mut world = World::new(10);
        world.bytes_per_s_max = 100_000;
        world.run(60);
        assert_eq!(world.sender.chunks(), 5, "one each 10 ms, from the answer on");
        let due = world.sender.next_due(world.now);
        assert!(due.is_some_and(|at| at <= world.now + ROUND), "{due:?}");
        world.run(100);
        assert!(world.has_all(), "{:?}", world.taken);
    }

    /// Another leader of the source has asked the destination, which numbers chunks anew since
    /// then.
    #[test]
    fn a_sender_that_another_one_has_followed_asks_again() {
        let mut world = World::new(10);
        world.left = 4;
        world.run(40);
        assert!(world.has_all());
        world.has += 1_000;
        world.left = 10;
        world.run(60);
        assert_eq!(world.begun, 2);
        assert!(world.has_all(), "{:?}", world.taken);
    }

    #[test]
    fn what_is_asked_behind_all_chunks_is_waited_for() {
        let mut world = World::new(2);
        world.run(12);
        let (last_id, effects) = (&mut world.last_id, &mut world.effects);
        let mut out = Outbox { now: world.now, to: SiteId(2), last_id, effects };
        world.sender.ask(&mut out, Command::Global(GlobalCommand::SetMirror { to: None }));
        assert_eq!(world.sender.stage(world.now), Some(Stage::Asked));
        assert!(world.sender.failed(world.last_id, world.now), "it was no chunk");
        assert!(world.sender.is_acknowledged(), "answers to chunks do not count any more");
    }
}
