//! The identity of a data directory: a small file that outlives everything else in it.

use crate::config::Engine;
use model::{NodeId, SiteName};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use wire::peer::{Member, Members};

const FILE: &str = "identity.toml";
/// 1, 2: of builds from before the first release, whose data is not read.
const FORMAT: u32 = 3;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// The version of this format.
    format: u32,
    /// The site.
    pub(crate) site: String,
    /// The node.
    pub(crate) node: u64,
    /// The life of the node: drawn when the directory was empty.
    pub(crate) incarnation: u64,
    /// Whether it is a witness, without data.
    pub(crate) witness: bool,
    /// Whether the directory belongs to a member: it created the site, or joined it.
    pub(crate) member: bool,
    /// Where the site's keys are kept, if not in this directory: `etcd`. The directory then
    /// contains a copy, and the rest of the identity is in etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<String>,
    /// Whether it created a site that joined an existing deployment.
    #[serde(default)]
    pub(crate) let_in: bool,
    /// Whether the registry has listed its site since. From then on it does not ask to be let in:
    /// it may have been removed. A version without this field never reads such a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) entered: bool,
    /// Whether its site has left its deployment. A version without this field never reads such a
    /// file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) left: bool,
    /// The log index since which this life is a member; 0: its list of members has not had it yet.
    /// A version without this field refuses the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) since: u64,
    /// The nodes of the site when this one joined; the log replaces them as soon as it is there.
    #[serde(default, rename = "peer")]
    pub(crate) peers: Vec<Peer>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A node of the site and its peer port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    node: u64,
    address: String,
}

/// Makes the error of something that was tried with a file or directory.
fn cannot_be(tried: &'static str, path: &Path) -> impl Fn(std::io::Error) -> IdentityError {
    move |cause| IdentityError::Io { tried, path: path.to_path_buf(), cause }
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The system failed.
    #[error("{path} cannot be {tried}: {cause}")]
    Io {
        /// What was tried.
        tried: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The file cannot be understood.
    #[error("{path} is not readable: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The directory belongs to another node.
    #[error(
        "{path} belongs to node {found_node} of site {found_site:?}, but this is started as node \
         {node} of site {site:?}; check --data, --node and --site"
    )]
    SomebodyElses {
        /// The directory.
        path: PathBuf,
        /// The site it belongs to.
        found_site: String,
        /// The node it belongs to.
        found_node: u64,
        /// The started site.
        site: String,
        /// The started node.
        node: u64,
    },
    /// The site of the directory keeps its keys elsewhere.
    #[error(
        "{path} belongs to a node whose site keeps its keys {found}, but this is started with --engine \
         {engine}; give it another --data, or the --engine that it had"
    )]
    OtherEngine {
        /// The directory.
        path: PathBuf,
        /// Where they are.
        found: &'static str,
        /// The requested engine.
        engine: &'static str,
    },
    /// The log of a member is gone.
    #[error(
        "{path} is of node {node} of site {site:?}, which is a member, but its log is gone: started like \
         this, the node would have lost its acknowledgements and its votes. If the log lies \
         elsewhere, put it back; if not, move {path} away and start node {node} with --join, so that the \
         site takes it in again as a new one (where it was the only node, restore a backup)"
    )]
    LogGone {
        /// The directory.
        path: PathBuf,
        /// The site it belongs to.
        site: String,
        /// The node it belongs to.
        node: u64,
    },
    /// There is data, but no identity.
    #[error(
        "{path} holds data ({part}), but no {FILE} that names its node: started like this, it would be \
         a new node with another node's data. If the file lies elsewhere (in a backup of the directory, say), \
         put it back; if not, move {path} away and start the node with --join on an empty directory, or \
         restore a backup"
    )]
    NobodysData {
        /// The directory.
        path: PathBuf,
        /// What is there.
        part: &'static str,
    },
    /// Another process has it open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
}

