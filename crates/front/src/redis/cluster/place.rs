//! Which keys a command may combine, and which keys the port of the Redis Cluster protocol serves.

use crate::redis::connection::Connection;
use crate::redis::execution::{self, refused};
use crate::redis::refused::Refused;
use crate::redis::table::{CommandSpec, Keys};
use model::{Catalog, KeySlots, Keyspace, KeyspaceId, Query, ReadConsistency, Request, Slot};
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::Frame;

/// The keyspace of a command's keys: global, and all keys in one slot.
pub(in crate::redis) fn keyspace_of<'a>(
    frame: &Frame,
    spec: &CommandSpec,
    catalog: &'a Catalog,
) -> Result<&'a Keyspace, Refused> {
    let keys = spec.keys.places(frame.len()).map(|place| frame.arg(place));
    let may_differ = spec.keys != Keys::FIRST;
    if may_differ && keys.fold(KeySlots::Nowhere, KeySlots::and) == KeySlots::Several {
        return Err(Refused::CROSS_SLOT);
    }
    let keyspace = execution::keyspace_of(frame, spec, catalog)?;
    if !keyspace.spec.is_global() {
        let name = &keyspace.spec.name;
        return Err(Refused(
            format!(
                "ERR keyspace '{name}' is of one site; use the Redis port, or a keyspace of scope \
                 global"
            )
            .into(),
        ));
    }
    Ok(keyspace)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Checks that a command that is about to be queued has its keys here. Only for clients of the
    /// Redis Cluster protocol.
    ///
    /// The keys may move before the transaction runs: EXEC then replies with their new place.
    pub(in crate::redis) async fn check_is_here(
        &self,
        frame: &Frame,
        spec: &CommandSpec,
        keyspace: KeyspaceId,
    ) -> Result<(), Refused> {
        let Some(place) = spec.keys.places(frame.len()).next() else { return Ok(()) };
        let handle = &self.thread.handle;
        let catalog = handle.catalog();
        // Its group may be lent.
        let lends = catalog.by_id(keyspace).is_some_and(|one| one.spec.lends());
        let is_here = !lends && handle.serves(Slot::of_key(frame.arg(place)));
        if !self.session.goes_to_keys() || is_here {
            return Ok(());
        }
        // The site's own routing decides: it receives a query as for the command itself, of which
        // only a redirection matters.
        let query = Query::Exists { keys: vec![frame.bytes(place)] };
        let question = Request::read(keyspace, query, ReadConsistency::Stale);
        let answer = handle.call(Request { redirect: true, direct: true, ..question }).await;
        answer.map(drop).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::table::table;
    use model::KeyspaceSpec;

    fn asked(words: &[&str]) -> Result<String, String> {
        let global = KeyspaceSpec::linearizable_global("cars", "car:");
        let cars = Keyspace { id: KeyspaceId(1), spec: global };
        let catalog = Catalog::new(vec![cars]);
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let frame = Frame::of(&words);
        let (_, spec) = table().find(frame.arg(0)).unwrap();
        let found = keyspace_of(&frame, spec, &catalog);
        found.map(|found| found.spec.name.clone()).map_err(|Refused(text)| text.into_owned())
    }

    #[test]
    fn keys_are_of_one_slot_and_of_a_global_keyspace() {
        assert_eq!(asked(&["get", "car:1"]), Ok("cars".into()));
        assert_eq!(asked(&["mset", "car:{1}a", "x", "car:{1}b", "y"]), Ok("cars".into()));
        let apart = "CROSSSLOT Keys in request don't hash to the same slot";
        assert_eq!(asked(&["mget", "car:1", "car:2"]), Err(apart.into()));
        assert_eq!(asked(&["mset", "car:1", "x", "bus:1", "y"]), Err(apart.into()));
        let other = "ERR keyspace 'default' is of one site; use the Redis port, or a keyspace of \
                     scope global";
        assert_eq!(asked(&["get", "bus:1"]), Err(other.into()));
        let mixed = asked(&["mget", "car:{1}", "bus:{1}"]).unwrap_err();
        assert!(mixed.starts_with("CROSSSLOT keys of keyspaces 'cars' and 'default'"), "{mixed}");
    }
}
