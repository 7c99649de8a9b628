//! Groups that follow their users, where keyspaces ask for it (`placement = adaptive`).
//!
//! The site that serves a group counts its accesses and decides. The owner of a slot lends a group
//! to the site where its users wait least; a borrower gives a group back as soon as another site is
//! better, and the owner lends it there by what it then counts itself: from borrower to borrower it
//! is two moves, each with a reason of its own. The commands are `Lend` and `GiveBack` of this
//! site; the job `lend` does the rest (`site::lending`).
//!
//! A group is named in none of the counts, which have a hash of its tag. Its name is found among
//! the records of its slot, when it is to move. So a group that has no records is not lent, nor one
//! that is too large, nor one of a slot with too many keys.
//!
//! What is pinned moves before all others, with whatever records it has.
//!
//! Nothing moves to a site that leaves, was failed over, or has refused a group lately (nor to
//! another one in its place), and nothing while a failover is open: a group whose borrower fails
//! waits for it. The other site must have sent something within two seconds, in both directions: a
//! group on its way to a site that does not answer is served nowhere, and one at a borrower whose
//! owner is silent is served on. The same goes for a site whose disk is full.
//!
//! Sites that take only so many bytes are bid for, and this one gives back what is outbid
//! ([`bidding`]).
//!
//! The ledger has the moves that this site has made, and what groups that it has borrowed save
//! against their home.

mod bidding;
mod look;

