//! The nodes of the site, and which of them is talked to.

use crate::{ConnectError, Options, Tls};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// A connection that says nothing for this long is asked whether it lives, and has as long again to
/// answer. It is what ends a watch on a node that is gone without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A connection is given up after this.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// One channel a node; all use the same one until it fails.
pub(crate) struct Nodes {
    channels: Vec<Channel>,
    current: AtomicUsize,
}

impl Nodes {
    pub(crate) fn new<S: AsRef<str>>(
        addresses: impl IntoIterator<Item = S>,
        options: &Options,
    ) -> Result<Nodes, ConnectError> {
        let channel = |address: S| channel(address.as_ref(), options.tls.as_ref());
        let channels = addresses.into_iter().map(channel).collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(ConnectError::NoNode);
        }
        Ok(Nodes { channels, current: AtomicUsize::new(0) })
    }

    /// The node to talk to, and its number for [`Nodes::leave`].
    pub(crate) fn current(&self) -> (usize, Channel) {
        let at = self.current.load(Ordering::Relaxed);
        (at, self.channels[at].clone())
    }

    /// Talk to the next node from now on, unless somebody has left this one already.
    pub(crate) fn leave(&self, at: usize) {
        let next = (at + 1) % self.channels.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }
}

fn channel(address: &str, tls: Option<&Tls>) -> Result<Channel, ConnectError> {
    let host = address.trim_start_matches("http://").trim_start_matches("https://");
    let unusable = || ConnectError::Address { address: address.to_owned() };
    if host.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.is_empty()) {
        return Err(unusable());
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(|_| unusable())?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_DEADLINE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(4 << 20);
    let endpoint = match tls {
        None => endpoint,
        Some(tls) => {
            let failed = |error: tonic::transport::Error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                ConnectError::Tls(cause.unwrap_or_else(|| error.to_string()))
            };
            endpoint.tls_config(tls_config(tls)).map_err(failed)?
        }
    };
    Ok(endpoint.connect_lazy())
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    if let Some((chain, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(chain, key));
    }
    if let Some(domain) = &tls.domain {
        config = config.domain_name(domain);
    }
    config
}
