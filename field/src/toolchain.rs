//! Other languages' clients, installed into the target folder and never into the source tree.
//!
//! Each is pinned by the file its own installer reads (`requirements.txt`, `package-lock.json`,
//! `go.sum`, `pom.xml`), and is installed again only when that file has changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::binary;

/// How often a registry is tried.
const FETCHES: usize = 3;
const FETCH_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Whether `program --version` (or `version`) can be run; otherwise prints a line on standard
/// error.
///
/// A missing program only skips a test, with a message; where [`required`] is true it fails the
/// test.
///
/// # Panics
/// When the program is missing and required.
#[must_use]
pub fn present(program: &str, version: &str) -> bool {
    let found = Command::new(program)
        .arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        assert!(!required(), "{program} is needed and not there");
        eprintln!("SKIPPED: {program} is not installed, so its client is not tested");
    }
    found
}

/// Whether a test that lacks a program fails (`PORTOLAN_FIELD=require` in the environment, as
/// `.ci/run` sets it) instead of being skipped.
#[must_use]
pub fn required() -> bool {
    std::env::var("PORTOLAN_FIELD").is_ok_and(|word| word == "require")
}

/// A command that runs the Python program `name` of `field/clients/python` with its packages.
///
/// # Panics
/// When they cannot be installed.
#[must_use]
pub fn python(name: &str) -> Command {
    let source = clients().join("python");
    let home = installed("python", &source.join("requirements.txt"), |home, pinned| {
        run(Command::new("python3").args(["-m", "venv"]).arg(home));
        fetch(
            Command::new(home.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
                .arg(pinned),
        );
    });
    let mut command = Command::new(home.join("bin/python"));
    command.arg(source.join(name));
    command
}

/// A command that runs the Node program `name` of `field/clients/node` with its packages.
///
/// # Panics
/// When they cannot be installed.
#[must_use]
pub fn node(name: &str) -> Command {
    let source = clients().join("node");
    let home = installed("node", &source.join("package-lock.json"), |home, pinned| {
        for file in [pinned, &source.join("package.json")] {
            copy(file, home);
        }
        fetch(
            Command::new("npm")
                .args(["ci", "--silent", "--no-audit", "--no-fund"])
                .current_dir(home),
        );
    });
    // A program finds its packages in its own folder.
    copy(&source.join(name), &home);
    let mut command = Command::new("node");
    command.arg(home.join(name));
    command
}

/// A folder of `clients` as the project has it.
#[must_use]
pub fn wrapper(name: &str) -> PathBuf {
    binary::root().join("clients").join(name)
}

/// Builds `clients/ioredis` in the target folder; the folder with its `package.json`.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn ioredis_wrapper() -> PathBuf {
    let source = wrapper("ioredis");
    let home = installed("ioredis", &source.join("package-lock.json"), |home, pinned| {
        for file in [pinned, &source.join("package.json")] {
            copy(file, home);
        }
        let ci = ["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
        fetch(Command::new("npm").args(ci).current_dir(home));
    });
    // Another test may run what was built: it is built anew only from other sources.
    let (_, _lock) = locked("ioredis");
    let built = home.join("built");
    let mut is_new = !built.exists();
    let mut copied = |file: &Path, folder: &Path| {
        if copy(file, folder) && !is_new {
            fs::remove_file(&built).expect("the target folder can be written");
            is_new = true;
        }
    };
    copied(&source.join("package.json"), &home);
    copied(&source.join("tsconfig.json"), &home);
    for part in ["src", "test"] {
        let folder = home.join(part);
        fs::create_dir_all(&folder).expect("the target folder can be written");
        for file in fs::read_dir(source.join(part)).expect("the source tree can be read") {
            copied(&file.expect("the source tree can be read").path(), &folder);
        }
    }
    if is_new {
        run(Command::new("node").arg("node_modules/typescript/bin/tsc").current_dir(&home));
        fs::write(built, "").expect("the target folder can be written");
    }
    home
}

/// The program of each client library that can be run here, one after the other.
pub fn for_each_client(run: impl Fn(Command)) {
    if present("python3", "--version") {
        run(python("all_commands.py"));
    }
    if present("node", "--version") {
        run(node("all_commands.mjs"));
    }
    if present("go", "version") {
        run(go("clients/go"));
    }
}

/// A command that runs the Go program in this folder of `field`.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn go(folder: &str) -> Command {
    let source = binary::root().join("field").join(folder);
    let (home, _lock) = locked(folder);
    let (program, new) = (home.join("program"), home.join("program.new"));
    fetch(Command::new("go").args(["build", "-o"]).arg(&new).arg(".").current_dir(source));
    // Another test may run the program now.
    fs::rename(new, &program).expect("the target folder can be written");
    Command::new(program)
}

