//! Commands of operators. One without a number is as requests were before operators had numbers, so
//! that earlier versions carry it out:
//!
//! ```text
//! command = 3 ‖ node ‖ address ‖ witness | 135 (by force) ‖ the same
//!         | 4 ‖ node                     | 136 (by force) ‖ the same
//!         | 10 ‖ lost ‖ by ‖ without ‖ accept
//!         | 200 ‖ number ‖ numbered
//! numbered = 1 ‖ node ‖ address ‖ witness ‖ force
//!          | 2 ‖ node ‖ force
//!          | 3 ‖ lost ‖ by ‖ without
//!          | 220 ‖ lost ‖ by ‖ without ‖ reported
//! ```

use super::EntryError;
use super::compact::{Code, Input, Tagged};
use model::{AcceptedLoss, OperatorCommand, Promotion, RequestId};

const ADD: u8 = 3;
const FORCE_ADD: u8 = 135;
const REMOVE: u8 = 4;
const FORCE_REMOVE: u8 = 136;
const PROMOTE: u8 = 10;
const NUMBERED: u8 = 200;

const NUMBERED_ADD: u8 = 1;
const NUMBERED_REMOVE: u8 = 2;
const NUMBERED_PROMOTE: u8 = 3;
const NUMBERED_PROMOTE_AS_REPORTED: u8 = 220;

impl Tagged for OperatorCommand {
    const TAGS: &[u8] = &[ADD, REMOVE, PROMOTE, FORCE_ADD, FORCE_REMOVE, NUMBERED];
}

impl Code for OperatorCommand {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            OperatorCommand::AddNode { node, address, witness, force, id } => {
                put_tag(*id, NUMBERED_ADD, if *force { FORCE_ADD } else { ADD }, out);
                node.put(out);
                address.put(out);
                witness.put(out);
                id.iter().for_each(|_| force.put(out));
            }
            OperatorCommand::RemoveNode { node, force, id } => {
                put_tag(*id, NUMBERED_REMOVE, if *force { FORCE_REMOVE } else { REMOVE }, out);
                node.put(out);
                id.iter().for_each(|_| force.put(out));
            }
            OperatorCommand::Promote(Promotion { lost, by, without, accepts }) => {
                match accepts {
                    AcceptedLoss::Nothing => out.push(PROMOTE),
                    AcceptedLoss::AsFound { id } => put_tag(*id, NUMBERED_PROMOTE, PROMOTE, out),
                    AcceptedLoss::AsReported { id, .. } => {
                        put_tag(Some(*id), NUMBERED_PROMOTE_AS_REPORTED, PROMOTE, out);
                    }
                }
                lost.put(out);
                by.put(out);
                without.put(out);
                match accepts {
                    AcceptedLoss::Nothing => false.put(out),
                    AcceptedLoss::AsFound { id: None } => true.put(out),
                    AcceptedLoss::AsFound { id: Some(_) } => {}
                    AcceptedLoss::AsReported { reported, .. } => reported.put(out),
                }
            }
        }
    }

    fn take(from: &mut Input) -> Result<OperatorCommand, EntryError> {
        let (mut tag, mut id) = (from.byte()?, None);
        if tag == NUMBERED {
            id = Some(RequestId::take(from)?);
            tag = from.byte()?;
        }
        Ok(match (tag, id) {
            (ADD | FORCE_ADD, None) | (NUMBERED_ADD, Some(_)) => OperatorCommand::AddNode {
                node: Code::take(from)?,
                address: Code::take(from)?,
                witness: Code::take(from)?,
                force: if id.is_some() { Code::take(from)? } else { tag == FORCE_ADD },
                id,
            },
            (REMOVE | FORCE_REMOVE, None) | (NUMBERED_REMOVE, Some(_)) => {
                OperatorCommand::RemoveNode {
                    node: Code::take(from)?,
                    force: if id.is_some() { Code::take(from)? } else { tag == FORCE_REMOVE },
                    id,
                }
            }
            (PROMOTE, None) | (NUMBERED_PROMOTE | NUMBERED_PROMOTE_AS_REPORTED, Some(_)) => {
                OperatorCommand::Promote(Promotion {
                    lost: Code::take(from)?,
                    by: Code::take(from)?,
                    without: Code::take(from)?,
                    accepts: match id {
                        Some(id) if tag == NUMBERED_PROMOTE_AS_REPORTED => {
                            AcceptedLoss::AsReported { id, reported: Code::take(from)? }
                        }
                        None if !bool::take(from)? => AcceptedLoss::Nothing,
                        id => AcceptedLoss::AsFound { id },
                    },
                })
            }
            _ => return Err(from.malformed("command of an operator")),
        })
    }
}

/// The byte of a command, behind its number if it has one.
fn put_tag(id: Option<RequestId>, numbered: u8, plain: u8, out: &mut Vec<u8>) {
    if let Some(id) = id {
        out.push(NUMBERED);
        id.put(out);
    }
    out.push(if id.is_some() { numbered } else { plain });
}

#[cfg(test)]
mod tests {
    use crate::entry::{decode_request, encode_request};
    use model::{
        AcceptedLoss, Body, ClientId, NodeId, OperatorCommand, Promotion, Request, RequestId,
        SiteId,
    };

    #[test]
    fn commands_with_and_without_a_number_stay_as_they_are() {
        let number = RequestId { client: ClientId(7), sequence: 4, acknowledged_below: 3 };
        let add = |force, id| {
            let (node, address) = (NodeId(2), "a:1".to_owned());
            OperatorCommand::AddNode { node, address, witness: true, force, id }
        };
        let remove = |force, id| OperatorCommand::RemoveNode { node: NodeId(2), force, id };
        let promote = |accepts| {
            let (lost, by, without) = (SiteId(5), Some(SiteId(6)), vec![SiteId(8)]);
            OperatorCommand::Promote(Promotion { lost, by, without, accepts })
        };
        for (command, expected) in [
            (add(false, None), &b"\x01\x03\x02\x03a:1\x01\x00"[..]),
            (add(true, None), b"\x01\x87\x02\x03a:1\x01\x00"),
            (add(true, Some(number)), b"\x01\xc8\x07\x04\x03\x01\x02\x03a:1\x01\x01\x00"),
            (remove(false, None), b"\x01\x04\x02\x00"),
            (remove(true, None), b"\x01\x88\x02\x00"),
            (remove(false, Some(number)), b"\x01\xc8\x07\x04\x03\x02\x02\x00\x00"),
            (promote(AcceptedLoss::Nothing), b"\x01\x0a\x05\x01\x06\x01\x08\x00\x00"),
            (promote(AcceptedLoss::AsFound { id: None }), b"\x01\x0a\x05\x01\x06\x01\x08\x01\x00"),
            (
                promote(AcceptedLoss::AsFound { id: Some(number) }),
                b"\x01\xc8\x07\x04\x03\x03\x05\x01\x06\x01\x08\x00",
            ),
            (
                promote(AcceptedLoss::AsReported { id: number, reported: Vec::new() }),
                b"\x01\xc8\x07\x04\x03\xdc\x05\x01\x06\x01\x08\x00\x00",
            ),
        ] {
            let request = Request::new(Body::Operator(command));
            let bytes = encode_request(&request);
            assert_eq!(&bytes[..], expected, "{request:?}");
            assert_eq!(decode_request(bytes), Ok(request));
        }
    }
}
