//! Where a site keeps its keys: its own log and disk, or an etcd cluster.
//!
//! With the *embedded* engine a site is one to seven nodes that replicate a log. With the engine
//! *etcd* it is one node, whose durability is an etcd cluster that is there already: for operators who
//! run one anyway, and want its copies, its backups and its habits. What decides stays the same core
//! (`protocol::site`), as a site of one voter; what differs is when its outputs leave.
//!
//! The rules, from which all guarantees follow:
//!
//! - **One owner.** A process serves the site while it owns a key in etcd that has a lease. Each of its
//!   transactions compares that key's revision and sets it anew, so that no other process's transaction,
//!   and no delayed one of its own, can ever come between two of them.
//! - **Nothing leaves before etcd has it.** The core's log is volatile, its state a copy. What applying
//!   changes in the state is recorded and goes to etcd, a *round* at a time, each one transaction. Answers,
//!   messages to other sites and news for watchers that came about until then leave when the transaction
//!   has succeeded. While one is on its way, the next round gathers.
//! - **A round without changes asks all the same**, for a read's answer is only good if the site was still
//!   this process's after the question had come.
//! - **Whoever loses the key says no more.** Its withheld outputs are dropped, those who wait are told
//!   that the outcome is unknown, and the process waits for its turn to own the site again.
//!
//! | file | idea |
//! | --- | --- |
//! | `recording` | a state that can tell what was changed in it |
//! | `fenced` | what is needed of etcd, as a contract |
//! | `rows` | how rows lie in etcd; long ones in parts |
//! | `redo` | rounds that do not fit one transaction |
//! | `withheld` | outputs that wait for their round, and requests that wait for outputs |
//! | `flusher` | the thread that takes rounds to etcd |
//! | `begin` | from an owned site in etcd to a core that can start |
//! | `etcd` | the contract, by a real etcd |
//!
//! Left out: other nodes in such a site (etcd has the copies; a second process is a standby), compacting
//! etcd's history (its operator's settings do), and reads served by etcd itself. A stale read sees this
//! process's copy, so it may see a write that is still on its way to etcd; a backup may hold one.
//!
//! Source: EdgeKV (Sonbol et al., 2020), whose groups are etcd clusters; the fence is Chubby's sequencer
//! (Burrows, 2006).

pub(crate) mod begin;
pub(crate) mod etcd;
#[cfg(test)]
mod fake;
pub(crate) mod fenced;
mod flusher;
pub(crate) mod recording;
mod redo;
mod rows;
pub(crate) mod withheld;

/// The state of a site, wherever its keys are kept.
pub(crate) type SiteState = recording::Recorded<storage::state::fjall::FjallState>;
