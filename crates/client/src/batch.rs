//! Several steps applied atomically.

use crate::keyspace::{PutOutcome, Watched, expiry, put_outcome, versioned};
use crate::v1;
use model::{Bytes, Expiry, Revision, Versioned};

/// Steps that are applied together if all guards hold. At most
/// [`model::limits::TRANSACTION_STEPS_MAX`] of each.
///
/// ```
/// # use client::Batch;
/// # use model::Revision;
/// let batch = Batch::new()
///     .only_if("from", Revision(41))
///     .put("from", "60")
///     .put("to", "140")
///     .get("to");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    guards: Vec<v1::Guard>,
    steps: Vec<v1::Step>,
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// A guard did not hold; nothing was changed.
    NotApplied,
    /// All steps were applied atomically; one outcome per step.
    Applied(Vec<StepOutcome>),
}

/// The outcome of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The value that a get read, after the steps before it.
    Got(Option<Versioned>),
    /// The outcome of a put.
    Put(PutOutcome),
    /// Whether the key existed.
    Deleted(bool),
    /// The step was refused and changed nothing; the others were applied.
    Refused(String),
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Applies nothing unless the key has this version; 0: is absent.
    pub fn only_if(mut self, key: impl Into<Bytes>, version: Revision) -> Batch {
        self.guards.push(v1::Guard { key: key.into(), version: version.0, absent_since: None });
        self
    }

    /// Applies nothing unless the key is unchanged since [`crate::Keyspace::watch_key`]: not
    /// written and, if it was absent, not created and removed either. In doubt the guard does not
    /// hold; read again then.
    pub fn only_if_unchanged(mut self, key: impl Into<Bytes>, watched: &Watched) -> Batch {
        let (version, absent_since) = match &watched.found {
            Some(found) => (found.version.0, None),
            None => (0, watched.point.clone()),
        };
        self.guards.push(v1::Guard { key: key.into(), version, absent_since });
        self
    }

    /// Reads a key.
    pub fn get(self, key: impl Into<Bytes>) -> Batch {
        self.step(v1::step::Step::Get(key.into()))
    }

    /// Puts a string.
    pub fn put(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Batch {
        self.put_expiring(key, value, Expiry::Never)
    }

    /// Puts a string that expires.
    pub fn put_expiring(
        self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        expires: Expiry,
    ) -> Batch {
        self.step(v1::step::Step::Put(v1::PutStep {
            key: key.into(),
            value: value.into(),
            condition: v1::PutCondition::Always.into(),
            expiry: expiry(expires),
            return_old: false,
        }))
    }

    /// Removes a key.
    pub fn delete(self, key: impl Into<Bytes>) -> Batch {
        self.step(v1::step::Step::Delete(v1::DeleteStep { key: key.into() }))
    }

    fn step(mut self, step: v1::step::Step) -> Batch {
        self.steps.push(v1::Step { step: Some(step) });
        self
    }

    /// Of a batch that overwrites all of its keys, without guards, conditions and expiries: how many
    /// bytes these have.
    pub(crate) fn put_keys_bytes(&self) -> Option<usize> {
        let always = i32::from(v1::PutCondition::Always);
        let of_step = |step: &v1::Step| match &step.step {
            Some(v1::step::Step::Put(put))
                if put.condition == always && put.expiry.is_none() && !put.return_old =>
            {
                Some(put.key.len())
            }
            _ => None,
        };
        let sizes = self.steps.iter().map(of_step);
        if self.guards.is_empty() { sizes.sum() } else { None }
    }

    pub(crate) fn into_request(self, keyspace: String, id: v1::RequestId) -> v1::BatchRequest {
        v1::BatchRequest { keyspace, guards: self.guards, steps: self.steps, request: Some(id) }
    }
}

impl From<v1::BatchResponse> for BatchOutcome {
    fn from(response: v1::BatchResponse) -> BatchOutcome {
        use v1::step_result::Result as Did;
        if !response.applied {
            return BatchOutcome::NotApplied;
        }
        let outcome = |step: v1::StepResult| match step.result {
            Some(Did::Get(got)) => StepOutcome::Got(got.found.map(versioned)),
            Some(Did::Put(put)) => StepOutcome::Put(put_outcome(put)),
            Some(Did::Delete(delete)) => StepOutcome::Deleted(delete.deleted),
            Some(Did::Refused(why)) => StepOutcome::Refused(why),
            None => StepOutcome::Refused("the answer is of a newer version".to_owned()),
        };
        BatchOutcome::Applied(response.results.into_iter().map(outcome).collect())
    }
}
