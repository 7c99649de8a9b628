//! Keyspaces of `Cluster` as the model's, and back.

use super::{Invalid, v1};
use model::{Consistency, KeyspaceSpec, Placement, Scope};

impl TryFrom<v1::KeyspaceSpec> for KeyspaceSpec {
    type Error = Invalid;

    /// Whether the promise can be kept is not asked here ([`KeyspaceSpec::check`]).
    fn try_from(asked: v1::KeyspaceSpec) -> Result<KeyspaceSpec, Invalid> {
        Ok(KeyspaceSpec {
            name: asked.name,
            prefix: asked.prefix,
            consistency: word("consistency", &asked.consistency, Consistency::Linearizable)?,
            scope: word("scope", &asked.scope, Scope::Site)?,
            placement: Placement::Hash,
            lease_reads: asked.lease_reads,
        })
    }
}

/// A keyspace that exists.
pub fn keyspace(keyspace: &model::Keyspace) -> v1::Keyspace {
    let spec = &keyspace.spec;
    v1::Keyspace {
        id: keyspace.id.0,
        spec: Some(v1::KeyspaceSpec {
            name: spec.name.clone(),
            prefix: spec.prefix.clone(),
            consistency: spec.consistency.to_string(),
            scope: spec.scope.to_string(),
            lease_reads: spec.lease_reads,
        }),
    }
}

/// The value of a word, or the default where there is none.
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
        let wrong = v1::KeyspaceSpec { scope: "galaxy".into(), ..asked };
        let refused = KeyspaceSpec::try_from(wrong).unwrap_err().to_string();
        assert!(refused.starts_with("scope: ") && refused.contains("use site"), "{refused}");
    }
}
