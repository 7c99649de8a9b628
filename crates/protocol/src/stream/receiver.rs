//! The numbers of a stream's chunks at its destination.
//!
//! The destination takes the chunk of the number that it has counted up to, once. A leader of the
//! source that asks what has come sends the rest, and from then on chunks are numbered anew: so
//! none of an earlier leader, which may have cut its chunks elsewhere, is taken among them.

/// How far the numbers jump: more than one leader sends.
const ANEW: u64 = 1 << 32;

/// The number of the first chunk of the next leader, after so many have been counted.
pub(crate) fn numbered_anew(chunks: u64) -> u64 {
    (chunks / ANEW + 1) * ANEW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_an_earlier_leader_comes_again() {
        let first = numbered_anew(0);
        assert!(first > 0 && numbered_anew(first) > first + 1_000_000);
        assert_eq!(numbered_anew(first + 5), numbered_anew(first), "whatever has come since");
    }
}
