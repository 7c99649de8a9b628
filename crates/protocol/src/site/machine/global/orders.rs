//! Operators' orders to hand slots over, each of which bears a number.
//!
//! An operator's order goes to every site of the deployment, as only the tokens have the owners for
//! certain. Each site begins moves of the slots that it owns, remembers that under the order's
//! number, and returns its tokens of the slots. A repetition begins nothing: it returns what came
//! of the moves so far.
//!
//! ```text
//! O client sequence → row of an [`Order`]   (wire::row)
//! why: 0: as many as there were, 1: no such destination, 2: too many moves
//! slots: count of ranges (varint) ‖ (first, last (varints))*
//! ```

use super::Applying;
use super::tokens::Token;
use super::{MachineError, Stopped, tables};
use model::{
    Answer, Bytes, ClientId, Epoch, Held, Holding, MoveError, Ordered, OrderedMove, Refusal,
    RequestId, SiteId, Slot, SlotSet, limits,
};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::row;

/// The client of an order, and its number.
type Key = (ClientId, u64);

/// What came of an order here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::site::machine) struct Order {
    at_ms: u64,
    refused: Option<MoveError>,
    moves: Vec<OrderedMove>,
}

row!(Order { at_ms, refused, moves });

impl Order {
    fn is_over(&self) -> bool {
        self.moves.iter().all(|one| one.gone.is_some())
    }
}

/// The orders that are remembered.
pub(in crate::site::machine) type Orders = BTreeMap<Key, Order>;

/// All of them.
pub(in crate::site::machine) fn load(state: &impl Read) -> Result<Orders, MachineError> {
    let read = |(key, row): (Bytes, Bytes)| {
        let found = tables::parse_order(&key).zip(row::decode(&row));
        found.ok_or(MachineError::Damaged { table: tables::ORDERS as char })
    };
    super::rows(state, tables::ORDERS)?.into_iter().map(read).collect()
}

