//! In which order passwords are verified: pure, so that it can be tried without a clock.
//!
//! Whoever guesses must not delay whoever knows. What is known of a login is from where it comes and how
//! often its connection was wrong before. So those of connections that were not wrong go first, and one
//! of the others after every few of them; among equals the addresses take turns; and of one address only
//! so many wait.

use model::limits::{LOGINS_PER_ADDRESS_MAX, LOGINS_WAITING_MAX};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// So many of the first class go before one of the second.
const FIRST_BEFORE_ONE: u32 = 4;

/// Who wants to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// From where.
    pub address: IpAddr,
    /// How often this connection was wrong before.
    pub failures: u32,
}

/// No more can wait: nothing was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What waits to be verified.
pub(super) struct Queue<T> {
    /// Of connections that were not wrong before, and of the others.
    classes: [Class<T>; 2],
    /// How many of the first have gone since one of the others did.
    gone: u32,
}

/// Those that wait, by address; addresses in turn.
struct Class<T> {
    by_address: HashMap<IpAddr, VecDeque<T>>,
    turns: VecDeque<IpAddr>,
}

impl<T> Class<T> {
    fn len_of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, VecDeque::len)
    }

    fn push(&mut self, address: IpAddr, item: T) {
        let waiting = self.by_address.entry(address).or_default();
        if waiting.is_empty() {
            self.turns.push_back(address);
        }
        waiting.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        let address = self.turns.pop_front()?;
        let waiting = self.by_address.get_mut(&address)?;
        let item = waiting.pop_front();
        match waiting.is_empty() {
            true => drop(self.by_address.remove(&address)),
            false => self.turns.push_back(address),
        }
        item
    }

    /// Takes back what came last from an address.
    fn pop_last_of(&mut self, address: IpAddr) -> Option<T> {
        let waiting = self.by_address.get_mut(&address)?;
        let item = waiting.pop_back();
        if waiting.is_empty() {
            self.by_address.remove(&address);
            self.turns.retain(|turn| *turn != address);
        }
        item
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        let class = || Class { by_address: HashMap::new(), turns: VecDeque::new() };
        Queue { classes: [class(), class()], gone: 0 }
    }
}

impl<T> Queue<T> {
    pub(super) fn len(&self) -> usize {
        let of = |class: &Class<T>| class.by_address.values().map(VecDeque::len).sum::<usize>();
        self.classes.iter().map(of).sum()
    }

    /// Lets it wait. Where it finds no room, one of a connection that was wrong before gives way to one
    /// that was not: that is handed back.
    pub(super) fn push(&mut self, attempt: Attempt, item: T) -> Result<Option<T>, Full> {
        let Attempt { address, failures } = attempt;
        let of_address: usize = self.classes.iter().map(|class| class.len_of(address)).sum();
        let mut displaced = None;
        if of_address >= LOGINS_PER_ADDRESS_MAX || self.len() >= LOGINS_WAITING_MAX {
            if failures > 0 {
                return Err(Full);
            }
            // Of the same address if that has too many, else of any.
            let again = &mut self.classes[1];
            let of_whom = match of_address >= LOGINS_PER_ADDRESS_MAX {
                true => Some(address),
                false => again.turns.back().copied(),
            };
            displaced = of_whom.and_then(|address| again.pop_last_of(address));
            if displaced.is_none() {
                return Err(Full);
            }
        }
        self.classes[usize::from(failures > 0)].push(address, item);
        Ok(displaced)
    }

    /// What is verified next.
    pub(super) fn pop(&mut self) -> Option<T> {
        let [first, again] = &mut self.classes;
        if self.gone >= FIRST_BEFORE_ONE
            && let Some(item) = again.pop()
        {
            self.gone = 0;
            return Some(item);
        }
        match first.pop() {
            Some(item) => {
                self.gone += 1;
                Some(item)
            }
            None => again.pop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8, failures: u32) -> Attempt {
        Attempt { address: IpAddr::from([10, 0, 0, last]), failures }
    }

    fn drain(queue: &mut Queue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn who_was_wrong_before_lets_others_go_first() {
        let mut queue = Queue::default();
        for _ in 0..LOGINS_PER_ADDRESS_MAX - 1 {
            assert_eq!(queue.push(from(1, 1), "wrong"), Ok(None));
        }
        queue.push(from(1, 0), "right").unwrap();
        assert_eq!(queue.pop(), Some("right"), "even from the same address");
    }

    #[test]
    fn addresses_take_turns() {
        let mut queue = Queue::default();
        for _ in 0..5 {
            queue.push(from(1, 0), "many").unwrap();
        }
        queue.push(from(2, 0), "one").unwrap();
        assert_eq!(drain(&mut queue), ["many", "one", "many", "many", "many", "many"]);
    }

    #[test]
    fn who_was_wrong_has_a_turn_too() {
        let mut queue = Queue::default();
        queue.push(from(1, 3), "again").unwrap();
        for _ in 0..6 {
            queue.push(from(2, 0), "first").unwrap();
        }
        let order = drain(&mut queue);
        assert_eq!(order.iter().position(|one| *one == "again"), Some(4), "{order:?}");
    }

    #[test]
    fn an_address_has_so_many_and_what_was_wrong_gives_way() {
        let mut queue = Queue::default();
        for _ in 0..LOGINS_PER_ADDRESS_MAX - 1 {
            queue.push(from(1, 0), "first").unwrap();
        }
        queue.push(from(1, 1), "again").unwrap();
        assert_eq!(queue.push(from(1, 1), "more"), Err(Full));
        assert_eq!(queue.push(from(1, 0), "right"), Ok(Some("again")), "it gives way");
        assert_eq!(queue.push(from(1, 0), "more"), Err(Full));
        assert_eq!(queue.push(from(2, 5), "another"), Ok(None), "others are not concerned");
        assert_eq!(queue.len(), LOGINS_PER_ADDRESS_MAX + 1);
    }

    #[test]
    fn all_addresses_together_have_so_many() {
        let mut queue = Queue::default();
        let last = |number: usize| (number / LOGINS_PER_ADDRESS_MAX) as u8;
        for number in 0..LOGINS_WAITING_MAX {
            queue.push(from(last(number), 1), "again").unwrap();
        }
        assert_eq!(queue.push(from(255, 1), "more"), Err(Full));
        assert_eq!(queue.push(from(255, 0), "right"), Ok(Some("again")));
        assert_eq!(queue.pop(), Some("right"));
        assert_eq!(drain(&mut queue).len(), LOGINS_WAITING_MAX - 1);
    }
}
