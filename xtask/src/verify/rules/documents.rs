//! Links lead somewhere, and every decision is in the index.

use std::path::{Component, Path, PathBuf};

use super::tree::Files;

const DECISIONS: &str = "docs/adr/";
const INDEX: &str = "docs/adr/README.md";

/// Links in Markdown files to files that are not there, and decisions that the index leaves out.
pub(super) fn check(files: &Files) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for link in links(text) {
            let Some(target) = resolve(path, link) else { continue };
            // Only what the rules read is known here; other files are looked for on the disk.
            let known = files.contains_key(&target)
                || files.keys().any(|file| file.starts_with(&format!("{target}/")))
                || field::binary::root().join(&target).exists();
            if !known {
                wrong.push(format!("{path} links to {link}, which is not there"));
            }
        }
    }
    let index = files.get(INDEX).map_or("", String::as_str);
    for path in files.keys() {
        let decision = path.strip_prefix(DECISIONS).filter(|name| *name != "README.md");
        if let Some(name) = decision.filter(|name| !index.contains(&format!("]({name})"))) {
            wrong.push(format!("{INDEX} does not list {name}"));
        }
    }
    wrong
}

/// What `[…](…)` points at, outside of code blocks.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    let prose = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    });
    prose.flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next())
}

/// The file that a link of `from` means; `None` for a web address or a place in the same file.
fn resolve(from: &str, link: &str) -> Option<String> {
    let file = link.split('#').next().filter(|file| !file.is_empty() && !file.contains(':'))?;
    let mut whole = PathBuf::from(from).parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::Normal(name) => whole.push(name),
            _ => {}
        }
    }
    Some(whole.to_string_lossy().replace('\\', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(files: &[(&str, &str)]) -> Vec<String> {
        check(&files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect())
    }

    #[test]
    fn links_that_lead_somewhere_are_right() {
        let guide = "[a](../a.md#part) [here](#there) [web](https://example.org/x.md) [docs](adr)";
        let index = "[one](0001-one.md)";
        let files =
            [("a.md", ""), ("docs/g.md", guide), ("docs/adr/0001-one.md", ""), (INDEX, index)];
        assert_eq!(planted(&files), [""; 0]);
    }

    #[test]
    fn a_dead_link_is_found_but_not_in_code() {
        let text = "```\n[x](not-a-link.md)\n```\nsee [b](nowhere-at-all.md)";
        let wrong = planted(&[("docs/a.md", text)]);
        assert_eq!(wrong, ["docs/a.md links to nowhere-at-all.md, which is not there"]);
    }

    #[test]
    fn a_decision_outside_of_the_index_is_found() {
        let wrong = planted(&[("docs/adr/0001-one.md", ""), (INDEX, "# Decisions")]);
        assert_eq!(wrong, [format!("{INDEX} does not list 0001-one.md")]);
    }
}
