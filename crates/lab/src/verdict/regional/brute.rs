//! The same promises, judged by trying everything: causes as a table of all requests, and every
//! delete that nothing found may have been.

use super::super::Verdict;
use crate::history::{Assigned, Got, History, Position, Promise, Register, Request, Seen, WriteId};
use crate::random::Random;

/// Whether it holds; every write that was answered has a position.
fn holds(history: &History, promise: Promise) -> bool {
    let count = history.requests.len();
    let position = |index: usize| {
        let id = history.requests[index].write.as_ref()?;
        let of = |place: &&Position| (&place.site, place.revision) == (&id.site, id.revision);
        history.positions.iter().find(of)?.position
    };
    let writer =
        |id: &WriteId| (0..count).find(|at| history.requests[*at].write.as_ref() == Some(id));
    let same =
        |one: usize, other: usize| history.requests[one].client == history.requests[other].client;
    // Requests stand in the order of time.
    let mut causes = vec![vec![false; count]; count];
    for (at, request) in history.requests.iter().enumerate() {
        for before in (0..at).filter(|before| same(*before, at)) {
            causes[before][at] = true;
        }
        for id in request.reads.iter().filter_map(|seen| seen.found.as_ref()) {
            let Some(write) = writer(id) else { return promise != Promise::Causal };
            causes[write][at] = true;
        }
    }
    for via in 0..count {
        for from in 0..count {
            for to in 0..count {
                causes[from][to] |= causes[from][via] && causes[via][to];
            }
        }
    }
    let assigns = |at: usize, register: &Register| {
        history.requests[at].writes.iter().any(|one| covers(&one.register, register))
    };
    let found = |at: usize, register: &Register| {
        let of = |seen: &&Seen| seen.register == *register;
        let id = history.requests[at].reads.iter().find(of)?.found.as_ref()?;
        position(writer(id)?)
    };
    // Which requests count for a read at a place, by promise: as writes, or as reads.
    let counts = |at: usize, other: usize| match promise {
        Promise::Causal => causes[other][at],
        Promise::ReadYourWrites | Promise::MonotonicReads => same(other, at) && other < at,
        _ => {
            let saw = |via: usize| {
                let id = history.requests[via].write.as_ref();
                let by = (0..at).filter(|by| same(*by, at));
                let mut reads = by.flat_map(|by| &history.requests[by].reads);
                id.is_some() && reads.any(|seen| seen.found.as_ref() == id)
            };
            (0..count).any(|via| same(other, via) && other < via && saw(via))
        }
    };
    let by_reads = matches!(promise, Promise::MonotonicReads | Promise::WritesFollowReads);
    for (at, _) in history.requests.iter().enumerate() {
        if let Some(own) = position(at)
            && !matches!(promise, Promise::ReadYourWrites | Promise::MonotonicReads)
        {
            let before = (0..count).filter(|other| match promise {
                Promise::Causal => causes[*other][at],
                _ => same(*other, at) && *other < at,
            });
            for other in before {
                let reads = history.requests[other].reads.iter().map(|seen| &seen.register);
                let read = reads.filter_map(|register| found(other, register)).max();
                let highest = match promise {
                    Promise::Causal => position(other).max(read),
                    Promise::MonotonicWrites => position(other),
                    _ => read,
                };
                if highest >= Some(own) {
                    return false;
                }
            }
        }
    }
    let need = |at: usize, register: &Register| {
        let others = (0..count).filter(|other| counts(at, *other));
        let ranks = others.map(|other| match by_reads {
            true => found(other, register),
            false => position(other).filter(|_| assigns(other, register)),
        });
        ranks.max().flatten()
    };
    let deletes = |register: &Register| -> Vec<u64> {
        let of = |at: &usize| {
            let mut writes = history.requests[*at].writes.iter();
            writes.any(|one| one.deletes && covers(&one.register, register))
        };
        (0..count).filter(of).filter_map(position).collect()
    };
    // Reads, one after the other; of each register in a session, what nothing can have been so far.
    let has_floors = matches!(promise, Promise::Causal | Promise::MonotonicReads);
    for at in 0..count {
        for seen in &history.requests[at].reads {
            let floor = floors(history, at, seen, &need, &deletes).filter(|_| has_floors);
            let needed = need(at, &seen.register).max(floor);
            let kept = match found(at, &seen.register) {
                Some(rank) => Some(rank) >= needed,
                None => {
                    needed.is_none()
                        || deletes(&seen.register).iter().any(|one| Some(*one) >= needed)
                }
            };
            if !kept {
                return false;
            }
        }
    }
    true
}

