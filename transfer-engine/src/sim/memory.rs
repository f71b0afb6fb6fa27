//! Memory of a node: bytes of its own from address 0 on, and spans that it registered.

use shunt_mlx5::memory::OwnedSpan;
use std::ops::Range;
use std::sync::Arc;

/// What a node's rails reach.
pub(super) struct Memory {
    own: Vec<u8>,
    registered: Vec<Arc<OwnedSpan>>,
}

impl Memory {
    /// So many bytes of its own, zeros.
    pub fn new(bytes: usize) -> Self {
        Self { own: vec![0; bytes], registered: Vec::new() }
    }

    /// Rails reach this span as well.
    pub fn register(&mut self, span: &Arc<OwnedSpan>) {
        self.registered.push(span.clone());
    }

    /// Takes one registration of the span at this address back. What is on its way there is refused after the last.
    pub fn deregister(&mut self, address: u64) {
        let at = self.registered.iter().position(|span| span.span().address == address);
        at.into_iter().for_each(|at| drop(self.registered.swap_remove(at)));
    }

    /// Takes all of them back.
    pub fn deregister_all(&mut self) {
        self.registered.clear();
    }

    fn span(&self, at: u64, len: u64) -> Option<&OwnedSpan> {
        let holds = |known: &&Arc<OwnedSpan>| {
            let span = known.span();
            at.checked_sub(span.address)
                .and_then(|offset| offset.checked_add(len))
                .is_some_and(|end| end <= span.bytes)
        };
        self.registered.iter().find(holds).map(|span| &**span)
    }

    fn own(&self, at: u64, len: u64) -> Option<Range<usize>> {
        let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
        at.checked_add(len).filter(|end| *end <= self.own.len()).map(|end| at..end)
    }

    /// What lies there; none if no rail reaches it.
    pub fn fetch(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        if let Some(range) = self.own(at, len) {
            return Some(self.own[range].to_vec());
        }
        let mut bytes = vec![0; len as usize];
        self.span(at, len)?.memory().read(at, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Places bytes there. False if no rail reaches it: nothing is placed then.
    pub fn place(&mut self, at: u64, bytes: &[u8]) -> bool {
        if let Some(range) = self.own(at, bytes.len() as u64) {
            self.own[range].copy_from_slice(bytes);
            return true;
        }
        self.span(at, bytes.len() as u64).is_some_and(|span| span.memory().write(at, bytes).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5::memory::{GpuMemory, HeapMemory, Placement};

    #[test]
    fn nothing_is_reached_outside_of_what_is_registered() {
        let heap: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let span = OwnedSpan::alloc(&heap, 4096, Placement::Heap).expect("memory of the heap");
        let base = span.span().address;
        let mut memory = Memory::new(16);
        assert!(memory.place(8, &[1; 8]) && !memory.place(9, &[1; 8]));
        assert_eq!((memory.fetch(14, 2), memory.fetch(15, 2)), (Some(vec![1; 2]), None));
        assert!(!memory.place(base, &[2]));
        memory.register(&span);
        assert!(memory.place(base + 4094, &[2; 2]) && !memory.place(base + 4095, &[2; 2]));
        assert_eq!(memory.fetch(base + 4093, 3), Some(vec![0, 2, 2]));
        assert_eq!(memory.fetch(u64::MAX, 2), None);
        memory.register(&span);
        memory.deregister(base);
        assert_eq!(memory.fetch(base, 1), Some(vec![0]), "it is registered once more");
        memory.deregister(base);
        assert_eq!(memory.fetch(base, 1), None);
    }
}
