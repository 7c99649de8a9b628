//! Links from lives of nodes that are not the members: an old disk that came back, or a machine that
//! was given a number which another one has. They must not take the member's link over.
//!
//! Such a node may ask to be taken in, and nothing else; what it is told goes back over its own
//! connection. Everything that is not asking ends the connection: a life that this node has only yet to
//! hear of dials again.

use super::connection::Connection;
use super::{Identity, Link, Links};
use crate::desk::lock;
use crate::node::Event;
use model::{NodeId, limits};
use protocol::site::lives;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use wire::peer::{Life, Members, Message, Say};

/// What the links know of the lives of the site's nodes.
#[derive(Default)]
pub(super) struct Lives {
    members: Mutex<Members>,
    /// The connections of those who may only ask, by node and incarnation.
    joiners: Mutex<BTreeMap<(NodeId, u64), Arc<Link>>>,
}

impl Lives {
    pub(super) fn set_members(&self, members: &Members) {
        lock(&self.members).clone_from(members);
    }

    /// Since when this node's life is a member.
    pub(super) fn since(&self, own: &Identity) -> u64 {
        lives::since_of(&lock(&self.members), own.node, own.incarnation)
    }

    fn replaced(&self, node: NodeId, life: Life) -> Option<Life> {
        lives::replaced(&lock(&self.members), node, life)
    }

    /// Passes answers on to those of a node's lives that asked to be taken in: each asks under its
    /// incarnation.
    pub(super) fn answer(&self, to: NodeId, message: &Message) {
        let Some(Say::Answered(answered)) = &message.say else { return };
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
    /// Whether a node of this site greeted as a life that was replaced.
    pub(super) fn is_earlier_life(&self, connection: &Connection) -> bool {
        self.0.lives.replaced(connection.node(), life_of(connection)).is_some()
    }

    /// A node that this one dialled is an earlier life of a member: it is told.
    pub(super) async fn turn_away(&self, mut connection: Connection) {
        let node = connection.node();
        let Some(by) = self.0.lives.replaced(node, life_of(&connection)) else { return };
        tracing::warn!(%node, "a node was refused: its disk is of an earlier life of {node}, or it was \
             given a --node that another one has");
        let message: Message = Say::Replaced(by).into();
        // It is told again when it is dialled again.
        let _ = connection.say(&message).await;
    }

    /// Hears a node that is not the member of its number, for as long as it asks to be taken in.
    pub(super) async fn hear_joiner(&self, connection: Connection) {
        let (node, life) = (connection.node(), life_of(&connection));
        let Some(by) = self.0.lives.replaced(node, life) else { return };
        let link = Arc::new(Link::default());
        let attached = link.attach();
        let key = (node, life.incarnation);
        lock(&self.0.lives.joiners).insert(key, link.clone());
        let (mut reader, mut writer) = connection.split();
        let refused = Notify::new();
        let event = |message: Message| match lives::only_joins(&message) {
            true => Some(Event::Message { from: node, message }),
            false => {
                link.push(&Say::Replaced(by).into());
                link.wake_writer();
                refused.notify_one();
                None
            }
        };
        let ended = async {
            refused.notified().await;
            // So that it reads why before the connection ends.
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
        let mut joiners = lock(&self.0.lives.joiners);
        if joiners.get(&key).is_some_and(|one| Arc::ptr_eq(one, &link)) {
            joiners.remove(&key);
        }
    }
}
