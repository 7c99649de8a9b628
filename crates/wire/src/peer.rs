//! The messages between nodes: protobuf in length-prefixed frames.
//!
//! A connection begins with one [`Hello`] each way, and with proofs where they are asked for
//! ([`crate::proof`]); then [`Message`]s follow, in either direction,
//! each in a frame of a big-endian `u32` length and that many bytes. Protobuf gives the schema room
//! to grow: a node skips unknown fields, and [`PROTOCOL`] determines which of them it needs.
//! Raft's messages are spelled out here, and not in the consensus library's own encoding, because
//! that library's protobuf parser must never see bytes from the network (RUSTSEC-2024-0437).
//!
//! Commands, answers and failures inside are bytes in the encoding of [`crate::entry`].

use crate::inter_site::{InterSiteMessage, MapMessage, RegistryVersion, Validator};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::limits;

/// The version of this protocol of this build. 2: a link begins with a proof
/// ([`crate::proof`]); a node that asks for none sends 1, and so is compatible with versions
/// without proofs.
pub const PROTOCOL: u32 = 2;
/// The version that a node without required proofs sends.
pub const PROTOCOL_WITHOUT_PROOF: u32 = 1;
/// The oldest version it still understands.
pub const PROTOCOL_OLDEST: u32 = 1;

/// The rules by which this build decides the owner of a slot. 1: epochs have failovers in them. A
/// build without them misreads such epochs, and what is built on them: a link needs both ends to
/// follow rules that the other one has. 2: a site that has handed its join in and left has left;
/// nodes of one site that decide this differently apply the same log to different states. 3: so do
/// those that differ in whether an earlier owner's report frees a copy. 4: the registry, keyspaces
/// and guards have one form each. 5: a lost site stays parted until the registry has its return. 6:
/// the epoch of a later failover frees a borrowed group wherever it is learned, and the newest
/// decision outlasts its site. 7: what a rebuild of a region's order loses is noted with its end. 8:
/// and by itself, beside what earlier ones have lost. 9: what a borrowed group takes is counted as it
/// is, and a site takes only so much. 10: what a region has lost of its order comes from another
/// one that had taken it, and what it writes waits for that.
pub const RULES: u32 = 10;
/// The oldest rules it still understands. 0 were those of builds that did not name any.
pub const RULES_OLDEST: u32 = 10;

/// The first message of either side.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// The protocol that the sender requires, of those that it supports.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The site's name: nodes of different sites do not talk raft.
    #[prost(string, tag = "2")]
    pub site: String,
    /// The sender.
    #[prost(uint64, tag = "3")]
    pub node: u64,
    /// Which life of that node: drawn when its disk was empty.
    #[prost(fixed64, tag = "4")]
    pub incarnation: u64,
    /// Its deployment; 0: none, or not known yet.
    #[prost(fixed64, tag = "5")]
    pub deployment: u64,
    /// Its site's id there; 0: none.
    #[prost(uint32, tag = "6")]
    pub site_id: u32,
    /// Which entry of the site's log made this life a member; 0: none yet, by its own log.
    #[prost(uint64, tag = "135")]
    pub since: u64,
    /// Drawn for this connection, for the other side's proof. Empty: a version without proofs.
    #[prost(bytes = "bytes", tag = "140")]
    pub challenge: Bytes,
    /// Whether it asks for a proof.
    #[prost(bool, tag = "141")]
    pub asks_proof: bool,
    /// The rules of ownership that it follows ([`RULES`]); 0: an older build, without this field.
    #[prost(uint32, tag = "220")]
    pub rules: u32,
}

/// A life of a node: what is between an empty disk and the loss of that disk.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Life {
    /// Drawn when its disk was empty.
    #[prost(fixed64, tag = "1")]
    pub incarnation: u64,
    /// Which entry of the site's log made it a member; 0: not known.
    #[prost(uint64, tag = "2")]
    pub since: u64,
}

