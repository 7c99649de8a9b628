//! Groups of keys, and their loans.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_struct};
use model::{
    Group, Lending, Loan, LoanClaim, LoanOffer, LoanPart, LoanReport, LoanRow, LoanState, LoanTaken,
};

code_struct!(Group { keyspace, tag });
code_struct!(Loan { epoch, count });
code_struct!(LoanRow { loan, to, known });
code_struct!(LoanClaim { loan, to, confirmed });
code_struct!(LoanOffer { group, row, epoch, records });
code_struct!(LoanTaken { group, loan, part });
code_struct!(LoanReport { group, loan, part, slot, records });
code_struct!(LoanState { group, loan, epoch, count, stands, fed });

code_enum!(LoanPart as "part in a loan" {
    0 => Never,
    1 => Held,
    2 => Unconfirmed,
    3 => Frozen,
    4 => Retained,
});

code_enum!(Lending as "step of the loan of groups" {
    1 => Lend { to, groups },
    2 => Answered { by, parts },
    3 => Report { by, revision, log_time_ms, parts },
    4 => Offer { from, revision, log_time_ms, offers },
    5 => GiveBack { loans },
    6 => Follow { owner, revision, states },
    7 => Prepare { opened, claims },
});

#[cfg(test)]
mod tests {
    use super::super::{decode_command, decode_reply, encode_command, encode_reply};
    use super::*;
    use model::{
        Answer, Ballot, Bytes, Command, Epoch, GlobalCommand, KeyspaceId, Revision, SiteId, Slot,
        StagedItem,
    };

    fn group() -> Group {
        Group { keyspace: KeyspaceId(1), tag: Bytes::from_static(b"7") }
    }

    fn loan() -> Loan {
        Loan { epoch: Epoch::counted(3), count: 300 }
    }

    fn row() -> LoanRow {
        LoanRow { loan: loan(), to: SiteId(2), known: Ballot { round: 5, ..Ballot::FIRST } }
    }

    fn steps() -> Vec<Lending> {
        let part = LoanPart::Frozen;
        let items = vec![
            StagedItem::Lent { group: group(), row: Some(row()), fed: 9, keys: 2 },
            StagedItem::Loans { slot: Slot::new(3).unwrap(), count: 4 },
        ];
        let slot = Epoch::counted(3);
        let report =
            LoanReport { group: group(), loan: loan(), part, slot, records: Some(items.clone()) };
        let state =
            LoanState { group: group(), loan: loan(), epoch: slot, count: 4, stands: true, fed: 9 };
        let taken = LoanTaken { group: group(), loan: loan(), part };
        let offer = LoanOffer { group: group(), row: row(), epoch: slot, records: items };
        let revision = Revision(8);
        let claim = LoanClaim { loan: loan(), to: SiteId(2), confirmed: Ballot::FIRST };
        vec![
            Lending::Lend { to: SiteId(2), groups: vec![group()] },
            Lending::Answered { by: SiteId(2), parts: vec![taken] },
            Lending::Report { by: SiteId(2), revision, log_time_ms: 7, parts: vec![report] },
            Lending::Offer { from: SiteId(1), revision, log_time_ms: 7, offers: vec![offer] },
            Lending::GiveBack { loans: vec![(group(), loan())] },
            Lending::Follow { owner: SiteId(1), revision, states: vec![state] },
            Lending::Prepare { opened: row().known, claims: vec![(group(), claim)] },
        ]
    }

    #[test]
    fn every_step_comes_back_and_none_is_another_when_it_is_cut() {
        for step in steps() {
            let command = Command::Global(GlobalCommand::Lending(step));
            let bytes = encode_command(&command);
            assert_eq!(decode_command(bytes.clone()).as_ref(), Ok(&command));
            for cut in 0..bytes.len() {
                assert!(decode_command(bytes.slice(..cut)).is_err(), "{command:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn format_1_stays_as_it_is() {
        let lend = Lending::Lend { to: SiteId(2), groups: vec![group()] };
        let command = Command::Global(GlobalCommand::Lending(lend));
        assert_eq!(&encode_command(&command)[..], b"\x01\x82\x01\x02\x01\x01\x017");
        let back = Lending::GiveBack { loans: vec![(group(), loan())] };
        let command = Command::Global(GlobalCommand::Lending(back));
        assert_eq!(&encode_command(&command)[..], b"\x01\x82\x05\x01\x01\x017\x03\xac\x02");
    }

    #[test]
    fn answers_come_back() {
        let taken = LoanTaken { group: group(), loan: loan(), part: LoanPart::Held };
        let epoch = Epoch::counted(3);
        let state =
            LoanState { group: group(), loan: loan(), epoch, count: 4, stands: false, fed: 0 };
        let elsewhere = vec![(Slot::new(3).unwrap(), (SiteId(3), epoch))];
        let lent = Answer::Lent { revision: Revision(9), states: vec![state], elsewhere };
        for answer in [Answer::Borrowed(vec![taken]), lent] {
            let bytes = encode_reply(&Ok(answer.clone()));
            assert_eq!(decode_reply(bytes), Ok(Ok(answer)));
        }
    }
}
