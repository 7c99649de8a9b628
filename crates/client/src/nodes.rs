//! The nodes of the site, and the one in use.

use crate::connection::{CONNECT_DEADLINE, Connections, Connector, WasCut};
use crate::{ConnectError, Options, Tls};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// A connection that is silent for this long is pinged, and must answer within the same time. This
/// ends a watch on a node that has failed without closing its connection.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The time limit for a connection including its TLS handshake.
const TLS_DEADLINE: Duration = CONNECT_DEADLINE.saturating_add(Duration::from_millis(500));

/// The first line of a certificate in PEM form.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// One node.
struct Node {
    /// As given by the caller.
    address: String,
    channel: Channel,
    connections: Arc<Connections>,
}

/// One channel per node; all calls use the same one until it fails.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    current: AtomicUsize,
}

impl Nodes {
    pub(crate) fn new<S: AsRef<str>>(
        addresses: impl IntoIterator<Item = S>,
        options: &Options,
    ) -> Result<Nodes, ConnectError> {
        let node = |address: S| {
            let (address, connections) = (address.as_ref(), Arc::<Connections>::default());
            let channel = channel(address, options.tls.as_ref(), &connections)?;
            Ok(Node { address: address.to_owned(), channel, connections })
        };
        let nodes = addresses.into_iter().map(node).collect::<Result<Vec<_>, ConnectError>>()?;
        if nodes.is_empty() {
            return Err(ConnectError::NoNode);
        }
        Ok(Nodes { nodes, current: AtomicUsize::new(0) })
    }

    /// The node in use, and its index for [`Nodes::leave`].
    pub(crate) fn current(&self) -> (usize, Channel) {
        let at = self.current.load(Ordering::Relaxed);
        (at, self.nodes[at].channel.clone())
    }

    /// The address of a node.
    pub(crate) fn address(&self, at: usize) -> &str {
        &self.nodes[at].address
    }

    /// Whether there is no connection to a node at the moment.
    pub(crate) fn are_cut(&self, at: usize) -> Option<WasCut> {
        self.nodes[at].connections.are_cut()
    }

    /// Whether there has been no connection since then.
    pub(crate) fn are_cut_since(&self, at: usize, then: WasCut) -> bool {
        self.nodes[at].connections.are_cut_since(then)
    }

    /// Switches to the next node, unless another call has left this one already.
    pub(crate) fn leave(&self, at: usize) {
        let next = (at + 1) % self.nodes.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

fn channel(
    address: &str,
    tls: Option<&Tls>,
    connections: &Arc<Connections>,
) -> Result<Channel, ConnectError> {
    let host = address.trim_start_matches("http://").trim_start_matches("https://");
    let unusable = || ConnectError::Address { address: address.to_owned() };
    if host.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.is_empty()) {
        return Err(unusable());
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{host}")).map_err(|_| unusable())?;
    let endpoint = endpoint
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(4 << 20);
    let endpoint = match tls {
        None => endpoint,
        Some(tls) => {
            if !tls.ca.contains(CERTIFICATE) {
                let what = "the authorities' file holds no certificate in PEM form";
                return Err(ConnectError::Tls(what.to_owned()));
            }
            let failed = |error: tonic::transport::Error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                ConnectError::Tls(cause.unwrap_or_else(|| error.to_string()))
            };
            endpoint.connect_timeout(TLS_DEADLINE).tls_config(tls_config(tls)).map_err(failed)?
        }
    };
    let connector = Connector { connections: connections.clone(), is_tls: tls.is_some() };
    Ok(endpoint.connect_with_connector_lazy(connector))
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