/// One message between two nodes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The content; `None`: that of a newer version, unknown here.
    #[prost(oneof = "Content", tags = "1, 2, 3, 4, 5, 6, 119, 136, 181, 240")]
    pub content: Option<Content>,
    /// Of a leader's heartbeats and read indexes: the log time when it was sent.
    #[prost(message, optional, tag = "130")]
    pub clock: Option<Clock>,
    /// Which life of its node the sender is. A node that only asks to be taken in leaves it out, as
    /// does one of an earlier version.
    #[prost(message, optional, tag = "135")]
    pub life: Option<Life>,
}

/// What a leader vouches for of time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Clock {
    /// The log time, milliseconds since 1970.
    #[prost(uint64, tag = "1")]
    pub log_time_ms: u64,
    /// The leader's wall clock less that.
    #[prost(sint64, tag = "2")]
    pub wall_ahead_ms: i64,
    /// Whether it can propose an entry, so that what is due goes.
    #[prost(bool, tag = "3")]
    pub moves: bool,
}

/// The content of a message.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Content {
    /// Consensus.
    #[prost(message, tag = "1")]
    Raft(Raft),
    /// Requests for the leader, from a node whose client asked it, or that wants to join.
    #[prost(message, tag = "2")]
    Forward(Forward),
    /// What became of forwarded requests.
    #[prost(message, tag = "3")]
    Answered(Answered),
    /// Asks for a chunk of a snapshot.
    #[prost(message, tag = "4")]
    SnapshotWanted(SnapshotWanted),
    /// A chunk of a snapshot.
    #[prost(message, tag = "5")]
    SnapshotChunk(SnapshotChunk),
    /// To or from a node of another site.
    #[prost(message, tag = "6")]
    InterSite(InterSiteMessage),
    /// The receiver is not the life of its node that is a member: this one is.
    #[prost(message, tag = "136")]
    Replaced(Life),
    /// The owners of slots, between a site's leader and its other nodes.
    #[prost(message, tag = "181")]
    Map(MapMessage),
    /// Accesses of keys that the site owns, to its leader. A version without it counts none.
    #[prost(message, tag = "240")]
    Accesses(CountedAccesses),
    /// Sessions wait at the sender for the order of causal keys: to the leader, which asks the root
    /// if nothing comes. A version without it waits until the root asks.
    #[prost(message, tag = "119")]
    OrderAwaited(OrderAwaited),
}

/// How much of the order of causal keys sessions wait for.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct OrderAwaited {
    /// A [`model::Position`].
    #[prost(uint64, tag = "1")]
    pub upto: u64,
}

/// Accesses that a node has counted: five lists of the same length, and of how many accesses one
/// was counted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CountedAccesses {
    /// Which group of keys: a hash.
    #[prost(fixed64, repeated, tag = "1")]
    pub groups: Vec<u64>,
    /// From which site; 0: the sender's own.
    #[prost(uint32, repeated, tag = "2")]
    pub sites: Vec<u32>,
    /// How many.
    #[prost(float, repeated, tag = "3")]
    pub counts: Vec<f32>,
    /// The largest that was written, in bytes; 0: nothing was.
    #[prost(uint32, repeated, tag = "4")]
    pub bytes: Vec<u32>,
    /// Of which client ([`model::ClientName`]); 0: not known.
    #[prost(fixed64, repeated, tag = "5")]
    pub clients: Vec<u64>,
    /// Of how many accesses one was counted, on average over these. A version without it sends 0,
    /// which is taken for 1.
    #[prost(float, tag = "6")]
    pub one_of: f32,
}

