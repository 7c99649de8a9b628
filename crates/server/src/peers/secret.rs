//! Secrets between nodes: their text, and the files they are kept in.
//!
//! A file has one secret per line, at most two; empty lines and lines that begin with `#` are
//! ignored. The first is used for proofs, all are accepted, so that secrets can be changed while a
//! site runs: first add the new one before the old one at every node, then keep the new one alone.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use model::limits;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A text that must not be visible: it is never logged or printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// Takes a text.
    pub fn new(text: impl Into<String>) -> Hidden {
        Hidden(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl From<String> for Hidden {
    fn from(text: String) -> Hidden {
        Hidden(text)
    }
}

/// Why a secret, or a file with one, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or written.
    #[error("{setting} {path} cannot be {tried}: {cause}", path = path.display())]
    Io {
        /// The setting that names it.
        setting: &'static str,
        /// What was tried.
        tried: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Users other than its owner can read it.
    #[error(
        "{setting} {path}: others than its owner can read or change it (mode {mode:o}); `chmod 600 \
         {path}` first, and another secret if it may have been read",
        path = path.display()
    )]
    Readable {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The content is not a valid secret.
    #[error("{setting}: {what}; `openssl rand -base64 32` makes a secret")]
    Text {
        /// The setting that names it.
        setting: String,
        /// What is wrong.
        what: String,
    },
}

/// Reads the secrets in a text.
pub(crate) fn parse(setting: &str, text: &str) -> Result<Vec<Hidden>, SecretError> {
    let wrong = |what| Err(SecretError::Text { setting: setting.to_owned(), what });
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let secrets: Vec<_> = lines.flat_map(str::split_whitespace).map(Hidden::new).collect();
    if secrets.is_empty() {
        return wrong("there is no secret in it".to_owned());
    }
    if secrets.len() > limits::PEER_SECRETS_MAX {
        let max = limits::PEER_SECRETS_MAX;
        return wrong(format!("there are {} secrets in it, at most {max} can be", secrets.len()));
    }
    let (min, max) = (limits::PEER_SECRET_BYTES_MIN, limits::PEER_SECRET_BYTES_MAX);
    match secrets.iter().all(|secret| (min..=max).contains(&secret.0.len())) {
        true => Ok(secrets),
        false => wrong(format!("a secret has {min} to {max} characters")),
    }
}

/// Reads a file that only its owner may read.
pub(crate) fn read(setting: &'static str, path: &Path) -> Result<String, SecretError> {
    let io = |cause| SecretError::Io { setting, tried: "read", path: path.to_owned(), cause };
    let file = File::open(path).map_err(io)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.metadata().map_err(io)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Readable { setting, path: path.to_owned(), mode });
        }
    }
    io::read_to_string(file).map_err(io)
}

/// Writes secrets, durably, to a file that only its owner may read.
pub(crate) fn write(path: &Path, secrets: &[Hidden]) -> Result<(), SecretError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = path.with_extension("new");
    let text: String = secrets.iter().map(|secret| format!("{}\n", secret.0)).collect();
    let write = || {
        // A leftover file may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    };
    let io = |cause| SecretError::Io {
        setting: "the data directory",
        tried: "written",
        path: path.to_owned(),
        cause,
    };
    write().map_err(io)
}

/// A new secret, of 32 random bytes.
pub(crate) fn of_random(bytes: [u8; 32]) -> Hidden {
    Hidden(BASE64_STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_seen() {
        let secret = of_random([7; 32]);
        assert_eq!(format!("{secret:?}"), "(hidden)");
        assert!(secret.reveal().len() >= limits::PEER_SECRET_BYTES_MIN);
    }

    #[test]
    fn a_file_has_one_secret_or_two() {
        let (a, b) = ("a".repeat(32), "b".repeat(40));
        let two = format!("# since May\n{a}\n\n  {b}  \n");
        assert_eq!(parse("x", &two).unwrap(), [Hidden::new(&*a), Hidden::new(&*b)]);
        assert_eq!(parse("x", &format!("{a} {b}")).unwrap().len(), 2, "as in the environment");
        for (text, word) in [
            (String::new(), "no secret"),
            ("# nothing".to_owned(), "no secret"),
            ("short".to_owned(), "32 to 1024"),
            (format!("{a}\n{b}\n{a}"), "at most 2"),
        ] {
            let refused = parse("--peer-secret-file", &text).unwrap_err().to_string();
            assert!(refused.starts_with("--peer-secret-file: ") && refused.contains(word));
            assert!(refused.contains("openssl rand"), "{refused}");
        }
    }

    #[test]
    fn what_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peer-secret");
        let secrets = [of_random([1; 32]), of_random([2; 32])];
        write(&path, &secrets).unwrap();
        write(&path, &secrets).unwrap();
        assert_eq!(parse("x", &read("x", &path).unwrap()).unwrap(), secrets);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = read("--peer-secret-file", &path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && refused.contains("640"), "{refused}");
        let absent = read("--peer-secret-file", &folder.path().join("none")).unwrap_err();
        assert!(absent.to_string().contains("none"), "{absent}");
    }
}
