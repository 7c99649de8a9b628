//! MULTI and WATCH.
//!
//! Between MULTI and EXEC commands are parsed and queued. EXEC makes one [`Command::Transaction`]
//! of them: its guards are the versions that WATCH read, its steps the queued commands, and each
//! step's answer becomes the reply to its command. EXEC runs commands that need no site (PING,
//! CLIENT …) itself, at their places among the replies.

use super::connection::Connection;
use super::execution::refused;
use super::refused::Refused;
use super::session::Session;
use super::step::{Op, Shape, write_outcome};
use super::sweep::Whole;
use super::table::flag::NO_MULTI;
use super::table::{CommandNumber, CommandSpec, Own, Run};
use bytes::Bytes;
use model::{
    Answer, Command, Failure, Guard, Keyspace, KeyspaceId, Query, ReadConsistency, ReadPoint,
    Revision, Step, limits,
};
use server::users::Right;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::{Encoder, Frame};

/// The function of a local command.
type Local = fn(&mut Session, &Frame, &mut Encoder<'_>) -> Result<(), Refused>;

/// The keyspace of a transaction: that of its first key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    id: KeyspaceId,
    name: String,
    is_global: bool,
    is_causal: bool,
}

impl Place {
    /// Checks that a key's keyspace is this one, or sets it.
    fn take(place: &mut Option<Place>, keyspace: &Keyspace) -> Result<(), Refused> {
        match place {
            None => {
                let name = keyspace.spec.name.clone();
                let (is_global, is_causal) = (keyspace.spec.is_global(), keyspace.spec.is_causal());
                *place = Some(Place { id: keyspace.id, name, is_global, is_causal });
                Ok(())
            }
            Some(place) if place.id == keyspace.id => Ok(()),
            Some(place) => Err(Refused::two_keyspaces(&place.name, &keyspace.spec.name)),
        }
    }
}

/// The source of a queued command's reply.
enum Reply {
    /// The next step's answer.
    Step(Shape),
    /// The answers of the next steps.
    Whole(Whole),
    /// The session.
    Local(Local, Frame),
    /// No step: its arguments were wrong. As in Redis the other commands still run.
    Refused(Refused),
}

/// The commands queued since MULTI.
#[derive(Default)]
pub(super) struct Transaction {
    place: Option<Place>,
    steps: Vec<Step>,
    replies: Vec<Reply>,
    bytes: usize,
    /// It has steps over all keyspaces of the site.
    is_about_all: bool,
    /// A command could not be queued: EXEC must run none.
    pub(super) is_broken: bool,
}

impl Transaction {
    /// Queues a command on data; its arguments are in a frame of their own memory.
    fn queue(&mut self, keyspace: &Keyspace, op: Op, wire_bytes: usize) -> Result<(), Refused> {
        Place::take(&mut self.place, keyspace)?;
        self.charge(wire_bytes)?;
        self.steps.push(op.step);
        self.replies.push(Reply::Step(op.shape));
        Ok(())
    }

    /// Queues a command over all keys.
    fn queue_whole(
        &mut self,
        steps: Vec<Step>,
        reply: Whole,
        wire_bytes: usize,
    ) -> Result<(), Refused> {
        self.charge(wire_bytes + steps.len() * size_of::<Step>())?;
        self.is_about_all = true;
        self.steps.extend(steps);
        self.replies.push(Reply::Whole(reply));
        Ok(())
    }

    /// The number of queued commands.
    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    /// Queues a command that needs no site.
    fn queue_local(&mut self, local: Local, frame: Frame) -> Result<(), Refused> {
        self.charge(frame.wire_bytes())?;
        self.replies.push(Reply::Local(local, frame));
        Ok(())
    }

    /// Queues a command whose arguments are wrong.
    fn queue_refused(&mut self, refused: Refused, wire_bytes: usize) -> Result<(), Refused> {
        self.charge(wire_bytes)?;
        self.replies.push(Reply::Refused(refused));
        Ok(())
    }

