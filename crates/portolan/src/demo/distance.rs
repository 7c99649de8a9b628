//! How far apart nodes are, by the site that dials.
//!
//! Each node has one address, which the nodes of its own site and of all others dial. The relay
//! before it gives each connection the link between the two sites: in its first frame a node names
//! its site.

use std::sync::Arc;

use bytes::BytesMut;
use lab::{link::Link, world::World};
use wire::peer::{self, Hello};

/// The link of a connection to a node of `site` that begins with these bytes; `None`: they are not
/// a whole frame yet.
pub(crate) fn link_to(
    world: Arc<World>,
    site: usize,
) -> impl Fn(&[u8]) -> Option<Link> + Send + Sync + 'static {
    move |said| {
        let frame = peer::split_frame(&mut BytesMut::from(said)).transpose()?;
        let hello = frame.ok().and_then(|frame| peer::decode::<Hello>(frame).ok());
        let of =
            |hello: Hello| world.sites.iter().position(|there| there.name.as_str() == hello.site);
        Some(match hello.and_then(of) {
            Some(from) if from != site => world.site_link(from, site),
            _ => world.node_link(site),
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::world::ready;

    use super::*;

    #[test]
    fn a_link_is_chosen_by_the_site_that_greets() {
        let world = Arc::new(ready::san_francisco());
        let link = link_to(world.clone(), 2);
        let greeting = |site: &str| {
            let mut bytes = BytesMut::new();
            let hello = Hello { site: site.to_owned(), node: 1, ..Hello::default() };
            peer::encode_frame(&hello, &mut bytes);
            bytes
        };
        let own = greeting(world.sites[2].name.as_str());
        let other = greeting(world.sites[6].name.as_str());
        assert_eq!(link(&own), Some(world.node_link(2)));
        assert_eq!(link(&other), Some(world.site_link(6, 2)));
        assert_ne!(world.node_link(2), world.site_link(6, 2));
        for cut in 0..other.len() {
            assert_eq!(link(&other[..cut]), None, "{cut} bytes are not all");
        }
        assert_eq!(link(&greeting("elsewhere")), Some(world.node_link(2)));
        assert_eq!(link(&[0xff; 64]), Some(world.node_link(2)));
    }
}
