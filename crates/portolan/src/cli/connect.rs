//! How a command reaches a running site.

use super::failed::Failed;
use super::show::{self, Length};
use clap::Args;
use client::{Client, Credentials, Options, Tls};
use indicatif::{ProgressBar, ProgressStyle};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flags of every command that lists all of a kind.
#[derive(Args)]
pub(crate) struct Listing {
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// Flags of every command that shows one thing.
#[derive(Args)]
pub(crate) struct Showing {
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// Flags of every command that talks to a running site.
#[derive(Args)]
pub(crate) struct Connect {
    /// gRPC ports of nodes of the site; more than one, so that a dead one does no harm
    #[arg(long, value_name = "HOST:PORT", env = "PORTOLAN_SERVER", value_delimiter = ',')]
    #[arg(default_value = "127.0.0.1:7380", help_heading = "Connection")]
    server: Vec<String>,

    /// Give up after this long [default: 10s; of `status` 3s]
    #[arg(long, value_name = "TIME", value_parser = show::length, help_heading = "Connection")]
    deadline: Option<Length>,

    /// Log in with this name; the password comes from PORTOLAN_PASSWORD, --password-file or a
    /// prompt
    #[arg(long, value_name = "NAME", env = "PORTOLAN_USER", help_heading = "Connection")]
    user: Option<String>,

    /// Read the password from the first line of a file
    #[arg(long, value_name = "FILE", env = "PORTOLAN_PASSWORD_FILE", help_heading = "Connection")]
    password_file: Option<PathBuf>,

    /// Use TLS, and trust nodes whose certificates these authorities (PEM) have signed
    #[arg(long, value_name = "FILE", env = "PORTOLAN_TLS_CA", help_heading = "Connection")]
    tls_ca: Option<PathBuf>,

    /// Show this certificate (PEM) to nodes that ask for one
    #[arg(long, value_name = "FILE", env = "PORTOLAN_TLS_CERT", help_heading = "Connection")]
    #[arg(requires = "tls_key", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,

    /// The private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", env = "PORTOLAN_TLS_KEY", help_heading = "Connection")]
    #[arg(requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// The name in the nodes' certificates, if it is not the host of --server
    #[arg(long, value_name = "NAME", help_heading = "Connection", requires = "tls_ca")]
    tls_name: Option<String>,
}

/// After this a terminal shows what the command waits for.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How often that is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Connect {
    /// How long a call may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline.map_or(Options::default().deadline, |length| length.0)
    }

    /// Runs a command against the site.
    pub(crate) fn run<F>(self, command: impl FnOnce(Client) -> F) -> Result<(), Failed>
    where
        F: Future<Output = Result<(), Failed>>,
    {
        self.run_within(Options::default().deadline, command)
    }

    /// The same, for a command that gives up after `deadline` by default.
    pub(crate) fn run_within<F>(
        self,
        deadline: Duration,
        command: impl FnOnce(Client) -> F,
    ) -> Result<(), Failed>
    where
        F: Future<Output = Result<(), Failed>>,
    {
        let deadline = self.deadline.map_or(deadline, |length| length.0);
        let options = Options {
            deadline,
            attempt_deadline: deadline.min(Options::default().attempt_deadline),
            credentials: self.credentials()?,
            tls: self.tls()?,
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failed::cannot_serve)?;
        runtime.block_on(async {
            let client = Client::connect(&self.server, options)?;
            tokio::select! {
                done = command(client.clone()) => done,
                never = show_attempts(&client, deadline) => match never {},
            }
        })
    }

    fn credentials(&self) -> Result<Option<Credentials>, Failed> {
        let Some(name) = self.user.clone() else { return Ok(None) };
        let password = match (&self.password_file, std::env::var("PORTOLAN_PASSWORD")) {
            (Some(file), _) => {
                let text = read("--password-file", file)?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            (None, Ok(password)) => password,
            (None, Err(_)) => super::prompt::password(&format!("password of {name}"))?,
        };
        Ok(Some(Credentials { name, password }))
    }

    fn tls(&self) -> Result<Option<Tls>, Failed> {
        let Some(ca) = &self.tls_ca else { return Ok(None) };
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some((read("--tls-cert", cert)?, read("--tls-key", key)?)),
            _ => None,
        };
        Ok(Some(Tls { ca: read("--tls-ca", ca)?, identity, domain: self.tls_name.clone() }))
    }
}

/// Shows on a terminal, during a call, which node is asked and how attempts failed. Nothing if the
/// standard error is no terminal.
async fn show_attempts(client: &Client, deadline: Duration) -> Infallible {
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template by its rules");
    let mut shown: Option<ProgressBar> = None;
    loop {
        let trying = client.trying().filter(|trying| trying.elapsed() >= SILENCE_MAX);
        match trying {
            None => {
                // Gone from the terminal with this.
                if let Some(bar) = shown.take() {
                    bar.finish_and_clear();
                }
            }
            Some(trying) => {
                let bar = shown
                    .get_or_insert_with(|| ProgressBar::new_spinner().with_style(style.clone()));
                let (past, all) = (trying.elapsed().as_secs(), deadline.as_secs());
                let failed = match trying.failed.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", trying.failed),
                };
                bar.set_message(format!("{past} of {all} s: asking {}{failed}", trying.node));
                bar.tick();
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The text of a file that a flag names.
pub(crate) fn read(flag: &str, path: &Path) -> Result<String, Failed> {
    std::fs::read_to_string(path).map_err(|error| {
        Failed::usage(format!("{flag} {}: cannot read it: {error}", path.display()))
    })
}
