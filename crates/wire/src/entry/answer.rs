//! Answers, and why there is none.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_struct};
use super::phrases::{PHRASES, UNKNOWN_PHRASE};
use model::{
    AdvisedMove, Answer, BorrowedGroup, Expiring, Failure, GroupExplained, Item, JobName,
    JobStatus, KeyspaceError, LentGroup, LoansLedger, MembershipError, PlacementBar,
    PlacementCandidate, PlacementClient, PlacementExplained, PlacementLedger, PlacementReason,
    PlacementWindow, Refusal, SessionError, Versioned,
};

code_enum!(Answer as "answer" {
    1 => Done(revision),
    2 => Value(value),
    3 => Values(values),
    4 => Integer(number),
    5 => Flag(flag),
    6 => Fields(fields),
    7 => Kind(kind),
    8 => Expiry(expiring),
    9 => Versions(versions),
    10 => Put { applied, version, old },
    11 => Page { items, next },
    12 => Steps(outcomes),
    13 => Aborted,
    14 => Keyspace(keyspace),
    15 => Registered { site, registry },
    16 => Staged { chunks, resume },
    17 => Installed,
    20 => FromBackup { outcome, caught_up_ms },
    21 => Mirrored { chunks, resume, complete },
    // 22 was the answer to a fence.
    23 => Loss(loss),
    110 => Inventory(inventory),
    73 => Watched { versions, point },
    100 => Registrar(answer),
    101 => RegistryView(view),
    160 => Ordered(ordered),
    220 => Foretold { loss, taken },
    230 => Jobs(jobs),
    240 => Placement(explained),
    241 => PlacementLedger(ledger),
    242 => GroupPlacement(explained),
    243 => LedgerOfLoans(ledger, loans),
    130 => Borrowed(parts),
    114 => LostWrites(lost),
    132 => InventoryOfLoans(inventory, claims),
    131 => Lent { revision, states, elsewhere },
    140 => Placed(position),
});

/// A job's status behind its name.
fn take_status(name: JobName, from: &mut Input) -> Result<JobStatus, EntryError> {
    Ok(JobStatus {
        name,
        paused: Code::take(from)?,
        left: Code::take(from)?,
        sent_bytes: Code::take(from)?,
        steps: Code::take(from)?,
        steps_per_min: Code::take(from)?,
        errors: Code::take(from)?,
        last_error: Code::take(from)?,
        last_error_ago_ms: Code::take(from)?,
    })
}

impl Code for JobStatus {
    fn put(&self, out: &mut Vec<u8>) {
        let JobStatus { name, paused, left, sent_bytes, steps, steps_per_min, .. } = self;
        name.put(out);
        paused.put(out);
        for count in [left, sent_bytes, steps, steps_per_min, &self.errors] {
            count.put(out);
        }
        self.last_error.put(out);
        self.last_error_ago_ms.put(out);
    }

    fn take(from: &mut Input) -> Result<JobStatus, EntryError> {
        let name = Code::take(from)?;
        take_status(name, from)
    }

    /// A newer version may have jobs that this one does not know.
    fn take_known(from: &mut Input) -> Result<Option<JobStatus>, EntryError> {
        let is_known = JobName::from_code(from.byte()?).is_some();
        if is_known {
            from.step_back();
            return JobStatus::take(from).map(Some);
        }
        take_status(JobName::Handover, from).map(|_| None)
    }
}

code_struct!(PlacementExplained {
    slot,
    owner,
    bytes,
    key_users,
    key_clients,
    slot_users,
    candidates,
    alone_us,
    why,
});
code_struct!(PlacementClient { number, site, per_1000_s });
code_struct!(PlacementCandidate { site, mean_us, bar });
code_enum!(PlacementReason as "reason of a placement" {
    1 => Unused,
    2 => Best,
    3 => UnknownHere,
    4 => NoCandidate,
    5 => WithinMargin { to, gain_us, needed_us },
    6 => WithinNoise { to, gain_us, needed_us },
    7 => Waits { to, gain_us },
    8 => Advised { to, gain_us },
    9 => Moves { to, gain_us },
    10 => TooLarge,
    11 => Pinned { to },
});

/// An earlier version has one reason why a site is excluded, as a truth value.
impl Code for Option<PlacementBar> {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            None => 0,
            Some(PlacementBar::Leaves) => 1,
            Some(PlacementBar::LendTo) => 2,
            Some(PlacementBar::Domain) => 3,
            Some(PlacementBar::Pinned) => 4,
            Some(PlacementBar::NoRoom) => 5,
        });
    }

    fn take(from: &mut Input) -> Result<Option<PlacementBar>, EntryError> {
        Ok(match from.byte()? {
            0 => None,
            1 => Some(PlacementBar::Leaves),
            2 => Some(PlacementBar::LendTo),
            3 => Some(PlacementBar::Domain),
            4 => Some(PlacementBar::Pinned),
            5 => Some(PlacementBar::NoRoom),
            _ => return Err(from.malformed("reason why a site is excluded")),
        })
    }
}

