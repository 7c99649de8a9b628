//! Identifies the caller of a request before its message is received.
//!
//! A service receives and decodes a whole message, as long as the largest command, before its
//! method begins. So the credentials, which are in the head of the request, are checked first: of a
//! caller that is refused, no more is held than what the connection's window admits, and of one that
//! is not what a connection may hold ([`Receiving`]).

use super::receiving::{Received, Receiving};
use crate::connection::Connection;
use crate::login::{self, NotLetIn};
use crate::permits::Permit;
use server::Handle;
use server::users::User;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::server::Connected;
use wire::grpc::Reason;

/// What a request has of its connection.
#[derive(Clone)]
pub(crate) struct OfConnection {
    permit: Arc<Permit>,
    receiving: Receiving,
}

impl Connected for Connection {
    type ConnectInfo = OfConnection;

    fn connect_info(&self) -> OfConnection {
        OfConnection { permit: self.permit.clone(), receiving: Receiving::default() }
    }
}

/// A service whose requests carry their caller's [`User`] as an extension.
#[derive(Clone)]
pub(super) struct Identified<S> {
    inner: S,
    handle: Handle,
}

impl<S> Identified<S> {
    pub(super) fn new(inner: S, handle: Handle) -> Identified<S> {
        Identified { inner, handle }
    }
}

impl<S: NamedService> NamedService for Identified<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Identified<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Service<http::Request<Body>, Future = BoxFuture<http::Response<Body>, Infallible>>,
    S: Clone + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let connection = request.extensions().get::<OfConnection>();
        let OfConnection { permit, receiving } =
            connection.expect("the port gives every connection a permit").clone();
        let header = request.headers().get(http::header::AUTHORIZATION);
        // Almost all callers are known, and need no future of their own.
        if let Some(user) = login::known(&self.handle, &permit, header.map(|one| one.as_bytes())) {
            return self.inner.call(of_user(request, user, receiving));
        }
        let header = header.cloned();
        // The present service is the one that is ready; its clone need not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let handle = self.handle.clone();
        Box::pin(async move {
            let header = header.as_ref().map(|value| value.as_bytes());
            match login::caller(&handle, &permit, header).await {
                Ok(user) => inner.call(of_user(request, user, receiving)).await,
                Err(not) => Ok(refused(not).into_http()),
            }
        })
    }
}

fn of_user(
    mut request: http::Request<Body>,
    user: Arc<User>,
    receiving: Receiving,
) -> http::Request<Body> {
    request.extensions_mut().insert::<Arc<User>>(user);
    request.map(|body| Body::new(Received::new(body, receiving)))
}

fn refused(not: NotLetIn) -> Status {
    match not {
        NotLetIn::Busy => Reason::Overloaded.status(not.to_string()),
        _ => Reason::Unauthenticated.status(not.to_string()),
    }
}
