//! Cargo's metadata of our crates.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// One of our crates.
#[derive(Debug, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest_path: String,
    pub(super) dependencies: Vec<Dependency>,
}

/// What it depends on.
#[derive(Debug, Deserialize)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(super) kind: Option<String>,
    /// Where it lies, if it is one of ours.
    pub(super) path: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The workspace's crates.
pub(super) fn read(root: &Path) -> Result<Vec<Package>, String> {
    let json = cargo(root, &["metadata", "--locked", "--no-deps", "--format-version=1"])?;
    let metadata: Metadata = serde_json::from_slice(&json)
        .map_err(|e| format!("cargo metadata is not as expected: {e}"))?;
    Ok(metadata.packages)
}

/// What cargo prints when it is called like this.
pub(super) fn cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
