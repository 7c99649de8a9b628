//! The project's own rules, which no other tool checks. Each is a function from what it reads to
//! what is wrong with it, and has a test that plants a violation.
//!
//! | module | its rule |
//! | --- | --- |
//! | [`edges`] | which of our crates may depend on which |
//! | [`mod@line`] | nothing above the I/O line reaches a runtime, a socket, a clock or a thread |
//! | [`judges`] | judges look at nothing but histories |
//! | [`rooms`] | which room of `protocol` may name which |
//! | [`source`] | no file is too long, none is unfinished, every crate is linted |
//! | [`functions`] | no function of `protocol` and `server` is too long |
//! | [`fuzzing`] | every parser has a fuzz target |
//! | [`phrases`] | every phrase that a failure carries can be sent |
//! | [`documents`] | links lead somewhere, and every decision is in the index |
//! | [`crate::generate`] | generated code is what its definitions give |

mod documents;
mod edges;
mod functions;
mod fuzzing;
mod judges;
mod line;
mod metadata;
mod phrases;
mod rooms;
mod source;
mod tree;

use std::path::Path;

/// Reads the tree and applies every rule. The error lists all that is wrong, a line each.
pub(super) fn check(root: &Path) -> Result<(), String> {
    let files = tree::read(root)?;
    let packages = metadata::read(root)?;
    let mut wrong = edges::check(&packages);
    wrong.extend(line::check(&packages, &files, &line::reached(root)?));
    wrong.extend(judges::check(&files));
    wrong.extend(rooms::check(&files));
    wrong.extend(source::check(&files));
    wrong.extend(functions::check(&files));
    wrong.extend(fuzzing::check(&files));
    wrong.extend(phrases::check(&files));
    wrong.extend(documents::check(&files));
    wrong.extend(crate::generate::check(root)?);
    for line in &wrong {
        eprintln!("  {line}");
    }
    match wrong.len() {
        0 => Ok(()),
        1 => Err("one rule of the house is broken".into()),
        many => Err(format!("rules of the house are broken in {many} places")),
    }
}
