//! The order, as long as a site needs it, and new keys for sites that need what is gone; at the
//! root's leader.
//!
//! *Trimming.* The root drops what every site has imported. How far each is its leader reports,
//! again after each change of leaders ([`wire::causal::Reached`]): what a site has imported is
//! durable there and never less, so that an old report does no harm and nothing of it has to be
//! kept. A site that has not reported yet is waited for. Past a limit of bytes
//! ([`model::limits::CAUSAL_ORDER_KEPT_BYTES_MAX`]) the order is trimmed whatever sites lack, so
//! that one that stays away does not stop all. A site that lacks what is gone holds nothing up: it
//! gets its keys anew. The root itself has imported all that goes.
//!
//! *Resync.* A site that reports a position below the trimmed part is sent the root's records, key
//! by key, and the order from the beginning on, a chunk of each in turn, as a stream
//! ([`crate::stream`]); what the site does with them is in `site::machine::causal::resync`. Three
//! rules make what it has in the end the order up to one position:
//!
//! - no record is read that is older than the order sent before it: while there are records to
//!   send, the order goes no further than the root has imported;
//! - the order goes at least as far as the root had imported when the last record was read;
//! - it goes as far as the last write that the root itself had made by then, as a record shows it
//!   before it has a position.
//!
//! In a region beside others the site also gets the order from before the beginning that other
//! regions have not taken: it may be the root one day.
//!
//! The site keeps where the source goes on beside what it has, so that another leader of the root
//! goes on there. If the order was trimmed beyond, the site drops what it has, and it begins anew.
//! What is sent of a resync counts as imported for trimming.
//!
//! Idle when every site has imported what there is.

use super::reports::Reported;
use super::trial::{Bug, Planted};
use super::{AGAIN, Durable, Part, Region};
use crate::job::Effect;
use crate::stream::sender::{Chunk, Event, Outbox, Sender, Stage};
use model::{
    Answer, Bytes, CausalCommand, Command, Failure, KeyspaceId, Position, Resync as Step,
    ResyncItem, Revision, SiteId, limits,
};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::causal::Reached;
use wire::row;
use wire::row::{Code, EntryError, Input, Rest};

/// So many places at least are trimmed at once, or what there is after this time.
const TRIMMED_MIN: u64 = 4_096;
const TRIM_PAUSE: Duration = Duration::from_secs(1);
/// … while there is much of it. What is kept is not read more often either.
const TRIM_PAUSE_MIN: Duration = Duration::from_millis(20);
/// A part of an order that goes on elsewhere is dropped so often.
const CLEAR_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the order that are looked at when more of it is kept than may be.
const TRIM_BYTES: usize = 1 << 20;
/// A site that has reported nothing for so long is away.
const AWAY: Duration = Duration::from_secs(10);

/// Where a source goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    start: Position,
    /// The order was sent up to there.
    sent: Position,
    /// The order must be sent so far: what the root had imported, and had written, at its last
    /// record.
    upto: Position,
    written: Revision,
    records: Left,
}

/// Which records are left to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Left {
    /// The order behind this place, up to the beginning, goes first.
    EarlierAfter(Position),
    #[default]
    All,
    After(KeyspaceId, Bytes),
    None,
}

row!(Place { start, sent, upto, written, records });

impl Code for Left {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Left::All => out.push(0),
            Left::After(keyspace, key) => {
                out.push(1);
                (*keyspace, Rest(key.clone())).put(out);
            }
            Left::None => out.push(2),
            Left::EarlierAfter(after) => {
                out.push(3);
                after.put(out);
            }
        }
    }

    fn take(from: &mut Input) -> Result<Left, EntryError> {
        Ok(match from.byte()? {
            0 => Left::All,
            1 => {
                let (keyspace, Rest(key)) = Code::take(from)?;
                Left::After(keyspace, key)
            }
            2 => Left::None,
            3 => Left::EarlierAfter(Code::take(from)?),
            _ => return Err(from.malformed("rest of the records")),
        })
    }
}