use super::kinds::Kinds;
use super::pins;
use super::room::{self, Bids, Sent};
use super::sites::Sites;
use super::{KEY_BYTES, WINDOW, reason, shown, us, windows};
use crate::global::borrowers::Borrowers;
use crate::job::{Effect, View};
use crate::placement::explain::Why;
use crate::placement::ledger::Ledger;
use crate::placement::plan::Limits;
use crate::placement::stability::Regrets;
use crate::placement::{
    Bar, Bid, ByKey, Chosen, GroupKey, Groups, Rules, Site as Place, Waiting, Wanted,
};
use crate::site::counting::{Counting, Users};
use crate::site::machine::global::groups::{Held, Room};
use look::Look;
use model::{
    BorrowedGroup, Command, GlobalCommand, Group, GroupExplained, Lending, LentGroup, LoansLedger,
    PlacementReason, Registry, Revision, SiteId, limits,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use storage::state::State;

/// The moves of one window: in number, and in bytes.
const BUDGET: (u64, u64) = (2_560, 64 << 20);
/// How long nothing is lent to a site that has refused a group, and a group that is too large, or
/// has too many answers beside it, is not looked at.
const BACKOFF: Duration = Duration::from_secs(60);
/// How long ago the other site of a move may have sent its last message.
const HEARD: Duration = Duration::from_secs(2);
/// How long a command may take to show in the state.
const APPLIED: Duration = Duration::from_secs(5);

/// Whether a group at home is too large to be lent: itself, its tag, what goes along with it, or
/// what has to be looked at to find its keys.
fn stays<S: State>(view: &View<'_, S>, group: &Group, bytes: u64) -> bool {
    let slot = group.slot();
    bytes > limits::LOANS_BYTES_MAX as u64
        || group.tag.len() > limits::LOANS_TAG_BYTES_MAX
        || view.machine.has_many_answers(slot)
        || view.machine.has_many_keys(slot)
}

/// The commands that lend groups with these bytes to a site: one command lends only so much.
fn lend<S: State>(view: &View<'_, S>, to: SiteId, groups: Vec<(Group, u64)>) -> Vec<Effect> {
    let mut commands: Vec<Vec<Group>> = Vec::new();
    let (mut bytes_left, mut keys_left, mut slots) = (0, 0, BTreeSet::new());
    for (group, bytes) in groups {
        let at = (group.keyspace, group.slot());
        let keys = view.machine.keyspace_keys(at.0, at.1);
        // The keys of a slot are looked at once.
        let more = if slots.contains(&at) { 0 } else { keys };
        if commands.is_empty() || bytes > bytes_left || more > keys_left {
            commands.push(Vec::new());
            bytes_left = limits::LOANS_BYTES_MAX as u64;
            keys_left = limits::LOANS_KEYS_EXAMINED_MAX;
            slots.clear();
        }
        bytes_left = bytes_left.saturating_sub(bytes);
        if slots.insert(at) {
            keys_left = keys_left.saturating_sub(keys);
        }
        commands.last_mut().expect("there is one").push(group);
    }
    commands.into_iter().map(|groups| propose(Lending::Lend { to, groups })).collect()
}

/// A move that was begun and is not over.
#[derive(Debug)]
struct Begun {
    key: GroupKey,
    /// The site that is better.
    to: SiteId,
    gain_ms_per_s: f32,
    rate: f32,
    waits_ms: f32,
    bytes: u64,
    at: Duration,
    /// It is lent from here, rather than given back.
    is_lent: bool,
    /// The loan was in the state.
    is_seen: bool,
}

/// What a step of a move has shown.
enum Shown {
    Waits,
    Made,
    Refused,
    Over,
}

/// The groups that are on the move. See the module.
#[derive(Debug, Default)]
pub(super) struct Moves {
    window_began: Duration,
    waiting: Waiting,
    /// Which groups are looked at.
    pub(super) look: Look,
    begun: BTreeMap<Group, Begun>,
    /// Sites that are lent nothing before.
    refused: BTreeMap<SiteId, Duration>,
    /// Groups that are not looked at before.
    resting: BTreeMap<GroupKey, Duration>,
    ledger: Ledger,
    /// What borrowed groups saved at the end of the last window.
    saves_ms_per_s: f64,
    /// What others would lend to this site.
    pub(super) bids: Bids,
    /// What would go to a site that has no room for it, of those to which something would.
    wanted: BTreeMap<SiteId, Vec<Bid>>,
    /// How many groups the last decision placed without looking at all sites.
    pub(super) inexact: u64,
    /// What was lent to sites that take only so much.
    sent: Sent,
    /// When one of them last refused a group.
    full: BTreeMap<SiteId, Duration>,
    /// The last revision by then, from half a minute ago on.
    revisions: VecDeque<(Duration, Revision)>,
}

/// A group that this site has borrowed, with its users.
struct BorrowedUse {
    group: Group,
    key: GroupKey,
    home: SiteId,
    bytes: u64,
    /// The revision at which it came.
    since: u64,
    rate: f32,
    /// Whether the next is known.
    is_known: bool,
    /// What its users are spared against its home, in ms of waiting a second.
    saves: f32,
}

/// A group without records that this site serves.
fn empty<S: State>(view: &View<'_, S>, group: &Group) -> Option<(Group, Held)> {
    let machine = view.machine;
    let part = machine.part(group).filter(|_| machine.serves_borrowed(group));
    let held = match part {
        Some(part) => {
            let (owner, loan) = (machine.lender(group, &part), part.borrowed.loan);
            Held::Borrowed { owner, loan, bytes: 0 }
        }
        None => Held::AtHome { bytes: 0 },
    };
    Some((group.clone(), held))
}

/// The rules of keyspaces and of failure domains.
fn kinds<'a, S: State>(view: &View<'_, S>, registry: &'a Registry, sites: &'a Sites) -> Kinds<'a> {
    let catalog = view.machine.reader().catalog();
    Kinds::of(registry, sites, catalog.all().into_iter())
}

fn propose(step: Lending) -> Effect {
    Effect::Propose(Command::Global(GlobalCommand::Lending(step)))
}

fn bytes_of(users: &Users) -> u32 {
    u32::try_from(users.mean_bytes().unwrap_or(KEY_BYTES)).unwrap_or(u32::MAX)
}

impl Moves {
    /// Begins anew. The totals of what this node has moved stay.
    pub(super) fn begin(&mut self, now: Duration) {
        let ledger = Ledger::after(&self.ledger);
        *self = Moves { window_began: now, ledger, ..Moves::default() };
    }

