//! Commands, the writes and questions in them, and the requests that bring them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_newtype, code_struct};
use model::{
    Alteration, Body, Bytes, Cache, CausalCommand, ClientId, Command, Condition, Consistency,
    DeploymentCommand, Expiry, ExpiryCondition, GlobalCommand, Guard, JobName, Keyspace,
    KeyspaceId, KeyspaceSpec, Kind, Miss, NodeId, OperatorCommand, Placement, Query,
    ReadConsistency, ReadPoint, Request, RequestId, Revision, Rmw, ScanFilter, Scope, Step, Write,
    limits,
};

code_newtype!(ClientId, KeyspaceId, NodeId, Revision);

code_enum!(Command as "command" {
    1 => Write { keyspace, write, request },
    2 => Transaction { keyspace, guards, steps, request },
    3 => ClearAll,
    4 => CreateKeyspace(spec),
    5 => DropKeyspace { name },
    6 => SetCursor { name, keyspace, position },
    7 => DropCursor { name, keyspace },
    8 => Tick,
} else { Causal(CausalCommand), Deployment(DeploymentCommand), Global(GlobalCommand) });

code_enum!(Write as "write" {
    1 => Put { key, value, condition, expiry, return_old },
    2 => PutMany { pairs, if_all_absent },
    3 => Append { key, suffix },
    4 => Add { key, delta },
    5 => Delete { keys },
    6 => DeleteIf { key, version },
    7 => Take { key },
    8 => SetExpiry { key, expiry, condition },
    9 => HashSet { key, fields },
    10 => HashSetIfAbsent { key, field, value },
    11 => HashDelete { key, fields },
    12 => HashAdd { key, field, delta },
    13 => Clear,
    14 => GetAndExpire { key, expiry },
    64 => ClearAll,
});

code_enum!(Condition as "condition" {
    0 => Always,
    1 => IfAbsent,
    2 => IfPresent,
    3 => IfVersion(version),
});

code_enum!(Expiry as "expiry" {
    0 => Never,
    1 => Keep,
    2 => AfterMs(ms),
    3 => AtMs(ms),
    130 => AtLogMs(ms),
});

code_enum!(ExpiryCondition as "condition of an expiry" {
    0 => Always,
    1 => IfNone,
    2 => IfSome,
    3 => IfLater,
    4 => IfEarlier,
    54 => IfSomeEarlier,
});

code_enum!(Step as "step" {
    1 => Read(query),
    2 => Write(write),
    52 => ReadIn { keyspace, query },
});

code_struct!(ReadPoint { revision, epoch });
code_struct!(RequestId { client, sequence, acknowledged_below });

code_enum!(Query as "query" {
    1 => Get { key },
    2 => GetMany { keys },
    3 => Exists { keys },
    4 => Expiry { key },
    5 => Kind { key },
    6 => Length { key },
    7 => Versions { keys },
    8 => HashGet { key, field },
    9 => HashGetMany { key, fields },
    10 => HashGetAll { key },
    11 => HashExists { key, field },
    12 => HashLen { key },
    13 => Count,
    14 => Scan { from, until, examine_max, filter, with_values },
    64 => Watch { keys },
});

code_struct!(ScanFilter { glob, kind });

code_enum!(Kind as "kind" {
    1 => String,
    2 => Hash,
});

code_struct!(Guard { key, version, absent_since });
code_struct!(Keyspace { id, spec });
code_struct!(Alteration { placement, lend_to, priority });

/// A specification has two forms, so that what was written before there were rules of placement is
/// read, and one without such rules is as it was:
///
/// ```text
/// specification = name ‖ … ‖ was adaptive (0 or 1) ‖ … ‖ miss
///               | name ‖ … ‖ 2 + was adaptive      ‖ … ‖ miss ‖ lend to ‖ priority
/// ```
const WITH_RULES: u8 = 2;

