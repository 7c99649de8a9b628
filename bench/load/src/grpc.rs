//! The two calls of each gRPC service that are measured, in their own field numbers.
//!
//! The messages hold only the fields that a plain put and a plain get use; the rest keep their
//! protobuf defaults, and unknown fields of an answer are skipped.

use prost::Message;

use crate::workload::{Kind, Request};

/// A key-value service spoken to over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// `etcdserverpb.KV`. A `Range` is linearizable unless `serializable` is set.
    Etcd,
}

/// `etcdserverpb.PutRequest`.
#[derive(Clone, PartialEq, Message)]
struct EtcdPut {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `etcdserverpb.RangeRequest`.
#[derive(Clone, PartialEq, Message)]
struct EtcdRange {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, PartialEq, Message)]
struct EtcdFound {
    #[prost(int64, tag = "4")]
    count: i64,
}

impl Service {
    /// The method that performs a request of this kind.
    pub(crate) fn path(self, kind: Kind) -> &'static [u8] {
        match (self, kind) {
            (Self::Etcd, Kind::Get) => b"/etcdserverpb.KV/Range",
            (Self::Etcd, Kind::Put) => b"/etcdserverpb.KV/Put",
        }
    }

    /// The request's message.
    pub(crate) fn encode(self, request: &Request<'_>) -> Vec<u8> {
        let key = request.key.to_vec();
        match (self, request.kind) {
            (Self::Etcd, Kind::Get) => EtcdRange { key }.encode_to_vec(),
            (Self::Etcd, Kind::Put) => EtcdPut {
                key,
                value: request.value.to_vec(),
            }
            .encode_to_vec(),
        }
    }

    /// Whether a get's answer holds a value.
    pub(crate) fn found(self, message: &[u8]) -> Result<bool, String> {
        let unreadable = |e| format!("unreadable answer: {e}");
        match self {
            Self::Etcd => Ok(EtcdFound::decode(message).map_err(unreadable)?.count > 0),
        }
    }
}
