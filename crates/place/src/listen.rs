//! Takes sketches over HTTP: `POST /v1/sketches`, one of either form as the body; and shows at
//! `GET /metrics` what was dropped of them, in Prometheus' text format.

use crate::clients::{Dropped, Sketches};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
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
            .route("/metrics", get(metrics))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(self);
        axum::serve(listener, app).await
    }
}

/// Whether a request has the token, if one is needed.
fn check_token(inbox: &Inbox, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let Some(token) = &inbox.token else { return Ok(()) };
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match given.and_then(|given| given.strip_prefix("Bearer ")) == Some(&**token) {
        true => Ok(()),
        false => Err((StatusCode::UNAUTHORIZED, "the token is missing or wrong\n".to_owned())),
    }
}

async fn metrics(State(inbox): State<Inbox>, headers: HeaderMap) -> (StatusCode, String) {
    match check_token(&inbox, &headers) {
        Ok(()) => (StatusCode::OK, as_metrics(inbox.with(|sketches, _| sketches.dropped))),
        Err(refused) => refused,
    }
}

fn as_metrics(dropped: Dropped) -> String {
    let Dropped { malformed, clients, unknown_servers, absurd_latencies } = dropped;
    let mut text = "# HELP portolan_place_dropped_total What clients sent and was dropped.\n\
                    # TYPE portolan_place_dropped_total counter\n"
        .to_owned();
    for (what, count) in [
        ("malformed_sketches", malformed),
        ("clients_beyond_limit", clients),
        ("unknown_servers", unknown_servers),
        ("absurd_latencies", absurd_latencies),
    ] {
        text += &format!("portolan_place_dropped_total{{what=\"{what}\"}} {count}\n");
    }
    text
}

async fn take(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    if let Err(refused) = check_token(&inbox, &headers) {
        return refused;
    }
    match inbox.with(|sketches, now| sketches.take(&body, now)) {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(refused) => (StatusCode::BAD_REQUEST, format!("{refused}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_a_counter_each() {
        let dropped = Dropped { malformed: 3, absurd_latencies: 70, ..Dropped::default() };
        let text = as_metrics(dropped);
        assert!(text.contains("{what=\"malformed_sketches\"} 3\n"), "{text}");
        assert!(text.contains("{what=\"absurd_latencies\"} 70\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("portolan_place_")).count(), 4);
    }

    #[test]
    fn a_token_is_asked_for_where_there_is_one() {
        let mut headers = HeaderMap::new();
        let inbox = Inbox { sketches: Arc::default(), began: Instant::now(), token: None };
        assert!(check_token(&inbox, &headers).is_ok());
        let inbox = Inbox { token: Some("secret".into()), ..inbox };
        assert!(check_token(&inbox, &headers).is_err());
        headers.insert(header::AUTHORIZATION, "Bearer secret".parse().unwrap());
        assert!(check_token(&inbox, &headers).is_ok());
    }
}
