//! What happens to nodes and links from outside: nodes start, are taken in, crash, pause; clocks
//! run wrong; links break and are mended.

use super::node::Belongs;
use super::site_lifecycle::SiteLifecycle;
use super::{ASK_AGAIN, DRAINS_PERMILLE, Down, Event, NodeIndex, Simulation};
use model::{Failure, NodeId};
use protocol::site::Input;
use std::time::Duration;
use wire::entry;
use wire::peer::{Content, Forward, ForwardedRequest, Member, Message};

impl<C> Simulation<C> {
    /// Starts a node that is down. One whose disk must not be served stays down.
    pub fn start(&mut self, index: NodeIndex) {
        let (now, mut warnings) = (self.time(index), Vec::new());
        let node = &mut self.nodes[index];
        if node.doomed && !node.up && !node.lies {
            node.refused.get_or_insert("its disk is to be exchanged".to_owned());
        }
        let is_there = self.sites[node.site].lifecycle != SiteLifecycle::Outside;
        if node.up || node.refused.is_some() || node.stays_down || !is_there {
            return;
        }
        node.up = true;
        let life = node.life;
        if node.belongs == Belongs::Asks {
            self.note_of(index, || "starts with an empty disk".to_owned());
            return self.after(Duration::ZERO, Event::Ask { node: index, life });
        }
        node.failure_domain.clone_from(&self.sites[node.site].failure_domain);
        node.borrowed_bytes_max = self.sites[node.site].borrowed_bytes_max;
        let started = node.start(now, &self.settings, &mut |what| warnings.push(what));
        if let Err(error) = started {
            node.up = false;
            node.refused = Some(error.to_string());
            return self.note_of(index, || format!("does not start: {error}"));
        }
        self.note_of(index, || "starts".to_owned());
        for what in warnings {
            self.note_of(index, || what);
        }
        self.perform_all(index);
    }

    pub(super) fn ask_to_join(&mut self, index: NodeIndex) {
        let node = &self.nodes[index];
        if node.process.is_some() {
            return;
        }
        let (member, life) = (node.member(), node.life);
        let nodes = self.sites[node.site].nodes.iter().copied();
        let others: Vec<_> = nodes.filter(|other| *other != index).collect();
        if !others.is_empty() {
            let to = *self.random.pick(&others);
            // A number that only this life of the node has: see `server::links::join`.
            let id = member.incarnation;
            let request = ForwardedRequest { id, join: Some(member), ..Default::default() };
            self.send(index, to, Content::Forward(Forward { requests: vec![request] }).into());
        }
        self.after(ASK_AGAIN, Event::Ask { node: index, life });
    }

    /// A node that asked to be taken in receives an answer.
    pub(super) fn taken_in(&mut self, index: NodeIndex, message: Message) {
        let Some(Content::Answered(answered)) = message.content else { return };
        let id = self.nodes[index].incarnation;
        let ours = answered.answers.into_iter().find(|answer| answer.id == id);
        let Some(answer) = ours else { return };
        if !matches!(entry::decode_reply(answer.outcome), Ok(Ok(_))) {
            return;
        }
        let node = &mut self.nodes[index];
        node.belongs = Belongs::Member;
        node.up = false;
        self.start(index);
    }

    /// Takes a node down.
    pub fn crash(&mut self, index: NodeIndex, down: &Down) {
        let node = &mut self.nodes[index];
        if !node.up {
            return;
        }
        let (site, id, lost) = (node.site, node.id, node.stop(down));
        self.note_of(index, || format!("crashes ({down:?})"));
        for ticket in lost {
            let unknown = Err(Failure::Unknown { why: "the connection broke" });
            if self.receive(ticket, unknown).is_some() {
                self.lost.push(ticket);
            }
        }
        self.drained_at(index);
        let others = self.sites[site].nodes.len() as u64;
        for other in (1..=others).filter(|other| *other != id) {
            let drains = self.dying.chance(DRAINS_PERMILLE);
            self.sites[site].network.break_dead(id, other, drains);
            self.notice_link(site, other, id);
        }
        self.break_inter_site(index);
    }

    /// Nothing arrives any more of what a node had sent, or was sent, over connections that broke.
    pub(super) fn drained_at(&mut self, index: NodeIndex) {
        let (site, id) = (self.nodes[index].site, self.nodes[index].id);
        self.sites[site].network.drained_at(id);
        self.between.drained_at(index);
    }

    /// Crashes a node, and starts it again after a while.
    pub fn bounce(&mut self, index: NodeIndex, down: &Down, rest: Duration) {
        self.crash(index, down);
        let life = self.nodes[index].life;
        self.after(rest, Event::Start { node: index, life });
    }

    /// Puts a new, empty disk into a node that is down, and starts it.
    pub fn replace_disk(&mut self, index: NodeIndex) {
        // Nothing counts any more that was acknowledged from the old one: it was seen to that the
        // site can spare it as that was then.
        self.drained_at(index);
        self.nodes[index].wipe();
        self.start(index);
    }

    /// Puts an empty disk into a node that is down, keeps its old one beside it, and starts it.
    pub fn put_disk_aside(&mut self, index: NodeIndex) {
        self.drained_at(index);
        self.nodes[index].put_aside();
        self.start(index);
    }

