//! Takes sketches over HTTP: `POST /v1/sketches`, one of either form as the body; and shows at
//! `GET /metrics` what was dropped of them, in Prometheus' text format.

use crate::clients::{Dropped, Sketches};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A sketch of tens of thousands of keys.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What a request must carry as its bearer token.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Nothing.
    #[default]
    Open,
    /// This one, whatever client it is.
    Shared(String),
    /// That of the client: by token its name.
    ByClient(BTreeMap<String, String>),
}

impl Access {
    /// One client a line: its name, white space, its token. A name may have several tokens. Empty
    /// lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// A line is none of these, a token is given twice, or there is none; with the line's number.
    pub fn by_client(text: &str) -> Result<Access, String> {
        let mut names = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [name, token] => {
                    if names.insert(token.to_owned(), name.to_owned()).is_some() {
                        return Err(format!("line {}: another line has that token", number + 1));
                    }
                }
                _ => return Err(format!("line {}: it is no name and token", number + 1)),
            }
        }
        match names.is_empty() {
            true => Err("it has no client".to_owned()),
            false => Ok(Access::ByClient(names)),
        }
    }

    /// The client whose token a request has; `None`: a request may be of any client.
    fn sender(&self, headers: &HeaderMap) -> Result<Option<&str>, (StatusCode, String)> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|given| given.strip_prefix("Bearer "));
        match (self, given) {
            (Access::Open, _) => Ok(None),
            (Access::Shared(token), Some(given)) if given == token => Ok(None),
            (Access::ByClient(names), Some(given)) if names.contains_key(given) => {
                Ok(Some(&names[given]))
            }
            _ => Err((StatusCode::UNAUTHORIZED, "the token is missing or wrong\n".to_owned())),
        }
    }
}

/// The sketches that arrive, shared with the listener.
#[derive(Clone)]
pub struct Inbox {
    sketches: Arc<Mutex<Sketches>>,
    began: Instant,
    access: Arc<Access>,
}

impl Inbox {
    /// An empty one.
    pub fn new(access: Access) -> Inbox {
        Inbox { sketches: Arc::default(), began: Instant::now(), access: access.into() }
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

async fn metrics(State(inbox): State<Inbox>, headers: HeaderMap) -> (StatusCode, String) {
    match inbox.access.sender(&headers) {
        Ok(_) => (StatusCode::OK, as_metrics(inbox.with(|sketches, _| sketches.dropped))),
        Err(refused) => refused,
    }
}

fn as_metrics(dropped: Dropped) -> String {
    let Dropped { malformed, clients, other_names, unknown_servers, absurd_latencies } = dropped;
    let mut text = "# HELP portolan_place_dropped_total What clients sent and was dropped.\n\
                    # TYPE portolan_place_dropped_total counter\n"
        .to_owned();
    for (what, count) in [
        ("malformed_sketches", malformed),
        ("clients_beyond_limit", clients),
        ("sketches_under_other_names", other_names),
        ("unknown_servers", unknown_servers),
        ("absurd_latencies", absurd_latencies),
    ] {
        text += &format!("portolan_place_dropped_total{{what=\"{what}\"}} {count}\n");
    }
    text
}

async fn take(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let sender = match inbox.access.sender(&headers) {
        Ok(sender) => sender,
        Err(refused) => return refused,
    };
    match inbox.with(|sketches, now| sketches.take_from(sender, &body, now)) {
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
        assert_eq!(text.lines().filter(|line| line.starts_with("portolan_place_")).count(), 5);
    }

    #[test]
    fn a_token_is_asked_for_where_there_is_one() {
        let with = |token: &str| {
            let value = format!("Bearer {token}").parse().unwrap();
            HeaderMap::from_iter([(header::AUTHORIZATION, value)])
        };
        assert_eq!(Access::Open.sender(&HeaderMap::new()), Ok(None));
        let shared = Access::Shared("secret".to_owned());
        assert!(shared.sender(&HeaderMap::new()).is_err() && shared.sender(&with("no")).is_err());
        assert_eq!(shared.sender(&with("secret")), Ok(None));
        let text = "# shops\nshop-1  first\n\nshop-2\tsecond\nshop-1 third\n";
        let each = Access::by_client(text).unwrap();
        assert_eq!(each.sender(&with("third")), Ok(Some("shop-1")));
        assert_eq!(each.sender(&with("second")), Ok(Some("shop-2")));
        assert!(each.sender(&HeaderMap::new()).is_err() && each.sender(&with("shop-1")).is_err());
    }

    #[test]
    fn a_file_of_tokens_that_is_none_is_refused_by_line() {
        for (text, wanted) in [
            ("# none\n", "it has no client"),
            ("a one\nb\n", "line 2: it is no name and token"),
            ("a b c\n", "line 1: it is no name and token"),
            ("a one\nb one\n", "line 2: another line has that token"),
        ] {
            assert_eq!(Access::by_client(text).map(drop), Err(wanted.to_owned()));
        }
    }
}
