//! How a value becomes bytes: the few rules that every type of the codec is made of.
//!
//! Numbers are varints (seven bits a byte, lowest first; signed ones zigzag), strings and lists
//! carry their length or count before them, a variant is one byte. Nothing is named and nothing is
//! padded: the version byte in front of everything states which shape follows.
//!
//! Reading trusts nothing. A count is never turned into an allocation: a list grows as its items
//! are really there, so that memory stays within a constant factor of the bytes that came.

use super::EntryError;
use model::{Bytes, limits};
use std::collections::BTreeMap;

/// Bytes of the longest varint of 64 bits.
pub(super) const VARINT_BYTES_MAX: usize = 10;

/// A type that has a place in log entries.
pub trait Code: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads what [`Code::put`] wrote.
    fn take(from: &mut Input) -> Result<Self, EntryError>;

    /// The same of an item of a list; `None`: a newer version wrote it, and this one can do without
    /// it.
    fn take_known(from: &mut Input) -> Result<Option<Self>, EntryError> {
        Self::take(from).map(Some)
    }
}

/// An enum whose variants have a byte each.
pub(super) trait Tagged {
    /// The bytes of its variants.
    const TAGS: &[u8];
}

/// Bytes to be read in order.
#[derive(Debug)]
pub struct Input {
    bytes: Bytes,
    at: usize,
    /// How many results enclose what is being read: a transaction's answers may not nest.
    depth: u8,
}

/// The outcome of a request holds the outcomes of its steps, and those hold no more.
const RESULT_DEPTH_MAX: u8 = 2;

impl Input {
    /// These, from the first one on.
    pub fn new(bytes: Bytes) -> Input {
        Input { bytes, at: 0, depth: 0 }
    }

    /// How many were read.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Whether all were read.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What is to be said where there is no such thing.
    pub fn malformed(&self, what: &'static str) -> EntryError {
        EntryError::Malformed { what, offset: self.at }
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, EntryError> {
        let byte = *self.bytes.get(self.at).ok_or(EntryError::Short)?;
        self.at += 1;
        Ok(byte)
    }

    /// Leaves the byte just read to be read again.
    pub(super) fn step_back(&mut self) {
        self.at -= 1;
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let bytes = self.bytes.get(self.at..self.at + N).ok_or(EntryError::Short)?;
        self.at += N;
        Ok(bytes.try_into().expect("the range has N bytes"))
    }

    /// So many bytes, shared with the input.
    fn slice(&mut self, len: u64) -> Result<Bytes, EntryError> {
        if len > (self.bytes.len() - self.at) as u64 {
            return Err(EntryError::Short);
        }
        let end = self.at + len as usize;
        let slice = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(slice)
    }

    /// All that is left, shared with the input.
    pub(crate) fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.at..);
        self.at = self.bytes.len();
        rest
    }
}

/// Appends a number.
pub fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes [`put_varint`] writes.
pub fn varint_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a number from the beginning of `bytes` and returns how many bytes it took. `None`: there
/// is no whole number, or none of the shortest form.
pub fn take_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (i, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == VARINT_BYTES_MAX - 1 && byte > 1 {
            return None;
        }
        number |= bits << (7 * i);
        if byte < 0x80 {
            let shortest = i == 0 || byte != 0;
            return shortest.then_some((number, i + 1));
        }
    }
    None
}

impl Code for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(*self, out);
    }

    fn take(from: &mut Input) -> Result<u64, EntryError> {
        let rest = &from.bytes[from.at..];
        match take_varint(rest) {
            Some((number, len)) => {
                from.at += len;
                Ok(number)
            }
            None if rest.len() < VARINT_BYTES_MAX => Err(EntryError::Short),
            None => Err(from.malformed("number")),
        }
    }
}

impl Code for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(u64::from(*self), out);
    }

    fn take(from: &mut Input) -> Result<u32, EntryError> {
        u32::try_from(u64::take(from)?).map_err(|_| from.malformed("number of 32 bits"))
    }
}

impl Code for u16 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(u64::from(*self), out);
    }

    fn take(from: &mut Input) -> Result<u16, EntryError> {
        u16::try_from(u64::take(from)?).map_err(|_| from.malformed("number of 16 bits"))
    }
}

impl<T: Code> Code for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(from: &mut Input) -> Result<Box<T>, EntryError> {
        Ok(Box::new(T::take(from)?))
    }
}

impl Code for usize {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(*self as u64, out);
    }

    fn take(from: &mut Input) -> Result<usize, EntryError> {
        usize::try_from(u64::take(from)?).map_err(|_| from.malformed("size"))
    }
}

impl Code for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(((self << 1) ^ (self >> 63)) as u64, out);
    }

    fn take(from: &mut Input) -> Result<i64, EntryError> {
        let zigzag = u64::take(from)?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }
}

