//! A keyspace states what its data needs, once; programs then just read and write.

use crate::{Bytes, Cache, KeyspaceId, SiteId, limits};
use std::fmt;

/// What a keyspace promises its readers and writers (DESIGN of the modes: ARCHITECTURE.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Every operation takes effect at one moment between its call and its return.
    Linearizable,
    /// No client sees an effect before its cause.
    Causal,
    /// The four session guarantees, inside a session.
    Session,
    /// Replicas converge when writes stop.
    Eventual,
}

/// The scope of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The nodes of one site.
    Site,
    /// The whole deployment.
    Global,
    /// The sites of one region.
    Region,
    /// A tree of sites.
    Tree,
}

/// What decides where the data of a global keyspace lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The hash of the key, and nothing else is looked at.
    #[default]
    Off,
    /// The hash of the key; owners count accesses and report which moves would bring keys to their
    /// users.
    Advise,
    /// The users: where they are.
    Adaptive,
}

/// What a causal keyspace does with writes that depend on the value that they overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rmw {
    /// It refuses them: two sites could carry them out at the same time, and one of the results
    /// would be lost.
    #[default]
    Refuse,
    /// The site that is asked carries them out by what it shows. The result is an assignment as any
    /// other.
    Local,
}

/// What a site does with a request for a causal keyspace that it does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Miss {
    /// It sends it to a site that holds the keyspace: the root, if that can be reached.
    #[default]
    Forward,
    /// It refuses it.
    Refuse,
    /// It gets the keys that are asked for from the root, and holds them from then on: as many as
    /// fit.
    Fetch {
        /// Bytes of keys and what they hold that a site which is not named holds of the keyspace,
        /// about.
        held_bytes_max: u64,
    },
}

/// What a user states when creating a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceSpec {
    /// 1–64 of `a-z 0-9 - _`, starting with a letter. Unique.
    pub name: String,
    /// Redis keys that start with it belong here (the longest prefix wins). Not empty, unique;
    /// only the default keyspace has the empty prefix.
    pub prefix: Bytes,
    /// The promise.
    pub consistency: Consistency,
    /// The scope of it.
    pub scope: Scope,
    /// Meaningful with [`Scope::Global`] only.
    pub placement: Placement,
    /// It was adaptive before its placement was changed: groups of it may still be at other sites.
    /// It stays so until the keyspace is dropped, and no user states it.
    pub was_adaptive: bool,
    /// Linearizable reads may trust the leader's lease instead of asking a quorum: one round trip
    /// less, correct only while clocks run at rates within the margin stated in the guide.
    pub lease_reads: bool,
    /// Whether nodes keep copies of keys that other sites hold. With [`Scope::Global`] only.
    pub cache: Cache,
    /// With [`Consistency::Causal`] only: others always carry such writes out, atomically.
    pub rmw: Rmw,
    /// With [`Consistency::Causal`] only: the sites that hold it. Empty: all, also those that join
    /// later.
    pub sites: Vec<SiteId>,
    /// What the other sites do with requests.
    pub miss: Miss,
    /// Where groups follow their users only: the sites that they may be lent to, ordered. Empty:
    /// all. A group's home may always have it.
    pub lend_to: Vec<SiteId>,
    /// Where groups follow their users only: what a millisecond of these users counts against those
    /// of other keyspaces when more is to move than may, 1 to [`limits::PRIORITY_MAX`].
    pub priority: u16,
}

/// What is to be another than before of a keyspace; `None`: as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alteration {
    /// What decides where its keys are.
    pub placement: Option<Placement>,
    /// The sites that its groups may be lent to; empty: all.
    pub lend_to: Option<Vec<SiteId>>,
    /// What a millisecond of its users counts.
    pub priority: Option<u16>,
}

impl Alteration {
    /// Of the placement alone.
    pub fn of_placement(placement: Placement) -> Alteration {
        Alteration { placement: Some(placement), ..Alteration::default() }
    }

    /// Whether it is about what only adaptive keyspaces have.
    pub fn has_rules(&self) -> bool {
        self.lend_to.is_some() || self.priority.is_some()
    }
}

