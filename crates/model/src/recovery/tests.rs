//! What a recovery keeps of what others had, and which ids it assigns.

use super::*;
use crate::{DeploymentId, KeyspaceSpec, SiteName};

fn at(number: u32, round: u64) -> Ballot {
    let site = SiteId(1);
    let term = if number == 0 { Term::default() } else { Term { number, site } };
    Ballot { term, round, site }
}

fn entry(registry: &mut Registry) {
    let id = SiteId(registry.site_next);
    registry.site_next += 1;
    registry.sites.push(SiteEntry::new(id, SiteName::new(id.to_string()).unwrap()));
}

fn keyspace(registry: &mut Registry) {
    let id = KeyspaceId(registry.keyspace_next);
    registry.keyspace_next += 1;
    let name = format!("k{}", id.0);
    let spec = KeyspaceSpec::linearizable_global(name.clone(), format!("{name}:"));
    registry.keyspaces.push(Keyspace { id, spec });
}

fn registry() -> Registry {
    let mut registry = Registry::empty(DeploymentId(7), 1);
    registry.site_next = 1;
    (0..2).for_each(|_| entry(&mut registry));
    registry.version = at(0, 1);
    registry
}

fn recovered(registry: &Registry, number: u32) -> Registry {
    let mut next = registry.clone();
    next.recover(at(number, 0), registry);
    next.version = at(number, 0);
    next
}

#[test]
fn a_site_that_may_hand_its_join_in_has_not_left() {
    let mut own = registry();
    entry(&mut own);
    own.sites.remove(0);
    assert!(own.has_left(SiteId(1)) && !own.has_left(SiteId(3)) && !own.has_left(SiteId(4)));
    let next = recovered(&own, 1);
    assert!(next.has_left(SiteId(1)));
    assert!(!next.has_left(SiteId(4)), "it may have joined at a site that was not asked");
    assert!(next.site_next > 4);
}

#[test]
fn a_site_that_has_handed_its_join_in_and_left_has_left() {
    let first = registry();
    let mut own = first.clone();
    entry(&mut own);
    own.version = at(0, 2);
    let joined = own.sites[2].id;
    let mut next = recovered(&first, 1);
    let mut kept = Retained::default();
    own.keep(&next, &mut kept);
    next.hand_in(&kept);
    assert!(next.site(joined).is_some() && !next.has_left(joined));
    next.change(&RegistryChange::Remove(joined)).unwrap();
    assert!(next.has_left(joined), "what is frozen for it would wait for ever");
    // Another site has kept the same join.
    let mut again = Retained::default();
    own.keep(&next, &mut again);
    assert!(again.is_empty(), "it would be listed again: {again:?}");
    // As long as the end of that term is known.
    for number in 2..=limits::TERMS_BEGAN_MAX as u32 + 2 {
        next = recovered(&next, number);
        assert!(next.has_left(joined));
    }
    assert!(next.handed_in.is_empty());
}

#[test]
fn a_copy_two_terms_behind_keeps_what_its_own_term_lost() {
    let first = registry();
    let mut own = first.clone();
    entry(&mut own);
    keyspace(&mut own);
    own.version = at(0, 2);
    let mut second = recovered(&first, 1);
    entry(&mut second);
    second.version = at(1, 1);
    let third = recovered(&second, 2);
    let mut kept = Retained::default();
    own.keep(&third, &mut kept);
    assert_eq!((&kept.joins, &kept.keyspaces), (&vec![own.sites[2].clone()], &own.keyspaces));
    // The same for a copy that is one term behind; a copy with nothing beyond the end of its
    // term keeps nothing.
    for (copy, has_any) in [(&own, true), (&first, false)] {
        let mut kept = Retained::default();
        copy.keep(&second, &mut kept);
        assert_eq!(!kept.is_empty(), has_any);
    }
    // Both recoveries continued from the same version, each without the other.
    let mut other = recovered(&first, 1);
    entry(&mut other);
    other.version = Ballot { term: Term { number: 1, site: SiteId(2) }, ..at(1, 1) };
    other.sites[2].id = SiteId(9_000);
    other.sites[2].name = SiteName::new("other").unwrap();
    let mut kept = Retained::default();
    other.keep(&second, &mut kept);
    assert_eq!(kept.joins, [other.sites[2].clone()]);
    let mut kept = Retained::default();
    second.keep(&third, &mut kept);
    assert!(kept.is_empty(), "{kept:?}");
}