    pub(super) fn len(&self) -> usize {
        self.begun.len()
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What borrowed groups saved against their homes at the end of the last window.
    pub(super) fn saves_ms_per_s(&self) -> f64 {
        self.saves_ms_per_s
    }

    /// What would go to sites that take only so much, and has no room there.
    pub(super) fn wanted(&self) -> &BTreeMap<SiteId, Vec<Bid>> {
        &self.wanted
    }

    /// The sites to which nothing may go.
    fn rules<S: State>(
        &self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        sites: &Sites,
    ) -> Rules {
        let mut barred = view.failure_detector.silent(view.now);
        barred.extend(view.failure_detector.full());
        let lost = registry.sites.iter().map(|site| site.id);
        barred.extend(lost.filter(|site| registry.is_lost(*site)));
        // Groups would have to leave.
        barred.remove(&own);
        let mut rules = sites.rules(registry, &barred);
        // To the next best site nothing goes in their place: it would be given back for these.
        for place in self.refused.keys().filter_map(|site| sites.place(*site)) {
            rules.refuse(place);
        }
        rules
    }

    /// The commands of this second.
    pub(super) fn decide<S: State>(
        &mut self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        (sites, counting): (&Sites, &mut Counting),
        elapsed: Duration,
    ) -> Vec<Effect> {
        self.settle(view, counting);
        self.refused.retain(|_, until| *until > view.now);
        self.resting.retain(|_, until| *until > view.now);
        self.full.retain(|_, at| view.now < *at + BACKOFF);
        self.wanted.clear();
        self.note_revision(view);
        let leaves = registry.site(own).is_none_or(|site| site.leaving);
        let waits = leaves || registry.failovers.open.is_some() || view.disk_is_full;
        let effects = match waits {
            true => {
                self.look.see(view.now, own, counting);
                Vec::new()
            }
            false => {
                let seen = (sites, &*counting);
                let pinned = pins::pinned(view, registry);
                let (moves, wanted, room) =
                    self.choose(view, (own, registry), seen, &pinned, elapsed);
                self.bid(view, (sites, registry), wanted, counting);
                self.begin_moves(view, (sites, registry, room), (moves, &pinned), counting)
            }
        };
        self.account(view, own, sites, counting);
        effects
    }

    /// The groups that are to move, those that would if there were room, and the room.
    fn choose<S: State>(
        &mut self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        (sites, counting): (&Sites, &Counting),
        pinned: &BTreeMap<GroupKey, (Group, SiteId)>,
        elapsed: Duration,
    ) -> (Vec<Chosen>, Vec<Wanted>, Vec<u64>) {
        let Some(at) = sites.place(own) else { return Default::default() };
        let none = Groups::new(sites.len(), sites.len());
        let mut rules = self.rules(view, (own, registry), sites);
        rules.set_kinds(kinds(view, registry, sites).by_key(view, own));
        let spent = self.ledger.current();
        let begun: u64 = self.begun.values().map(|one| one.bytes).sum();
        let left = BUDGET.0.saturating_sub(spent.moves + self.begun.len() as u64);
        let link_bytes = sites.link_bytes(WINDOW);
        let limits = Limits {
            moves_max: (left as usize).min(limits::LOANS_PER_COMMAND_MAX),
            bytes_max: BUDGET.1.saturating_sub(spent.bytes + begun),
            site_bytes_max: link_bytes.saturating_sub(spent.bytes + begun),
        };
        let on_the_way: BTreeSet<GroupKey> = self.begun.values().map(|one| one.key).collect();
        let resting = &self.resting;
        let rests = |key: &GroupKey| on_the_way.contains(key) || resting.contains_key(key);
        let mut chosen = pins::moves(view, (own, registry), (sites, &rules), pinned, rests);
        // The rest is for users, as some pins may not be followed for long.
        chosen.truncate(limits.moves_max.div_ceil(2));
        let limits = Limits { moves_max: limits.moves_max - chosen.len(), ..limits };
        let stays = |key: &GroupKey| rests(key) || pinned.contains_key(key);
        let mut bids = std::mem::take(&mut self.bids);
        let outbid = self.outbid(view, (own, registry), (sites, counting), (&mut bids, &stays));
        self.bids = bids;
        let outbid = outbid.into_iter().take(limits.moves_max);
        let moves_max = limits.moves_max - outbid.len();
        chosen.extend(outbid);
        let limits = Limits { moves_max, ..limits };
        let place = (sites, registry, own);
        let prices = sites.offers.prices(place, view.now);
        let room = sites.offers.room(place, view.now, &self.sent, &self.full);
        let homes = bidding::homes(view, sites, &room);
        let mut picture = sites.picture(own, rules, none);
        (picture.prices, picture.room) = (prices, room);
        self.look.begin((view.now, elapsed), (own, at), counting, &picture);
        let mut open = Vec::new();
        let users = self.look.groups(view.now, own, counting).filter(|(key, _)| {
            let stays = stays(key);
            open.extend(stays.then_some(*key));
            !stays
        });
        let groups = users.map(|(key, users)| {
            let accesses: Vec<_> = sites.accesses(&users.rates).collect();
            (key, bytes_of(&users), accesses)
        });
        let decision = picture.decision(at, self.look.count, limits, elapsed, &homes);
        let mut choice = decision.choose(groups, &mut self.waiting);
        open.append(&mut choice.open);
        self.look.end(view.now, open);
        self.inexact = choice.inexact;
        for to in choice.moves.iter().map(|one| one.to).filter(|to| picture.is_limited(*to)) {
            // It is asked for its room.
            self.wanted.entry(sites.site(to)).or_default();
        }
        chosen.extend(choice.moves);
        (chosen, choice.wanted, picture.room)
    }

    /// A group that is accessed was not found among the records.
    fn has_no_records<S: State>(
        &mut self,
        view: &View<'_, S>,
        key: GroupKey,
        counting: &mut Counting,
    ) {
        let slot = model::Slot::new(key.slot()).expect("a group has a slot");
        match view.machine.serves(slot) && view.machine.has_many_keys(slot) {
            // It is not looked for.
            true => drop(self.resting.insert(key, view.now + BACKOFF)),
            // It is not here, or has no records.
            false => counting.remove(view.now, key),
        }
    }

    /// Room for groups on their way to a borrower.
    fn room_at(&self, to: SiteId) -> Room {
        let lent = self.begun.values().filter(|one| one.is_lent && one.to == to);
        Room::beside(lent.map(|one| one.bytes))
    }

    /// Finds the names of groups that are to move, and has them lent or given back: no more at a
    /// time than arrive soon, as a group on its way is served nowhere.
    fn begin_moves<S: State>(
        &mut self,
        view: &View<'_, S>,
        (sites, registry, mut room): (&Sites, &Registry, Vec<u64>),
        (moves, pinned): (Vec<Chosen>, &BTreeMap<GroupKey, (Group, SiteId)>),
        counting: &mut Counting,
    ) -> Vec<Effect> {
        let mut lent: BTreeMap<SiteId, Vec<(Group, u64)>> = BTreeMap::new();
        let (mut room_home, mut room_at) = (view.machine.room_home(), BTreeMap::new());
        let mut given_back = Vec::new();
        let mut unheard = BTreeSet::new();
        let mut keys_left = limits::LOANS_KEYS_EXAMINED_MAX;
        let mut by_slot: BTreeMap<u16, BTreeMap<GroupKey, (Group, Held)>> = BTreeMap::new();
        let wanted: BTreeSet<GroupKey> = moves.iter().map(|one| one.group).collect();
        for Chosen { group: key, to, gain: gain_ms_per_s, rate, waits_ms } in moves {
            let to = sites.site(to);
            let slot = model::Slot::new(key.slot()).expect("a group has a slot");
            let of_slot = match by_slot.entry(key.slot()) {
                std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    match view.machine.groups_of(slot, &mut keys_left) {
                        // The rest is looked at in the next second.
                        Ok(None) => break,
                        Ok(Some(found)) => {
                            let accesses = view.machine.accesses();
                            let named = found.into_iter().map(|(group, held)| {
                                (accesses.group_of(group.keyspace, true, &group.tag), (group, held))
                            });
                            place.insert(named.filter(|(key, _)| wanted.contains(key)).collect())
                        }
                        Err(error) => return vec![Effect::Fail(error.to_string())],
                    }
                }
            };
            // A pinned one goes with no records, too.
            let without_records = || empty(view, &pinned.get(&key)?.0);
            let Some((group, held)) = of_slot.remove(&key).or_else(without_records) else {
                self.has_no_records(view, key, counting);
                continue;
            };
            let other = match held {
                Held::AtHome { .. } => to,
                Held::Borrowed { owner, .. } => owner,
            };
            let since = view.now.saturating_sub(HEARD);
            if !view.failure_detector.may_commit_since(other, since) {
                unheard.insert(other);
                continue;
            }
            let (is_lent, bytes) = match held {
                Held::AtHome { bytes } if stays(view, &group, bytes) => {
                    self.resting.insert(key, view.now + BACKOFF);
                    continue;
                }
                Held::AtHome { bytes } => {
                    counting.weighs(view.now, key, bytes);
                    let left = sites.place(to).and_then(|to| room.get_mut(usize::from(to.0)));
                    let left = left.filter(|left| **left != u64::MAX);
                    if left.as_ref().is_some_and(|left| bytes > **left) {
                        // Nothing is given back for a pin.
                        if !pinned.contains_key(&key) {
                            self.bid_for(to, registry, (bytes, gain_ms_per_s));
                        }
                        continue;
                    }
                    let arrives = room_at.entry(to).or_insert_with(|| self.room_at(to));
                    if !arrives.takes(bytes) {
                        // It is looked at again in the next second, as is one without room home.
                        continue;
                    }
                    if let Some(left) = left {
                        *left -= bytes;
                        self.sent.add(to, view.now, bytes);
                    }
                    lent.entry(to).or_default().push((group.clone(), bytes));
                    (true, bytes)
                }
                Held::Borrowed { bytes, .. } if !room_home.takes(bytes) => continue,
                Held::Borrowed { loan, bytes, .. } => {
                    given_back.push((group.clone(), loan));
                    (false, bytes)
                }
            };
            self.waiting.moved(key);
            let (at, is_seen) = (view.now, false);
            let begun =
                Begun { key, to, gain_ms_per_s, rate, waits_ms, bytes, at, is_lent, is_seen };
            self.begun.insert(group, begun);
        }
        let lends = lent.into_iter().flat_map(|(to, groups)| lend(view, to, groups));
        let mut effects: Vec<Effect> = lends.collect();
        if !given_back.is_empty() {
            effects.push(propose(Lending::GiveBack { loans: given_back }));
        }
        // It is looked at again in the next second.
        effects.extend(unheard.into_iter().map(Effect::Call));
        effects
    }