/// A command that runs the Java program `name` of `field/clients/java` (a class in a file of that
/// name) with its packages from Maven Central.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn java(name: &str) -> Command {
    let source = clients().join("java");
    let home = installed("java", &source.join("pom.xml"), |home, pinned| {
        fetch(
            Command::new("mvn")
                .args(["--quiet", "--batch-mode", "--file"])
                .arg(pinned)
                .arg("dependency:copy-dependencies")
                .arg(format!("-DoutputDirectory={}", home.join("packages").display())),
        );
    });
    let packages = format!("{}/*", home.join("packages").display());
    let program = source.join(name).with_extension("java");
    let classes = installed(&format!("java-{name}"), &program, |classes, program| {
        run(Command::new("javac").args(["-cp", &packages, "-d"]).arg(classes).arg(program));
    });
    let mut command = Command::new("java");
    command.args(["-cp", &format!("{packages}:{}", classes.display()), name]);
    command
}

fn clients() -> PathBuf {
    binary::root().join("field/clients")
}

/// A folder of the target folder, and the lock of it: other tests, also of other processes, wait.
fn locked(name: &str) -> (PathBuf, File) {
    let home = binary::target().join("field").join(name);
    fs::create_dir_all(&home).expect("the target folder can be written");
    let lock = File::create(home.with_extension("lock")).expect("the target folder can be written");
    lock.lock().expect("the target folder's files can be locked");
    (home, lock)
}

/// The folder with what `install` makes of the file `pins`, unless it was made from the same file.
fn installed(name: &str, pins: &Path, install: impl FnOnce(&Path, &Path)) -> PathBuf {
    let (home, _lock) = locked(name);
    let stamp = home.join("installed-from");
    let wanted = fs::read(pins).expect("the pins are in the source tree");
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        install(&home, pins);
        fs::write(stamp, wanted).expect("the target folder can be written");
    }
    home
}

/// Whether it was another one before.
fn copy(file: &Path, folder: &Path) -> bool {
    let to = folder.join(file.file_name().expect("a file has a name"));
    let wanted = fs::read(file).expect("the file is in the source tree");
    let is_other = fs::read(&to).ok().as_ref() != Some(&wanted);
    if is_other {
        // Another test may read it, or copy it, now: none finds a part.
        let new =
            tempfile::NamedTempFile::new_in(folder).expect("the target folder can be written");
        fs::write(&new, wanted).expect("the target folder can be written");
        new.persist(to).expect("the target folder can be written");
    }
    is_other
}

/// Runs a command that reaches a registry: one that fails may succeed a little later.
fn fetch(command: &mut Command) {
    for _ in 1..FETCHES {
        if command.status().is_ok_and(|status| status.success()) {
            return;
        }
        eprintln!("{command:?} failed; it is run once more in {FETCH_AGAIN_AFTER:?}");
        std::thread::sleep(FETCH_AGAIN_AFTER);
    }
    run(command);
}

/// Runs a command to its end and shows its output.
///
/// # Panics
/// When it fails.
pub fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(status.success(), "{command:?} ended with {status}");
}
