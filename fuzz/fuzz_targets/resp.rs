//! Requests and replies: whatever arrives, in one piece or in two, is read the same way, and never
//! brings a parser down. The first byte says where the input is cut.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use wire::resp::{Frame, ReplyParser, RequestParser};

fn commands(pieces: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let mut parser = RequestParser::new();
    parser.set_authenticated(true);
    let (mut buffer, mut frame) = (BytesMut::new(), Frame::default());
    let mut commands = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer, &mut frame) {
                Ok(true) => commands.push(frame.args_from(0).map(<[u8]>::to_vec).collect()),
                Ok(false) => break,
                Err(error) => return (commands, Some(error.to_string())),
            }
        }
    }
    (commands, None)
}

fn replies(pieces: &[&[u8]]) -> String {
    let (mut parser, mut buffer) = (ReplyParser::new(), BytesMut::new());
    let mut replies = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return format!("{replies:?} {error}"),
            }
        }
    }
    format!("{replies:?}")
}

fuzz_target!(|input: &[u8]| {
    let Some((cut, input)) = input.split_first() else { return };
    let (first, second) = input.split_at((*cut as usize).min(input.len()));
    assert_eq!(commands(&[first, second]), commands(&[input]));
    assert_eq!(replies(&[first, second]), replies(&[input]));
});
