//! A put, or a batch of puts, that a client may send to several sites: what a call states about it
//! in its metadata.

use super::call::Callee;
use crate::numbered::{Attempt, is_everywhere};
use model::{Bytes, Command, Failure, Keyspace, RequestId, Step};
use std::sync::LazyLock;
use tonic::metadata::AsciiMetadataKey;
use tonic::{Request, Status};
use wire::grpc::status;
use wire::grpc::{AGAIN_KEY, Invalid, TRIED_KEY};

/// What a call states about the attempts of a put.
pub(super) struct Tried {
    /// The site that is tried first; empty: the asked one.
    first: String,
    /// It may have been made there.
    again: bool,
}

/// Read once: a text is read anew for each call.
static TRIED: LazyLock<AsciiMetadataKey> =
    LazyLock::new(|| AsciiMetadataKey::from_static(TRIED_KEY));

/// The same; `None`: it is sent to one site only.
pub(super) fn tried<T>(request: &Request<T>) -> Result<Option<Tried>, Status> {
    let Some(name) = request.metadata().get(&*TRIED) else { return Ok(None) };
    let first = name.to_str().map_err(|_| invalid("it is not a name"))?.to_owned();
    Ok(Some(Tried { first, again: request.metadata().contains_key(AGAIN_KEY) }))
}

fn invalid(what: &str) -> Status {
    Invalid::Value { field: TRIED_KEY, what: what.to_owned() }.into()
}

impl Callee {
    /// The put, or the batch of puts, as one attempt of several.
    pub(super) fn retriable(
        &self,
        command: Command,
        keyspace: &Keyspace,
        tried: Tried,
    ) -> Result<Command, Status> {
        let Some((request, pairs)) = numbered(command).filter(|_| is_everywhere(keyspace)) else {
            let what = "it goes with a put that has a number, without a condition, an expiry and the old value, or a batch of such puts without guards, in a causal keyspace that all sites hold";
            return Err(invalid(what));
        };
        let Tried { first, again } = tried;
        let attempt = Attempt { request, first, again };
        let command = attempt.command(&self.handle, keyspace, pairs);
        command.map_err(|refusal| status(&Failure::Refused(refusal)))
    }
}

/// The number of a command that only puts, with what it puts.
fn numbered(command: Command) -> Option<(RequestId, Vec<(Bytes, Bytes)>)> {
    match command {
        Command::Write { request, write, .. } => Some((request?, write.into_puts()?)),
        Command::Transaction { guards, steps, request, .. } if guards.is_empty() => {
            let of_step = |step| match step {
                Step::Write(write) => write.into_puts(),
                _ => None,
            };
            let pairs: Option<Vec<_>> = steps.into_iter().map(of_step).collect();
            Some((request?, pairs?.concat()))
        }
        _ => None,
    }
}
