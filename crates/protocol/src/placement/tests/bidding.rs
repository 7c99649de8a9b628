//! Prices: the auction over all sites, and the market of one.

use super::super::market::{HEADROOM, RESERVED_WINDOWS};
use super::super::plan::moves;
use super::super::trial::{Bug, Planted};
use super::*;

const SITES: usize = 64;

/// Groups with four origins each, more of them at some sites than at others.
struct Users {
    popular: Vec<f32>,
    accesses: Vec<Vec<(Origin, f32)>>,
}

impl Users {
    fn new(count: usize, dice: &mut Dice) -> Users {
        let mut sum = 0.0;
        let popular = (0..SITES).map(|_| {
            sum -= (1.0 - dice.part()).ln();
            sum
        });
        let mut users = Users { popular: popular.collect(), accesses: Vec::new() };
        users.accesses = (0..count).map(|_| users.draw(dice)).collect();
        users
    }

    fn draw(&self, dice: &mut Dice) -> Vec<(Origin, f32)> {
        let sum = self.popular.last().copied().unwrap_or(0.0);
        let mut one = || {
            let point = dice.part() * sum;
            let index = self.popular.partition_point(|end| *end <= point).min(SITES - 1);
            (origin(index), 100.0 * (1.0 - dice.part()))
        };
        (0..4).map(|_| one()).collect()
    }

    fn groups(&self, sites: &[Site], bytes: &[u32]) -> Groups {
        let mut groups = Groups::new(SITES, SITES);
        for (index, accesses) in self.accesses.iter().enumerate() {
            groups.push(sites[index], bytes[index], accesses.iter().copied());
        }
        groups
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Portkey,
    Keep,
    Prices,
}

/// What a rule comes to after six windows, in each of which 2 % of the groups get other users: by
/// how many per cent it is above D(λ), and how many per cent of the other groups it moves in a
/// window.
fn six_windows(rule: Rule, slack: f64, sizes: u32) -> (f64, f64) {
    const COUNT: usize = 4_000;
    let mut dice = Dice::new(9);
    let latencies = plane(SITES, &mut dice);
    let (near, rules) = (Near::new(latencies.mean(), 8), Rules::none(SITES));
    let mut users = Users::new(COUNT, &mut dice);
    let bytes: Vec<u32> = (0..COUNT).map(|_| 100 + dice.below(sizes as usize) as u32).collect();
    let all: u64 = bytes.iter().map(|bytes| u64::from(*bytes)).sum();
    let capacities = vec![(all as f64 * slack / SITES as f64) as u64; SITES];
    let mut sites: Vec<Site> = (0..COUNT).map(|_| site(dice.below(SITES))).collect();
    let mut prices = Prices::none(SITES);
    let mut moved = 0;
    let terms = |margin| Terms {
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        capacities: &capacities,
        margin,
        ready: &[],
        bids_max: 1_000_000,
    };
    let mut groups = users.groups(&sites, &bytes);
    for window in 0..6 {
        let mut is_new = vec![window == 0; COUNT];
        for (group, is_new) in is_new.iter_mut().enumerate() {
            if window > 0 && dice.is(0.02) {
                *is_new = true;
                users.accesses[group] = users.draw(&mut dice);
            }
        }
        groups = users.groups(&sites, &bytes);
        let solver = Solver::new(latencies.mean(), &near, &rules);
        let solution = solver.solve(&groups, u64::MAX);
        let keep = Incumbents::Keep { margin: 0.1 };
        let assignment = match rule {
            Rule::Portkey => greedy(&solver, &groups, &solution, &capacities, Incumbents::Move),
            Rule::Keep => greedy(&solver, &groups, &solution, &capacities, keep),
            Rule::Prices => prices.auction(&terms(0.1), &groups),
        };
        assert_eq!(assignment.unplaced, 0, "{rule:?} at {slack}");
        if rule != Rule::Keep {
            let held = assignment.held(&groups);
            assert!(held.iter().zip(&capacities).all(|(held, most)| held <= most));
        }
        for group in 0..COUNT {
            moved += usize::from(!is_new[group] && assignment.site(group) != sites[group]);
            sites[group] = assignment.site(group);
        }
    }
    let groups_now = users.groups(&sites, &bytes);
    let solver = Solver::new(latencies.mean(), &near, &rules);
    let cost = |group| f64::from(solver.cost(&groups_now, group, sites[group]));
    let cost: f64 = (0..COUNT).map(cost).sum();
    // The tightest certificate: prices that an auction with little margin finds.
    let mut fine = prices.clone();
    fine.auction(&terms(0.002), &groups);
    let bound = fine.bound(&terms(0.0), &groups).max(prices.bound(&terms(0.0), &groups));
    ((cost / bound - 1.0) * 100.0, moved as f64 / 5.0 / COUNT as f64 * 100.0)
}

#[test]
fn prices_are_near_the_bound_and_move_little() {
    for (slack, above_max, moved_max) in [(1.05, 1.0, 5.0), (1.2, 1.0, 5.0), (2.0, 1.0, 1.0)] {
        let rows =
            [Rule::Portkey, Rule::Keep, Rule::Prices].map(|rule| six_windows(rule, slack, 1));
        let [portkey, keep, (above, moved)] = rows;
        eprintln!(
            "capacity {slack}: % above D, % unchanged moved: Portkey {portkey:.2?}, keep {keep:.2?}, prices {:.2?}",
            (above, moved)
        );
        assert!(above >= 0.0 && above <= above_max, "{above} % above the bound at {slack}");
        assert!(moved <= moved_max, "{moved} % of unchanged groups moved at {slack}");
        assert!(above < portkey.0.max(1.1) && above < keep.0 && moved < portkey.1.min(keep.1));
    }
}

#[test]
fn prices_bear_groups_of_unequal_sizes() {
    let (above, moved) = six_windows(Rule::Prices, 1.05, 1_000);
    eprintln!("capacity 1.05, sizes 100–1,100: {above:.2} % above D, {moved:.2} % unchanged moved");
    assert!((0.0..=3.0).contains(&above) && moved <= 10.0, "{above} % above, {moved} % moved");
}

/// Markets of a few sites, and who holds each group.
struct Town {
    markets: Vec<Market>,
    owners: Vec<Site>,
    rules: Rules,
}

impl Town {
    /// Sites that sell so many bytes each; groups of 100 bytes, with what they bid.
    fn new(capacity: u64, at: &[(usize, f32)], planted: Planted) -> Town {
        let limit = (capacity as f64 * (1.0 + HEADROOM)).ceil() as u64;
        let sites = 1 + at.iter().map(|(index, _)| *index).max().unwrap_or(0);
        let rules = Rules::none(sites);
        let markets: Vec<_> =
            (0..sites).map(|index| Market::new(site(index), limit, planted)).collect();
        let mut town = Town { markets, owners: Vec::new(), rules };
        for (group, (index, bid)) in at.iter().enumerate() {
            let group = group as u32;
            town.markets[*index].install(group, 100, &town.rules).expect("room");
            town.markets[*index].update(Claim { group, bytes: 100, bid: *bid });
            town.owners.push(site(*index));
        }
        town
    }

