//! The memory of a rank: a region that the others write into, and one that it sends from.

use crate::buffers::Buffers;
use crate::failure::Failure;
use shunt::host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_transfer::{Node, Region};
use shunt_transfer_engine::region::{MrDesc, Rights};
use std::sync::Arc;

/// A region, read and written by offsets.
#[derive(Clone)]
pub struct Memory {
    /// As the NICs have it.
    pub region: Region,
}

impl Memory {
    fn new(node: &Node, bytes: u64, rights: Rights) -> Result<Self, Failure> {
        let heap: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let span = OwnedSpan::alloc(&heap, bytes.next_multiple_of(4096), Placement::Heap)?;
        Ok(Self { region: node.register(span, rights)? })
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are not in the region.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        let memory = self.region.memory();
        Ok(memory.memory().read(memory.span().address + at, into)?)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let memory = self.region.memory();
        Ok(memory.memory().write(memory.span().address + at, bytes)?)
    }
}

/// The memory of a rank, and what it knows of the others'.
pub struct Ground {
    /// Where everything lies in it.
    pub buffers: Buffers,
    /// What others write into.
    pub receive: Memory,
    /// What this rank sends from.
    pub send: Memory,
    /// What others have for this rank to write into, by rank.
    pub targets: Vec<MrDesc>,
}

impl Ground {
    /// Takes memory, and tells the others of it. All ranks call it.
    ///
    /// # Errors
    /// There is none, or a rank does not answer.
    pub fn new(node: &Node, buffers: Buffers) -> Result<Self, Failure> {
        let receive = Memory::new(node, buffers.receive_bytes(), Rights::Write)?;
        let send = Memory::new(node, buffers.send_bytes(), Rights::Local)?;
        let all = node.exchange(&receive.region.describe().to_bytes())?;
        let targets = all.iter().map(|bytes| MrDesc::from_bytes(bytes)).collect::<Result<_, _>>()?;
        Ok(Self { buffers, receive, send, targets })
    }

    /// Has the NICs take both regions back, once all ranks are done with them.
    ///
    /// # Errors
    /// A transfer uses one, or a NIC refuses.
    pub fn give_back(&self, node: &Node) -> Result<(), Failure> {
        node.deregister(&self.receive.region)?;
        Ok(node.deregister(&self.send.region)?)
    }
}
