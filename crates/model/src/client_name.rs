//! By what a client is known at every site: its user, and the name that it gives itself.

/// Hashes of the name of a client and of the user that it has logged in as, for those that count
/// accesses.
///
/// The same client has the same at all sites. Names are not secret, and where there are no users a
/// client may take any; one of a user is never equal to one of another user (but for one in 2^32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName {
    /// The user; 0: there are no users.
    pub user: u32,
    /// The name; 0: it gave none.
    pub name: u32,
}

impl ClientName {
    /// Neither a user nor a name.
    pub const NONE: ClientName = ClientName { user: 0, name: 0 };
    /// One whose requests may wait: they count nowhere, and draw no key to it. No user and no name
    /// is this one.
    pub const UNCOUNTED: ClientName = ClientName { user: u32::MAX, name: u32::MAX };

    /// Of a user, if there are users, and the name that the client gives itself; empty: none.
    pub fn of(user: Option<&str>, name: &[u8]) -> ClientName {
        let user = user.map_or(0, |user| hash(user.as_bytes()));
        let name = if name.is_empty() { 0 } else { hash(name) };
        ClientName { user, name }
    }

    /// The same client under another name.
    #[must_use]
    pub fn named(self, name: &[u8]) -> ClientName {
        ClientName { name: ClientName::of(None, name).name, ..self }
    }

    /// As it travels; 0: none.
    pub fn number(self) -> u64 {
        u64::from(self.user) << 32 | u64::from(self.name)
    }

    /// From how it travels.
    pub fn of_number(number: u64) -> ClientName {
        ClientName { user: (number >> 32) as u32, name: number as u32 }
    }
}

/// Neither 0 nor the highest. It travels between sites: all versions compute it alike.
fn hash(bytes: &[u8]) -> u32 {
    // FNV-1a, then the finaliser of MurmurHash3, as FNV leaves its upper bits much alike.
    let mut hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    ((hash >> 32) as u32).clamp(1, u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_its_user() {
        let named = |user, name: &str| ClientName::of(user, name.as_bytes());
        assert_eq!(named(None, ""), ClientName::NONE);
        assert_eq!(named(Some("ann"), "car-7"), named(Some("ann"), "").named(b"car-7"));
        assert_ne!(named(Some("ann"), "car-7"), named(Some("bob"), "car-7"));
        assert_ne!(named(Some("ann"), "car-7"), named(None, "car-7"));
        assert_ne!(named(None, "car-7"), named(None, "car-8"));
        assert_eq!(named(Some("ann"), "car-7").named(b""), named(Some("ann"), ""));
        assert_ne!(ClientName::of_number(ClientName::UNCOUNTED.number()), named(None, ""));
        let all = [named(None, ""), named(None, "x"), named(Some("x"), ""), named(Some("x"), "x")];
        assert!(all.iter().all(|one| ClientName::of_number(one.number()) == *one));
    }

    #[test]
    fn all_versions_hash_alike() {
        let numbers = [("", "car-7"), ("ann", ""), ("ann", "car-7")].map(|(user, name)| {
            let user = Some(user).filter(|user| !user.is_empty());
            ClientName::of(user, name.as_bytes()).number()
        });
        let expected = [0x52EA_9972, 0x6EF4_C3AB_0000_0000, 0x6EF4_C3AB_52EA_9972];
        assert_eq!(numbers, expected, "part of the format");
    }
}
