//! The same stores in real time, in one thread: what their protocols cost a processor.
//!
//! The code of the protocols, the delays of the links and the timers are those of virtual time. What
//! happens takes as long as it takes, not what [`Costs`] assumes, and each message is a frame of its
//! size on a real way ([`Reality::carry`]): its metadata, a key, and a value of two bytes, as the
//! paper's. When the thread is late, so is all that is due.
//!
//! All sites share the one core. So with enough clients the rate of a store is what it does for each
//! second of that core, and of two stores the one with more work for an operation has the lower
//! one.
//!
//! *Left out:* what is written to disk, and the encoding of messages: a frame has about the size (of
//! a key and a value more where a message has none), not the content. What the run itself takes for a
//! message (its queue, its clients) counts for all stores alike, and brings their rates closer.

use super::layout::Costs;
use super::net::{Modelled, Protocol, Spent, Visible};
use super::{Answer, Ask, KEY_BYTES, Store, Version};

/// Bytes of a value.
const VALUE_BYTES: u64 = 2;

/// What a run in real time has from outside.
pub trait Reality {
    /// How long it has been running.
    fn now_us(&mut self) -> u64;
    /// Waits until that time.
    fn wait_until(&mut self, at_us: u64);
    /// Sends a frame of so many bytes, and receives it.
    fn carry(&mut self, bytes: u64);
}

/// A modelled store in real time.
pub struct InRealTime<'r, P: Protocol> {
    store: Modelled<P>,
    reality: &'r mut dyn Reality,
    now_us: u64,
    waited_us: u64,
}

impl<'r, P: Protocol> InRealTime<'r, P> {
    /// A store whose layout has no assumed costs ([`Costs::none`]).
    pub fn new(store: Modelled<P>, reality: &'r mut dyn Reality) -> InRealTime<'r, P> {
        InRealTime { store, reality, now_us: 0, waited_us: 0 }
    }
}

impl Costs {
    /// Nothing costs anything but what it takes.
    #[must_use]
    pub fn none() -> Costs {
        let Costs { cores, beat_us, snapshot_us, .. } = Costs::default();
        Costs {
            cores,
            read_us: 0.0,
            write_us: 0.0,
            apply_us: 0.0,
            payload_us: 0.0,
            export_us: 0.0,
            import_us: 0.0,
            order_us: 0.0,
            dependency_us: 0.0,
            waiting_us: 0.0,
            attach_us: 0.0,
            beat_us,
            snapshot_us,
        }
    }
}

impl<P: Protocol> Store for InRealTime<'_, P> {
    fn ask(&mut self, at_us: u64, client: usize, ask: Ask) {
        self.store.ask(at_us, client, ask);
    }

    fn advance(&mut self, until_us: u64) -> Option<Answer> {
        loop {
            if let Some(answer) = self.store.answer() {
                return Some(answer);
            }
            let now_us = self.reality.now_us();
            self.now_us = now_us;
            if now_us > until_us {
                return None;
            }
            match self.store.step(now_us, Some(now_us)) {
                Some(Some(metadata_bytes)) => {
                    self.reality.carry(metadata_bytes + KEY_BYTES + VALUE_BYTES);
                }
                Some(None) => {}
                None => {
                    let next_us = self.store.next_us().unwrap_or(until_us + 1);
                    self.reality.wait_until(next_us.min(until_us + 1));
                    self.waited_us += self.reality.now_us().saturating_sub(now_us);
                }
            }
        }
    }

    /// What the core was busy for is what did not pass in waiting.
    fn spent(&self) -> Spent {
        let cpu_us = self.now_us.saturating_sub(self.waited_us) as f64;
        Spent { cpu_us, ..self.store.spent() }
    }

    fn take_visible(&mut self) -> Vec<Visible> {
        self.store.take_visible()
    }

    fn order(&self) -> Vec<Version> {
        self.store.order()
    }

    fn shows(&self, site: usize, key: u32) -> Version {
        self.store.shows(site, key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::eventual::Eventual;
    use super::super::play::{Load, play};
    use super::super::{Layout, gesto};
    use super::*;

    /// Time passes with each message, and when it is waited for.
    #[derive(Default)]
    struct Counted {
        now_us: u64,
        waited_us: u64,
        frames: u64,
        bytes: u64,
    }

    impl Reality for Counted {
        fn now_us(&mut self) -> u64 {
            self.now_us
        }

        fn wait_until(&mut self, at_us: u64) {
            let waits_us = at_us.saturating_sub(self.now_us);
            (self.now_us, self.waited_us) = (self.now_us + waits_us, self.waited_us + waits_us);
        }

        fn carry(&mut self, bytes: u64) {
            self.now_us += 5;
            (self.frames, self.bytes) = (self.frames + 1, self.bytes + bytes);
        }
    }

    fn load() -> Load {
        Load {
            movers_every: 2,
            reads_a_full_write: 9,
            warm_us: 0,
            measured_us: 200_000,
            seed: 1,
            has_history: false,
        }
    }

    #[test]
    fn what_is_late_happens_late_and_each_message_is_a_frame() {
        let layout = Layout { costs: Costs::none(), ..Layout::table_one(40) };
        let (mut one, mut other) = (Counted::default(), Counted::default());
        let rate = |measured: crate::baselines::play::Measured| measured.rate_hz();
        let eventual = {
            let store = Modelled::new(layout.clone(), Eventual::new(&layout));
            rate(play(&mut InRealTime::new(store, &mut one), &layout, load()))
        };
        let gesto = {
            let store = gesto::Gesto::new(&layout, gesto::Attach::Paper);
            let store = Modelled::new(layout.clone(), store);
            rate(play(&mut InRealTime::new(store, &mut other), &layout, load()))
        };
        for reality in [&one, &other] {
            assert!(reality.now_us >= 200_000 && reality.waited_us < 100_000, "it is busy");
            assert!(reality.bytes >= 10 * reality.frames);
        }
        assert!(gesto < eventual, "{gesto} against {eventual}: it has more messages");
    }
}
