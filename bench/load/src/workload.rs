//! Which key comes next, with which value, to be read or written.

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

/// A seeded stream of requests, endless unless a number was asked for.
pub(crate) struct Workload {
    random: StdRng,
    order: Order,
    keys: u64,
    gets: f64,
    left: Option<u64>,
    next_key: u64,
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
            key: String::new(),
            bytes,
            value_bytes: options.value_bytes,
        }
    }

    /// The next request, or `None` when the number asked for has been drawn.
    pub(crate) fn next(&mut self) -> Option<Request<'_>> {
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
        std::fmt::Write::write_fmt(&mut self.key, format_args!("key:{number:012}"))
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