    fn charge(&mut self, wire_bytes: usize) -> Result<(), Refused> {
        self.bytes += wire_bytes;
        if self.replies.len().max(self.steps.len()) >= limits::TRANSACTION_STEPS_MAX
            || self.bytes > limits::COMMAND_BYTES_MAX
        {
            let (steps, bytes) = (limits::TRANSACTION_STEPS_MAX, limits::COMMAND_BYTES_MAX);
            let text = format!("ERR a transaction has at most {steps} commands and {bytes} bytes");
            return Err(Refused(text.into()));
        }
        Ok(())
    }

    /// The command for the log, if the site is needed at all, and the sources of the replies.
    fn into_command(self, watched: Watched) -> Result<(Option<Command>, Vec<Reply>), Refused> {
        let place = match (self.place, watched.place) {
            (Some(own), Some(other)) if own != other => {
                return Err(Refused::two_keyspaces(&other.name, &own.name));
            }
            (own, other) => own.or(other),
        };
        let place = match place {
            Some(place) if self.is_about_all && (place.is_global || place.is_causal) => {
                let text = format!(
                    "ERR DBSIZE, SCAN, KEYS, FLUSHALL and FLUSHDB are about this site, and the keys \
                     of keyspace '{}' may be at another one: they cannot be in one transaction",
                    place.name
                );
                return Err(Refused(text.into()));
            }
            None if !self.steps.is_empty() => {
                let (id, name) = (KeyspaceId::DEFAULT, "default".to_owned());
                Some(Place { id, name, is_global: false, is_causal: false })
            }
            place => place,
        };
        let command = place.map(|place| Command::Transaction {
            keyspace: place.id,
            guards: watched.guards,
            steps: self.steps,
            request: None,
        });
        Ok((command, self.replies))
    }
}

/// The keys that the next transaction depends on.
#[derive(Default)]
pub(super) struct Watched {
    place: Option<Place>,
    guards: Vec<Guard>,
}

impl Watched {
    /// The keys that are not watched yet; each must be in the keyspace of the others.
    fn missing(
        &mut self,
        keyspace: &Keyspace,
        keys: impl Iterator<Item = Bytes>,
    ) -> Result<Vec<Bytes>, Refused> {
        Place::take(&mut self.place, keyspace)?;
        let is_new = |key: &Bytes| !self.guards.iter().any(|guard| guard.key == key);
        let new: Vec<Bytes> = keys.filter(is_new).collect();
        if self.guards.len() + new.len() > limits::TRANSACTION_STEPS_MAX {
            let max = limits::TRANSACTION_STEPS_MAX;
            return Err(Refused(format!("ERR a connection watches at most {max} keys").into()));
        }
        Ok(new)
    }