/// A site that is brought up.
#[derive(Debug)]
struct Transfer {
    sender: Sender<Position>,
    place: Place,
    /// How far the site must get at least: the root keeps the order from there on.
    floor: Position,
    /// What the site has for sure of the order.
    acknowledged: Position,
    /// Of one that is to begin: the end of the order, and the site's last write in it, until that
    /// is released.
    from: Option<(Position, Revision)>,
    /// How far the order must go, once it is known which position the root's last write has.
    end: Option<Position>,
    /// How many records were sent.
    records: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Report {
    applied: Position,
    at: Duration,
    reported: Reported,
}

/// How much is kept, and sent at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of the order, for sites that are away.
    pub(crate) kept_bytes_max: u64,
    /// Of the records and of the order in a chunk, each, about.
    pub(crate) chunk_bytes_max: usize,
}

/// What a root's leader has about the sites, for trimming and resyncs.
#[derive(Debug)]
pub(crate) struct Resync {
    planted: Planted,
    sizes: Sizes,
    epoch: u16,
    reports: BTreeMap<SiteId, Report>,
    transfers: BTreeMap<SiteId, Transfer>,
    last_id: u64,
    trimmed: Duration,
    sent_bytes: u64,
}

impl Resync {
    pub(crate) fn new(sizes: Sizes, planted: Planted) -> Resync {
        Resync {
            planted,
            sizes,
            epoch: 0,
            reports: BTreeMap::new(),
            transfers: BTreeMap::new(),
            last_id: 0,
            trimmed: Duration::ZERO,
            sent_bytes: 0,
        }
    }

    /// The next steps.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> Vec<Effect> {
        if !region.orders() || self.epoch != region.epoch {
            self.stop();
            self.epoch = region.epoch;
        }
        let mut effects = Vec::new();
        if !region.is_root() {
            return self.clear(now, state, region).into_iter().collect();
        }
        if !region.has_begun {
            return effects;
        }
        self.reports.retain(|site, _| region.layout.sites.contains(site));
        let trimmed = state.trimmed_upto();
        for (site, report) in &self.reports {
            if report.applied < trimmed && report.at + AWAY > now {
                let new = || Transfer::new(now);
                self.transfers.entry(*site).or_insert_with(new);
            }
        }
        let reports = &self.reports;
        self.transfers.retain(|site, _| {
            let lacks = |report: &Report| report.applied < trimmed && report.at + AWAY > now;
            reports.get(site).is_some_and(lacks)
        });
        for (to, transfer) in &mut self.transfers {
            let mut out =
                Outbox { now, to: *to, last_id: &mut self.last_id, effects: &mut effects };
            let before = transfer.sender.sent_bytes();
            transfer.poll(&mut out, state, region, self.sizes.chunk_bytes_max, self.planted);
            self.sent_bytes += transfer.sender.sent_bytes() - before;
        }
        effects.extend(self.trim(now, state, region));
        effects
    }

    /// What is left of an order that another site goes on with.
    fn clear(&mut self, now: Duration, state: &impl Durable, region: &Region) -> Option<Effect> {
        let is_due = self.trimmed + CLEAR_PAUSE <= now && !region.is_rebuilding;
        // Beside other regions every site keeps the order, and drops it with the root's clock.
        if state.order_bytes() == 0 || !is_due || state.kept_after().is_some() {
            return None;
        }
        self.trimmed = now;
        let upto = state.order_last();
        Some(Effect::Propose(Command::Causal(CausalCommand::Trim { upto })))
    }

    fn trim(&mut self, now: Duration, state: &impl Durable, region: &Region) -> Option<Effect> {
        if now < self.trimmed + TRIM_PAUSE_MIN {
            return None;
        }
        let (trimmed, own) = (state.trimmed_upto(), state.applied());
        let kept_after = state.kept_after();
        let kept_bytes_max = match kept_after {
            // No region's own writes are ordered past the limit.
            Some(_) => self.sizes.kept_bytes_max.min(limits::CAUSAL_BRIDGED_BYTES_MAX / 2),
            None => self.sizes.kept_bytes_max,
        };
        let is_full = state.order_bytes() > kept_bytes_max;
        let others = region.layout.sites.iter().filter(|site| **site != region.own);
        let of_site = |site: &SiteId| {
            let Some(report) = self.reports.get(site) else { return Position::default() };
            if report.applied >= trimmed {
                return report.applied;
            }
            let transfer = self.transfers.get(site).filter(|one| one.acknowledged >= trimmed);
            transfer.map_or(own, |transfer| transfer.acknowledged)
        };
        if state.order_last() == trimmed && state.order_bytes() > 0 && kept_after.is_none() {
            // Of an order that came to its end here: what is kept is before the beginning of this
            // one.
            self.trimmed = now;
            return Some(Effect::Propose(Command::Causal(CausalCommand::Trim { upto: trimmed })));
        }
        let mut upto = others.map(of_site).min().unwrap_or(own).min(own);
        if self.planted.is(Bug::TrimmedUnimported) {
            upto = own;
        }
        if is_full && upto <= trimmed {
            let page = state.ordered(trimmed, TRIM_BYTES);
            upto = page.last().map_or(trimmed, |(position, ..)| *position).min(own);
        }
        upto = upto.min(kept_after.unwrap_or(upto));
        let is_much = is_full || upto.count() >= trimmed.count() + TRIMMED_MIN;
        let pause = if is_much { TRIM_PAUSE_MIN } else { TRIM_PAUSE };
        if upto <= trimmed || now < self.trimmed + pause {
            return None;
        }
        self.trimmed = now;
        Some(Effect::Propose(Command::Causal(CausalCommand::Trim { upto })))
    }

    /// A site's leader reports.
    pub(crate) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        if message.epoch == u32::from(self.epoch) {
            let report = self.reports.entry(site).or_default();
            let applied = report.reported.follow(report.applied, Position(message.applied), now);
            (report.applied, report.at) = (applied, now);
        }
    }

    /// How many records are still to be sent, of so many that each site needs.
    pub(crate) fn left(&self, records: u64) -> u64 {
        self.transfers.values().map(|transfer| records.saturating_sub(transfer.records)).sum()
    }
}

