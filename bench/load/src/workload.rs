//! Which key comes next, with which value, to be read or written.

use std::fmt::Write as _;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::{Options, Order};

/// Values are windows into one random buffer; this is how far a window can slide.
const SLIDE_BYTES: usize = 64 * 1024;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Put,
}

/// One request to be sent. `key` and `value` live until the next one is drawn.
pub(crate) struct Request<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    /// Empty for a get.
    pub(crate) value: &'a [u8],
}

/// So many requests a second and no more. What was not asked in time is not made up for.
struct Pace {
    per_s: f64,
    drawn: u64,
    began: Instant,
}

impl Pace {
    /// Most requests that may be behind their time, in seconds of the rate.
    const BEHIND_MAX_S: f64 = 0.01;

    fn take(&mut self) -> bool {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let due = (elapsed_s * self.per_s) as u64;
        let behind_max = (Self::BEHIND_MAX_S * self.per_s) as u64 + 1;
        self.drawn = self.drawn.max(due.saturating_sub(behind_max));
        let may = self.drawn < due;
        self.drawn += u64::from(may);
        may
    }
}

/// A seeded stream of requests, endless unless a number was asked for.
pub(crate) struct Workload {
    random: StdRng,
    order: Order,
    keys: u64,
    gets: f64,
    left: Option<u64>,
    next_key: u64,
    /// One for each slot that keys lie in; none: they lie anywhere.
    tags: Vec<String>,
    pace: Option<Pace>,
    key: String,
    bytes: Vec<u8>,
    value_bytes: usize,
}

impl Workload {
    pub(crate) fn new(options: &Options) -> Self {
        let mut random = StdRng::seed_from_u64(options.seed);
        let mut bytes = vec![0; options.value_bytes + SLIDE_BYTES];
        random.fill_bytes(&mut bytes);
        Self {
            random,
            order: options.order,
            keys: options.keys,
            gets: options.gets,
            left: options.requests,
            next_key: 0,
            tags: options.slots.map_or_else(Vec::new, |slots| slots.tags()),
            pace: options.rate_per_s.map(|per_s| Pace { per_s, drawn: 0, began: Instant::now() }),
            key: String::new(),
            bytes,
            value_bytes: options.value_bytes,
        }
    }

    /// The next request, or `None` when the number asked for has been drawn, or its time has not
    /// come.
    pub(crate) fn next(&mut self) -> Option<Request<'_>> {
        if self.pace.as_mut().is_some_and(|pace| !pace.take()) {
            return None;
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let number = match self.order {
            Order::Random => self.random.random_range(0..self.keys),
            Order::Sequential => {
                let number = self.next_key;
                self.next_key = (number + 1) % self.keys;
                number
            }
        };
        self.key.clear();
        let tag = self.tags.get(number as usize % self.tags.len().max(1));
        match tag {
            None => write!(self.key, "key:{number:012}"),
            Some(tag) => write!(self.key, "key:{{{tag}}}:{number:012}"),
        }
        .expect("a String takes everything");
        let kind = if self.gets > 0.0 && self.random.random::<f64>() < self.gets {
            Kind::Get
        } else {
            Kind::Put
        };
        let value = match kind {
            Kind::Get => &[][..],
            Kind::Put => {
                let start = self.random.random_range(0..SLIDE_BYTES);
                &self.bytes[start..start + self.value_bytes]
            }
        };
        Some(Request { kind, key: self.key.as_bytes(), value })
    }
}