    /// Watches keys at the versions that they had at this point.
    fn add(&mut self, keys: Vec<Bytes>, versions: Vec<Revision>, point: ReadPoint) {
        let guards = keys.iter().zip(versions).map(|(key, version)| Guard {
            // A watched key is kept for long, so it must not share the receive buffer.
            key: Bytes::copy_from_slice(key),
            version,
            absent_since: (version == Revision(0)).then_some(point),
        });
        self.guards.extend(guards);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Handles a command between MULTI and EXEC: queues it, or ends the transaction.
    pub(super) async fn queue_or_end(
        &mut self,
        frame: &Frame,
        number: CommandNumber,
        spec: &CommandSpec,
    ) -> Result<(), Refused> {
        match spec.run {
            Run::Own(Own::Exec) => {
                self.exec().await?;
                self.count(number, false);
                return Ok(());
            }
            Run::Own(Own::Discard) => {
                (self.session.transaction, self.session.watched) = (None, None);
                self.encoder().ok();
                return Ok(());
            }
            Run::Own(own @ (Own::Quit | Own::Reset)) => return self.do_own(frame, own).await,
            Run::Own(Own::Multi) => {
                self.encoder().error("ERR MULTI calls can not be nested");
                return Ok(());
            }
            Run::Own(Own::Watch) => {
                self.encoder().error("ERR WATCH inside MULTI is not allowed");
                return Ok(());
            }
            Run::Own(Own::Unwatch) => {
                self.queue(|transaction| transaction.queue_local(unwatch, frame.detached()))?;
            }
            Run::Own(own @ (Own::Scan | Own::Keys | Own::DbSize | Own::Flush))
                if !self.session.is_cluster() =>
            {
                match self.read_whole(frame, own) {
                    Ok((steps, reply)) => {
                        if own == Own::Flush {
                            self.session.check_right_everywhere(Right::Admin)?;
                        }
                        self.queue(|transaction| {
                            transaction.queue_whole(steps, reply, frame.wire_bytes())
                        })?;
                    }
                    Err(refused) => self.refuse(refused, frame.wire_bytes())?,
                }
            }
            Run::Own(_) => return Err(Refused::IN_TRANSACTION),
            _ if spec.has(NO_MULTI) => return Err(Refused::IN_TRANSACTION),
            Run::Local(local) => {
                self.queue(|transaction| transaction.queue_local(local, frame.detached()))?;
            }
            Run::Data(parse) => {
                let (frame, catalog) = (frame.detached(), self.thread.handle.catalog());
                let keyspace = self.keyspace_of(&frame, spec, &catalog)?;
                self.check_is_here(&frame, spec, keyspace.id).await?;
                match parse(&frame) {
                    Ok(op) => {
                        self.session.check_rights(keyspace, op.rights())?;
                        self.queue(|transaction| {
                            transaction.queue(keyspace, op, frame.wire_bytes())
                        })?;
                    }
                    Err(refused) => self.refuse(refused, frame.wire_bytes())?,
                }
            }
        }
        self.encoder().simple("QUEUED");
        Ok(())
    }

    fn refuse(&mut self, refused: Refused, wire_bytes: usize) -> Result<(), Refused> {
        self.queue(|transaction| transaction.queue_refused(refused, wire_bytes))
    }

    fn queue(
        &mut self,
        queue: impl FnOnce(&mut Transaction) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.session.transaction.as_mut().map_or(Ok(()), |transaction| queue(transaction))
    }

    async fn exec(&mut self) -> Result<(), Refused> {
        let transaction = self.session.transaction.take().unwrap_or_default();
        let watched = self.session.watched.take().unwrap_or_default();
        if transaction.is_broken {
            return Err(Refused::because(
                "EXECABORT Transaction discarded because of previous errors.",
            ));
        }
        let is_causal = transaction.place.as_ref().is_some_and(|place| place.is_causal);
        let (command, replies) = transaction.into_command(*watched)?;
        let changed = match command {
            None => None,
            Some(command) if is_causal => Some(self.change_in_session(command).await?),
            Some(command) => Some(self.change(command).await?),
        };
        let answers = match changed {
            None => Vec::new(),
            Some(answer) => match answer {
                Answer::Steps(answers) => answers,
                Answer::Aborted => {
                    self.encoder().null_array();
                    return Ok(());
                }
                other => return Err(Refused(format!("ERR EXEC was answered {other:?}").into())),
            },
        };
        let (now_ms, mut answers) = (self.now_ms(), answers.into_iter());
        let thread = self.thread.clone();
        let mut out = Encoder::new(&mut self.replies, self.session.version);
        out.array(replies.len());
        for reply in replies {
            match reply {
                Reply::Step(shape) => {
                    let outcome = answers.next().expect("one answer a step");
                    write_outcome(outcome.map_err(Failure::Refused), &shape, now_ms, &mut out);
                }
                Reply::Whole(whole) => whole.write(&mut answers, &thread, &mut out),
                Reply::Local(local, frame) => {
                    if let Err(Refused(text)) = local(&mut self.session, &frame, &mut out) {
                        out.error(&text);
                    }
                }
                Reply::Refused(Refused(text)) => out.error(&text),
            }
        }
        Ok(())
    }

    /// Watches the keys of a WATCH at their present versions.
    pub(super) async fn watch(&mut self, frame: &Frame, spec: &CommandSpec) -> Result<(), Refused> {
        let catalog = self.thread.handle.catalog();
        let keyspace = self.keyspace_of(frame, spec, &catalog)?;
        self.session.check_rights(keyspace, &[Right::Read])?;
        let watched = self.session.watched.get_or_insert_default();
        let keys = watched.missing(keyspace, (1..frame.len()).map(|at| frame.bytes(at)))?;
        if !keys.is_empty() {
            let query = Query::Watch { keys: keys.clone() };
            // Never stale: a transaction with an outdated version would fail.
            let outcome = self.ask(keyspace.id, query, ReadConsistency::Linearizable).await;
            let watched = self.session.watched.get_or_insert_default();
            match outcome.map_err(refused)? {
                Answer::Watched { versions, point } => watched.add(keys, versions, point),
                other => return Err(Refused(format!("ERR WATCH was answered {other:?}").into())),
            }
        }
        self.encoder().ok();
        Ok(())
    }
}

/// UNWATCH inside a transaction: EXEC has dropped the watched keys already.
fn unwatch(_: &mut Session, _: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::KeyspaceSpec;

    fn keyspace(id: u32, name: &str) -> Keyspace {
        let spec = KeyspaceSpec::linearizable_site(name, format!("{name}:"));
        Keyspace { id: KeyspaceId(id), spec }
    }

    fn get(key: &'static str) -> Op {
        Op::read(Query::Get { key: key.into() }, Shape::Value).unwrap()
    }

    #[test]
    fn steps_and_guards_become_one_command() {
        let cars = keyspace(1, "cars");
        let mut watched = Watched::default();
        let point = ReadPoint { revision: Revision(9), epoch: model::Epoch::counted(0) };
        let keys = watched.missing(&cars, [Bytes::from("cars:2")].into_iter()).unwrap();
        watched.add(keys, vec![Revision(0)], point);
        let keys = watched.missing(&cars, [Bytes::from("cars:1")].into_iter()).unwrap();
        watched.add(keys, vec![Revision(7)], point);
        let again = watched.missing(&cars, [Bytes::from("cars:1")].into_iter()).unwrap();
        assert!(again.is_empty(), "its first version counts");
        let mut transaction = Transaction::default();
        transaction.queue(&cars, get("cars:1"), 10).unwrap();
        let (command, replies) = transaction.into_command(watched).unwrap();
        assert_eq!(replies.len(), 1);
        let expect = Command::Transaction {
            keyspace: KeyspaceId(1),
            guards: vec![
                Guard { key: "cars:2".into(), version: Revision(0), absent_since: Some(point) },
                Guard { key: "cars:1".into(), version: Revision(7), absent_since: None },
            ],
            steps: vec![get("cars:1").step],
            request: None,
        };
        assert_eq!(command, Some(expect));
    }

    #[test]
    fn two_keyspaces_are_refused_by_name() {
        let (cars, maps) = (keyspace(1, "cars"), keyspace(2, "maps"));
        let mut transaction = Transaction::default();
        transaction.queue(&cars, get("cars:1"), 10).unwrap();
        let Refused(text) = transaction.queue(&maps, get("maps:1"), 10).unwrap_err();
        assert!(text.contains("'cars' and 'maps'"), "{text}");

        let mut watched = Watched::default();
        watched.missing(&maps, [Bytes::from("maps:1")].into_iter()).unwrap();
        assert!(transaction.into_command(watched).is_err());
    }

    #[test]
    fn a_transaction_is_bounded() {
        let cars = keyspace(1, "cars");
        let mut transaction = Transaction::default();
        assert!(transaction.queue(&cars, get("k"), limits::COMMAND_BYTES_MAX + 1).is_err());
    }
}
