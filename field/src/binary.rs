//! Where the `portolan` program is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program under test: `$PORTOLAN_BIN`, or one built with cargo on first use.
///
/// Cargo tells only a package's own tests where its binary is, so it is asked to build it here;
/// when nothing has changed that takes a moment. The build has the profile of the running test.
///
/// # Panics
/// When it cannot be built: no test of this package can say anything then.
#[must_use]
pub fn portolan() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("PORTOLAN_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    // A test lies in <target>/<profile>/deps.
    let test = std::env::current_exe().expect("a process knows its own program");
    let profile = test.ancestors().nth(2).expect("a test lies two folders below its profile's");
    let target = profile.parent().expect("a profile's folder lies in the target folder");

    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--workspace", "--bin", "portolan", "--target-dir"]);
    cargo.arg(target).current_dir(root());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "`{cargo:?}` failed: see above");
    profile.join("portolan")
}

/// The root of the source tree.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("field/ lies in the root")
}
