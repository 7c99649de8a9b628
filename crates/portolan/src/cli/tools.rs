//! `hash-password` and `completions`.

use super::failed::Failed;
use super::{prompt, show};
use clap::{Args, CommandFactory};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use server::users::hash_password as hash;

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "Example:\n  portolan completions bash > /etc/bash_completion.d/portolan")]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run<C: CommandFactory>(self) -> Result<(), Failed> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "portolan", &mut script);
        Ok(show::print(String::from_utf8_lossy(&script).trim_end())?)
    }
}

/// Asks for a password (a line of the standard input, if that is no terminal) and prints its hash.
pub(crate) fn hash_password() -> Result<(), Failed> {
    let password = prompt::password("password")?;
    let mut salt = [0; 16];
    StdRng::from_os_rng().fill(&mut salt);
    let hash = hash(password.as_bytes(), salt).map_err(Failed::usage)?;
    Ok(show::print(hash)?)
}
