//! The change log.

use super::*;
use model::{ChangeKind, ExpiryCondition, limits};

fn set_cursor(site: &mut Site, name: &str, position: u64) -> Result<Answer, Refusal> {
    let (name, position) = (name.to_string(), Revision(position));
    site.run(Command::SetCursor { name, keyspace: SPACE, position })
}

fn drop_cursor(site: &mut Site, name: &str) {
    let name = name.to_string();
    site.run(Command::DropCursor { name, keyspace: SPACE }).unwrap();
}

/// Revision, kind and key of each change.
fn seen(site: &Site, after: u64) -> Vec<(u64, ChangeKind, String)> {
    let changes = site.changes(SPACE, after).unwrap();
    let text = |key: Bytes| String::from_utf8(key.to_vec()).unwrap();
    changes.into_iter().map(|c| (c.revision.0, c.kind, text(c.key))).collect()
}

#[test]
fn without_a_cursor_nothing_is_kept() {
    let mut site = Site::new();
    site.write(put("a", "1")).unwrap();
    assert_eq!(site.rows(tables::CHANGES), 0);
    assert_eq!(site.changes(SPACE, 0), Err(Refusal::ChangesTrimmed { oldest: 1 }));
    assert_eq!(site.changes(SPACE, 1), Ok(vec![]), "nothing came after the newest");
}

#[test]
fn every_family_of_writes_says_what_it_did() {
    let mut site = Site::new();
    set_cursor(&mut site, "w", 0).unwrap();
    let fields = vec![("f".into(), "1".into())];
    let condition = ExpiryCondition::Always;
    let set_expiry = |expiry| Write::SetExpiry { key: "a".into(), expiry, condition };
    for write in [
        put("a", "1"),
        Write::Append { key: "a".into(), suffix: "1".into() },
        Write::Add { key: "a".into(), delta: 1 },
        set_expiry(Expiry::AfterMs(50)),
        set_expiry(Expiry::Never),
        Write::HashSet { key: "h".into(), fields },
        Write::HashAdd { key: "h".into(), field: "f".into(), delta: 1 },
        Write::HashDelete { key: "h".into(), fields: vec!["f".into()] },
        Write::Delete { keys: vec!["x".into(), "a".into()] },
        put_with("e", "1", Condition::Always, Expiry::AfterMs(10)),
    ] {
        site.write(write).unwrap();
    }
    site.now_ms += 10;
    site.write(Write::Clear).unwrap();
    use ChangeKind::*;
    let expected = [
        (1, Put, "a"),
        (2, Append, "a"),
        (3, Add, "a"),
        (4, SetExpiry, "a"),
        (5, ClearExpiry, "a"),
        (6, HashSet, "h"),
        (7, HashAdd, "h"),
        (8, HashDelete, "h"),
        (8, Delete, "h"),
        (9, Delete, "a"),
        (10, Put, "e"),
        (11, Expire, "e"),
        (12, Clear, ""),
    ];
    let expected = expected.map(|(revision, kind, key)| (revision, kind, key.to_string()));
    assert_eq!(seen(&site, 0), expected);
    assert_eq!(seen(&site, 8), expected[9..]);
}

#[test]
fn a_piece_never_ends_inside_a_revision() {
    let mut site = Site::new();
    set_cursor(&mut site, "w", 0).unwrap();
    let pairs = ["a", "b", "c"].map(|key| (key.into(), "v".into())).to_vec();
    site.write(Write::PutMany { pairs, if_all_absent: false }).unwrap();
    site.write(put("d", "v")).unwrap();
    let chunk = site.machine.reader().changes(SPACE, Revision(0), 1).unwrap();
    assert_eq!(chunk.len(), 3);
    let chunk = site.machine.reader().changes(SPACE, Revision(1), 1).unwrap();
    assert_eq!((chunk.len(), &chunk[0].key[..]), (1, &b"d"[..]));
}

