//! The messages between nodes of different sites.
//!
//! It travels in [`crate::peer::Message`]s over connections of its own: the [`crate::peer::Hello`]
//! names the deployment and site of a node, so both ends have the kind of the connection. A
//! handover needs no messages of its own here: its steps are requests, forwarded like others.

use crate::causal::CausalMessage;
use crate::peer::Forward;
use bytes::Bytes;
use model::{Ballot, Epoch, SiteId, Term};

/// One message between two nodes of different sites.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InterSiteMessage {
    /// The content; `None`: that of a newer version, unknown here.
    #[prost(oneof = "InterSite", tags = "1, 2, 3, 4, 10, 11, 110, 180, 240, 250")]
    pub content: Option<InterSite>,
    /// Which registry the sender has; `None`: it belongs to no deployment.
    #[prost(message, optional, tag = "100")]
    pub version: Option<RegistryVersion>,
}

/// A version of the registry: a ballot.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RegistryVersion {
    /// Its round.
    #[prost(uint64, tag = "1")]
    pub round: u64,
    /// The site that made it.
    #[prost(uint32, tag = "2")]
    pub site: u32,
    /// The number of its term.
    #[prost(uint32, tag = "3")]
    pub term: u32,
    /// The site that began the term.
    #[prost(uint32, tag = "4")]
    pub term_site: u32,
}

impl From<Ballot> for RegistryVersion {
    fn from(ballot: Ballot) -> RegistryVersion {
        let Ballot { term: Term { number, site: term_site }, round, site } = ballot;
        RegistryVersion { round, site: site.0, term: number, term_site: term_site.0 }
    }
}

impl From<RegistryVersion> for Ballot {
    fn from(version: RegistryVersion) -> Ballot {
        let RegistryVersion { round, site, term, term_site } = version;
        let term = Term { number: term, site: SiteId(term_site) };
        Ballot { term, round, site: SiteId(site) }
    }
}

/// The content of a message between sites.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum InterSite {
    /// Requests about what the receiver's site owns, by the sender's map.
    #[prost(message, tag = "1")]
    Forward(Forward),
    /// What became of such requests.
    #[prost(message, tag = "2")]
    Answered(InterSiteAnswers),
    /// Which registry the sender has, and that registry, if the receiver's is older.
    #[prost(message, tag = "3")]
    Registry(RegistryGossip),
    /// The ring.
    #[prost(bytes = "bytes", tag = "4")]
    Ring(Bytes),
    /// A ping, or its answer.
    #[prost(message, tag = "10")]
    Alive(Alive),
    /// How far the mirror of the sender's site is, to the site that keeps it.
    #[prost(message, tag = "11")]
    Mirror(MirrorLag),
    /// Copies of slots, and whether they may go.
    #[prost(message, tag = "110")]
    Copies(CopiesMessage),
    /// The owners of slots. A version without it compares no maps.
    #[prost(message, tag = "180")]
    Map(MapMessage),
    /// Round trips between sites. A version without it measures none.
    #[prost(message, tag = "240")]
    Latencies(LatenciesMessage),
    /// The order of causal keys. A version without it serves none.
    #[prost(message, tag = "250")]
    Causal(CausalMessage),
}

/// The round trips of the sender to other sites, or a question for the receiver's. The time to the
/// answer is a measurement, too.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LatenciesMessage {
    /// Whether it is a question.
    #[prost(bool, tag = "1")]
    pub asks: bool,
    /// The number of the question, also in its answer.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The sites, the nearest first.
    #[prost(uint32, repeated, tag = "3")]
    pub sites: Vec<u32>,
    /// As many round trips, in microseconds.
    #[prost(uint32, repeated, tag = "4")]
    pub round_trips_us: Vec<u32>,
    /// Of a question: the version of the round trips that the sender has, 0: none. Of an answer:
    /// that of the round trips of its sender, which are left out if the receiver has them.
    #[prost(uint64, tag = "5")]
    pub version: u64,
    /// A probe, or its answer: only the time counts, and there is neither a version nor a round
    /// trip.
    #[prost(bool, tag = "6")]
    pub probes: bool,
    /// Of a question to a site that takes only so much: the bytes of groups that would be lent to it,
    /// had it room, at most [`model::limits::BIDS_MAX`].
    #[prost(uint64, repeated, tag = "120")]
    pub wanted_bytes: Vec<u64>,
    /// What a byte of each spares users there, in ms of waiting a second.
    #[prost(float, repeated, tag = "121")]
    pub wanted_values: Vec<f32>,
    /// Of an answer of such a site's leader: for how many more bytes it has room.
    #[prost(uint64, optional, tag = "122")]
    pub room_bytes: Option<u64>,
    /// And the price of a byte: what spares less has no place there.
    #[prost(float, tag = "123")]
    pub price: f32,
}

