//! Where the `portolan` program is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The program under test: `$PORTOLAN_BIN`, or one built with cargo on first use.
///
/// Cargo gives the path of a binary only to the tests of its own package, so cargo is called to
/// build it here; without changes that takes a moment. The build has the profile of the running
/// test.
///
/// # Panics
/// When it cannot be built: no test of this package can run then.
#[must_use]
pub fn portolan() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("PORTOLAN_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    let (target, profile) = (target(), profile());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace", "--bin", "portolan", "--target-dir"]);
    cargo.arg(target).current_dir(root());
    forget_package(&mut cargo);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "`{cargo:?}` failed: see above");
    profile.join("portolan")
}

/// Removes from a cargo command's environment the variables that another cargo set about this
/// package: they would make build scripts run again, and much of the tree would be compiled again.
pub fn forget_package(cargo: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|prefix| starts_with(&name, prefix)) {
            cargo.env_remove(&name);
        }
    }
}

fn starts_with(name: &std::ffi::OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}

/// The output folder of the running program's profile, for example `<target>/debug`.
fn profile() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the running program");
    let folder = own.parent().expect("a program lies in a folder");
    // Tests lie one folder deeper, in `deps`.
    if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder }.to_owned()
}

/// The folder where cargo puts what it builds.
///
/// # Panics
/// When the running program was not put there by cargo.
#[must_use]
pub fn target() -> PathBuf {
    profile().parent().expect("a profile's folder lies in the target folder").to_owned()
}

/// The root of the source tree.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("field/ lies in the root")
}

/// A command of a program that none of this shell's settings of Portolan changes.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| starts_with(name, "PORTOLAN_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a program to its end. Returns its output, or its error output when it fails.
pub fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = command(program)
        .args(arguments)
        .output()
        .map_err(|e| format!("cannot run {}: {e}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
