//! Messages, requests and answers as one reads them in a trace.

use model::{
    Answer, CausalToken, Failure, Held, Ordered, RegistrarAnswer, Request, SessionToken,
    SlotEpochs, excerpt,
};
use protocol::replica::raft::Persist;
use wire::causal::CausalStep;
use wire::entry;
use wire::inter_site::{InterSite, InterSiteMessage};
use wire::peer::{self, Content, MemberChangeKind};

/// The bytes of a message on the wire, without its frame.
pub(super) fn size_bytes(message: &peer::Message) -> usize {
    prost::Message::encoded_len(message)
}

/// What a node makes durable, in a line.
pub(super) fn persist(persist: &Persist) -> String {
    let entries = persist.append.entries.iter();
    let entries: Vec<_> = entries
        .map(|one| {
            let payload = payload(u32::from(one.kind), &one.payload);
            format!("{}@{}{payload}", one.index, one.term)
        })
        .collect();
    let state = persist.append.hard_state.unwrap_or_default();
    let restart = persist
        .restart
        .map_or(String::new(), |start| format!(" anew after {}@{}", start.index, start.term));
    format!("persists{restart} [{}] t{} vote n{}", entries.join(", "), state.term, state.vote)
}

/// A message in a line. `None`: a heartbeat that contains nothing new, or its answer.
pub(super) fn message(message: &peer::Message) -> Option<String> {
    Some(match message.content.as_ref()? {
        Content::Raft(message) => return raft(message),
        Content::Forward(forward) => {
            let requests = forward.requests.iter().map(|one| match &one.join {
                Some(member) => format!("join n{}", member.node),
                None => {
                    let request = entry::decode_request(one.request.clone()).expect("a request");
                    self::request(&request)
                }
            });
            format!("Forward {}", requests.collect::<Vec<_>>().join(", "))
        }
        Content::Answered(answered) => {
            let answers = answered.answers.iter().map(|one| {
                let outcome = entry::decode_reply(one.outcome.clone()).expect("a reply");
                self::outcome(&outcome)
            });
            format!("Answered {}", answers.collect::<Vec<_>>().join(", "))
        }
        Content::Replaced(_) => "Replaced".to_owned(),
        Content::SnapshotWanted(wanted) => {
            format!("SnapshotWanted {} from byte {}", wanted.index, wanted.offset)
        }
        Content::SnapshotChunk(chunk) => {
            let (from, until) = (chunk.offset, chunk.offset + chunk.bytes.len() as u64);
            format!("SnapshotChunk {} bytes {from}..{until} of {}", chunk.index, chunk.total_bytes)
        }
        Content::Map(_) => return None,
        Content::OrderAwaited(awaited) => format!("OrderAwaited upto {}", awaited.upto),
        Content::Accesses(counted) => format!("Accesses of {} groups", counted.groups.len()),
        Content::InterSite(message) => return inter_site(message),
    })
}

/// A message between sites in a line. `None`: it only contains a version.
fn inter_site(message: &InterSiteMessage) -> Option<String> {
    Some(match message.content.as_ref()? {
        InterSite::Forward(forward) => {
            let requests = forward.requests.iter().map(|one| {
                let request = entry::decode_request(one.request.clone()).expect("a request");
                self::request(&request)
            });
            format!("Forward {}", requests.collect::<Vec<_>>().join(", "))
        }
        InterSite::Answered(answered) => {
            let answers = answered.answers.iter().map(|one| {
                if one.unchanged {
                    return "unchanged".to_owned();
                }
                let outcome = entry::decode_reply(one.outcome.clone()).expect("a reply");
                match one.owner {
                    0 => self::outcome(&outcome),
                    owner => format!("s{owner} at e{} holds it", one.epoch),
                }
            });
            format!("Answered {}", answers.collect::<Vec<_>>().join(", "))
        }
        InterSite::Registry(gossip) if gossip.registry.is_empty() => return None,
        InterSite::Registry(_) => "Registry".to_owned(),
        InterSite::Ring(_) => "Ring".to_owned(),
        InterSite::Alive(_) | InterSite::Map(_) | InterSite::Latencies(_) => return None,
        InterSite::Mirror(_) | InterSite::Copies(_) => return None,
        InterSite::Causal(message) => causal(message.step.as_ref()?),
    })
}

/// A message about the order of causal keys in a line.
fn causal(step: &CausalStep) -> String {
    let at = model::Position;
    match step {
        CausalStep::Writes(writes) => format!("Writes of s{}", writes.site),
        CausalStep::Where(_) => "Where".to_owned(),
        CausalStep::Reached(message) => format!("Reached {}", at(message.applied)),
        CausalStep::Places(places) => {
            format!("Places after {}: {}", at(places.after), places.sites.len())
        }
        CausalStep::Pull(pull) => format!("Pull {}", pull.positions.len()),
        CausalStep::Resolve(message) => format!("Resolve s{} r{}", message.site, message.revision),
        CausalStep::Resolved(message) => {
            format!("Resolved s{} r{}: {}", message.site, message.revision, at(message.position))
        }
        CausalStep::LedBy(node) => format!("LedBy n{node}"),
        CausalStep::Drop(keys) => format!("Drop {} keys", keys.keys.len()),
    }
}

