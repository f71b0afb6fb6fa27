//! The memory of exact fetching atomics, as the agent and its workers see it: the rows behind this PE's heap.

use super::fetch_server::{Due, EXECUTED_MAX, due};
use crate::error::NicError;
use crate::rail::{FetchError, FetchPatience, Rail};
use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{DeviceState, FetchReply, FetchRequest, FetchSlot, FetchStatus, HomeWord};
use std::ptr::addr_of_mut;
use std::sync::Arc;

/// The rows of a PE, and where its homes are told.
#[derive(Clone)]
pub(super) struct FetchWords {
    slots: *mut FetchSlot,
    numbers: *const u64,
    homes: *const u64,
    root: DeviceState,
    world: Arc<dyn World>,
}

// SAFETY: memory that several parties share by nature; all access here is atomic, through `Platform`.
unsafe impl Send for FetchWords {}

// SAFETY (all blocks of this impl): `FetchWords::new`'s caller vouches for the tables; callers pass rows below their
// number, which they take from the root.
#[allow(clippy::undocumented_unsafe_blocks)]
impl FetchWords {
    /// Those of a state; none where there is no room for them.
    ///
    /// # Safety
    /// The state's tables and its heap stay mapped while this object and its copies live, and the host reaches them.
    pub(super) unsafe fn new(root: DeviceState, world: Arc<dyn World>) -> Option<Self> {
        if root.fetch == 0 {
            return None;
        }
        let rows = root.pe_count as usize * root.channels_per_pe as usize;
        let slots = (root.heap_base + root.fetch) as *mut FetchSlot;
        Some(Self {
            slots,
            numbers: slots.wrapping_add(rows) as *const u64,
            homes: root.homes as *const u64,
            root,
            world,
        })
    }

    /// Rows there are.
    pub(super) fn rows(&self) -> usize {
        self.root.pe_count as usize * self.root.channels_per_pe as usize
    }

    fn platform(&self) -> Host<'_> {
        Host::new(&*self.world)
    }

    /// The newest number of a row.
    pub(super) fn number(&self, row: usize) -> u64 {
        unsafe { self.platform().load_acquire(self.numbers.wrapping_add(row)) }
    }

    /// Number of a row's reply.
    pub(super) fn replied(&self, row: usize) -> u64 {
        let slot = self.slots.wrapping_add(row);
        unsafe { self.platform().load_acquire(addr_of_mut!((*slot).reply.number)) }
    }

    fn request(&self, row: usize) -> FetchRequest {
        let (slot, p) = (self.slots.wrapping_add(row), self.platform());
        unsafe {
            FetchRequest {
                number: p.load_acquire(addr_of_mut!((*slot).request.number)),
                word: p.load(addr_of_mut!((*slot).request.word)),
                operand: p.load(addr_of_mut!((*slot).request.operand)),
                expect: p.load(addr_of_mut!((*slot).request.expect)),
                form: p.load32(addr_of_mut!((*slot).request.form)),
                reserved: 0,
            }
        }
    }

    /// Leaves a reply. Its number is written last: the next agent takes it for the whole.
    fn reply(&self, row: usize, reply: FetchReply) {
        let (slot, p) = (self.slots.wrapping_add(row), self.platform());
        unsafe {
            p.store(addr_of_mut!((*slot).reply.value), reply.value);
            p.store(addr_of_mut!((*slot).reply.status), reply.status);
            p.store(addr_of_mut!((*slot).reply.check), reply.check);
            p.store_release(addr_of_mut!((*slot).reply.number), reply.number);
        }
    }

    /// Answers what is due of a channel index without executing it: nobody is at work on it.
    pub(super) fn end_unserved(&self, channel: u32) {
        for pe in 0..self.root.pe_count {
            let row = (pe * self.root.channels_per_pe + channel) as usize;
            let number = self.number(row);
            if number != self.replied(row) {
                self.reply(row, FetchReply::new(number, 0, FetchStatus::Unserved));
            }
        }
    }

    /// Rail of this PE's home of a channel index.
    fn home(&self, channel: u32) -> u32 {
        let row = self.root.my_pe * self.root.channels_per_pe + channel;
        HomeWord(unsafe { self.platform().load_acquire(self.homes.wrapping_add(row as usize)) }).rail()
    }
}

/// Executes what is due of one channel index.
pub(super) struct FetchWork {
    pub(super) words: FetchWords,
    pub(super) channel: u32,
    /// The PE whose request is looked at first.
    pub(super) first: u32,
    pub(super) patience: FetchPatience,
}

impl FetchWork {
    /// One row. True if something was executed.
    fn serve(&self, rail: &Rail, row: usize) -> Result<bool, NicError> {
        let (words, number) = (&self.words, self.words.number(row));
        let (amo, at) = match due(number, &words.request(row), words.replied(row), words.root.heap_bytes) {
            Due::Nothing => return Ok(false),
            Due::Refuse => {
                words.reply(row, FetchReply::new(number, 0, FetchStatus::Refused));
                return Ok(false);
            }
            Due::Execute(amo, at) => (amo, at),
        };
        let reply = match rail.fetch(amo, at, words.root.log2_chunk, self.patience) {
            Ok(value) => FetchReply::new(number, value, FetchStatus::Done),
            Err(FetchError::NotExecuted(error)) => return Err(error),
            // No other NIC would have it: as an address outside of the heap.
            Err(FetchError::NoWord | FetchError::NoAtomic) => {
                FetchReply::new(number, 0, FetchStatus::Refused)
            }
            // It stays due.
            Err(FetchError::Contended) => return Ok(true),
            Err(FetchError::Unknown(_)) => FetchReply::new(number, 0, FetchStatus::Unknown),
        };
        words.reply(row, reply);
        Ok(true)
    }
}

impl super::nic_job::Work for FetchWork {
    fn run(&self, rail: &Rail) -> Result<(), NicError> {
        let (per, pes, mut executed) = (self.words.root.channels_per_pe, self.words.root.pe_count, 0);
        for pe in (self.first..pes).chain(0..self.first) {
            // A home that has moved is another rail's.
            let moved = self.words.home(self.channel) != rail.index && !Mutant::FetchHomeNotAwaited.on();
            if executed == EXECUTED_MAX || moved {
                break;
            }
            let row = pe * per + self.channel;
            executed += u32::from(self.serve(rail, row as usize)?);
        }
        Ok(())
    }
}
