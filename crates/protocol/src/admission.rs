//! Admission: where a request is carried out, decided from what the asked node sees.
//!
//! [`target_of`] finds what a request is about and [`admit`] decides. Both are pure, and all that
//! decide go by them, each with a [`Context`] of its own:
//!
//! | decision | the core | a front's or a link's thread |
//! | --- | --- | --- |
//! | [`Admission::Here`] | answers from the state, or proposes | answers from the state |
//! | [`Admission::At`] | sends it there ([`crate::global::routing`]) | sends a proxy read ([`crate::global::proxy_reads`]) |
//! | [`Admission::Wait`] | keeps it until what it waits for is there | leaves it to the core |
//! | [`Admission::Refuse`] | answers | leaves it to the core |
//!
//! What a thread beside the core sees may be old by the time it acts. So the state answers a read
//! by the ownership of its slot at that moment, whatever was decided here, and a request that finds
//! its slot gone is admitted again.
//!
//! Left out on purpose: requests are neither kept nor sent here, and nothing is learned.

use crate::replica::ReadGate;
use model::{
    Body, Command, Failure, Group, KeySlots, KeyspaceId, KeyspaceSpec, Loan, OperatorCommand,
    Promotion, ReadConsistency, Refusal, SiteId, Slot,
};
use std::time::Duration;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The site that is asked, whichever it is.
    Own,
    /// The site that owns a slot.
    Slot(Slot),
    /// One site.
    Site(SiteId),
}

/// The sender of a request, and what that may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// It is carried out wherever that is.
    Client,
    /// A client that goes to the owner itself, if there is one to name.
    Redirected,
    /// Another site: it is answered here or not at all, so that no request travels in circles.
    Site,
}

/// Where a group is, as far as that is known to differ from where its slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupAt {
    /// Where its slot is.
    Slot,
    /// This site borrows it.
    Here,
    /// Another site borrows it, by the loan of this number if this site owns the slot.
    At(SiteId, Option<Loan>),
    /// It changes hands.
    Between,
}

/// A request, as far as admission looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) target: Target,
    /// The keyspace and the consistency of a read.
    pub(crate) read: Option<(KeyspaceId, ReadConsistency)>,
    pub(crate) sender: Sender,
    /// How often it came back without an answer.
    pub(crate) returns: u32,
    /// Whether the ring was asked for the owner.
    pub(crate) is_looked_up: bool,
    /// The group of its keys, if that may be lent.
    pub(crate) group: Option<Group>,
}