#[test]
fn what_only_another_recovery_went_on_from_is_kept() {
    let first = registry();
    let decided = |round| {
        let (opened, lost) = (at(0, round), SiteId(2));
        let (without, taken, returned) = (Vec::new(), Vec::new(), false);
        DecidedFailover { decided: at(0, round), opened, lost, without, taken, returned }
    };
    // Both were accepted, neither was chosen; two recoveries went on from one each.
    let with = |round| {
        let mut next = first.clone();
        next.version = at(0, round);
        next.failovers.decided.push(decided(round));
        next
    };
    let own = recovered(&with(2), 1);
    let mut next = recovered(&with(3), 1);
    next.version.term.site = SiteId(2);
    let mut kept = Retained::default();
    own.keep(&next, &mut kept);
    assert_eq!(kept.failovers, [decided(2)]);
}

#[test]
fn a_failover_that_was_handed_in_stays_the_last_one_of_its_site() {
    let mut registry = registry();
    let decided = |lost, round| DecidedFailover {
        decided: at(0, round),
        opened: at(0, round - 1),
        lost,
        without: Vec::new(),
        taken: Vec::new(),
        returned: false,
    };
    let failovers = vec![decided(SiteId(2), 3), decided(SiteId(2), 5), decided(SiteId(99), 7)];
    registry.hand_in(&Retained { failovers, ..Retained::default() });
    for round in [3, 5, 7] {
        assert!(registry.failovers.forget(at(0, round)));
    }
    assert_eq!(registry.failovers.last_of(SiteId(2)), at(0, 5));
    assert_eq!(registry.failovers.last_of(SiteId(99)), Ballot::FIRST, "it is not listed");
}

#[test]
fn what_was_handed_in_is_kept_when_a_further_recovery_lacks_it() {
    let first = registry();
    let mut beyond = first.clone();
    entry(&mut beyond);
    keyspace(&mut beyond);
    beyond.version = at(0, 2);
    let second = recovered(&first, 1);
    let mut kept = Retained::default();
    beyond.keep(&second, &mut kept);
    let mut own = second.clone();
    own.hand_in(&kept);
    own.version = at(1, 1);
    // It goes on from before that.
    let third = recovered(&second, 2);
    let mut again = Retained::default();
    own.keep(&third, &mut again);
    assert_eq!(again, kept);
    let mut third = recovered(&own, 2);
    third.sites.pop();
    let mut none = Retained::default();
    own.keep(&third, &mut none);
    assert!(none.is_empty(), "it was removed since: {none:?}");
}

#[test]
fn a_term_begins_without_sites_that_may_never_have_been_chosen() {
    let first = registry();
    // One site has accepted this; the others may have chosen another site in its place.
    let mut accepted = first.clone();
    entry(&mut accepted);
    keyspace(&mut accepted);
    accepted.version = at(0, 2);
    let mut chosen = first.clone();
    entry(&mut chosen);
    chosen.sites[2].name = SiteName::new("other").unwrap();
    chosen.version = at(0, 3);
    let mut next = accepted.clone();
    next.recover(at(1, 0), &first);
    next.version = at(1, 0);
    assert_eq!((&next.sites, &next.keyspaces), (&first.sites, &Vec::new()));
    assert!(!next.has_left(SiteId(3)));
    for copy in [&chosen, &accepted] {
        let mut kept = Retained::default();
        copy.keep(&next, &mut kept);
        assert_eq!(kept.joins, [copy.sites[2].clone()], "whichever was chosen is handed in");
    }
    // A copy of the term before is enough to go on with what that term began with.
    let mut second = next.clone();
    entry(&mut second);
    second.version = at(1, 1);
    let mut third = second.clone();
    third.recover(at(2, 0), &first);
    assert_eq!(third.sites, first.sites);
    assert!(third.began[1].site_next > third.began[0].site_next);
}

#[test]
fn a_term_begins_with_sites_that_were_handed_in_with_high_ids() {
    let first = registry();
    let mut own = first.clone();
    entry(&mut own);
    // Of a term that skipped more ids than this one.
    own.sites[2].id = SiteId(900_000_000);
    own.keyspaces.push(Keyspace {
        id: KeyspaceId(900_000_000),
        spec: KeyspaceSpec::linearizable_global("late", "late:"),
    });
    let kept = Retained { joins: vec![own.sites[2].clone()], ..Retained::default() };
    let kept = Retained { keyspaces: own.keyspaces.clone(), ..kept };
    let mut second = recovered(&first, 1);
    assert!(second.site_next < 900_000_000);
    second.hand_in(&kept);
    second.version = at(1, 1);
    let third = recovered(&second, 2);
    assert_eq!((&third.sites, &third.keyspaces), (&second.sites, &second.keyspaces));
    assert!(!third.has_left(SiteId(900_000_000)));
    // The proposer has no copy with them: they are handed in again.
    let mut third = second.clone();
    third.recover(at(2, 0), &recovered(&first, 1));
    third.version = at(2, 0);
    assert!(third.site(SiteId(900_000_000)).is_none());
    let mut again = Retained::default();
    second.keep(&third, &mut again);
    assert_eq!((again.joins, again.keyspaces), (kept.joins, kept.keyspaces));
}

