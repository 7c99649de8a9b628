//! A site that takes only so many bytes: what it has room for, and the price of a byte.
//!
//! Owners that would lend it a group for which there is no room send a *bid*: the group's bytes, and
//! what each of them would spare its users here. The site keeps what is worth the most: for a bid it
//! gives back groups that are worth less by a margin, those worth the least first, if the bid has
//! room then and is worth more than all of them together. What finds no room raises the price to its
//! value, so that such groups go to their next best site instead of asking again. At the end of a
//! window a price that nothing raises goes half of the way to what a place costs now: what the group
//! that is worth the least spares, or nothing where there is room.
//!
//! This is the auction of [`super::auction`] between sites that know each other's groups by bids
//! alone. Room is not kept for a bid: a command takes in what comes, and refuses what exceeds the
//! limit.

/// The part of the way that a price goes to what a place costs now.
const STEP: f32 = 0.5;
/// A price of a megabyte below this moves nothing.
const LEAST: f32 = 1e-9;
/// A site has room if it has this share of its limit.
const FREE_SHARE: u64 = 20;

/// A group that would be lent to a site, or is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bid {
    /// What it takes.
    pub bytes: u64,
    /// What each byte spares users there, in ms of waiting a second.
    pub value: f32,
}

impl Bid {
    fn worth(self) -> f64 {
        self.bytes as f64 * f64::from(self.value)
    }
}

/// A group that a site has borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incumbent {
    /// What it takes, and what a byte of it spares its users here.
    pub bid: Bid,
    /// How many of its accesses were counted: so certain is that.
    pub counted: f32,
}

impl Incumbent {
    /// At what value its place is held. `margin`: a share; `sigmas`: of the error of its count.
    fn held_at(&self, margin: f32, sigmas: f32) -> Bid {
        let share = 1.0 + margin + sigmas / (self.counted + 1.0).sqrt();
        Bid { value: self.bid.value.max(0.0) * share, ..self.bid }
    }
}

/// What comes of the bids for a site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admitted {
    /// The incumbents that are given back, by their places.
    pub evicted: Vec<usize>,
    /// The highest value that found no room; 0: none.
    pub refused: f32,
    /// The least value of an incumbent that stays.
    pub lowest: Option<f32>,
    /// The bytes that are free, once all of that is done.
    pub free_bytes: u64,
}

/// Makes room for bids. `held_bytes`: of all that stays.
pub fn admit(
    incumbents: &[Incumbent],
    mut bids: Vec<Bid>,
    (limit_bytes, held_bytes): (u64, u64),
    (margin, sigmas): (f32, f32),
) -> Admitted {
    let held = incumbents.iter().map(|one| one.held_at(margin, sigmas)).enumerate();
    let mut held: Vec<(usize, Bid)> = held.collect();
    // The least worth comes last, and goes first.
    held.sort_by(|a, b| b.1.value.total_cmp(&a.1.value).then(a.0.cmp(&b.0)));
    bids.sort_by(|a, b| b.value.total_cmp(&a.value));
    let mut admitted = Admitted::default();
    // What is held above the limit, as groups have grown, is given back whatever it is worth.
    let mut free = limit_bytes as i128 - held_bytes as i128;
    while free < 0
        && let Some((index, one)) = held.pop()
    {
        free += i128::from(one.bytes);
        admitted.evicted.push(index);
    }
    for bid in bids {
        let bytes = i128::from(bid.bytes);
        let (mut room, mut lost) = (free, 0.0);
        let mut kept = held.len();
        while room < bytes && kept > 0 && held[kept - 1].1.value < bid.value {
            kept -= 1;
            room += i128::from(held[kept].1.bytes);
            lost += held[kept].1.worth();
        }
        if room >= bytes && lost < bid.worth() {
            admitted.evicted.extend(held.drain(kept..).rev().map(|(index, _)| index));
            free = room - bytes;
        } else {
            admitted.refused = admitted.refused.max(bid.value);
        }
    }
    admitted.lowest = held.last().map(|(index, _)| incumbents[*index].bid.value);
    admitted.free_bytes = free.max(0) as u64;
    admitted
}

/// The next price of a byte. `ends_window`: it may fall.
pub fn next_price(price: f32, admitted: &Admitted, limit_bytes: u64, ends_window: bool) -> f32 {
    let has_room = admitted.free_bytes >= limit_bytes / FREE_SHARE;
    // Where there is room a large group may find none: the price would keep small ones away.
    let refused = if has_room { 0.0 } else { admitted.refused };
    if refused > price || !ends_window {
        return refused.max(price);
    }
    let towards = if has_room { 0.0 } else { admitted.lowest.unwrap_or(0.0).max(0.0) };
    let next = price + STEP * (towards - price);
    if next * 1e6 < LEAST { 0.0 } else { next }
}
