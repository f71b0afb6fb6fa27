//! What this PE does for its kernels: tables they read, their quiet, their faults; and which channels are theirs.
//!
//! Where they run on a GPU, nobody on the host changes the words of their channels: read-modify-writes of a GPU and of
//! a processor on one word are not atomic with each other over PCIe. So the first channel to each peer is the host's,
//! the others are theirs, and whatever is to be done on those a kernel does.

use super::kernel_map::{DeviceWords, KernelMap};
use super::locks::lock;
use super::memory;
use super::node_heaps::NodeHeaps;
use super::peers::{HOST_CHANNEL, Peers};
use crate::failure::{Failure, InitError};
use crate::kernels::{Drained, Kernels, Place};
use crate::stream_call::StreamCall;
use crate::teams::{Team, Teams};
use shunt_device::FaultKind;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Writes the row of a team, or that there is none. `base`: its meetings have been counted that far by others.
///
/// # Safety
/// The heap at `heap` is mapped and as long as the map says.
unsafe fn write_row(map: &KernelMap, heap: u64, id: i32, team: Option<&Team>, base: u64) {
    let row = heap + map.row(id);
    // SAFETY: rows and members lie in the heap's control area (the caller); kernels read them only while no call
    // changes teams.
    unsafe {
        let Some(team) = team else { return memory::store(row, 0, 8) };
        for (number, member) in (0..).zip(&team.members) {
            memory::store(heap + map.members(id) + 4 * number, u64::from(*member), 4);
        }
        memory::store(row + 8, team.me.into(), 8);
        let counted = memory::load(heap + map.meeting(id), 8);
        memory::store(heap + map.meeting(id), counted.max(base), 8);
        memory::store(row, team.size().into(), 8);
    }
}

/// Writes the tables of a heap that has just been made: `base` is its first address, `node` what is mapped beside it.
pub(super) fn write_tables(map: &KernelMap, base: u64, teams: &Teams, (me, node): (u32, &NodeHeaps)) {
    for id in 0..map.team_ids() as i32 {
        // SAFETY: the heap of a PE that is up, made for this map.
        unsafe { write_row(map, base, id, teams.get(id).ok(), 0) };
    }
    for pe in 0..map.pes() {
        let heap = if pe == me { Some(base) } else { node.base(pe) };
        // SAFETY: as above.
        unsafe { memory::store(base + map.mapped(pe), heap.unwrap_or(0), 8) };
    }
}

/// The program's kernels, and what they have of this PE.
pub struct KernelSide {
    peers: Arc<Peers>,
    kernels: Kernels,
    /// Where their tables lie in the heap, if there are kernels.
    map: Option<KernelMap>,
    /// Addresses that the program has of the heap.
    addresses: Range<u64>,
    /// Their channels to each peer that have a handle: the first is the default one.
    taken: Mutex<u32>,
}

impl KernelSide {
    /// Kernels that are told nothing yet.
    pub(super) fn new(
        peers: Arc<Peers>,
        kernels: Kernels,
        map: Option<KernelMap>,
        addresses: Range<u64>,
    ) -> Self {
        Self { peers, kernels, map, addresses, taken: Mutex::new(1) }
    }