/// A message of Raft. The fields mean what they mean in etcd's Raft.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Raft {
    /// Which message: the number in etcd's `MessageType`.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The receiver.
    #[prost(uint64, tag = "2")]
    pub to: u64,
    /// The sender.
    #[prost(uint64, tag = "3")]
    pub from: u64,
    /// The sender's term.
    #[prost(uint64, tag = "4")]
    pub term: u64,
    /// The term of the entry at `index`.
    #[prost(uint64, tag = "5")]
    pub log_term: u64,
    /// The entry before `entries`, or the one acknowledged.
    #[prost(uint64, tag = "6")]
    pub index: u64,
    /// New entries.
    #[prost(message, repeated, tag = "7")]
    pub entries: Vec<Entry>,
    /// The sender's commit index.
    #[prost(uint64, tag = "8")]
    pub commit: u64,
    /// The term of the commit index.
    #[prost(uint64, tag = "9")]
    pub commit_term: u64,
    /// For a snapshot: what it is of. Its content travels in chunks.
    #[prost(message, optional, tag = "10")]
    pub snapshot: Option<SnapshotHead>,
    /// The index a follower wants a snapshot of at least.
    #[prost(uint64, tag = "11")]
    pub request_snapshot: u64,
    /// Whether this is a refusal.
    #[prost(bool, tag = "12")]
    pub reject: bool,
    /// The follower's last index, as a hint with a refusal.
    #[prost(uint64, tag = "13")]
    pub reject_hint: u64,
    /// What belongs to a read index or a campaign.
    #[prost(bytes = "bytes", tag = "14")]
    pub context: Bytes,
    /// The sender's election priority.
    #[prost(int64, tag = "15")]
    pub priority: i64,
}

/// An entry of the log on its way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// Its position.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The term of the leader that proposed it.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// What the payload is.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    /// What it carries.
    #[prost(bytes = "bytes", tag = "4")]
    pub payload: Bytes,
}

/// What a snapshot is of.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotHead {
    /// The last entry it contains the effect of.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// That entry's term.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// The members as of that entry.
    #[prost(message, optional, tag = "3")]
    pub members: Option<Members>,
}

/// The members of a site, and Raft's configuration of them. Also a disk format: it is kept in the
/// state and in snapshots.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Members {
    /// All members, ordered by node.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Member>,
    /// The voters.
    #[prost(uint64, repeated, tag = "2")]
    pub voters: Vec<u64>,
    /// The members without a vote.
    #[prost(uint64, repeated, tag = "3")]
    pub learners: Vec<u64>,
    /// The voters before the change that is under way.
    #[prost(uint64, repeated, tag = "4")]
    pub voters_outgoing: Vec<u64>,
    /// The members that become learners when it is done.
    #[prost(uint64, repeated, tag = "5")]
    pub learners_next: Vec<u64>,
    /// Whether Raft ends the change by itself.
    #[prost(bool, tag = "6")]
    pub auto_leave: bool,
    /// The operators' commands that were carried out last, oldest first, so that a repetition is
    /// not carried out.
    #[prost(message, repeated, tag = "200")]
    pub done: Vec<Numbered>,
}

/// The number of an operator's command.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Numbered {
    /// The client that numbers.
    #[prost(fixed64, tag = "1")]
    pub client: u64,
    /// Its number.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
}

/// One member.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Member {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub node: u64,
    /// Its peer port, `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Which life of it is a member.
    #[prost(fixed64, tag = "3")]
    pub incarnation: u64,
    /// It votes and keeps the log but holds no data.
    #[prost(bool, tag = "4")]
    pub witness: bool,
    /// Which entry of the log made this life of it a member: a higher one is a later life's. 0: an
    /// earlier version did, which did not keep it.
    #[prost(uint64, tag = "135")]
    pub since: u64,
}

/// The payload of an entry that changes the membership.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MembersChange {
    /// What changes, all at once. Empty: leave the joint configuration.
    #[prost(message, repeated, tag = "1")]
    pub changes: Vec<MemberChange>,
    /// The operator's command that is carried out with it.
    #[prost(message, optional, tag = "200")]
    pub done: Option<Numbered>,
}

/// One change of the membership.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberChange {
    /// What to do with the member.
    #[prost(enumeration = "MemberChangeKind", tag = "1")]
    pub kind: i32,
    /// The member.
    #[prost(message, optional, tag = "2")]
    pub member: Option<Member>,
}

/// What a change does with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum MemberChangeKind {
    /// It votes from now on.
    Vote = 0,
    /// It is gone.
    Remove = 1,
    /// It listens from now on.
    Listen = 2,
}

/// Requests for the leader.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Forward {
    /// The requests, in order.
    #[prost(message, repeated, tag = "1")]
    pub requests: Vec<ForwardedRequest>,
}

