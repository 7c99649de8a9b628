//! A leader that has just made a node a voter, and is cut off before another node has that
//! committed: the script `a_voter_that_only_the_leader_knows`.

use crate::world::World;
use protocol::bugs::{Bug, Planted};
use std::time::Duration;

/// The voters that the leader shows.
fn shown(planted: Planted) -> Vec<u64> {
    let mut world = World::new(1);
    world.settings.planted = planted;
    world.add_node(false);
    world.add_node(false);
    world.run(Duration::from_millis(220));
    world.isolate(1);
    world.status(1).expect("it is up").members.voters
}

#[test]
fn a_new_voter_is_shown_when_another_node_knows() {
    assert_eq!(shown(Planted::none()), [1]);
    assert_eq!(shown(Planted::of(Bug::ShowNewVoters)), [1, 2], "the bug is found");
}
