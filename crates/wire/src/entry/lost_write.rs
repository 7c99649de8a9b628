//! Writes that failovers lost, as a site keeps them and as they are answered.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_struct};
use model::{ChangeKind, LostReport, LostWrite, LostWrites};

code_struct!(LostReport { failover, slots, keys, trimmed, more });
code_struct!(LostWrite { keyspace, key, revision, kind });
code_struct!(LostWrites { reports, writes, next });

code_enum!(ChangeKind as "change of a key" {
    0 => Put,
    1 => Append,
    2 => Add,
    3 => Delete,
    4 => Expire,
    5 => SetExpiry,
    6 => ClearExpiry,
    7 => HashSet,
    8 => HashDelete,
    9 => HashAdd,
    10 => Clear,
    11 => Loan,
});

#[cfg(test)]
mod tests {
    use crate::entry::{
        decode_lost_page, decode_lost_report, decode_reply, decode_request, encode_lost_page,
        encode_lost_report, encode_reply, encode_request,
    };
    use model::{
        Answer, Ballot, Body, ChangeKind, Epoch, KeyspaceId, LostReport, LostWrite, LostWrites,
        Request, Revision, SiteId, SlotEpochs, Term,
    };

    fn report() -> LostReport {
        let site = SiteId(2);
        let failover = Ballot { term: Term { number: 1, site }, round: 300, site: SiteId(3) };
        let slots = SlotEpochs(vec![("0-99".parse().unwrap(), Epoch::counted(4))]);
        LostReport { failover, slots, keys: 5, trimmed: Revision(0), more: true }
    }

    fn write() -> LostWrite {
        let (keyspace, revision) = (KeyspaceId(7), Revision(300));
        LostWrite { keyspace, key: "car:1".into(), revision, kind: ChangeKind::Delete }
    }

    #[test]
    fn format_1_stays_as_it_is() {
        let row = encode_lost_page(&vec![write()]);
        assert_eq!(&row[..], b"\x01\x01\x07\x05car:1\xac\x02\x03");
        assert_eq!(decode_lost_page(row), Ok(vec![write()]));
        let row = encode_lost_report(&report());
        assert!(row.starts_with(b"\x01\x01\x02\xac\x02\x03"), "{row:?}");
        assert!(row.ends_with(b"\x05\x00\x01"), "{row:?}");
        for cut in 0..row.len() {
            assert!(decode_lost_report(row.slice(..cut)).is_err(), "cut at {cut}");
        }
        assert_eq!(decode_lost_report(row), Ok(report()));
    }

    #[test]
    fn a_request_for_lost_writes_and_its_answer_come_back() {
        for failover in [None, Some(report().failover)] {
            let body = Body::ListLostWrites { at: SiteId(3), failover, page: 2 };
            let request = Request::new(body);
            assert_eq!(decode_request(encode_request(&request)), Ok(request));
        }
        for next in [None, Some(3)] {
            let lost = LostWrites { reports: vec![report()], writes: vec![write()], next };
            let reply = Ok(Answer::LostWrites(Box::new(lost)));
            assert_eq!(decode_reply(encode_reply(&reply)), Ok(reply));
        }
    }
}
