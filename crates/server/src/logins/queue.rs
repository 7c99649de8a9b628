//! The order in which passwords are verified: pure, so that it can be tested without a clock.
//!
//! Guessers must not delay clients with the right password. A login is judged by its address and by
//! the number of failed logins on its connection. Connections without a failure go first, with one
//! of the others after every few of them; within a class the addresses take turns; and each address
//! has a limit of waiting logins.

use model::limits::{LOGINS_PER_ADDRESS_MAX, LOGINS_WAITING_MAX};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// This many of the first class go before one of the second.
const FIRST_BEFORE_ONE: u32 = 4;

/// A login attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The client's address.
    pub address: IpAddr,
    /// Failed logins on this connection before.
    pub failures: u32,
}

/// The queue is full: nothing was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The logins that wait to be verified.
pub(super) struct Queue<T> {
    /// Of connections without a failure, and of the others.
    classes: [Class<T>; 2],
    /// Logins of the first class since the last one of the second.
    gone: u32,
}

/// Waiting logins by address; the addresses take turns.
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

    /// Removes the newest login of an address.
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

    /// Queues a login. If there is no room, a login of a connection with a failure is displaced by
    /// one of a connection without, and returned.
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

    /// The next login to verify.
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
    fn an_address_with_wrong_passwords_waits_behind_others() {
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
    fn an_address_with_wrong_passwords_has_a_turn_too() {
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