#[test]
fn the_log_is_trimmed_behind_the_slowest_cursor() {
    let mut site = Site::new();
    set_cursor(&mut site, "slow", 0).unwrap();
    set_cursor(&mut site, "fast", 0).unwrap();
    for key in ["a", "b", "c", "d"] {
        site.write(put(key, "v")).unwrap();
    }
    set_cursor(&mut site, "fast", 4).unwrap();
    site.tick();
    assert_eq!(seen(&site, 0).len(), 4);
    set_cursor(&mut site, "slow", 2).unwrap();
    assert_eq!(site.changes(SPACE, 1), Err(Refusal::ChangesTrimmed { oldest: 2 }));
    assert_eq!(seen(&site, 2).len(), 2);
    site.tick();
    assert_eq!(site.rows(tables::CHANGES), 2);
    drop_cursor(&mut site, "slow");
    site.reopen();
    assert_eq!(site.machine.tick_due_ms(), Some(0));
    site.tick();
    assert_eq!(site.rows(tables::CHANGES), 0);
    assert_eq!(site.machine.tick_due_ms(), None);
}

#[test]
fn a_position_never_moves_back_nor_beyond_the_end() {
    let mut site = Site::new();
    set_cursor(&mut site, "w", 0).unwrap();
    site.write(put("a", "v")).unwrap();
    site.write(put("b", "v")).unwrap();
    set_cursor(&mut site, "w", 99).unwrap();
    set_cursor(&mut site, "w", 1).unwrap();
    site.write(put("c", "v")).unwrap();
    assert_eq!(site.changes(SPACE, 1), Err(Refusal::ChangesTrimmed { oldest: 2 }));
    assert_eq!(seen(&site, 2), [(3, ChangeKind::Put, "c".to_string())]);
}

#[test]
fn a_log_that_begins_anew_does_not_show_what_was_before() {
    let mut site = Site::new();
    set_cursor(&mut site, "w", 0).unwrap();
    site.write(put("a", "v")).unwrap();
    // In one entry, so that nothing is trimmed in between.
    let name = || "w".to_string();
    site.entry(vec![
        Command::DropCursor { name: name(), keyspace: SPACE },
        write(put("b", "v")),
        Command::SetCursor { name: name(), keyspace: SPACE, position: Revision(0) },
        write(put("c", "v")),
    ]);
    assert_eq!(site.changes(SPACE, 0), Err(Refusal::ChangesTrimmed { oldest: 2 }));
    assert_eq!(seen(&site, 2), [(3, ChangeKind::Put, "c".to_string())]);
}

#[test]
fn a_cursor_needs_its_keyspace_and_a_place() {
    let mut site = Site::new();
    let (name, keyspace) = ("w".to_string(), KeyspaceId(9));
    let refused = site.run(Command::SetCursor { name, keyspace, position: Revision(0) });
    assert_eq!(refused, Err(Refusal::NoKeyspace("k9".to_string())));
    let cursors = (0..limits::CURSORS_MAX).map(|i| Command::SetCursor {
        name: i.to_string(),
        keyspace: SPACE,
        position: Revision(0),
    });
    assert!(site.entry(cursors.collect()).iter().all(Result::is_ok));
    let refusal = Refusal::TooMany { what: "cursors", max: limits::CURSORS_MAX };
    assert_eq!(set_cursor(&mut site, "one more", 0), Err(refusal));
    assert!(set_cursor(&mut site, "0", 0).is_ok(), "those there may move");
}

#[test]
fn a_dead_consumer_does_not_fill_the_disk() {
    let mut site = Site::new();
    set_cursor(&mut site, "dead", 0).unwrap();
    // The command that costs least and is still a change.
    let too_many = limits::CHANGES_RETAINED_MAX as usize + 40;
    site.entry_unchecked(vec![super::write(Write::Clear); too_many]);
    assert_eq!(site.machine.tick_due_ms(), Some(0));
    site.entry_unchecked(vec![Command::Tick]);
    assert_eq!(site.changes(SPACE, 39), Err(Refusal::ChangesTrimmed { oldest: 40 }));
    assert_eq!(site.changes(SPACE, 40).unwrap().len() as u64, limits::CHANGES_RETAINED_MAX);
    site.entry_unchecked(vec![Command::Tick]);
    assert_eq!(site.machine.tick_due_ms(), None, "nothing is left to trim");
}
