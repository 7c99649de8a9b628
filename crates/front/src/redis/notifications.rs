//! Keyspace notifications: the site's change log as Redis events.
//!
//! A change of a key is an event on two channels: `__keyspace@0__:<key>` carries the kind of
//! change, `__keyevent@0__:<event>` the key. A subscriber has a position in the change log, not a
//! queue: one that reads slowly makes nothing grow, and one that falls behind the log's retention
//! receives an error and is disconnected.
//!
//! Clearing a keyspace (FLUSHALL) is no event on a key, as in Redis. A connection receives events
//! of the keyspaces that existed when it subscribed.

use super::connection::Connection;
use super::execution::refused;
use super::refused::Refused;
use bytes::{BufMut, Bytes, BytesMut};
use model::{Change, ChangeKind, glob};
use server::Watch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::{Encoder, Frame};

const KEYSPACE_CHANNEL: &[u8] = b"__keyspace@0__:";
const KEYEVENT_CHANNEL: &[u8] = b"__keyevent@0__:";
/// The most channels and patterns of one connection.
const SUBSCRIPTIONS_MAX: usize = 1024;
/// The longest name of a channel or pattern.
const CHANNEL_BYTES_MAX: usize = model::limits::KEY_BYTES_MAX + KEYSPACE_CHANNEL.len();

/// The Redis name of a change; `None`: the change is not about one key.
fn event(kind: ChangeKind) -> Option<&'static str> {
    Some(match kind {
        ChangeKind::Put => "set",
        ChangeKind::Append => "append",
        ChangeKind::Add => "incrby",
        ChangeKind::Delete => "del",
        ChangeKind::Expire => "expired",
        ChangeKind::SetExpiry => "expire",
        ChangeKind::ClearExpiry => "persist",
        ChangeKind::HashSet => "hset",
        ChangeKind::HashDelete => "hdel",
        ChangeKind::HashAdd => "hincrby",
        ChangeKind::Clear | ChangeKind::Loan => return None,
    })
}

/// The key whose changes a channel carries; `None`: it carries changes of all keys.
pub(super) fn key_of_channel(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(KEYSPACE_CHANNEL)
}

/// Whether a subscription is to channels or to patterns of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Channel,
    Pattern,
}

impl By {
    fn prefix(self) -> &'static str {
        match self {
            By::Channel => "",
            By::Pattern => "p",
        }
    }
}

/// The subscriptions of a node's connections, for PUBSUB.
#[derive(Default)]
pub(super) struct Audience(Mutex<[BTreeMap<Bytes, usize>; 2]>);

impl Audience {
    fn change(&self, by: By, name: &Bytes, is_more: bool) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = &mut names[by as usize];
        let count = names.entry(name.clone()).or_default();
        *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            names.remove(name);
        }
    }

    /// The subscribed names and their numbers of subscribers.
    pub(super) fn names(&self, by: By) -> Vec<(Bytes, usize)> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names[by as usize].iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// The subscriptions of one connection.
pub(super) struct Subscriptions {
    audience: Arc<Audience>,
    names: [BTreeSet<Bytes>; 2],
    /// The watch of changes, while there are subscriptions.
    pub(super) watch: Option<Watch>,
}

impl Subscriptions {
    pub(super) fn new(audience: Arc<Audience>) -> Subscriptions {
        Subscriptions { audience, names: Default::default(), watch: None }
    }

    /// The number of channels and patterns.
    pub(super) fn len(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }

    /// Checks that the channel can exist. A subscription that could never receive an event is
    /// refused. `more`: the number of subscriptions to be added.
    fn check(&self, by: By, name: &[u8], more: usize) -> Result<(), Refused> {
        let head = match by {
            By::Channel => name.to_vec(),
            By::Pattern => glob::literal_prefix(name),
        };
        let can_be = [KEYSPACE_CHANNEL, KEYEVENT_CHANNEL].iter().any(|channel| {
            head.starts_with(channel) || (by == By::Pattern && channel.starts_with(&head))
        });
        if !can_be || name.len() > CHANNEL_BYTES_MAX {
            return Err(NO_PUBSUB);
        }
        if self.len() + more > SUBSCRIPTIONS_MAX {
            let text = format!("ERR a connection has at most {SUBSCRIPTIONS_MAX} subscriptions");
            return Err(Refused(text.into()));
        }
        Ok(())
    }