/// A keyspace that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Its id, never used again after a drop.
    pub id: KeyspaceId,
    /// What was stated at its creation.
    pub spec: KeyspaceSpec,
}

/// Why a keyspace cannot be made as stated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyspaceError {
    /// The name breaks the rule.
    #[error("{0:?} is no keyspace name: use 1 to 64 of a-z, 0-9, - and _, starting with a letter")]
    Name(String),
    /// The prefix breaks the rule.
    #[error("the prefix of keyspace {0:?} must have 1 to {max} bytes", max = limits::PREFIX_BYTES_MAX)]
    Prefix(String),
    /// The version of a site does not move keys to their users.
    #[error(
        "keyspace {0:?} asks for placement adaptive, which the version of that site does not serve; update all sites first"
    )]
    Placement(String),
    /// Its keys are never at another site.
    #[error(
        "keyspace {0:?} asks for placement; only scope global has keys that other sites can own"
    )]
    PlacementScope(String),
    /// Its keys are never at another site.
    #[error("keyspace {0:?} asks for a cache of remote keys; only scope global has remote keys")]
    CacheScope(String),
    /// The numbers of its cache are out of range.
    #[error(
        "keyspace {0:?} asks for a cache out of range: cache_bytes_max is {bytes_min} to {bytes_max}, \
         cache_age_ms_max is 1 to {age_ms_max}",
        bytes_min = limits::CACHE_BYTES_MIN,
        bytes_max = limits::CACHE_BYTES_MAX,
        age_ms_max = limits::CACHE_AGE_MS_MAX
    )]
    CacheLimits(String),
    /// None of its groups is ever lent.
    #[error(
        "keyspace {0:?} asks for --lend-to or --priority (lend_to, priority); only placement adaptive lends groups of keys to \
         other sites: add it, or `portolan keyspace alter {0} --placement adaptive`"
    )]
    RulesPlacement(String),
    /// The priority is out of range.
    #[error(
        "keyspace {0:?} asks for a priority out of range: --priority (priority) is 1 to {max}, and {default} for keyspaces \
         that ask for none",
        default = limits::PRIORITY_DEFAULT,
        max = limits::PRIORITY_MAX
    )]
    Priority(String),
    /// Its writes are atomic anyway.
    #[error(
        "keyspace {0:?} asks for rmw local; only consistency causal has writes whose outcome could depend on \
         the site"
    )]
    RmwConsistency(String),
    /// Only the sites of a region hold the same keys.
    #[error(
        "keyspace {0:?} asks for sites or miss; only consistency causal has keyspaces that some sites hold and others \
         do not"
    )]
    SitesConsistency(String),
    /// Some sites hold all of it.
    #[error("keyspace {0:?} asks for miss fetch; name the sites that hold all of it, too")]
    FetchSites(String),
    /// What a site holds on demand is out of range.
    #[error(
        "keyspace {0:?} asks for miss fetch out of range: held_bytes_max is {bytes_min} to {bytes_max}",
        bytes_min = limits::CAUSAL_HELD_BYTES_MIN,
        bytes_max = limits::CAUSAL_HELD_BYTES_MAX
    )]
    HeldBytes(String),
    /// This version cannot serve the promise.
    #[error(
        "keyspace {name:?} asks for consistency {consistency} with scope {scope}; this version serves \
         linearizable/site, linearizable/global and causal/region"
    )]
    NotServed {
        /// The keyspace.
        name: String,
        /// What it asks for.
        consistency: Consistency,
        /// The scope of it.
        scope: Scope,
    },
}

impl KeyspaceSpec {
    /// A keyspace of the one kind that every site serves by itself.
    pub fn linearizable_site(name: impl Into<String>, prefix: impl Into<Bytes>) -> KeyspaceSpec {
        KeyspaceSpec {
            name: name.into(),
            prefix: prefix.into(),
            consistency: Consistency::Linearizable,
            scope: Scope::Site,
            placement: Placement::Off,
            was_adaptive: false,
            lease_reads: false,
            cache: Cache::Off,
            rmw: Rmw::Refuse,
            sites: Vec::new(),
            miss: Miss::Forward,
            lend_to: Vec::new(),
            priority: limits::PRIORITY_DEFAULT,
        }
    }