impl Code for KeyspaceSpec {
    fn put(&self, out: &mut Vec<u8>) {
        let has_rules = !self.lend_to.is_empty() || self.priority != limits::PRIORITY_DEFAULT;
        self.name.put(out);
        self.prefix.put(out);
        self.consistency.put(out);
        self.scope.put(out);
        self.placement.put(out);
        out.push(if has_rules { WITH_RULES } else { 0 } + u8::from(self.was_adaptive));
        self.lease_reads.put(out);
        self.cache.put(out);
        self.rmw.put(out);
        self.sites.put(out);
        self.miss.put(out);
        if has_rules {
            self.lend_to.put(out);
            self.priority.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<KeyspaceSpec, EntryError> {
        let (name, prefix) = <(String, Bytes)>::take(from)?;
        let of_site = KeyspaceSpec::linearizable_site(name, prefix);
        let (consistency, scope, placement) =
            (Code::take(from)?, Code::take(from)?, Code::take(from)?);
        let form = from.byte()?;
        if form > WITH_RULES + 1 {
            return Err(from.malformed("form of a specification"));
        }
        let spec = KeyspaceSpec {
            consistency,
            scope,
            placement,
            was_adaptive: form % WITH_RULES == 1,
            lease_reads: Code::take(from)?,
            cache: Code::take(from)?,
            rmw: Code::take(from)?,
            sites: Code::take(from)?,
            miss: Code::take(from)?,
            ..of_site
        };
        Ok(match form >= WITH_RULES {
            true => {
                KeyspaceSpec { lend_to: Code::take(from)?, priority: Code::take(from)?, ..spec }
            }
            false => spec,
        })
    }
}

code_enum!(Cache as "cache" {
    1 => Off,
    2 => Validated { bytes_max },
    3 => Stale { bytes_max, age_ms_max },
});

code_enum!(Rmw as "rule of read-modify-writes" {
    1 => Refuse,
    2 => Local,
});

code_enum!(Miss as "rule of keys that a site does not hold" {
    1 => Forward,
    2 => Refuse,
    3 => Fetch { held_bytes_max },
});

code_enum!(Consistency as "consistency" {
    1 => Linearizable,
    2 => Causal,
    3 => Session,
    4 => Eventual,
});

code_enum!(Scope as "scope" {
    1 => Site,
    2 => Global,
    3 => Region,
    4 => Tree,
});

code_enum!(Placement as "placement" {
    1 => Off,
    2 => Adaptive,
    3 => Advise,
});

impl Code for Request {
    fn put(&self, out: &mut Vec<u8>) {
        // Whether the client wants to be redirected is for the node that it asked. A token travels
        // beside the request: an earlier version would not decode one within.
        let Request { body, deadline_ms, redirect: _, direct: _, client: _, token: _ } = self;
        body.put(out);
        deadline_ms.put(out);
    }

    fn take(from: &mut Input) -> Result<Request, EntryError> {
        let (body, deadline_ms) = <(Body, Option<u64>)>::take(from)?;
        Ok(Request { deadline_ms, ..Request::new(body) })
    }
}

code_enum!(Body as "request" {
    1 => Read { keyspace, query, consistency },
    2 => Write(command),
    5 => TransferLeader { node },
    6 => AtSite { site, command },
    100 => Registry { change, id },
    101 => ShowRegistry,
    102 => RecoverRegistry { without, accept },
    114 => ListLostWrites { at, failover, page },
    230 => ListJobs,
    231 => SwitchJob { job, paused },
    240 => ExplainPlacement { keyspace, key },
    241 => ShowPlacementLedger,
} else { Operator(OperatorCommand) });

/// Its byte is in its row of the table of jobs.
impl Code for JobName {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.code());
    }

    fn take(from: &mut Input) -> Result<JobName, EntryError> {
        JobName::from_code(from.byte()?).ok_or_else(|| from.malformed("job"))
    }
}

code_enum!(ReadConsistency as "consistency of a read" {
    1 => Linearizable,
    2 => Stale,
    10 => Backup,
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::compact::Tagged;

    #[test]
    fn a_byte_is_a_command_of_one_family_only() {
        let mut tags = [Command::TAGS, DeploymentCommand::TAGS, GlobalCommand::TAGS].concat();
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count);
    }
}
