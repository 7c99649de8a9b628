//! How a command ends when it does not succeed: a sentence on the standard error, and a code that a
//! script can decide by.

use crate::demo::DemoError;
use client::{ConnectError, Error};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The codes; the help of the command line explains them.
const NO: u8 = 1;
const USAGE: u8 = 2;
const REFUSED: u8 = 3;
const UNAVAILABLE: u8 = 4;
const UNKNOWN: u8 = 5;
const CANNOT_SERVE: u8 = 6;

/// Why a command does not end with 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    code: u8,
    /// `None`: the exit code is enough.
    message: Option<String>,
}

impl Failed {
    /// The answer is no.
    pub(crate) fn no(message: Option<String>) -> Failed {
        Failed { code: NO, message }
    }

    /// It may have been done, in part or altogether, or be done yet.
    pub(crate) fn unknown(message: String) -> Failed {
        Failed { code: UNKNOWN, message: Some(message) }
    }

    /// The command line cannot be followed.
    pub(crate) fn usage(message: impl ToString) -> Failed {
        Failed { code: USAGE, message: Some(message.to_string()) }
    }

    /// The key, or something else that is there, cannot be used so.
    pub(crate) fn refused(message: impl ToString) -> Failed {
        Failed { code: REFUSED, message: Some(message.to_string()) }
    }

    /// A node cannot start or go on, or a file cannot be used.
    pub(crate) fn cannot_serve(cause: impl ToString) -> Failed {
        Failed { code: CANNOT_SERVE, message: Some(cause.to_string()) }
    }

    /// No server could do it in time; nothing was done.
    pub(crate) fn unavailable(cause: impl ToString) -> Failed {
        Failed { code: UNAVAILABLE, message: Some(cause.to_string()) }
    }

    /// Reports it to the user, and to the shell.
    pub(crate) fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            // If even this cannot be written, the exit code is left.
            let _ = writeln!(io::stderr(), "portolan: {message}");
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let code = match error {
            Error::Unknown(_) => UNKNOWN,
            Error::Unavailable(_) | Error::Exhausted(_) => UNAVAILABLE,
            Error::Refused { .. }
            | Error::Invalid(_)
            | Error::Unauthenticated(_)
            | Error::Denied(_) => REFUSED,
        };
        let hint = match error {
            Error::Unauthenticated(_) => " (use --user, and PORTOLAN_PASSWORD or --password-file)",
            Error::Unavailable(_) => " (is --server the gRPC port of a node that runs?)",
            _ => "",
        };
        Failed { code, message: Some(format!("{error}{hint}")) }
    }
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Failed {
        let flag = match error {
            ConnectError::NoNode | ConnectError::Address { .. } => "--server",
            ConnectError::Credentials => "--user",
            ConnectError::Tls(_) => "--tls-ca, --tls-cert, --tls-key",
            // No command gives one.
            ConnectError::Name => "name",
        };
        Failed::usage(format!("{flag}: {error}"))
    }
}

impl From<DemoError> for Failed {
    fn from(error: DemoError) -> Failed {
        match error {
            DemoError::World(_) | DemoError::Trace { .. } | DemoError::NoVehicles { .. } => {
                Failed::usage(error)
            }
            _ => Failed::cannot_serve(error),
        }
    }
}

impl From<io::Error> for Failed {
    /// Writing to the standard output failed. A reader that has seen enough (`| head`) is no error.
    fn from(error: io::Error) -> Failed {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failed { code: 0, message: None },
            _ => Failed::cannot_serve(format!("cannot write the output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_has_a_code_of_its_own() {
        assert_eq!(Failed::from(Error::Unknown("late".into())).code, UNKNOWN);
        assert_eq!(Failed::from(Error::Unavailable("down".into())).code, UNAVAILABLE);
        assert_eq!(Failed::from(Error::Denied("no".into())).code, REFUSED);
        assert_eq!(Failed::from(io::Error::from(io::ErrorKind::BrokenPipe)).code, 0);
    }
}