    /// A keyspace with one truth for the whole deployment, where the ring puts it.
    pub fn linearizable_global(name: impl Into<String>, prefix: impl Into<Bytes>) -> KeyspaceSpec {
        KeyspaceSpec { scope: Scope::Global, ..KeyspaceSpec::linearizable_site(name, prefix) }
    }

    /// A keyspace with causal consistency among the sites of the region.
    pub fn causal_region(name: impl Into<String>, prefix: impl Into<Bytes>) -> KeyspaceSpec {
        let site = KeyspaceSpec::linearizable_site(name, prefix);
        KeyspaceSpec { consistency: Consistency::Causal, scope: Scope::Region, ..site }
    }

    /// Whether its keys belong to slots that move between sites.
    pub fn is_global(&self) -> bool {
        self.scope == Scope::Global
    }

    /// Whether its writes are ordered by the root of its region.
    pub fn is_causal(&self) -> bool {
        self.consistency == Consistency::Causal
    }

    /// Whether a site holds it, if sites hold it whole or not at all.
    pub fn is_held_by(&self, site: SiteId) -> bool {
        self.sites.is_empty() || self.sites.contains(&site)
    }

    /// How many bytes of its keys a site holds on demand; `None`: it holds all of them, or none.
    pub fn on_demand_at(&self, site: SiteId) -> Option<u64> {
        match self.miss {
            Miss::Fetch { held_bytes_max } if !self.is_held_by(site) => Some(held_bytes_max),
            _ => None,
        }
    }

    /// Whether groups of its keys follow their users: they are lent to other sites.
    pub fn is_adaptive(&self) -> bool {
        self.is_global() && self.placement == Placement::Adaptive
    }

    /// Whether groups of its keys may be at other sites than their slots, as it is adaptive or was.
    pub fn lends(&self) -> bool {
        self.is_adaptive() || self.was_adaptive
    }

    /// The same with another placement.
    #[must_use]
    pub fn with_placement(&self, placement: Placement) -> KeyspaceSpec {
        let was_adaptive = placement != Placement::Adaptive && self.lends();
        KeyspaceSpec { placement, was_adaptive, ..self.clone() }
    }

    /// Whether its groups may be lent to a site, as far as it states that.
    pub fn may_lend_to(&self, site: SiteId) -> bool {
        self.lend_to.is_empty() || self.lend_to.contains(&site)
    }

    /// The same as it is altered. Sites are ordered, each once.
    #[must_use]
    pub fn altered(&self, by: &Alteration) -> KeyspaceSpec {
        let mut spec = by.placement.map_or_else(|| self.clone(), |to| self.with_placement(to));
        if let Some(lend_to) = &by.lend_to {
            spec.lend_to.clone_from(lend_to);
            spec.order_lend_to();
        }
        spec.priority = by.priority.unwrap_or(spec.priority);
        spec
    }

    pub(crate) fn order_lend_to(&mut self) {
        self.lend_to.sort_unstable();
        self.lend_to.dedup();
    }

    /// Whether owners count the accesses of its keys.
    pub fn counts_accesses(&self) -> bool {
        self.is_global() && self.placement != Placement::Off
    }

    /// The keyspace that always exists: linearizable in its site, for all other keys.
    pub fn default_keyspace() -> KeyspaceSpec {
        KeyspaceSpec::linearizable_site("default", Bytes::new())
    }