    /// Looks what has become of the moves that were begun.
    fn settle<S: State>(&mut self, view: &View<'_, S>, counting: &mut Counting) {
        let machine = view.machine;
        let (ledger, refused) = (&mut self.ledger, &mut self.refused);
        let full = &mut self.full;
        let is_limited = |site| {
            let member = machine.membership();
            member.is_some_and(|member| room::limit(&member.registry, site).is_some())
        };
        let is_barred = |group: &Group, to: SiteId| {
            let member = machine.membership();
            let spec = machine.spec(group.keyspace);
            member.zip(spec).is_none_or(|(member, spec)| {
                let borrowers = Borrowers::of(&member.registry, member.own);
                borrowers.bar(spec, group, to).is_some()
            })
        };
        let mut refusing = BTreeSet::new();
        self.begun.retain(|group, one| {
            let is_late = one.at + APPLIED <= view.now;
            let shown = match (one.is_lent, machine.borrower_of(group)) {
                (true, _) if !machine.serves(group.slot()) => Shown::Over,
                (true, Some((_, _, true))) => Shown::Made,
                (true, Some((_, _, false))) => {
                    one.is_seen = true;
                    Shown::Waits
                }
                (true, None) if one.is_seen => Shown::Refused,
                (false, _) if !machine.serves_borrowed(group) => Shown::Made,
                _ if is_late => Shown::Over,
                _ => Shown::Waits,
            };
            match shown {
                Shown::Waits => {
                    // It does not take what it is offered: its disk may be full. It is lent no more
                    // meanwhile.
                    if one.is_lent && is_late {
                        refused.insert(one.to, view.now + BACKOFF);
                    }
                    return true;
                }
                Shown::Made => {
                    ledger.made(one.bytes, one.gain_ms_per_s.into(), one.waits_ms.into());
                    counting.leaves(view.now, one.key);
                }
                // Not if it must not have the group by now, which means nothing for others.
                Shown::Refused if is_barred(group, one.to) => {}
                Shown::Refused => drop(refusing.insert(one.to)),
                Shown::Over => {}
            }
            false
        });
        for site in refusing {
            // At first it may be for room, as others were faster.
            let is_first = is_limited(site) && full.insert(site, view.now).is_none();
            if !is_first {
                refused.insert(site, view.now + BACKOFF);
            }
        }
    }

