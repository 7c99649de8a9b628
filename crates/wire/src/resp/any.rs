//! What must hold for any bytes whatever, for the fuzzer and for property tests.

use super::reply::ReplyError;
use super::{Frame, ProtocolError, Reply, ReplyParser, RequestParser};
use bytes::BytesMut;

/// The arguments of one command after the other.
pub(super) type Commands = Vec<Vec<Vec<u8>>>;

/// Whatever arrives, and in whatever pieces, must not bring a parser down, and must be read as if
/// it had arrived in one. For fuzzing.
pub fn check_any(pieces: &[&[u8]]) {
    let whole = pieces.concat();
    for authenticated in [false, true] {
        assert_eq!(requests(pieces, authenticated), requests(&[&whole], authenticated));
    }
    // As text: a number that is none is not equal to itself.
    assert_eq!(format!("{:?}", replies(pieces)), format!("{:?}", replies(&[&whole])));
}

/// The requests in `pieces`, given to a parser one after the other, up to the first error.
pub(super) fn requests(pieces: &[&[u8]], authenticated: bool) -> (Commands, Option<ProtocolError>) {
    let mut parser = RequestParser::new();
    parser.set_authenticated(authenticated);
    let (mut buffer, mut frame) = (BytesMut::new(), Frame::default());
    let mut commands = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer, &mut frame) {
                Ok(true) => commands.push(frame.args_from(0).map(<[u8]>::to_vec).collect()),
                Ok(false) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

/// The same for replies.
pub(super) fn replies(pieces: &[&[u8]]) -> (Vec<Reply>, Option<ReplyError>) {
    let (mut parser, mut buffer) = (ReplyParser::new(), BytesMut::new());
    let mut replies = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}
