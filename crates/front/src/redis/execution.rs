//! Executes the commands of a pipeline: in order, as many as possible at once.
//!
//! Reads that may be answered on this thread are answered at once. Requests for the site gather in
//! a [`Run`]: successive reads, or successive writes. A run is sent when a command of another kind
//! follows, or when no more commands have arrived: as a whole, or in parts if it asks for values
//! ([`super::parts`]). So the replies of a connection keep the order of its commands, and a read
//! behind a write sees it. The effects keep it too, except that a write of a global key at another
//! site may come after those of other keys behind it in its run: to come first, each would have to
//! wait for the answer of that site.

use super::args::is;
use super::cluster::place;
use super::commands::causal::{Attach, HAS_SESSION, causal_keyspace};
use super::commands::connection::Credentials;
use super::commands::scan::check_flush;
use super::connection::{Connection, REPLY_BYTES};
use super::notifications::By;
use super::parts::answer_bytes;
use super::refused::{Refused, failure_text};
use super::step::{Op, Shape, write_outcome};
use super::table::{self, CommandNumber, CommandSpec, Own, flag, table};
use crate::causal::{self, Answers};
use model::{
    Answer, Catalog, CausalCommand, Command, Failure, Keyspace, KeyspaceId, Query, ReadConsistency,
    Request, Step, limits,
};
use server::Outcome;
use server::users::Right;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::{Encoder, Frame};

/// Commands to be sent to the site together.
#[derive(Default)]
pub(super) struct Run {
    are_writes: bool,
    /// Nothing joins it: it is a read that the session's later ones depend on.
    is_alone: bool,
    bytes: usize,
    requests: Vec<Request>,
    shapes: Vec<(Shape, CommandNumber)>,
    /// How many requests the last run had. The next one has room for as many at once, as growing
    /// moves all of them.
    last: usize,
}

/// Equal commands that were answered and are not yet counted.
#[derive(Clone, Copy, Default)]
pub(super) struct Answered {
    number: CommandNumber,
    times: u64,
    errors: u64,
}

/// Reply slots that a connection keeps allocated between runs.
const RUN_KEPT: usize = 64;

/// A command that passed all checks: it exists, its arity is right, and the user may run it.
struct Admitted {
    number: CommandNumber,
    spec: &'static CommandSpec,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Runs a command on data that need not wait: answers it, or adds it to the run. `false`: it
    /// must run in order. Almost all commands take this path.
    pub(super) fn do_now(&mut self, frame: &Frame) -> bool {
        let catalog = self.catalog.take().unwrap_or_else(|| self.thread.handle.catalog());
        let is_done = self.do_with(frame, &catalog);
        self.catalog = Some(catalog);
        is_done
    }

    fn do_with(&mut self, frame: &Frame, catalog: &Catalog) -> bool {
        if self.session.transaction.is_some() {
            return false;
        }
        let Ok(Admitted { number, spec }) = self.admit(frame) else { return false };
        if self.lacks_keyspaces(spec) {
            return false;
        }
        let table::Run::Data(parse) = spec.run else { return false };
        let Ok((keyspace, op)) = self.read_data(frame, spec, parse, catalog) else { return false };
        matches!(self.answer_or_push(keyspace, op, number, frame.wire_bytes()), Ok(true))
    }

