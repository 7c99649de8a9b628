//! Judges look at nothing but histories.
//!
//! A judge that knew what the store was trying to do could excuse it. So what is under
//! `crates/lab/src/verdict` and `crates/lab/src/history` names none of the crates whose work is
//! judged, and of its own crate nothing but these two modules. Their tests may also draw random
//! numbers.
//!
//! This reads names, not types: what a judge is handed by a function in these two modules it can be
//! handed, but there is nothing in them that holds anything else.

use super::tree::Files;

/// The modules of the judges, and what of its own crate they may name.
const JUDGES: [&str; 2] = ["verdict", "history"];

/// What their tests may name besides.
const TESTS_MAY: &str = "random";

/// The crates whose work is judged, and the words they are made of.
const JUDGED: [&str; 4] = ["protocol", "storage", "wire", "model"];

const FOLDER: &str = "crates/lab/src/";

/// Every place where a judge looks elsewhere.
pub(super) fn check(files: &Files) -> Vec<String> {
    let mut wrong = Vec::new();
    for judge in JUDGES {
        let prefix = format!("{FOLDER}{judge}/");
        if !files.keys().any(|path| path.starts_with(&prefix)) {
            wrong.push(format!("there is nothing in {prefix}: this proof proves nothing"));
        }
        for (path, text) in files.iter().filter(|(path, _)| path.starts_with(&prefix)) {
            let whole = is_test(path, files);
            let mut in_test = whole;
            for (number, line) in text.lines().enumerate() {
                in_test |= line.starts_with("#[cfg(test)]") && follows_tests(text, number);
                let depth = depth(path) + usize::from(in_test && !whole);
                for name in elsewhere(code(line), depth, in_test) {
                    wrong.push(format!("{path}:{}: a judge must not look at {name}", number + 1));
                }
            }
        }
    }
    wrong
}

/// A line without its comment. (A `//` in a text cuts too much, but never hides a `use`.)
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Whether the rest of a file from this line on is the module of its tests: the last one in a file.
fn follows_tests(text: &str, number: usize) -> bool {
    text.lines().nth(number + 1).is_some_and(|line| line == "mod tests {")
}

/// Whether a file is a module that its parent has for tests only.
fn is_test(path: &str, files: &Files) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let Some(stem) = name.strip_suffix(".rs") else { return false };
    let parent = files.get(&format!("{folder}/mod.rs")).map_or("", String::as_str);
    parent.contains(&format!("#[cfg(test)]\nmod {stem};"))
}

/// How many `super` it takes to come from a file to the root of its crate.
fn depth(path: &str) -> usize {
    let parts = path.strip_prefix(FOLDER).unwrap_or(path).split('/');
    parts.filter(|part| *part != "mod.rs").count()
}

/// What a line of code names that is not for judges. It stands `depth` modules below the root.
fn elsewhere(code: &str, depth: usize, in_test: bool) -> Vec<String> {
    let paths = code.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
    let may = |name: &str| JUDGES.contains(&name) || (in_test && name == TESTS_MAY);
    let mut named = Vec::new();
    for path in paths.filter(|path| !path.is_empty()) {
        let parts: Vec<&str> = path.split("::").collect();
        let supers = parts.iter().take_while(|part| **part == "super").count();
        let first = parts.iter().find(|part| !part.is_empty()).copied().unwrap_or("");
        match parts.as_slice() {
            // An imported crate: `protocol::…`, `::protocol::…`, `use protocol as p`.
            _ if JUDGED.contains(&first) && (parts.len() > 1 || is_imported(code, first)) => {
                named.push(first.to_owned());
            }
            // A group would hide what it holds from a reader of lines.
            ["crate", ""] => {
                named.push("its whole crate: name each module in a path of its own".into())
            }
            ["crate", name, ..] if !may(name) => named.push(path.to_owned()),
            ["crate"] if code.contains("use crate") => named.push("its whole crate".into()),
            _ if supers > 0 && supers >= depth => {
                named.push(path.to_owned());
            }
            _ => {}
        }
    }
    named
}

