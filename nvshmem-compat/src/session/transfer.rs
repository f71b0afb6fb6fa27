//! Puts and gets. What goes to this PE itself is a copy, and so is what goes to one of this node whose heap is mapped
//! here: no NIC has a part in it, and it is done when the call returns. [`Session::fence`] orders it with what goes by
//! NIC.

use super::Session;
use crate::failure::Failure;
use shunt_device::{Get, HeapOffset, Put, Solo};

/// When a call may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The source may be changed; what was got is there.
    Done,
    /// It is under way.
    Posted,
}

/// Elements that lie apart: distance between two at the target and at the source, in elements; how many; bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// At the target.
    pub target: i64,
    /// At the source.
    pub source: i64,
    /// How many.
    pub count: u64,
    /// Bytes of one.
    pub bytes: u64,
}

impl Session {
    /// Writes `bytes` from `source` here to `target` at a PE.
    ///
    /// # Errors
    /// No such PE, a target that is not symmetric, or a channel that carries nothing.
    pub fn put(&self, target: u64, source: u64, bytes: u64, pe: i32, until: Until) -> Result<(), Failure> {
        let (pe, dst) = (self.peers.check(pe)?, self.heap.offset(target, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        if let Some(to) = self.mapped(pe, dst) {
            // SAFETY: the target lies in the heap (checked), the program vouches for its source.
            return unsafe { self.copy(to, source, bytes) };
        }
        if !self.is_symmetric(source, bytes) {
            return self.put_staged(dst, source, bytes, pe);
        }
        let put = Put { dst: HeapOffset(dst), src: HeapOffset(source - self.base), bytes };
        let ticket = self.peers.post_put(pe, put)?;
        if until == Until::Done { self.peers.finish(pe, ticket) } else { Ok(()) }
    }

    /// Reads `bytes` at `source` of a PE to `target` here.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn get(&self, target: u64, source: u64, bytes: u64, pe: i32, until: Until) -> Result<(), Failure> {
        let (pe, src) = (self.peers.check(pe)?, self.heap.offset(source, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        if let Some(from) = self.mapped(pe, src) {
            // SAFETY: the source lies in the heap (checked), the program vouches for its target.
            return unsafe { self.copy(target, from, bytes) };
        }
        if !self.is_symmetric(target, bytes) {
            return self.get_staged(target, src, bytes, pe);
        }
        let get = Get { dst: HeapOffset(target - self.base), src: HeapOffset(src), bytes };
        let ticket = self.peers.post_get(pe, get)?;
        if until == Until::Done {
            self.peers.finish(pe, ticket)?;
            self.peers.settle_writes();
        }
        Ok(())
    }

    /// Empties a part of this PE's heap.
    ///
    /// # Errors
    /// It is not the program's.
    pub fn clear(&self, offset: u64, bytes: u64) -> Result<(), Failure> {
        let at = self.base + offset;
        self.heap.offset(at, bytes)?;
        let zeros = [0u64; 8192];
        let from = zeros.as_ptr().expose_provenance() as u64;
        for done in (0..bytes).step_by(size_of_val(&zeros)) {
            // SAFETY: a part of the heap (checked), and an array that is no shorter.
            unsafe { self.copy(at + done, from, (bytes - done).min(size_of_val(&zeros) as u64)) }?;
        }
        Ok(())
    }

    /// Writes the low `bytes` of a value, at most eight.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn put_value(&self, target: u64, value: u64, bytes: u64, pe: i32) -> Result<(), Failure> {
        let (pe, dst) = (self.peers.check(pe)?, self.heap.offset(target, bytes)?);
        if let Some(to) = self.mapped(pe, dst) {
            // SAFETY: the target lies in the heap (checked).
            return Ok(unsafe { self.access.store(to, value, bytes) }?);
        }
        let channel = self.peers.channel(pe);
        let post = |_| channel.p_nbi(Solo, HeapOffset(dst), value, bytes as u32);
        self.peers.patiently(|| format!("room for a word to PE {pe}"), post).map(|_| ())
    }

    /// Reads a value of at most eight bytes.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn get_value(&self, source: u64, bytes: u64, pe: i32) -> Result<u64, Failure> {
        let mut value = 0u64;
        let to = (&raw mut value).expose_provenance() as u64;
        self.get(to, source, bytes.min(8), pe, Until::Done)?;
        Ok(value)
    }

    /// Writes elements that lie apart. They travel in the requests themselves: the source is free when this returns.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn put_strided(&self, target: u64, source: u64, strides: Strides, pe: i32) -> Result<(), Failure> {
        self.peers.check(pe)?;
        for (to, from) in strides.places(target, source) {
            let mut part = 0;
            while part < strides.bytes {
                let bytes = (strides.bytes - part).min(8);
                // SAFETY: the program vouches for its source.
                let value = unsafe { self.access.load(from + part, bytes) }?;
                self.put_value(to + part, value, bytes, pe)?;
                part += bytes;
            }
        }
        Ok(())
    }

    /// Reads elements that lie apart; they are there when this returns.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn get_strided(&self, target: u64, source: u64, strides: Strides, pe: i32) -> Result<(), Failure> {
        let number = self.peers.check(pe)?;
        let mut places = Vec::new();
        for (to, from) in strides.places(target, source) {
            places.push((to, self.heap.offset(from, strides.bytes)?));
        }
        let Some(base) = self.mapped(number, 0) else {
            return self.get_elements(&mut places.into_iter(), strides.bytes, number);
        };
        for (to, from) in places {
            // SAFETY: the source lies in the heap (checked), the program vouches for its target.
            unsafe { self.copy(to, base + from, strides.bytes) }?;
        }
        Ok(())
    }
}

impl Strides {
    /// Where each element goes and comes from.
    fn places(self, target: u64, source: u64) -> impl Iterator<Item = (u64, u64)> {
        let bytes = self.bytes as i64;
        let at = move |base: u64, stride: i64, number: u64| {
            base.wrapping_add_signed(stride.wrapping_mul(bytes).wrapping_mul(number as i64))
        };
        (0..self.count).map(move |number| (at(target, self.target, number), at(source, self.source, number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_lie_apart() {
        let strides = Strides { target: 2, source: -1, count: 3, bytes: 4 };
        assert_eq!(strides.places(100, 200).collect::<Vec<_>>(), [(100, 200), (108, 196), (116, 192)]);
        assert_eq!(Strides { count: 0, ..strides }.places(1, 2).count(), 0);
    }
}