    /// Answers a command, or adds it to the run. `false`: the run must be sent first.
    fn answer_or_push(
        &mut self,
        keyspace: &Keyspace,
        op: Op,
        number: CommandNumber,
        wire_bytes: usize,
    ) -> Result<bool, Refused> {
        match op.step {
            // A step of transactions; no command consists of it alone.
            Step::ReadIn { .. } => Ok(false),
            Step::Read(query) => {
                if keyspace.spec.is_causal() {
                    if self.run.requests.is_empty() {
                        let (handle, session) = (&self.thread.handle, &mut self.session.causal);
                        if let Some(outcome) = session.answer_here(handle, keyspace.id, &query) {
                            self.write_outcome(outcome, &op.shape, number);
                            return Ok(true);
                        }
                    }
                    let request = self.causal_read(keyspace.id, query);
                    let answered_as = (op.shape, number);
                    return Ok(self.run.push_alone(request, answered_as, false, wire_bytes));
                }
                let consistency = self.session.consistency;
                if self.run.requests.is_empty()
                    && let Some(outcome) = self.answer_here(keyspace.id, &query, consistency)
                {
                    self.write_outcome(outcome, &op.shape, number);
                    return Ok(true);
                }
                let request = Request::read(keyspace.id, query, consistency);
                let request = self.session.routed(request);
                Ok(self.run.push(request, (op.shape, number), false, wire_bytes))
            }
            Step::Write(write) => {
                let attempt = match &op.once {
                    Some(once) => once.command(&self.thread.handle, keyspace, &write)?,
                    None => None,
                };
                let plain = || Command::Write { keyspace: keyspace.id, write, request: None };
                let command = attempt.unwrap_or_else(plain);
                let token = keyspace.spec.is_causal().then(|| self.session.causal.token());
                let is_retry = matches!(command, Command::Causal(CausalCommand::Retry { .. }));
                let is_sent_elsewhere =
                    token.is_some() && (is_retry || !self.thread.handle.holds(keyspace.id));
                let request = Request { token, ..Request::write(command) };
                let request = self.session.routed(request);
                Ok(match is_sent_elsewhere {
                    // The log of another site orders it: what is before it must have a place there,
                    // and what comes after must wait.
                    true => self.run.push_alone(request, (op.shape, number), true, wire_bytes),
                    false => self.run.push(request, (op.shape, number), true, wire_bytes),
                })
            }
        }
    }

    /// Runs a command after all earlier ones have completed.
    pub(super) async fn do_in_turn(&mut self, frame: &Frame) -> io::Result<()> {
        self.finish_run().await?;
        self.catalog = None;
        self.do_and_answer(frame).await;
        let is_data = |spec: &CommandSpec| matches!(spec.run, table::Run::Data(_));
        let found = table().find(frame.arg(0)).map(|(_, spec)| spec);
        if self.session.transaction.is_some() || !found.is_some_and(is_data) {
            self.session.publish();
        }
        Ok(())
    }

    async fn do_and_answer(&mut self, frame: &Frame) {
        if let Err(Refused(text)) = self.do_alone(frame).await {
            self.encoder().error(&text);
            if let Some(transaction) = &mut self.session.transaction {
                transaction.is_broken = true;
            }
            if let Some((number, _)) = table().find(frame.arg(0)) {
                self.count(number, true);
            }
        }
    }

    async fn do_alone(&mut self, frame: &Frame) -> Result<(), Refused> {
        let Admitted { number, spec } = match self.admit(frame) {
            Err(refused) if is(frame.arg(0), "exec") => {
                (self.session.transaction, self.session.watched) = (None, None);
                return Err(refused.ends_transaction());
            }
            admitted => admitted?,
        };
        if self.lacks_keyspaces(spec) {
            let known = self.thread.handle.wait_until_current(limits::REQUEST_DEADLINE).await;
            known.map_err(refused)?;
        }
        if self.session.transaction.is_some() {
            return self.queue_or_end(frame, number, spec).await;
        }
        match spec.run {
            table::Run::Data(parse) => {
                let catalog = self.thread.handle.catalog();
                let (keyspace, op) = self.read_data(frame, spec, parse, &catalog)?;
                // The command is valid, so it only had to wait for the run before it.
                let is_taken = self.answer_or_push(keyspace, op, number, frame.wire_bytes())?;
                debug_assert!(is_taken, "an empty run takes everything");
                self.catalog = Some(catalog);
            }
            table::Run::Local(answer) => {
                let mut out = Encoder::new(&mut self.replies, self.session.version);
                answer(&mut self.session, frame, &mut out)?;
                self.count(number, false);
            }
            table::Run::Own(own) => {
                self.do_own(frame, own).await?;
                self.count(number, false);
            }
        }
        Ok(())
    }

    /// Whether a command needs keyspaces that this node, which has just started, may not have
    /// applied yet: their keys would be taken for keys of `default`. A stale read goes by what is
    /// applied, as its answer does.
    fn lacks_keyspaces(&self, spec: &CommandSpec) -> bool {
        let is_stale = self.session.consistency != ReadConsistency::Linearizable;
        !self.thread.handle.is_current()
            && spec.run.needs_keyspaces()
            && !(is_stale && spec.has(flag::READONLY))
    }

