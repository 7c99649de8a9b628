//! Running other programs, and building ours.

use std::path::PathBuf;
use std::process::Command;

/// Our programs, as packages have them (the profile `dist`).
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) portolan: PathBuf,
    pub(super) load: PathBuf,
}

/// Builds what is measured and what measures it. `$PORTOLAN_BIN` is measured instead where it is
/// set.
pub(super) fn build() -> Result<Programs, String> {
    let target = field::binary::target();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--profile", "dist", "-p", "load"]);
    let given = std::env::var_os("PORTOLAN_BIN").map(PathBuf::from);
    if given.is_none() {
        build.args(["-p", "portolan", "--features", "lab"]);
    }
    field::binary::forget_package(&mut build);
    run(build.arg("--target-dir").arg(&target).current_dir(field::binary::root()))?;
    let dist = target.join("dist");
    Ok(Programs {
        portolan: given.unwrap_or_else(|| dist.join("portolan")),
        load: dist.join("load"),
    })
}

/// Runs a command to its end; its output goes where ours goes.
pub(super) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

/// What a command prints, without the last line's end.
pub(super) fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    output_of(Command::new(program).args(arguments))
}

/// See [`output`].
pub(super) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}: {}", output.status, said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
