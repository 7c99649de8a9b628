//! How a node with an empty disk joins a site.
//!
//! It sends its request to the configured nodes, and to nodes named in their answers, until the
//! leader has made it a learner. Until then it takes no part in consensus: it may have been a
//! member before and have lost its votes with its disk.

use super::{LinkError, Links};
use model::{Failure, MembershipError, limits};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::entry;
use wire::peer::{ForwardedRequest, Member, Members};

/// The pause before the request is repeated, and before all addresses are tried again.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// For so long a node of this one's own id answers, at another address, before this one gives up:
/// it may be an earlier process of this one that stops.
const IN_USE_FOR: Duration = Duration::from_secs(3);
/// The most addresses of one round.
const ADDRESSES_MAX: usize = 4 * limits::NODES_MAX;

/// Repeats the request until the site has added `member`; then returns the site's members. Ends
/// early only if the site refuses the node for good.
pub(crate) async fn join(
    links: &Links,
    addresses: &[String],
    member: &Member,
) -> Result<Members, String> {
    let mut warned = false;
    let mut in_use_since: Option<Instant> = None;
    loop {
        let mut to_ask: VecDeque<_> = addresses.iter().cloned().collect();
        let (mut asked, mut refused, mut in_use_at) = (Vec::new(), None, None);
        while let Some(address) = to_ask.pop_front() {
            if asked.contains(&address) || asked.len() >= ADDRESSES_MAX || address == member.address
            {
                continue;
            }
            match ask(links, &address, member).await {
                Ok(Answer::Joined(members)) => return Ok(members),
                Ok(Answer::Never(why)) => return Err(why),
                Ok(Answer::AskAlso(members)) => {
                    to_ask.extend(members.nodes.into_iter().map(|known| known.address));
                }
                Err(error) if error.is_refusal() => refused = Some(error),
                // The leader itself has this id: it cannot be asked.
                Err(LinkError::OwnId(_)) => in_use_at = Some(address.clone()),
                Err(error) if !warned => {
                    tracing::warn!(address, "cannot join yet; retrying: {error}");
                    warned = true;
                }
                Err(error) => tracing::debug!(address, "cannot join yet: {error}"),
            }
            asked.push(address);
        }
        if let Some(refused) = refused {
            return Err(refused.to_string());
        }
        in_use_since = in_use_at.is_some().then(|| in_use_since.unwrap_or_else(Instant::now));
        if let (Some(address), Some(since)) = (in_use_at, in_use_since)
            && since.elapsed() >= IN_USE_FOR
        {
            let node = model::NodeId(member.node);
            return Err(MembershipError::IdInUse { node, address }.to_string());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

enum Answer {
    Joined(Members),
    AskAlso(Members),
    Never(String),
}

async fn ask(links: &Links, address: &str, member: &Member) -> Result<Answer, LinkError> {
    let mut connection = links.dial(address, None).await?;
    // An answer to an earlier life of this node may still be on its way; the incarnation as request
    // id distinguishes the two.
    let id = member.incarnation;
    let request = ForwardedRequest { id, join: Some(member.clone()), ..Default::default() };
    // The leader may have to wait until the life before this one counts as lost, and it gives that
    // one's place only to a node that is still asking then.
    let answer = connection.keep_asking(request, ASK_AGAIN).await?;
    let members = answer.members.unwrap_or_default();
    Ok(match entry::decode_reply(answer.outcome) {
        Ok(Ok(_)) => Answer::Joined(members),
        Ok(Err(Failure::Membership(error))) => Answer::Never(error.to_string()),
        _ => Answer::AskAlso(members),
    })
}
