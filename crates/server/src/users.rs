//! Users and their rights.
//!
//! A password is kept only as an argon2 hash in PHC form. Verifying one is slow on purpose, so a
//! client that reconnects must not pay for it each time: the last verified password of a user is
//! kept as a keyed hash under a key drawn at start (one entry per user, so the memory is bounded by
//! the configuration). [`crate::logins`] decides where and in which order passwords are verified.
//!
//! Without users every client may do everything; the configuration allows that on loopback only,
//! unless the operator overrides it explicitly.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use blake2::Blake2sMac256;
use blake2::digest::Mac;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The keyspace pattern of a grant that means all of them.
pub const EVERY_KEYSPACE: &str = "*";
/// A user's name, in bytes.
pub const USER_NAME_BYTES_MAX: usize = 128;
/// A password, in bytes. Longer ones are refused unread.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// A right in a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read, scan, watch.
    Read,
    /// Write and delete.
    Write,
    /// Make and drop it, clear it; on `*` also members, status and backup of the site.
    Admin,
}

impl Right {
    /// The value in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Admin => "admin",
        }
    }
}

/// One `[[user]]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// The name to log in with. Redis's `AUTH password` logs in as `default`.
    pub name: String,
    /// The argon2 hash of the password in PHC form, as `portolan hash-password` prints it.
    pub password_hash: String,
    /// What the user may do. Nothing without it.
    #[serde(default)]
    pub rights: Vec<Grant>,
}

/// What a user may do in one keyspace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The keyspace's name, or `*`.
    pub keyspace: String,
    /// The rights.
    pub allow: Vec<Right>,
}

impl UserConfig {
    /// Checks the entry; the error is a sentence with the reason.
    pub fn check(&self) -> Result<(), String> {
        let printable = self.name.chars().all(|c| !c.is_control() && c != ':');
        if self.name.is_empty() || self.name.len() > USER_NAME_BYTES_MAX || !printable {
            return Err(format!(
                "a user's name has 1 to {USER_NAME_BYTES_MAX} bytes, without colons and control \
                 characters"
            ));
        }
        let hash = PasswordHash::new(&self.password_hash).map_err(|error| {
            format!("password_hash is no PHC string ({error}); `portolan hash-password` makes one")
        })?;
        let params = Params::try_from(&hash).map_err(|error| format!("password_hash: {error}"))?;
        if Algorithm::try_from(hash.algorithm).is_err() || params.m_cost() > PARAMS_M_COST_KIB_MAX {
            return Err(format!(
                "password_hash must be argon2 with at most {PARAMS_M_COST_KIB_MAX} KiB; \
                 `portolan hash-password` makes one"
            ));
        }
        Ok(())
    }
}

/// A user that has logged in, or the unnamed one of a node without users.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    rights: Vec<Grant>,
}

impl User {
    /// The name it logged in with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has the right in the keyspace of that name.
    pub fn may(&self, keyspace: &str, right: Right) -> bool {
        self.rights.iter().any(|grant| {
            (grant.keyspace == EVERY_KEYSPACE || grant.keyspace == keyspace)
                && grant.allow.contains(&right)
        })
    }

    /// Whether it has the right in every keyspace, now and later. Operations on the whole site
    /// (members, backup) need [`Right::Admin`] in this form.
    pub fn may_everywhere(&self, right: Right) -> bool {
        self.may(EVERY_KEYSPACE, right)
    }
}

/// Why a login failed. It does not reveal whether the name or the password was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user name or the password is wrong")]
pub struct Denied;

/// All users of a node.
pub struct Users {
    users: HashMap<String, Account>,
    /// The user that every client is on a node without users.
    anonymous: Option<Arc<User>>,
    /// The key for hashes of verified passwords; drawn at start.
    secret: [u8; 32],
    /// Verified for unknown names, so that a wrong name takes as long as a wrong password; the same
    /// name always has the same decoy.
    decoy_hashes: Vec<String>,
}

struct Account {
    user: Arc<User>,
    password_hash: String,
    /// The keyed hash of the last verified password.
    verified: Mutex<Option<[u8; 32]>>,
}

/// OWASP's smallest recommended memory for argon2id, with the passes that go with it: edge nodes
/// have little memory.
const PARAMS_M_COST_KIB: u32 = 7 * 1024;
const PARAMS_T_COST: u32 = 5;
/// The most memory that a configured hash may require.
const PARAMS_M_COST_KIB_MAX: u32 = 256 * 1024;

impl Users {
    /// The users of a checked configuration ([`UserConfig::check`]). `secret`: 32 random bytes.
    pub fn new(configured: &[UserConfig], secret: [u8; 32]) -> Users {
        let account = |config: &UserConfig| Account {
            user: Arc::new(User { name: config.name.clone(), rights: config.rights.clone() }),
            password_hash: config.password_hash.clone(),
            verified: Mutex::new(None),
        };
        let everything = Grant {
            keyspace: EVERY_KEYSPACE.to_owned(),
            allow: vec![Right::Read, Right::Write, Right::Admin],
        };
        let anonymous = User { name: "default".to_owned(), rights: vec![everything] };
        Users {
            users: configured.iter().map(|config| (config.name.clone(), account(config))).collect(),
            anonymous: configured.is_empty().then(|| Arc::new(anonymous)),
            secret,
            decoy_hashes: configured.iter().map(|config| config.password_hash.clone()).collect(),
        }
    }

