//! The map of slots at a node: fed, sent to others, and shown.
//!
//! A site's leader exchanges maps with other sites ([`crate::global::map::exchange`]); its other
//! nodes with the leader, which also sends them the sites that do not answer. The map follows the
//! node's own state as that is applied.

use super::Site;
use super::machine::global::tokens::Token;
use crate::bugs::Bug;
use crate::global::map::exchange::{compare, handle, push};
use crate::global::map::{Exchange, Fact, Facts, Owned, RunFact, Source, Standing, runs_of};
use model::{Command, GlobalCommand, NodeId, SiteId, Slot, SlotRun, SlotSet, SourceStep};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::{InterSite, MapMessage, MapStep};
use wire::peer::Content;

/// A node's part in the exchange of maps.
#[derive(Debug)]
pub(super) struct Maps {
    exchange: Exchange,
    /// Whether the map contains the slots of the state.
    is_fed: bool,
    /// By the leader's messages: the sites that do not answer it, and those that cannot be reached.
    silent: BTreeSet<SiteId>,
    lost: BTreeSet<SiteId>,
}

impl Maps {
    /// `seed`: drawn at each start.
    pub(super) fn new(seed: u64) -> Maps {
        let (silent, lost) = Default::default();
        Maps { exchange: Exchange::new(seed), is_fed: false, silent, lost }
    }
}

/// Where slots are and which sites answer, as far as a node has learned it.
#[derive(Clone, Debug, Default)]
pub struct MapView {
    /// Every slot; empty: the site belongs to no deployment.
    pub owners: Vec<Owned>,
    /// The leaders of the sites that this node has messages from, its own among them.
    pub leaders: BTreeMap<SiteId, NodeId>,
    /// Sites that do not answer at the moment.
    pub silent: BTreeSet<SiteId>,
    /// Sites that cannot be reached.
    pub lost: BTreeSet<SiteId>,
}