#[test]
fn terms_that_begin_from_one_version_assign_different_ids() {
    let first = registry();
    let begun = |number, site| {
        let term = Term { number, site: SiteId(site) };
        let mut next = first.clone();
        next.recover(Ballot { term, round: 0, site: SiteId(site) }, &first);
        (next.site_next, next.keyspace_next)
    };
    for (one, other) in [((1, 1), (1, 2)), ((1, 1), (2, 1)), ((1, 3), (2, 1))] {
        let (one, other) = (begun(one.0, one.1), begun(other.0, other.1));
        assert!(one.0.abs_diff(other.0) >= IDS_SKIPPED);
        assert!(one.1.abs_diff(other.1) >= IDS_SKIPPED);
    }
}

#[test]
fn chains_of_recoveries_without_each_other_assign_different_ids() {
    let term = |number, site| Term { number, site: SiteId(site) };
    let chain = |terms: &[Term]| {
        let mut next = registry();
        for term in terms {
            let version = Ballot { term: *term, round: 0, site: term.site };
            let known = next.clone();
            next.recover(version, &known);
            next.version = version;
        }
        (next.site_next, next.keyspace_next)
    };
    // Sites 1 and 2 let each other out, as often as they like, and so does a site that joined
    // in one of their terms.
    let late = chain(&[term(1, 1)]).0;
    let chains = [
        vec![term(1, 1)],
        vec![term(1, 1), term(2, 1)],
        vec![term(3, 3)],
        vec![term(1, 1), term(3, 1)],
        vec![term(1, 2), term(2, 2), term(3, 2)],
        vec![term(2, 4_000)],
        vec![term(1, 1), term(2, late)],
        vec![term(1, 2), term(2, late + 1)],
        vec![term(500, 1)],
        vec![term(500, 2)],
    ];
    for (at, one) in chains.iter().enumerate() {
        for other in &chains[..at] {
            let (ids, others) = (chain(one), chain(other));
            assert!(ids.0.abs_diff(others.0) >= IDS_SKIPPED, "{one:?} {other:?} {ids:?}");
            assert!(ids.1.abs_diff(others.1) >= IDS_SKIPPED, "{one:?} {other:?} {ids:?}");
        }
    }
}

#[test]
fn what_was_removed_before_the_end_of_its_term_is_not_handed_in() {
    // The recovering site has this.
    let first = registry();
    let mut joined = first.clone();
    entry(&mut joined);
    keyspace(&mut joined);
    joined.version = at(0, 2);
    // And has accepted this.
    let mut removed = joined.clone();
    removed.change(&RegistryChange::Remove(SiteId(3))).unwrap();
    removed.change(&RegistryChange::DropKeyspace("k1".into())).unwrap();
    entry(&mut removed);
    removed.version = at(0, 3);
    let mut next = removed.clone();
    next.recover(at(1, 0), &first);
    next.version = at(1, 0);
    let mut kept = Retained::default();
    joined.keep(&next, &mut kept);
    assert!(kept.is_empty(), "{kept:?}");
    // What the recovery dropped is handed in by those that know it chosen.
    removed.keep(&next, &mut kept);
    assert_eq!((&kept.joins[..], &kept.keyspaces[..]), (&removed.sites[2..], &[][..]));
}

#[test]
fn a_site_that_is_handed_in_has_the_backups_that_were_chosen() {
    let first = registry();
    let mut own = first.clone();
    entry(&mut own);
    own.version = at(0, 2);
    let choose = |registry: &mut Registry, of, choice| {
        registry.change(&RegistryChange::Backup(SiteId(of), choice)).unwrap();
    };
    choose(&mut own, 3, BackupChoice::Off);
    choose(&mut own, 1, BackupChoice::At(SiteId(3)));
    choose(&mut own, 2, BackupChoice::At(SiteId(3)));
    // The recovering site has accepted it, and does not know it chosen.
    let mut next = own.clone();
    next.recover(at(1, 0), &first);
    next.version = at(1, 0);
    assert!(next.backups.is_empty());
    let mut kept = Retained::default();
    own.keep(&next, &mut kept);
    // Chosen since.
    choose(&mut next, 2, BackupChoice::At(SiteId(1)));
    next.has_kept(&mut kept);
    next.hand_in(&kept);
    let chosen = [1, 2, 3].map(|site| next.backups.choice(SiteId(site)));
    let at = |site| BackupChoice::At(SiteId(site));
    assert_eq!(chosen, [at(3), at(1), BackupChoice::Off]);
    next.has_kept(&mut kept);
    assert!(kept.is_empty(), "{kept:?}");
}

