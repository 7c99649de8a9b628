//! Nothing above the I/O line reaches a runtime, a socket, a clock or a thread.
//!
//! Three proofs. No crate that brings such things is among the dependencies, however indirect, of
//! the crates above the line. The root's `clippy.toml` disallows the standard library's own; a
//! crate below the line is excused by a `clippy.toml` of its own, and none above has one. And the
//! places above the line that allow themselves an exception are the ones listed here.

use std::collections::BTreeSet;
use std::path::Path;

use super::metadata::{Package, cargo};
use super::tree::Files;

/// The crates above the line, in folders of `crates/`.
const ABOVE: [&str; 4] = ["model", "storage", "protocol", "wire"];

/// What must not be reached from them. `wire` is looked at without its feature `grpc`, whose
/// definitions need tonic; `protocol` depends on it in that form.
const FORBIDDEN: [&str; 12] = [
    "async-std",
    "axum",
    "chrono",
    "hyper",
    "mio",
    "rayon",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "tokio",
    "tonic",
];

/// Sources above the line that touch what clippy.toml disallows, with a reason beside it: the
/// engines that are files, one with a thread, and tables whose hashing must not be foreseen. Tests
/// and examples are not looked at: they may.
const EXCEPTIONS: [&str; 5] = [
    "crates/storage/src/disk/real.rs",
    "crates/storage/src/state/batch.rs",
    "crates/storage/src/state/fjall/mod.rs",
    "crates/storage/src/state/fjall/rows.rs",
    "crates/storage/src/state/fjall/writer.rs",
];

/// Everything that the crates above the line depend on, directly or not.
pub(super) fn reached(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut arguments = vec!["tree", "--locked", "--no-default-features", "--edges=normal"];
    arguments.extend(["--prefix=none", "--format={p}"]);
    arguments.extend(ABOVE.iter().flat_map(|name| ["--package", name]));
    let text = cargo(root, &arguments)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Everything that crosses the line.
pub(super) fn check(
    packages: &[Package],
    files: &Files,
    reached: &BTreeSet<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in ABOVE {
        if !reached.contains(name) {
            wrong.push(format!("cargo tree did not look at {name}: this proof proves nothing"));
        }
    }
    for name in FORBIDDEN.iter().filter(|name| reached.contains(**name)) {
        wrong.push(format!(
            "{name} is reached from above the I/O line: see `cargo tree -i {name} -e normal`"
        ));
    }
    for package in packages {
        let above = ABOVE.contains(&package.name.as_str());
        let config = package.manifest_path.replace("Cargo.toml", "clippy.toml");
        let excused = files.keys().any(|path| path != "clippy.toml" && ends_with(&config, path));
        match (above, excused) {
            (true, true) => {
                wrong.push(format!("{} is above the line: remove {config}", package.name))
            }
            (false, false) => {
                wrong.push(format!("{} is below the line: it needs {config}", package.name));
            }
            _ => {}
        }
    }
    for (path, text) in files {
        let source = ABOVE.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
        let excepted = EXCEPTIONS.contains(&path.as_str()) || path.contains("/tests");
        if source && !excepted && text.contains("clippy::disallowed") {
            wrong.push(format!("{path} allows itself what clippy.toml disallows"));
        }
    }
    wrong
}

/// Whether `path` is the end of `whole`, folder by folder.
fn ends_with(whole: &str, path: &str) -> bool {
    Path::new(whole).ends_with(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(path: &str) -> Package {
        let name = path.rsplit('/').next().expect("a name").to_owned();
        let manifest_path = format!("/tree/{path}/Cargo.toml");
        Package { name, manifest_path, dependencies: Vec::new() }
    }

    fn reached(more: &[&str]) -> BTreeSet<String> {
        ABOVE.iter().chain(more).map(|name| (*name).to_owned()).collect()
    }

    fn files(paths: &[(&str, &str)]) -> Files {
        paths.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_planted_runtime_is_found() {
        assert_eq!(check(&[], &Files::new(), &reached(&["bytes"])), [""; 0]);
        let wrong = check(&[], &Files::new(), &reached(&["bytes", "tokio"]));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with("tokio is reached"), "{wrong:?}");
    }

    #[test]
    fn looking_at_nothing_is_not_a_proof() {
        assert_eq!(check(&[], &Files::new(), &BTreeSet::new()).len(), ABOVE.len());
    }

    #[test]
    fn excuses_are_for_crates_below_the_line() {
        let packages = [package("crates/model"), package("crates/server")];
        let right = files(&[("clippy.toml", ""), ("crates/server/clippy.toml", "")]);
        assert_eq!(check(&packages, &right, &reached(&[])), [""; 0]);
        let planted = files(&[("clippy.toml", ""), ("crates/model/clippy.toml", "")]);
        let wrong = check(&packages, &planted, &reached(&[]));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("model is above the line"), "{wrong:?}");
        assert!(wrong[1].starts_with("server is below the line"), "{wrong:?}");
    }

    #[test]
    fn a_planted_exception_is_found() {
        let text = "#![allow(clippy::disallowed_methods)]";
        let path = "crates/protocol/src/site/mod.rs";
        assert_eq!(
            check(&[], &files(&[(path, text)]), &reached(&[])),
            [format!("{path} allows itself what clippy.toml disallows")]
        );
        let may = ["crates/protocol/tests/site.rs", "crates/model/src/tests.rs", EXCEPTIONS[0]];
        let tests = files(&may.map(|path| (path, text)));
        assert_eq!(check(&[], &tests, &reached(&[])), [""; 0]);
    }
}