/// Slots that are held from here on.
pub(super) fn held(slots: &SlotEpochs) -> String {
    let each = slots.0.iter().map(|(slots, epoch)| format!("{slots} at {epoch}"));
    format!("holds {}", each.collect::<Vec<_>>().join(", "))
}

fn raft(message: &peer::Raft) -> Option<String> {
    let term = message.term;
    let verdict = if message.reject { "no" } else { "yes" };
    let text = match message.kind {
        3 => {
            let at = format!("Append t{term} after {}@{}", message.index, message.log_term);
            let entries: Vec<_> = message.entries.iter().map(entry_text).collect();
            format!("{at} [{}] commit {}", entries.join(", "), message.commit)
        }
        4 if message.reject => format!("AppendResponse t{term} no, try {}", message.reject_hint),
        4 => format!("AppendResponse t{term} up to {}", message.index),
        5 => format!("RequestVote t{term} last {}@{}", message.index, message.log_term),
        6 => format!("RequestVoteResponse t{term} {verdict}"),
        7 => format!("Snapshot t{term} of {}", message.snapshot.as_ref()?.index),
        8 | 9 if message.context.is_empty() => return None,
        8 => format!("Heartbeat t{term} for a read"),
        9 => format!("HeartbeatResponse t{term} for a read"),
        13 => "TransferLeader".to_owned(),
        14 => format!("TimeoutNow t{term}"),
        15 => "ReadIndex".to_owned(),
        16 => format!("ReadIndexResp {}", message.index),
        17 => format!("RequestPreVote t{term} last {}@{}", message.index, message.log_term),
        18 => format!("RequestPreVoteResponse t{term} {verdict}"),
        other => format!("message {other}"),
    };
    Some(text)
}

fn entry_text(entry: &peer::Entry) -> String {
    format!("{}@{}{}", entry.index, entry.term, payload(entry.kind, &entry.payload))
}

/// What an entry carries.
fn payload(kind: u32, payload: &model::Bytes) -> String {
    if payload.is_empty() {
        return String::new();
    }
    if kind == 2 {
        let change: peer::MembersChange = peer::decode(payload.clone()).expect("a change");
        let changes = change.changes.iter().map(|one| {
            let node = one.member.as_ref().map_or(0, |member| member.node);
            match one.kind() {
                MemberChangeKind::Vote => format!(" n{node} votes"),
                MemberChangeKind::Remove => format!(" n{node} goes"),
                MemberChangeKind::Listen => format!(" n{node} listens"),
            }
        });
        return changes.collect();
    }
    let batch = entry::decode(payload.clone()).expect("a batch");
    batch.commands.iter().map(|one| format!(" {one}")).collect::<Vec<_>>().join(",")
}

/// A request as a short text.
pub(super) fn request(request: &Request) -> String {
    match &request.token {
        Some(token) => format!("{} in {}", request.body, session(token)),
        None => request.body.to_string(),
    }
}

/// The token of a session.
pub(super) fn session(token: &SessionToken) -> String {
    match CausalToken::of_session(token) {
        Some(CausalToken { seen, written: Some((site, revision)), .. }) => {
            format!("a session at {seen} and {revision} of {site}")
        }
        Some(CausalToken { seen, written: None, .. }) => format!("a session at {seen}"),
        None => "a session".to_owned(),
    }
}

/// An outcome as a short text.
pub(super) fn outcome(outcome: &Result<Answer, Failure>) -> String {
    match outcome {
        Ok(Answer::Value(None)) => "nothing".to_owned(),
        Ok(Answer::Value(Some(found))) => format!("{:?}", excerpt(&found.value)),
        Ok(Answer::Put { version, .. }) => format!("put at {version}"),
        Ok(Answer::Integer(number)) => number.to_string(),
        Ok(Answer::Flag(true)) => "done".to_owned(),
        Ok(Answer::Registered { site, registry }) => {
            format!("{site} stands in registry {}", registry.version)
        }
        Ok(Answer::Registrar(answer)) => match answer {
            RegistrarAnswer::Reserved(ballot) => format!("reserved {ballot}"),
            RegistrarAnswer::TermReserved(ballot, _) => format!("reserved {ballot}"),
            RegistrarAnswer::Promised(accepted) => format!("promised, has {}", accepted.version),
            RegistrarAnswer::Accepted => "accepted".to_owned(),
            RegistrarAnswer::Refused(ballot) => format!("refused, has promised {ballot}"),
        },
        Ok(Answer::Ordered(ordered)) => reported(ordered),
        Ok(Answer::Staged { chunks, .. }) => format!("has {chunks} chunks"),
        Ok(other) => format!("{other:?}"),
        Err(failure) => format!("failed: {failure}"),
    }
}

/// What came of an order at a site.
fn reported(ordered: &Ordered) -> String {
    let mut said = Vec::new();
    for one in &ordered.moves {
        said.push(match &one.gone {
            None => format!("move {} under way", one.number),
            Some(gone) => format!("move {} over, gone: {gone}", one.number),
        });
    }
    said.extend(ordered.refused.as_ref().map(|why| format!("no move: {why}")));
    for one in &ordered.holdings {
        said.push(match one.held {
            Held::Here => format!("has {}", one.slots),
            Held::Leaving(to, _) => format!("hands {} to {to}", one.slots),
            Held::Gone(to) => format!("gave {} to {to}", one.slots),
        });
    }
    if said.is_empty() { "never had any".to_owned() } else { said.join("; ") }
}