impl Part for Resync {
    /// A site's answer to a step.
    fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>, now: Duration) {
        let found = self.transfers.iter_mut().find(|(_, transfer)| transfer.sender.has(id));
        let Some((site, transfer)) = found else { return };
        match outcome {
            Ok(Answer::Staged { chunks, resume }) => transfer.taken(id, *chunks, resume, now),
            Ok(Answer::Installed) => {
                let report = self.reports.entry(*site).or_default();
                // That is for sure. What it has beyond, it reports itself.
                report.applied = report.applied.max(transfer.floor);
                let site = *site;
                self.transfers.remove(&site);
            }
            _ => {
                transfer.sender.failed(id, now);
            }
        }
    }

    fn stop(&mut self) {
        // A late answer must not be taken for one to a later step.
        let Resync { last_id, sizes, planted, epoch, sent_bytes, trimmed, .. } = *self;
        *self = Resync { last_id, epoch, sent_bytes, trimmed, ..Resync::new(sizes, planted) };
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        self.transfers.values().filter_map(|transfer| transfer.sender.next_due(now)).min()
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

impl Transfer {
    fn new(now: Duration) -> Transfer {
        Transfer {
            sender: Sender::new(now),
            place: Place::default(),
            floor: Position::default(),
            acknowledged: Position::default(),
            from: None,
            end: None,
            records: 0,
        }
    }

    fn poll(
        &mut self,
        out: &mut Outbox<'_>,
        state: &impl Durable,
        region: &Region,
        bytes_max: usize,
        planted: Planted,
    ) {
        match self.sender.stage(out.now) {
            None | Some(Stage::Asked) => {}
            Some(Stage::Ask) => {
                let (epoch, floor) = (region.epoch, state.trimmed_upto());
                let last = (state.order_last(), state.ordered_of(out.to).unwrap_or_default().0);
                // What the site drops of its own must not be lost with an end that no other site
                // has.
                let (start, ordered) = self.from.filter(|(at, _)| *at >= floor).unwrap_or(last);
                if start > region.released(start) {
                    self.from = Some((start, ordered));
                    return;
                }
                self.from = None;
                let ordered =
                    if planted.is(Bug::ResyncUnordered) { Revision::default() } else { ordered };
                let kept = state.kept_after().filter(|_| region.layout.interest.holds_all(out.to));
                let records = kept.map_or(Left::All, Left::EarlierAfter);
                let new = Place { start, sent: start, upto: start, records, ..Place::default() };
                self.floor = floor;
                let step = Step::Begin { epoch, floor, start, ordered, resume: new.encode() };
                self.sender.begin(out, command(step));
            }
            Some(Stage::Sending) if self.place.sent < state.trimmed_upto() => {
                self.sender.restart(out.now);
            }
            Some(Stage::Sending) => {
                let to = out.to;
                let (place, end, records) = (&mut self.place, &mut self.end, &mut self.records);
                let sent = self.sender.send(out, 0, |sequence| {
                    let Some(items) = place.next(state, (region, to), bytes_max, planted) else {
                        return Ok(None);
                    };
                    let is_record = |item: &&ResyncItem| matches!(item, ResyncItem::Record { .. });
                    *records += items.iter().filter(is_record).count() as u64;
                    let bytes = items.iter().map(ResyncItem::payload_bytes).sum();
                    let (start, resume, mark) = (place.start, place.encode(), place.sent);
                    let command = command(Step::Chunk { start, sequence, resume, items });
                    Ok::<_, ()>(Some(Chunk { command, bytes, mark, pause: Duration::ZERO }))
                });
                if sent != Ok(true) || !place.is_complete(state, region.own, end, planted) {
                    return;
                }
                if self.sender.is_acknowledged() && !self.sender.has_gap() {
                    let (start, upto) = (place.start, place.sent);
                    let chunks = self.sender.chunks();
                    self.sender.ask(out, command(Step::Switch { start, chunks, upto }));
                }
            }
        }
    }

    fn taken(&mut self, id: u64, chunks: u64, resume: &Bytes, now: Duration) {
        let is_switch = self.sender.stage(now) == Some(Stage::Asked);
        match self.sender.acknowledged(id, chunks, now) {
            (Event::Begun, _) => match row::decode::<Place>(resume) {
                Some(place) => {
                    self.acknowledged = place.sent;
                    (self.place, self.end) = (place, None);
                    self.sender.resume(chunks);
                }
                None => self.sender.restart(now + AGAIN),
            },
            (Event::Gap, _) => self.sender.restart(now),
            (Event::Acknowledged, mark) => {
                self.acknowledged = self.acknowledged.max(mark.unwrap_or_default());
            }
            // The site is not ready to switch yet: the order goes on, and it is asked once more.
            (Event::Nothing, _) if is_switch => self.sender.restart(now),
            (Event::Nothing, _) => {}
        }
    }
}

fn ordered_item((site, revision, position): (SiteId, Revision, Position)) -> ResyncItem {
    ResyncItem::Ordered { site, revision, position }
}

fn command(step: Step) -> Command {
    Command::Causal(CausalCommand::Resync(step))
}

impl Place {
    fn encode(&self) -> Bytes {
        row::encode(self).into()
    }

    /// The next items, if there are any.
    fn next(
        &mut self,
        state: &impl Durable,
        (region, to): (&Region, SiteId),
        bytes_max: usize,
        planted: Planted,
    ) -> Option<Vec<ResyncItem>> {
        let interest = &region.layout.interest;
        if let Left::EarlierAfter(after) = self.records {
            return Some(self.next_earlier(after, state, bytes_max));
        }
        let has_all = self.records == Left::None;
        let last = if has_all { region.released(state.order_last()) } else { state.applied() };
        let mut items = Vec::new();
        if self.sent < last && self.sent >= state.trimmed_upto() {
            let all = state.ordered(self.sent, bytes_max);
            for (position, site, write) in all.into_iter().filter(|(at, ..)| *at <= last) {
                self.sent = position;
                // What the site does not hold has its place all the same.
                let write = interest.for_site(to, write);
                items.push(ResyncItem::Entry { position, site, write });
            }
        }
        let bytes: usize = items.iter().map(ResyncItem::payload_bytes).sum();
        // A record must not be older than the order before it.
        let is_there = self.sent <= state.applied() || planted.is(Bug::ResyncSwitchedEarly);
        if !has_all && is_there && bytes <= bytes_max {
            if self.records == Left::All {
                // What is on its way of the order contains what became of them since.
                items.splice(0..0, state.retries());
            }
            let after = match &self.records {
                Left::After(keyspace, key) => Some((*keyspace, key.clone())),
                Left::All | Left::None | Left::EarlierAfter(_) => None,
            };
            if self.records == Left::All {
                // All of that lies before the end, as the order goes at least so far.
                self.upto = self.upto.max(state.order_last());
                items.extend(state.ordered_all().into_iter().map(ordered_item));
            }
            let (records, last) =
                state.records(after.as_ref(), bytes_max, &|keyspace| interest.holds(to, keyspace));
            self.upto = self.upto.max(state.applied());
            self.written = self.written.max(state.last_revision());
            self.records = last.map_or(Left::None, |(keyspace, key)| Left::After(keyspace, key));
            items.extend(records);
            // That there are no more is something to be kept, too.
            return Some(items);
        }
        (!items.is_empty()).then_some(items)
    }

    /// A part of the order before the beginning.
    fn next_earlier(
        &mut self,
        after: Position,
        state: &impl Durable,
        bytes_max: usize,
    ) -> Vec<ResyncItem> {
        let all = state.ordered(after, bytes_max).into_iter();
        let kept = all.take_while(|(position, ..)| *position <= self.start);
        let item = |(position, site, write)| ResyncItem::Earlier { position, site, write };
        let items: Vec<ResyncItem> = kept.map(item).collect();
        self.records = match items.last() {
            Some(ResyncItem::Earlier { position, .. }) => Left::EarlierAfter(*position),
            _ => Left::All,
        };
        items
    }

    /// Whether what was sent is the order up to a position.
    fn is_complete(
        &self,
        state: &impl Durable,
        own: SiteId,
        end: &mut Option<Position>,
        planted: Planted,
    ) -> bool {
        if self.records != Left::None {
            return false;
        }
        if planted.is(Bug::ResyncSwitchedEarly) {
            return true;
        }
        let (written, position) = state.ordered_of(own).unwrap_or_default();
        if end.is_none() && written >= self.written {
            *end = Some(position.max(self.upto));
        }
        end.is_some_and(|end| self.sent >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Place {
        fn decode(bytes: &[u8]) -> Option<Place> {
            row::decode(&Bytes::copy_from_slice(bytes))
        }
    }

    #[test]
    fn format_1_of_a_place_stays_as_it_is() {
        let (start, sent, upto) = (Position(300), Position(301), Position(2));
        let records = Left::After(KeyspaceId(3), "key".into());
        let place = Place { start, sent, upto, written: Revision(4), records };
        let bytes = place.encode();
        assert_eq!(&bytes[..], b"\x01\xac\x02\xad\x02\x02\x04\x01\x03key");
        assert_eq!(Place::decode(&bytes), Some(place.clone()));
        for records in [Left::All, Left::None, Left::EarlierAfter(Position(300))] {
            let place = Place { records, ..place.clone() };
            assert_eq!(Place::decode(&place.encode()), Some(place));
        }
        assert_eq!(Place::decode(b"\x02\x01\x01\x01\x01\x00"), None);
        assert_eq!(Place::decode(b"\x01\x01\x01\x01\x01\x03"), None);
    }
}
