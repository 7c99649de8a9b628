//! The registry: one value that all sites of a deployment agree on, and that survives its sites.
//!
//! A few sites, the *registrars*, hold it. A change is a compare-and-swap by majority (CASPaxos): no
//! leader, no lease, two round trips. The parts are pure and know neither sockets nor time:
//!
//! - [`Value`]: what must be known of a registry here: its version, its registrars, its command ids;
//! - [`Acceptor`]: what a site keeps of it. Each of its steps is a command of the site's log;
//! - [`Proposer`]: one attempt of a site's leader to change it, a [`Ballot`]. It can be lost at any moment;
//! - [`Driver`]: what waits at a site, attempt after attempt;
//! - `contents`: the registry itself as a value;
//! - [`trial`]: bugs put in on purpose, for the model checker in `tests/registry`.
//!
//! # The rules
//!
//! *Version.* A ballot is (term, round, site). The site logs it before it uses it
//! ([`Acceptor::reserve`]), so no two attempts share one, and it is the version of the value that it
//! writes.
//!
//! *Copy.* A value that a majority has accepted is *chosen*. Only chosen values spread between sites and
//! are acted on: a site's copy is the newest that it knows. An acceptor takes copies over and refuses
//! lower ballots from then on ([`Acceptor::learn`]).
//!
//! *Change.* The proposer asks for promises. The value of the highest ballot that a majority answers goes
//! on, changed by the command, or unchanged if it has the command's id already. The outcome is known when
//! that value is chosen, not before: also a refusal rests on a value that may never be.
//!
//! *Registrars* change only in a ballot that extends the proposer's own copy. A value names its set, the
//! version that made the set, and the set before. A ballot needs majorities of the set in its proposer's
//! copy and, if a value read or written has a later one, of that and of the one before. Sets are told
//! apart by the version that made them: {a} → {b} → {a} has three.
//!
//! *Recovery.* With a majority of registrars gone an operator names the sites that are to be done
//! without. A ballot of the next term (the number above the highest promised here, and the own site's id)
//! needs the promise and the answer of every other listed site. The highest ballot's value goes on, with
//! registrars among those that answered. What only the named sites have chosen is lost, until a copy of
//! the new term reaches them: then they keep what they have to hand in ([`Acceptor::kept`]), decisions
//! and joins beyond the end of their term, and a proposer of theirs adds it to the value, unchanged.
//! A recovery that ends half-way leaves promises of a term that has no value. Changes do without those that
//! promised it, as long as a majority has not; otherwise they wait until it is asked for again, which may
//! be done whoever is back by then.
//!
//! Not here: how messages and commands travel, and what a change means. The first is the site's job, the
//! last is the registry's own ([`model::Registry`]).
//!
//! [`Ballot`]: model::Ballot

mod acceptor;
mod contents;
mod driver;
mod proposer;
pub mod trial;
mod value;

pub use acceptor::Acceptor;
pub use driver::{Answered, Driver, Effect, Ended, Sight, Step};
pub use proposer::{Asked, Needs, Outcome, Proposer, Work};
pub use value::Value;
