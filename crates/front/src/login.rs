//! Who is calling: HTTP's Basic scheme (RFC 7617), as gRPC metadata and on the admin port.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use server::Handle;
use server::users::{PASSWORD_BYTES_MAX, USER_NAME_BYTES_MAX, User};
use std::sync::Arc;

/// What base64 makes of the longest name and password; more is not looked at.
const PAIR_BYTES_MAX: usize = 2 * (USER_NAME_BYTES_MAX + PASSWORD_BYTES_MAX);

/// Why a caller is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotLetIn {
    /// It says not who it is.
    #[error("this node has users; send `authorization: Basic base64(name:password)`")]
    Nameless,
    /// It says so in a way that is not understood.
    #[error("the authorization is not `Basic base64(name:password)`")]
    Unreadable,
    /// It is not who it says.
    #[error("the user name or the password is wrong")]
    Denied,
}

/// Who sends this `authorization` header.
pub(crate) async fn caller(handle: &Handle, header: Option<&[u8]>) -> Result<Arc<User>, NotLetIn> {
    let users = handle.users();
    if let Some(anonymous) = users.anonymous() {
        return Ok(anonymous);
    }
    let (name, password) = credentials(header.ok_or(NotLetIn::Nameless)?)?;
    if let Some(user) = users.recall(&name, password.as_bytes()) {
        return Ok(user);
    }
    let handle = handle.clone();
    let login = move || handle.users().login(&name, password.as_bytes());
    match tokio::task::spawn_blocking(login).await {
        Ok(Ok(user)) => Ok(user),
        _ => Err(NotLetIn::Denied),
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