    fn claim(&mut self, group: u32, at: usize, bid: f32) -> Verdict {
        self.markets[at].claim(Claim { group, bytes: 100, bid }, &self.rules)
    }

    fn install(&mut self, group: u32, at: usize) -> Result<(), Refusal> {
        self.markets[at].install(group, 100, &self.rules)?;
        let from = std::mem::replace(&mut self.owners[group as usize], site(at));
        self.markets[usize::from(from.0)].remove(group);
        Ok(())
    }

    /// No site holds more than it can, and each group is at its owner and nowhere else.
    fn is_sound(&self) -> bool {
        let most =
            |market: &Market| (market.capacity_bytes() as f64 * (1.0 + HEADROOM)).ceil() as u64;
        self.markets.iter().all(|market| market.held_bytes() <= most(market) + 1)
            && (0..self.owners.len()).all(|group| {
                let owner = self.owners[group];
                let holds = |index: usize| self.markets[index].holds(group as u32);
                (0..self.markets.len()).all(|index| holds(index) == (owner == site(index)))
            })
    }
}

fn admitted(outbid: &[u32]) -> Verdict {
    Verdict::Admitted { outbid: outbid.to_vec() }
}

/// Two owners have one place in mind; one has a reservation that has run out.
fn two_owners_one_place(planted: Planted) -> bool {
    let mut town = Town::new(200, &[(0, 9.0), (1, 0.0), (2, 0.0)], planted);
    assert_eq!(town.claim(1, 0, 1.0), admitted(&[]));
    (0..RESERVED_WINDOWS).for_each(|_| town.markets[0].close_window());
    assert_eq!(town.claim(2, 0, 1.0), admitted(&[]));
    let installed = [town.install(2, 0), town.install(1, 0)];
    town.is_sound() && installed == [Ok(()), Err(Refusal::Busy)]
}

#[test]
fn two_owners_never_overfill_a_site() {
    assert!(two_owners_one_place(Planted::none()));
    if Planted::is_possible() {
        assert!(!two_owners_one_place(Planted::of(Bug::CapacityAtClaimOnly)));
    }
}

/// A site begins to drain, and a group is pinned, between claim and install.
fn rules_change_on_the_way(planted: Planted) -> bool {
    let mut town = Town::new(400, &[(0, 9.0), (1, 0.0), (1, 0.0)], planted);
    assert_eq!(town.claim(1, 0, 1.0), admitted(&[]));
    assert_eq!(town.claim(2, 0, 1.0), admitted(&[]));
    town.rules.pin(1, site(1));
    let pinned = town.install(1, 0);
    town.rules.bar(site(0));
    let barred = town.install(2, 0);
    (pinned, barred) == (Err(Refusal::Rule(Bar::Pinned)), Err(Refusal::Rule(Bar::Barred)))
}

#[test]
fn rules_hold_when_a_group_is_installed() {
    assert!(rules_change_on_the_way(Planted::none()));
    if Planted::is_possible() {
        assert!(!rules_change_on_the_way(Planted::of(Bug::RulesAtClaimOnly)));
    }
}

/// Both sites are full, and each of two groups is better at the other's site.
fn full_sites_exchange_groups(planted: Planted) -> bool {
    let mut at = vec![(0, 0.0), (1, 0.0)];
    at.extend((0..38).map(|index| (index % 2, 5.0)));
    let mut town = Town::new(2_000, &at, planted);
    if town.claim(0, 1, 3.0) != admitted(&[1]) || !town.is_sound() {
        return false;
    }
    // The one that is outbid stays until it is admitted elsewhere.
    let stays = town.markets[1].outbid().eq([1]) && town.install(0, 1).is_ok() && town.is_sound();
    let goes = town.claim(1, 0, 3.0) == admitted(&[]) && town.install(1, 0).is_ok();
    let is_sold = town.markets.iter().all(|market| market.held_bytes() == market.capacity_bytes());
    stays && goes && is_sold && town.is_sound()
}

#[test]
fn an_outbid_group_stays_until_it_is_admitted() {
    assert!(full_sites_exchange_groups(Planted::none()));
    if Planted::is_possible() {
        assert!(!full_sites_exchange_groups(Planted::of(Bug::ReleaseFirst)));
    }
}

#[test]
fn a_price_rises_to_the_losers_bid_and_falls_when_there_is_room() {
    let mut town =
        Town::new(200, &[(0, 2.0), (0, 4.0), (1, 0.0), (1, 0.0), (2, 0.0)], Planted::none());
    assert_eq!(town.claim(2, 0, 1.0), Verdict::Refused(Refusal::Price(1.0)));
    assert_eq!(town.claim(2, 0, 0.5), Verdict::Refused(Refusal::Price(1.0)));
    assert_eq!(town.claim(2, 0, f32::NAN), Verdict::Refused(Refusal::Malformed));
    // There is headroom for a part of a group only.
    assert_eq!(town.claim(2, 0, 3.0), Verdict::Refused(Refusal::Busy));
    assert_eq!(town.markets[0].price(), 1.0);
    town.install(0, 2).expect("room");
    assert_eq!(town.claim(2, 0, 3.0), admitted(&[]));
    assert_eq!(
        town.claim(3, 0, 3.5),
        Verdict::Refused(Refusal::Busy),
        "a reservation has its place"
    );
    town.install(2, 0).expect("reserved");
    // The lowest bid is 3 now.
    town.markets[0].close_window();
    assert_eq!(town.markets[0].price(), 2.0);
    town.install(2, 1).expect("room");
    let prices: Vec<f32> = (0..3)
        .map(|_| {
            town.markets[0].close_window();
            town.markets[0].price()
        })
        .collect();
    assert_eq!(prices, [1.0, 0.5, 0.25]);
}

#[test]
fn an_outbid_group_that_bids_more_stays_if_there_is_room() {
    let mut at = vec![(0, 0.0), (1, 0.0)];
    at.extend((0..38).map(|index| (index % 2, 5.0)));
    let mut town = Town::new(2_000, &at, Planted::none());
    assert_eq!(town.claim(0, 1, 3.0), admitted(&[1]));
    town.markets[1].update(Claim { group: 1, bytes: 100, bid: 9.0 });
    assert!(town.markets[1].outbid().eq([1]), "its place is sold");
    town.markets[1].remove(0);
    town.markets[1].update(Claim { group: 1, bytes: 100, bid: 9.0 });
    assert!(town.markets[1].outbid().next().is_none());
}

#[test]
fn all_that_want_an_idle_site_fill_it_to_its_capacity_and_no_further() {
    let mut at = vec![(0, 0.0)];
    at.extend((1..200).map(|index| (1 + index % 2, 0.0)));
    let mut town = Town::new(12_000, &at, Planted::none());
    let mut dice = Dice::new(1);
    for round in 0..10 {
        for group in 1..200 {
            let bid = 1.0 + dice.part();
            if town.owners[group as usize] == site(0) {
                continue;
            }
            if let Verdict::Admitted { .. } = town.claim(group, 0, bid) {
                town.install(group, 0).expect("what is admitted has room");
                town.markets[0].update(Claim { group, bytes: 100, bid });
            }
            // Those that are outbid go back where there is room.
            let outbid: Vec<u32> = town.markets[0].outbid().collect();
            for group in outbid {
                let back = 1 + group as usize % 2;
                if town.claim(group, back, 0.1) == admitted(&[]) {
                    town.install(group, back).expect("room");
                }
            }
            assert!(town.is_sound(), "round {round}, group {group}");
        }
    }
    let held = town.markets[0].held_bytes();
    assert!((11_000..=12_600).contains(&held), "{held} bytes");
}

#[test]
fn an_auction_moves_within_capacities_step_by_step() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let latencies = plane(10, &mut dice);
        let mut groups = groups(300, 4, &latencies, &mut dice);
        let (near, rules) = (Near::new(latencies.mean(), 4), some_rules(10, 0, &mut dice));
        let held = groups.held();
        let all: u64 = held.iter().sum();
        let capacities: Vec<u64> = held.iter().map(|held| (*held).max(all / 6)).collect();
        let mut prices = Prices::none(10);
        for _ in 0..3 {
            let terms = Terms {
                matrix: latencies.mean(),
                near: &near,
                rules: &rules,
                capacities: &capacities,
                margin: 0.1,
                ready: &[],
                bids_max: 100_000,
            };
            let assignment = prices.auction(&terms, &groups);
            let solver = Solver::with_prices(latencies.mean(), &near, &rules, prices.per_byte());
            let bound = prices.bound(&terms, &groups);
            assert!(
                assignment.total(&solver, &groups) >= bound - 1e-3 * bound.abs(),
                "seed {seed}"
            );
            let limits: Vec<u64> = capacities.iter().map(|bytes| bytes + bytes / 20).collect();
            let moves = moves(&solver, &groups, &assignment);
            let plan = plan(&moves, &groups, Some(&limits), Limits::NONE);
            for a_move in &plan.moves {
                assert_eq!(rules.forbids(a_move.group as usize, a_move.to), None);
                groups.set_owner(a_move.group as usize, a_move.to);
                let held = groups.held();
                assert!(held.iter().zip(&limits).all(|(held, most)| held <= most), "seed {seed}");
            }
        }
    }
}