    /// Checks everything about a command that does not depend on its arguments.
    fn admit(&self, frame: &Frame) -> Result<Admitted, Refused> {
        let Some((number, spec)) = table().find(frame.arg(0)) else {
            return Err(Refused::unknown_command(frame));
        };
        if !spec.takes(frame.len()) {
            return Err(Refused::arity(spec.name));
        }
        if self.session.user.is_none() && !spec.has(flag::NO_AUTH) {
            return Err(Refused::NOT_AUTHENTICATED);
        }
        if self.session.is_subscriber() && !is_for_subscribers(spec) {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                spec.name
            );
            return Err(Refused(text.into()));
        }
        Ok(Admitted { number, spec })
    }

    /// Parses a command on data: its keyspace, its step, and whether this user may run it.
    pub(super) fn read_data<'a>(
        &self,
        frame: &Frame,
        spec: &CommandSpec,
        parse: fn(&Frame) -> Result<Op, Refused>,
        catalog: &'a Catalog,
    ) -> Result<(&'a Keyspace, Op), Refused> {
        let op = parse(frame)?;
        let keyspace = self.keyspace_of(frame, spec, catalog)?;
        self.session.check_rights(keyspace, op.rights())?;
        Ok((keyspace, op))
    }

    /// The keyspace of a command's keys, if a command may combine them and this port serves them.
    pub(super) fn keyspace_of<'a>(
        &self,
        frame: &Frame,
        spec: &CommandSpec,
        catalog: &'a Catalog,
    ) -> Result<&'a Keyspace, Refused> {
        match self.session.is_cluster() {
            true => place::keyspace_of(frame, spec, catalog),
            false => keyspace_of(frame, spec, catalog),
        }
    }

    /// Sends the run to the site and writes the replies. Sends those to the client that would
    /// take much memory.
    pub(super) async fn finish_run(&mut self) -> io::Result<()> {
        if self.run.requests.is_empty() {
            return Ok(());
        }
        let mut requests = std::mem::take(&mut self.run.requests);
        self.run.last = requests.len();
        let mut shapes = std::mem::take(&mut self.run.shapes);
        (self.run.bytes, self.run.is_alone) = (0, false);
        let mut answered_as = shapes.drain(..);
        while !requests.is_empty() {
            let size = self.part_size.of(&requests);
            let later = requests.split_off(size);
            let part = std::mem::replace(&mut requests, later);
            let replies = self.thread.handle.call_many_in_session(part).await;
            let (mut answers, mut bytes) = (Answers::default(), 0);
            for (reply, (shape, number)) in replies.into_iter().zip(&mut answered_as) {
                answers.note(&reply);
                bytes += reply.outcome.as_ref().map_or(0, answer_bytes);
                self.write_outcome(reply.outcome, &shape, number);
                if self.replies.len() >= REPLY_BYTES {
                    self.send().await?;
                }
            }
            self.session.causal.take(answers);
            self.part_size.follow(size, bytes);
        }
        drop(answered_as);
        if shapes.capacity() <= RUN_KEPT {
            self.run.shapes = shapes;
        }
        Ok(())
    }

    fn write_outcome(&mut self, outcome: Outcome, shape: &Shape, number: CommandNumber) {
        let now_ms = if shape.needs_now() { self.now_ms() } else { 0 };
        let is_error = write_outcome(outcome, shape, now_ms, &mut self.encoder());
        self.count(number, is_error);
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.thread.handle.clock().now().wall_ms
    }

    /// Counts an answered command. Successive equal commands are counted together, and timed when
    /// their answers are about to be sent.
    pub(super) fn count(&mut self, number: CommandNumber, is_error: bool) {
        if self.answered.number != number {
            self.note_answered();
            self.answered.number = number;
        }
        self.answered.times += 1;
        self.answered.errors += u64::from(is_error);
    }

    /// Records the commands counted last.
    pub(super) fn note_answered(&mut self) {
        let Answered { number, times, errors } = self.answered;
        if times > 0 {
            let took = self.thread.handle.clock().monotonic().saturating_sub(self.since);
            self.thread.count(number, times, took, errors);
            self.answered = Answered::default();
        }
    }

    /// A read of a causal keyspace in the connection's session. READONLY changes nothing: each read
    /// is answered by this node's state, once that covers what the session has seen.
    fn causal_read(&self, keyspace: KeyspaceId, query: Query) -> Request {
        let token = Some(self.session.causal.token());
        Request { token, ..Request::read(keyspace, query, ReadConsistency::Linearizable) }
    }

    /// Sends one query to one keyspace; answers it on this thread if that is allowed.
    pub(super) async fn ask(
        &mut self,
        keyspace: KeyspaceId,
        query: Query,
        consistency: ReadConsistency,
    ) -> Outcome {
        let handle = &self.thread.handle;
        if handle.catalog().by_id(keyspace).is_some_and(|found| found.spec.is_causal()) {
            if let Some(outcome) = self.session.causal.answer_here(handle, keyspace, &query) {
                return outcome;
            }
            return self.call_in_session(self.causal_read(keyspace, query)).await;
        }
        match self.answer_here(keyspace, &query, consistency) {
            Some(outcome) => outcome,
            None => {
                let request = Request::read(keyspace, query, consistency);
                handle.call(self.session.routed(request)).await
            }
        }
    }

    /// Answers a query on this thread if that is allowed.
    fn answer_here(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        consistency: ReadConsistency,
    ) -> Option<Outcome> {
        let handle = &self.thread.handle;
        handle.answer_here(keyspace, query, consistency, self.session.seen_as())
    }

    pub(super) async fn do_own(&mut self, frame: &Frame, own: Own) -> Result<(), Refused> {
        match own {
            Own::Auth => {
                let credentials = Credentials::of_auth(frame)?;
                self.login(credentials, frame.len() == 2).await?;
                self.encoder().ok();
            }
            Own::Hello => self.hello(frame).await?,
            Own::Quit => {
                self.encoder().ok();
                self.session.is_closing = true;
            }
            Own::Reset => {
                self.session.reset();
                self.encoder().simple("RESET");
            }
            Own::Multi => {
                self.session.transaction = Some(Box::default());
                self.encoder().ok();
            }
            Own::Exec => return Err(Refused::because("ERR EXEC without MULTI")),
            Own::Discard => return Err(Refused::because("ERR DISCARD without MULTI")),
            Own::Watch => {
                let Admitted { spec, .. } = self.admit(frame)?;
                self.watch(frame, spec).await?;
            }
            Own::Unwatch => {
                self.session.watched = None;
                self.encoder().ok();
            }
            Own::Scan => self.scan(frame).await?,
            Own::Keys => self.keys(frame).await?,
            Own::DbSize => self.db_size().await?,
            Own::Flush => {
                check_flush(frame)?;
                self.session.check_right_everywhere(Right::Admin)?;
                self.flush().await?;
                self.encoder().ok();
            }
            Own::Subscribe => self.subscribe(frame, By::Channel).await?,
            Own::PSubscribe => self.subscribe(frame, By::Pattern).await?,
            Own::Unsubscribe => self.unsubscribe(frame, By::Channel),
            Own::PUnsubscribe => self.unsubscribe(frame, By::Pattern),
            Own::Cluster => self.cluster(frame).await?,
            Own::Attach => {
                self.attach(frame).await?;
                self.encoder().ok();
            }
        }
        Ok(())
    }

    pub(super) async fn change(&self, command: Command) -> Result<Answer, Refused> {
        let request = self.session.routed(Request::write(command));
        self.thread.handle.call(request).await.map_err(refused)
    }

    /// The same in a causal keyspace.
    pub(super) async fn change_in_session(&mut self, command: Command) -> Result<Answer, Refused> {
        let token = Some(self.session.causal.token());
        let request = Request { token, ..Request::write(command) };
        self.call_in_session(request).await.map_err(refused)
    }

    async fn call_in_session(&mut self, request: Request) -> Outcome {
        let reply = self.thread.handle.call_in_session(request).await;
        let mut answers = Answers::default();
        answers.note(&reply);
        self.session.causal.take(answers);
        reply.outcome
    }

    /// Waits until this site covers what another session had seen, which this one has seen from
    /// then on.
    async fn attach(&mut self, frame: &Frame) -> Result<(), Refused> {
        let attach = Attach::of(frame)?;
        let handle = &self.thread.handle;
        let keyspace = causal_keyspace(&self.session, &handle.catalog())?;
        let opened = attach.open(handle)?;
        if attach.is_later {
            let session = &mut self.session.causal;
            return if session.begin_as(opened) { Ok(()) } else { Err(HAS_SESSION) };
        }
        let (token, deadline_ms) = (Some(opened.token()), attach.within_ms);
        let began = handle.clock().monotonic();
        let read = Request::read(keyspace, causal::admission(), ReadConsistency::Linearizable);
        let reply = handle.call_in_session(Request { token, deadline_ms, ..read }).await;
        let mut answers = Answers::default();
        answers.note(&reply);
        reply.outcome.map_err(refused)?;
        if self.session.causal.attach(&answers) {
            return Ok(());
        }
        // What this session has written at another site needs a position first.
        let token = Some(self.session.causal.token());
        let deadline_ms = left(deadline_ms, began, handle.clock().monotonic());
        let read = Request::read(keyspace, causal::admission(), ReadConsistency::Linearizable);
        self.call_in_session(Request { token, deadline_ms, ..read }).await.map_err(refused)?;
        self.session.causal.attach(&answers);
        Ok(())
    }
}

