//! A put that a client may send to another site, should the first one not answer: it has one effect
//! then. Each attempt has the number of the put and the name of the site that is tried first, in
//! every protocol of the fronts.

use model::{
    Bytes, CausalCommand, Command, Keyspace, NO_SITE, Position, Refusal, RegistryError, RequestId,
};
use server::Handle;

/// What an attempt states about the put and the attempts before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) request: RequestId,
    /// The site that is tried first; empty: the asked one.
    pub(crate) first: String,
    /// It may have been made there.
    pub(crate) again: bool,
}

/// Whether puts in a keyspace may be sent to several sites: the first attempt is carried out at the
/// site that the client names, and not at one that holds the keys.
pub(crate) fn is_everywhere(keyspace: &Keyspace) -> bool {
    keyspace.spec.is_causal() && keyspace.spec.sites.is_empty()
}

impl Attempt {
    /// The put as this attempt, in a keyspace that [is everywhere](is_everywhere). Refused: the
    /// deployment has no site of that name.
    pub(crate) fn command(
        &self,
        handle: &Handle,
        keyspace: &Keyspace,
        pairs: Vec<(Bytes, Bytes)>,
    ) -> Result<Command, Refusal> {
        let (request, keyspace) = (self.request, keyspace.id);
        let first = match &handle.status().deployment {
            _ if self.first.is_empty() => None,
            // At a later one the core finds whether this site has made the put, and if not, the
            // root does.
            Some(member) => {
                let site = member.registry.site_named(&self.first).map(|site| site.id);
                let missing = || RegistryError::NoSite(self.first.clone());
                let site = site.ok_or_else(|| Refusal::Registry(missing()))?;
                Some(site).filter(|site| self.again || *site != member.own)
            }
            None => Some(NO_SITE),
        };
        let Some(tried) = first else {
            return Ok(Command::Causal(CausalCommand::Numbered { request, keyspace, pairs }));
        };
        let since = Position(0);
        Ok(Command::Causal(CausalCommand::Retry { request, tried, since, keyspace, pairs }))
    }
}
