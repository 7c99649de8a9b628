//! The messages between sites that keep their ring: protobuf.
//!
//! A question carries a number that its answer repeats. [`Notify`] and [`Leave`] have no answer:
//! the first is sent again and again, and what the second reports would otherwise be found out by
//! asking. Points of the ring are evenly spread over 64 bits, so they are written as
//! eight bytes rather than as varints.

/// One message between two sites.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RingMessage {
    /// The content; `None`: that of a newer version, unknown here.
    #[prost(oneof = "Content", tags = "1, 2, 3, 4, 5, 6")]
    pub content: Option<Content>,
}

/// The content of a message.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Content {
    /// Asks a virtual node for its pointers.
    #[prost(message, tag = "1")]
    Neighbours(Neighbours),
    /// Answers [`Content::Neighbours`].
    #[prost(message, tag = "2")]
    Pointers(Pointers),
    /// Claims to be the predecessor of a virtual node.
    #[prost(message, tag = "3")]
    Notify(Notify),
    /// Asks for one step of a lookup.
    #[prost(message, tag = "4")]
    Find(Find),
    /// Answers [`Content::Find`].
    #[prost(message, tag = "5")]
    Found(Found),
    /// Reports to the neighbours that the site has left.
    #[prost(message, tag = "6")]
    Leave(Leave),
}

impl From<Content> for RingMessage {
    fn from(message: Content) -> RingMessage {
        RingMessage { content: Some(message) }
    }
}

/// A virtual node of a site.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Member {
    /// Where it is.
    #[prost(fixed64, tag = "1")]
    pub point: u64,
    /// Its site.
    #[prost(uint32, tag = "2")]
    pub site: u32,
}

/// Asks a virtual node for its pointers; an answer shows that it is up.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Neighbours {
    /// The answer repeats it.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Which virtual node of the site.
    #[prost(fixed64, tag = "2")]
    pub point: u64,
}

/// The pointers of a virtual node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pointers {
    /// The question's.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// The virtual node asked.
    #[prost(fixed64, tag = "2")]
    pub point: u64,
    /// Whether it is one of the ring. If not, nothing below means anything.
    #[prost(bool, tag = "3")]
    pub member: bool,
    /// Whether its pointers have been confirmed since its site (or the site's leader) began. If
    /// not, they may be from before a long absence.
    #[prost(bool, tag = "4")]
    pub settled: bool,
    /// Its predecessor, if it has one.
    #[prost(message, optional, tag = "5")]
    pub predecessor: Option<Member>,
    /// Its successors, in the order of the ring.
    #[prost(message, repeated, tag = "6")]
    pub successors: Vec<Member>,
}

/// A claim to be the predecessor of a virtual node.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Notify {
    /// Which virtual node of the receiver.
    #[prost(fixed64, tag = "1")]
    pub point: u64,
    /// The claimed predecessor: a virtual node of the sender.
    #[prost(message, optional, tag = "2")]
    pub predecessor: Option<Member>,
}

/// Asks which way a point lies.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Find {
    /// The answer repeats it.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// The point.
    #[prost(fixed64, tag = "2")]
    pub target: u64,
    /// Sites that the answer is not to name.
    #[prost(uint32, repeated, tag = "3")]
    pub without: Vec<u32>,
}

/// Which way a point lies.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Found {
    /// The question's.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// The way; `None`: the site asked is not of the ring.
    #[prost(oneof = "Way", tags = "2, 3, 4")]
    pub way: Option<Way>,
}

/// Which way a point lies.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum Way {
    /// This virtual node of the site asked is responsible for it.
    #[prost(message, tag = "2")]
    Mine(Member),
    /// This virtual node of another site is, by the pointers of the site asked.
    #[prost(message, tag = "3")]
    At(Member),
    /// This one is nearer to it: ask there next.
    #[prost(message, tag = "4")]
    Ask(Member),
}

/// "I have left: join hands."
#[derive(Clone, PartialEq, prost::Message)]
pub struct Leave {
    /// One for each virtual node of the sender.
    #[prost(message, repeated, tag = "1")]
    pub gaps: Vec<Gap>,
}

/// Who is before and after a virtual node that is no more, without its site's other ones.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Gap {
    /// Where it was.
    #[prost(fixed64, tag = "1")]
    pub point: u64,
    /// Who was before it.
    #[prost(message, optional, tag = "2")]
    pub predecessor: Option<Member>,
    /// Who came after it, in the order of the ring.
    #[prost(message, repeated, tag = "3")]
    pub successors: Vec<Member>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn format_1_is_read() {
        // Written once by format 1, never to be changed.
        let find = Find { id: 1, target: 2, without: vec![3, 300] };
        let way = Some(Way::Ask(Member { point: 4, site: 5 }));
        for (message, bytes) in [
            (
                Content::Find(find),
                &b"\x22\x17\x09\x01\0\0\0\0\0\0\0\x11\x02\0\0\0\0\0\0\0\x1a\x03\x03\xac\x02"[..],
            ),
            (
                Content::Found(Found { id: 1, way }),
                &b"\x2a\x16\x09\x01\0\0\0\0\0\0\0\x22\x0b\x09\x04\0\0\0\0\0\0\0\x10\x05"[..],
            ),
        ] {
            let message = RingMessage::from(message);
            assert_eq!(
                message.encode_to_vec(),
                bytes,
                "this build writes {:02x?}",
                message.encode_to_vec()
            );
            assert_eq!(RingMessage::decode(bytes), Ok(message));
        }
    }
}
