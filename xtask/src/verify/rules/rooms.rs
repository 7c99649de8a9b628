//! Which room of `protocol` may name which, and what the links of `server` may name.
//!
//! A room is a folder, or a file, of a crate that is to know nothing of what is above it or beside
//! it: the machine and the replica name no mode, no mode names another, a protocol that could be a
//! crate of its own names nothing of the site, and links name nothing of what is done with their
//! messages. Each has a line in [`PROTOCOL`] or [`SERVER`] with the modules of the crate that it
//! may name, tests included; its own it always may. What a line allows must be used, and must not be
//! above the room ([`LAYERS`]).
//!
//! This reads paths as the compiler does (`use` groups, `super`, `self`), and follows a name
//! through the re-exports on its way (`pub use crate::…`): a room must be allowed each step. A name
//! that comes in by a glob passes.

use super::tree::Files;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// A room, and what else of the crate it may name.
type Room = (&'static str, &'static [&'static str]);

const PROTOCOL: (&str, &[Room]) = ("crates/protocol/src/", ROOMS);

/// Links know the queue to the site's thread, and their other end by its proof.
const SERVER: (&str, &[Room]) = (
    "crates/server/src/",
    &[("links", &["batcher", "clock", "config", "node/Event", "peers", "tls"])],
);

const ROOMS: &[Room] = &[
    ("admission", &["replica"]),
    // Each room with bugs to plant has its own.
    ("bugs", &["causal/trial", "global/ownership", "machine", "trial"]),
    ("causal", &["job", "stream", "trial"]),
    ("deployment", &["trial"]),
    ("global", GLOBAL),
    ("global/map", &["global/ring"]),
    ("global/ownership", &[]),
    ("global/ring", &[]),
    // What a job sees of its site: the state with all modes, and what is volatile about each.
    (
        "job",
        &[
            "causal/layout",
            "deployment",
            "global/backups",
            "global/preferred_owners",
            "global/round_trips",
            "machine",
            "origin",
            "site/machine",
        ],
    ),
    ("machine", &["trial"]),
    ("options", &["bugs", "placement", "replica"]),
    ("origin", &["admission", "placement"]),
    ("placement", &["trial"]),
    ("replica", &["admission", "bugs", "machine", "options", "origin"]),
    // The state with all modes names nothing of the node around it, and one mode's tables nothing
    // of another's.
    (
        "site/machine",
        &[
            "bugs",
            "deployment",
            "global",
            "job",
            "machine",
            "origin",
            "replica",
            "stream",
            // Its tests drive what the leader does about a restored site, about copies that may go,
            // about loans and leaving, about an order that was cut, and about sessions.
            "causal/Part",
            "causal/Region",
            "causal/admission",
            "causal/bridge",
            "causal/layout",
            "causal/resolve",
            "site/Origin",
            "site/Ticket",
            "site/causal/Shown",
            "site/confirming",
            "site/leaving",
            "site/lending",
            "site/release",
        ],
    ),
    ("site/machine/causal", CAUSAL_TABLES),
    ("site/machine/deployment", DEPLOYMENT_TABLES),
    ("site/machine/global", GLOBAL_TABLES),
    ("stream", &["job"]),
    ("trial", &[]),
];

/// The mode of global keys: its tables are composed with the deployment's in `site::machine`.
const GLOBAL: &[&str] = &[
    "admission",
    "bugs",
    "deployment",
    "job",
    "machine",
    "origin",
    "placement",
    "replica",
    "site/machine/Machine",
    "site/machine/Stopped",
    "site/machine/global",
    "stream",
];

/// The tables of causal keys: what all modes share in the state, and nothing of global keys.
const CAUSAL_TABLES: &[&str] = &[
    "bugs",
    "machine",
    "site/machine/Applying",
    "site/machine/Machine",
    "site/machine/MachineError",
    "site/machine/Stopped",
    "site/machine/keys",
    "site/machine/reader",
    "site/machine/records",
    "site/machine/store",
    "site/machine/tables",
    "stream",
];

/// The tables of the deployment, and what joining it, leaving it and being restored means to the
/// tables of both modes.
const DEPLOYMENT_TABLES: &[&str] = &[
    "deployment/registry",
    "global/backups",
    "machine",
    "site/machine/Applying",
    "site/machine/Machine",
    "site/machine/MachineError",
    "site/machine/Modes",
    "site/machine/Stopped",
    "site/machine/causal",
    "site/machine/global",
    "site/machine/slot_rows",
    "site/machine/tables",
];

/// The tables of global keys: the deployment's beside them, and nothing of causal keys.
const GLOBAL_TABLES: &[&str] = &[
    "bugs",
    "global",
    "machine",
    "site/machine/Applying",
    "site/machine/Machine",
    "site/machine/MachineError",
    "site/machine/Modes",
    "site/machine/Stopped",
    "site/machine/deployment",
    "site/machine/elsewhere",
    "site/machine/slot_rows",
    "site/machine/store",
    "stream",
];

/// The rooms of `protocol` from below to above: each names those of its own line and of the lines
/// before it. What is in no line composes them, and is above all.
const LAYERS: &[&[&str]] = &[
    &["trial"],
    &["causal/trial", "deployment", "global/ownership", "global/ring", "machine", "placement"],
    &["bugs", "global/map"],
    // One site's log, and what of a request it decides.
    &["admission", "options", "origin", "replica"],
    // The modes, their tables in the state, and what a job sees of both.
    &["causal", "global", "job", "site/machine", "stream"],
];

/// What is above the tables of all modes, and is driven by their tests alone.
const DRIVEN_BY_TESTS: &[&str] = &[
    "causal/admission",
    "causal/bridge",
    "causal/layout",
    "causal/Part",
    "causal/Region",
    "causal/resolve",
    "site/Origin",
    "site/Ticket",
    "site/causal",
    "site/confirming",
    "site/leaving",
    "site/lending",
    "site/release",
];

/// Every name that a room must not use, every allowance that nothing uses, and every one of what is
/// above.
pub(super) fn check(files: &Files) -> Vec<String> {
    let rooms = [PROTOCOL, SERVER];
    let named = rooms.iter().flat_map(|(folder, rooms)| compare(files, folder, rooms));
    named.chain(upward(ROOMS, LAYERS)).collect()
}

/// The allowances of names that are above their room.
fn upward(rooms: &[(&str, &[&str])], layers: &[&[&str]]) -> Vec<String> {
    let layer = |name: &str| {
        let lines = layers.iter().enumerate();
        let found =
            lines.flat_map(|(at, line)| line.iter().map(move |room| (room.len(), at, room)));
        let found = found.filter(|(_, _, room)| is_in(name, room)).max();
        found.map_or(layers.len(), |(_, at, _)| at)
    };
    let mut wrong = Vec::new();
    for (room, allowed) in rooms {
        if layer(room) == layers.len() {
            wrong.push(format!("{room} is in no layer: this proof proves nothing"));
        }
        let is_above = |name: &&&str| layer(name) > layer(room) && !is_driven(room, name);
        for name in allowed.iter().filter(is_above) {
            wrong.push(format!("{room} may not be allowed {name}, which is above it"));
        }
    }
    wrong
}

/// Whether tests of a room may name something, and nothing else of it.
fn is_driven(room: &str, name: &str) -> bool {
    room == "site/machine" && DRIVEN_BY_TESTS.iter().any(|driven| is_in(name, driven))
}

fn compare(files: &Files, folder: &str, rooms: &[Room]) -> Vec<String> {
    let mut wrong = Vec::new();
    let exports = exports(files, folder);
    for (room, allowed) in rooms {
        let mut used = BTreeSet::new();
        let mut is_there = false;
        for (path, text) in files {
            let Some(module) = module_of(path, folder).filter(|module| is_in(module, room)) else {
                continue;
            };
            is_there = true;
            let Ok(file) = syn::parse_file(text) else {
                wrong
                    .push(format!("{path} is no Rust that can be read: this proof proves nothing"));
                continue;
            };
            let mut names = Names { module, ..Names::default() };
            names.visit_file(&file);
            let all: BTreeSet<_> =
                names.found.iter().flat_map(|name| steps(name, &exports)).collect();
            for name in all.iter().filter(|name| !is_in(name, room)) {
                let is_test = names.module.split('/').any(|part| part == "tests");
                match allowed.iter().find(|allowed| is_in(name, allowed)) {
                    Some(_) if is_driven(room, name) && !is_test => {
                        wrong.push(format!("{path}: only tests of {room} may name {name}"));
                    }
                    Some(allowed) => drop(used.insert(*allowed)),
                    None => wrong.push(format!("{path}: {room} must not name {name}")),
                }
            }
        }
        if !is_there {
            wrong.push(format!("there is nothing in {folder}{room}: this proof proves nothing"));
        }
        for unused in allowed.iter().filter(|allowed| !used.contains(*allowed)) {
            wrong.push(format!("the table of rooms allows {room} → {unused}, but it is gone"));
        }
    }
    wrong
}

/// The module of a file, from the crate's root, its parts with `/` between them.
fn module_of(path: &str, folder: &str) -> Option<String> {
    let path = path.strip_prefix(folder)?.strip_suffix(".rs")?;
    Some(path.strip_suffix("/mod").unwrap_or(path).to_owned())
}

/// What is re-exported from elsewhere in the crate: its name there, and the name that it goes by.
fn exports(files: &Files, folder: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for (path, text) in files {
        let (Some(module), Ok(file)) = (module_of(path, folder), syn::parse_file(text)) else {
            continue;
        };
        for item in file.items {
            let syn::Item::Use(item) = item else { continue };
            if matches!(item.vis, syn::Visibility::Inherited) {
                continue;
            }
            let mut names = Names { module: module.clone(), ..Names::default() };
            names.tree(&mut Vec::new(), &item.tree);
            let under = |name: &str| match module.as_str() {
                "lib" => name.to_owned(),
                module => format!("{module}/{name}"),
            };
            exports.extend(names.bound.into_iter().map(|(name, target)| (under(&name), target)));
        }
    }
    exports
}

/// A name, and all that it is a re-export of.
fn steps(name: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let mut steps = vec![name.to_owned()];
    while let Some(next) = exports.iter().find_map(|(from, target)| {
        let last = steps.last().filter(|last| is_in(last, from))?;
        Some(format!("{target}{}", &last[from.len()..]))
    }) {
        if steps.contains(&next) {
            break;
        }
        steps.push(next);
    }
    steps
}

fn is_in(name: &str, room: &str) -> bool {
    name.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The paths of a file that begin in its own crate, as paths from the crate's root.
#[derive(Default)]
struct Names {
    module: String,
    found: BTreeSet<String>,
    /// Of `use`: the names that it binds, and what they are.
    bound: Vec<(String, String)>,
}

impl Names {
    fn name(&mut self, parts: &[String]) -> Option<String> {
        let supers = parts.iter().take_while(|part| *part == "super" || *part == "self");
        let (mut at, from) = match parts.first().map(String::as_str) {
            Some("crate") => (Vec::new(), 1),
            Some("super" | "self") => (self.module.split('/').collect(), supers.clone().count()),
            _ => return None,
        };
        for _ in supers.filter(|part| *part == "super") {
            at.pop();
        }
        at.extend(parts[from..].iter().map(String::as_str));
        let name = at.join("/");
        self.found.insert(name.clone());
        Some(name)
    }

    fn bind(&mut self, before: &mut Vec<String>, ident: &syn::Ident, rename: &syn::Ident) {
        before.push(ident.to_string());
        // `self` in a group is what stands before it.
        let last = rename.to_string();
        let bound = match last.as_str() {
            "self" => before.iter().rev().find(|part| *part != "self").cloned().unwrap_or_default(),
            _ => last,
        };
        let is_group = before.len() > 1 && before.last().is_some_and(|part| part == "self");
        let parts = if is_group { &before[..before.len() - 1] } else { &before[..] };
        let name = self.name(parts);
        self.bound.extend(name.map(|name| (bound, name)));
        before.pop();
    }

    fn tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(before, item));
            }
            syn::UseTree::Name(syn::UseName { ident: rename, .. }) => {
                self.bind(before, rename, rename);
            }
            syn::UseTree::Rename(syn::UseRename { ident, rename, .. }) => {
                self.bind(before, ident, rename);
            }
            syn::UseTree::Glob(_) => drop(self.name(before)),
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.name(&parts);
        visit::visit_path(self, path);
    }

    // The path of `pub(in …)` limits the users of an item; it uses nothing.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if item.content.is_none() {
            return;
        }
        let outer = self.module.clone();
        self.module = format!("{outer}/{}", item.ident);
        visit::visit_item_mod(self, item);
        self.module = outer;
    }

    // What stands in a macro's call is tokens: paths from the root are still seen.
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let text = call.tokens.to_string().replace(' ', "");
        for (at, _) in text.match_indices("crate::") {
            let letter = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
            let path = text[at..].split(|each| !letter(each)).next().unwrap_or_default();
            let parts: Vec<_> = path.split("::").map(str::to_owned).collect();
            self.name(&parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Room] = &[("cellar", &["words"])];

    fn planted(path: &str, text: &str) -> Vec<String> {
        let base = ("crates/protocol/src/cellar/mod.rs", "use crate::words::Word;\nmod wine;");
        let files = [base, (path, text)].map(|(path, text)| (path.to_owned(), text.to_owned()));
        compare(&Files::from(files), PROTOCOL.0, TABLE)
    }

    #[test]
    fn a_room_may_name_itself_and_what_its_line_allows() {
        let text = "use super::barrel; use crate::cellar::barrel::Hoop; use crate::{words, words::X};\n\
                    fn f() { words::f(); std::mem::take(&mut 1); super::g() }";
        assert_eq!(planted("crates/protocol/src/cellar/wine.rs", text), [""; 0]);
        assert_eq!(planted("crates/protocol/src/attic.rs", "use crate::cellar;"), [""; 0]);
    }

    #[test]
    fn a_planted_name_is_found_however_it_is_written() {
        for text in [
            "use crate::attic::Box;",
            "use crate::{words::Word, attic::{self}};",
            "use super::super::attic;",
            "fn f() { crate::attic::open() }",
            "fn f() -> crate::attic::Box { loop {} }",
            "fn f() { panic!(\"{}\", crate::attic::open()) }",
            "mod tests { use super::super::super::attic::Box; }",
        ] {
            let wrong = planted("crates/protocol/src/cellar/wine.rs", text);
            assert_eq!(wrong.len(), 1, "{text}: {wrong:?}");
            assert!(wrong[0].contains("cellar must not name attic"), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_is_followed_through_re_exports() {
        let wine = ("crates/protocol/src/cellar/wine.rs", "use crate::words::Cask;");
        let floor = ("crates/protocol/src/attic/mod.rs", "pub struct Box;");
        for text in [
            "pub use crate::attic::Box as Cask;",
            "pub(crate) use super::attic::{self, Box as Cask};",
            "pub use crate::hall::Cask;",
        ] {
            let words = ("crates/protocol/src/words.rs", text);
            let hall = ("crates/protocol/src/hall.rs", "pub use crate::attic::Box as Cask;");
            let files = [wine, floor, words, hall].map(|(path, text)| (path.into(), text.into()));
            let wrong = compare(&Files::from(files), PROTOCOL.0, TABLE);
            let wrong = wrong.iter().filter(|one| one.contains("cellar must not name attic/Box"));
            assert_eq!(wrong.count(), 1, "{text}");
        }
    }

    #[test]
    fn in_every_room_each_name_of_another_one_is_found() {
        for (room, allowed) in ROOMS {
            let may = |other: &str| allowed.iter().chain([room]).any(|one| is_in(other, one));
            for (other, _) in ROOMS.iter().filter(|(other, _)| !may(other)) {
                let path = format!("crates/protocol/src/{room}/planted.rs");
                let text = format!("use crate::{}::Planted;", other.replace('/', "::"));
                let wrong = check(&Files::from([(path, text)]));
                let found = format!("{room} must not name {other}/Planted");
                assert_eq!(wrong.iter().filter(|one| one.ends_with(&found)).count(), 1, "{found}");
            }
        }
    }

    #[test]
    fn a_mode_that_the_replica_names_by_a_long_way_is_found() {
        let path = "crates/protocol/src/replica/reads.rs".to_owned();
        let text = "use super::super::site::Site;".to_owned();
        let wrong = check(&Files::from([(path, text)]));
        assert_eq!(wrong.iter().filter(|one| one.contains("replica must not name")).count(), 1);
    }

    #[test]
    fn what_is_driven_by_tests_is_named_by_tests_alone() {
        let wrong = |path: &str| {
            let path = format!("crates/protocol/src/site/machine/{path}");
            let wrong = check(&Files::from([(path, "use crate::site::release::Job;".to_owned())]));
            wrong.iter().filter(|one| one.contains("only tests of site/machine may name")).count()
        };
        assert_eq!((wrong("store.rs"), wrong("tests/loans.rs")), (1, 0));
        let upward = upward(&[("machine", &["site/release"])], LAYERS);
        assert_eq!(upward, ["machine may not be allowed site/release, which is above it"]);
    }

    #[test]
    fn links_that_name_the_handle_are_found() {
        let path = "crates/server/src/links/join_service.rs".to_owned();
        let wrong = check(&Files::from([(path, "use crate::handle::Handle;".to_owned())]));
        let wrong = wrong.iter().filter(|one| one.contains("links must not name handle/Handle"));
        assert_eq!(wrong.count(), 1);
    }

    #[test]
    fn an_allowance_of_what_is_above_is_found() {
        let layers: &[&[&str]] = &[&["cellar"], &["hall", "stairs"]];
        fn rooms<'a>(cellar: &'a [&'a str]) -> [(&'a str, &'a [&'a str]); 2] {
            [("cellar", cellar), ("hall", &["cellar", "stairs"])]
        }
        assert_eq!(upward(&rooms(&[]), layers), [""; 0]);
        for above in ["hall", "hall/door", "roof"] {
            let found = format!("cellar may not be allowed {above}, which is above it");
            assert_eq!(upward(&rooms(&[above]), layers), [found]);
        }
        let unlisted = "roof is in no layer: this proof proves nothing";
        assert_eq!(upward(&[("roof", &["hall"])], layers), [unlisted]);
    }

    #[test]
    fn an_empty_room_and_an_unused_allowance_are_wrong() {
        let files = [("crates/protocol/src/cellar.rs".to_owned(), String::new())];
        assert_eq!(
            compare(&Files::from(files), PROTOCOL.0, TABLE),
            ["the table of rooms allows cellar → words, but it is gone"]
        );
        assert_eq!(
            compare(&Files::new(), PROTOCOL.0, &[("cellar", &[])]),
            ["there is nothing in crates/protocol/src/cellar: this proof proves nothing"]
        );
    }
}