/// The least, over all choices of deletes, that a session's earlier reads of nothing leave.
fn floors(
    history: &History,
    at: usize,
    seen: &Seen,
    need: &dyn Fn(usize, &Register) -> Option<u64>,
    deletes: &dyn Fn(&Register) -> Vec<u64>,
) -> Option<u64> {
    let client = &history.requests[at].client;
    let earlier = (0..at).filter(|before| history.requests[*before].client == *client);
    let mut floor = None;
    for before in earlier {
        let nothing =
            |one: &&Seen| one.register == seen.register && one.found.is_none() && one.absent;
        if history.requests[before].reads.iter().any(|one| nothing(&one)) {
            let least = need(before, &seen.register).max(floor);
            let may = deletes(&seen.register).into_iter().filter(|one| Some(*one) >= least);
            floor = if least.is_none() { None } else { may.min().or(floor) };
        }
    }
    floor
}

fn covers(assigned: &Register, read: &Register) -> bool {
    match (assigned, read) {
        (Register::Key(key), Register::Field(of, _)) => key == of,
        (one, other) => one == other,
    }
}

/// A few requests of a few sessions that find anything; mostly ordered as they were written.
fn any(random: &mut Random) -> History {
    let registers = [
        Register::Key("x".to_owned()),
        Register::Key("h".to_owned()),
        Register::Field("h".to_owned(), "f".to_owned()),
    ];
    let mut history = History::default();
    let mut written: Vec<(WriteId, Register)> = Vec::new();
    for number in 0..3 + random.below(6) {
        let mut request = Request {
            client: format!("c{}", random.below(3)),
            site: "a".to_owned(),
            call_us: 10 * number,
            return_us: Some(10 * number + 5),
            reads: Vec::new(),
            writes: Vec::new(),
            write: None,
            got: Got::Done,
        };
        if random.chance(450) {
            let register = random.pick(&registers).clone();
            let id = WriteId { site: "a".to_owned(), revision: number };
            written.push((id.clone(), register.clone()));
            request.writes.push(Assigned { register, deletes: random.chance(300) });
            request.write = Some(id);
        } else {
            let first = random.below(3) as usize;
            for step in 0..=usize::from(random.chance(400)) {
                let register = registers[(first + step) % 3].clone();
                let may: Vec<&(WriteId, Register)> =
                    written.iter().filter(|(_, assigned)| covers(assigned, &register)).collect();
                let found =
                    (!may.is_empty() && random.chance(750)).then(|| random.pick(&may).0.clone());
                let absent = found.is_none();
                request.reads.push(Seen { register, found, absent });
            }
        }
        history.requests.push(request);
    }
    let mut order: Vec<usize> = (0..written.len()).collect();
    for _ in 0..random.below(2) {
        let (one, other) = (random.below(order.len() as u64), random.below(order.len() as u64));
        if !order.is_empty() {
            order.swap(one as usize, other as usize);
        }
    }
    for (place, write) in order.into_iter().enumerate() {
        let WriteId { site, revision } = written[write].0.clone();
        let position = Some(place as u64 + 1);
        let (instead, removes) = (Vec::new(), Vec::new());
        history.positions.push(Position { site, revision, position, instead, removes });
    }
    history
}

#[test]
fn it_is_as_when_everything_is_tried() {
    let promises = [
        Promise::Causal,
        Promise::ReadYourWrites,
        Promise::MonotonicReads,
        Promise::MonotonicWrites,
        Promise::WritesFollowReads,
    ];
    for promise in promises {
        let (mut kept, mut broken) = (0, 0);
        for seed in 0..20_000 {
            let history = any(&mut Random::stream(seed, "any", 0));
            let verdict = super::judge(&history, promise);
            let expected = holds(&history, promise);
            let shown: Vec<String> = history.requests.iter().map(ToString::to_string).collect();
            match &verdict {
                Verdict::Holds { .. } => kept += 1,
                Verdict::Broken(_) => broken += 1,
                Verdict::Undecided { why } => panic!("{why}"),
            }
            let is_kept = matches!(verdict, Verdict::Holds { .. });
            assert_eq!(
                is_kept,
                expected,
                "seed {seed}, {promise}: {verdict:?}\n{}\n{:?}",
                shown.join("\n"),
                history.positions
            );
        }
        assert!(kept > 1_000 && broken > 300, "{promise}: {kept} kept, {broken} broken");
    }
}