impl<S: State> Applying<'_, S> {
    /// An operator wants slots to be another site's, or this one's.
    pub(in crate::site::machine) fn order(
        &mut self,
        id: RequestId,
        slots: &SlotSet,
        to: SiteId,
    ) -> Result<Answer, Stopped> {
        let key = (id.client, id.sequence);
        let order = match self.modes.orders.get(&key) {
            Some(order) => order.clone(),
            // Its destination has nothing to move, but what it has already stays, and it is asked
            // for that.
            None if self.member()?.own == to => {
                let held: SlotSet = slots.iter().filter(|slot| self.is_held(*slot)).collect();
                self.pin(&held, true);
                Order { at_ms: 0, refused: None, moves: Vec::new() }
            }
            None => {
                self.forget_orders();
                if self.modes.orders.len() >= limits::ORDERS_REMEMBERED_MAX {
                    return Err(MoveError::TooManyMoves.into());
                }
                let order = self.begin_order(slots, to)?;
                // Nothing was done yet: asked again, it is begun.
                let is_not_ready = matches!(order.refused, Some(MoveError::NotReady(_)));
                if !is_not_ready || !order.moves.is_empty() {
                    self.set_order(key, order.clone());
                }
                order
            }
        };
        let Order { moves, refused, .. } = order;
        let holdings = self.holdings(slots);
        Ok(Answer::Ordered(Box::new(Ordered { moves, refused, holdings })))
    }

    fn begin_order(&mut self, slots: &SlotSet, to: SiteId) -> Result<Order, Stopped> {
        let at_ms = self.known.head.log_time_ms;
        let mut order = Order { at_ms, refused: None, moves: Vec::new() };
        let held: Vec<Slot> = slots.iter().filter(|slot| self.is_held(*slot)).collect();
        for some in held.chunks(limits::SLOTS_PER_MOVE_MAX) {
            match self.check_move_to(to) {
                Ok(()) => {}
                Err(Refusal::Move(error)) => {
                    order.refused = Some(error);
                    break;
                }
                Err(other) => return Err(other.into()),
            }
            let slots: SlotSet = some.iter().copied().collect();
            let number = self.give_away(slots.clone(), to, true)?;
            order.moves.push(OrderedMove { number, slots, gone: None });
        }
        Ok(order)
    }

    /// The tokens of some slots, gathered.
    fn holdings(&self, slots: &SlotSet) -> Vec<Holding> {
        let mut gathered: BTreeMap<(u8, u32, u64, Epoch), Holding> = BTreeMap::new();
        for slot in slots.iter() {
            let token = self.modes.slots.token(slot);
            let (kind, held) = match token {
                Token::Never => continue,
                Token::Held(_) => ((0, 0, 0), Held::Here),
                Token::Leaving { number, .. } => match self.modes.outgoing.get(&number) {
                    Some(one) => ((1, one.to.0, number), Held::Leaving(one.to, number)),
                    None => ((0, 0, 0), Held::Here),
                },
                Token::Gone { to, .. } => ((2, to.0, 0), Held::Gone(to)),
            };
            let (what, site, number) = kind;
            let epoch = token.epoch();
            let of = gathered.entry((what, site, number, epoch));
            let of = of.or_insert_with(|| Holding { slots: SlotSet::default(), epoch, held });
            of.slots.insert(slot);
        }
        gathered.into_values().collect()
    }

    fn set_order(&mut self, (client, sequence): Key, order: Order) {
        self.overlay.put(tables::order(client, sequence), row::encode(&order));
        self.modes.orders.insert((client, sequence), order);
    }

    /// A move is over. If an order began it, repetitions of the order return what has gone.
    pub(super) fn end_ordered(&mut self, number: u64) {
        let is_it = |one: &OrderedMove| one.number == number && one.gone.is_none();
        let found = self.modes.orders.iter().find(|(_, order)| order.moves.iter().any(is_it));
        let Some((key, order)) = found.map(|(key, order)| (*key, order.clone())) else { return };
        let mut order = order;
        for one in order.moves.iter_mut().filter(|one| is_it(one)) {
            let is_gone = |slot: &Slot| matches!(self.modes.slots.token(*slot), Token::Gone { .. });
            one.gone = Some(one.slots.iter().filter(is_gone).collect());
        }
        self.set_order(key, order);
    }

    /// Forgets orders that are over by their age, and, if there are too many, the oldest without
    /// recent repetitions.
    fn forget_orders(&mut self) {
        let now_ms = self.known.head.log_time_ms;
        let over = self.modes.orders.iter().filter(|(_, order)| order.is_over());
        let mut over: Vec<(u64, Key)> = over.map(|(key, order)| (order.at_ms, *key)).collect();
        over.sort_unstable();
        for (at_ms, (client, sequence)) in over {
            let is_full = self.modes.orders.len() >= limits::ORDERS_REMEMBERED_MAX;
            let kept_ms = match is_full {
                true => limits::ORDER_ASKED_AGAIN_MS,
                false => limits::ORDER_REMEMBERED_MS,
            };
            if at_ms.saturating_add(kept_ms) > now_ms {
                break;
            }
            self.overlay.remove(tables::order(client, sequence));
            self.modes.orders.remove(&(client, sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let slots = |text: &str| -> SlotSet { text.parse().unwrap() };
        let order = Order {
            at_ms: 300,
            refused: Some(MoveError::TooManyMoves),
            moves: vec![
                OrderedMove { number: 7, slots: slots("0-3"), gone: None },
                OrderedMove { number: 9, slots: slots("4-5,300"), gone: Some(slots("4")) },
            ],
        };
        let row = row::encode(&order);
        let expected: &[u8] =
            &[1, 0xac, 2, 1, 4, 2, 7, 1, 0, 3, 0, 9, 2, 4, 5, 0xac, 2, 0xac, 2, 1, 1, 4, 4];
        assert_eq!(row, expected);
    }
}
