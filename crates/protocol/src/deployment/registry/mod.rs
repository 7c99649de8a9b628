//! The registry: one value that all sites of a deployment agree on, and that survives the loss of
//! sites.
//!
//! A few sites, the *registrars*, hold it. A change is a compare-and-swap by majority (CASPaxos):
//! no leader, no lease, two round trips. The parts are pure: no sockets, no time:
//!
//! - [`Value`]: what the cores require of a registry: its version, its registrars, its command ids;
//! - [`Acceptor`]: what a site stores of it. Each of its steps is a command of the site's log;
//! - [`Proposer`]: one attempt of a site's leader to change it, under one [`Ballot`]. Volatile;
//! - [`Driver`]: the work that waits at a site, attempt after attempt;
//! - `contents`: the registry itself as a value;
//! - [`trial`]: planted bugs for the model checker in `tests/registry`.
//!
//! # The rules
//!
//! *Version.* A ballot is (term, round, site). The site logs it before using it
//! ([`Acceptor::reserve`]), so each attempt has its own ballot, which is also the version of the
//! value that the attempt writes.
//!
//! *Copy.* A value that a majority has accepted is *chosen*. Sites exchange and act on chosen
//! values only: a site's copy is the newest chosen value that it has learned. When an acceptor
//! learns a copy it refuses lower ballots from then on ([`Acceptor::learn`]).
//!
//! *Change.* The proposer asks for promises. It takes the value of the highest ballot in a
//! majority's answers, applies the command unless the value has the command's id already, and
//! proposes the result. The outcome is known only when that value is chosen. This includes
//! refusals: a refusal rests on a value that may never be chosen.
//!
//! *Registrars* change only in a ballot that extends the proposer's own copy. A value names its
//! set, the version that made the set, and the set before. A ballot needs majorities of the set in
//! its proposer's copy and, if a value read or written has a later set, of that set and of the one
//! before it. The version that made a set identifies it: {a} → {b} → {a} has three sets.
//!
//! *Recovery.* If a majority of registrars is lost, an operator names the sites to exclude. A
//! ballot of the next term (the number above the highest promised here, and the own site's id)
//! needs the promise and the answer of every other listed site. The value of the highest ballot
//! continues, with registrars among the sites that answered, and without sites and keyspaces that
//! the proposer's copy lacks: that value may never have been chosen, and its ids be in use at the
//! excluded sites. (If none is excluded, whatever was chosen in its term is in that value, and it
//! goes on whole. A site that only that value lists is not waited for, unless it may be a
//! registrar: it may never have joined.) What only the excluded sites have chosen is lost until a
//! copy of the new term reaches them: they then keep what they have to hand in
//! ([`Acceptor::kept`]), decisions and joins beyond the end of their term, and one of their
//! proposers adds it to the value, unchanged. A recovery that stops half-way leaves promises of a
//! term that has no value. Changes continue without the sites that made these promises while they
//! are a minority; otherwise changes wait until the recovery is repeated. A blocked site's leader
//! repeats it without excluding a site once all listed ones answer; an operator can repeat it with
//! any set of sites up.
//!
//! Not here: how messages and commands travel (the site), and what a change means
//! ([`model::Registry`]).
//!
//! [`Ballot`]: model::Ballot

mod acceptor;
mod contents;
mod driver;
mod proposer;
pub mod trial;
mod value;

pub use acceptor::Acceptor;
pub use driver::{Answered, Context, Driver, Effect, Ended, Step};
pub use proposer::{Asked, Needs, Outcome, Proposer, Work, to_answer};
pub use value::Value;
