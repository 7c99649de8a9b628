//! The systems that are compared, and starting and ending them.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use field::{NodeOptions, Site};
use tempfile::TempDir;

use super::command::{Programs, output_of, run};
use super::plan::{Protocol, Shape};

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    Portolan,
    Etcd,
    Valkey,
}

impl System {
    /// The script that looks after it, for those that are not ours.
    fn script(self) -> Option<Command> {
        let name = match self {
            Self::Portolan => return None,
            Self::Etcd => "etcd.sh",
            Self::Valkey => "valkey.sh",
        };
        Some(Command::new(field::binary::root().join("bench/peers").join(name)))
    }

    /// Makes sure that it is there.
    pub(super) fn install(self) -> Result<(), String> {
        self.script().map_or(Ok(()), |mut script| run(script.arg("install")))
    }

    /// What it calls its version.
    pub(super) fn version(self) -> Result<String, String> {
        match self.script() {
            Some(mut script) => output_of(script.arg("version")),
            None => {
                let mut git = Command::new("git");
                git.args(["describe", "--always", "--dirty"]).current_dir(field::binary::root());
                Ok(format!("Portolan at {}", output_of(&mut git)?))
            }
        }
    }
}

/// Where all systems keep their data, so that it is one disk.
pub(super) fn root() -> Result<PathBuf, String> {
    let root = match (std::env::var_os("PORTOLAN_PEERS"), std::env::var_os("HOME")) {
        (Some(root), _) => PathBuf::from(root),
        (None, Some(home)) => PathBuf::from(home).join(".cache/portolan-peers"),
        (None, None) => return Err("set PORTOLAN_PEERS: there is no HOME".into()),
    };
    fs::create_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    Ok(root)
}

/// An empty folder for our own data; removed with the value.
pub(super) fn folder() -> Result<TempDir, String> {
    TempDir::with_prefix_in("portolan-", root()?).map_err(|e| format!("no folder for data: {e}"))
}

/// A system at work on an empty disk; ended and wiped with the value.
#[derive(Debug)]
pub(super) struct Running {
    system: System,
    /// Ours, and where its data is. Ended before its folder goes.
    site: Option<(Site, TempDir)>,
}

impl Running {
    pub(super) fn start(system: System, shape: Shape, programs: &Programs) -> Result<Self, String> {
        if let Some(mut script) = system.script() {
            let running = Self { system, site: None };
            running.wipe()?;
            run(script.arg("start"))?;
            return Ok(running);
        }
        let nodes = match shape {
            Shape::One => 1,
            Shape::Three => 3,
        };
        let folder = folder()?;
        let program = &programs.portolan;
        let adjust = |options: &mut NodeOptions| options.program.clone_from(program);
        let site = Site::start(folder.path(), nodes, adjust);
        Ok(Self { system, site: Some((site, folder)) })
    }

    fn wipe(&self) -> Result<(), String> {
        self.system.script().map_or(Ok(()), |mut script| run(script.arg("wipe")))
    }

    /// Where a protocol is spoken, separated by commas.
    pub(super) fn endpoints(&self, protocol: Protocol) -> Result<String, String> {
        let Some((site, _)) = &self.site else {
            let mut script = self.system.script().expect("what is not ours has a script");
            return output_of(script.arg("endpoints"));
        };
        let address = |node: &field::Node| -> SocketAddr {
            match protocol {
                Protocol::Resp => node.options.redis,
                Protocol::Portolan | Protocol::Etcd => node.options.grpc,
            }
        };
        Ok(site.nodes.iter().map(|n| address(n).to_string()).collect::<Vec<_>>().join(","))
    }

    /// Its process ids, separated by commas.
    pub(super) fn pids(&self) -> Result<String, String> {
        match &self.site {
            Some((site, _)) => {
                Ok(site.pids().iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
            None => {
                let mut script = self.system.script().expect("what is not ours has a script");
                Ok(output_of(script.arg("pids"))?.replace('\n', ","))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(reason) = self.wipe() {
            eprintln!("{reason}");
        }
    }
}