/// What is left of a time limit, at least a millisecond; `None`: there is none.
fn left(within_ms: Option<u64>, began: Duration, now: Duration) -> Option<u64> {
    let spent_ms = u64::try_from(now.saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
    within_ms.map(|ms| ms.saturating_sub(spent_ms).max(1))
}

/// The keyspace of a command's keys, which must all be in one.
pub(super) fn keyspace_of<'a>(
    frame: &Frame,
    spec: &CommandSpec,
    catalog: &'a Catalog,
) -> Result<&'a Keyspace, Refused> {
    let mut places = spec.keys.places(frame.len());
    let first = places.next().expect("a command on data has a key");
    let keyspace = catalog.of_key(frame.arg(first));
    match places.map(|place| catalog.of_key(frame.arg(place))).find(|other| other.id != keyspace.id)
    {
        None => Ok(keyspace),
        Some(other) => Err(Refused::two_keyspaces(&keyspace.spec.name, &other.spec.name)),
    }
}

fn is_for_subscribers(spec: &CommandSpec) -> bool {
    let own = [
        Own::Subscribe,
        Own::PSubscribe,
        Own::Unsubscribe,
        Own::PUnsubscribe,
        Own::Quit,
        Own::Reset,
    ];
    match spec.run {
        table::Run::Own(this) => own.contains(&this),
        _ => spec.name == "ping",
    }
}

