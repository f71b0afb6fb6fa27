//! [`Devx`] on the soft NIC.

use crate::file_mapping::FileMapping;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::doorbell::BLUEFLAME_OFFSET;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_mlx5::devx::{
    Devx, MkeyShape, Neighbour, PortGid, PortReport, SubnetPort, UarPage, check_status, command_name,
};
use shunt_mlx5::error::DevxError;
use shunt_mlx5::memory::{DmaBuf, Span};
use shunt_mlx5::nic::{caps, create, execute, mkey, pd, short_in};
use shunt_soft_nic::{NicId, SharedFabric, SoftNic};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One soft NIC of a fabric that somebody else steps: an engine thread, or a simulator.
pub struct SoftDevx {
    fabric: SharedFabric,
    nic: NicId,
    name: String,
    world: Arc<dyn World>,
    timeout_ns: u64,
    /// By umem: how this NIC reaches memory that was given as a file. They stay where a NIC does not let go.
    mappings: Mutex<BTreeMap<u32, ManuallyDrop<FileMapping>>>,
    /// Until when the NIC counts as dead, after a command timed out; 0 while it answers.
    dead_until: AtomicU64,
}

/// How many timeouts long a NIC counts as dead after one: what waits behind it (a thousand fences) fails at
/// once instead of one timeout after another, and a NIC that comes back is soon asked again.
const DEAD_FOR: u64 = 8;

/// A command counts as unanswered after so long even if the thread of the NIC never ran, nanoseconds.
const STARVED_NS: u64 = 10_000_000_000;

/// Whether a command of the instant `since` counts as unanswered `now`, by a NIC that has done what was due until
/// `stepped`: it was stepped when the time was over, and did not answer. One that was not had no core.
fn is_unanswered(since: u64, now: u64, timeout_ns: u64, stepped: u64) -> bool {
    let due = since.saturating_add(timeout_ns);
    now > due && (stepped > due || now > since.saturating_add(timeout_ns.max(STARVED_NS)))
}

impl SoftDevx {
    /// Opens a NIC. Commands that are not answered within `timeout_ns` are errors.
    pub fn new(fabric: SharedFabric, nic: NicId, world: Arc<dyn World>, timeout_ns: u64) -> Self {
        let name = fabric.with(|fabric| fabric.nic(nic).config().name.clone());
        let (mappings, dead_until) = (Mutex::default(), AtomicU64::new(0));
        Self { fabric, nic, name, world, timeout_ns, mappings, dead_until }
    }

    fn with<R>(&self, f: impl FnOnce(&mut SoftNic) -> R) -> R {
        self.fabric.with(|fabric| f(fabric.nic(self.nic)))
    }

    fn timeout(&self, input: &[u8], waited_ns: u64) -> DevxError {
        DevxError::Timeout { nic: self.name.clone(), command: command_name(input), waited_ns }
    }

    fn resource(&self, what: &'static str, detail: impl ToString) -> DevxError {
        DevxError::Resource { nic: self.name.clone(), what, detail: detail.to_string() }
    }
}

