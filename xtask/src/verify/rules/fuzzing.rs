//! Every parser has a fuzz target.
//!
//! The targets are not compiled here: they need a nightly compiler, and nothing else does. What
//! each of them checks is also a property test of its crate, which is run.

use std::collections::BTreeSet;

use super::tree::Files;

/// A target for everything that reads bytes from outside.
const PARSERS: [&str; 13] = [
    "cluster_view",
    "config",
    "entry",
    "history",
    "join_token",
    "log_segment",
    "peer_frame",
    "peer_proof",
    "placement_sketch",
    "resp",
    "ring_row",
    "ring_message",
    "world",
];

const MANIFEST: &str = "fuzz/Cargo.toml";
const FOLDER: &str = "fuzz/fuzz_targets/";

/// Parsers without a target, targets of no parser that is listed, targets without a file, files
/// that no target names.
pub(super) fn check(files: &Files) -> Vec<String> {
    let manifest = files.get(MANIFEST).map_or("", String::as_str);
    let declared: BTreeSet<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""))
        .collect();
    let there: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.strip_prefix(FOLDER)?.strip_suffix(".rs"))
        .filter(|name| !name.contains('/'))
        .collect();
    let mut wrong = Vec::new();
    for parser in PARSERS.iter().filter(|parser| !declared.contains(**parser)) {
        wrong.push(format!("{MANIFEST} has no target {parser}"));
    }
    for name in declared.iter().filter(|name| !PARSERS.contains(name)) {
        wrong.push(format!("{MANIFEST} has a target {name} that is in no list of parsers"));
    }
    for name in declared.difference(&there) {
        wrong.push(format!("{MANIFEST} names {FOLDER}{name}.rs, which is not there"));
    }
    for name in there.difference(&declared) {
        wrong.push(format!("{FOLDER}{name}.rs is no target of {MANIFEST}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(declared: &[&str], there: &[&str]) -> Files {
        let path = |name: &&str| format!("path = \"fuzz_targets/{name}.rs\"\n");
        let manifest: String = declared.iter().map(path).collect();
        let sources = there.iter().map(|name| (format!("{FOLDER}{name}.rs"), String::new()));
        sources.chain([(MANIFEST.to_owned(), manifest)]).collect()
    }

    #[test]
    fn all_there_is_right() {
        assert_eq!(check(&files(&PARSERS, &PARSERS)), [""; 0]);
    }

    #[test]
    fn a_parser_without_a_target_is_found() {
        let wrong = check(&files(&PARSERS[1..], &PARSERS[1..]));
        assert_eq!(wrong, [format!("{MANIFEST} has no target {}", PARSERS[0])]);
    }

    #[test]
    fn a_target_without_a_file_and_a_file_without_a_target_are_found() {
        let wrong = check(&files(&PARSERS, &PARSERS[1..]));
        assert_eq!(
            wrong,
            [format!("{MANIFEST} names {FOLDER}{}.rs, which is not there", PARSERS[0])]
        );
        let more: Vec<&str> = PARSERS.iter().copied().chain(["stray"]).collect();
        let wrong = check(&files(&PARSERS, &more));
        assert_eq!(wrong, [format!("{FOLDER}stray.rs is no target of {MANIFEST}")]);
        let wrong = check(&files(&more, &more));
        assert_eq!(wrong, [format!("{MANIFEST} has a target stray that is in no list of parsers")]);
    }
}
