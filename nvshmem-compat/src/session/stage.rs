//! Memory of the program's outside the symmetric heap: NICs do not reach it, so it goes through blocks inside the heap.

use super::map::{STAGE_BLOCKS, STAGE_BYTES};
use super::{Session, lock, memory};
use crate::failure::Failure;
use shunt_device::{Get, HeapOffset, Put, Solo, Ticket};

/// The blocks: which was used last, and what still reads each.
#[derive(Debug, Default)]
pub struct Stage {
    next: u64,
    /// Peer and ticket of the put that reads a block.
    readers: [Option<(u32, Ticket)>; STAGE_BLOCKS as usize],
}

impl Session {
    /// A block that nobody reads any more: its number and its heap offset.
    fn block(&self, stage: &mut Stage) -> Result<(usize, u64), Failure> {
        let number = stage.next % STAGE_BLOCKS;
        stage.next += 1;
        if let Some((pe, ticket)) = stage.readers[number as usize].take() {
            match self.finish(pe, ticket) {
                // Nothing of a channel that is dead reads any more: its paths are fenced.
                Err(Failure::Channel(broken)) if !broken.uncertain => {}
                other => other?,
            }
        }
        Ok((number as usize, self.map.block(number)))
    }

    /// A put whose source NICs do not reach. The source belongs to the program again when this returns.
    pub(super) fn put_staged(&self, dst: u64, source: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        let mut stage = lock(&self.stage);
        let mut at = 0;
        while at < bytes {
            let part = (bytes - at).min(STAGE_BYTES);
            let (number, block) = self.block(&mut stage)?;
            // SAFETY: the program vouches for its source; the block is this session's and nobody reads it.
            unsafe { memory::copy(self.base + block, source + at, part) };
            let put = Put { dst: HeapOffset(dst + at), src: HeapOffset(block), bytes: part };
            stage.readers[number] = Some((pe, self.post_put(pe, put)?));
            at += part;
        }
        Ok(())
    }

    /// A get into memory that NICs do not reach; done when it returns.
    pub(super) fn get_staged(&self, target: u64, src: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        let mut stage = lock(&self.stage);
        let mut at = 0;
        while at < bytes {
            let part = (bytes - at).min(STAGE_BYTES);
            let (_, block) = self.block(&mut stage)?;
            let get = Get { dst: HeapOffset(block), src: HeapOffset(src + at), bytes: part };
            let ticket = self.post_get(pe, get)?;
            self.finish(pe, ticket)?;
            // SAFETY: the program vouches for its target; the block is this session's and the get is done.
            unsafe { memory::copy(target + at, self.base + block, part) };
            at += part;
        }
        Ok(())
    }

    /// Gets elements that do not lie side by side: all of a block's under way at once.
    pub(super) fn get_elements(
        &self,
        elements: &mut dyn Iterator<Item = (u64, u64)>,
        bytes: u64,
        pe: u32,
    ) -> Result<(), Failure> {
        // Fewer than the shortest ring has slots.
        const TOGETHER: usize = 64;
        let mut stage = lock(&self.stage);
        loop {
            let some: Vec<(u64, u64)> = elements.take(TOGETHER).collect();
            let Some(last) = some.len().checked_sub(1) else { return Ok(()) };
            let (_, block) = self.block(&mut stage)?;
            for (number, (_, src)) in (0..).zip(&some) {
                let get = Get { dst: HeapOffset(block + number * 16), src: HeapOffset(*src), bytes };
                let ticket = self.post_get(pe, get)?;
                if number as usize == last {
                    self.finish(pe, ticket)?;
                }
            }
            for (number, (target, _)) in (0..).zip(some) {
                // SAFETY: the program vouches for its target; the block is this session's and the gets are done.
                unsafe { memory::copy(target, self.base + block + number * 16, bytes) };
            }
        }
    }

    /// One look at a channel's ticket until it is done.
    pub(super) fn finish(&self, pe: u32, ticket: Ticket) -> Result<(), Failure> {
        let channel = self.channel(pe);
        self.patiently(
            || format!("ticket {} to PE {pe}", ticket.0),
            |deadline| channel.wait(Solo, ticket, deadline),
        )
    }
}
