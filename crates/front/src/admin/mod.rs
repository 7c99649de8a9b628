//! The admin port: plain HTTP for orchestrators, monitoring and people.
//!
//! | path | answer | allowed for |
//! | --- | --- | --- |
//! | `GET /healthz` | 200 `ok` while the process serves at all | every client |
//! | `GET /readyz` | 200 `ready` when this node can answer requests: it is a member, the leader or in
//! contact with it, and has caught up since its start; else 503 and the reason | every client |
//! | `GET /metrics` | Prometheus text | users with the right `admin` on `*` |
//! | `GET /status` | JSON, see [`status::Status`] | users with the right `admin` on `*` |
//!
//! Credentials are HTTP's Basic scheme. Anything else is 404. The port has a thread of its own, so
//! that a busy gRPC or Redis front does not make a node look dead.

pub mod status;

use crate::connection::{Connection, Terms, welcome};
use crate::listener::{self, Listener, OpenError, Port};
use crate::login::{self, NotLetIn};
use crate::permits::{Permit, Permits};
use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::IncomingStream;
use server::config::TlsConfig;
use server::users::Right;
use server::{Handle, Node};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

const FLAG: &str = "admin";
/// Monitoring needs only a few.
const CONNECTIONS_MAX: usize = 256;

/// An open admin port. It closes when this is dropped.
pub struct Admin(Port);

impl Admin {
    /// Opens the port of a node.
    pub fn open(
        node: &Node,
        address: SocketAddr,
        tls: Option<&TlsConfig>,
    ) -> Result<Admin, OpenError> {
        let tls = listener::tls_acceptor(FLAG, tls, &[b"http/1.1"])?;
        let listener = Listener::bind(FLAG, address)?;
        let port = listener.serve(1, 1, |inbox, mut stop| {
            let handle = node.handle();
            let permits = Permits::new(FLAG, CONNECTIONS_MAX, &handle);
            let keepalive = handle.clients().keepalive;
            let terms = Terms { permits, keepalive, tls: tls.clone() };
            async move {
                let listener = Welcomed { connections: welcome(inbox, terms) };
                let router = router(handle).into_make_service_with_connect_info::<Guest>();
                tokio::select! {
                    served = axum::serve(listener, router) => if let Err(error) = served {
                        tracing::error!("the admin port failed: {error}");
                    },
                    () = stop.wait() => {}
                }
            }
        });
        port.map(Admin)
    }

    /// The address it listens on; with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Accepted connections, as axum takes them.
struct Welcomed {
    connections: mpsc::Receiver<Connection>,
}

/// The permit of the calling connection. `None`: the port itself.
#[derive(Clone)]
struct Guest(Option<Arc<Permit>>);

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guest")
    }
}

impl Connected<IncomingStream<'_, Welcomed>> for Guest {
    fn connect_info(stream: IncomingStream<'_, Welcomed>) -> Guest {
        stream.remote_addr().clone()
    }
}

impl axum::serve::Listener for Welcomed {
    type Io = Connection;
    type Addr = Guest;

    async fn accept(&mut self) -> (Connection, Guest) {
        match self.connections.recv().await {
            Some(connection) => {
                let guest = Guest(Some(connection.permit.clone()));
                (connection, guest)
            }
            // The acceptor has ended, so the port is being closed: there is nothing to wait for.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Guest> {
        Ok(Guest(None))
    }
}

fn router(handle: Handle) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route_layer(middleware::from_fn_with_state(handle.clone(), only_administrators));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .with_state(handle)
}

async fn ready(State(handle): State<Handle>) -> Response {
    if handle.is_ready() {
        return "ready\n".into_response();
    }
    let status = handle.status();
    let why = match status.leader {
        None => "the site has no leader that this node can reach",
        Some(_) if status.ready => "this node has just started and has not applied its log yet",
        Some(_) => "this node is no member of its site, or leads it only since a moment",
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response()
}

async fn metrics(State(handle): State<Handle>) -> Response {
    let text = handle.metrics().render(&handle);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn status(State(handle): State<Handle>) -> Response {
    let json = serde_json::to_string_pretty(&status::Status::of(&handle));
    let json = json.expect("plain fields are always JSON");
    ([(header::CONTENT_TYPE, "application/json")], json + "\n").into_response()
}

async fn only_administrators(
    State(handle): State<Handle>,
    ConnectInfo(Guest(permit)): ConnectInfo<Guest>,
    request: Request,
    next: Next,
) -> Response {
    let header =
        request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes().to_vec());
    let permit = permit.expect("every connection has a permit");
    match login::caller(&handle, &permit, header.as_deref()).await {
        Ok(user) if user.may_everywhere(Right::Admin) => next.run(request).await,
        Ok(user) => {
            let why = format!("user {:?} lacks the right \"admin\" on \"*\"\n", user.name());
            (StatusCode::FORBIDDEN, why).into_response()
        }
        Err(not @ NotLetIn::Busy) => {
            let later = [(header::RETRY_AFTER, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, later, format!("{not}\n")).into_response()
        }
        Err(not) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"portolan\"")];
            (StatusCode::UNAUTHORIZED, challenge, format!("{not}\n")).into_response()
        }
    }
}