    /// Subscribes and writes the reply.
    pub(super) fn add(&mut self, by: By, name: &[u8], out: &mut Encoder<'_>) {
        let name = Bytes::copy_from_slice(name);
        if self.names[by as usize].insert(name.clone()) {
            self.audience.change(by, &name, true);
        }
        self.confirm(by, "subscribe", Some(&name), out);
    }

    /// Unsubscribes and writes the reply; `None`: from everything of its kind.
    pub(super) fn remove(&mut self, by: By, name: Option<&[u8]>, out: &mut Encoder<'_>) {
        let names: Vec<Bytes> = match name {
            Some(name) => vec![Bytes::copy_from_slice(name)],
            None => self.names[by as usize].iter().cloned().collect(),
        };
        for name in &names {
            if self.names[by as usize].remove(name) {
                self.audience.change(by, name, false);
            }
            self.confirm(by, "unsubscribe", Some(name), out);
        }
        if names.is_empty() {
            self.confirm(by, "unsubscribe", None, out);
        }
        if self.len() == 0 {
            self.watch = None;
        }
    }

    fn confirm(&self, by: By, what: &str, name: Option<&Bytes>, out: &mut Encoder<'_>) {
        out.push(3);
        out.bulk(format!("{}{what}", by.prefix()).as_bytes());
        out.bulk_or_null(name.map(|name| &name[..]));
        out.integer(self.len() as i64);
    }

    /// Writes the notifications of a change for this connection.
    pub(super) fn write_change(&self, change: &Change, out: &mut Encoder<'_>) {
        let Some(event) = event(change.kind) else { return };
        self.write_message(KEYSPACE_CHANNEL, &change.key, event.as_bytes(), out);
        self.write_message(KEYEVENT_CHANNEL, event.as_bytes(), &change.key, out);
    }

    fn write_message(&self, head: &[u8], tail: &[u8], payload: &[u8], out: &mut Encoder<'_>) {
        let mut channel = BytesMut::with_capacity(head.len() + tail.len());
        channel.put_slice(head);
        channel.put_slice(tail);
        let [channels, patterns] = &self.names;
        if channels.contains(&channel[..]) {
            out.push(3);
            out.bulk(b"message");
            out.bulk(&channel);
            out.bulk(payload);
        }
        for pattern in patterns.iter().filter(|pattern| glob::matches(pattern, &channel)) {
            out.push(4);
            out.bulk(b"pmessage");
            out.bulk(pattern);
            out.bulk(&channel);
            out.bulk(payload);
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for by in [By::Channel, By::Pattern] {
            for name in &self.names[by as usize] {
                self.audience.change(by, name, false);
            }
        }
    }
}

/// The error for PUBLISH, and for SUBSCRIBE to other channels.
pub(super) const NO_PUBSUB: Refused = Refused::because(
    "ERR there are no channels here but the notifications about keys, which cannot be published \
     to: __keyspace@0__:<key> and __keyevent@0__:<event>",
);

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// SUBSCRIBE and PSUBSCRIBE. Changes after the reply are delivered.
    pub(super) async fn subscribe(&mut self, frame: &Frame, by: By) -> Result<(), Refused> {
        let audience = self.thread.shared.audience.clone();
        let mut subscriptions = match self.session.subscriptions.take() {
            Some(subscriptions) => subscriptions,
            None => Box::new(Subscriptions::new(audience)),
        };
        let subscribed = self.open_watch(&mut subscriptions, frame, by).await;
        let mut out = Encoder::new(&mut self.replies, self.session.version);
        if subscribed.is_ok() {
            frame.args_from(1).for_each(|name| subscriptions.add(by, name, &mut out));
        }
        if subscriptions.len() > 0 {
            self.session.subscriptions = Some(subscriptions);
        }
        subscribed
    }

