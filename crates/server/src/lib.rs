//! How a site runs: event loop, peer links, clocks, TLS, metrics, configuration.
//!
//! The shell around `protocol`'s pure core. It reads clocks, opens sockets and files, and starts
//! threads, so that nothing above the I/O line has to. [`Node::start`] starts a node; a front
//! accesses it through a [`Handle`].

pub mod admission;
mod background;
pub mod backup;
mod batcher;
mod clock;
pub mod config;
mod disk_loop;
pub mod durations;
mod engine;
mod handle;
mod identity;
mod links;
pub mod logins;
pub mod metrics;
mod node;
pub mod peers;
mod placement;
mod proxy_reads;
mod remote;
mod site_loop;
pub mod tls;
pub mod users;
mod watch;

pub use batcher::{BATCHERS_MAX, CALL_REQUESTS_MAX, Outcome, Reply};
pub use clock::Clock;
pub use engine::etcd::EtcdError;
pub use engine::etcd::health::EtcdStatus;
pub use handle::Handle;
pub use identity::IdentityError;
pub use node::{Node, StartError, Stopped};
pub use protocol::global::backups::backup_of;
pub use protocol::global::map::{Owned, Standing};
pub use protocol::replica::raft::Role;
pub use protocol::site::{MapView, Share, Status};
pub use watch::{Watch, all_keyspaces};