impl Code for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut Input) -> Result<bool, EntryError> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.malformed("truth value")),
        }
    }
}

impl Code for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(self.len() as u64, out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut Input) -> Result<Bytes, EntryError> {
        let len = u64::take(from)?;
        from.slice(len)
    }
}

impl Code for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(self.len() as u64, out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut Input) -> Result<String, EntryError> {
        let bytes = Bytes::take(from)?;
        String::from_utf8(bytes.into()).map_err(|_| from.malformed("text"))
    }
}

impl<T: Code> Code for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<Option<T>, EntryError> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Code, E: Code> Code for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(from: &mut Input) -> Result<Result<T, E>, EntryError> {
        from.depth += 1;
        if from.depth > RESULT_DEPTH_MAX {
            return Err(from.malformed("outcome inside the outcome of a step"));
        }
        let result = if bool::take(from)? { Ok(T::take(from)?) } else { Err(E::take(from)?) };
        from.depth -= 1;
        Ok(result)
    }
}

impl<T: Code> Code for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(self.len() as u64, out);
        for item in self {
            item.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<Vec<T>, EntryError> {
        let count = u64::take(from)?;
        if count > limits::COMMAND_ARGS_MAX as u64 {
            return Err(EntryError::TooMany {
                what: "items of one list",
                max: limits::COMMAND_ARGS_MAX,
            });
        }
        // Every item takes a byte at least: a count beyond that is a lie not worth beginning with.
        if count > (from.bytes.len() - from.at) as u64 {
            return Err(EntryError::Short);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.extend(T::take_known(from)?);
        }
        Ok(items)
    }
}

/// As a list of pairs.
impl<K: Code + Ord, V: Code> Code for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<BTreeMap<K, V>, EntryError> {
        Ok(Vec::<(K, V)>::take(from)?.into_iter().collect())
    }
}

impl<A: Code, B: Code> Code for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Input) -> Result<(A, B), EntryError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// The codec of an enum: each variant's byte, and its fields in the order they are written. A byte
/// once given to a variant is never given to another. Behind `else` stand variants that are
/// families: their commands keep bytes of their own, and nothing is written for the family.
macro_rules! code_enum {
    ($type:ident as $what:literal {
        $( $tag:literal => $variant:ident $( { $($field:ident),+ } )? $( ( $($item:ident),+ ) )? ),+ $(,)?
    } $( else { $( $family:ident($of:ident) ),+ } )? ) => {
        impl super::compact::Tagged for $type {
            const TAGS: &[u8] = &[$($tag),+];
        }

        impl Code for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( $type::$variant $( { $($field),+ } )? $( ( $($item),+ ) )? => {
                        out.push($tag);
                        $( $( $field.put(out); )+ )?
                        $( $( $item.put(out); )+ )?
                    } )+
                    $( $( $type::$family(one) => one.put(out), )+ )?
                }
            }

            fn take(from: &mut Input) -> Result<$type, EntryError> {
                Ok(match from.byte()? {
                    $( $tag => $type::$variant
                        $( { $($field: Code::take(from)?),+ } )?
                        $( ( $( { let $item = Code::take(from)?; $item } ),+ ) )?, )+
                    $( $( tag if <$of as super::compact::Tagged>::TAGS.contains(&tag) => {
                        from.step_back();
                        $type::$family(Code::take(from)?)
                    } )+ )?
                    _ => return Err(from.malformed($what)),
                })
            }
        }
    };
}

/// The codec of a struct: its fields in the order they are written.
macro_rules! code_struct {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl Code for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $type { $($field),+ } = self;
                $( $field.put(out); )+
            }

            fn take(from: &mut Input) -> Result<$type, EntryError> {
                Ok($type { $($field: Code::take(from)?),+ })
            }
        }
    };
}

/// The codec of a number with a name.
macro_rules! code_newtype {
    ($($type:ident),+ $(,)?) => {
        $( impl Code for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(from: &mut Input) -> Result<$type, EntryError> {
                Ok($type(Code::take(from)?))
            }
        } )+
    };
}

pub(super) use {code_enum, code_newtype, code_struct};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_few_bytes_as_they_can() {
        for (number, len) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)]
        {
            let mut out = Vec::new();
            put_varint(number, &mut out);
            assert_eq!(out.len(), len, "{number}");
            assert_eq!(take_varint(&out), Some((number, len)));
        }
    }

    #[test]
    fn other_forms_of_a_number_are_refused() {
        assert_eq!(take_varint(&[0x80, 0x00]), None, "not the shortest");
        assert_eq!(take_varint(&[0xff; 10]), None, "more than 64 bits");
        assert_eq!(take_varint(&[0x80]), None, "cut");
        assert_eq!(take_varint(&[]), None);
    }
}