    /// How many groups would be better elsewhere and are too large to be lent.
    pub(super) fn resting(&self) -> usize {
        self.resting.len()
    }

    /// The groups that this site has borrowed, with what their users are spared.
    fn borrowed<S: State>(
        &self,
        view: &View<'_, S>,
        own: SiteId,
        sites: &Sites,
        counting: &Counting,
    ) -> Vec<BorrowedUse> {
        let Some(at) = sites.place(own) else { return Vec::new() };
        let accesses = view.machine.accesses();
        let key = |group: &Group| accesses.group_of(group.keyspace, true, &group.tag);
        let keys: BTreeSet<GroupKey> =
            view.machine.borrowed_groups().map(|(group, _)| key(group)).collect();
        let users = counting.lendable(view.now, None).filter(|(key, _)| keys.contains(key));
        let users: BTreeMap<GroupKey, Users> = users.collect();
        let mut groups = Groups::new(sites.len(), sites.len());
        let (mut named, none) = (Vec::new(), BTreeMap::new());
        for (group, owner) in view.machine.borrowed_groups() {
            let users = users.get(&key(group));
            groups.push(at, 0, sites.accesses(users.map_or(&none, |users| &users.rates)));
            let part = view.machine.part(group).map(|part| (part.bytes, part.since));
            named.push((group, owner, part.unwrap_or_default()));
        }
        let picture = sites.picture(own, Rules::none(sites.len()), groups);
        let (solver, groups) = (picture.solver(), &picture.groups);
        let uses = named.into_iter().enumerate().map(|(index, (group, home, (bytes, since)))| {
            let cost = |place| solver.cost(groups, index, place);
            let saves = sites.place(home).map_or(0.0, |home| cost(home) - cost(at));
            let is_known = saves.is_finite();
            let saves = if is_known { saves } else { 0.0 };
            let (key, rate) = (key(group), groups.accesses(index).rate());
            BorrowedUse { group: group.clone(), key, home, bytes, since, rate, is_known, saves }
        });
        uses.collect()
    }

