//! Takes sketches over HTTP: `POST /v1/sketches`, one of either form as the body.

use crate::clients::Sketches;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A sketch of tens of thousands of keys.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The sketches that arrive, shared with the listener.
#[derive(Clone)]
pub struct Inbox {
    sketches: Arc<Mutex<Sketches>>,
    began: Instant,
    /// What requests must carry as their bearer token.
    token: Option<Arc<str>>,
}

impl Inbox {
    /// An empty one.
    pub fn new(token: Option<&str>) -> Inbox {
        let token = token.map(Arc::from);
        Inbox { sketches: Arc::default(), began: Instant::now(), token }
    }

    /// Works on the sketches; the time since the beginning is given, too.
    pub fn with<T>(&self, work: impl FnOnce(&mut Sketches, std::time::Duration) -> T) -> T {
        let mut sketches = self.sketches.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut sketches, self.began.elapsed())
    }

    /// Serves until the runtime ends.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let app = Router::new()
            .route("/v1/sketches", post(take))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(self);
        axum::serve(listener, app).await
    }
}

async fn take(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    if let Some(token) = &inbox.token {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if given.and_then(|given| given.strip_prefix("Bearer ")) != Some(&**token) {
            return (StatusCode::UNAUTHORIZED, "the token is missing or wrong\n".to_owned());
        }
    }
    match inbox.with(|sketches, now| sketches.take(&body, now)) {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(refused) => (StatusCode::BAD_REQUEST, format!("{refused}\n")),
    }
}
