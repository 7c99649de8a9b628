//! Flags of `serve` about how it bears with its clients.

use clap::Args;
use server::config::ClientsLayer;

/// How a node bears with its clients.
#[derive(Args)]
pub(crate) struct Clients {
    /// Where there are users: close a connection that has not logged in after so many seconds; 0: never
    /// [default: 10]
    #[arg(long, value_name = "S", env = "PORTOLAN_LOGIN_TIMEOUT_S", help_heading = "Clients")]
    login_timeout_s: Option<u64>,

    /// Close a Redis client that has asked nothing for so many seconds; 0: never [default: 0]
    #[arg(long, value_name = "S", env = "PORTOLAN_IDLE_TIMEOUT_S", help_heading = "Clients")]
    idle_timeout_s: Option<u64>,
}

impl Clients {
    /// What the flags say.
    pub(crate) fn layer(self) -> ClientsLayer {
        let Clients { login_timeout_s, idle_timeout_s } = self;
        ClientsLayer { login_timeout_s, idle_timeout_s, ..ClientsLayer::default() }
    }
}
