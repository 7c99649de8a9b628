//! The order of causal keys: its commands, and the writes in them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_newtype, code_struct};
use model::{CausalCommand, CausalWrite, Effect, Import, Offer, Position, Region, RegionId};

code_newtype!(Position, RegionId);

code_struct!(Region { id, epoch, root });

// The bytes of all families of commands are of one table, with those of `command`.
code_enum!(CausalCommand as "command of causal keys" {
    140 => Order { epoch, offer },
    141 => Import { from, upto, entries },
    142 => Trim { upto },
});

code_struct!(Offer { site, after, writes });
code_struct!(CausalWrite { revision, seen, keyspace, effects });

code_enum!(Effect as "effect" {
    1 => Put { key, value },
    2 => Delete { key },
    3 => SetFields { key, fields },
    4 => DeleteFields { key, fields },
});

code_enum!(Import as "entry of the order" {
    1 => Own(position),
    2 => Other { position, site, write },
});
