//! The thread that writes rounds to etcd, one after the other.
//!
//! Between rounds it checks regularly that this process still owns the site, so that an idle
//! process notices a loss, too.

use super::locked::{Ended, Locked};
use super::recording::Changes;
use super::redo;
use super::rows::CutRows;
use crate::node::Event;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often an idle owner checks its ownership.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Flusher<F> {
    pub(crate) store: F,
    pub(crate) cut: CutRows,
    pub(crate) rounds: mpsc::Receiver<Changes>,
    pub(crate) events: mpsc::Sender<Event>,
}

impl<F: Locked> Flusher<F> {
    /// Runs until all senders of rounds are gone, or the site is lost. Returns the store if it is
    /// still usable.
    pub(crate) fn run(mut self) -> Option<F> {
        loop {
            let done = match self.rounds.recv_timeout(LOOK_INTERVAL) {
                Ok(changes) => {
                    let mut durable = || drop(self.events.send(Event::Flushed));
                    redo::flush(&mut self.store, &mut self.cut, &changes, &mut durable)
                }
                Err(RecvTimeoutError::Timeout) => self.store.check(),
                Err(RecvTimeoutError::Disconnected) => return Some(self.store),
            };
            let event = match done {
                Ok(()) => continue,
                Err(Ended::Lost(why)) => Event::Deposed(why),
                Err(Ended::Failed(why)) => Event::Failed(why),
                Err(Ended::Stopped) => return None,
            };
            let _ = self.events.send(event);
            return None;
        }
    }
}
