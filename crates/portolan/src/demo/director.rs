//! Lets time pass in the city: carries out the script, notes what happens, and shows it.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use lab::history::MarkKind;
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use super::{
    Args, DemoError,
    city::{City, CityError, Holding, Nodes},
    lines::Lines,
    outcome::{self, Audit},
    picture::{Picture, Role, SiteLifecycle, Sites},
    plan::Plan,
    script::{Act, Facts, Script},
    story::{Arrival, Departure, Done, Kill, Story},
    vehicle::Shared,
    view::View,
};

/// How often the nodes' roles are looked at.
const TICK: Duration = Duration::from_millis(25);
/// Every how many ticks the view is drawn.
const TICKS_PER_VIEW: u64 = 5;
/// Every how many ticks the owners of slots, and what has moved, are read.
const TICKS_PER_LOOK: u64 = 5;
/// Every how many ticks sites state what they lend.
const TICKS_PER_LEDGER: u64 = 40;
/// For so long the run goes on when what is to happen is not over.
const OVERTIME: Duration = Duration::from_secs(300);

/// A run, while it goes on.
pub(super) struct Director<'a> {
    city: &'a mut City,
    shared: &'a Shared,
    plan: &'a Plan,
    length: Duration,
    script: Script,
    story: Story,
    /// What was read back at the site that left.
    audit: Audit,
    /// Which node leads each site.
    leaders: Vec<Option<usize>>,
    lifecycles: Vec<SiteLifecycle>,
    holdings: Vec<Holding>,
    joining: Option<JoinHandle<Result<Nodes, CityError>>>,
}

impl<'a> Director<'a> {
    /// For a city in which vehicles drive already.
    pub(super) fn new(
        city: &'a mut City,
        shared: &'a Shared,
        plan: &'a Plan,
        length: Duration,
    ) -> Self {
        let mut lifecycles = vec![SiteLifecycle::Here; plan.world.sites.len()];
        if let Some(site) = plan.to_join {
            lifecycles[site] = SiteLifecycle::Expected;
        }
        Self {
            script: Script::new(length, plan.to_join, plan.to_kill, plan.to_leave),
            story: Story::default(),
            audit: Audit::default(),
            leaders: leaders(&city.roles()),
            holdings: vec![Holding::default(); lifecycles.len()],
            lifecycles,
            joining: None,
            city,
            shared,
            plan,
            length,
        }
    }