#[test]
fn without_room_an_auction_ends_and_names_what_has_no_place() {
    let latencies = table(&[[10.0, 1.0, 5.0]]);
    let mut groups = Groups::new(1, 3);
    for owner in [0, 0, 0, 1] {
        groups.push(site(owner), 100, [(origin(0), 5.0)]);
    }
    // The last has no users: it never outbids.
    groups.push(site(0), 100, []);
    let (near, rules) = (Near::new(latencies.mean(), 3), Rules::none(3));
    let capacities = vec![50, 100, 100];
    let terms = Terms {
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        capacities: &capacities,
        margin: 0.1,
        ready: &[],
        bids_max: 1_000,
    };
    let assignment = Prices::none(3).auction(&terms, &groups);
    assert_eq!(assignment.unplaced, 3);
    let arrives = |to: usize| {
        let is_new = |group: &usize| assignment.site(*group) != groups.owner(*group);
        (0..5).filter(is_new).filter(|group| assignment.site(*group) == site(to)).count()
    };
    // The fourth keeps its place: all gain as much from it.
    assert_eq!([arrives(0), arrives(1), arrives(2)], [0, 0, 1]);
}

#[test]
fn a_price_falls_when_the_group_that_was_refused_would_fit() {
    let latencies = table(&[[10.0, 1.0]]);
    let mut groups = Groups::new(1, 2);
    for (bytes, rate) in [(100, 9.0), (60, 1.0)] {
        groups.push(site(0), bytes, [(origin(0), rate)]);
    }
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(2));
    let capacities = vec![200, 120];
    let terms = Terms {
        matrix: latencies.mean(),
        near: &near,
        rules: &rules,
        capacities: &capacities,
        margin: 0.1,
        ready: &[],
        bids_max: 100,
    };
    let mut prices = Prices::none(2);
    let assignment = prices.auction(&terms, &groups);
    assert_eq!((assignment.site(0), assignment.site(1)), (site(1), site(0)));
    let price = prices.per_byte()[1];
    assert!(price > 0.0);
    // 60 bytes were refused, and 20 are left.
    groups.set_owner(0, site(1));
    prices.auction(&terms, &groups);
    assert!(prices.per_byte()[1] >= price, "its place is worth more than that");
    groups.set_owner(0, site(0));
    let none = vec![false; 2];
    let mut fall = |auctions: usize| {
        let terms = Terms { ready: &none, ..terms };
        (0..auctions).for_each(|_| _ = prices.auction(&terms, &groups));
        prices.per_byte()[1]
    };
    let before = fall(1);
    assert_eq!((fall(1), fall(60)), (before / 2.0, 0.0));
}