/// A failure as an error of the command.
pub(super) fn refused(failure: Failure) -> Refused {
    Refused(failure_text(&failure))
}

impl Run {
    /// Adds a request of a causal keyspace if there is no other one: the next read of its session
    /// must be answered by no older state, and is as soon as this one's answer is there.
    fn push_alone(
        &mut self,
        request: Request,
        answered_as: (Shape, CommandNumber),
        is_write: bool,
        wire_bytes: usize,
    ) -> bool {
        if !self.requests.is_empty() {
            return false;
        }
        self.is_alone = true;
        self.push(request, answered_as, is_write, wire_bytes)
    }

    /// Adds a request, unless the run must be sent first.
    fn push(
        &mut self,
        request: Request,
        answered_as: (Shape, CommandNumber),
        is_write: bool,
        wire_bytes: usize,
    ) -> bool {
        let is_full = self.requests.len() >= limits::PIPELINE_MAX
            || self.bytes + wire_bytes > limits::BATCH_BYTES_MAX;
        let is_another_kind = self.are_writes != is_write || self.is_alone;
        if !self.requests.is_empty() && (is_full || is_another_kind) {
            return false;
        }
        self.are_writes = is_write;
        self.bytes += wire_bytes;
        if self.requests.is_empty() {
            self.requests.reserve(self.last);
        }
        self.requests.push(request);
        self.shapes.push(answered_as);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_wait_has_what_is_left_of_the_time_limit() {
        let ms = Duration::from_millis;
        assert_eq!(left(Some(250), ms(1_000), ms(1_100)), Some(150));
        assert_eq!(left(Some(250), ms(1_000), ms(1_250)), Some(1));
        assert_eq!(left(Some(250), ms(1_000), ms(9_000)), Some(1));
        assert_eq!(left(None, ms(1_000), ms(1_100)), None);
    }
}
