//! `cargo xtask generate`: the Rust code of the gRPC definitions.
//!
//! The code is checked in beside the definitions, so that a build of Portolan compiles neither a
//! parser of definitions nor a generator. `verify` generates it again and compares. Comments stay
//! in the definitions alone: a better sentence there changes no code.

use std::fs;
use std::path::Path;

/// Definitions that give one file of code, and where both are.
struct Definitions {
    folder: &'static str,
    files: &'static [&'static str],
    code: &'static str,
    with_server: bool,
    codec: &'static str,
}

const ALL: [Definitions; 2] = [
    Definitions {
        folder: "crates/wire/proto",
        files: &[
            "portolan/v1/kv.proto",
            "portolan/v1/cluster.proto",
            "portolan/v1/deployment.proto",
        ],
        code: "portolan.v1.rs",
        with_server: true,
        codec: "crate::grpc::Codec",
    },
    Definitions {
        folder: "crates/server/proto",
        files: &["etcd.proto"],
        code: "etcdserverpb.rs",
        with_server: false,
        codec: "tonic_prost::ProstCodec",
    },
];

/// Writes the code of all definitions.
pub(crate) fn generate(root: &Path) -> Result<(), String> {
    ALL.iter().try_for_each(|definitions| definitions.write(root, &root.join(definitions.folder)))
}

/// Every file whose code is not what its definitions give.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for definitions in &ALL {
        let fresh = tempfile::tempdir().map_err(|e| e.to_string())?;
        definitions.write(root, fresh.path())?;
        let path = format!("{}/{}", definitions.folder, definitions.code);
        let fresh = fs::read(fresh.path().join(definitions.code)).map_err(|e| e.to_string())?;
        wrong.extend(compare(&path, fs::read(root.join(&path)).ok().as_deref(), &fresh));
    }
    Ok(wrong)
}

fn compare(path: &str, there: Option<&[u8]>, fresh: &[u8]) -> Option<String> {
    (there != Some(fresh))
        .then(|| format!("{path} is not what its definitions give: run `cargo xtask generate`"))
}

impl Definitions {
    fn write(&self, root: &Path, to: &Path) -> Result<(), String> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", self.folder);
        let read = protox::compile(self.files, [root.join(self.folder)]);
        let mut definitions = read.map_err(|e| failed(&e))?;
        for file in &mut definitions.file {
            // Its comments.
            file.source_code_info = None;
        }
        let generator = tonic_prost_build::configure()
            .build_server(self.with_server)
            .codec_path(self.codec)
            .bytes(".")
            .emit_rerun_if_changed(false)
            .out_dir(to);
        generator.compile_fds(definitions).map_err(|e| failed(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_stale_or_absent_is_found() {
        assert_eq!(compare("a.rs", Some(b"struct A;"), b"struct A;"), None);
        for there in [Some(&b"struct B;"[..]), None] {
            let wrong = compare("a.rs", there, b"struct A;").unwrap_or_default();
            assert!(wrong.starts_with("a.rs is not what its definitions give"), "{wrong}");
        }
    }
}
