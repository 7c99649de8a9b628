//! No function of these crates is too long to be read at once.
//!
//! This relies on the format, which is checked before the rules: the brace that ends a function
//! stands alone, below the first letter of its declaration.

use super::tree::Files;

/// A function longer than this has more than one idea. Counted from its declaration to its last
/// brace.
const LINES_MAX: usize = 100;

const FOLDERS: [&str; 6] = [
    "crates/model/",
    "crates/protocol/",
    "crates/server/",
    "crates/storage/",
    "crates/wire/src/",
    "crates/front/",
];

/// Every function that is too long.
pub(super) fn check(files: &Files) -> Vec<String> {
    let mut wrong = Vec::new();
    for folder in FOLDERS {
        let inside = |path: &str| path.starts_with(folder) && path.ends_with(".rs");
        let mut functions = 0;
        for (path, text) in files.iter().filter(|(path, _)| inside(path)) {
            let lines: Vec<&str> = text.lines().collect();
            for (number, name) in lines.iter().enumerate().filter_map(|(n, l)| Some((n, name(l)?)))
            {
                functions += 1;
                let length = length(&lines[number..]);
                if length > LINES_MAX {
                    let at = number + 1;
                    wrong.push(format!(
                        "{path}:{at} {name} has {length} lines; {LINES_MAX} are the most"
                    ));
                }
            }
        }
        if functions == 0 {
            wrong.push(format!("there is no function in {folder}: this proof proves nothing"));
        }
    }
    wrong
}

/// The name of the function that a line declares.
fn name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let before = before.trim_start();
    let qualifiers = match before.strip_prefix("pub(") {
        Some(restricted) => restricted.split_once(')')?.1,
        None => before.strip_prefix("pub ").unwrap_or(before),
    };
    let is_qualifier = |word: &str| ["const", "async", "unsafe", "extern", "\"C\""].contains(&word);
    let is_declaration = qualifiers.split_whitespace().all(is_qualifier);
    let name = rest.split(['(', '<']).next()?;
    is_declaration.then_some(name)
}

/// The lines of the function that is declared on the first of `lines`.
fn length(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let is_aligned = |line: &str| line.len() - line.trim_start().len() == indent;
    let declared =
        lines.iter().position(|line| is_aligned(line) && line.ends_with(['{', '}', ';']));
    let begun = declared.filter(|at| lines[*at].ends_with('{')).unwrap_or(lines.len());
    let end = lines.iter().skip(begun).position(|line| is_aligned(line) && line.trim() == "}");
    end.map_or(1, |end| begun + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(text: &str) -> Vec<String> {
        let short = |folder: &str| (format!("{folder}b.rs"), "fn short() {}\n".to_owned());
        let mut files: Files = FOLDERS.map(short).into();
        files.insert("crates/protocol/src/a.rs".to_owned(), text.to_owned());
        check(&files)
    }

    fn function(declaration: &str, lines: usize, indent: &str) -> String {
        let body = format!("{indent}    work();\n").repeat(lines - 2);
        format!("{indent}{declaration} {{\n{body}{indent}}}\n")
    }

    #[test]
    fn a_function_of_too_many_lines_is_found() {
        assert_eq!(planted(&function("fn f()", LINES_MAX, "")), [""; 0]);
        for declaration in
            ["fn f()", "pub(crate) async fn f<T>(t: T)", "pub(in crate::x) const fn f()"]
        {
            let text = format!("impl X {{\n{}}}\n", function(declaration, LINES_MAX + 1, "    "));
            let wrong = planted(&text);
            assert_eq!(wrong, ["crates/protocol/src/a.rs:2 f has 101 lines; 100 are the most"]);
        }
        let wrapped = function("fn f(\n    a: u8,\n) -> u8", LINES_MAX - 1, "");
        assert_eq!(planted(&wrapped).len(), 1, "its declaration counts");
    }

    #[test]
    fn functions_without_a_body_of_their_own_are_short() {
        let declared = "    fn a(&self);\n    fn b(\n        &self,\n    ) -> u8;\n    fn c() {}\n";
        let rest = "    // A line.\n".repeat(LINES_MAX);
        assert_eq!(planted(&format!("trait X {{\n{declared}{rest}}}\n")), [""; 0]);
        let nested = format!("fn a() {{\n{}}}\n", function("fn b()", 60, "    ").repeat(2));
        assert_eq!(
            planted(&nested),
            ["crates/protocol/src/a.rs:1 a has 122 lines; 100 are the most"]
        );
    }

    #[test]
    fn a_folder_without_functions_is_wrong() {
        assert_eq!(check(&Files::new()).len(), FOLDERS.len());
    }
}
