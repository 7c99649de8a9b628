//! Clients of causal keys in virtual time: sessions that take their token along from site to site.
//!
//! A session asks one thing after the other at the site where it is, with the token of its last
//! answer, as a program does with our client or over a connection to a front. It goes to another
//! site in between, by its workload or as it moves on the map, and asks there with the same token.
//! What certainly was not done it asks again, at one node of the site after the other, until
//! [`super::OPERATION_MAX`] has passed. A write without an answer it does not repeat, as its
//! outcome is unknown: but for puts of whole strings under a number, which it sends to any site
//! again.
//!
//! | file | its one idea |
//! | --- | --- |
//! | `asking` | one request, and what its answer shows |
//! | `attempts` | a put that may be sent to several sites |
//! | `audit` | all keys, read once more in the end |
//! | `refused` | sessions that were refused for good, and whether what they had seen was lost |
//! | `retried` | which writes have given way to such puts, by the order |
//! | `unresolved` | what goes into the history, once the order of the writes is known |

mod asking;
mod attempts;
mod audit;
mod refused;
mod retried;
mod unresolved;

use std::collections::HashMap;
use std::time::Duration;

use model::{
    Answer, Bytes, CausalToken, Failure, KeyspaceSpec, Miss, Refusal, Request, RequestId,
    SessionToken, SiteId,
};
use protocol::site::Ticket;

use self::asking::{Asked, Making};
use self::attempts::Numbered;
pub use self::audit::{Audit, audits};
use self::refused::is_for_good;
pub use self::refused::{Losses, RefusedSession};
pub use self::unresolved::{Ordering, Unresolved, expiring, folded, leave_void_out};
use super::client::Client;
use super::{ATTEMPT_MAX, BACKOFF, Ids, Lab, OPERATION_MAX, OPERATIONS_MAX, Trail};
use crate::history::{Got, Request as Line, Seen};
use crate::measure::{self, Measure};
use crate::run::Call;
use crate::workload::Spec;
use crate::workload::causal::{Act, Causal};
use crate::world::World;

/// Of the next attempts at a put that may have been made: so many are at another site.
const ELSEWHERE_PERMILLE: u64 = 800;

/// A session's own events.
#[derive(Debug)]
pub struct Due {
    session: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    /// It does the next thing.
    Begin,
    /// An attempt is made.
    Ask,
    /// An attempt's request reaches its node.
    Arrive { attempt: u32 },
    /// An attempt's answer reaches the client.
    Reply { attempt: u32, came: Box<Came> },
    /// An attempt has waited for long enough.
    Late { attempt: u32 },
}

/// What came of an attempt.
#[derive(Debug)]
struct Came {
    outcome: Result<Answer, Failure>,
    token: Option<SessionToken>,
}

/// A request under way.
struct Doing {
    asked: Asked,
    /// It is a put that any site may be asked for.
    numbered: Option<Numbered>,
    /// It has been made at a place of the order, and by no site.
    is_placed: bool,
    call: Duration,
    deadline: Duration,
    /// It is refused as the rule of its keyspace requires: nothing is to be judged.
    is_by_rule: bool,
}

/// A client, and its session.
struct Session {
    client: Client,
    causal: Causal,
    /// Which of the client's sessions it is, from 1.
    number: u64,
    /// Its last answer's.
    token: SessionToken,
    doing: Option<Doing>,
}

/// All clients of causal keys of a run.
pub struct Sessions<'w> {
    world: &'w World,
    sessions: Vec<Session>,
    ids: Ids,
    asked: HashMap<Ticket, (usize, u32)>,
    began: Duration,
    stopped: bool,
    busy: usize,
    /// What was asked and what came back.
    unresolved: Vec<Unresolved>,
    /// Sessions that were refused for good.
    pub refused: Vec<RefusedSession>,
    /// An answer that is none to its request, or lacks its token.
    pub malformed: Option<String>,
    /// A site answered for a keyspace for which it refuses requests.
    pub unheld: Option<String>,
}