    /// The window's account, when it ends.
    fn account<S: State>(
        &mut self,
        view: &View<'_, S>,
        own: SiteId,
        sites: &Sites,
        counting: &Counting,
    ) {
        let elapsed = view.now.saturating_sub(self.window_began);
        if elapsed < WINDOW {
            return;
        }
        let borrowed = self.borrowed(view, own, sites, counting);
        let saved_ms_per_s: f64 = borrowed.iter().map(|one| f64::from(one.saves)).sum();
        self.saves_ms_per_s = saved_ms_per_s;
        // A longer one had a pause of the job in it.
        self.ledger.end(saved_ms_per_s * elapsed.min(2 * WINDOW).as_secs_f64());
        self.window_began = view.now;
    }

    /// The rules of one group that this site serves.
    fn rules_of<S: State>(
        &self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        sites: &Sites,
        (group, key, home, bytes): (&Group, GroupKey, SiteId, u32),
    ) -> Rules {
        let mut rules = self.rules(view, (own, registry), sites);
        let pin = registry.pinned(group);
        let kinds = kinds(view, registry, sites);
        let kind = kinds.of_group(group.keyspace, home, pin.is_some());
        let room = sites.offers.room((sites, registry, own), view.now, &self.sent, &self.full);
        let lacks_room = |place: Place| {
            let is_elsewhere = ![own, home].contains(&sites.site(place));
            let room = room.get(usize::from(place.0)).filter(|_| is_elsewhere);
            room.and_then(|room| (*room < bytes.into()).then_some(Bar::Room))
        };
        let kind = kind.with_bars(sites.len(), lacks_room);
        if let Some(place) = pin.and_then(|pin| sites.place(pin)) {
            rules.pin(0, place);
        }
        let mut by_key = ByKey::default();
        let kind = by_key.add(kind);
        by_key.set_all(kind);
        rules.set_kinds(by_key);
        rules.of_batch(&[key]).unwrap_or(rules)
    }

