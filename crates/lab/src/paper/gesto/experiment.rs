//! Which runs make which figure.

use std::collections::BTreeMap;
use std::fmt;

use super::Size;
use super::goals::NUMBER;
use super::own::Own;
use crate::baselines::cops::{Cops, Lists};
use crate::baselines::eventual::Eventual;
use crate::baselines::gesto::{Attach, Gesto};
use crate::baselines::occult::Occult;
use crate::baselines::play::{Load, Measured, play};
use crate::baselines::real::{InRealTime, Reality};
use crate::baselines::saturn::Saturn;
use crate::baselines::{Costs, Layout, Modelled, Protocol, Store};

/// The figures of the paper that come of its evaluation; 0 is metadata against the number of sites,
/// 1 Portolan's own causal keys.
pub const FIGURES: [u8; 8] = [2, 3, 4, 5, 6, 7, 0, NUMBER];
/// Access patterns: reads before a write of a key that is everywhere.
pub const PATTERNS: [u32; 5] = [1, 9, 45, 90, 180];
/// The pattern where a figure has one only.
pub const PATTERN: u32 = 45;
/// Clients at each of the seven sites, from 14 to 553 in all.
pub const CLIENTS: [usize; 8] = [2, 8, 14, 21, 36, 50, 64, 79];
/// Sites of the deployments that metadata is counted in.
pub const SITES: [usize; 5] = [7, 16, 32, 64, 128];

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Eventual consistency.
    Eventual,
    /// COPS, as Gesto's authors evaluated it.
    Cops,
    /// Occult.
    Occult,
    /// Saturn.
    Saturn,
    /// Gesto.
    Gesto,
    /// Portolan's own causal keys; not in the paper.
    Portolan,
    /// The same with a standby of the root.
    PortolanStandby,
}

impl System {
    /// Those of the paper.
    pub const ALL: [System; 5] =
        [System::Eventual, System::Cops, System::Occult, System::Saturn, System::Gesto];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Eventual => "Eventual",
            System::Cops => "COPS",
            System::Occult => "Occult",
            System::Saturn => "Saturn",
            System::Gesto => "Gesto",
            System::Portolan => "Portolan",
            System::PortolanStandby => "Portolan, a standby",
        }
    }

    /// A store of it, at rest.
    #[must_use]
    pub fn store(self, layout: &Layout) -> Box<dyn Store> {
        let all = layout.clone();
        match self {
            System::Eventual => Box::new(Modelled::new(all, Eventual::new(layout))),
            System::Cops => Box::new(Modelled::new(all, Cops::new(layout, Lists::Direct))),
            System::Occult => Box::new(Modelled::new(all, Occult::new(layout))),
            System::Saturn => Box::new(Modelled::new(all, Saturn::new(layout))),
            System::Gesto => Box::new(Modelled::new(all, Gesto::new(layout, Attach::Paper))),
            System::Portolan => Box::new(Own::new(layout, false)),
            System::PortolanStandby => Box::new(Own::new(layout, true)),
        }
    }

    /// A store of one of the paper's in real time, at rest.
    fn in_real_time<'r>(
        self,
        layout: &Layout,
        reality: &'r mut dyn Reality,
    ) -> Option<Box<dyn Store + 'r>> {
        fn of<'r, P: Protocol + 'r>(
            layout: &Layout,
            protocol: P,
            reality: &'r mut dyn Reality,
        ) -> Box<dyn Store + 'r> {
            Box::new(InRealTime::new(Modelled::new(layout.clone(), protocol), reality))
        }
        Some(match self {
            System::Eventual => of(layout, Eventual::new(layout), reality),
            System::Cops => of(layout, Cops::new(layout, Lists::Direct), reality),
            System::Occult => of(layout, Occult::new(layout), reality),
            System::Saturn => of(layout, Saturn::new(layout), reality),
            System::Gesto => of(layout, Gesto::new(layout, Attach::Paper), reality),
            System::Portolan | System::PortolanStandby => return None,
        })
    }
}

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    /// W1 of two clients a site, with this access pattern.
    Pattern(u32),
    /// The same, and a write is of any key.
    Free,
    /// So many clients a site.
    Clients(usize),
    /// Two clients a site with W1 and two with W2.
    Moves,
    /// So many sites on a plane, with a client each.
    Sites(usize),
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// What is varied.
    pub scene: Scene,
    /// Of which store.
    pub system: System,
    /// How long.
    pub size: Size,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.system.name();
        match self.scene {
            Scene::Pattern(reads) => write!(f, "{name}, {reads} reads before a write"),
            Scene::Free => write!(f, "{name}, writes of any key"),
            Scene::Clients(clients) => write!(f, "{name}, {clients} clients a site"),
            Scene::Moves => write!(f, "{name}, clients that move"),
            Scene::Sites(sites) => write!(f, "{name}, {sites} sites"),
        }
    }
}

