//! A put that a client may send to several sites: what a call states about it in its metadata.

use super::call::Callee;
use crate::numbered::{Attempt, is_everywhere, pairs_of};
use model::{Command, Failure, Keyspace};
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

/// The same; `None`: it is sent to one site only.
pub(super) fn tried<T>(request: &Request<T>) -> Result<Option<Tried>, Status> {
    let Some(name) = request.metadata().get(TRIED_KEY) else { return Ok(None) };
    let first = name.to_str().map_err(|_| invalid("it is not a name"))?.to_owned();
    Ok(Some(Tried { first, again: request.metadata().contains_key(AGAIN_KEY) }))
}

fn invalid(what: &str) -> Status {
    Invalid::Value { field: TRIED_KEY, what: what.to_owned() }.into()
}

impl Callee {
    /// The put as one attempt of several.
    pub(super) fn retriable(
        &self,
        command: Command,
        keyspace: &Keyspace,
        tried: Tried,
    ) -> Result<Command, Status> {
        let numbered = match command {
            Command::Write { request: Some(request), write, .. } if is_everywhere(keyspace) => {
                pairs_of(write).map(|pairs| (request, pairs))
            }
            _ => None,
        };
        let Some((request, pairs)) = numbered else {
            let what = "it goes with a put that has a number, without a condition, an expiry and the old value, in a causal keyspace that all sites hold";
            return Err(invalid(what));
        };
        let Tried { first, again } = tried;
        let attempt = Attempt { request, first, again };
        let command = attempt.command(&self.handle, keyspace, pairs);
        command.map_err(|refusal| status(&Failure::Refused(refusal)))
    }
}
