//! What a site decides. Pure: no clock, socket, thread, file, global or random source.
//!
//! Everything here has one shape, [`Core`]: it takes inputs and gives outputs; a shell performs
//! them. The same cores run under `server` on real clocks and sockets, and under the lab in virtual
//! time on one thread.

mod admission;
pub mod bugs;
pub mod causal;
pub mod deployment;
pub mod global;
mod job;
mod machine;
mod options;
mod origin;
pub mod placement;
pub mod replica;
pub mod site;
mod stream;
pub mod trial;

use model::Time;

/// One shape for every core.
///
/// The shell's loop is: [`Core::handle`] every input there is, then [`Core::poll`] until `None` and
/// perform each output, then wait for the next input or for [`Core::deadline`], at which it calls
/// [`Core::timeout`].
pub trait Core {
    /// What happens to it.
    type Input;
    /// What it wants done.
    type Output;

    /// Takes in what happened at `now`.
    fn handle(&mut self, now: Time, input: Self::Input);

    /// Lets time pass: whatever was due by `now` happens.
    fn timeout(&mut self, now: Time);

    /// The next thing to do, until there is none.
    fn poll(&mut self) -> Option<Self::Output>;

    /// When [`Core::timeout`] must be called at the latest, by the monotonic clock.
    fn deadline(&self) -> Option<std::time::Duration>;
}
