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
    /// `portolan.v1.Kv`, in the keyspace `default`. A `Get` is linearizable unless it is `STALE`.
    Portolan,
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

/// `portolan.v1.PutRequest`.
#[derive(Clone, PartialEq, Message)]
struct PortolanPut {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    value: Vec<u8>,
}

/// `portolan.v1.GetRequest`.
#[derive(Clone, PartialEq, Message)]
struct PortolanGet {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

/// `portolan.v1.GetResponse`.
#[derive(Clone, PartialEq, Message)]
struct PortolanFound {
    /// A message, whose content is not looked at.
    #[prost(bytes = "vec", optional, tag = "1")]
    found: Option<Vec<u8>>,
}

impl Service {
    /// The method that performs a request of this kind.
    pub(crate) fn path(self, kind: Kind) -> &'static [u8] {
        match (self, kind) {
            (Self::Etcd, Kind::Get) => b"/etcdserverpb.KV/Range",
            (Self::Etcd, Kind::Put) => b"/etcdserverpb.KV/Put",
            (Self::Portolan, Kind::Get) => b"/portolan.v1.Kv/Get",
            (Self::Portolan, Kind::Put) => b"/portolan.v1.Kv/Put",
        }
    }

    /// The request's message.
    pub(crate) fn encode(self, request: &Request<'_>) -> Vec<u8> {
        let (key, value) = (request.key.to_vec(), request.value.to_vec());
        match (self, request.kind) {
            (Self::Etcd, Kind::Get) => EtcdRange { key }.encode_to_vec(),
            (Self::Etcd, Kind::Put) => EtcdPut { key, value }.encode_to_vec(),
            (Self::Portolan, Kind::Get) => PortolanGet { key }.encode_to_vec(),
            (Self::Portolan, Kind::Put) => PortolanPut { key, value }.encode_to_vec(),
        }
    }

    /// Whether a get's answer holds a value.
    pub(crate) fn found(self, message: &[u8]) -> Result<bool, String> {
        let unreadable = |e| format!("unreadable answer: {e}");
        Ok(match self {
            Self::Etcd => EtcdFound::decode(message).map_err(unreadable)?.count > 0,
            Self::Portolan => PortolanFound::decode(message).map_err(unreadable)?.found.is_some(),
        })
    }
}
