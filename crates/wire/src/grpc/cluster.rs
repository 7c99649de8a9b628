//! Keyspaces of `Cluster` as the model's, and back.

use super::{Invalid, v1};
use model::{
    Alteration, Cache, Consistency, KeyspaceSpec, Miss, Placement, Rmw, Scope, SiteId, limits,
};

impl TryFrom<v1::KeyspaceSpec> for KeyspaceSpec {
    type Error = Invalid;

    /// Whether the promise can be kept is not asked here ([`KeyspaceSpec::check`]).
    fn try_from(asked: v1::KeyspaceSpec) -> Result<KeyspaceSpec, Invalid> {
        Ok(KeyspaceSpec {
            name: asked.name,
            prefix: asked.prefix,
            consistency: word("consistency", &asked.consistency, Consistency::Linearizable)?,
            scope: word("scope", &asked.scope, Scope::Site)?,
            placement: word("placement", &asked.placement, Placement::Off)?,
            was_adaptive: asked.was_adaptive,
            lease_reads: asked.lease_reads,
            cache: cache(&asked.cache, asked.cache_bytes_max, asked.cache_age_ms_max)?,
            rmw: word("rmw", &asked.rmw, Rmw::Refuse)?,
            sites: asked.sites.into_iter().map(SiteId).collect(),
            miss: match word("miss", &asked.miss, Miss::Forward)? {
                Miss::Fetch { .. } if asked.held_bytes_max != 0 => {
                    Miss::Fetch { held_bytes_max: asked.held_bytes_max }
                }
                miss => miss,
            },
            lend_to: asked.lend_to.into_iter().map(SiteId).collect(),
            priority: priority(asked.priority)?.unwrap_or(limits::PRIORITY_DEFAULT),
        })
    }
}

/// What a keyspace asks to be altered.
pub fn alteration(asked: &v1::AlterKeyspaceRequest) -> Result<Alteration, Invalid> {
    let lend_to = asked.lend_to.as_ref();
    Ok(Alteration {
        placement: match asked.placement.as_str() {
            "" => None,
            word => Some(placement(word)?),
        },
        lend_to: lend_to.map(|list| list.sites.iter().map(|site| SiteId(*site)).collect()),
        priority: priority(asked.priority)?,
    })
}

/// A priority; `None`: none is stated.
fn priority(number: u32) -> Result<Option<u16>, Invalid> {
    let what = |_| Invalid::Value {
        field: "priority",
        what: format!("{number} is too high: use 1 to {}", limits::PRIORITY_MAX),
    };
    let number = u16::try_from(number).map_err(what)?;
    Ok(Some(number).filter(|number| *number != 0))
}

/// A placement by its keyword.
fn placement(word: &str) -> Result<Placement, Invalid> {
    let what = |what| Invalid::Value { field: "placement", what };
    word.parse().map_err(what)
}

/// A keyspace that exists.
pub fn keyspace(keyspace: &model::Keyspace) -> v1::Keyspace {
    v1::Keyspace { id: keyspace.id.0, spec: Some(keyspace_spec(&keyspace.spec)) }
}

/// What is stated of a keyspace.
pub fn keyspace_spec(spec: &KeyspaceSpec) -> v1::KeyspaceSpec {
    v1::KeyspaceSpec {
        name: spec.name.clone(),
        prefix: spec.prefix.clone(),
        consistency: spec.consistency.to_string(),
        scope: spec.scope.to_string(),
        lease_reads: spec.lease_reads,
        cache: if spec.cache.is_on() { spec.cache.to_string() } else { String::new() },
        cache_bytes_max: spec.cache.bytes_max(),
        cache_age_ms_max: spec.cache.age_ms_max().unwrap_or_default(),
        placement: match spec.placement {
            Placement::Off => String::new(),
            placement => placement.to_string(),
        },
        was_adaptive: spec.was_adaptive,
        rmw: match spec.rmw {
            Rmw::Refuse => String::new(),
            rmw => rmw.to_string(),
        },
        sites: spec.sites.iter().map(|site| site.0).collect(),
        miss: match spec.miss {
            Miss::Forward => String::new(),
            miss => miss.to_string(),
        },
        held_bytes_max: match spec.miss {
            Miss::Fetch { held_bytes_max } => held_bytes_max,
            Miss::Forward | Miss::Refuse => 0,
        },
        lend_to: spec.lend_to.iter().map(|site| site.0).collect(),
        priority: match spec.priority {
            limits::PRIORITY_DEFAULT => 0,
            priority => priority.into(),
        },
    }
}

/// A cache by its keyword and its numbers, of which 0 means the default.
fn cache(word: &str, bytes_max: u64, age_ms_max: u64) -> Result<Cache, Invalid> {
    let stated = |number: u64| (number != 0).then_some(number);
    let word = if word.is_empty() { "off" } else { word };
    let cache = Cache::of(word, stated(bytes_max), stated(age_ms_max));
    cache.map_err(|what| Invalid::Value { field: "cache", what })
}

/// The value of a keyword, or the default where there is none.
fn word<T>(field: &'static str, text: &str, default: T) -> Result<T, Invalid>
where
    T: std::str::FromStr<Err = String>,
{
    if text.is_empty() {
        return Ok(default);
    }
    text.parse().map_err(|what| Invalid::Value { field, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Keyspace, KeyspaceId};

    #[test]
    fn a_keyspace_survives_the_way_over_the_wire() {
        let spec = KeyspaceSpec {
            lease_reads: true,
            consistency: Consistency::Causal,
            scope: Scope::Region,
            cache: Cache::Stale { bytes_max: 5_000, age_ms_max: 70 },
            placement: Placement::Advise,
            was_adaptive: true,
            rmw: Rmw::Local,
            sites: vec![SiteId(2), SiteId(5)],
            miss: Miss::Fetch { held_bytes_max: 70_000 },
            lend_to: vec![SiteId(3)],
            priority: 250,
            ..KeyspaceSpec::linearizable_site("cars", "car:")
        };
        let sent = keyspace(&Keyspace { id: KeyspaceId(3), spec: spec.clone() });
        assert_eq!(sent.id, 3);
        assert_eq!(KeyspaceSpec::try_from(sent.spec.unwrap()), Ok(spec));
    }

    #[test]
    fn silence_means_what_every_site_serves() {
        let asked =
            v1::KeyspaceSpec { name: "cars".into(), prefix: "car:".into(), ..Default::default() };
        let spec = KeyspaceSpec::try_from(asked.clone()).unwrap();
        assert_eq!(spec, KeyspaceSpec::linearizable_site("cars", "car:"));
        let wrong = v1::KeyspaceSpec { cache: "always".into(), ..asked.clone() };
        let refused = KeyspaceSpec::try_from(wrong).unwrap_err().to_string();
        assert!(refused.starts_with("cache: ") && refused.contains("use off"), "{refused}");
        let wrong = v1::KeyspaceSpec { scope: "galaxy".into(), ..asked };
        let refused = KeyspaceSpec::try_from(wrong).unwrap_err().to_string();
        assert!(refused.starts_with("scope: ") && refused.contains("use site"), "{refused}");
    }
}