/// Whether a crate is taken up as a whole.
fn is_imported(code: &str, name: &str) -> bool {
    let words: Vec<&str> =
        code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).collect();
    words.windows(2).any(|pair| matches!(pair[0], "use" | "crate") && pair[1] == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations in a set of judges that includes this one.
    fn planted(path: &str, text: &str) -> Vec<String> {
        let root = "mod live;\n#[cfg(test)]\nmod made;\n";
        let files = [
            ("crates/lab/src/history/mod.rs", "use serde::Serialize;\n"),
            ("crates/lab/src/verdict/mod.rs", root),
            (path, text),
        ];
        check(&files.map(|(path, text)| (path.to_owned(), text.to_owned())).into())
    }

    const LIVE: &str = "crates/lab/src/verdict/live.rs";

    #[test]
    fn a_judge_may_look_at_histories_and_at_other_judges() {
        let text = "//! Not crate::simulation, not protocol::site.\n\
                    use super::{Options, told};\n\
                    use super::model::Held;\n\
                    use self::model::Part;\n\
                    use crate::history::History;\n\
                    use crate::verdict::shown;\n\
                    fn f(model: u64) { let x = self.model; } // wire::Frame\n";
        assert_eq!(planted(LIVE, text), [""; 0]);
        // In a folder deeper down, what is above is still a judge.
        let deep = "crates/lab/src/verdict/causal/causes.rs";
        assert_eq!(planted(deep, "use super::super::Verdict;\n"), [""; 0]);
        // The rest of the lab is not asked.
        assert_eq!(planted("crates/lab/src/run.rs", "use protocol::site;\n"), [""; 0]);
    }

    #[test]
    fn each_look_elsewhere_is_found_wherever_it_stands() {
        for (line, named) in [
            ("use protocol::site::Site;", "protocol"),
            ("use ::storage::disk;", "storage"),
            ("use wire as w;", "wire"),
            ("extern crate model;", "model"),
            ("fn f(key: &model::Key) {}", "model"),
            ("use crate::simulation::Node;", "crate::simulation::Node"),
            ("    let ran = crate::run::run(world);", "crate::run::run"),
            ("use crate::clients;", "crate::clients"),
            ("use crate::faults::Kind;", "crate::faults::Kind"),
            ("use crate::random::Random;", "crate::random::Random"),
            ("use super::super::simulation;", "super::super::simulation"),
            (
                "use crate::{history, simulation};",
                "its whole crate: name each module in a path of its own",
            ),
            ("use crate as lab;", "its whole crate"),
        ] {
            let text = format!("//! A judge.\n{line}\n");
            let said = format!("{LIVE}:2: a judge must not look at {named}");
            assert_eq!(planted(LIVE, &text), [said], "{line}");
        }
        let mod_rs = planted("crates/lab/src/history/mod.rs", "use super::simulation;\n");
        assert_eq!(mod_rs.len(), 1, "{mod_rs:?}");
    }

    #[test]
    fn tests_may_draw_random_numbers_and_nothing_else() {
        let tests = "fn judge() {}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n    \
                     use super::super::told;\n    use crate::random::Random;\n";
        assert_eq!(planted(LIVE, tests), [""; 0]);
        let made = "crates/lab/src/verdict/made.rs";
        assert_eq!(planted(made, "use crate::random::Random;\n"), [""; 0]);
        assert_eq!(planted(made, "use crate::run::run;\n").len(), 1);
        assert_eq!(planted(LIVE, &format!("{tests}    use protocol::site;\n")).len(), 1);
        // A piece for tests in the middle opens no door for the rest.
        let middle = "#[cfg(test)]\nfn f() {}\nuse crate::random::Random;\n";
        assert_eq!(planted(LIVE, middle).len(), 1);
    }

    #[test]
    fn judges_that_are_not_there_prove_nothing() {
        assert_eq!(check(&Files::new()).len(), 2);
    }
}
