//! The symmetric heap on one NIC: a key a chunk, made at start, or when somebody asks for the chunk. Keys that were
//! made stay as they are.

use super::mkey::{Access, Mkey};
use super::umem::Umem;
use crate::devx::Devx;
use crate::error::NicError;
use crate::memory::{OwnedSpan, Span, Split};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// How a heap is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapShape {
    /// log2 of the bytes that one key covers.
    pub log2_chunk: u32,
    /// Where its memory changes, if it does.
    pub split: Option<Split>,
    /// Chunks at its start whose keys are made when somebody asks for them.
    pub late: u32,
}

impl HeapShape {
    /// One memory, with all keys from the start on.
    pub fn whole(log2_chunk: u32) -> Self {
        Self { log2_chunk, split: None, late: 0 }
    }
}

/// Keys by chunk.
struct Keys {
    /// lkeys and rkeys at once.
    all: Vec<Option<Mkey>>,
    /// For the data of puts, where it has some of its own; else none.
    data: Vec<Option<Mkey>>,
}

/// The heap, registered as far as it was asked for. Dropped in order: keys, then what they stand on.
pub struct RegisteredHeap {
    keys: RwLock<Keys>,
    umem: Umem,
    devx: Arc<dyn Devx>,
    pd: u32,
    shape: HeapShape,
    relaxed: bool,
}

fn numbers(keys: &[Option<Mkey>]) -> Vec<u32> {
    keys.iter().map(|key| key.as_ref().map_or(0, Mkey::key)).collect()
}

impl RegisteredHeap {
    /// Lends memory to a NIC, with keys for all but its first `late` chunks. `relaxed`: the data of puts has keys of
    /// its own.
    ///
    /// # Errors
    /// The NIC refuses it.
    pub fn register(
        devx: &Arc<dyn Devx>,
        pd: u32,
        memory: &Arc<OwnedSpan>,
        shape: HeapShape,
        relaxed: bool,
    ) -> Result<Self, NicError> {
        let umem = Umem::for_keys(devx, memory)?;
        let chunks = memory.span().bytes.div_ceil(1 << shape.log2_chunk) as u32;
        let none = |rows: u32| (0..rows).map(|_| None).collect();
        let keys = Keys { all: none(chunks), data: none(if relaxed { chunks } else { 0 }) };
        let heap = Self { keys: RwLock::new(keys), umem, devx: devx.clone(), pd, shape, relaxed };
        heap.register_chunks(shape.late..chunks)?;
        Ok(heap)
    }

    /// Makes the keys of these chunks, those that are not there yet. One caller at a time.
    ///
    /// # Errors
    /// The NIC refuses one. Those that were made stay.
    pub fn register_chunks(&self, chunks: Range<u32>) -> Result<(), NicError> {
        let (bytes, chunk) = (self.span().bytes, 1u64 << self.shape.log2_chunk);
        for i in chunks.start..chunks.end.min(self.chunks()) {
            let (number, start) = (i as usize, u64::from(i) * chunk);
            if self.key_be(i.into()).is_some() {
                continue;
            }
            let whole = start..bytes.min(start + chunk);
            let part = self.shape.split.map_or(whole.clone(), |split| split.there(whole));
            let make = |access| Mkey::create(&self.devx, self.pd, &self.umem, part.clone(), access);
            let data = if self.relaxed { Some(make(Access::Relaxed)?) } else { None };
            let all = make(Access::Remote)?;
            // A flush does not wait until memory is pinned.
            let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            keys.all[number] = Some(all);
            if self.relaxed {
                keys.data[number] = data;
            }
        }
        Ok(())
    }

    fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys of the chunks, as numbers: lkeys and rkeys at once; 0 where there is none yet.
    pub fn numbers(&self) -> Vec<u32> {
        numbers(&self.keys().all)
    }

    /// Those for the data of puts; no row where that goes under the others.
    pub fn data_numbers(&self) -> Vec<u32> {
        numbers(&self.keys().data)
    }

    fn span(&self) -> Span {
        self.umem.memory().span()
    }

    fn chunks(&self) -> u32 {
        self.span().bytes.div_ceil(1 << self.shape.log2_chunk) as u32
    }

    /// First address of the heap.
    pub fn address(&self) -> u64 {
        self.span().address
    }

    /// The key of a chunk, big-endian.
    pub fn key_be(&self, chunk: u64) -> Option<u32> {
        self.keys().all.get(chunk as usize)?.as_ref().map(Mkey::key_be)
    }

    /// An address in each of its memories that a NIC may have written to, and the key there: a memory without a key has
    /// nothing under way to it.
    pub fn in_each_memory(&self) -> Vec<(u64, u32)> {
        let first = |from: u64, to: u64| {
            let at =
                |chunk: u64| Some((self.address() + (chunk << self.shape.log2_chunk), self.key_be(chunk)?));
            (from..to).find_map(at)
        };
        let end = u64::from(self.chunks());
        let host = self.shape.split.map_or(0, |split| split.host >> self.shape.log2_chunk);
        [first(0, host), first(host, end)].into_iter().flatten().collect()
    }
}