#[test]
fn a_group_that_is_not_ready_outbids_none_and_can_be_outbid() {
    let latencies = table(&[[10.0, 1.0, 4.0]]);
    let mut groups = Groups::new(1, 3);
    for (owner, rate) in [(0, 9.0), (1, 1.0)] {
        groups.push(site(owner), 100, [(origin(0), rate)]);
    }
    let (near, rules) = (Near::new(latencies.mean(), 2), Rules::none(3));
    let capacities = vec![100; 3];
    let sites = |ready: [bool; 2]| {
        let terms = Terms {
            matrix: latencies.mean(),
            near: &near,
            rules: &rules,
            capacities: &capacities,
            margin: 0.1,
            ready: &ready,
            bids_max: 100,
        };
        let assignment = Prices::none(3).auction(&terms, &groups);
        [assignment.site(0).0, assignment.site(1).0]
    };
    assert_eq!(sites([false, true]), [0, 1]);
    assert_eq!(sites([true, false]), [1, 2]);
}

#[test]
fn what_is_reserved_is_no_room_for_another() {
    let mut town = Town::new(200, &[(0, 9.0), (1, 0.0), (2, 0.0)], Planted::none());
    assert_eq!(town.claim(1, 0, 1.0), admitted(&[]));
    assert_eq!(town.install(2, 0), Err(Refusal::Busy), "it has no reservation");
    assert_eq!(town.install(1, 0), Ok(()));
}

#[test]
fn a_place_that_was_sold_and_left_can_be_sold_again() {
    let mut at = vec![(0, 0.0), (0, 0.0), (1, 0.0)];
    at.extend((0..57).map(|index| (index % 3, 5.0)));
    let mut town = Town::new(2_100, &at, Planted::none());
    // Two incumbents are outbid, one after the other, and leave.
    for (group, outbid) in [(2, 0), (4, 1)] {
        assert_eq!(town.claim(group, 0, 3.0), admitted(&[outbid]));
        town.install(outbid, 2).expect("room");
        town.install(group, 0).expect("reserved");
        assert!(town.is_sound());
    }
    let held = town.markets[0].held_bytes();
    assert_eq!(held, town.markets[0].capacity_bytes());
    assert!(matches!(town.claim(5, 0, 1.0), Verdict::Refused(Refusal::Price(_))));
}