impl Devx for SoftDevx {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn traffic(&self) -> Option<(u64, u64)> {
        let counters = self.with(|nic| nic.counters());
        Some((counters.bytes_tx, counters.bytes_rx))
    }

    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let since = self.world.now_ns();
        if since < self.dead_until.load(Ordering::Relaxed) {
            return Err(self.timeout(input, 0));
        }
        let id = self.with(|nic| nic.command_submit(since, input, output.len()));
        let answer = loop {
            let now = self.world.now_ns();
            if let Some(answer) = self.with(|nic| nic.command_poll(now, id)) {
                break answer;
            }
            let waited_ns = now.saturating_sub(since);
            if is_unanswered(since, now, self.timeout_ns, self.fabric.stepped_ns()) {
                self.dead_until.store(now + DEAD_FOR * self.timeout_ns, Ordering::Relaxed);
                return Err(self.timeout(input, waited_ns));
            }
            self.world.relax();
        };
        self.dead_until.store(0, Ordering::Relaxed);
        check_status(&self.name, input, &answer)?;
        if answer.len() != output.len() {
            return Err(DevxError::ShortAnswer {
                nic: self.name.clone(),
                command: command_name(input),
                got: answer.len(),
                want: output.len(),
            });
        }
        output.copy_from_slice(&answer);
        Ok(())
    }

    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        let mapping = dmabuf.map(|buf| FileMapping::of(&buf, span.bytes)).transpose();
        let mapping = mapping.map_err(|error| self.resource("mapping of a file", error))?;
        let address = mapping.as_ref().map_or(span.address, FileMapping::address);
        // SAFETY: forwarded to the caller; a mapping of a file is kept until the NIC let go of it.
        let id = self.with(|nic| unsafe { nic.register_umem(address, span.bytes) });
        let id = id.map_err(|error| self.resource("umem registration", error))?;
        if let Some(mapping) = mapping {
            self.mappings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id, ManuallyDrop::new(mapping));
        }
        Ok(id)
    }

    fn deregister_umem(&self, id: u32) -> Result<(), DevxError> {
        let answer = self.with(|nic| nic.deregister_umem(id));
        answer.map_err(|error| self.resource("umem deregistration", error))?;
        let mapping = self.mappings.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        drop(mapping.map(ManuallyDrop::into_inner));
        Ok(())
    }

    fn alloc_pd(&self) -> Result<u32, DevxError> {
        create(self, &pd::alloc_in())
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError> {
        execute::<16>(self, &short_in(Opcode::DeallocPd, pd)).map(|_| ())
    }

    fn keys_need_umem(&self) -> bool {
        true
    }

    unsafe fn create_key(&self, shape: &MkeyShape, _dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        Ok(mkey::key_of(create(self, &mkey::create_in(shape))?))
    }

    fn destroy_key(&self, key: u32) -> Result<(), DevxError> {
        execute::<16>(self, &short_in(Opcode::DestroyMkey, mkey::index_of(key))).map(|_| ())
    }

    fn map_uar(&self) -> Result<UarPage, DevxError> {
        let uar = self.with(SoftNic::alloc_uar);
        Ok(UarPage { id: uar.id, address: uar.address, register: uar.address + BLUEFLAME_OFFSET as u64 })
    }

    fn free_uar(&self, id: u32) {
        self.with(|nic| nic.free_uar(id));
    }

    fn query_eqn(&self) -> Result<u32, DevxError> {
        Ok(self.with(|nic| nic.query_eqn()))
    }

    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError> {
        caps::firmware_gid(self, index)
    }

    fn port(&self) -> Result<Option<PortReport>, DevxError> {
        Ok(None)
    }

    fn subnet(&self) -> Result<SubnetPort, DevxError> {
        let bytes = self.with(|nic| nic.config().mtu);
        Ok(SubnetPort { mtu: (bytes / 128).max(1).ilog2(), gid: None, pkeys: Vec::new() })
    }

    fn resolve_mac(&self, _pd: u32, _neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError> {
        Ok(None)
    }

    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError> {
        let now = self.world.now_ns();
        // An agent asks in each of its steps.
        Ok(self.fabric.with_unseen(|fabric| fabric.nic(self.nic).next_event(now)))
    }

    fn responsive(&self) -> bool {
        self.dead_until.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5::clock::RealClock;
    use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, RailAt};

    /// A job of sixteen processes ended at its start: on two cores the thread of a NIC had none for 63 ms.
    #[test]
    fn a_nic_whose_thread_had_no_core_is_not_dead_to_commands() {
        let ms = |number: u64| number * 1_000_000;
        let unanswered = |now, stepped| is_unanswered(ms(100), now, ms(50), stepped);
        assert!(!unanswered(ms(150), u64::MAX), "there is time");
        assert!(unanswered(ms(151), u64::MAX), "a simulator steps it");
        assert!(!unanswered(ms(400), ms(99)) && !unanswered(ms(400), ms(150)));
        assert!(unanswered(ms(400), ms(151)), "it was there, and said nothing");
        assert!(unanswered(ms(100) + STARVED_NS + 1, 0), "no wait is without an end");
    }

    /// Agents ask in each of their steps, thousands of times a second: each question woke the NIC's thread.
    #[test]
    fn who_asks_for_events_does_not_wake_the_nic() {
        let mut fabric = Fabric::new(FabricConfig::default());
        let nic = fabric.add(SoftNic::new(NicConfig::new("soft_0", 0, 0)), RailAt { pe: 0, rail: 0 });
        let fabric = SharedFabric::new(fabric);
        let devx = SoftDevx::new(fabric.clone(), nic, Arc::new(RealClock::new()), 1_000_000);
        fabric.was_had();
        assert!((0..100).all(|_| devx.next_event().unwrap().is_none()));
        assert!(!fabric.was_had(), "a question is nothing to do");
        devx.alloc_pd().unwrap();
        assert!(fabric.was_had(), "a command is");
    }
}
