//! What stands for the model: bytes of each page that nothing else has, and marks of pages that are free.

use shunt::host::gpu::OwnedSpan;
use shunt_kv::cache::Cache;
use std::sync::Arc;

/// Byte of a page that belongs to no request.
const MARK: u8 = 0xa5;

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A stream of numbers by a seed.
pub struct Draws(pub u64);

impl Draws {
    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % bound
    }
}

/// The bytes of a page of a prompt, by layer and place; of its context, for no layer.
pub fn fill(prompt: u64, layer: Option<u32>, page: u32, bytes: &mut [u8]) {
    let layer = layer.map_or(0xffff_ffff, u64::from);
    let mut word = mix(prompt ^ mix(layer << 32 | u64::from(page)));
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
}

/// The memory of a decoder's cache, and what is right in it.
pub struct Checked {
    memory: Arc<OwnedSpan>,
    cache: Cache,
    /// What is wanted, and what is there.
    wanted: Vec<u8>,
    there: Vec<u8>,
}

impl Checked {
    /// All of it is free.
    ///
    /// # Errors
    /// The memory is smaller than the cache.
    pub fn new(memory: Arc<OwnedSpan>, cache: Cache) -> anyhow::Result<Self> {
        memory.memory().fill(memory.span(), MARK)?;
        Ok(Self { memory, cache, wanted: Vec::new(), there: Vec::new() })
    }

    fn is(&mut self, at: u64, fill: impl FnOnce(&mut [u8]), len: u64) -> anyhow::Result<bool> {
        self.wanted.resize(len as usize, 0);
        self.there.resize(len as usize, 0);
        fill(&mut self.wanted);
        self.memory.memory().read(self.memory.span().address + at, &mut self.there)?;
        Ok(self.wanted == self.there)
    }

    /// Pages of a complete request, and its context, that hold other bytes than they should.
    ///
    /// # Errors
    /// A page is beyond the memory.
    pub fn wrong(&mut self, prompt: u64, pages: &[u32], context: u32) -> anyhow::Result<u64> {
        let (cache, mut wrong) = (self.cache, 0);
        for layer in 0..cache.shape.layers {
            for (number, page) in (0..).zip(pages) {
                let at = cache.page_at(layer, *page);
                let of = |bytes: &mut [u8]| fill(prompt, Some(layer), number, bytes);
                wrong += u64::from(!self.is(at, of, cache.shape.page_len)?);
            }
        }
        let of = |bytes: &mut [u8]| fill(prompt, None, 0, bytes);
        wrong += u64::from(!self.is(cache.context_at(context), of, cache.shape.context_len)?);
        Ok(wrong)
    }

    /// Marks pages as free.
    ///
    /// # Errors
    /// A page is beyond the memory.
    pub fn free(&self, pages: &[u32]) -> anyhow::Result<()> {
        for layer in 0..self.cache.shape.layers {
            for page in pages {
                let (at, len) = (self.cache.page_at(layer, *page), self.cache.shape.page_len);
                self.memory.memory().fill(self.memory.span().part(at, len), MARK)?;
            }
        }
        Ok(())
    }

    /// Free pages that were written, of all layers.
    ///
    /// # Errors
    /// A page is beyond the memory.
    pub fn written(&mut self, pages: impl Iterator<Item = u32>) -> anyhow::Result<u64> {
        let (cache, mut written) = (self.cache, 0);
        for page in pages {
            for layer in 0..cache.shape.layers {
                let of = |bytes: &mut [u8]| bytes.fill(MARK);
                written += u64::from(!self.is(cache.page_at(layer, page), of, cache.shape.page_len)?);
            }
        }
        Ok(written)
    }
}