    /// The user of a client that has not logged in: one with all rights when there are no users,
    /// otherwise `None`: the client must log in first.
    pub fn anonymous(&self) -> Option<Arc<User>> {
        self.anonymous.clone()
    }

    /// Whether there are no users: each client has all rights.
    pub fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Logs in with a password that was verified before. Fast. `None`: call [`Users::login`].
    pub fn recall(&self, name: &str, password: &[u8]) -> Option<Arc<User>> {
        let account = self.users.get(name)?;
        let remembered = account.verified.lock().expect("no panic while it is held").to_owned();
        (remembered? == self.keyed_hash(name, password)).then(|| account.user.clone())
    }

    /// Logs in. Slow (tens of milliseconds of one core) unless [`Users::recall`] would succeed:
    /// call it where blocking is allowed.
    pub fn login(&self, name: &str, password: &[u8]) -> Result<Arc<User>, Denied> {
        if let Some(user) = self.recall(name, password) {
            return Ok(user);
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Denied);
        }
        let account = self.users.get(name);
        let hash = account.map_or_else(|| self.decoy(name), |account| &account.password_hash);
        let right = PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        match account {
            Some(account) if right => {
                let keyed = self.keyed_hash(name, password);
                *account.verified.lock().expect("no panic while it is held") = Some(keyed);
                Ok(account.user.clone())
            }
            _ => Err(Denied),
        }
    }

    /// The hash that stands for an unknown user. The costs of configured hashes may differ.
    fn decoy(&self, name: &str) -> &str {
        let number = self.keyed_hash(name, b"")[0];
        let decoys = &self.decoy_hashes;
        decoys.get(usize::from(number) % decoys.len().max(1)).map_or("", String::as_str)
    }

    fn keyed_hash(&self, name: &str, password: &[u8]) -> [u8; 32] {
        <Blake2sMac256 as Mac>::new_from_slice(&self.secret)
            .expect("32 bytes are a key")
            .chain_update((name.len() as u64).to_le_bytes())
            .chain_update(name)
            .chain_update(password)
            .finalize()
            .into_bytes()
            .into()
    }
}

/// The argon2id hash of a password in PHC form, for the configuration. `salt`: 16 random bytes.
pub fn hash_password(password: &[u8], salt: [u8; 16]) -> Result<String, String> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes"));
    }
    let params = Params::new(PARAMS_M_COST_KIB, PARAMS_T_COST, 1, None);
    let params = params.expect("the parameters are within argon2's range");
    let salt = SaltString::encode_b64(&salt).expect("16 bytes are a salt");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password(password, &salt)
        .map(|hash| hash.to_string())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> UserConfig {
        UserConfig {
            name: "fleet".into(),
            password_hash: hash_password(b"secret", [7; 16]).unwrap(),
            rights: vec![
                Grant { keyspace: "cars".into(), allow: vec![Right::Read, Right::Write] },
                Grant { keyspace: "*".into(), allow: vec![Right::Read] },
            ],
        }
    }

    #[test]
    fn the_right_password_comes_in_and_is_remembered() {
        let users = Users::new(&[fleet()], [1; 32]);
        assert_eq!(users.anonymous(), None);
        assert_eq!(users.recall("fleet", b"secret"), None, "not seen yet");
        assert_eq!(users.login("fleet", b"wrong"), Err(Denied));
        assert_eq!(users.recall("fleet", b"wrong"), None, "a wrong one is not remembered");
        assert_eq!(users.login("fleet", b"secret").unwrap().name(), "fleet");
        assert!(users.recall("fleet", b"secret").is_some());
        assert_eq!(users.login("fleet", b"wrong"), Err(Denied), "also after a right one");
        assert_eq!(users.login("stranger", b"secret"), Err(Denied));
        assert_eq!(users.login("fleet", &[b'x'; PASSWORD_BYTES_MAX + 1]), Err(Denied));
    }

    #[test]
    fn rights_are_per_keyspace() {
        let users = Users::new(&[fleet()], [1; 32]);
        let user = users.login("fleet", b"secret").unwrap();
        assert!(user.may("cars", Right::Write) && user.may("other", Right::Read));
        assert!(!user.may("other", Right::Write) && !user.may("cars", Right::Admin));
        assert!(user.may_everywhere(Right::Read) && !user.may_everywhere(Right::Write));
    }

    #[test]
    fn without_users_all_is_allowed() {
        let users = Users::new(&[], [1; 32]);
        let anonymous = users.anonymous().unwrap();
        assert!(anonymous.may("any", Right::Write) && anonymous.may_everywhere(Right::Admin));
        assert_eq!(users.login("fleet", b"secret"), Err(Denied));
    }

    #[test]
    fn a_user_is_checked_before_it_is_used() {
        assert_eq!(fleet().check(), Ok(()));
        let named = |name: &str| UserConfig { name: name.into(), ..fleet() };
        assert!(named("").check().is_err() && named("a:b").check().is_err());
        let hashed = |hash: &str| UserConfig { password_hash: hash.into(), ..fleet() };
        assert!(hashed("secret").check().unwrap_err().contains("portolan hash-password"));
        assert!(hashed("$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q").check().is_err());
    }
}
