//! Memory of the program's outside the symmetric heap: NICs do not reach it, so it goes through blocks inside the heap.

use super::access::Access;
use super::map::{HeapMap, STAGE_BLOCKS, STAGE_BYTES};
use super::peers::Peers;
use crate::failure::Failure;
use shunt_device::{Get, HeapOffset, Put, Ticket};
use std::sync::Arc;

/// The blocks: which was used last, and what still reads each.
pub struct Stage {
    peers: Arc<Peers>,
    map: HeapMap,
    /// The heap's first address.
    base: u64,
    access: Arc<dyn Access>,
    next: u64,
    /// Peer and ticket of the put that reads a block.
    readers: [Option<(u32, Ticket)>; STAGE_BLOCKS as usize],
}

impl Stage {
    /// The blocks that a map names in a heap, all of them free.
    pub fn new(peers: Arc<Peers>, map: HeapMap, base: u64, access: Arc<dyn Access>) -> Self {
        Self { peers, map, base, access, next: 0, readers: [None; STAGE_BLOCKS as usize] }
    }

    /// A block that nobody reads any more: its number and its heap offset.
    fn block(&mut self) -> Result<(usize, u64), Failure> {
        let number = self.next % STAGE_BLOCKS;
        self.next += 1;
        if let Some((pe, ticket)) = self.readers[number as usize].take() {
            match self.peers.finish(pe, ticket) {
                // Nothing of a channel that is dead reads any more: its paths are fenced.
                Err(Failure::Channel(broken)) if !broken.uncertain => {}
                other => other?,
            }
        }
        Ok((number as usize, self.map.block(number)))
    }

    /// A put whose source NICs do not reach. The source belongs to the program again when this returns.
    pub fn put(&mut self, dst: u64, source: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        let mut at = 0;
        while at < bytes {
            let part = (bytes - at).min(STAGE_BYTES);
            let (number, block) = self.block()?;
            // SAFETY: the program vouches for its source; the block is this session's and nobody reads it.
            unsafe { self.access.copy(self.base + block, source + at, part) }?;
            let put = Put { dst: HeapOffset(dst + at), src: HeapOffset(block), bytes: part };
            self.readers[number] = Some((pe, self.peers.post_put(pe, put)?));
            at += part;
        }
        Ok(())
    }

    /// A get into memory that NICs do not reach; done when it returns.
    pub fn get(&mut self, target: u64, src: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        let mut at = 0;
        while at < bytes {
            let part = (bytes - at).min(STAGE_BYTES);
            let (_, block) = self.block()?;
            let get = Get { dst: HeapOffset(block), src: HeapOffset(src + at), bytes: part };
            let ticket = self.peers.post_get(pe, get)?;
            self.peers.finish(pe, ticket)?;
            // SAFETY: the program vouches for its target; the block is this session's and the get is done.
            unsafe { self.access.copy(target + at, self.base + block, part) }?;
            at += part;
        }
        Ok(())
    }

    /// Gets elements that do not lie side by side: all of a block's under way at once.
    pub fn get_elements(
        &mut self,
        elements: &mut dyn Iterator<Item = (u64, u64)>,
        bytes: u64,
        pe: u32,
    ) -> Result<(), Failure> {
        // Fewer than the shortest ring has slots.
        const TOGETHER: usize = 64;
        loop {
            let some: Vec<(u64, u64)> = elements.take(TOGETHER).collect();
            let Some(last) = some.len().checked_sub(1) else { return Ok(()) };
            let (_, block) = self.block()?;
            for (number, (_, src)) in (0..).zip(&some) {
                let get = Get { dst: HeapOffset(block + number * 16), src: HeapOffset(*src), bytes };
                let ticket = self.peers.post_get(pe, get)?;
                if number as usize == last {
                    self.peers.finish(pe, ticket)?;
                }
            }
            for (number, (target, _)) in (0..).zip(some) {
                // SAFETY: the program vouches for its target; the block is this session's and the gets are done.
                unsafe { self.access.copy(target, self.base + block + number * 16, bytes) }?;
            }
        }
    }
}