#[test]
fn a_keyspace_whose_name_or_prefix_is_taken_gets_a_free_one() {
    let first = registry();
    let mut own = first.clone();
    let create = |registry: &mut Registry, name: &str, prefix: &'static str| {
        let spec = KeyspaceSpec::linearizable_global(name, prefix);
        registry.change(&RegistryChange::CreateKeyspace(spec)).unwrap();
    };
    create(&mut own, "cars", "car:");
    create(&mut own, "bikes", "bike:");
    own.version = at(0, 2);
    let mut next = recovered(&first, 1);
    create(&mut next, "cars", "car:");
    create(&mut next, "rent", "bike:");
    create(&mut next, "cars-1", "free:");
    let mut kept = Retained::default();
    own.keep(&next, &mut kept);
    assert_eq!(kept.keyspaces, own.keyspaces, "they have keys");
    next.hand_in(&kept);
    let named = |registry: &Registry, id: u32| {
        let one = registry.keyspaces.iter().find(|one| one.id == KeyspaceId(id)).unwrap();
        one.spec.check().unwrap();
        (one.spec.name.clone(), String::from_utf8(one.spec.prefix.to_vec()).unwrap())
    };
    let of = |name: &str, prefix: &str| (name.to_owned(), prefix.to_owned());
    assert_eq!(named(&next, 1), of("cars-1-1", "\0cars-1-1:"));
    assert_eq!(named(&next, 2), of("bikes", "\0bikes:"));
    next.has_kept(&mut kept);
    assert!(kept.is_empty(), "{kept:?}");
}

#[test]
fn a_site_with_a_name_that_another_one_has_by_now_has_left() {
    let first = registry();
    let mut own = first.clone();
    entry(&mut own);
    own.version = at(0, 2);
    let mut next = recovered(&first, 1);
    entry(&mut next);
    next.sites[2].name = own.sites[2].name.clone();
    let joined = own.sites[2].id;
    let mut kept = Retained::default();
    own.keep(&next, &mut kept);
    assert_eq!(kept.joins.len(), 1);
    assert!(!next.has_left(joined), "it does not know it yet");
    next.hand_in(&kept);
    assert_eq!(next.sites.len(), 3);
    assert!(next.has_left(joined), "what is frozen for it would wait for ever");
    next.has_kept(&mut kept);
    assert!(kept.is_empty(), "{kept:?}");
}

#[test]
fn a_term_that_an_earlier_build_began_has_skipped_what_that_build_skipped() {
    let mut next = registry();
    next.version = at(1, 0);
    let (site_next, keyspace_next) = (next.site_next, next.keyspace_next);
    next.began.push(TermBegan { after: at(0, 1), site_next, keyspace_next, ids: None });
    next.site_next += IDS_SKIPPED;
    next.keyspace_next += IDS_SKIPPED;
    entry(&mut next);
    let joined = next.sites[2].id;
    next.change(&RegistryChange::Remove(joined)).unwrap();
    assert!(next.has_left(joined), "what is frozen for it would wait for ever");
    assert!(!next.has_left(SiteId(joined.0 - 1)), "it may have joined at an excluded site");
    // The same of the next build, which skipped more: 1,024 for the site and each number.
    let mut next = registry();
    next.version = at(1, 0);
    next.began.push(TermBegan { after: at(0, 1), site_next, keyspace_next, ids: None });
    next.site_next += IDS_SKIPPED * 19;
    next.keyspace_next += IDS_SKIPPED * 19;
    assert!(!next.has_left(SiteId(next.site_next - 1)));
}

#[test]
fn recoveries_without_end_go_on_with_higher_ids() {
    let mut last = registry();
    for number in (500..700).chain([u32::MAX]) {
        let next = recovered(&last, number);
        assert!(next.site_next >= last.site_next + IDS_SKIPPED);
        last = next;
    }
}

#[test]
fn so_many_ends_of_terms_are_known_and_no_more() {
    let mut last = registry();
    for number in 1..=limits::TERMS_BEGAN_MAX as u32 + 3 {
        last = recovered(&last, number);
    }
    assert_eq!(last.began.len(), limits::TERMS_BEGAN_MAX);
    assert_eq!(last.began[0].after, at(3, 0));
}

#[test]
fn a_keyspace_that_the_excluded_sites_created_may_be_handed_in() {
    let mut first = registry();
    let known = first.clone();
    let next = first.keyspace_next;
    keyspace(&mut first);
    let mut recovered = known.clone();
    recovered.recover(at(1, 0), &known);
    assert!(recovered.may_be_handed_in(KeyspaceId(next)));
    assert!(!recovered.may_be_handed_in(KeyspaceId(next - 1)), "it was there");
    assert!(!recovered.may_be_handed_in(KeyspaceId(recovered.keyspace_next)), "it comes yet");
    recovered.keyspaces = first.keyspaces;
    assert!(!recovered.may_be_handed_in(KeyspaceId(next)), "it is listed");
}