impl Identity {
    /// Reads the directory's identity, or creates one in an empty directory.
    pub(crate) fn open(
        data: &Path,
        site: &SiteName,
        node: NodeId,
        witness: bool,
        incarnation: u64,
    ) -> Result<Identity, IdentityError> {
        let path = data.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let identity = Identity {
                    format: FORMAT,
                    site: site.to_string(),
                    node: node.0,
                    incarnation,
                    witness,
                    member: false,
                    engine: None,
                    let_in: false,
                    entered: false,
                    left: false,
                    since: 0,
                    peers: Vec::new(),
                };
                identity.save(data)?;
                return Ok(identity);
            }
            Err(cause) => return Err(cannot_be("read", &path)(cause)),
        };
        let found = Identity::parse(&path, &text)?;
        found.check(data, site, node)?;
        Ok(found)
    }

    /// Reads the text of an identity that lies at `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Identity, IdentityError> {
        let malformed = |cause| IdentityError::Malformed { path: path.to_path_buf(), cause };
        let found: Identity = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if found.format != FORMAT {
            let of = if found.format > FORMAT { "a later version" } else { "an earlier build" };
            return Err(malformed(format!(
                "its format is {}, of {of} with other data; this version reads {FORMAT}: start {of}, or begin with an \
                 empty directory",
                found.format
            )));
        }
        Ok(found)
    }

    /// Its text.
    pub(crate) fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain fields are always TOML")
    }

    /// Refuses the directory of another node.
    pub(crate) fn check(
        &self,
        place: &Path,
        site: &SiteName,
        node: NodeId,
    ) -> Result<(), IdentityError> {
        if self.site == site.as_str() && self.node == node.0 {
            return Ok(());
        }
        Err(IdentityError::SomebodyElses {
            path: place.to_path_buf(),
            found_site: self.site.clone(),
            found_node: self.node,
            site: site.to_string(),
            node: node.0,
        })
    }

    /// Refuses a directory of a site that keeps its keys elsewhere, and records where they are.
    pub(crate) fn keep_to(&mut self, data: &Path, engine: &Engine) -> Result<(), IdentityError> {
        let path = data.to_path_buf();
        let other =
            |found| Err(IdentityError::OtherEngine { path, found, engine: engine.as_str() });
        match (engine, &self.engine) {
            (Engine::Embedded, None) | (Engine::Etcd(_), Some(_)) => Ok(()),
            (Engine::Embedded, Some(_)) => other("in etcd"),
            (Engine::Etcd(_), None) if self.member => other("in this directory"),
            (Engine::Etcd(_), None) => {
                self.engine = Some(engine.as_str().to_owned());
                self.save(data)
            }
        }
    }

    /// Records durably that this node is a member of a site with these members.
    pub(crate) fn became_member(
        &mut self,
        data: &Path,
        members: &Members,
    ) -> Result<(), IdentityError> {
        let others = members.nodes.iter().filter(|member| member.node != self.node);
        let peers = others.map(|one| Peer { node: one.node, address: one.address.clone() });
        self.peers = peers.collect();
        self.member = true;
        self.save(data)
    }

    /// Records durably that the registry has listed the site of this directory, and whether it has
    /// left its deployment.
    pub(crate) fn has_left(data: &Path, has_left: bool) -> Result<(), IdentityError> {
        Identity::change(data, |found| (found.entered, found.left) = (true, has_left))
    }

    /// Records durably since which log index this life is a member.
    pub(crate) fn is_member_since(data: &Path, since: u64) -> Result<(), IdentityError> {
        Identity::change(data, |found| found.since = since)
    }

    fn change(data: &Path, change: impl FnOnce(&mut Identity)) -> Result<(), IdentityError> {
        let path = data.join(FILE);
        let text = fs::read_to_string(&path).map_err(cannot_be("read", &path))?;
        let malformed = |error: toml::de::Error| IdentityError::Malformed {
            path: path.clone(),
            cause: error.to_string(),
        };
        let found: Identity = toml::from_str(&text).map_err(malformed)?;
        let mut changed = found.clone();
        change(&mut changed);
        if changed == found { Ok(()) } else { changed.save(data) }
    }

    /// The members according to this file: their addresses, not their votes.
    pub(crate) fn members(&self) -> Members {
        let nodes = self.peers.iter().map(|peer| Member {
            node: peer.node,
            address: peer.address.clone(),
            ..Member::default()
        });
        Members { nodes: nodes.collect(), ..Members::default() }
    }

    fn save(&self, data: &Path) -> Result<(), IdentityError> {
        let text = self.to_toml();
        let (path, new) = (data.join(FILE), data.join("identity.new"));
        let mut file = File::create(&new).map_err(cannot_be("created", &new))?;
        file.write_all(text.as_bytes()).map_err(cannot_be("written", &new))?;
        file.sync_all().map_err(cannot_be("synced", &new))?;
        fs::rename(&new, &path).map_err(cannot_be("replaced", &path))?;
        let folder = File::open(data).map_err(cannot_be("opened", data))?;
        folder.sync_all().map_err(cannot_be("synced", data))
    }
}

