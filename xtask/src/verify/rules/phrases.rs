//! Every phrase that a failure carries can be sent.
//!
//! Failures name their causes by phrases, of which the wire format has a list (`wire::entry`). One
//! that is missing there would arrive at another node without its cause, and one that nothing uses
//! would stay for ever.

use std::collections::BTreeSet;

use super::tree::Files;

const LIST: &str = "crates/wire/src/entry/phrases.rs";
/// Whose failures are sent.
const FOLDERS: [&str; 3] = ["crates/model/src/", "crates/protocol/src/", "crates/server/src/"];
/// What stands before a phrase.
const BEFORE: [&str; 7] = [
    "NotGlobal(",
    "NotCausal(",
    "NotReady(",
    "NotServing(",
    "Overloaded { what:",
    "TooMany { what:",
    "Failure::Unknown { why:",
];
/// A phrase that has a name first, and how a failure takes it by that.
const NAMED: [(&str, &[&str]); 2] = [
    ("let why = ", &["Unknown { why }", "NotServing(why)"]),
    (
        "let what = ",
        &[
            "NotCausal(what)",
            "NotGlobal(what)",
            "NotReady(what)",
            "Overloaded { what }",
            "{ what, max",
        ],
    ),
];
/// A name is used so soon.
const NAMED_CHARACTERS_MAX: usize = 600;
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Phrases that are not in the list, those that nothing uses, and a list that is not sorted.
pub(super) fn check(files: &Files) -> Vec<String> {
    let listed: Vec<&str> =
        files.get(LIST).map_or("", String::as_str).lines().filter_map(entry).collect();
    let mut wrong = Vec::new();
    if listed.is_empty() {
        wrong.push(format!("there is no phrase in {LIST}: this proof proves nothing"));
    }
    if !listed.is_sorted() {
        wrong.push(format!("{LIST} is not sorted, and is searched as if it were"));
    }
    let known: BTreeSet<&str> = listed.iter().copied().collect();
    let mut used = BTreeSet::new();
    let is_source = |path: &str| FOLDERS.iter().any(|folder| path.starts_with(folder));
    let sources = files.iter().filter(|(path, _)| is_source(path) && !path.contains("/tests"));
    for (path, text) in sources {
        let text = text.split_once(TESTS).map_or(text.as_str(), |(before, _)| before);
        // A long one stands on a line of its own.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = NAMED.iter().flat_map(|(name, uses)| named(&text, name, uses));
        for phrase in BEFORE.iter().flat_map(|before| phrases(&text, before)).chain(named) {
            if !known.contains(phrase) {
                wrong.push(format!("{path}: {LIST} lacks {phrase:?}"));
            }
        }
        used.extend(known.iter().copied().filter(|phrase| text.contains(&format!("\"{phrase}\""))));
    }
    let unused = known.difference(&used).map(|phrase| format!("{LIST}: nothing uses {phrase:?}"));
    wrong.extend(unused);
    wrong
}

/// The phrase of a line of the list.
fn entry(line: &str) -> Option<&str> {
    line.strip_prefix("    \"")?.strip_suffix("\",")
}

/// The literals that stand behind `before`.
fn phrases<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let behind = text.split(before).skip(1);
    let literal = |rest: &'a str| rest.trim_start().strip_prefix('"')?.split('"').next();
    behind.filter_map(literal).collect()
}

/// The literals that get a name, of which a failure is made soon.
fn named<'a>(text: &'a str, name: &str, uses: &[&str]) -> Vec<&'a str> {
    let behind = text.split(name).skip(1);
    let literal = |rest: &'a str| {
        let soon: String = rest.chars().take(NAMED_CHARACTERS_MAX).collect();
        let is_used = uses.iter().any(|named| soon.contains(named));
        rest.strip_prefix('"')?.split('"').next().filter(|_| is_used)
    };
    behind.filter_map(literal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[&str], source: &str) -> Files {
        let list: String = list.iter().map(|phrase| format!("    \"{phrase}\",\n")).collect();
        let source = ("crates/protocol/src/site/requests.rs".to_owned(), source.to_owned());
        Files::from([(LIST.to_owned(), list), source])
    }

    #[test]
    fn a_phrase_that_is_listed_and_used_is_right() {
        let source = "Failure::NotServing(\n        \"it is new\")";
        assert_eq!(check(&files(&["it is new"], source)), [""; 0]);
        let broken = "Failure::Unknown {\n    why: \"it is old\",\n}";
        let missing = format!("crates/protocol/src/site/requests.rs: {LIST} lacks \"it is old\"");
        assert_eq!(check(&files(&["it is new"], &format!("{source} {broken}"))), [missing]);
    }

    #[test]
    fn a_phrase_that_has_a_name_first_is_found() {
        let named =
            "let why =\n    \"it is gone\";\nself.settle(id, Err(Failure::Unknown { why }))";
        let missing = format!("crates/protocol/src/site/requests.rs: {LIST} lacks \"it is gone\"");
        let source = format!("Failure::NotServing(\"it is new\")\n{named}");
        assert_eq!(check(&files(&["it is new"], &source)), [missing]);
        let shown = "let why = \"it is shown\"; println!(\"{why}\")";
        let source = format!("Failure::NotServing(\"it is new\")\n{shown}");
        assert_eq!(check(&files(&["it is new"], &source)), [""; 0]);
    }

    #[test]
    fn phrases_that_are_missing_or_left_over_are_found() {
        let source = "Failure::Overloaded { what: \"reads\" }";
        let wrong = check(&files(&["writes"], source));
        assert_eq!(
            wrong,
            [
                format!("crates/protocol/src/site/requests.rs: {LIST} lacks \"reads\""),
                format!("{LIST}: nothing uses \"writes\""),
            ]
        );
        let disordered = check(&files(&["b", "a"], "NotCausal(\"a\") NotGlobal(\"b\")"));
        assert_eq!(disordered, [format!("{LIST} is not sorted, and is searched as if it were")]);
        assert!(!check(&Files::new()).is_empty());
    }

    #[test]
    fn those_of_tests_are_never_sent() {
        let source = format!("NotCausal(\"a\")\n{TESTS} {{ NotCausal(\"b\") }}");
        assert_eq!(check(&files(&["a"], &source)), [""; 0]);
    }
}