/// One request for the leader.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardedRequest {
    /// The sender's number for it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A [`model::Request`], encoded.
    #[prost(bytes = "bytes", tag = "2")]
    pub request: Bytes,
    /// For a node that is to join: its description. `request` is empty then.
    #[prost(message, optional, tag = "3")]
    pub join: Option<Member>,
    /// For a read of one key, between sites: the sender keeps copies, and has the key at this. A
    /// version without copies answers as ever.
    #[prost(message, optional, tag = "4")]
    pub known: Option<Validator>,
    /// The client's [`model::SessionToken`]. A version without sessions leaves it out.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub token: Option<Bytes>,
    /// Between sites: the client's [`model::ClientName`], for those that count accesses; 0: none.
    #[prost(fixed64, tag = "6")]
    pub client: u64,
}

/// What became of forwarded requests.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answered {
    /// The answers, in any order.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<ForwardedAnswer>,
}

/// What became of one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardedAnswer {
    /// The number it came with.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A `Result<Answer, Failure>`, encoded.
    #[prost(bytes = "bytes", tag = "2")]
    pub outcome: Bytes,
    /// For a node that wanted to join: the members it joined.
    #[prost(message, optional, tag = "3")]
    pub members: Option<Members>,
    /// The session's [`model::SessionToken`] after this answer, if the request had one.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub token: Option<Bytes>,
    /// Under which failover the leader has served it, if it is about a key that has an owner. A
    /// version without it sends nothing: then the state of the node that forwarded it counts.
    #[prost(message, optional, tag = "118")]
    pub served: Option<Served>,
}

/// Under which failover a site serves what it answers about.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Served {
    /// As in [`crate::inter_site::InterSiteAnswer::served`]; none: the first one.
    #[prost(message, optional, tag = "1")]
    pub failover: Option<RegistryVersion>,
    /// Whether it is of a group that is borrowed there.
    #[prost(bool, tag = "2")]
    pub borrowed: bool,
}

/// Asks for a chunk of a snapshot.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SnapshotWanted {
    /// Which snapshot.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// From which byte on.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// All of it came, and it is damaged.
    #[prost(bool, tag = "3")]
    pub is_damaged: bool,
}

/// A chunk of a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotChunk {
    /// Which snapshot.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// Where the chunk begins.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// The length of the whole.
    #[prost(uint64, tag = "3")]
    pub total_bytes: u64,
    /// The chunk; empty when the snapshot is not there any more.
    #[prost(bytes = "bytes", tag = "4")]
    pub bytes: Bytes,
}

/// Why bytes from another node cannot be understood. The connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than any can be.
    #[error("a frame of {length} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// Its length, by its head.
        length: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// The bytes are no message.
    #[error("not a message: {0}")]
    Malformed(String),
}

impl From<Content> for Message {
    fn from(message: Content) -> Message {
        Message { content: Some(message), clock: None, life: None }
    }
}