fn begins() -> SessionToken {
    SessionToken::new(Bytes::new()).expect("no bytes are within the limit")
}

impl<'w> Sessions<'w> {
    /// The clients of a world, not yet begun.
    #[must_use]
    pub fn new(world: &'w World, seed: u64, duration: Duration, ids: Ids) -> Sessions<'w> {
        let mut sessions = Vec::new();
        let mut overall = 0;
        for (place, group) in world.clients.iter().enumerate() {
            for number in 0..group.count {
                if let Spec::Causal(causal) = group.workload {
                    let client = Client::new(world, place, number, seed, duration, overall);
                    let token = begins();
                    sessions.push(Session { client, causal, number: 1, token, doing: None });
                }
                overall += 1;
            }
        }
        Sessions {
            world,
            sessions,
            ids,
            asked: HashMap::new(),
            began: Duration::ZERO,
            stopped: false,
            busy: 0,
            unresolved: Vec::new(),
            refused: Vec::new(),
            malformed: None,
            unheld: None,
        }
    }

    /// The clients begin, each after its first think time.
    pub fn begin(&mut self, lab: &mut Lab) {
        self.began = lab.now();
        for session in 0..self.sessions.len() {
            let client = &mut self.sessions[session].client;
            let pace = self.world.clients[client.group].pace;
            let stagger = Duration::from_micros(client.random.below(10_000));
            let start = pace.next_start(self.began, self.began, &mut client.random) + stagger;
            client.scheduled = start;
            let due = Due { session, what: What::Begin };
            lab.call_after(start - self.began, Call::Session(due));
        }
    }

    /// No client begins anything new.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether no client waits for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Where the clients were, and at which site.
    pub fn trails(&mut self) -> Vec<Trail> {
        let clients = self.sessions.iter_mut().map(|session| &mut session.client);
        clients.map(|client| std::mem::take(&mut client.trail)).collect()
    }

    /// Takes in what nodes answered to sessions since the last time, and what crashes took along.
    pub fn take_answers(&mut self, lab: &mut Lab) {
        for answered in std::mem::take(&mut lab.answered) {
            match self.asked.remove(&answered.ticket) {
                Some(of) => {
                    let came = Came { outcome: answered.outcome, token: answered.token };
                    self.send_back(lab, of, came);
                }
                None => lab.answered.push(answered),
            }
        }
        for ticket in std::mem::take(&mut lab.lost) {
            match self.asked.remove(&ticket) {
                Some(of) => {
                    let lost = Failure::Unknown { why: "the connection broke" };
                    self.send_back(lab, of, Came { outcome: Err(lost), token: None });
                }
                None => lab.lost.push(ticket),
            }
        }
    }

    fn send_back(&mut self, lab: &mut Lab, (session, attempt): (usize, u32), came: Came) {
        let client = &mut self.sessions[session].client;
        if lab.sites[client.site].clients_cut {
            return;
        }
        let bytes = super::asking::answer_bytes(&came.outcome);
        let delay = client.delay_down(lab.now(), bytes);
        let what = What::Reply { attempt, came: Box::new(came) };
        lab.call_after(delay, Call::Session(Due { session, what }));
    }

    /// Something of a session's is due.
    pub fn take(&mut self, lab: &mut Lab, due: Due, measure: &mut Measure) {
        let Due { session, what } = due;
        match what {
            What::Begin => self.begin_request(lab, session, measure),
            What::Ask => self.ask(lab, session),
            What::Arrive { attempt } => self.arrive(lab, session, attempt),
            What::Reply { attempt, came } => self.reply(lab, session, attempt, *came, measure),
            What::Late { attempt } => {
                let late = Err(Failure::Unknown { why: "no answer in time" });
                self.reply(lab, session, attempt, Came { outcome: late, token: None }, measure);
            }
        }
    }

    fn begin_request(&mut self, lab: &mut Lab, session: usize, measure: &mut Measure) {
        if self.stopped {
            return;
        }
        let elapsed = lab.now().saturating_sub(self.began);
        let one = &mut self.sessions[session];
        let mut moved = one.client.go_where_it_is(self.world, elapsed, |site| lab.is_open(site));
        moved |= one.client.go_where_it_can(self.world, |site| lab.is_open(site));
        let asked = loop {
            let act = one.causal.next(&mut one.client.random);
            match act {
                Act::Go => moved |= one.go(self.world, lab),
                Act::Renew => one.renew(),
                act => {
                    let place = self.world.clients[one.client.group].keyspace;
                    let prefix = self.world.prefix(place);
                    one.client.values += 1;
                    let mark = format!("{}.{}", one.client.name, one.client.values);
                    let making = Making {
                        causal: &one.causal,
                        keyspace: self.ids.of(place, one.client.site),
                        prefix: &prefix,
                        mark: &mark,
                    };
                    if let Some(asked) = making.request(act) {
                        break asked;
                    }
                }
            }
        };
        if moved {
            measure.moved();
        }
        let call = lab.now();
        one.doing = Some(Doing {
            numbered: one.number_it(self.world, &asked),
            asked,
            is_placed: false,
            call,
            deadline: call + OPERATION_MAX,
            is_by_rule: false,
        });
        self.busy += 1;
        self.ask(lab, session);
    }

    /// One attempt leaves the client.
    fn ask(&mut self, lab: &mut Lab, session: usize) {
        let one = &mut self.sessions[session];
        let Some(doing) = &one.doing else { return };
        // What may have been done is not asked again, or may be asked again anywhere: so it may go
        // elsewhere at any time.
        one.client.go_where_it_can(self.world, |site| lab.is_open(site));
        let (now, attempt) = (lab.now(), one.client.attempt);
        let left = doing.deadline.saturating_sub(now);
        let may_repeat = doing.is_read() || doing.numbered.is_some();
        let timeout = if may_repeat { left.min(ATTEMPT_MAX) } else { left };
        let delay = one.client.delay_up(now, doing.asked.bytes());
        let arrive = Due { session, what: What::Arrive { attempt } };
        lab.call_after(delay, Call::Session(arrive));
        lab.call_after(timeout, Call::Session(Due { session, what: What::Late { attempt } }));
    }

    fn arrive(&mut self, lab: &mut Lab, session: usize, attempt: u32) {
        let one = &mut self.sessions[session];
        let Some(doing) = one.doing.as_mut().filter(|_| one.client.attempt == attempt) else {
            return;
        };
        let site = one.client.site;
        if lab.sites[site].clients_cut {
            return;
        }
        let left = doing.deadline.saturating_sub(lab.now()).as_millis() as u64;
        let id = lab.sites[site].id;
        let numbered = doing.numbered.as_mut();
        let body = match &numbered {
            Some(put) => put.attempt(),
            None => doing.asked.body.clone(),
        };
        let request = Request {
            deadline_ms: Some(left.max(1)),
            token: Some(one.token.clone()),
            ..Request::new(body)
        };
        let node = lab.sites[site].nodes[one.client.node];
        // One that is of no deployment has no causal keyspaces.
        match id.and_then(|_| lab.ask(node, request)) {
            Some(ticket) => {
                if let (Some(put), Some(id)) = (numbered, id) {
                    put.came_to(id);
                }
                self.asked.insert(ticket, (session, attempt));
            }
            None => {
                let outcome = Err(Failure::NotServing("the node is down"));
                self.send_back(lab, (session, attempt), Came { outcome, token: None });
            }
        }
    }

    fn reply(
        &mut self,
        lab: &mut Lab,
        session: usize,
        attempt: u32,
        came: Came,
        measure: &mut Measure,
    ) {
        let one = &mut self.sessions[session];
        if one.client.attempt != attempt {
            return;
        }
        let Some(doing) = &mut one.doing else { return };
        // Whatever else comes of this attempt comes too late.
        one.client.attempt += 1;
        let now = lab.now();
        let place = self.world.clients[one.client.group].keyspace;
        let spec = place.map(|place| &self.world.keyspaces[place]);
        if let Some(spec) = spec.filter(|spec| refuses(spec, lab.sites[one.client.site].id)) {
            doing.is_by_rule = matches!(came.outcome, Err(Failure::Refused(Refusal::NotCausal(_))));
            // To attach asks for nothing of the keyspace: any site answers that.
            let attaches = doing.asked.reads.is_empty() && doing.asked.mark.is_none();
            if came.outcome.is_ok() && !attaches {
                let site = lab.label(one.client.site);
                let why = format!("{site} answers for {}, which it does not hold", spec.name);
                self.unheld.get_or_insert(why);
            }
        }
        // Whether the session is, too.
        let mut is_over = false;
        let (got, shown) = match came.outcome {
            Ok(answer) => match (doing.asked.shown(&answer), came.token) {
                (Some(shown), Some(token)) => {
                    doing.asked.note_written(&answer);
                    doing.is_placed = matches!(answer, Answer::Placed(_));
                    one.token = token;
                    (Got::Done, shown)
                }
                (shown, _) => {
                    let what = if shown.is_none() { "answer" } else { "token" };
                    let why =
                        format!("a session's request was answered without its {what}: {answer:?}");
                    self.malformed.get_or_insert(why.clone());
                    (Got::Unknown { why }, Vec::new())
                }
            },
            Err(Failure::Unknown { why }) if !doing.is_read() => {
                if let Some(put) = doing.numbered.as_mut().filter(|_| now < doing.deadline) {
                    put.is_unsure = true;
                    return self.ask_again(lab, session, measure);
                }
                (Got::Unknown { why: why.to_owned() }, Vec::new())
            }
            Err(failure) => {
                if let Some(put) = &mut doing.numbered {
                    put.was_not_made();
                }
                let refused = match &failure {
                    Failure::Session(error) if is_for_good(error) => Some(error.clone()),
                    _ => None,
                };
                is_over = refused.is_some();
                let deadline = doing.deadline;
                let is_leaving = failure == Failure::Refused(Refusal::Leaving);
                if is_leaving && one.go(self.world, lab) {
                    measure.moved();
                }
                let is_final = is_over || matches!(failure, Failure::Refused(_)) && !is_leaving;
                if !is_final && now < deadline {
                    return self.ask_again(lab, session, measure);
                }
                if let Some(error) = refused {
                    let (client, site) = (one.name(), lab.label(one.client.site));
                    let token = CausalToken::of_session(&one.token).unwrap_or_default();
                    self.refused.push(RefusedSession { client, site, at: now, token, error });
                }
                let why = failure.to_string();
                let is_unsure = one.doing.as_ref().is_some_and(Doing::is_unsure);
                (if is_unsure { Got::Unknown { why } } else { Got::Failed { why } }, Vec::new())
            }
        };
        self.end(lab, session, got, shown, measure);
        if is_over {
            self.sessions[session].renew();
        }
    }

    /// The next attempt, at another node: of a put that may have been made mostly at another site.
    fn ask_again(&mut self, lab: &mut Lab, session: usize, measure: &mut Measure) {
        let one = &mut self.sessions[session];
        let is_unsure = one.doing.as_ref().is_some_and(Doing::is_unsure);
        if is_unsure && one.client.random.chance(ELSEWHERE_PERMILLE) && one.go(self.world, lab) {
            measure.moved();
        }
        let nodes = lab.sites[one.client.site].nodes.len();
        one.client.node = (one.client.node + 1) % nodes;
        let rest = one.client.random.between(BACKOFF);
        measure.retry(lab.now().saturating_sub(self.began));
        lab.call_after(rest, Call::Session(Due { session, what: What::Ask }));
    }

    /// A request ends: it goes into the history, and the next one is planned.
    fn end(
        &mut self,
        lab: &mut Lab,
        session: usize,
        got: Got,
        shown: Vec<asking::Found>,
        measure: &mut Measure,
    ) {
        let now = lab.now();
        let one = &mut self.sessions[session];
        let Some(doing) = one.doing.take() else { return };
        self.busy -= 1;
        let result = match got {
            Got::Done => measure::Outcome::Ok,
            _ => measure::Outcome::Error,
        };
        let kind = if doing.asked.writes.is_empty() { 6 } else { 7 };
        let at = now.saturating_sub(self.began);
        measure.record(at, kind, now - doing.call, result);
        if self.unresolved.len() < OPERATIONS_MAX && !doing.is_by_rule {
            let (mut reads, mut marks) = (Vec::new(), Vec::new());
            for (register, mark) in shown {
                reads.push(Seen { register, found: None, absent: mark.is_none() });
                marks.push(mark);
            }
            let line = Line {
                client: one.name(),
                site: lab.label(one.client.site),
                call_us: doing.call.as_micros() as u64,
                return_us: Some(now.as_micros() as u64),
                reads,
                writes: doing.asked.writes,
                write: None,
                got,
            };
            let token = CausalToken::of_session(&one.token).filter(|_| !doing.is_placed);
            let written = token.and_then(|token| token.written);
            let seen = CausalToken::of_session(&one.token).unwrap_or_default().seen;
            let mark = doing.asked.mark;
            self.unresolved.push(Unresolved { line, marks, mark, written, seen, is_void: false });
        }
        let pace = self.world.clients[one.client.group].pace;
        let start = pace.next_start(one.client.scheduled, now, &mut one.client.random);
        one.client.scheduled = start;
        let due = Due { session, what: What::Begin };
        lab.call_after(start.saturating_sub(now), Call::Session(due));
    }

    /// The ids of the world's keyspaces.
    #[must_use]
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// What was asked and what came back.
    pub fn take_unresolved(&mut self) -> Vec<Unresolved> {
        std::mem::take(&mut self.unresolved)
    }
}

/// Whether a site must not answer for a keyspace.
#[must_use]
pub fn refuses(spec: &KeyspaceSpec, site: Option<SiteId>) -> bool {
    spec.miss == Miss::Refuse && site.is_some_and(|site| !spec.is_held_by(site))
}

impl Doing {
    /// Whether nothing is left behind by it, so that it may be asked again.
    fn is_read(&self) -> bool {
        self.asked.writes.is_empty()
    }

