//! This site's part in holding the registry: what it has promised and accepted, beside its copy.
//!
//! Each step of [`crate::deployment::registry::Acceptor`] is a command, so it is durable before it
//! is answered, and all replicas of the site have taken it.
//!
//! A site that is the only registrar changes the registry by one command as well: it is a majority.
//!
//! ```text
//! R → promised ‖ used ‖ what is to be handed in ‖ accepted, unless that is the copy (wire::entry)
//! ```

use super::DeploymentMember;
use super::{Applying, Machine};
use super::{MachineError, Stopped, tables};
use crate::deployment::registry::trial::Planted;
use crate::deployment::registry::{Acceptor, Value as _};
use model::{
    Answer, Changed, MoveError, Refusal, RegistrarAnswer, RegistrarStep, Registry, RegistryChange,
    RegistryError, Retained, Slot,
};
use std::sync::Arc;
use storage::state::{Read, State};
use wire::entry::{decode_registrar, encode_registrar};

/// Other registrars must promise, too: the caller asks them.
pub(in crate::site::machine) const NOT_ALONE: Refusal = Refusal::NotHeld(Slot::FIRST);

/// What a site keeps of the registry.
pub type OwnAcceptor = Acceptor<Arc<Registry>>;

/// What the state contains. A site that was never a registrar has nothing but the copy.
pub(super) fn load(
    state: &impl Read,
    member: Option<&DeploymentMember>,
) -> Result<Option<OwnAcceptor>, MachineError> {
    let Some(copy) = member.map(|member| member.registry.clone()) else { return Ok(None) };
    let Some(row) = state.get(tables::REGISTRAR)? else { return Ok(Some(Acceptor::new(copy))) };
    let damaged = MachineError::Damaged { table: 'R' };
    let (promised, used, accepted, kept) = decode_registrar(row).map_err(|_| damaged)?;
    let accepted = accepted.map_or_else(|| copy.clone(), Arc::new);
    Ok(Some(Acceptor::restored(copy, accepted, (promised, used), kept)))
}

impl<S: State> Applying<'_, S> {
    fn acceptor(&mut self) -> Result<&mut OwnAcceptor, Refusal> {
        self.modes.deployment.acceptor.as_mut().ok_or(Refusal::NoDeployment)
    }

    pub(in crate::site::machine) fn registrar(
        &mut self,
        step: &RegistrarStep,
    ) -> Result<Answer, Stopped> {
        let own = self.member()?.own;
        let deployment = self.member()?.registry.deployment;
        self.check_remembers(step)?;
        let acceptor = self.acceptor()?;
        let none = Planted::none();
        let boxed = |registry: &Arc<Registry>| Box::new((**registry).clone());
        let answer = match step {
            RegistrarStep::Reserve(above) => {
                RegistrarAnswer::Reserved(acceptor.reserve(own, *above, none))
            }
            RegistrarStep::ReserveTerm => {
                let (ballot, accepted) = acceptor.reserve_term(own, none);
                RegistrarAnswer::TermReserved(ballot, boxed(&accepted))
            }
            RegistrarStep::Prepare(ballot) => match acceptor.prepare(*ballot, none) {
                Ok(accepted) => RegistrarAnswer::Promised(boxed(&accepted)),
                Err(promised) => RegistrarAnswer::Refused(promised),
            },
            RegistrarStep::Accept(ballot, registry) => {
                if registry.deployment != deployment || registry.version != *ballot {
                    return Err(Refusal::NoDeployment.into());
                }
                match acceptor.accept(*ballot, Arc::new((**registry).clone())) {
                    Ok(()) => RegistrarAnswer::Accepted,
                    Err(promised) => RegistrarAnswer::Refused(promised),
                }
            }
        };
        self.write_acceptor();
        Ok(Answer::Registrar(answer))
    }

    /// A state that was restored from a backup has forgotten what the site promised and accepted
    /// since. Until all other sites have answered, by which it has what any of them has seen
    /// chosen, it takes part only in the ballots of recoveries, which are of round 0 and of a later
    /// term: one of the others may be lost. Its copy may be of an earlier term than the present
    /// one, so a later term alone does not make a ballot one of a recovery.
    fn check_remembers(&mut self, step: &RegistrarStep) -> Result<(), Stopped> {
        let (RegistrarStep::Prepare(ballot) | RegistrarStep::Accept(ballot, _)) = step else {
            return Ok(());
        };
        let term = self.acceptor()?.copy().version().term;
        let is_recovery = ballot.round == 0 && ballot.term > term;
        match self.modes.deployment.is_restored() && !is_recovery {
            true => {
                Err(MoveError::NotReady("it was restored, and other sites have to answer").into())
            }
            false => Ok(()),
        }
    }

    /// Whether this site may change the registry by itself, if there is one.
    pub(super) fn check_may_change(&mut self) -> Result<(), Stopped> {
        let Some(member) = self.modes.deployment.member.clone() else { return Ok(()) };
        let acceptor = self.acceptor()?;
        let copy = acceptor.copy();
        let is_only = copy.registrars.set.sites() == [member.own];
        match is_only && acceptor.accepted().version() == copy.version() {
            true => Ok(()),
            false => Err(NOT_ALONE.into()),
        }
    }

    /// Changes the registry by itself.
    pub(in crate::site::machine) fn change_alone(
        &mut self,
        change: &RegistryChange,
    ) -> Result<Changed, Stopped> {
        self.check_may_change()?;
        let own = self.member()?.own;
        let acceptor = self.acceptor()?;
        let copy = acceptor.copy().clone();
        let ballot = acceptor.reserve(own, copy.version(), Planted::none());
        self.write_acceptor();
        let mut registry = (*copy).clone();
        let changed = registry.change_at(change, ballot).map_err(refusal)?;
        if registry.registrars.set != copy.registrars.set {
            // The others are to be asked, too.
            return Err(NOT_ALONE.into());
        }
        if registry.changes != copy.changes {
            registry.version = ballot;
            self.learn_registry(&registry)?;
        }
        Ok(changed)
    }

    pub(super) fn write_acceptor(&mut self) {
        let Some(acceptor) = &self.modes.deployment.acceptor else { return };
        let accepted = acceptor.accepted();
        let accepted = (accepted.version() != acceptor.copy().version()).then_some(&**accepted);
        let (promised, used) = (acceptor.promised(), acceptor.used());
        let row = encode_registrar(promised, used, accepted, acceptor.kept());
        self.overlay.put(tables::REGISTRAR, row);
    }
}

fn refusal(error: RegistryError) -> Stopped {
    Refusal::from(error).into()
}

impl<S: State> Machine<S> {
    /// What this site keeps of the registry.
    pub fn acceptor(&self) -> Option<&OwnAcceptor> {
        self.modes.deployment.acceptor.as_ref()
    }

    /// What this site has to hand in of another term.
    pub fn to_hand_in(&self) -> Option<&Retained> {
        let kept = self.acceptor().map(Acceptor::kept);
        kept.filter(|kept| !kept.is_empty())
    }
}