    /// Goes on until the time is over and all has happened, or the user has seen enough. Reports
    /// what happened, and what was read back at a site that left.
    pub(super) async fn direct(mut self, args: &Args) -> Result<(Story, Audit), DemoError> {
        let terminal = DemoError::io("cannot draw on the terminal");
        let headless = args.headless || !io::stdout().is_terminal();
        let title = self.plan.title.clone();
        let view = if headless { None } else { Some(View::open(&self.plan.world, title)) };
        let mut view = view.transpose().map_err(terminal)?;
        let mut lines = Lines::default();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for tick in 0_u64.. {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = tokio::signal::ctrl_c() => break,
            }
            let elapsed = self.shared.scene.elapsed();
            self.look_for_leaders();
            if tick % TICKS_PER_LOOK == 0 {
                self.admit_joined().await?;
                self.holdings = self.city.holdings();
                self.look_at_moves();
                if let Some(act) = self.script.next(&self.facts(elapsed)) {
                    self.carry_out(act).await?;
                }
            }
            if tick % TICKS_PER_LEDGER == 0 {
                self.look_at_ledgers().await;
            }
            let over = elapsed >= self.length + OVERTIME
                || elapsed >= self.length && self.script.is_over();
            if tick % TICKS_PER_VIEW == 0 || over {
                let t_s = self.plan.clock.t_s(elapsed);
                let (world, scene) = (&self.plan.world, &self.shared.scene);
                let picture = Picture::take(world, scene, self.sites(), t_s, self.length);
                let quit = match &mut view {
                    Some(view) => view.show(&picture),
                    None => lines.show(&picture, io::stdout().lock()).map(|()| false),
                };
                if quit.map_err(DemoError::io("cannot write to the terminal"))? {
                    break;
                }
            }
            if over {
                break;
            }
        }
        self.look_at_moves();
        self.look_at_ledgers().await;
        self.story.slots = self.city.holdings().iter().map(|one| one.slots).collect();
        Ok((self.story, self.audit))
    }

    fn sites(&self) -> Sites {
        Sites {
            roles: self.city.roles(),
            lifecycles: self.lifecycles.clone(),
            waits_for: self.script.waits_for(),
            holdings: self.holdings.clone(),
        }
    }

    fn facts(&self, elapsed: Duration) -> Facts {
        let plan = self.plan;
        let is_up = |site: &usize| {
            self.lifecycles[*site] == SiteLifecycle::Joining && self.joining.is_none()
        };
        Facts {
            elapsed,
            joined_slots: plan.to_join.filter(is_up).map(|site| self.holdings[site].slots),
            moves: self.holdings.iter().map(|holding| holding.moves).sum(),
            has_leader: plan.to_kill.is_some_and(|site| self.leaders[site].is_some()),
            known_by: plan.to_leave.map_or(0, |site| self.city.known_by(site)),
            attached: plan.to_leave.map_or(0, |site| self.shared.scene.lock().attached(site)),
        }
    }

    /// Groups that have moved since this was last looked at.
    fn look_at_moves(&self) {
        let (at, made) = (self.shared.scene.elapsed(), self.city.moves_made());
        let mut seen = self.shared.scene.lock();
        for (site, totals) in made.iter().enumerate() {
            let groups = seen.loans.made_since(site, totals);
            seen.comparison.moved(at, groups);
        }
    }

    /// What groups that move bring so far.
    async fn look_at_ledgers(&self) {
        let ledgers = self.city.ledgers().await;
        let loans = &mut self.shared.scene.lock().loans;
        for (site, ledger) in ledgers.iter().enumerate() {
            if let Some(ledger) = ledger {
                loans.look(site, ledger);
            }
        }
    }

    fn look_for_leaders(&mut self) {
        let now = leaders(&self.city.roles());
        for (site, leader) in now.into_iter().enumerate() {
            let before = std::mem::replace(&mut self.leaders[site], leader);
            // The leader of a site that has just come is no event.
            if leader.is_some()
                && leader != before
                && self.lifecycles[site] != SiteLifecycle::Joining
            {
                self.note_election(site);
            }
        }
    }

    fn note_election(&mut self, site: usize) {
        let at = self.shared.scene.elapsed();
        let name = &self.plan.world.sites[site].name;
        let label = match &mut self.story.kill {
            Some(kill) if kill.site == site && kill.leaderless.is_none() => {
                let leaderless = at.saturating_sub(kill.at);
                kill.leaderless = Some(leaderless);
                // By now it is known which node is gone, and vehicles that come do not try it.
                self.shared.roster.open(site, self.city.endpoints(site));
                format!("{name} has a new one, {} ms later", leaderless.as_millis())
            }
            _ => format!("{name} has a new leader"),
        };
        self.shared.scene.lock().measure.elected(at, label);
    }

    /// Lets vehicles use a site whose nodes have come up.
    async fn admit_joined(&mut self) -> Result<(), DemoError> {
        let Some(joining) = self.joining.take_if(|joining| joining.is_finished()) else {
            return Ok(());
        };
        let nodes = joining.await.map_err(CityError::from)??;
        let site = self.plan.to_join.unwrap_or_default();
        self.city.admit(site, nodes);
        self.leaders = leaders(&self.city.roles());
        self.shared.roster.open(site, self.city.endpoints(site));
        Ok(())
    }

    /// Something is done to the city, or has come about.
    fn note(&self, kind: MarkKind, label: String) {
        let at = self.shared.scene.elapsed();
        let mut seen = self.shared.scene.lock();
        seen.recorder.mark(kind, label.clone(), at);
        seen.measure.mark(at, label);
    }

    async fn carry_out(&mut self, act: Act) -> Result<(), DemoError> {
        let at = self.shared.scene.elapsed();
        let before = self.shared.scene.lock().measure.counters();
        match act {
            Act::Join(site) => {
                self.joining = Some(self.city.starting(site));
                self.lifecycles[site] = SiteLifecycle::Joining;
                self.story.arrival = Some(Arrival { site, at, before, done: None });
                self.note(MarkKind::Note, format!("{} begins to join", self.name(site)));
            }
            Act::Joined(site) => {
                self.lifecycles[site] = SiteLifecycle::Here;
                let slots = self.holdings[site].slots;
                if let Some(arrival) = &mut self.story.arrival {
                    let took = at.saturating_sub(arrival.at);
                    arrival.done = Some(Done::new(took, slots, arrival.before, before));
                }
                let label = format!("{} has joined and holds {slots} slots", self.name(site));
                self.note(MarkKind::Note, label);
            }
            Act::Kill(site) => {
                let Some(node) = self.leaders[site] else { return Ok(()) };
                self.city.stop_node(site, node).await;
                self.leaders[site] = None;
                self.story.kill = Some(Kill { site, at, leaderless: None });
                self.note(MarkKind::Fault, format!("{} loses its leader", self.name(site)));
            }
            Act::Leave(site) => {
                let slots = self.holdings[site].slots;
                self.shared.roster.close(site);
                self.lifecycles[site] = SiteLifecycle::Leaving;
                let departure = Departure { site, at, slots, before, done: None };
                self.story.departure = Some(departure);
                let label = format!("{} hands over {slots} slots", self.name(site));
                self.note(MarkKind::Note, label);
                let asked = self.city.leave(site).await;
                asked.map_err(|failure| DemoError::Leave { name: self.name(site), failure })?;
            }
            Act::Dismiss(site) => self.dismiss(site).await,
        }
        Ok(())
    }

    /// Reads back what vehicles left at a site that has left, and stops it.
    async fn dismiss(&mut self, site: usize) {
        let (at, after) = {
            let seen = self.shared.scene.lock();
            (self.shared.scene.elapsed(), seen.measure.counters())
        };
        if let Some(departure) = &mut self.story.departure {
            let took = at.saturating_sub(departure.at);
            departure.done = Some(Done::new(took, departure.slots, departure.before, after));
        }
        self.audit = outcome::read_back_reports(self.shared, Some(site)).await;
        self.shared.scene.lock().ledger.forget_site(site);
        self.city.stop_site(site).await;
        self.lifecycles[site] = SiteLifecycle::Left;
        self.note(MarkKind::Note, format!("{} has left and is stopped", self.name(site)));
    }

    fn name(&self, site: usize) -> model::SiteName {
        self.plan.world.sites[site].name.clone()
    }
}

fn leaders(roles: &[Vec<Role>]) -> Vec<Option<usize>> {
    roles.iter().map(|nodes| nodes.iter().position(|role| *role == Role::Leader)).collect()
}
