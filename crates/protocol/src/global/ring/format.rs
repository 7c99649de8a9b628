//! A site's pointers as bytes: they are part of its replicated state, so that every node of the
//! site can take a step of a lookup, and so that a new leader goes on where the last one was.
//!
//! ```text
//! ring     = 1 ‖ site ‖ count ‖ virtual*            in the order of their points
//! virtual  = point ‖ 0                              no member yet
//!          | point ‖ 1 ‖ list ‖ before ‖ list       successors, predecessor, fingers
//! before   = 0 | 1 ‖ member
//! list     = count ‖ member*                        in the order of the ring
//! member   = point ‖ site
//! point    = 8 bytes, little-endian;  site, count = varint
//! ```

use super::point::{Member, Point};
use super::pointers::{Pointers, Ring};
use model::{SiteId, limits};
use std::collections::BTreeMap;
use wire::entry::{put_varint, take_varint};

/// The version byte of everything this version writes.
const FORMAT: u8 = 1;
/// More fingers than that have no two different doublings.
const FINGERS_MAX: usize = 64;

/// Why bytes are no pointers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// They were written by a version that this one does not read.
    #[error("format {found} of a ring is not known here; this version reads format {FORMAT}")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// They mean nothing.
    #[error("the bytes of a ring have no {what} where it should be")]
    Malformed {
        /// What should be there.
        what: &'static str,
    },
}

impl Ring {
    /// Writes the pointers.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(u64::from(self.site.0), &mut out);
        put_varint(self.virtuals.len() as u64, &mut out);
        for (point, pointers) in &self.virtuals {
            out.extend_from_slice(&point.0.to_le_bytes());
            out.push(u8::from(pointers.is_some()));
            let Some(pointers) = pointers else { continue };
            put_list(&pointers.successors, &mut out);
            out.push(u8::from(pointers.predecessor.is_some()));
            if let Some(before) = pointers.predecessor {
                put_member(before, &mut out);
            }
            put_list(&pointers.fingers, &mut out);
        }
        out
    }

    /// Reads them, and refuses what no ring can be.
    pub fn decode(bytes: &[u8]) -> Result<Ring, RingError> {
        let mut input = Input(bytes);
        match input.byte("version")? {
            FORMAT => {}
            found => return Err(RingError::Version { found }),
        }
        let site = input.site()?;
        let count = input.count("virtual nodes", limits::RING_VIRTUALS_MAX as usize)?;
        let mut virtuals = BTreeMap::new();
        for _ in 0..count {
            let point = input.point()?;
            if virtuals.last_key_value().is_some_and(|(last, _)| *last >= point) {
                return Err(RingError::Malformed { what: "order of virtual nodes" });
            }
            let pointers = match input.flag("membership")? {
                true => Some(input.pointers(point)?),
                false => None,
            };
            virtuals.insert(point, pointers);
        }
        let ring = Ring { site, virtuals };
        match input.0.is_empty() && count > 0 && ring.is_sound() {
            true => Ok(ring),
            false => Err(RingError::Malformed { what: "end" }),
        }
    }

    /// Whether the pointers are within the bounds of each other, as this code leaves them.
    fn is_sound(&self) -> bool {
        self.joined().all(|(point, pointers)| {
            let end = self.point_after(point);
            let until_end = point.until(end);
            let mut successors = pointers.successors.iter();
            let last = pointers.successors.last().map_or(0, |last| point.until(last.point));
            successors.all(|member| {
                let own = member.site == self.site;
                own == (point.until(member.point) == until_end)
                    && point.until(member.point) <= until_end
            }) && pointers.fingers.iter().all(|finger| {
                let until = point.until(finger.point);
                finger.site != self.site && last < until && until < until_end
            }) && pointers.predecessor.is_none_or(|before| {
                let own = self.point_before(point);
                match before.site == self.site {
                    true => before.point == own,
                    false => {
                        before.point != own && (own == point || before.point.is_between(own, point))
                    }
                }
            })
        })
    }
}

fn put_member(member: Member, out: &mut Vec<u8>) {
    out.extend_from_slice(&member.point.0.to_le_bytes());
    put_varint(u64::from(member.site.0), out);
}

fn put_list(list: &[Member], out: &mut Vec<u8>) {
    put_varint(list.len() as u64, out);
    list.iter().for_each(|member| put_member(*member, out));
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self, what: &'static str) -> Result<u8, RingError> {
        let (byte, rest) = self.0.split_first().ok_or(RingError::Malformed { what })?;
        self.0 = rest;
        Ok(*byte)
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, RingError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RingError::Malformed { what }),
        }
    }

    fn number(&mut self, what: &'static str) -> Result<u64, RingError> {
        let (number, len) = take_varint(self.0).ok_or(RingError::Malformed { what })?;
        self.0 = &self.0[len..];
        Ok(number)
    }

    fn count(&mut self, what: &'static str, max: usize) -> Result<usize, RingError> {
        let number = self.number(what)?;
        usize::try_from(number)
            .ok()
            .filter(|count| *count <= max)
            .ok_or(RingError::Malformed { what })
    }

    fn site(&mut self) -> Result<SiteId, RingError> {
        let what = "site";
        let number = self.number(what)?;
        u32::try_from(number).map(SiteId).map_err(|_| RingError::Malformed { what })
    }

    fn point(&mut self) -> Result<Point, RingError> {
        let (bytes, rest) =
            self.0.split_first_chunk().ok_or(RingError::Malformed { what: "point" })?;
        self.0 = rest;
        Ok(Point(u64::from_le_bytes(*bytes)))
    }

    fn member(&mut self) -> Result<Member, RingError> {
        Ok(Member { point: self.point()?, site: self.site()? })
    }

    /// Members in the order in which they come after `from`.
    fn list(
        &mut self,
        from: Point,
        what: &'static str,
        max: usize,
    ) -> Result<Vec<Member>, RingError> {
        let count = self.count(what, max)?;
        let mut list = Vec::<Member>::new();
        for _ in 0..count {
            let member = self.member()?;
            let last = list.last().map(|last| from.until(last.point));
            if last.is_some_and(|last| from.until(member.point) <= last) {
                return Err(RingError::Malformed { what });
            }
            list.push(member);
        }
        Ok(list)
    }

    fn pointers(&mut self, point: Point) -> Result<Pointers, RingError> {
        // The site's own next member may follow a full list.
        let successors = self.list(point, "successors", limits::RING_LIST_MEMBERS_MAX + 1)?;
        if successors.is_empty() {
            return Err(RingError::Malformed { what: "successors" });
        }
        let predecessor = match self.flag("predecessor")? {
            true => Some(self.member()?),
            false => None,
        };
        let fingers = self.list(point, "fingers", FINGERS_MAX)?;
        Ok(Pointers { successors, predecessor, fingers })
    }
}
