//! Backups of sites: mirrors and failovers; and the registry, which contains them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_struct};
use model::{
    BackupChoice, BackupError, Backups, CopyRun, DecidedFailover, DeploymentId, Failovers,
    Inventory, Loss, MirrorStep, OpenFailover, Reached, Registry, SlotCopy, Tag, Taken,
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

code_struct!(Reached { revision, complete, holds });

code_struct!(Tag { epoch, generation });
code_struct!(SlotCopy { tag, origin, position });
code_struct!(OpenFailover { opened, lost, without });
code_struct!(Taken { by, slots, from });
code_struct!(DecidedFailover { decided, opened, lost, without, taken, returned });

code_struct!(Failovers { open, decided, last });
/// A registry without pins has the form that it had before there were any:
///
/// ```text
/// registry = deployment ‖ … ‖ regions
///          | 0 ‖ 2 ‖ deployment ‖ … ‖ regions ‖ pins
/// ```
const WITH_PINS: (u64, u8) = (0, 2);

impl Code for Registry {
    fn put(&self, out: &mut Vec<u8>) {
        let has_pins = !self.pins.is_empty();
        if has_pins {
            let (no_deployment, form) = WITH_PINS;
            no_deployment.put(out);
            out.push(form);
        }
        self.deployment.put(out);
        self.version.put(out);
        self.changes.put(out);
        self.registrars.put(out);
        self.outcomes.put(out);
        self.began.put(out);
        self.sites.put(out);
        self.keyspaces.put(out);
        self.site_next.put(out);
        self.keyspace_next.put(out);
        self.backups.put(out);
        self.failovers.put(out);
        self.handed_in.put(out);
        self.regions.put(out);
        if has_pins {
            self.pins.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<Registry, EntryError> {
        let (no_deployment, form) = WITH_PINS;
        let mut deployment = DeploymentId::take(from)?;
        let has_pins = deployment.0 == no_deployment;
        if has_pins {
            if from.byte()? != form {
                return Err(from.malformed("form of a registry"));
            }
            deployment = Code::take(from)?;
        }
        let mut registry = Registry {
            version: Code::take(from)?,
            changes: Code::take(from)?,
            registrars: Code::take(from)?,
            outcomes: Code::take(from)?,
            began: Code::take(from)?,
            sites: Code::take(from)?,
            keyspaces: Code::take(from)?,
            site_next: Code::take(from)?,
            keyspace_next: Code::take(from)?,
            backups: Code::take(from)?,
            failovers: Code::take(from)?,
            handed_in: Code::take(from)?,
            regions: Code::take(from)?,
            ..Registry::empty(deployment, 0)
        };
        if has_pins {
            registry.pins = Code::take(from)?;
            if registry.pins.is_empty() {
                return Err(from.malformed("pins of a registry"));
            }
        }
        Ok(registry)
    }
}

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
    caught_up_ms,
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
