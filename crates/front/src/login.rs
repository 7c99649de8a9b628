//! Identifies callers by HTTP's Basic scheme (RFC 7617), as gRPC metadata and on the admin port.

use crate::permits::Permit;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use server::Handle;
use server::logins::LoginError;
use server::users::{PASSWORD_BYTES_MAX, USER_NAME_BYTES_MAX, User};
use std::sync::Arc;

/// The base64 length of the longest name and password; longer values are refused unread.
const PAIR_BYTES_MAX: usize = 2 * (USER_NAME_BYTES_MAX + PASSWORD_BYTES_MAX);

/// Why a caller is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotLetIn {
    /// It sends no credentials.
    #[error("this node has users; send `authorization: Basic base64(name:password)`")]
    Nameless,
    /// Its credentials are malformed.
    #[error("the authorization is not `Basic base64(name:password)`")]
    Unreadable,
    /// User name or password is wrong.
    #[error("the user name or the password is wrong")]
    Denied,
    /// Too many logins wait.
    #[error("{}", LoginError::Busy)]
    Busy,
}

/// The user of this `authorization` header, on the connection with this permit, if that takes no
/// time: there are no users, or the password was verified before.
pub(crate) fn known(handle: &Handle, permit: &Permit, header: Option<&[u8]>) -> Option<Arc<User>> {
    let user = match handle.users().anonymous() {
        Some(anonymous) => anonymous,
        None => {
            let (name, password) = credentials(header?).ok()?;
            handle.recall(&name, password.as_bytes())?
        }
    };
    permit.admit();
    Some(user)
}

/// The user of this `authorization` header, on the connection with this permit.
pub(crate) async fn caller(
    handle: &Handle,
    permit: &Permit,
    header: Option<&[u8]>,
) -> Result<Arc<User>, NotLetIn> {
    if let Some(user) = known(handle, permit, header) {
        return Ok(user);
    }
    let logs_in = permit.logs_in();
    let (name, password) = credentials(header.ok_or(NotLetIn::Nameless)?)?;
    let user = handle.login(permit.attempt(), name, password.into_bytes()).await;
    match user {
        Ok(user) => {
            permit.admit();
            drop(logs_in);
            Ok(user)
        }
        Err(LoginError::Denied(_)) => {
            permit.was_wrong();
            Err(NotLetIn::Denied)
        }
        Err(LoginError::Busy) => Err(NotLetIn::Busy),
    }
}

fn credentials(header: &[u8]) -> Result<(String, String), NotLetIn> {
    const SCHEME: &[u8] = b"basic ";
    let (scheme, pair) = header.split_at_checked(SCHEME.len()).ok_or(NotLetIn::Unreadable)?;
    if !scheme.eq_ignore_ascii_case(SCHEME) || pair.len() > PAIR_BYTES_MAX {
        return Err(NotLetIn::Unreadable);
    }
    let pair = STANDARD.decode(pair.trim_ascii()).map_err(|_| NotLetIn::Unreadable)?;
    let pair = String::from_utf8(pair).map_err(|_| NotLetIn::Unreadable)?;
    let (name, password) = pair.split_once(':').ok_or(NotLetIn::Unreadable)?;
    Ok((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_is_understood_and_nothing_else() {
        let pair = |name: &str, password: &str| Ok((name.to_owned(), password.to_owned()));
        assert_eq!(credentials(b"Basic YTpi"), pair("a", "b"));
        assert_eq!(credentials(b"basic YTpiOmM="), pair("a", "b:c"), "only the first colon parts");
        for unreadable in
            ["", "Basic", "Basic ", "Bearer YTpi", "Basic !!", "Basic YWI=", "Basic //8="]
        {
            assert_eq!(
                credentials(unreadable.as_bytes()),
                Err(NotLetIn::Unreadable),
                "{unreadable}"
            );
        }
        let long = [b"Basic ", &[b'Y'; 2 * PAIR_BYTES_MAX][..]].concat();
        assert_eq!(credentials(&long), Err(NotLetIn::Unreadable));
    }
}