/// What became of requests from another site.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InterSiteAnswers {
    /// The answers, in any order.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<InterSiteAnswer>,
    /// The leader of the answering site: the node to ask next time. 0: not known.
    #[prost(uint64, tag = "2")]
    pub leader: u64,
}

/// What became of one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InterSiteAnswer {
    /// The number it came with.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A `Result<Answer, Failure>`, encoded.
    #[prost(bytes = "bytes", tag = "2")]
    pub outcome: Bytes,
    /// Of a slot that is not held there: its owner, by the map there. 0: not known.
    #[prost(uint32, tag = "3")]
    pub owner: u32,
    /// The epoch at which it does.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// To a read that brought [`crate::peer::ForwardedRequest::known`]: what the key was found at.
    /// A version without copies leaves it out.
    #[prost(message, optional, tag = "5")]
    pub validator: Option<Validator>,
    /// That is what the asking node has already: its copy is the answer, and `outcome` is empty.
    #[prost(bool, tag = "6")]
    pub unchanged: bool,
    /// The failover of `epoch`.
    #[prost(message, optional, tag = "110")]
    pub failover: Option<RegistryVersion>,
    /// Of a slot that is owned there, also while it is frozen for its next owner: the failover of
    /// the epoch at which it is. Of a group that is borrowed there: the version of the registry up
    /// to which all failovers have been followed.
    #[prost(message, optional, tag = "190")]
    pub served: Option<RegistryVersion>,
    /// Whether `served` is of a group that is borrowed there. Earlier versions leave it out.
    #[prost(bool, tag = "192")]
    pub borrowed: bool,
    /// Whether `owner` owned the slot at `epoch` for certain. Earlier versions made epochs up.
    #[prost(bool, tag = "182")]
    pub is_fact: bool,
    /// The session's [`model::SessionToken`] after this answer, if the request had one.
    #[prost(bytes = "bytes", optional, tag = "191")]
    pub token: Option<Bytes>,
}

impl InterSiteAnswer {
    /// The epoch at which `owner` owns the slot; the lowest one if it is only a guess.
    pub fn known_epoch(&self) -> Epoch {
        match self.is_fact {
            true => Epoch { failover: take_failover(self.failover), count: self.epoch },
            false => Epoch::default(),
        }
    }
}

/// A failover as it travels; the lowest one is left out.
pub fn put_failover(decided: Ballot) -> Option<RegistryVersion> {
    (decided != Ballot::FIRST).then(|| decided.into())
}

/// A failover from how it travels.
pub fn take_failover(message: Option<RegistryVersion>) -> Ballot {
    message.map_or(Ballot::FIRST, Ballot::from)
}

/// What a key was found at. Equal ones of a key mean that it holds the same.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Validator {
    /// The epoch of the key's slot; 0, which no slot has: there is no copy.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// The key's version; 0: it is absent.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The failover of `epoch`.
    #[prost(message, optional, tag = "110")]
    pub failover: Option<RegistryVersion>,
}

/// A sign of life.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Alive {
    /// Whether one is asked for.
    #[prost(bool, tag = "1")]
    pub asks: bool,
    /// Of a leader: whether its disk is full, so that its site commits nothing. Other nodes, and
    /// versions that do not have it, leave it out.
    #[prost(bool, optional, tag = "2")]
    pub full: Option<bool>,
}