/// Refuses a directory that has lost its log or its identity. State and snapshots can be made again
/// from the rest; these two cannot.
///
/// The log's first file exists before anything makes the node a member, and the identity before the
/// log: whatever a crash leaves passes.
pub(crate) fn check_whole(data: &Path) -> Result<(), IdentityError> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let found = Identity::parse(&path, &text)?;
            let keeps_log = found.member && found.engine.is_none();
            if keeps_log && !has_files(&data.join("log"))? {
                let path = data.to_path_buf();
                return Err(IdentityError::LogGone { path, site: found.site, node: found.node });
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            for part in ["log", "snapshots", "state"] {
                if has_files(&data.join(part))? {
                    return Err(IdentityError::NobodysData { path: data.to_path_buf(), part });
                }
            }
        }
        Err(cause) => return Err(cannot_be("read", &path)(cause)),
    }
    Ok(())
}

fn has_files(folder: &Path) -> Result<bool, IdentityError> {
    match fs::read_dir(folder) {
        Ok(mut files) => Ok(files.next().is_some()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cannot_be("listed", folder)(cause)),
    }
}

/// Locks the data directory for this process, until the file is dropped.
pub(crate) fn lock_directory(data: &Path) -> Result<File, IdentityError> {
    fs::create_dir_all(data).map_err(cannot_be("created", data))?;
    let lock = data.join("lock");
    let file = File::create(&lock).map_err(cannot_be("created", &lock))?;
    file.try_lock().map_err(|_| IdentityError::InUse(data.to_path_buf()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity() {
        let data = tempfile::tempdir().unwrap();
        let site = SiteName::new("pier").unwrap();
        let mut first = Identity::open(data.path(), &site, NodeId(1), false, 7).unwrap();
        let member = Member { node: 2, address: "b:1".into(), ..Member::default() };
        let members = Members { nodes: vec![member], ..Members::default() };
        first.became_member(data.path(), &members).unwrap();
        let again = Identity::open(data.path(), &site, NodeId(1), false, 8).unwrap();
        assert_eq!((again.incarnation, again.member), (7, true));
        assert_eq!(again.members().nodes[0].address, "b:1");
        for left in [true, false] {
            // The site is listed again after all: it joined beyond the end of a term.
            Identity::has_left(data.path(), left).unwrap();
            let read = Identity::open(data.path(), &site, NodeId(1), false, 8).unwrap();
            assert_eq!((read.left, read.entered), (left, true));
        }
        assert!(!again.to_toml().contains("since"), "an older version reads it until then");
        Identity::is_member_since(data.path(), 113).unwrap();
        assert_eq!(Identity::open(data.path(), &site, NodeId(1), false, 8).unwrap().since, 113);
        let other = Identity::open(data.path(), &site, NodeId(2), false, 9).unwrap_err();
        assert!(other.to_string().contains("--node"), "{other}");
    }

    #[test]
    fn format_3_is_read_and_no_other_one() {
        let data = tempfile::tempdir().unwrap();
        let format_3 = "format = 3\nsite = \"pier\"\nnode = 3\nincarnation = 5\nwitness = true\n\
                        member = true\n\n[[peer]]\nnode = 1\naddress = \"a:1\"\n";
        fs::write(data.path().join(FILE), format_3).unwrap();
        let site = SiteName::new("pier").unwrap();
        let read = Identity::open(data.path(), &site, NodeId(3), true, 0).unwrap();
        assert_eq!((read.incarnation, read.witness, read.peers.len()), (5, true, 1));
        assert_eq!(read.since, 0, "it reads in its members since when");
        for (format, of) in [("format = 2", "an earlier build"), ("format = 4", "a later version")]
        {
            let other = format_3.replace("format = 3", format);
            fs::write(data.path().join(FILE), other).unwrap();
            let refused = Identity::open(data.path(), &site, NodeId(3), true, 0).unwrap_err();
            assert!(refused.to_string().contains(of), "{refused}");
        }
    }

    #[test]
    fn a_directory_stays_with_its_engine() {
        let data = tempfile::tempdir().unwrap();
        let site = SiteName::new("pier").unwrap();
        let open = || Identity::open(data.path(), &site, NodeId(1), false, 7).unwrap();
        let etcd = Engine::Etcd(crate::config::EtcdConfig::default());
        open().keep_to(data.path(), &etcd).unwrap();
        open().keep_to(data.path(), &etcd).unwrap();
        let refused = open().keep_to(data.path(), &Engine::Embedded).unwrap_err();
        assert!(refused.to_string().contains("--engine"), "{refused}");

        let data = tempfile::tempdir().unwrap();
        let mut own = Identity::open(data.path(), &site, NodeId(1), false, 7).unwrap();
        own.keep_to(data.path(), &Engine::Embedded).unwrap();
        own.became_member(data.path(), &Members::default()).unwrap();
        own.keep_to(data.path(), &Engine::Embedded).unwrap();
        let refused = own.keep_to(data.path(), &etcd).unwrap_err();
        assert!(refused.to_string().contains("in this directory"), "{refused}");
        let text = fs::read_to_string(data.path().join(FILE)).unwrap();
        assert!(!text.contains("engine"), "an older version reads it: {text}");
    }

    #[test]
    fn a_member_s_log_is_not_begun_anew() {
        let data = tempfile::tempdir().unwrap();
        let site = SiteName::new("pier").unwrap();
        check_whole(data.path()).unwrap();
        let mut own = Identity::open(data.path(), &site, NodeId(3), false, 7).unwrap();
        check_whole(data.path()).expect("it has asked, and was not taken in yet");
        own.became_member(data.path(), &Members::default()).unwrap();
        for empty in [false, true] {
            if empty {
                fs::create_dir(data.path().join("log")).unwrap();
            }
            let refused = check_whole(data.path()).unwrap_err().to_string();
            assert!(refused.contains("node 3") && refused.contains("--join"), "{refused}");
        }
        fs::write(data.path().join("log/1"), "").unwrap();
        check_whole(data.path()).unwrap();
    }

    #[test]
    fn data_without_an_identity_is_refused() {
        for part in ["log", "snapshots", "state"] {
            let data = tempfile::tempdir().unwrap();
            fs::create_dir(data.path().join(part)).unwrap();
            check_whole(data.path()).unwrap();
            fs::write(data.path().join(part).join("1"), "").unwrap();
            let refused = check_whole(data.path()).unwrap_err().to_string();
            assert!(refused.contains(part) && refused.contains(FILE), "{refused}");
        }
    }

    #[test]
    fn a_directory_is_for_one_process() {
        let data = tempfile::tempdir().unwrap();
        let _held = lock_directory(data.path()).unwrap();
        assert!(matches!(lock_directory(data.path()), Err(IdentityError::InUse(_))));
    }
}