    /// Whether it may have been done, and is asked again.
    fn is_unsure(&self) -> bool {
        self.numbered.as_ref().is_some_and(|put| put.is_unsure)
    }
}

impl Session {
    /// Its name in the history: each session of a client has its own.
    fn name(&self) -> String {
        match self.number {
            1 => self.client.name.clone(),
            number => format!("{}~{number}", self.client.name),
        }
    }

    /// Some puts get a number, where sites take them so.
    fn number_it(&mut self, world: &World, asked: &Asked) -> Option<Numbered> {
        let spec = &world.keyspaces[world.clients[self.client.group].keyspace?];
        let client = &mut self.client;
        let may = spec.is_causal() && spec.sites.is_empty();
        if !may || !client.random.chance(self.causal.numbered_permille) {
            return None;
        }
        let (client_id, sequence) = (client.id, client.sequence + 1);
        let request = RequestId { client: client_id, sequence, acknowledged_below: 0 };
        let numbered = Numbered::of(&asked.body, request)?;
        client.sequence = sequence;
        Some(numbered)
    }

    /// Begins anew, having seen nothing.
    fn renew(&mut self) {
        self.number += 1;
        self.token = begins();
    }

    /// Goes to another site that is open, if there is one.
    fn go(&mut self, world: &World, lab: &Lab) -> bool {
        let others = (0..world.sites.len()).filter(|site| *site != self.client.site);
        let open: Vec<usize> = others.filter(|site| lab.is_open(*site)).collect();
        if open.is_empty() {
            return false;
        }
        let other = *self.client.random.pick(&open);
        self.client.go_to(world, other);
        true
    }
}