/// How far a mirror is, by its original.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct MirrorLag {
    /// Which mirror.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// How many revisions it is behind; 0: it is caught up.
    #[prost(uint64, tag = "2")]
    pub behind: u64,
}

/// A message about copies of slots.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CopiesMessage {
    /// The slots, with epochs ([`crate::entry::encode_slots`]).
    #[prost(bytes = "bytes", tag = "1")]
    pub slots: Bytes,
    /// 0: the sender has copies at these epochs; may they go? 1: copies at these epochs, which the
    /// sender owns, are safe at another site. 2: `owner` owns them at these epochs.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Of what is safe.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// Of what is safe.
    #[prost(uint64, tag = "4")]
    pub position: u64,
    /// See above.
    #[prost(uint32, tag = "5")]
    pub owner: u32,
}

/// A message about the map of slots.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MapMessage {
    /// One step; `None`: one that is unknown to this version.
    #[prost(oneof = "MapStep", tags = "1, 2, 3, 4")]
    pub step: Option<MapStep>,
    /// Within a site, from its leader: sites that do not answer it at the moment.
    #[prost(uint32, repeated, tag = "10")]
    pub silent: Vec<u32>,
    /// Within a site, from its leader: those of them that cannot be reached.
    #[prost(uint32, repeated, tag = "11")]
    pub lost: Vec<u32>,
}

/// A step of the exchange of maps. The digests are part of the format: all versions compute them
/// alike.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum MapStep {
    /// The digest of the sender's map.
    #[prost(fixed64, tag = "1")]
    Compare(u64),
    /// The sender's map has this digest, too.
    #[prost(fixed64, tag = "2")]
    Same(u64),
    /// The sender's map has another digest; those of its buckets, eight bytes each, little-endian.
    #[prost(bytes = "bytes", tag = "3")]
    Buckets(Bytes),
    /// The sender's facts.
    #[prost(message, tag = "4")]
    Facts(MapFacts),
}

/// The owners of some slots.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MapFacts {
    /// Runs of slots.
    #[prost(message, repeated, tag = "1")]
    pub facts: Vec<MapFact>,
    /// A bit for each bucket of which this is all that the sender has, and of which it asks for
    /// more; little-endian. Empty: nothing is asked for.
    #[prost(bytes = "bytes", tag = "2")]
    pub wants: Bytes,
}

/// A run of slots that one site owns at one epoch, or did.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct MapFact {
    /// The first slot.
    #[prost(uint32, tag = "1")]
    pub first: u32,
    /// How many there are beside it.
    #[prost(uint32, tag = "2")]
    pub more: u32,
    /// The site.
    #[prost(uint32, tag = "3")]
    pub owner: u32,
    /// The epoch: how many handovers there were since the last failover.
    #[prost(uint64, tag = "4")]
    pub count: u64,
    /// The epoch: the last failover.
    #[prost(message, optional, tag = "5")]
    pub failover: Option<RegistryVersion>,
}

impl MapFact {
    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch { failover: take_failover(self.failover), count: self.count }
    }
}

/// Gossip about the registry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegistryGossip {
    /// The sender's registry, encoded; empty: the version only.
    #[prost(bytes = "bytes", tag = "2")]
    pub registry: Bytes,
    /// The leader of the sending site: the node to ask, and to send clients to. 0: not known.
    #[prost(uint64, tag = "3")]
    pub leader: u64,
}

