//! Rows of the state as bytes: the format number, then values as entries have them
//! ([`crate::entry`]), and nothing behind them.
//!
//! [`row!`](crate::row!) states the fields of a struct once, in the order in which they are
//! written.

pub use crate::entry::{Code, EntryError, Input};
use model::Bytes;

/// The format number of all rows so far.
pub const FORMAT: u8 = 1;

/// A row.
pub fn encode(value: &impl Code) -> Vec<u8> {
    let mut row = vec![FORMAT];
    value.put(&mut row);
    row
}

/// What a row contains; `None`: it is no row of that type, or of another format.
pub fn decode<T: Code>(row: &Bytes) -> Option<T> {
    match row.first() {
        Some(&FORMAT) => decode_bare(&row.slice(1..)),
        _ => None,
    }
}

/// A row without a format number: of a number, or of few.
pub fn encode_bare(value: &impl Code) -> Vec<u8> {
    let mut row = Vec::new();
    value.put(&mut row);
    row
}

/// What such a row contains; `None`: it is no row of that type.
pub fn decode_bare<T: Code>(row: &Bytes) -> Option<T> {
    let mut input = Input::new(row.clone());
    let value = T::take(&mut input).ok()?;
    input.is_empty().then_some(value)
}

/// The last value of a row, without its length: a row within the row, or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest(pub Bytes);

impl Code for Rest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn take(from: &mut Input) -> Result<Rest, EntryError> {
        Ok(Rest(from.rest()))
    }
}

/// States how a struct is written: its fields in order. Fields behind a semicolon are not written;
/// they are read as their defaults.
///
/// ```
/// struct Count {
///     loans: u64,
///     asked: bool,
/// }
/// wire::row!(Count { loans; asked });
/// assert_eq!(wire::row::encode(&Count { loans: 300, asked: true }), [1, 0xac, 2]);
/// ```
#[macro_export]
macro_rules! row {
    ($type:ident { $($field:ident),+ $(,)? $(; $($unwritten:ident),+ $(,)? )? }) => {
        impl $crate::row::Code for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::row::Code::put(&self.$field, out); )+
            }

            fn take(from: &mut $crate::row::Input) -> Result<$type, $crate::row::EntryError> {
                Ok($type {
                    $( $field: $crate::row::Code::take(from)?, )+
                    $( $( $unwritten: Default::default(), )+ )?
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Example {
        number: u64,
        flag: bool,
        unwritten: Vec<u64>,
    }
    crate::row!(Example { number, flag; unwritten });

    #[test]
    fn a_row_is_of_its_format_and_whole() {
        let example = Example { number: 300, flag: true, unwritten: Vec::new() };
        let row = Bytes::from(encode(&example));
        assert_eq!(&row[..], b"\x01\xac\x02\x01");
        assert_eq!(decode(&row), Some(example));
        for other in [&b""[..], b"\x02\xac\x02\x01", b"\x01\xac\x02", b"\x01\xac\x02\x01\x00"] {
            assert_eq!(decode::<Example>(&Bytes::copy_from_slice(other)), None, "{other:?}");
        }
    }

    #[test]
    fn a_bare_row_has_no_format_and_is_whole() {
        let row = Bytes::from(encode_bare(&(300_u64, Rest("key".into()))));
        assert_eq!(&row[..], b"\xac\x02key");
        assert_eq!(decode_bare(&row), Some((300_u64, Rest("key".into()))));
        assert_eq!(decode_bare::<u64>(&row), None, "something follows");
        assert_eq!(decode_bare::<u64>(&row.slice(..1)), None, "cut");
    }
}