/// What each run came to.
pub type Results = BTreeMap<Point, Measured>;

impl Point {
    fn layout(&self) -> Layout {
        match self.scene {
            Scene::Pattern(_) | Scene::Free => Layout::table_one(2),
            Scene::Clients(clients) => Layout::table_one(clients),
            Scene::Moves => Layout::table_one(4),
            Scene::Sites(sites) => Layout::plane(sites, 1, 1),
        }
    }

    fn load(&self) -> Load {
        let (warm_us, measured_us) = match (self.scene, self.size) {
            (Scene::Clients(_) | Scene::Sites(_), Size::Paper) => (300_000, 700_000),
            (_, Size::Paper) => (500_000, 4_000_000),
            (Scene::Clients(_) | Scene::Sites(_), Size::Quick) => (50_000, 50_000),
            (_, Size::Quick) => (100_000, 200_000),
        };
        let reads_a_full_write = match self.scene {
            Scene::Pattern(reads) => reads,
            Scene::Free => 0,
            _ => PATTERN,
        };
        let movers_every = if self.scene == Scene::Moves { 2 } else { 0 };
        Load { movers_every, reads_a_full_write, warm_us, measured_us, seed: 1, has_history: false }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self) -> Measured {
        let layout = self.layout();
        play(&mut *self.system.store(&layout), &layout, self.load())
    }

    /// Runs it in real time for so long, behind a quarter of that; `None`: it is of no model.
    pub fn run_in_real_time(
        &self,
        measured_us: u64,
        reality: &mut dyn Reality,
    ) -> Option<Measured> {
        let layout = Layout { costs: Costs::none(), ..self.layout() };
        let mut store = self.system.in_real_time(&layout, reality)?;
        let load = Load { warm_us: measured_us / 4, measured_us, ..self.load() };
        Some(play(&mut *store, &layout, load))
    }
}

/// The scenes of a figure.
#[must_use]
pub fn scenes(figure: u8, size: Size) -> Vec<Scene> {
    let few = |count: usize| if size == Size::Quick { 2 } else { count };
    match figure {
        2 => vec![Scene::Pattern(PATTERN)],
        3 | 4 => PATTERNS.map(Scene::Pattern).to_vec(),
        5 => vec![Scene::Free],
        6 => CLIENTS[..few(CLIENTS.len())].iter().map(|clients| Scene::Clients(*clients)).collect(),
        7 => vec![Scene::Moves],
        NUMBER => vec![Scene::Pattern(PATTERN), Scene::Free, Scene::Moves],
        _ => SITES[..few(SITES.len())].iter().map(|sites| Scene::Sites(*sites)).collect(),
    }
}

/// All runs, each once, in a fixed order.
#[must_use]
pub fn points(figures: &[u8], size: Size) -> Vec<Point> {
    let of_figure = |figure: &u8| {
        let own: &[System] = match *figure == NUMBER {
            true => &[System::Portolan, System::PortolanStandby],
            false => &[],
        };
        let systems = System::ALL.into_iter().chain(own.iter().copied());
        let of = move |scene| systems.clone().map(move |system| Point { scene, system, size });
        scenes(*figure, size).into_iter().flat_map(of)
    };
    let points = figures.iter().flat_map(of_figure);
    let is_run = |point: &Point| match point.system {
        // It has no bound without writes that compress its lists; the paper leaves it out there.
        System::Cops => point.scene != Scene::Free,
        // All that a standby delays is when a write becomes visible elsewhere.
        System::PortolanStandby => point.scene == Scene::Free,
        _ => true,
    };
    let mut points: Vec<Point> = points.filter(is_run).collect();
    points.sort_unstable();
    points.dedup();
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_share_their_runs() {
        let count = |figures: &[u8]| points(figures, Size::Quick).len();
        assert_eq!((count(&[2]), count(&[3]), count(&[3, 4]), count(&[2, 3])), (5, 25, 25, 25));
        assert_eq!((count(&[5]), count(&[6]), count(&[7]), count(&[0])), (4, 10, 5, 10));
        assert_eq!(count(&[NUMBER]), 6 + 6 + 6);
        assert_eq!(points(&FIGURES, Size::Paper).len(), 25 + 4 + 40 + 5 + 25 + 4);
    }
}