    async fn open_watch(
        &self,
        subscriptions: &mut Subscriptions,
        frame: &Frame,
        by: By,
    ) -> Result<(), Refused> {
        frame.args_from(1).try_for_each(|name| subscriptions.check(by, name, frame.len()))?;
        if subscriptions.watch.is_some() {
            return Ok(());
        }
        let catalog = self.thread.handle.catalog();
        let mut keyspaces = catalog.all();
        let cluster = self.session.is_cluster();
        keyspaces.retain(|keyspace| !cluster || keyspace.spec.is_global());
        keyspaces.retain(|keyspace| self.session.may_read(keyspace));
        // What other sites hold changes there.
        keyspaces.retain(|keyspace| self.thread.handle.holds(keyspace.id));
        if keyspaces.is_empty() {
            return Err(Refused::because("NOPERM there is no keyspace that this user may read"));
        }
        let keyspaces = keyspaces.iter().map(|keyspace| keyspace.id).collect();
        let watch = self.thread.handle.watch(keyspaces, None).await;
        subscriptions.watch = Some(watch.map_err(refused)?);
        Ok(())
    }

    /// UNSUBSCRIBE and PUNSUBSCRIBE: from those named, or from all.
    pub(super) fn unsubscribe(&mut self, frame: &Frame, by: By) {
        let audience = self.thread.shared.audience.clone();
        let mut subscriptions = match self.session.subscriptions.take() {
            Some(subscriptions) => subscriptions,
            None => Box::new(Subscriptions::new(audience)),
        };
        let mut out = Encoder::new(&mut self.replies, self.session.version);
        if frame.len() == 1 {
            subscriptions.remove(by, None, &mut out);
        }
        frame.args_from(1).for_each(|name| subscriptions.remove(by, Some(name), &mut out));
        if subscriptions.len() > 0 {
            self.session.subscriptions = Some(subscriptions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{KeyspaceId, Revision};
    use wire::resp::Version;

    fn published(by: By, name: &str, kind: ChangeKind) -> String {
        let mut subscriptions = Subscriptions::new(Arc::default());
        subscriptions.add(
            by,
            name.as_bytes(),
            &mut Encoder::new(&mut BytesMut::new(), Version::Resp2),
        );
        let (revision, keyspace) = (Revision(1), KeyspaceId::DEFAULT);
        let change = Change { revision, keyspace, key: "k".into(), kind };
        let mut out = BytesMut::new();
        subscriptions.write_change(&change, &mut Encoder::new(&mut out, Version::Resp3));
        String::from_utf8(out.to_vec()).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn a_change_is_published_on_both_channels() {
        assert_eq!(
            published(By::Channel, "__keyspace@0__:k", ChangeKind::Put),
            ">3 $7 message $16 __keyspace@0__:k $3 set "
        );
        assert_eq!(
            published(By::Channel, "__keyevent@0__:expired", ChangeKind::Expire),
            ">3 $7 message $22 __keyevent@0__:expired $1 k "
        );
        let both = published(By::Pattern, "__key*__:*", ChangeKind::HashSet);
        assert_eq!(both.matches("pmessage").count(), 2, "{both}");
        assert_eq!(published(By::Pattern, "__key*", ChangeKind::Clear), "");
        assert_eq!(published(By::Channel, "__keyspace@0__:other", ChangeKind::Put), "");
    }

    #[test]
    fn channels_that_stay_silent_are_refused() {
        let subscriptions = Subscriptions::new(Arc::default());
        assert!(subscriptions.check(By::Channel, b"__keyspace@0__:k", 1).is_ok());
        assert!(subscriptions.check(By::Channel, b"news", 1).is_err());
        assert!(subscriptions.check(By::Channel, b"__key", 1).is_err());
        for pattern in ["*", "__key*", "__keyevent@0__:*", "__keyspace@0__:car:*"] {
            assert!(subscriptions.check(By::Pattern, pattern.as_bytes(), 1).is_ok(), "{pattern}");
        }
        assert!(subscriptions.check(By::Pattern, b"news*", 1).is_err());
    }

    #[test]
    fn an_audience_is_counted() {
        let audience = Arc::new(Audience::default());
        let mut out = BytesMut::new();
        let mut one = Subscriptions::new(audience.clone());
        one.add(By::Channel, b"c", &mut Encoder::new(&mut out, Version::Resp2));
        let mut other = Subscriptions::new(audience.clone());
        other.add(By::Channel, b"c", &mut Encoder::new(&mut out, Version::Resp2));
        assert_eq!(audience.names(By::Channel), [(Bytes::from("c"), 2)]);
        drop(one);
        other.remove(By::Channel, None, &mut Encoder::new(&mut out, Version::Resp2));
        assert!(audience.names(By::Channel).is_empty());
    }
}
