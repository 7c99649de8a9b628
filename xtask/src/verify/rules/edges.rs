//! Which of our crates may depend on which.
//!
//! The table is exact in both directions: an edge that is not in it is wrong, and so is a line of
//! it that nothing uses any more, or the table would slowly allow everything.

use std::collections::BTreeSet;

use super::metadata::Package;

/// A crate, what it depends on, and what its tests need besides.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

const ALLOWED: &[Row] = &[
    // Above the I/O line.
    ("model", &[], &[]),
    ("storage", &["model"], &[]),
    ("wire", &["model"], &[]),
    ("protocol", &["model", "storage", "wire"], &["lab"]),
    // Below it. The fronts reach a site through `server::Handle` alone: how a keyspace keeps its
    // promise and where its bytes lie is none of their business.
    ("server", &["model", "protocol", "storage", "wire"], &["field"]),
    ("front", &["model", "server", "wire"], &["client", "field"]),
    ("client", &["model", "wire"], &[]),
    ("lab", &["model", "protocol", "storage", "wire"], &["protocol"]),
    // Its decisions are those of `protocol::placement`; nothing else of the crate concerns it.
    ("place", &["model", "protocol", "wire"], &[]),
    (
        "portolan",
        &["client", "front", "lab", "model", "place", "server", "wire"],
        &["field", "portolan"],
    ),
    // Programs for ourselves. `field` starts the binary as a user does and links none of it; tests
    // of other crates have its certificates and its ports.
    ("load", &[], &[]),
    ("field", &[], &[]),
    ("xtask", &["field"], &[]),
];

/// Every difference between the crates and the table.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    compare(packages, ALLOWED)
}

fn compare(packages: &[Package], allowed: &[Row]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        let Some((_, normal, tests)) = allowed.iter().find(|row| row.0 == name) else {
            wrong.push(format!("crate {name} has no line in the table of edges"));
            continue;
        };
        for (kind, table) in [(None, normal), (Some("dev"), tests), (Some("build"), &&[][..])] {
            let there = ours(package, kind);
            let table: BTreeSet<&str> = table.iter().copied().collect();
            let what = kind.map_or(String::new(), |kind| format!(" ({kind})"));
            for to in there.difference(&table) {
                wrong.push(format!("{name} must not depend on {to}{what}"));
            }
            for to in table.difference(&there) {
                wrong
                    .push(format!("the table of edges allows {name} → {to}{what}, but it is gone"));
            }
        }
    }
    for (name, ..) in allowed {
        if !packages.iter().any(|package| package.name == *name) {
            wrong.push(format!("the table of edges names {name}, but there is no such crate"));
        }
    }
    wrong
}

fn ours<'a>(package: &'a Package, kind: Option<&str>) -> BTreeSet<&'a str> {
    let ours =
        package.dependencies.iter().filter(|d| d.path.is_some() && d.kind.as_deref() == kind);
    ours.map(|dependency| dependency.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Dependency;
    use super::*;

    fn package(name: &str, edges: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
            path: Some(format!("/tree/{name}")),
        };
        Package {
            name: name.to_owned(),
            manifest_path: format!("/tree/{name}/Cargo.toml"),
            dependencies: edges.iter().map(dependency).collect(),
        }
    }

    const TABLE: &[Row] = &[("words", &[], &[]), ("door", &["words"], &["words"])];

    #[test]
    fn a_graph_that_matches_the_table_passes() {
        let door = package("door", &[("words", None), ("words", Some("dev"))]);
        assert_eq!(compare(&[package("words", &[]), door], TABLE), [""; 0]);
    }

    #[test]
    fn a_planted_edge_is_found_whatever_its_kind() {
        let door = [("words", None), ("words", Some("dev"))];
        for kind in [None, Some("dev"), Some("build")] {
            let words = package("words", &[("door", kind)]);
            let wrong = compare(&[words, package("door", &door)], TABLE);
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].starts_with("words must not depend on door"), "{wrong:?}");
        }
    }

    #[test]
    fn an_allowance_that_nothing_uses_is_wrong() {
        let wrong = compare(&[package("words", &[]), package("door", &[("words", None)])], TABLE);
        assert_eq!(wrong, ["the table of edges allows door → words (dev), but it is gone"]);
    }

    #[test]
    fn a_crate_without_a_line_and_a_line_without_a_crate_are_wrong() {
        let wrong = compare(&[package("words", &[]), package("cellar", &[])], TABLE);
        assert_eq!(
            wrong,
            [
                "crate cellar has no line in the table of edges",
                "the table of edges names door, but there is no such crate"
            ]
        );
    }

    #[test]
    fn other_peoples_crates_are_no_edges() {
        let mut words = package("words", &[("door", None)]);
        words.dependencies[0].path = None;
        let door = package("door", &[("words", None), ("words", Some("dev"))]);
        assert_eq!(compare(&[words, door], TABLE), [""; 0]);
    }
}