    /// So many channels of kernels to each peer that nobody else uses, by their numbers among those.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take_channels(&self, count: i32) -> Result<Range<u32>, Failure> {
        let there = self.channels();
        let mut taken = lock(&self.taken);
        let end = u32::try_from(count).ok().filter(|count| *count > 0).and_then(|n| taken.checked_add(n));
        let Some(end) = end.filter(|end| *end <= there) else {
            return Err(Failure::QueuePairs { met: count, left: there - *taken });
        };
        Ok(std::mem::replace(&mut *taken, end)..end)
    }

    /// Channels to each peer that kernels have; with none the host has them all.
    fn channels(&self) -> u32 {
        let channels = self.peers.channels();
        if self.map.is_some() { channels - (HOST_CHANNEL + 1) } else { channels }
    }

    /// What device functions are told.
    fn device_words(&self) -> Option<DeviceWords> {
        let (base, user) = (self.addresses.start, self.addresses.end - self.addresses.start);
        let (me, deadline_ns) = (self.peers.me(), self.peers.deadline_ns());
        let exact = self.peers.pe().root().fetch_exact != 0;
        let words = self.map?.words(me, base, user, self.channels(), deadline_ns);
        Some(DeviceWords { exact: exact.into(), ..words })
    }

    /// Tells kernels where everything is.
    ///
    /// # Errors
    /// They cannot be told.
    pub(super) fn tell(&self) -> Result<(), InitError> {
        let Some(words) = self.device_words() else { return Ok(()) };
        self.kernels.tell(std::ptr::from_ref(self.peers.pe().root()).cast(), &words)
    }

    /// Takes it back; says what befell them.
    pub(super) fn dismiss(&self) {
        let Some(map) = self.map else { return };
        self.kernels.forget();
        // SAFETY: words of the heap, which is there while the session is.
        let word = |at| unsafe { memory::load(self.addresses.start + map.faults + at, 8) };
        let (first, count) = (word(0), word(8));
        if count > 0 {
            let (status, pe) = ((first >> 32) as u32, first as u32 as i32);
            let at = if pe < 0 { "a wait".to_owned() } else { format!("a call to PE {pe}") };
            let what = FaultKind::from_raw(status).map_or("see shunt_device.h", FaultKind::meaning);
            shunt_host::complain!(
                "shunt: PE {}: {count} calls of kernels could not do what they were asked for; the first was {at}, \
                 with fault {status}: {what}",
                self.peers.me()
            );
        }
    }

    /// The table's row of a team that was made or given up.
    pub(super) fn write_team(&self, id: i32, team: Option<&Team>, base: u64) {
        if let Some(map) = &self.map {
            // SAFETY: this PE's heap, which is there while the session is.
            unsafe { write_row(map, self.addresses.start, id, team, base) };
        }
    }

    /// How often teams have met on devices, at most.
    pub(super) fn meetings(&self) -> u64 {
        let Some(map) = &self.map else { return 0 };
        // SAFETY: as above.
        let counted = |id| unsafe { memory::load(self.addresses.start + map.meeting(id), 8) };
        (0..map.team_ids() as i32).map(counted).max().unwrap_or(0)
    }

    /// Waits until all that kernels posted is done: `Ok(false)`, not within that time.
    ///
    /// # Errors
    /// A channel of theirs carries nothing any more.
    fn quiet_within(&self, timeout_ns: u64) -> Result<bool, Failure> {
        match self.kernels.quiet(timeout_ns) {
            None => Err(Failure::NoKernel),
            Some(0) => Ok(true),
            Some(answer) => match (answer >> 32) as u32 {
                status if status == FaultKind::Overdue as u32 => Ok(false),
                status => Err(Failure::Kernels { pe: answer as u32, status }),
            },
        }
    }

    /// Waits until all that kernels posted is done, or until nobody is left to take it.
    ///
    /// # Errors
    /// A channel of theirs carries nothing any more, or the call's time is over.
    pub(super) fn quiet(&self, nobody_is_left: impl Fn() -> bool) -> Result<(), Failure> {
        let since = self.peers.now_ns();
        while !self.quiet_within(self.peers.slice_ns())? {
            let waited = self.peers.now_ns() - since;
            if waited > self.peers.deadline_ns() {
                return Err(self.peers.overdue("what kernels sent".to_owned(), waited));
            }
            if nobody_is_left() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until kernels have ended that run now.
    ///
    /// # Errors
    /// Some still run when the call's time is over.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        let since = self.peers.now_ns();
        let running = self.kernels.settle(self.peers.deadline_ns());
        if running.is_empty() {
            return Ok(());
        }
        let what = format!("kernels that still run on GPUs {running:?}");
        Err(self.peers.overdue(what, self.peers.now_ns() - since))
    }

    /// Whether calls on a stream can be kernels.
    pub(super) fn can_launch(&self) -> bool {
        self.map.is_some() && self.kernels.place() != Place::Nowhere
    }

    /// Puts a call on a stream.
    ///
    /// # Errors
    /// It could not be launched.
    pub(super) fn launch(&self, call: &StreamCall, stream: *mut std::ffi::c_void) -> Result<(), Failure> {
        match self.kernels.launch(call, stream) {
            Some(true) => Ok(()),
            _ => Err(Failure::NoKernel),
        }
    }

    /// Waits for all that a stream holds, so that a call that runs at once comes behind it.
    ///
    /// # Errors
    /// There are no streams here, this one cannot be waited for, or the call's time is over.
    pub(crate) fn drain(&self, stream: *mut std::ffi::c_void, default: bool) -> Result<(), Failure> {
        let since = self.peers.now_ns();
        loop {
            match self.kernels.drain(stream) {
                None if default => return Ok(()),
                None => return Err(Failure::Stream),
                Some(Drained::Done) => return Ok(()),
                Some(Drained::Captured) => return Err(Failure::Captured),
                Some(Drained::Broken) => return Err(Failure::NoKernel),
                Some(Drained::NotYet) => {}
            }
            let waited = self.peers.now_ns() - since;
            if waited > self.peers.deadline_ns() {
                return Err(self.peers.overdue("what the stream of the call holds".to_owned(), waited));
            }
            self.peers.world().relax();
        }
    }

    /// A GPU that the program has made current since is told where everything is.
    ///
    /// # Errors
    /// It cannot be.
    pub(crate) fn follow(&self) -> Result<(), Failure> {
        if self.kernels.follow() { Ok(()) } else { Err(Failure::NoKernel) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_teams_and_meetings_never_go_back() {
        let map = KernelMap::new(0, 5, 9);
        let heap = vec![0u64; map.end as usize / 8];
        let base = heap.as_ptr().expose_provenance() as u64;
        // SAFETY: inside the vector, which nobody else has.
        let (load, write) = (
            |at, bytes| unsafe { memory::load(base + at, bytes) },
            |id, team, from| unsafe {
                write_row(&map, base, id, team, from);
            },
        );
        let team = Team::new(vec![4, 1, 2], 2, 0);
        write(7, team.as_ref(), 3);
        let row = map.row(7);
        assert_eq!([0, 8, 16].map(|at| load(row + at, 8)), [3, 2, 3]);
        assert_eq!([0, 4, 8].map(|at| load(map.members(7) + at, 4)), [4, 1, 2]);
        assert_eq!((load(map.row(6), 8), load(map.row(8), 8)), (0, 0), "no other row");
        write(7, None, 0);
        assert_eq!((load(row, 8), load(map.meeting(7), 8)), (0, 3));
        write(7, team.as_ref(), 1);
        assert_eq!((load(row, 8), load(map.meeting(7), 8)), (3, 3), "words of an id go on");
    }
}
