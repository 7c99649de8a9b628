//! Where a site keeps its keys: its own log and disk, or an etcd cluster.
//!
//! With the *embedded* engine a site is one to seven nodes that replicate a log. With the engine
//! *etcd* it is one node, made durable by an existing etcd cluster: for operators who run one
//! anyway, with its replicas and its backups. The same core decides (`protocol::site`), as a site
//! of one voter; the difference is when its outputs are released.
//!
//! The rules, from which all guarantees follow:
//!
//! - **One owner.** A process serves the site while it owns a key in etcd that has a lease. Each of
//!   its transactions compares that key's revision and sets it anew, so that no other process's
//!   transaction, and no delayed one of its own, can come between two of them.
//! - **Nothing is released before etcd has it.** The core's log is volatile, its state a copy. The
//!   changes that applying makes in the state are recorded and go to etcd, one *round* per
//!   transaction. Answers, messages to other sites and watch events produced until then are
//!   released when the transaction has succeeded. Meanwhile the next round gathers.
//! - **A round without changes still checks the lock**, since a read's answer is valid only if
//!   this process still owned the site after the request arrived.
//! - **A process that loses the key stops answering.** Its withheld outputs are dropped, waiting
//!   clients receive "outcome unknown", and the process waits to own the site again.
//!
//! | file | idea |
//! | --- | --- |
//! | `recording` | a state that records its changes |
//! | `locked` | what is needed of etcd, as a contract |
//! | `rows` | how rows are stored in etcd; long ones in parts |
//! | `redo` | rounds that do not fit one transaction |
//! | `output_buffer` | outputs that wait for their round, and requests that wait for outputs |
//! | `flusher` | the thread that writes rounds to etcd |
//! | `takeover` | from an owned site in etcd to a core that can start |
//! | `opened` | an engine while its node starts |
//! | `shell` | an engine while its core runs |
//! | `etcd` | the contract, implemented on etcd |
//!
//! Left out: other nodes in such a site (etcd has the replicas; a second process is a standby),
//! compacting etcd's history (its operator's settings do), and reads served by etcd itself. A stale
//! read sees this process's copy, so it may see a write that is still on its way to etcd; a backup
//! may contain one.
//!
//! Source: EdgeKV (Sonbol et al., 2020), with etcd clusters as its groups; the lock is Chubby's
//! sequencer (Burrows, 2006).

pub(crate) mod etcd;
#[cfg(test)]
mod fake;
mod flusher;
pub(crate) mod locked;
mod opened;
mod output_buffer;
mod recording;
mod redo;
mod rows;
mod shell;
mod takeover;

pub(crate) use opened::Opened;
pub(crate) use output_buffer::Released;
pub(crate) use shell::{Publish, Shell};

/// The state of a site, wherever its keys are kept.
pub(crate) type SiteState = recording::Recorded<storage::state::fjall::FjallState>;