impl From<InterSite> for InterSiteMessage {
    fn from(message: InterSite) -> InterSiteMessage {
        InterSiteMessage { content: Some(message), version: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{ForwardedAnswer, ForwardedRequest};
    use prost::Message as _;

    /// As a version without copies reads and writes it.
    #[derive(Clone, PartialEq, prost::Message)]
    struct OldRequest {
        #[prost(uint64, tag = "1")]
        id: u64,
        #[prost(bytes = "bytes", tag = "2")]
        request: Bytes,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct OldAnswer {
        #[prost(uint64, tag = "1")]
        id: u64,
        #[prost(bytes = "bytes", tag = "2")]
        outcome: Bytes,
        #[prost(uint32, tag = "3")]
        owner: u32,
        #[prost(uint64, tag = "4")]
        epoch: u64,
    }

    #[test]
    fn a_version_takes_twelve_bytes_at_most() {
        let message = InterSite::Alive(Alive { asks: true, full: None });
        let bare = InterSiteMessage::from(message.clone()).encoded_len();
        for (ballot, bytes_max) in [
            (Ballot { round: 2_000_000, site: SiteId(100), ..Ballot::default() }, 10),
            (Ballot { term: Term { number: 2, site: SiteId(3) }, round: 200, site: SiteId(3) }, 12),
        ] {
            let message =
                InterSiteMessage { version: Some(ballot.into()), ..message.clone().into() };
            assert!(message.encoded_len() - bare <= bytes_max, "{ballot}");
            let read = InterSiteMessage::decode(&message.encode_to_vec()[..]).unwrap();
            assert_eq!(read.version.map(Ballot::from), Some(ballot));
        }
    }

    #[test]
    fn of_a_sign_of_life_without_it_nothing_is_full() {
        assert_eq!(Alive::decode(&[8, 1][..]).unwrap(), Alive { asks: true, full: None });
        for full in [None, Some(false), Some(true)] {
            let alive = Alive { asks: false, full };
            assert_eq!(Alive::decode(&alive.encode_to_vec()[..]).unwrap(), alive);
        }
    }

    /// As a version reads it that compares no maps.
    #[derive(Clone, PartialEq, prost::Message)]
    struct OldInterSite {
        #[prost(message, optional, tag = "10")]
        alive: Option<Alive>,
        #[prost(message, optional, tag = "100")]
        version: Option<RegistryVersion>,
    }

    #[test]
    fn a_version_without_map_comparison_receives_none() {
        let step = Some(MapStep::Compare(7));
        let map = InterSite::Map(MapMessage { step, ..MapMessage::default() });
        let version = Some(RegistryVersion { round: 3, site: 1, ..Default::default() });
        let bytes = InterSiteMessage { content: Some(map), version }.encode_to_vec();
        let old = OldInterSite::decode(&bytes[..]).unwrap();
        assert_eq!(old, OldInterSite { alive: None, version });
        let reported = InterSiteMessage::decode(&old.encode_to_vec()[..]).unwrap();
        assert_eq!(reported, InterSiteMessage { content: None, version });
    }

    #[test]
    fn the_exchange_of_maps_is_written_as_it_is_read() {
        let failover = Some(RegistryVersion { round: 300, site: 2, term: 1, term_site: 3 });
        let fact = MapFact { first: 12_000, more: 511, owner: 90, count: 4, failover };
        assert!(fact.encoded_len() <= 28, "{}", fact.encoded_len());
        let wants = Bytes::from_static(&[1; 16]);
        let facts = MapStep::Facts(MapFacts { facts: vec![fact], wants });
        for (step, bytes) in [
            (MapStep::Compare(1), &b"\x09\x01\0\0\0\0\0\0\0"[..]),
            (MapStep::Same(1), b"\x11\x01\0\0\0\0\0\0\0"),
            (MapStep::Buckets("bb".into()), b"\x1a\x02bb"),
            (facts, b""),
        ] {
            let message = MapMessage { step: Some(step), ..MapMessage::default() };
            let written = message.encode_to_vec();
            assert!(bytes.is_empty() || written == bytes, "{written:?}");
            assert_eq!(MapMessage::decode(&written[..]), Ok(message));
        }
        // A step of a later version.
        assert_eq!(MapMessage::decode(&b"\xca\x02\x01x"[..]).unwrap().step, None);
    }

    #[test]
    fn an_epoch_that_was_made_up_is_a_guess() {
        let old = OldAnswer { owner: 3, epoch: 9, ..Default::default() };
        let answer = InterSiteAnswer::decode(&old.encode_to_vec()[..]).unwrap();
        assert_eq!(answer.known_epoch(), Epoch::default());
        let fact = InterSiteAnswer { is_fact: true, ..answer };
        assert_eq!(fact.known_epoch(), Epoch::counted(9));
    }

    #[test]
    fn versions_without_copies_are_compatible_both_ways() {
        let known = Some(Validator { epoch: 3, version: 300, failover: None });
        let request = ForwardedRequest { id: 7, request: "r".into(), known, ..Default::default() };
        let bytes = request.encode_to_vec();
        assert_eq!(bytes, b"\x08\x07\x12\x01r\x22\x05\x08\x03\x10\xac\x02");
        let old = OldRequest { id: 7, request: "r".into() };
        assert_eq!(OldRequest::decode(&bytes[..]), Ok(old.clone()));
        let read = ForwardedRequest::decode(&old.encode_to_vec()[..]);
        assert_eq!(read, Ok(ForwardedRequest { known: None, ..request }));

        let answer = InterSiteAnswer { id: 7, outcome: "a".into(), ..Default::default() };
        let reported = InterSiteAnswer { validator: known, ..answer.clone() };
        let old = OldAnswer { id: 7, outcome: "a".into(), ..Default::default() };
        assert_eq!(OldAnswer::decode(&reported.encode_to_vec()[..]), Ok(old.clone()));
        assert_eq!(InterSiteAnswer::decode(&old.encode_to_vec()[..]), Ok(answer));
        // An empty validator is a field all the same: the sender keeps copies.
        let none = ForwardedRequest { known: Some(Validator::default()), ..Default::default() };
        assert_eq!(none.encode_to_vec(), b"\x22\x00");
    }

    /// As a version without sessions reads and writes it.
    #[derive(Clone, PartialEq, prost::Message)]
    struct OldForwardedAnswer {
        #[prost(uint64, tag = "1")]
        id: u64,
        #[prost(bytes = "bytes", tag = "2")]
        outcome: Bytes,
    }

    #[test]
    fn versions_without_sessions_are_compatible_both_ways() {
        // An empty token begins a session: it is not the same as none.
        for token in ["", "seen"].map(|text| Some(Bytes::from(text))) {
            let (id, text) = (7, Bytes::from("r"));
            let plain =
                ForwardedRequest { id, request: text.clone(), ..ForwardedRequest::default() };
            let old = OldRequest { id, request: text.clone() };
            let bytes = ForwardedRequest { token: token.clone(), ..plain.clone() }.encode_to_vec();
            assert_eq!(OldRequest::decode(&bytes[..]), Ok(old.clone()));
            assert_eq!(ForwardedRequest::decode(&bytes[..]).unwrap().token, token);
            assert_eq!(ForwardedRequest::decode(&old.encode_to_vec()[..]), Ok(plain));

            let plain = ForwardedAnswer { id, outcome: text.clone(), ..ForwardedAnswer::default() };
            let old = OldForwardedAnswer { id, outcome: text.clone() };
            let bytes = ForwardedAnswer { token: token.clone(), ..plain.clone() }.encode_to_vec();
            assert_eq!(OldForwardedAnswer::decode(&bytes[..]), Ok(old.clone()));
            assert_eq!(ForwardedAnswer::decode(&bytes[..]).unwrap().token, token);
            assert_eq!(ForwardedAnswer::decode(&old.encode_to_vec()[..]), Ok(plain));

            let plain = InterSiteAnswer { id, outcome: text.clone(), ..InterSiteAnswer::default() };
            let old = OldAnswer { id, outcome: text, ..OldAnswer::default() };
            let bytes = InterSiteAnswer { token: token.clone(), ..plain.clone() }.encode_to_vec();
            assert_eq!(OldAnswer::decode(&bytes[..]), Ok(old.clone()));
            assert_eq!(InterSiteAnswer::decode(&bytes[..]).unwrap().token, token);
            assert_eq!(InterSiteAnswer::decode(&old.encode_to_vec()[..]), Ok(plain));
        }
    }
}