/// What has gathered for one peer, in order and in parts that each fit a frame: a part ends with
/// the item that exceeds [`limits::APPEND_BYTES_MAX`]. An item alone is at most a request or an
/// answer.
pub fn in_parts<T: prost::Message>(items: Vec<T>) -> Vec<Vec<T>> {
    if items.iter().map(T::encoded_len).sum::<usize>() <= limits::APPEND_BYTES_MAX {
        return if items.is_empty() { Vec::new() } else { vec![items] };
    }
    let mut parts = Vec::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += item.encoded_len();
        part.push(item);
        if bytes > limits::APPEND_BYTES_MAX {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// Appends a message to `out` as one frame. One that is longer than
/// [`limits::PEER_FRAME_BYTES_MAX`] would end the connection at the other end.
pub fn encode_frame(message: &impl prost::Message, out: &mut BytesMut) {
    let length = message.encoded_len();
    debug_assert!(length <= limits::PEER_FRAME_BYTES_MAX, "a frame of {length} bytes");
    out.reserve(4 + length);
    out.put_u32(length as u32);
    message.encode(out).expect("a BytesMut grows as needed");
}

/// Takes the first frame's content off `buffer`; `None`: it is not all there yet.
pub fn split_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
    split_frame_up_to(buffer, limits::PEER_FRAME_BYTES_MAX)
}

/// The same, of frames of at most so many bytes.
pub fn split_frame_up_to(
    buffer: &mut BytesMut,
    bytes_max: usize,
) -> Result<Option<Bytes>, FrameError> {
    if buffer.len() < 4 {
        return Ok(None);
    }
    let length = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
    if length > bytes_max {
        return Err(FrameError::TooLong { length, bytes_max });
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Understands a frame's content as a message of type `M`.
pub fn decode<M: prost::Message + Default>(frame: Bytes) -> Result<M, FrameError> {
    M::decode(frame).map_err(|error| FrameError::Malformed(error.to_string()))
}

/// What must hold for any bytes whatever: they are refused or understood, and what is understood
/// is written and read again as the same. For fuzzing.
pub fn check_any(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = split_frame(&mut buffer) {
        let _ = decode::<Hello>(frame.clone());
        let Ok(message) = decode::<Message>(frame) else { continue };
        let mut again = BytesMut::new();
        encode_frame(&message, &mut again);
        let frame = split_frame(&mut again).expect("written here").expect("written whole");
        assert_eq!(decode::<Message>(frame).as_ref(), Ok(&message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message as _;

    #[test]
    fn every_content_is_read_again() {
        let inter_site = crate::inter_site::InterSite::Forward(Forward::default());
        for content in [
            Content::Raft(Raft::default()),
            Content::Forward(Forward::default()),
            Content::Answered(Answered::default()),
            Content::SnapshotWanted(SnapshotWanted::default()),
            Content::SnapshotChunk(SnapshotChunk::default()),
            Content::InterSite(InterSiteMessage::from(inter_site)),
            Content::Replaced(Life::default()),
            Content::Map(MapMessage::default()),
            Content::Accesses(CountedAccesses::default()),
            Content::OrderAwaited(OrderAwaited { upto: 7 }),
        ] {
            // A variant that is added belongs in the list above, and its tag in that of `Message`.
            match content {
                Content::Raft(_)
                | Content::Forward(_)
                | Content::Answered(_)
                | Content::SnapshotWanted(_)
                | Content::SnapshotChunk(_)
                | Content::InterSite(_)
                | Content::Replaced(_)
                | Content::Map(_)
                | Content::Accesses(_)
                | Content::OrderAwaited(_) => {}
            }
            let message = Message::from(content);
            let read = Message::decode(message.encode_to_vec().as_slice()).unwrap();
            assert_eq!(read, message);
        }
    }

    fn a_message() -> Message {
        let entry = Entry { index: 7, term: 2, kind: 1, payload: Bytes::from_static(b"abc") };
        Content::Raft(Raft {
            kind: 3,
            to: 1,
            from: 2,
            term: 2,
            entries: vec![entry],
            ..Raft::default()
        })
        .into()
    }

    #[test]
    fn a_frame_survives_any_cut() {
        let mut whole = BytesMut::new();
        encode_frame(&a_message(), &mut whole);
        for cut in 0..whole.len() {
            let mut buffer = BytesMut::from(&whole[..cut]);
            assert_eq!(split_frame(&mut buffer), Ok(None), "cut at {cut}");
            buffer.extend_from_slice(&whole[cut..]);
            let frame = split_frame(&mut buffer).unwrap().unwrap();
            assert_eq!(decode::<Message>(frame), Ok(a_message()));
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn what_has_gathered_is_sent_in_parts_that_fit_a_frame() {
        let answer = |id, bytes: usize| ForwardedAnswer {
            id,
            outcome: vec![0; bytes].into(),
            ..ForwardedAnswer::default()
        };
        let ids = |parts: Vec<Vec<ForwardedAnswer>>| {
            let ids =
                |part: Vec<ForwardedAnswer>| part.iter().map(|one| one.id).collect::<Vec<_>>();
            parts.into_iter().map(ids).collect::<Vec<_>>()
        };
        let whole = limits::APPEND_BYTES_MAX;
        assert_eq!(ids(in_parts(Vec::new())), Vec::<Vec<u64>>::new());
        assert_eq!(ids(in_parts(vec![answer(1, 9), answer(2, 9)])), [[1, 2]]);
        let items = vec![
            answer(1, whole),
            answer(2, 9),
            answer(3, whole / 2),
            answer(4, whole),
            answer(5, 9),
        ];
        assert_eq!(ids(in_parts(items)), [vec![1], vec![2, 3, 4], vec![5]]);
        // The largest part there can be: one that nearly is one, and the longest answer.
        let largest = vec![answer(1, whole - 64), answer(2, limits::ANSWER_BYTES_MAX)];
        let parts = in_parts(largest);
        assert_eq!(parts.len(), 1);
        let message = Answered { answers: parts.into_iter().next().unwrap_or_default() };
        assert!(message.encoded_len() + 64 < limits::PEER_FRAME_BYTES_MAX);
    }

    #[test]
    fn format_1_is_read() {
        // Written once by format 1, never to be changed: a Raft append with one entry.
        let format_1 =
            b"\x0a\x15\x08\x03\x10\x01\x18\x02\x20\x02\x3a\x0b\x08\x07\x10\x02\x18\x01\x22\x03abc";
        let mut bytes = BytesMut::new();
        encode_frame(&a_message(), &mut bytes);
        let frame = split_frame(&mut bytes).unwrap().unwrap();
        assert_eq!(decode::<Message>(frame.clone()), Ok(a_message()));
        let old = decode::<Message>(Bytes::from_static(format_1));
        assert_eq!(old, Ok(a_message()), "this build writes {:02x?}", &frame[..]);
    }

    #[test]
    fn a_leader_s_clock_goes_along_and_may_be_missing() {
        let clock = Clock { log_time_ms: 300, wall_ahead_ms: -2, moves: true };
        let message = Message { clock: Some(clock), ..a_message() };
        let mut bytes = BytesMut::new();
        encode_frame(&message, &mut bytes);
        let frame = split_frame(&mut bytes).unwrap().unwrap();
        assert!(frame.ends_with(b"\x92\x08\x07\x08\xac\x02\x10\x03\x18\x01"), "{frame:02x?}");
        assert_eq!(decode::<Message>(frame), Ok(message));
        assert_eq!(Message::from(Content::Raft(Raft::default())).clock, None);
    }

    #[test]
    fn a_life_goes_along_and_may_be_missing() {
        let life = Life { incarnation: 7, since: 300 };
        let message = Message { life: Some(life), ..a_message() };
        let mut bytes = BytesMut::new();
        encode_frame(&message, &mut bytes);
        let frame = split_frame(&mut bytes).unwrap().unwrap();
        assert!(frame.ends_with(b"\xba\x08\x0c\x09\x07\0\0\0\0\0\0\0\x10\xac\x02"), "{frame:02x?}");
        assert_eq!(decode::<Message>(frame), Ok(message));
        assert_eq!(Message::from(Content::Raft(Raft::default())).life, None);
        // Written by format 1: a member and a greeting without the entry of their membership.
        let member =
            decode::<Member>(Bytes::from_static(b"\x08\x02\x12\x03b:1\x19\x07\0\0\0\0\0\0\0"));
        let address = "b:1".to_owned();
        let expected = Member { node: 2, address, incarnation: 7, witness: false, since: 0 };
        assert_eq!(member, Ok(expected));
        let hello = decode::<Hello>(Bytes::from_static(b"\x08\x01\x12\x01a\x18\x02")).unwrap();
        assert_eq!((hello.node, hello.since), (2, 0));
    }

    #[test]
    fn a_frame_too_long_is_refused_before_it_is_read() {
        let mut buffer = BytesMut::from(&u32::MAX.to_be_bytes()[..]);
        assert!(matches!(split_frame(&mut buffer), Err(FrameError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..4),
        ) {
            let mut bytes = BytesMut::new();
            for frame in frames {
                bytes.put_u32(frame.len() as u32);
                bytes.extend_from_slice(&frame);
            }
            check_any(&bytes);
        }
    }
}
