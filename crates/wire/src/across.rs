//! What nodes of different sites say to each other.
//!
//! It travels in [`crate::peer::Message`]s over connections of its own: the [`crate::peer::Hello`]
//! says which deployment and site a node belongs to, so both ends know which kind of connection it
//! is. A handover needs no words of its own here: its steps are requests, forwarded like others.

use crate::peer::Forward;
use bytes::Bytes;

/// One message between two nodes of different sites.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Across {
    /// What it says; `None` when a newer version says something unknown here.
    #[prost(oneof = "AcrossSay", tags = "1, 2, 3, 4")]
    pub say: Option<AcrossSay>,
}

/// What a message between sites says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AcrossSay {
    /// Requests about what the receiver's site holds, as far as the sender knows.
    #[prost(message, tag = "1")]
    Forward(Forward),
    /// What became of such requests.
    #[prost(message, tag = "2")]
    Answered(AnsweredAcross),
    /// Which registry the sender knows, and that registry, if the receiver's is older.
    #[prost(message, tag = "3")]
    Registry(RegistryNews),
    /// The ring.
    #[prost(bytes = "bytes", tag = "4")]
    Ring(Bytes),
}

/// What became of requests from another site.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnsweredAcross {
    /// The answers, in any order.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<AnswerAcross>,
    /// Who leads the answering site: whom to ask next time. 0: not known.
    #[prost(uint64, tag = "2")]
    pub leader: u64,
}

/// What became of one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnswerAcross {
    /// The number it came with.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A `Result<Answer, Failure>`, encoded.
    #[prost(bytes = "bytes", tag = "2")]
    pub outcome: Bytes,
    /// Of a slot that is not held there: who holds it, as far as is known there. 0: not known.
    #[prost(uint32, tag = "3")]
    pub holder: u32,
    /// The epoch at which it does.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
}

/// News of the registry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegistryNews {
    /// The version that the sender has.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// That registry, encoded; empty: the version only.
    #[prost(bytes = "bytes", tag = "2")]
    pub registry: Bytes,
    /// Who leads the sending site: whom to ask, and where to send clients. 0: not known.
    #[prost(uint64, tag = "3")]
    pub leader: u64,
}

impl From<AcrossSay> for Across {
    fn from(say: AcrossSay) -> Across {
        Across { say: Some(say) }
    }
}