code_struct!(GroupExplained { placed, home });
code_struct!(LoansLedger { lent, lent_count, borrowed, borrowed_count, windows });
code_struct!(LentGroup { keyspace, tag, to });
code_struct!(BorrowedGroup { keyspace, tag, from, saves_us_per_s });
code_struct!(PlacementLedger { advised, windows, groups, dropped });
code_struct!(AdvisedMove { slot, from, to, gain_us_per_s, bytes, for_ms });
code_struct!(PlacementWindow { number, moves, bytes, expected_us_per_s, saved_us, paused_us });

code_struct!(Versioned { value, version });
code_struct!(Item { key, kind, version, value });

code_enum!(Expiring as "expiring" {
    0 => Absent,
    1 => Never,
    2 => AtMs(ms),
    130 => At { wall_ms, left_ms },
});

code_enum!(Refusal as "refusal" {
    1 => WrongType,
    2 => NotAnInteger,
    3 => Overflow,
    4 => KeyTooLong(len),
    5 => ValueTooLong(len),
    6 => NoKeyspace(name),
    7 => Keyspace(error),
    8 => KeyspaceExists { name },
    9 => DefaultKeyspace,
    10 => TooMany { what, max },
    11 => RequestForgotten,
    12 => ChangesTrimmed { oldest },
    13 => AnswerTooLong,
    14 => CrossSlot,
    15 => NotHeld(slot),
    16 => NotGlobal(what),
    17 => Registry(error),
    18 => NoDeployment,
    19 => Move(error),
    30 => Backup(error),
    140 => NotCausal(what),
    141 => Unordered(bytes),
    142 => Leaving,
    150 => Lent { slot, to, loan },
});

code_enum!(KeyspaceError as "keyspace error" {
    1 => Name(name),
    2 => Prefix(name),
    3 => NotServed { name, consistency, scope },
    4 => Placement(name),
    5 => CacheScope(name),
    6 => CacheLimits(name),
    7 => PlacementScope(name),
    8 => RmwConsistency(name),
    9 => SitesConsistency(name),
    10 => FetchSites(name),
    11 => HeldBytes(name),
    12 => RulesPlacement(name),
    13 => Priority(name),
});

code_enum!(Failure as "failure" {
    1 => Refused(refusal),
    2 => NoLeader,
    3 => Overloaded { what },
    4 => DiskFull(cause),
    5 => Unknown { why },
    6 => NotServing(why),
    7 => Membership(error),
    8 => Unreachable { slot },
    9 => Moved { slot, address },
    10 => Ask { slot, address },
    11 => BorrowerUnreachable { slot, borrower },
    140 => Session(error),
});

code_enum!(SessionError as "session error" {
    1 => Behind { have, need },
    2 => Unordered { site },
    3 => Lost { site },
    4 => Foreign,
    5 => Ended { have, need },
});

code_enum!(MembershipError as "membership error" {
    1 => InProgress,
    2 => NotAMember(node),
    3 => AlreadyAMember(node),
    4 => TooManyNodes,
    5 => LastVoter(node),
    6 => CannotLead(node),
    7 => NotHandedOver(node),
    8 => KeptInEtcd,
    135 => IdInUse { node, address },
    136 => FewerReachable { node, voters, reachable },
});

impl Code for &'static str {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_string().put(out);
    }

    fn take(from: &mut Input) -> Result<&'static str, EntryError> {
        let phrase = String::take(from)?;
        let known = PHRASES.binary_search(&phrase.as_str()).map(|at| PHRASES[at]);
        Ok(known.unwrap_or(UNKNOWN_PHRASE))
    }
}

#[cfg(test)]
mod tests {
    use crate::entry::{decode_reply, encode_reply};
    use model::{Answer, JobName, JobStatus};

    #[test]
    fn a_job_that_this_version_does_not_know_is_left_out_of_the_list() {
        let status = |name| JobStatus {
            name,
            paused: true,
            left: 1,
            sent_bytes: 2,
            steps: 3,
            steps_per_min: 4,
            errors: 300,
            last_error: "why".to_owned(),
            last_error_ago_ms: 5,
        };
        let jobs =
            |names: &[JobName]| Ok(Answer::Jobs(names.iter().copied().map(status).collect()));
        let bytes = encode_reply(&jobs(&[JobName::Mirror, JobName::Leave, JobName::Root]));
        let of_leave = [4, 1, 1, 2, 3, 4, 0xac, 2, 3, b'w', b'h', b'y', 5];
        let at = bytes.windows(of_leave.len()).position(|some| some == of_leave).unwrap();
        let mut newer = bytes.to_vec();
        newer[at] = 255;
        assert_eq!(decode_reply(newer.clone().into()), Ok(jobs(&[JobName::Mirror, JobName::Root])));
        newer.truncate(at + 3);
        assert!(decode_reply(newer.into()).is_err(), "it is cut");
    }
}