    /// Whether it asks for what is served.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), KeyspaceError> {
        let starts_well = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        let all_well = self
            .name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if !starts_well || !all_well || self.name.len() > limits::KEYSPACE_NAME_BYTES_MAX {
            return Err(KeyspaceError::Name(self.name.clone()));
        }
        if self.prefix.is_empty() || self.prefix.len() > limits::PREFIX_BYTES_MAX {
            return Err(KeyspaceError::Prefix(self.name.clone()));
        }
        if self.cache.is_on() && !self.is_global() {
            return Err(KeyspaceError::CacheScope(self.name.clone()));
        }
        if !self.cache.is_within_limits() {
            return Err(KeyspaceError::CacheLimits(self.name.clone()));
        }
        if self.rmw == Rmw::Local && !self.is_causal() {
            return Err(KeyspaceError::RmwConsistency(self.name.clone()));
        }
        let has_sites = !self.sites.is_empty() || self.miss != Miss::Forward;
        if has_sites && !self.is_causal() {
            return Err(KeyspaceError::SitesConsistency(self.name.clone()));
        }
        if let Miss::Fetch { held_bytes_max } = self.miss {
            let range = limits::CAUSAL_HELD_BYTES_MIN..=limits::CAUSAL_HELD_BYTES_MAX;
            if self.sites.is_empty() {
                return Err(KeyspaceError::FetchSites(self.name.clone()));
            }
            if !range.contains(&held_bytes_max) {
                return Err(KeyspaceError::HeldBytes(self.name.clone()));
            }
        }
        if !(1..=limits::PRIORITY_MAX).contains(&self.priority) {
            return Err(KeyspaceError::Priority(self.name.clone()));
        }
        let has_rules = !self.lend_to.is_empty() || self.priority != limits::PRIORITY_DEFAULT;
        // They stay known while it is not adaptive any more, for when it is again.
        if has_rules && !self.lends() {
            return Err(KeyspaceError::RulesPlacement(self.name.clone()));
        }
        match (self.consistency, self.scope) {
            (Consistency::Linearizable, Scope::Site) | (Consistency::Causal, Scope::Region)
                if self.placement != Placement::Off =>
            {
                Err(KeyspaceError::PlacementScope(self.name.clone()))
            }
            (Consistency::Linearizable, Scope::Site | Scope::Global)
            | (Consistency::Causal, Scope::Region) => Ok(()),
            (consistency, scope) => {
                Err(KeyspaceError::NotServed { name: self.name.clone(), consistency, scope })
            }
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Causal => "causal",
            Consistency::Session => "session",
            Consistency::Eventual => "eventual",
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Site => "site",
            Scope::Global => "global",
            Scope::Region => "region",
            Scope::Tree => "tree",
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Off => "off",
            Placement::Advise => "advise",
            Placement::Adaptive => "adaptive",
        })
    }
}

impl std::str::FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "off" => Placement::Off,
            "advise" => Placement::Advise,
            "adaptive" => Placement::Adaptive,
            _ => return Err(format!("{text:?} is no placement: use off, advise or adaptive")),
        })
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Miss::Forward => "forward",
            Miss::Refuse => "refuse",
            Miss::Fetch { .. } => "fetch",
        })
    }
}

impl std::str::FromStr for Miss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "forward" => Miss::Forward,
            "refuse" => Miss::Refuse,
            "fetch" => Miss::Fetch { held_bytes_max: limits::CAUSAL_HELD_BYTES_DEFAULT },
            _ => return Err(format!("{text:?} is no miss: use forward, refuse or fetch")),
        })
    }
}

impl fmt::Display for Rmw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rmw::Refuse => "refuse",
            Rmw::Local => "local",
        })
    }
}

impl std::str::FromStr for Rmw {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "refuse" => Rmw::Refuse,
            "local" => Rmw::Local,
            _ => return Err(format!("{text:?} is no rmw: use refuse or local")),
        })
    }
}

impl std::str::FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "linearizable" => Consistency::Linearizable,
            "causal" => Consistency::Causal,
            "session" => Consistency::Session,
            "eventual" => Consistency::Eventual,
            _ => {
                return Err(format!(
                    "{text:?} is no consistency: use linearizable, causal, session or eventual"
                ));
            }
        })
    }
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "site" => Scope::Site,
            "global" => Scope::Global,
            "region" => Scope::Region,
            "tree" => Scope::Tree,
            _ => return Err(format!("{text:?} is no scope: use site, global, region or tree")),
        })
    }
}

#[cfg(test)]
mod tests;
