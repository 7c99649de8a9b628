//! States as they are kept: numbers of sites, of messages and of what no site has.
//!
//! States that come to the same are brought into one form: what is cleared here can no longer
//! matter, whatever comes next. That is checked, too (`forms_leave_no_state_out`).

use super::scene::{FAILOVERS_MAX, Global, INSTALLS_MAX, Install, OFFERS_MAX, Rules, SITES, Scene};
use super::scene::{Sent, Site, has, place};
use super::search::{Explore, Fast, hash};
use super::steps::{Bounds, Name};
use protocol::global::ownership::trial::{Bug, Planted};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// 0: none.
pub(crate) type State = [u32; SITES + INSTALLS_MAX + OFFERS_MAX + 1];

const INSTALLS: usize = SITES;
const OFFERS: usize = SITES + INSTALLS_MAX;
const GLOBAL: usize = OFFERS + OFFERS_MAX;

/// Values and their numbers, from 1.
struct Table<T>(Vec<T>, HashMap<T, u32, Fast>);

impl<T: Copy + Hash + Eq> Table<T> {
    fn new() -> Table<T> {
        Table(Vec::new(), HashMap::default())
    }

    fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.1.get(&value) {
            return *number;
        }
        self.0.push(value);
        self.1.insert(value, self.0.len() as u32);
        self.0.len() as u32
    }

    fn value(&self, number: u32) -> Option<T> {
        number.checked_sub(1).map(|at| self.0[at as usize])
    }
}

pub(crate) struct World {
    bounds: Bounds,
    pub(crate) rules: Rules,
    sites: Table<Site>,
    installs: Table<Install>,
    offers: Table<Sent>,
    globals: Table<Global>,
    names: HashMap<Name, &'static str, Fast>,
    /// Whether states that come to the same are brought into one form.
    pub(crate) settles: bool,
    /// The forms of all states that were looked at, if they are wanted.
    pub(crate) forms: Option<HashSet<State, Fast>>,
}

impl World {
    pub(crate) fn new(bounds: Bounds, planted: Planted) -> World {
        World {
            bounds,
            rules: Rules::new(planted),
            sites: Table::new(),
            installs: Table::new(),
            offers: Table::new(),
            globals: Table::new(),
            names: HashMap::default(),
            settles: true,
            forms: None,
        }
    }

    pub(crate) fn begin(&mut self) -> State {
        self.pack(Scene::begin(), true)
    }

    fn pack(&mut self, mut scene: Scene, settles: bool) -> State {
        if settles {
            self.settle(&mut scene);
        }
        let mut state = State::default();
        for (at, site) in scene.sites.into_iter().enumerate() {
            state[at] = self.sites.number(site);
        }
        for (at, install) in scene.installs.into_iter().enumerate() {
            state[INSTALLS + at] = install.map_or(0, |install| self.installs.number(install));
        }
        for (at, sent) in scene.offers.into_iter().enumerate() {
            state[OFFERS + at] = sent.map_or(0, |sent| self.offers.number(sent));
        }
        state[INSTALLS..OFFERS].sort_unstable();
        state[OFFERS..GLOBAL].sort_unstable();
        state[GLOBAL] = self.globals.number(scene.global);
        state
    }

    pub(crate) fn unpack(&self, state: &State) -> Scene {
        let mut scene = Scene::default();
        for (at, site) in scene.sites.iter_mut().enumerate() {
            *site = self.sites.value(state[at]).expect("all are there");
        }
        for (at, install) in scene.installs.iter_mut().enumerate() {
            *install = self.installs.value(state[INSTALLS + at]);
        }
        for (at, sent) in scene.offers.iter_mut().enumerate() {
            *sent = self.offers.value(state[OFFERS + at]);
        }
        scene.global = self.globals.value(state[GLOBAL]).expect("it is there");
        scene
    }

