//! What the tests share.

use shunt_mlx5::memory::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_transfer_fabric::error::FabricError;
use shunt_transfer_fabric::fabric::{Rail, Wanted};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Providers that need no NIC, each with what picks a rail of it on this machine.
pub const TCP: Wanted<'_> = Wanted { provider: "tcp", domain: None, address: Some("127.0.0.1") };
pub const SHM: Wanted<'_> = Wanted { provider: "shm", domain: None, address: None };

/// A rail, or a word that this machine has none.
pub fn rail(wanted: &Wanted<'_>) -> Option<Rail> {
    match Rail::open(wanted) {
        Ok(rail) => Some(rail),
        Err(FabricError::Load(error)) => {
            println!("SKIPPED: {error}");
            assert!(std::env::var_os("CI").is_none(), "CI is set, and libfabric is missing");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Zeroed memory.
pub fn memory(bytes: u64) -> Arc<OwnedSpan> {
    let heap: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
    OwnedSpan::alloc(&heap, bytes, Placement::Heap).expect("memory")
}

/// Its bytes from an offset on.
pub fn read(memory: &OwnedSpan, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.memory().read(memory.span().address + offset, &mut bytes).expect("inside");
    bytes
}

/// Puts bytes at an offset.
pub fn write(memory: &OwnedSpan, offset: u64, bytes: &[u8]) {
    memory.memory().write(memory.span().address + offset, bytes).expect("inside");
}

/// Steps until something holds.
pub fn until(what: &str, mut step: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !step() {
        assert!(Instant::now() < end, "{what}: not in time");
    }
}
