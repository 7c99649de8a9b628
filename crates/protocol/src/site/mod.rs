//! A site's replica: raft, the state machine it drives, and the requests that wait for it.

pub mod machine;
pub mod raft;