impl Arrival {
    /// A request that has just come.
    pub(crate) fn new(target: Target, body: &Body, sender: Sender) -> Arrival {
        let read = match body {
            Body::Read { keyspace, consistency, .. } => Some((*keyspace, *consistency)),
            _ => None,
        };
        Arrival { target, read, sender, returns: 0, is_looked_up: false, group: None }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Admission {
    /// This node carries it out, from its state or through its site's log.
    Here,
    /// Another site does.
    At(SiteId),
    /// It is decided later.
    Wait(Wait),
    /// It is not carried out.
    Refuse(Failure),
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A read index of this site: another node of it may lead.
    Index,
    /// That what is committed is applied at this node, which leads for sure.
    Applied,
    /// The ring's answer: nothing is known of the slot.
    Lookup(Slot),
    /// The next owner of a slot: it is frozen here, or no other site is there to ask.
    Owner(Slot),
    /// A failover of the owner: its successors are not decided.
    Failover(SiteId),
}

/// What a node may answer from its state.
pub(crate) struct Right<'a> {
    /// It votes and keeps no data.
    pub(crate) is_witness: bool,
    /// Its disk takes nothing, while its site goes on.
    pub(crate) is_stuck: bool,
    /// By what gate reads may be answered from the state.
    pub(crate) gate: ReadGate,
    /// By what gate they could, if all that is committed were applied.
    pub(crate) leads: ReadGate,
    /// Something that is committed may not be applied here.
    pub(crate) lags: bool,
    /// The monotonic clock, looked at where a lease counts.
    pub(crate) now: &'a dyn Fn() -> Duration,
}

impl<'a> Right<'a> {
    /// By a gate alone, at a thread that has nothing else.
    pub(crate) fn of_gate(gate: ReadGate, now: &'a dyn Fn() -> Duration) -> Right<'a> {
        Right { is_witness: false, is_stuck: false, gate, leads: gate, lags: false, now }
    }

    /// The decision for a read of what this site serves.
    pub(crate) fn admit(
        &self,
        consistency: ReadConsistency,
        lease_reads: impl FnOnce() -> bool,
    ) -> Admission {
        let is_stale = consistency != ReadConsistency::Linearizable;
        if self.is_witness {
            return Admission::Refuse(Failure::NotServing("it is a witness and holds no data"));
        }
        if self.is_stuck && !is_stale {
            let why = "its disk is full, and its site is ahead of it: ask another node";
            return Admission::Refuse(Failure::NotServing(why));
        }
        match self.gate {
            ReadGate::Closed => Admission::Wait(Wait::Index),
            _ if is_stale => Admission::Here,
            _ if !self.leads.is_current(lease_reads, self.now) => Admission::Wait(Wait::Index),
            _ if self.lags => Admission::Wait(Wait::Applied),
            _ => Admission::Here,
        }
    }
}

/// What a decision rests on.
pub(crate) trait Context {
    /// The specification of a keyspace; `None`: there is none of this number.
    fn spec(&self, keyspace: KeyspaceId) -> Option<&KeyspaceSpec>;
    /// This site; `None`: it belongs to no deployment.
    fn own_site(&self) -> Option<SiteId>;
    /// Whether a slot is served here.
    fn serves(&self, slot: Slot) -> bool;
    /// Where a group is.
    fn group_at(&self, _: &Group) -> GroupAt {
        GroupAt::Slot
    }
    /// Whether there is a fact or a guess about the owner of a slot.
    fn locates(&self, slot: Slot) -> bool;
    /// The other site to ask about a slot, by a request that came back so often.
    fn owner_elsewhere(&self, slot: Slot, returns: u32) -> Option<SiteId>;
    /// Whether a failover is open that takes a site for failed.
    fn is_fenced(&self, site: SiteId) -> bool;
    /// The site that drives the failover of another one.
    fn driver_of_failover(&self, lost: SiteId, by: Option<SiteId>) -> Result<SiteId, Refusal>;
    /// What may be answered from the state here.
    fn admit_read(&self, keyspace: KeyspaceId, consistency: ReadConsistency) -> Admission;
}

/// The group that a request is about, if its keyspace lends groups.
pub(crate) fn group_of(body: &Body, context: &impl Context) -> Option<Group> {
    let (keyspace, tag) = match body {
        Body::Read { keyspace, query, .. } => {
            (*keyspace, lends(*keyspace, context)?.then(|| query.one_tag()))
        }
        Body::Write(command) => match command {
            Command::Write { keyspace, .. } | Command::Transaction { keyspace, .. } => {
                (*keyspace, lends(*keyspace, context)?.then(|| command.one_tag()))
            }
            _ => return None,
        },
        Body::ExplainPlacement { keyspace, key } => {
            return lends(*keyspace, context)?.then(|| Group::of_key(*keyspace, key));
        }
        _ => return None,
    };
    Some(Group { keyspace, tag: tag?? })
}

fn lends(keyspace: KeyspaceId, context: &impl Context) -> Option<bool> {
    context.spec(keyspace).map(KeyspaceSpec::lends)
}

/// What a request is about.
pub(crate) fn target_of(body: &Body, context: &impl Context) -> Result<Target, Refusal> {
    let is_global = |keyspace| context.spec(keyspace).is_some_and(KeyspaceSpec::is_global);
    let key_slots = match body {
        Body::AtSite { site, .. } | Body::ListLostWrites { at: site, .. } => {
            return Ok(Target::Site(*site));
        }
        Body::Read { keyspace, query, .. } if is_global(*keyspace) => query.key_slots(),
        Body::Write(Command::Write { keyspace, write, .. }) if is_global(*keyspace) => {
            write.key_slots()
        }
        Body::Write(Command::Transaction { keyspace, guards, steps, .. })
            if is_global(*keyspace) =>
        {
            KeySlots::of_transaction(guards, steps)
        }
        Body::ExplainPlacement { keyspace, key } if is_global(*keyspace) => {
            KeySlots::default().and(key)
        }
        Body::Operator(OperatorCommand::Promote(Promotion { lost, by, .. })) => {
            return context.driver_of_failover(*lost, *by).map(Target::Site);
        }
        _ => return Ok(Target::Own),
    };
    match key_slots {
        // Groups of one slot may be at different sites.
        KeySlots::One(_) if has_several_groups(body, context) => Err(Refusal::CrossSlot),
        KeySlots::One(slot) => Ok(Target::Slot(slot)),
        KeySlots::Several => Err(Refusal::CrossSlot),
        // About what this site holds of it.
        KeySlots::Nowhere => Ok(Target::Own),
    }
}

fn has_several_groups(body: &Body, context: &impl Context) -> bool {
    let lends = body.keyspace().and_then(|keyspace| lends(keyspace, context));
    lends == Some(true) && group_of(body, context).is_none()
}

/// Decides of a request.
pub(crate) fn admit(arrival: &Arrival, context: &impl Context) -> Admission {
    let own = || match arrival.read {
        Some((keyspace, consistency)) => context.admit_read(keyspace, consistency),
        None => Admission::Here,
    };
    let slot = match arrival.target {
        Target::Own => return own(),
        Target::Site(site) if context.own_site() == Some(site) => return own(),
        Target::Site(site) => return Admission::At(site),
        Target::Slot(slot) => slot,
    };
    let by_client = arrival.sender == Sender::Client;
    let group_at = arrival.group.as_ref().map_or(GroupAt::Slot, |group| context.group_at(group));
    match (group_at, arrival.sender) {
        (GroupAt::Here, _) => return own(),
        (GroupAt::Between, _) => return Admission::Wait(Wait::Owner(slot)),
        (GroupAt::At(to, Some(loan)), Sender::Site) => {
            return Admission::Refuse(Refusal::Lent { slot, to, loan }.into());
        }
        (GroupAt::At(site, _), Sender::Client | Sender::Redirected) => {
            return match context.is_fenced(site) {
                true => Admission::Wait(Wait::Failover(site)),
                false => Admission::At(site),
            };
        }
        // What this site has learned about a slot of another one is of no use to a third one.
        (GroupAt::Slot, _) | (GroupAt::At(_, None), Sender::Site) => {}
    }
    if context.serves(slot) {
        return own();
    }
    if by_client && !arrival.is_looked_up && !context.locates(slot) {
        return Admission::Wait(Wait::Lookup(slot));
    }
    match context.owner_elsewhere(slot, arrival.returns) {
        None => Admission::Wait(Wait::Owner(slot)),
        Some(_) if arrival.sender == Sender::Site => {
            Admission::Refuse(Refusal::NotHeld(slot).into())
        }
        Some(site) if by_client && context.is_fenced(site) => Admission::Wait(Wait::Failover(site)),
        Some(site) => Admission::At(site),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Query, Scope, Write};

    const OWN: SiteId = SiteId(1);
    const OTHER: SiteId = SiteId(2);
    const FAILED: SiteId = SiteId(3);
    const LEASE: ReadGate = ReadGate::Lease(Duration::from_secs(1));
    /// A keyspace of this site, a global one, and one that was dropped.
    const SITE: KeyspaceId = KeyspaceId(1);
    const GLOBAL: KeyspaceId = KeyspaceId(2);
    const GONE: KeyspaceId = KeyspaceId(3);

    /// A site that serves the slot of `here`, has frozen the one of `frozen`, and has facts about
    /// the owners of `there` and `failed`. It does not know `unknown`, and would ask its preferred
    /// owner.
    struct Fake {
        own: Option<SiteId>,
        right: Right<'static>,
        specs: [KeyspaceSpec; 2],
    }

    fn right(gate: ReadGate) -> Right<'static> {
        Right::of_gate(gate, &|| Duration::ZERO)
    }