    /// Where a group that this site serves is and could be.
    pub(super) fn explain<S: State>(
        &self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        (sites, counting): (&Sites, &mut Counting),
        group: &Group,
    ) -> Option<GroupExplained> {
        let at = sites.place(own)?;
        let key = view.machine.accesses().group_of(group.keyspace, true, &group.tag);
        let rates = counting.users(view.now, key);
        let keys_left = &mut limits::LOANS_KEYS_EXAMINED_MAX.clone();
        let found = view.machine.groups_of(group.slot(), keys_left).ok().flatten();
        let held = found.unwrap_or_default().remove(group);
        let (bytes, home) = match held {
            Some(Held::AtHome { bytes }) => (bytes, own),
            Some(Held::Borrowed { owner, bytes, .. }) => (bytes, owner),
            None => (0, own),
        };
        let mut groups = Groups::new(sites.len(), sites.len());
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        groups.push(at, bytes, sites.accesses(&rates));
        if let Some(home) = sites.place(home) {
            groups.set_home(0, home);
        }
        let of = (group, key, home, bytes.max(1));
        let rules = self.rules_of(view, (own, registry), sites, of);
        let mut picture = sites.picture(own, rules, groups);
        picture.prices = sites.offers.prices((sites, registry, own), view.now);
        let regrets = Regrets::of_groups(vec![self.waiting.of(key)]);
        let explanation =
            regrets.explain(&picture.stability, &picture.solver(), &picture.groups, 0);
        let pin = registry.pinned(group);
        let is_large = home == own && pin != Some(own) && stays(view, group, bytes.into());
        let why = match (pin, self.begun.get(group), explanation.why) {
            (_, None, _) if is_large => PlacementReason::TooLarge,
            (Some(to), ..) => PlacementReason::Pinned { to },
            (None, Some(one), _) => {
                let gain_ms = one.gain_ms_per_s / one.rate.max(f32::MIN_POSITIVE);
                PlacementReason::Moves { to: one.to, gain_us: us(gain_ms) }
            }
            // It begins with the next decision.
            (None, None, Why::Moves { to, gain_ms }) => {
                PlacementReason::Waits { to: sites.site(to), gain_us: us(gain_ms) }
            }
            (None, None, why) => reason(sites, why),
        };
        let placed = shown((own, sites), group.slot(), explanation, why);
        Some(GroupExplained { placed, home })
    }

    /// What is lent and borrowed, the largest savings first, and the windows.
    pub(super) fn report<S: State>(
        &self,
        view: &View<'_, S>,
        own: SiteId,
        sites: &Sites,
        counting: &Counting,
    ) -> LoansLedger {
        let lent = view.machine.lent().map(|(group, row)| LentGroup {
            keyspace: group.keyspace,
            tag: group.tag.clone(),
            to: row.row.to,
        });
        let shown_max = limits::LEDGER_SHOWN_MAX;
        let lent: Vec<LentGroup> = lent.take(shown_max).collect();
        let mut borrowed = self.borrowed(view, own, sites, counting);
        borrowed.sort_by(|one, other| other.saves.total_cmp(&one.saves));
        let borrowed_count = borrowed.len() as u64;
        let borrowed = borrowed.into_iter().take(shown_max).map(|one| {
            let BorrowedUse { group: Group { keyspace, tag }, home: from, saves, .. } = one;
            BorrowedGroup { keyspace, tag, from, saves_us_per_s: (saves * 1_000.0) as i64 }
        });
        LoansLedger {
            lent,
            lent_count: view.machine.lent().count() as u64,
            borrowed: borrowed.collect(),
            borrowed_count,
            windows: windows(&self.ledger),
        }
    }
}
