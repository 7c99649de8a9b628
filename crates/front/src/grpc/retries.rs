//! A put that a client may send to another site, should the first one not answer: it has one effect
//! then.

use super::call::Callee;
use super::registry::site_named;
use model::{CausalCommand, Command, Condition, Expiry, Keyspace, NO_SITE, Position, Write};
use tonic::{Request, Status};
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
        tried: &Tried,
    ) -> Result<Command, Status> {
        let is_everywhere = keyspace.spec.is_causal() && keyspace.spec.sites.is_empty();
        let (request, pair) = match command {
            Command::Write {
                request: Some(request),
                write:
                    Write::Put {
                        key,
                        value,
                        condition: Condition::Always,
                        expiry: Expiry::Never,
                        return_old: false,
                    },
                ..
            } if is_everywhere => (request, (key, value)),
            _ => {
                let what = "it goes with a put that has a number, without a condition, an expiry and the old value, in a causal keyspace that all sites hold";
                return Err(invalid(what));
            }
        };
        let (keyspace, pairs) = (keyspace.id, vec![pair]);
        let status = self.handle.status();
        let first = match &status.deployment {
            _ if tried.first.is_empty() => None,
            // At a later one the core finds whether this site has made the put, and if not, the
            // root does.
            Some(member) => Some(site_named(&member.registry, &tried.first)?)
                .filter(|site| tried.again || *site != member.own),
            None => Some(NO_SITE),
        };
        let Some(tried) = first else {
            return Ok(Command::Causal(CausalCommand::Numbered { request, keyspace, pairs }));
        };
        let since = Position(0);
        Ok(Command::Causal(CausalCommand::Retry { request, tried, since, keyspace, pairs }))
    }
}