    fn fake(right: Right<'static>) -> Fake {
        let site = KeyspaceSpec::linearizable_site("cars", "car:");
        let global = KeyspaceSpec { scope: Scope::Global, lease_reads: true, ..site.clone() };
        Fake { own: Some(OWN), right, specs: [site, global] }
    }

    fn slot(key: &str) -> Slot {
        Slot::of_key(key.as_bytes())
    }

    impl Context for Fake {
        fn spec(&self, keyspace: KeyspaceId) -> Option<&KeyspaceSpec> {
            self.specs.get((keyspace.0 as usize).wrapping_sub(1))
        }
        fn own_site(&self) -> Option<SiteId> {
            self.own
        }
        fn serves(&self, of: Slot) -> bool {
            of == slot("here")
        }
        fn locates(&self, of: Slot) -> bool {
            of != slot("unknown")
        }
        fn owner_elsewhere(&self, of: Slot, returns: u32) -> Option<SiteId> {
            let owner = if of == slot("failed") { FAILED } else { OTHER };
            (of != slot("frozen")).then_some(if returns > 2 { OWN } else { owner })
        }
        fn is_fenced(&self, site: SiteId) -> bool {
            site == FAILED
        }
        fn driver_of_failover(&self, _: SiteId, by: Option<SiteId>) -> Result<SiteId, Refusal> {
            Ok(by.unwrap_or(OWN))
        }
        fn admit_read(&self, keyspace: KeyspaceId, consistency: ReadConsistency) -> Admission {
            self.right.admit(consistency, || self.spec(keyspace).is_some_and(|one| one.lease_reads))
        }
    }