/// A summary of one site's slots at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which site.
    pub site: SiteId,
    /// How many slots it owns.
    pub slots: u32,
    /// Whether that is the asked site itself.
    pub is_confirmed: bool,
    /// Otherwise the age of the oldest hint; at most that of this process.
    pub age: Option<Duration>,
    /// Whether it does not answer at the moment.
    pub is_silent: bool,
    /// Whether it cannot be reached.
    pub is_lost: bool,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// The state has changed for these slots.
    pub(super) fn feed_map(&mut self, changed: &SlotSet) {
        if self.machine.membership().is_none() {
            return;
        }
        // What a process finds when it begins is no news.
        let source = match std::mem::replace(&mut self.deployment.maps.is_fed, true) {
            true => Source::Token,
            false => Source::Stored,
        };
        let owner = |slot| self.machine.owner(slot).map(|(owner, epoch)| Fact { epoch, owner });
        let alike = |run: SlotRun| run.cut(|slot| self.machine.same_owner_until(slot));
        let alike = changed.runs().flat_map(alike);
        let facts = alike.filter_map(|run| Some((run, owner(run.first)?)));
        for run in runs_of(facts) {
            self.global.routing.learn(run, source, self.now.monotonic);
        }
    }

    pub(super) fn tick_map(&mut self) {
        // In a deployment of one site there is no other map.
        let is_alone = self.machine.membership().is_none_or(|one| one.registry.sites.len() < 2);
        let compares = !self.options.planted.is(Bug::MapsUncompared);
        let is_due = self.deployment.maps.exchange.is_due(self.now.monotonic) && compares;
        if is_alone || !is_due && !self.global.routing.map.has_news() {
            return;
        }
        let unsent = self.global.routing.map.take_unsent();
        if !self.leads() {
            let Some(leader) = self.replica.raft.leader() else { return };
            if !unsent.is_empty() {
                self.send_map_to_node(leader, push(&unsent));
            }
            if is_due {
                let step = compare(&self.global.routing.map);
                self.send_map_to_node(leader, step);
            }
            return;
        }
        let others = self.other_sites();
        if !unsent.is_empty() {
            for site in self.deployment.maps.exchange.pushed_to(&others) {
                self.send_map_to_site(site, None, push(&unsent));
            }
            for node in self.other_data_nodes() {
                self.send_map_to_node(node, push(&unsent));
            }
        }
        // A site that is not listed any more has nothing of use to others.
        if is_due
            && let Some(site) = self.deployment.maps.exchange.one_of(&others)
            && self.is_listed()
        {
            // If its leader does not answer, another node may.
            let nodes = self.nodes_of(site);
            let is_silent = self.deployment.failure_detector.is_silent(site, self.now.monotonic);
            let node = self.deployment.maps.exchange.one_of(&nodes).filter(|_| is_silent);
            let step = compare(&self.global.routing.map);
            self.deployment.failure_detector.asked(site, self.now.monotonic);
            self.send_map_to_site(site, node, step);
        }
    }

    fn is_listed(&self) -> bool {
        let member = self.machine.membership();
        member.is_some_and(|member| member.registry.site(member.own).is_some())
    }

    fn other_data_nodes(&self) -> Vec<NodeId> {
        let own = self.options.node.0;
        let nodes =
            self.replica.members.nodes.iter().filter(|node| node.node != own && !node.witness);
        nodes.map(|node| NodeId(node.node)).collect()
    }

    fn send_map_to_site(&mut self, site: SiteId, node: Option<NodeId>, step: MapStep) {
        let nodes = self.nodes_of(site);
        if let Some(node) = node.or_else(|| self.global.routing.node_of(site, &nodes)) {
            let message = MapMessage { step: Some(step), ..MapMessage::default() };
            self.send_inter_site(site, node, InterSite::Map(message));
        }
    }

    fn send_map_to_node(&mut self, node: NodeId, step: MapStep) {
        let mut message = MapMessage { step: Some(step), ..MapMessage::default() };
        if self.leads() {
            let numbers = |sites: BTreeSet<SiteId>| sites.into_iter().map(|site| site.0).collect();
            message.silent = numbers(self.deployment.failure_detector.silent(self.now.monotonic));
            message.lost = numbers(self.deployment.failure_detector.lost(self.now.monotonic));
        }
        self.send(node, Content::Map(message));
    }

    /// Handles a message about the map from a node of another site.
    pub(super) fn take_map_of_site(&mut self, site: SiteId, node: NodeId, message: MapMessage) {
        if let Some(answer) = self.take_map(site, message) {
            self.send_map_to_site(site, Some(node), answer);
        }
    }

    /// Handles a message about the map from a node of this site.
    pub(super) fn take_map_of_node(&mut self, node: NodeId, mut message: MapMessage) {
        let sites = |numbers: &mut Vec<u32>| numbers.drain(..).map(SiteId).collect();
        if self.replica.raft.leader() == Some(node) && !self.leads() {
            (self.deployment.maps.silent, self.deployment.maps.lost) =
                (sites(&mut message.silent), sites(&mut message.lost));
        }
        let Some(own) = self.machine.membership().map(|member| member.own) else { return };
        if let Some(answer) = self.take_map(own, message) {
            self.send_map_to_node(node, answer);
        }
    }

    fn take_map(&mut self, site: SiteId, message: MapMessage) -> Option<MapStep> {
        self.machine.membership()?;
        let (answer, raised) =
            handle(&mut self.global.routing.map, site, message.step?, self.now.monotonic);
        self.global.routing.follow_map(&raised);
        answer.filter(|_| !self.options.planted.is(Bug::MapsUncompared))
    }

    /// A planted bug: a site gets only those slots of an operator's order that are its own by this
    /// node's map.
    pub(super) fn narrow_order(&self, site: SiteId, command: &mut Command) {
        if let Command::Global(GlobalCommand::Source {
            step: SourceStep::Order { slots, .. }, ..
        }) = command
            && self.options.planted.is(Bug::MoveByMap)
        {
            let facts = self.slot_facts();
            let is_there = |slot: &Slot| facts.of(*slot).is_some_and(|fact| fact.owner == site);
            *slots = slots.iter().filter(is_there).collect();
        }
    }

    // ---- what is shown --------------------------------------------------------------------------

    /// Where slots are and which sites answer.
    pub fn map_view(&self) -> MapView {
        let (silent, lost) = self.out_of_reach();
        MapView { owners: self.owned(), leaders: self.leaders(), silent, lost }
    }

    /// The owners of slots, as far as this node has learned them.
    pub fn slot_map(&self) -> Vec<(SlotSet, SiteId)> {
        let mut by_site: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
        for owned in self.owned() {
            by_site.entry(owned.site).or_default().extend(owned.slots.iter());
        }
        by_site.into_iter().map(|(site, slots)| (slots.into_iter().collect(), site)).collect()
    }

    fn owned(&self) -> Vec<Owned> {
        let Some(member) = self.machine.membership() else { return Vec::new() };
        let mut all: BTreeMap<(SiteId, Standing), Vec<Slot>> = BTreeMap::new();
        let mut runs = self.global.routing.map.facts().runs().peekable();
        for slot in Slot::all() {
            while runs.peek().is_some_and(|(run, _)| run.last < slot.number()) {
                runs.next();
            }
            let run = runs.peek().filter(|(run, _)| run.first <= slot.number()).copied();
            let holds = matches!(self.machine.token(slot), Token::Held(_) | Token::Leaving { .. });
            let (site, standing) = match holds {
                true => (member.own, Standing::Confirmed),
                false => {
                    let site = self.owner_elsewhere(slot, 0).unwrap_or(member.own);
                    (site, Standing::Hint { age: self.age_of(site, run) })
                }
            };
            all.entry((site, standing)).or_default().push(slot);
        }
        let owned = |((site, standing), slots): (_, Vec<Slot>)| Owned {
            slots: slots.into_iter().collect(),
            site,
            standing,
        };
        all.into_iter().map(owned).collect()
    }

    /// What is shown of each site that is listed or owns something, without looking at each slot.
    pub(super) fn shares(&self) -> Vec<Share> {
        let Some(member) = self.machine.membership() else { return Vec::new() };
        let now = self.now.monotonic;
        let (silent, lost) = self.out_of_reach();
        let listed = member.registry.sites.iter().map(|site| site.id);
        let share = |site| Share {
            site,
            slots: 0,
            age: None,
            is_confirmed: site == member.own,
            is_silent: silent.contains(&site),
            is_lost: lost.contains(&site),
        };
        let mut shares: BTreeMap<SiteId, Share> = listed.map(|site| (site, share(site))).collect();
        let map = &self.global.routing.map;
        for (run, learnt) in map.facts().runs() {
            let owner = run.fact.owner;
            let one = shares.entry(owner).or_insert_with(|| share(owner));
            let age = map.age(owner, learnt, now).unwrap_or(now);
            one.slots += u32::from(run.last - run.first) + 1;
            one.age = one.age.max(Some(age)).filter(|_| !one.is_confirmed);
        }
        shares.into_values().collect()
    }

    /// The sites that do not answer, and those of them that cannot be reached.
    fn out_of_reach(&self) -> (BTreeSet<SiteId>, BTreeSet<SiteId>) {
        let now = self.now.monotonic;
        match self.leads() {
            true => (
                self.deployment.failure_detector.silent(now),
                self.deployment.failure_detector.lost(now),
            ),
            false => (self.deployment.maps.silent.clone(), self.deployment.maps.lost.clone()),
        }
    }

    fn age_of(&self, site: SiteId, run: Option<(RunFact, Option<Duration>)>) -> Option<Duration> {
        let (_, learnt) = run.filter(|(run, _)| run.fact.owner == site)?;
        self.global.routing.map.age(site, learnt, self.now.monotonic)
    }

    /// The facts about the owners of slots that this node has.
    pub fn slot_facts(&self) -> &Facts {
        self.global.routing.map.facts()
    }
}
