//! `site token`: what lets a new node in.

use super::connect::Connect;
use super::failed::Failed;
use super::show::{self, Length};
use clap::Args;

const AFTER_HELP: &str = "\
The token is printed alone on a line. It lets in any node that has it, any number of times, until it expires:
hand it over like a password, in a file that no other user can read.

Examples:
  portolan site token --user ops > join-token && chmod 600 join-token
  portolan serve --node 2 --data n2 --join 127.0.0.1:7381 --join-token-file join-token \\
      --peer 127.0.0.1:7481 --redis 127.0.0.1:7479 --grpc 127.0.0.1:7480 --admin off
  portolan site token --deployment --expires 10m    for the first node of a new site";

/// Make a token with which a new node, or a new site, may join
///
/// A node that joins with it is given the secret of the site, keeps it in its data directory, and
/// needs the token no more.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Token {
    /// For a node of the asked node's site; this is the default
    #[arg(long, conflicts_with = "deployment")]
    site: bool,
    /// For a new site of the deployment
    #[arg(long)]
    deployment: bool,
    /// How long it is good for, at most 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = show::length)]
    expires: Length,
    #[command(flatten)]
    connect: Connect,
}

impl Token {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.connect.run(|client| async move {
            let for_deployment = self.deployment && !self.site;
            let made = client.cluster().make_join_token(for_deployment, self.expires.0).await?;
            Ok(show::print(made.token)?)
        })
    }
}
