//! Copies that a leaving site hands on, and how large the chunks of all streams are.

use super::super::loans::{failover, sites};
use super::*;
use crate::job::Job;
use crate::site::leaving::Leaving;
use model::limits;

impl Three {
    /// B hands its copy of a key on to C, chunk by chunk.
    pub(super) fn hand_on(&mut self, key: &str) {
        let slots: SlotSet = [slot(key)].into_iter().collect();
        let number = 1 << 63 | self.now.as_millis() as u64;
        self.now += Duration::from_millis(1);
        let id = MoveId { from: B, number };
        let receive = |three: &mut Three, step| {
            let command = Command::Global(GlobalCommand::Destination { id, step });
            three.sent_bytes.push(command.properties().size_bytes);
            three.at(C).run(command).unwrap()
        };
        receive(self, DestinationStep::BeginCopies(slots.clone()));
        let (mut at, mut chunks) = (None, 0);
        loop {
            let (items, next) = self.sites[&B].machine.copied_chunk(&slots, at).unwrap();
            let resume = model::Bytes::new();
            receive(self, DestinationStep::Chunk { sequence: chunks, resume, items });
            chunks += 1;
            at = next;
            if at.is_none() {
                break;
            }
        }
        let copy = self.sites[&B].machine.copy_of(slot(key)).unwrap();
        let owner = Some((A, Epoch::counted(1)));
        let copies = vec![model::HandedOn { slots, copy, owner }];
        let done = receive(self, DestinationStep::TakeCopies { chunks, copies });
        assert_eq!(done, Answer::Installed);
    }
}

#[test]
fn copies_are_handed_on_and_again_when_they_have_come_further() {
    let mut three = Three::new();
    three.put("x", "first");
    three.mirror();
    three.hand_on("x");
    let handed = |three: &Three| {
        let query = Query::Get { key: "x".into() };
        match refused(three.sites[&C].machine.ask_mirror(A, CARS, &query)) {
            Ok(Answer::Value(value)) => value.map(|found| found.value),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(handed(&three), Some("first".into()));
    three.put("x", "second");
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    three.hand_on("x");
    three.hand_on("n{t}");
    assert_eq!(handed(&three), Some("second".into()));
    let [at_b, at_c] = [B, C].map(|site| three.sites[&site].machine.copy_of(slot("x")));
    assert_eq!(at_b, at_c);
    assert!(three.sites[&C].machine.arrivals().is_empty());
    three.at(C).reopen();
    assert_eq!(handed(&three), Some("second".into()));
    // What comes late changes nothing; nor does what was begun and not ended.
    three.hand_on("x");
    assert_eq!(three.sites[&C].machine.copy_of(slot("x")), at_c);
    let id = MoveId { from: B, number: 1 << 63 };
    let slots: SlotSet = [slot("x")].into_iter().collect();
    three
        .at(C)
        .run(Command::Global(GlobalCommand::Destination {
            id,
            step: DestinationStep::BeginCopies(slots),
        }))
        .unwrap();
    three.change(B, &RegistryChange::Leave(B)).unwrap();
    let gone = RegistryChange::RemoveTo { site: B, destinations: vec![C] };
    three.change(B, &gone).unwrap();
    three.hears(C);
    assert!(three.sites[&C].machine.arrivals().is_empty());
    for _ in 0..3 {
        three.at(C).tick();
    }
    assert_eq!(three.sites[&C].rows(tables::GARBAGE), 0);
}

#[test]
fn what_was_answered_is_handed_on_with_the_copy() {
    let mut three = Three::new();
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    three.hand_on("n{t}");
    let remembered = |three: &Three, site, whose| {
        three.sites[&site]
            .machine
            .known
            .clients
            .client_keys(whose, model::SlotRun::one(slot("n{t}")))
            .len()
    };
    for _ in 0..2 {
        assert_eq!(remembered(&three, B, Whose::Copied), 1);
        assert_eq!(remembered(&three, C, Whose::Copied), 1, "or the write is applied twice");
        assert_eq!(remembered(&three, C, Whose::Own), 0);
        three.at(C).reopen();
    }
}

/// A chunk has room for so much, and ends behind what has filled it: a copy, then answers, then
/// changes.
#[test]
fn chunks_end_between_remembered_answers() {
    const ANSWER_BYTES: usize = 100 << 10;
    let mut three = Three::new();
    let large = |client: u64| Command::Write {
        keyspace: CARS,
        write: Write::Put {
            key: "big".into(),
            value: vec![b'x'; ANSWER_BYTES].into(),
            condition: Condition::Always,
            expiry: Expiry::Keep,
            return_old: true,
        },
        request: Some(RequestId { client: ClientId(client), sequence: 1, acknowledged_below: 1 }),
    };
    // Ten answers in a slot, of which nine have the value before.
    for client in 1..=10 {
        three.at(A).run(large(client)).unwrap();
    }
    three.mirror();
    three.hand_on("big");
    let largest = three.sent_bytes.iter().max().copied().unwrap();
    assert!(largest <= 3 * (limits::MOVE_CHUNK_BYTES_MAX + ANSWER_BYTES), "{largest}");
    for site in [B, C] {
        assert_eq!(three.sites[&site].rows(tables::SLOT_ANSWERS), 10, "{site}");
    }
}

/// It asked two sites before the failover of one of them, and asks the other one after it.
#[test]
fn an_answer_from_before_a_failover_is_not_taken_for_one_after_it() {
    fn asked(job: &mut Leaving, site: &Site) -> Vec<(u64, SiteId)> {
        let effects = job.poll(&site.view(Duration::from_secs(1))).into_iter();
        let asked = effects.map(|effect| match effect {
            JobEffect::Ask { id: Some(id), to, .. } => (id, to),
            other => panic!("{other:?}"),
        });
        asked.collect()
    }
    let (_, mut b, _) = sites();
    let mut registry = b.newest();
    registry.change(&RegistryChange::Leave(B)).unwrap();
    registry.version.round += 1;
    b.learns(&registry);
    let mut job = Leaving::default();
    assert_eq!(asked(&mut job, &b), [(1, A), (2, C)]);
    let open = failover(&registry, A, None);
    b.learns(&open);
    assert_eq!(asked(&mut job, &b), []);
    b.learns(&failover(&open, A, Some((C, "x{7}", false))));
    assert_eq!(asked(&mut job, &b), [(3, C)]);
    let view = b.view(Duration::from_secs(1));
    assert!(job.answered(1, Ok(Answer::Inventory(Box::default())), &view).is_empty());
    assert_eq!(job.progress(&view).left, 1);
    // Another node leads for a while.
    Job::<MemoryState>::stop(&mut job);
    assert_eq!(asked(&mut job, &b), [(4, C)]);
}