    /// Starts a node on the disk that lies beside it, and keeps the one that was in it; or, if it
    /// has its later disk back with that, throws the other one away.
    pub fn exchange_disks(&mut self, index: NodeIndex) {
        self.crash(index, &Down::Killed);
        self.drained_at(index);
        let node = &mut self.nodes[index];
        node.exchange();
        let is_old = node.is_on_old_disk();
        if !is_old {
            node.discard();
        }
        self.note_of(index, || {
            format!("has its {} disk put in", if is_old { "old" } else { "later" })
        });
        self.start(index);
    }

    /// Throws away the disk that lies beside a node.
    pub fn discard_disk(&mut self, index: NodeIndex) {
        self.nodes[index].discard();
    }

    /// A second machine that has a node's id asks the others of its site to be taken in.
    pub fn ask_as_another(&mut self, index: NodeIndex, incarnation: u64) {
        let node = &self.nodes[index];
        let member = Member { incarnation, address: "elsewhere".to_owned(), ..node.member() };
        let (id, site) = (NodeId(node.id), node.site);
        self.note_of(index, || "another machine asks to be taken in as this node".to_owned());
        for other in self.sites[site].nodes.clone() {
            if other != index && self.nodes[other].up {
                let join = Some(member.clone());
                let request = ForwardedRequest { id: incarnation, join, ..Default::default() };
                let message = Content::Forward(Forward { requests: vec![request] }).into();
                self.input(other, Input::Message { from: id, message });
            }
        }
    }

    /// Which incarnation of a node its site's leader lists as a member.
    #[must_use]
    pub fn listed_life(&self, index: NodeIndex) -> Option<u64> {
        let status = self.status(self.leader(self.nodes[index].site)?)?;
        let listed = status.members.nodes.iter().find(|one| one.node == self.nodes[index].id);
        listed.map(|member| member.incarnation)
    }

    /// Whether a node runs and reaches all others of its site both ways, without losses.
    #[must_use]
    pub fn is_well(&self, index: NodeIndex) -> bool {
        let node = &self.nodes[index];
        let network = &self.sites[node.site].network;
        let others = (1..=self.sites[node.site].nodes.len() as u64).filter(|id| *id != node.id);
        node.up
            && node.paused_until <= self.now
            && !node.is_on_old_disk()
            // Without room on its disk it answers nothing.
            && node.process.as_ref().is_some_and(|process| !process.disk_full)
            && network.drop_permille == 0
            && others.into_iter().all(|other| {
                !network.is_cut(node.id, other) && !network.is_cut(other, node.id)
            })
    }

    /// Nothing happens in a node for a while; what comes meanwhile waits.
    pub fn pause(&mut self, index: NodeIndex, span: Duration) {
        self.note_of(index, || format!("is paused for {} ms", span.as_millis()));
        let node = &mut self.nodes[index];
        node.paused_until = node.paused_until.max(self.now + span);
    }

    /// A node's monotonic clock runs at another rate from now on.
    pub fn set_clock_rate(&mut self, index: NodeIndex, rate: f64) {
        self.note_of(index, || format!("its clock runs at {rate:.3}"));
        self.nodes[index].clock.set_rate(self.now, rate);
        self.schedule_wake(index);
    }

    /// A node's wall clock jumps.
    pub fn jump_clock(&mut self, index: NodeIndex, ms: i64) {
        self.note_of(index, || format!("its wall clock jumps by {ms} ms"));
        self.nodes[index].clock.jump(ms);
    }

    /// Nothing rare is made common any more, in any node.
    pub fn calm(&mut self) {
        self.settings.rare_permille = 0;
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            process.site.calm();
        }
    }

    // ---- links ----------------------------------------------------------------------------------

    /// Breaks the connection of two nodes of a site. Both notice.
    pub fn break_link(&mut self, site: usize, a: u64, b: u64) {
        self.sites[site].network.break_link(a, b);
        self.notice_link(site, a, b);
    }

    /// Two nodes of a site notice that their connection is broken.
    fn notice_link(&mut self, site: usize, a: u64, b: u64) {
        for (one, other) in [(a, b), (b, a)] {
            let node = self.sites[site].nodes[one as usize - 1];
            let delay = self.sites[site].network.delay(&mut self.random);
            let life = self.nodes[node].life;
            self.after(delay, Event::LinkLost { node, life, other });
        }
    }

    /// Cuts a node off from all others of its site.
    pub fn isolate(&mut self, site: usize, id: u64) {
        for other in 1..=self.sites[site].nodes.len() as u64 {
            if other != id {
                self.cut(site, id, other);
            }
        }
    }

    /// Nothing passes between two nodes, either way.
    pub fn cut(&mut self, site: usize, a: u64, b: u64) {
        self.note(|| format!("n{a} and n{b} are cut off from each other"));
        self.break_link(site, a, b);
        self.sites[site].network.cut(a, b);
        self.sites[site].network.cut(b, a);
    }

    /// Nothing passes from one node to another; the other way all does.
    pub fn cut_one_way(&mut self, site: usize, from: u64, to: u64) {
        self.note(|| format!("nothing passes from n{from} to n{to}"));
        self.break_link(site, from, to);
        self.sites[site].network.cut(from, to);
    }

    /// Two nodes reach each other again.
    pub fn mend(&mut self, site: usize, a: u64, b: u64) {
        self.note(|| format!("n{a} and n{b} reach each other again"));
        self.sites[site].network.mend(a, b);
        self.sites[site].network.mend(b, a);
    }

    /// All links of all sites work, and those between them.
    pub fn heal(&mut self) {
        self.note(|| "all links work".to_owned());
        self.heal_between();
        for group in &mut self.sites {
            group.network.heal();
        }
    }
}
