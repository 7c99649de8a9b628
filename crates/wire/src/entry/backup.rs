//! Backups of sites: mirrors and failovers; and the registry, which contains them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_struct};
use model::{
    BackupChoice, BackupError, Backups, CopyRun, DecidedFailover, Failovers, Inventory, Loss,
    MirrorStep, OpenFailover, Reached, Registry, SlotCopy, Tag, Taken,
};

code_enum!(BackupChoice as "choice of a backup" {
    1 => Next,
    2 => At(site),
    3 => Off,
});

code_struct!(Backups { chosen });

code_enum!(MirrorStep as "step of a mirror" {
    1 => Begin,
    2 => Chunk { sequence, resume, gone, items, reached },
});

code_struct!(Reached { revision, whole, holds });

code_struct!(Tag { epoch, generation });
code_struct!(SlotCopy { tag, origin, position });
code_struct!(OpenFailover { opened, lost, without });
code_struct!(Taken { by, slots, from });
code_struct!(DecidedFailover { decided, opened, lost, without, taken, returned });

code_struct!(Failovers { open, decided, last });
code_struct!(Registry {
    deployment,
    version,
    changes,
    registrars,
    outcomes,
    began,
    sites,
    keyspaces,
    site_next,
    keyspace_next,
    backups,
    failovers,
    handed_in,
    regions,
});
code_struct!(CopyRun { copy, slots, keys });
code_struct!(Inventory { owners, copies, frozen });
code_struct!(Loss {
    lost,
    by,
    done,
    holds,
    mirrored,
    keys,
    revision,
    in_step_ms,
    answers,
    silent,
    empty,
});

code_enum!(BackupError as "backup error" {
    1 => NotTheBackup,
    2 => Outdated,
    3 => Fenced(by),
    4 => Promoted(by),
    5 => Answers(site),
    6 => Silent(sites),
    7 => None,
    190 => Worse,
});

#[cfg(test)]
mod tests;
