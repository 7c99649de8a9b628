//! Links from incarnations of nodes that are not the members: an old disk that came back, or a
//! machine with a number that is in use. They must not replace the member's link.
//!
//! Such a node may only request to join; answers go back over its own connection. Any other message
//! ends the connection: if this node has merely not received that incarnation yet, it dials again.

use super::connection::Connection;
use super::{Identity, Link, Links};
use crate::batcher::lock;
use crate::node::Event;
use model::{NodeId, limits};
use protocol::replica::lives;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use wire::peer::{Content, Life, Members, Message};

/// The incarnations of the site's nodes, as far as the links need them.
#[derive(Default)]
pub(super) struct Incarnations {
    members: Mutex<Members>,
    /// The connections of nodes that may only request to join, by node and incarnation.
    joiners: Mutex<BTreeMap<(NodeId, u64), Arc<Link>>>,
}

impl Incarnations {
    pub(super) fn set_members(&self, members: &Members) {
        lock(&self.members).clone_from(members);
    }

    /// The log index since which this node's incarnation is a member.
    pub(super) fn since(&self, own: &Identity) -> u64 {
        lives::since_of(&lock(&self.members), own.node, own.incarnation)
    }

    fn replaced(&self, node: NodeId, life: Life) -> Option<Life> {
        lives::replaced(&lock(&self.members), node, life)
    }

    /// Passes answers on to the incarnations of a node that requested to join: each request carries
    /// its own.
    pub(super) fn answer(&self, to: NodeId, message: &Message) {
        let Some(Content::Answered(answered)) = &message.content else { return };
        for ((_, incarnation), link) in lock(&self.joiners).range((to, 0)..=(to, u64::MAX)) {
            if answered.answers.iter().any(|answer| answer.id == *incarnation) {
                link.push(message);
                link.wake_writer();
            }
        }
    }
}

fn life_of(connection: &Connection) -> Life {
    let hello = connection.hello();
    Life { incarnation: hello.incarnation, since: hello.since }
}

impl Links {
    /// Whether a node of this site greeted with an incarnation that was replaced.
    pub(super) fn is_earlier_incarnation(&self, connection: &Connection) -> bool {
        self.0.incarnations.replaced(connection.node(), life_of(connection)).is_some()
    }

    /// Notifies a dialled node that it is an earlier life of a member.
    pub(super) async fn turn_away(&self, mut connection: Connection) {
        let node = connection.node();
        let Some(by) = self.0.incarnations.replaced(node, life_of(&connection)) else { return };
        tracing::warn!(%node, "a node was refused: its disk is of an earlier life of {node}, or it was \
             given a --node that is in use");
        let message: Message = Content::Replaced(by).into();
        // If this is lost, the next dial repeats it.
        let _ = connection.send(&message).await;
    }

    /// Serves a node that is not the member of its number, as long as it only requests to join.
    pub(super) async fn receive_joiner(&self, connection: Connection) {
        let (node, life) = (connection.node(), life_of(&connection));
        let Some(by) = self.0.incarnations.replaced(node, life) else { return };
        let link = Arc::new(Link::default());
        let attached = link.attach();
        let key = (node, life.incarnation);
        lock(&self.0.incarnations.joiners).insert(key, link.clone());
        let (mut reader, mut writer) = connection.split();
        let refused = Notify::new();
        let event = |message: Message| match lives::only_joins(&message) {
            true => Some(Event::Message { from: node, message }),
            false => {
                link.push(&Content::Replaced(by).into());
                link.wake_writer();
                refused.notify_one();
                None
            }
        };
        let ended = async {
            refused.notified().await;
            // Gives the node time to read the reason before the connection ends.
            tokio::time::sleep(super::REDIAL.0).await;
        };
        tokio::select! {
            _ = reader.run(event, &self.0.events, &self.0.waiting) => {}
            _ = writer.run(&link, attached) => {}
            () = ended => {
                tracing::warn!(%node, "a node was refused: its disk is of an earlier life of {node}");
            }
            () = tokio::time::sleep(2 * limits::REQUEST_DEADLINE) => {}
        }
        let mut joiners = lock(&self.0.incarnations.joiners);
        if joiners.get(&key).is_some_and(|one| Arc::ptr_eq(one, &link)) {
            joiners.remove(&key);
        }
    }
}
