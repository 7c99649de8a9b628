//! Identities: small copyable numbers, and the one name a site has.

use std::fmt;

/// A node of a site. Unique in its site for ever: a node that comes back with an empty disk keeps
/// its id only after it has been removed and added again. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// A keyspace of this deployment, given at creation and never used again. Id 0 is the default
/// keyspace, which always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The keyspace of every key that no other keyspace's prefix claims.
    pub const DEFAULT: KeyspaceId = KeyspaceId(0);
}

impl fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}", self.0)
    }
}

/// How many write commands a site had applied when something was written: 1, 2, 3, …
///
/// Every write command gets its own revision, also when a batch of them shares one log entry, so
/// that two versions of a key never bear the same number (`docs/adr/0002`). The version of a
/// record is the revision of the command that wrote it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A process that numbers requests so that a retry is applied once: a client program, or a node
/// that forwards for clients which do not number theirs. Drawn at random (64 bits) at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The identity of a write that may be sent more than once and must be applied at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Who numbers.
    pub client: ClientId,
    /// 1, 2, 3, … for each new write of that client.
    pub sequence: u64,
    /// The client has seen the answers of all its sequences below this one: they may be forgotten,
    /// and a write with such a sequence is refused as [`crate::Refusal::RequestForgotten`].
    pub acknowledged_below: u64,
}

/// A site of a deployment: 1 for the one that began it, then one more for each that joined. Never
/// used again after its site has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// The name of a site: 1–64 of `a-z 0-9 -`, starting with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteName(String);

impl SiteName {
    /// Checks and takes a name. The error is a sentence for the user.
    pub fn new(name: impl Into<String>) -> Result<SiteName, String> {
        let name = name.into();
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
        let all_well =
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if starts_well && all_well && name.len() <= 64 {
            return Ok(SiteName(name));
        }
        Err(format!(
            "{name:?} is no site name: use 1 to 64 of a-z, 0-9 and -, starting with a letter"
        ))
    }

    /// The same for the name of a failure domain, which has the form of a site's.
    pub fn domain(name: impl Into<String>) -> Result<SiteName, String> {
        let name = name.into();
        SiteName::new(name.clone()).map_err(|_| {
            format!(
                "{name:?} is no name of a failure domain: use 1 to 64 of a-z, 0-9 and -, starting with a letter"
            )
        })
    }

    /// The same for the name of a region.
    pub fn region(name: impl Into<String>) -> Result<SiteName, String> {
        let name = name.into();
        SiteName::new(name.clone()).map_err(|_| {
            format!(
                "{name:?} is no name of a region: use 1 to 64 of a-z, 0-9 and -, starting with a letter"
            )
        })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
