//! Verifies passwords on a few threads of their own, in the order of [`queue`]. A waiting login
//! delays no client that has logged in, and a flood of guesses costs these threads and the memory
//! of one argon2 run each, never more.
//!
//! The threads exist only while there are passwords to verify.

mod queue;

pub use queue::Attempt;
use queue::{Full, Queue};

use crate::users::{Denied, User, Users};
use model::limits::LOGIN_THREADS_MAX;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// User name or password is wrong.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Too many passwords wait to be verified. This one was not looked at.
    #[error("too many logins wait to be verified, from this address or altogether: try again")]
    Busy,
}

/// The waiting passwords, and the number of running threads.
pub(crate) struct Logins {
    state: Arc<Mutex<State>>,
    users: Arc<Users>,
}

#[derive(Default)]
struct State {
    queue: Queue<Waiting>,
    threads: usize,
}

struct Waiting {
    name: String,
    password: Vec<u8>,
    answer: oneshot::Sender<Result<Arc<User>, LoginError>>,
}

impl Logins {
    pub(crate) fn new(users: Arc<Users>) -> Logins {
        Logins { state: Arc::default(), users }
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Whether this is the user's password.
    pub(crate) async fn verify(
        &self,
        attempt: Attempt,
        name: String,
        password: Vec<u8>,
    ) -> Result<Arc<User>, LoginError> {
        let (answer, answered) = oneshot::channel();
        self.enqueue(attempt, Waiting { name, password, answer })?;
        // No thread could be started, or it panicked.
        answered.await.unwrap_or(Err(LoginError::Busy))
    }

    fn enqueue(&self, attempt: Attempt, waiting: Waiting) -> Result<(), LoginError> {
        let mut state = lock(&self.state);
        let displaced = state.queue.push(attempt, waiting).map_err(|Full| LoginError::Busy)?;
        if let Some(Waiting { answer, .. }) = displaced {
            // The waiting client may have disconnected.
            let _ = answer.send(Err(LoginError::Busy));
        }
        if state.threads < LOGIN_THREADS_MAX {
            state.threads += 1;
            let (shared, users) = (self.state.clone(), self.users.clone());
            let work = move || work(&shared, &users);
            let spawned = std::thread::Builder::new().name("logins".to_owned()).spawn(work);
            if let Err(error) = spawned {
                state.threads -= 1;
                tracing::warn!("the system refuses a thread for logins: {error}");
                if state.threads == 0 {
                    // No thread is left to verify these.
                    state.queue = Queue::default();
                }
            }
        }
        Ok(())
    }
}

/// Verifies until nothing waits.
fn work(state: &Mutex<State>, users: &Users) {
    loop {
        let next = {
            let mut state = lock(state);
            let next = state.queue.pop();
            if next.is_none() {
                state.threads -= 1;
            }
            next
        };
        let Some(Waiting { name, password, answer }) = next else { return };
        // Skipped if the client has disconnected.
        if !answer.is_closed() {
            let verified = users.login(&name, &password).map_err(LoginError::Denied);
            let _ = answer.send(verified);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{UserConfig, hash_password};
    use model::limits::LOGINS_PER_ADDRESS_MAX;
    use std::net::IpAddr;

    fn logins() -> Logins {
        let hash = hash_password(b"secret", [7; 16]).unwrap();
        let fleet = UserConfig { name: "fleet".into(), password_hash: hash, rights: vec![] };
        Logins::new(Arc::new(Users::new(&[fleet], [1; 32])))
    }

    fn attempt(failures: u32) -> Attempt {
        Attempt { address: IpAddr::from([127, 0, 0, 1]), failures }
    }

    #[test]
    fn fifty_wrong_passwords_do_not_hold_up_a_right_one() {
        let logins = logins();
        // No thread runs until all passwords are queued.
        lock(&logins.state).threads = LOGIN_THREADS_MAX;
        let begin = |failures, password: &str| {
            let (answer, answered) = oneshot::channel();
            let waiting = Waiting { name: "fleet".into(), password: password.into(), answer };
            logins.enqueue(attempt(failures), waiting).map(|()| answered)
        };
        let mut wrong: Vec<_> = (0..50).filter_map(|_| begin(1, "wrong").ok()).collect();
        assert_eq!(wrong.len(), LOGINS_PER_ADDRESS_MAX, "the others are refused as busy");
        let mut right = begin(0, "secret").expect("one that was wrong gives way");
        assert_eq!(wrong.pop().unwrap().try_recv(), Ok(Err(LoginError::Busy)));
        let first = lock(&logins.state).queue.pop().expect("something waits");
        assert_eq!(first.password, b"secret", "it is the next one");
        lock(&logins.state).queue.push(attempt(0), first).map_err(|_| "full").unwrap();
        work(&logins.state, &logins.users);
        assert_eq!(right.try_recv().unwrap().unwrap().name(), "fleet");
        for mut one in wrong {
            assert_eq!(one.try_recv(), Ok(Err(LoginError::Denied(Denied))));
        }
    }

    #[tokio::test]
    async fn an_unknown_user_is_denied_as_a_wrong_password_is() {
        let logins = logins();
        for (name, password) in [("fleet", "wrong"), ("stranger", "secret"), ("", "")] {
            let denied = logins.verify(attempt(0), name.into(), password.into()).await;
            assert_eq!(denied, Err(LoginError::Denied(Denied)), "{name}");
        }
        assert!(logins.verify(attempt(0), "fleet".into(), "secret".into()).await.is_ok());
    }
}