    fn read(keyspace: KeyspaceId, key: &'static str, consistency: ReadConsistency) -> Body {
        Body::Read { keyspace, query: Query::Get { key: key.into() }, consistency }
    }

    fn get(keyspace: KeyspaceId, key: &'static str) -> Body {
        read(keyspace, key, ReadConsistency::Linearizable)
    }

    fn delete(keyspace: KeyspaceId, keys: &[&'static str]) -> Body {
        let keys = keys.iter().map(|key| (*key).into()).collect();
        Body::Write(Command::Write { keyspace, write: Write::Delete { keys }, request: None })
    }

    fn decide(body: &Body, sender: Sender, fake: &Fake) -> Admission {
        match target_of(body, fake) {
            Ok(target) => admit(&Arrival::new(target, body, sender), fake),
            Err(refusal) => Admission::Refuse(refusal.into()),
        }
    }

    #[test]
    fn a_read_of_this_site_goes_by_the_right_to_read() {
        use Admission::{Here, Wait as Waits};
        use ReadConsistency::{Linearizable, Stale};
        let index = || Waits(Wait::Index);
        let cases = [
            // The gate, then: linearizable without and with lease reads, stale.
            (ReadGate::Closed, [index(), index(), index()]),
            (ReadGate::Stale, [index(), index(), Here]),
            (LEASE, [index(), Here, Here]),
            (ReadGate::Lease(Duration::ZERO), [index(), index(), Here]),
            (ReadGate::Open, [Here, Here, Here]),
        ];
        for (gate, wanted) in cases {
            let found = [(SITE, Linearizable), (GLOBAL, Linearizable), (GLOBAL, Stale)];
            let found = found.map(|(keyspace, consistency)| {
                decide(&read(keyspace, "here", consistency), Sender::Client, &fake(right(gate)))
            });
            assert_eq!(found, wanted, "{gate:?}");
        }
        let lags = fake(Right { gate: ReadGate::Stale, lags: true, ..right(ReadGate::Open) });
        let behind = decide(&get(SITE, "here"), Sender::Client, &lags);
        assert_eq!(behind, Waits(Wait::Applied), "it leads for sure and has not applied all");
        let witness = fake(Right { is_witness: true, ..right(ReadGate::Open) });
        let refused = decide(&get(SITE, "here"), Sender::Client, &witness);
        assert!(matches!(refused, Admission::Refuse(Failure::NotServing(_))), "{refused:?}");
    }

    #[test]
    fn a_request_goes_where_its_slot_is() {
        use Admission::{At, Here, Refuse, Wait as Waits};
        let not_held = |key| Refuse(Refusal::NotHeld(slot(key)).into());
        let cases = [
            // By a client, by one that goes to the owner itself, and by another site.
            ("here", [Here, Here, Here]),
            ("there", [At(OTHER), At(OTHER), not_held("there")]),
            ("frozen", [(); 3].map(|()| Waits(Wait::Owner(slot("frozen"))))),
            ("failed", [Waits(Wait::Failover(FAILED)), At(FAILED), not_held("failed")]),
            ("unknown", [Waits(Wait::Lookup(slot("unknown"))), At(OTHER), not_held("unknown")]),
        ];
        for (key, wanted) in cases {
            let by = |body: &Body, gate| {
                [Sender::Client, Sender::Redirected, Sender::Site]
                    .map(|sender| decide(body, sender, &fake(right(gate))))
            };
            assert_eq!(by(&delete(GLOBAL, &[key]), ReadGate::Closed), wanted, "{key}");
            assert_eq!(by(&get(GLOBAL, key), ReadGate::Open), wanted, "{key}");
            // Of a keyspace of this site, and of one that is gone, every key is here.
            for keyspace in [SITE, GONE] {
                assert_eq!(by(&delete(keyspace, &[key]), ReadGate::Closed), [Here, Here, Here]);
            }
        }
        let fake = fake(right(ReadGate::Open));
        let target = Target::Slot(slot("unknown"));
        let arrival = Arrival::new(target, &delete(GLOBAL, &["unknown"]), Sender::Client);
        let looked_up = Arrival { is_looked_up: true, ..arrival };
        assert_eq!(admit(&looked_up, &fake), At(OTHER), "the ring was asked for nothing");
        assert_eq!(admit(&Arrival { returns: 3, ..looked_up }, &fake), At(OWN), "the next in turn");
    }

    #[test]
    fn keys_of_one_site_may_lie_anywhere_and_those_of_all_in_one_slot() {
        let fake = fake(right(ReadGate::Open));
        let two = |keyspace| decide(&delete(keyspace, &["here", "there"]), Sender::Client, &fake);
        assert_eq!(two(SITE), Admission::Here);
        assert_eq!(two(GLOBAL), Admission::Refuse(Refusal::CrossSlot.into()));
        let all = Body::Read {
            keyspace: GLOBAL,
            query: Query::Count,
            consistency: ReadConsistency::Linearizable,
        };
        assert_eq!(
            decide(&all, Sender::Client, &fake),
            Admission::Here,
            "what this site has of it"
        );
    }

    #[test]
    fn an_order_for_a_site_goes_there() {
        let fake = fake(right(ReadGate::Stale));
        let order = Body::Write(Command::Tick);
        let to = |site| admit(&Arrival::new(Target::Site(site), &order, Sender::Client), &fake);
        assert_eq!((to(OWN), to(OTHER)), (Admission::Here, Admission::At(OTHER)));
        let failover = |by| {
            let body = Promotion { by, ..Promotion::of(FAILED) }.into();
            decide(&body, Sender::Client, &fake)
        };
        assert_eq!(
            (failover(None), failover(Some(OTHER))),
            (Admission::Here, Admission::At(OTHER))
        );
    }
}
