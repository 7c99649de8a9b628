//! The text files of the tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Contents by path, relative to the root, with `/` between the parts.
pub(super) type Files = BTreeMap<String, String>;

/// What the rules look at.
const ENDINGS: [&str; 4] = ["rs", "toml", "proto", "md"];

/// Folders that are not ours to judge: built, installed or found by other programs.
const FOREIGN: [&str; 4] = ["target", "node_modules", "corpus", "artifacts"];

/// Reads all files that rules look at.
pub(super) fn read(root: &Path) -> Result<Files, String> {
    let mut files = Files::new();
    walk(root, "", &mut files)?;
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Files) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    for item in fs::read_dir(folder).map_err(failed)? {
        let item = item.map_err(failed)?;
        let name = item.file_name().to_string_lossy().into_owned();
        let kind = item.file_type().map_err(failed)?;
        let path = format!("{prefix}{name}");
        if kind.is_dir() && !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
            walk(&item.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && ENDINGS.iter().any(|end| name.ends_with(&format!(".{end}"))) {
            files.insert(path, fs::read_to_string(item.path()).map_err(failed)?);
        }
    }
    Ok(())
}
