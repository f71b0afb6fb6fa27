//! The symmetric heap on a rail.

use super::Rail;
use crate::error::NicError;
use crate::memory::OwnedSpan;
use crate::nic::heap_keys::{HeapShape, RegisteredHeap};
use shunt_layout::state::OrderPolicy;
use std::ops::Range;
use std::sync::Arc;

impl Rail {
    /// Registers the symmetric heap: a key a chunk, over one umem where keys need one. Its first `late` chunks have
    /// none before [`register_chunks`](Self::register_chunks).
    pub fn register_heap(&mut self, memory: &Arc<OwnedSpan>, shape: HeapShape) -> Result<(), NicError> {
        let asked = self.options.ordering.is_some_and(|order| order != OrderPolicy::Strict);
        let relaxed = self.order != OrderPolicy::Strict && self.caps.relaxed_ordering;
        if asked && !self.caps.relaxed_ordering {
            return Err(NicError::Unfit {
                nic: self.name.clone(),
                what: "relaxed ordering of writes",
                met: "0".into(),
                want: "1",
                cure: "set SHUNT_ORDERING=strict or leave it unset",
            });
        }
        self.heap = Some(RegisteredHeap::register(&self.devx, self.pd.id(), memory, shape, relaxed)?);
        Ok(())
    }

    /// Makes the keys of these chunks, those that are not there yet. One caller at a time.
    ///
    /// # Errors
    /// The NIC refuses one. Those that were made stay.
    pub fn register_chunks(&self, chunks: Range<u32>) -> Result<(), NicError> {
        self.heap.as_ref().map_or(Ok(()), |heap| heap.register_chunks(chunks))
    }

    /// Keys of the heap's chunks, as numbers: lkeys and rkeys at once; 0 where there is none yet.
    pub fn heap_keys(&self) -> Vec<u32> {
        self.heap.as_ref().map_or_else(Vec::new, RegisteredHeap::numbers)
    }

    /// Keys of the heap's chunks for the data of puts; no row where that goes under the others.
    pub fn heap_data_keys(&self) -> Vec<u32> {
        self.heap.as_ref().map_or_else(Vec::new, RegisteredHeap::data_numbers)
    }
}
