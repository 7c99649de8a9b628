//! Logins: AUTH and HELLO.
//!
//! A password that was verified before is accepted at once; any other is verified on another thread
//! ([`server::logins`]), since that takes tens of milliseconds on purpose.

use super::commands::connection::{Credentials, Hello, write_hello};
use super::connection::Connection;
use super::refused::Refused;
use server::logins::LoginError;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::{Encoder, Frame};

const WRONG_PASSWORD: Refused =
    Refused::because("WRONGPASS invalid username-password pair or user is disabled.");

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Logs in. `is_bare`: the command had a password only.
    pub(super) async fn login(
        &mut self,
        credentials: Credentials,
        is_bare: bool,
    ) -> Result<(), Refused> {
        let handle = self.thread.handle.clone();
        let Credentials { user, password } = credentials;
        if let Some(anonymous) = handle.users().anonymous() {
            return match (is_bare, user == anonymous.name()) {
                (true, _) => Err(Refused::because(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                )),
                (false, true) => Ok(()),
                (false, false) => Err(WRONG_PASSWORD),
            };
        }
        let user = {
            let permit = self.session.permit();
            let _logs_in = permit.logs_in();
            let user = handle.login(permit.attempt(), user, password).await;
            match &user {
                Ok(_) => permit.admit(),
                Err(LoginError::Denied(_)) => permit.was_wrong(),
                Err(LoginError::Busy) => {}
            }
            user
        };
        self.session.set_user(user.map_err(|error| match error {
            LoginError::Denied(_) => WRONG_PASSWORD,
            LoginError::Busy => Refused(format!("TRYAGAIN {error}").into()),
        })?);
        Ok(())
    }

    pub(super) async fn hello(&mut self, frame: &Frame) -> Result<(), Refused> {
        let Hello { version, credentials, name } = Hello::of(frame)?;
        if let Some(credentials) = credentials {
            self.login(credentials, false).await?;
        }
        if self.session.user.is_none() {
            return Err(Refused::because(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
                 and select the RESP protocol version at the same time",
            ));
        }
        if let Some(name) = name {
            self.session.set_name(name);
        }
        self.session.version = version.unwrap_or(self.session.version);
        let mut out = Encoder::new(&mut self.replies, self.session.version);
        write_hello(&self.session, &mut out);
        Ok(())
    }
}