    fn settle(&self, x: &mut Scene) {
        let (sites, global) = (x.sites, x.global);
        let left = global.left;
        // Tokens and numbers of loans never decrease.
        for install in &mut x.installs {
            *install = install.filter(|install: &Install| {
                let to = usize::from(install.to);
                let may = !has(left, to) && !has(left, install.from.into());
                may && sites[to].holding.token.epoch() < install.epoch
            });
        }
        let planted = self.rules.planted;
        let (old, lower) = (planted.is(Bug::LentUnderOldEpoch), planted.is(Bug::NumberLowered));
        for sent in &mut x.offers {
            *sent = sent.filter(|Sent { group, offer, .. }| {
                let to = place(offer.row.to);
                let site = &sites[to];
                !has(left, to)
                    && (lower || site.parts[usize::from(*group)].loan < offer.row.loan)
                    && (old || site.holding.token.epoch() <= offer.epoch)
                    && global.last_failover(to, site) <= offer.row.known
            });
        }
        // A decision that all sites have is forgotten.
        let global = &mut x.global;
        for f in 0..FAILOVERS_MAX {
            let has_it = |at: &usize| usize::from(sites[*at].known) > f || has(left, *at);
            if (0..SITES).all(|at| has_it(&at)) {
                global.decisions[f] = None;
            }
            for at in (0..SITES).filter(has_it) {
                global.masks[f] &= !(1 << at);
            }
        }
        global.acknowledged &= !global.lost;
    }

    fn name(&mut self, step: Name) -> &'static str {
        let letter = |at: usize| char::from(b'a' + at as u8);
        self.names.entry(step).or_insert_with(|| {
            let (verb, one, other, group) = step;
            let mut named = match verb {
                "close" | "decide" => verb.to_owned(),
                "suspend" => {
                    let others = (0..SITES).filter(|at| has(other as u8, *at) && *at != one);
                    let others: String = others.map(|at| format!("+{}", letter(at))).collect();
                    format!("{verb} {}{others}", letter(one))
                }
                "lend" | "offer" | "freeze" | "sync" | "stream" => {
                    format!("{verb} {}>{}", letter(one), letter(other))
                }
                "backup" => format!("{verb} {}={}", letter(one), letter(other)),
                _ => format!("{verb} {}", letter(one)),
            };
            if group == Some(1) {
                named += " 2";
            }
            Box::leak(named.into_boxed_str())
        })
    }

    /// The state after these steps, none of which may be faulty.
    pub(crate) fn play(&mut self, steps: &[&str]) -> State {
        let mut state = self.begin();
        for wanted in steps {
            let mut found = None;
            let mut offered = Vec::new();
            self.expand(&state, &mut |next, name| {
                offered.push(name);
                if name == *wanted {
                    found = Some(next);
                }
            });
            state = found.unwrap_or_else(|| panic!("no step {wanted:?} among {offered:?}"));
        }
        state
    }
}

impl Explore for World {
    type State = State;

    fn key(&self, state: &State) -> u64 {
        hash(*state)
    }

    fn expand(&mut self, state: &State, emit: &mut dyn FnMut(State, &'static str)) {
        let scene = self.unpack(state);
        let mut steps = Vec::new();
        self.rules.steps(&scene, self.bounds, &mut |next, name| steps.push((next, name)));
        for (next, name) in steps {
            let next = self.pack(next, self.settles);
            let name = self.name(name);
            emit(next, name);
        }
    }

    fn fault(&mut self, state: &State) -> Option<&'static str> {
        let scene = self.unpack(state);
        if self.forms.is_some() {
            let form = self.pack(scene, true);
            self.forms.as_mut().expect("they are wanted").insert(form);
        }
        self.rules.fault(&scene)
    }

    fn show(&self, state: &State) -> String {
        let scene = self.unpack(state);
        let mut text: String = scene.sites.iter().map(|site| format!("{site:?}\n")).collect();
        text += &format!("{:?}\n", scene.global);
        for sent in scene.offers.iter().flatten() {
            text += &format!("{sent:?}\n");
        }
        text
    }
}
