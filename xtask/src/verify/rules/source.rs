//! No file is too long, none is unfinished, every crate is linted.

use super::tree::Files;

/// A file longer than this has more than one idea.
const LINES_MAX: usize = 900;

/// Marks of unfinished work, in two parts, or this file would break its own rule.
const UNFINISHED: [(&str, &str); 4] =
    [("to", "do!("), ("un", "implemented!("), ("TO", "DO"), ("FIX", "ME")];

/// Every file that breaks one of the rules.
pub(super) fn check(files: &Files) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in files {
        // Code beside definitions is generated from them.
        let written = path.ends_with(".rs") && !path.contains("/proto/");
        if written || path.ends_with(".proto") {
            let lines = text.lines().count();
            if lines > LINES_MAX {
                wrong.push(format!("{path} has {lines} lines; {LINES_MAX} are the most"));
            }
            for (number, line) in text.lines().enumerate() {
                if UNFINISHED.iter().any(|(a, b)| line.contains(&format!("{a}{b}"))) {
                    wrong.push(format!("{path}:{} is unfinished: {}", number + 1, line.trim()));
                }
            }
        }
        let member = path.ends_with("/Cargo.toml") && path != "fuzz/Cargo.toml";
        if member && !text.contains("[lints]\nworkspace = true\n") {
            wrong.push(format!("{path} does not take the workspace's lints"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(path: &str, text: &str) -> Vec<String> {
        check(&Files::from([(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn a_file_of_too_many_lines_is_found() {
        assert_eq!(planted("a.rs", &"\n".repeat(LINES_MAX)), [""; 0]);
        assert_eq!(planted("a/proto/a.rs", &"\n".repeat(LINES_MAX + 1)), [""; 0]);
        assert_eq!(
            planted("a.rs", &"\n".repeat(LINES_MAX + 1)),
            ["a.rs has 901 lines; 900 are the most"]
        );
    }

    #[test]
    fn unfinished_work_is_found() {
        for (a, b) in UNFINISHED {
            let text = format!("fn f() {{\n    {a}{b}\n}}");
            assert_eq!(planted("a.rs", &text), [format!("a.rs:2 is unfinished: {a}{b}")]);
        }
    }

    #[test]
    fn a_crate_without_the_workspaces_lints_is_found() {
        assert_eq!(planted("crates/a/Cargo.toml", "[lints]\nworkspace = true\n"), [""; 0]);
        assert_eq!(
            planted("crates/a/Cargo.toml", "[package]\n"),
            ["crates/a/Cargo.toml does not take the workspace's lints"]
        );
    }
}
