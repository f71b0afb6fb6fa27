//! The agent's view of the device state: the words it reads and writes while kernels run.
//!
//! Of a channel itself and of its switch it reads nothing: what it needs to know of them device code shows in a
//! [`Mirror`], which lies in memory of the host.
//!
//! The only file of the agent with raw pointers. Everything goes through the same [`Platform`] calls that device
//! code makes, so both sides agree on atomicity and order.

use super::message::Home;
use super::reader::Cursor;
use super::verdict::Verdict;
use crate::nanos::Nanos;
use crate::plan::COUNTER_LINE;
use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_device::{AbiMismatch, Device, StallDetector};
use shunt_layout::state::{
    CauseKind, Channel, DeviceState, HintWord, HomeWord, InHand, Mailbox, Mirror, PathRow, PathState,
    RECORDS, STEP_RECORDS, Step, StepRecord, SwitchRecord, SwitchWord, Tally, hint_index,
};
use std::ptr::addr_of_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters and rings of records come twice: for host calls and the agent, and behind them for kernels with a root of
/// their own.
const SIDES: [u64; 2] = [0, 1];

/// Who holds the post lock stores a doorbell and leaves; one that does not come back in this time never will. As long
/// as the lease of a switch's owner.
const GONE_NS: u64 = 10_000_000_000;

pub use crate::events::Place;

/// A fence request, as it lies in a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// Slot to fence.
    pub slot: u32,
    /// Incarnation to fence.
    pub incarnation: u32,
}

/// How a channel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLook {
    /// Step of its switch.
    pub step: Step,
    /// Slot it is on.
    pub slot: u32,
    /// It finds no path.
    pub pathless: bool,
    /// Tickets published, as a waiter saw it last.
    pub posted: u64,
}

/// The device state of this PE, checked once.
pub struct StateWords {
    state: *const DeviceState,
    world: Arc<dyn World>,
}

// SAFETY: the state is shared memory by nature; all access here is atomic, through `Platform`.
unsafe impl Send for StateWords {}
// SAFETY: as above; the root, which is read through a reference, does not change (`StateWords::new`).
unsafe impl Sync for StateWords {}

// SAFETY (all blocks of this impl): `StateWords::new`'s caller vouches that the state and every table it names stay
// mapped while this object lives; rows are bounded by the counts in the state, which `Place`s are made from.
#[allow(clippy::undocumented_unsafe_blocks)]
impl StateWords {
    /// A view of `state`.
    ///
    /// # Safety
    /// `state` and all its tables were uploaded, stay mapped while the view lives, and the root does not change.
    ///
    /// # Errors
    /// [`AbiMismatch`] if it is not a state of this version.
    pub unsafe fn new(state: *const DeviceState, world: Arc<dyn World>) -> Result<Self, AbiMismatch> {
        unsafe { Device::attach(state, Host::new(&*world)) }?;
        Ok(Self { state, world })
    }

    /// The world the state lives in.
    pub fn world(&self) -> &dyn World {
        &*self.world
    }

    /// The root.
    pub fn root(&self) -> &DeviceState {
        unsafe { &*self.state }
    }

    fn platform(&self) -> Host<'_> {
        Host::new(&*self.world)
    }

    /// One look at the channel of a row: failures are noticed and switches carried on without a kernel.
    pub fn attend_to(&self, row: u32, patience: &mut StallDetector) {
        // The state was checked by `new`; it does not change.
        if let Ok(device) = unsafe { Device::attach(self.state, self.platform()) } {
            device.attend_to(row, patience);
        }
    }

    /// Channels to each peer that an agent may change, from the first on.
    pub fn attended(&self) -> u32 {
        match self.root().host_channels {
            0 => self.root().channels_per_pe,
            first => first,
        }
    }

    /// Puts something on the wire of a channel that is at rest, so that a peer that is gone shows.
    pub fn touch(&self, row: u32) -> bool {
        let device = unsafe { Device::attach(self.state, self.platform()) };
        device.is_ok_and(|device| device.touch(row))
    }

    fn channel_row(&self, peer: u32, channel: u32) -> u32 {
        peer * self.root().channels_per_pe + channel
    }

    fn mirror(&self, row: u32) -> *mut Mirror {
        (self.root().mirrors as *mut Mirror).wrapping_add(row as usize)
    }

    /// Where the switch of a channel stands, by its row.
    fn switch_word(&self, row: u32) -> SwitchWord {
        SwitchWord(unsafe { self.platform().load_acquire(addr_of_mut!((*self.mirror(row)).word)) })
    }

    fn mailbox(&self, peer: u32, channel: u32) -> *mut Mailbox {
        let base = self.root().mailboxes as *mut Mailbox;
        base.wrapping_add(self.channel_row(peer, channel) as usize)
    }

    fn row(&self, at: Place) -> *mut PathRow {
        let row = self.channel_row(at.peer, at.channel) * self.root().slots + at.slot;
        (self.root().paths as *mut PathRow).wrapping_add(row as usize)
    }

    /// How many requests there were, over both counters that requests bump.
    pub fn wake(&self) -> u64 {
        SIDES.iter().map(|side| self.counter(self.root().wake, *side)).fold(0, u64::wrapping_add)
    }

    /// A counter of a side.
    fn counter(&self, first: u64, side: u64) -> u64 {
        unsafe { self.platform().load_acquire((first + side * COUNTER_LINE) as *const u64) }
    }

    /// The latest request of a channel.
    pub fn request(&self, peer: u32, channel: u32) -> Request {
        let (mailbox, p) = (self.mailbox(peer, channel), self.platform());
        unsafe {
            Request {
                number: p.load_acquire(addr_of_mut!((*mailbox).request)),
                slot: p.load32(addr_of_mut!((*mailbox).request_slot)),
                incarnation: p.load32(addr_of_mut!((*mailbox).request_incarnation)),
            }
        }
    }

    /// Number of the latest request of a channel that was answered.
    pub fn answered(&self, peer: u32, channel: u32) -> u64 {
        let mailbox = self.mailbox(peer, channel);
        unsafe { self.platform().load_acquire(addr_of_mut!((*mailbox).answer)) }
    }

    /// Answers a request; its number is written last.
    pub fn answer(&self, at: Place, incarnation: u32, request: u64, verdict: Verdict) {
        let (mailbox, p) = (self.mailbox(at.peer, at.channel), self.platform());
        unsafe {
            // Nobody may take these fields for the answer that lies there now.
            p.store_release(addr_of_mut!((*mailbox).answer), 0);
            p.announce_before_recheck();
            p.store32(addr_of_mut!((*mailbox).answer_status), verdict.status as u32);
            p.store32(addr_of_mut!((*mailbox).answer_executed), verdict.executed);
            p.store32(addr_of_mut!((*mailbox).answer_slot), at.slot);
            p.store32(addr_of_mut!((*mailbox).answer_incarnation), incarnation);
            p.store_release(addr_of_mut!((*mailbox).answer), request);
        }
    }

    /// Says that a request is being worked on, for the `turn`th time.
    pub fn say_in_hand(&self, at: Place, request: u64, turn: u64) {
        let (mailbox, said) = (self.mailbox(at.peer, at.channel), InHand::new(request, turn));
        unsafe { self.platform().store_release(addr_of_mut!((*mailbox).in_hand), said.0) };
    }

    /// Sets a path's state.
    pub fn set_state(&self, at: Place, state: PathState) {
        unsafe { self.platform().store32(addr_of_mut!((*self.row(at)).state), state as u32) }
    }

    /// Changes a path's state, unless device code marked the path in between. False if it did.
    pub fn change_state(&self, at: Place, from: PathState, to: PathState) -> bool {
        // SAFETY: an aligned word of a valid row, which every side reads and writes whole.
        let word = unsafe { AtomicU32::from_ptr(addr_of_mut!((*self.row(at)).state)) };
        word.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// When a path became ready.
    pub fn set_ready_since(&self, at: Place, since: Nanos) {
        unsafe { self.platform().store(addr_of_mut!((*self.row(at)).ready_since_ns), since.get()) }
    }

    /// Where the next occupant of a path starts, and a clean record of causes.
    pub fn hand_over(&self, at: Place, next_index: u64) {
        unsafe {
            self.platform().store(addr_of_mut!((*self.row(at)).next_index), next_index);
            self.platform().store32(addr_of_mut!((*self.row(at)).first_cause), 0);
        }
    }

    /// Replaces a row whose path nobody may use. Word by word, so that a late reader sees whole words.
    pub fn write_row(&self, at: Place, row: &PathRow) {
        const WORDS: usize = size_of::<PathRow>() / 8;
        let from = std::ptr::from_ref(row).cast::<u64>();
        let to = self.row(at).cast::<u64>();
        for i in 0..WORDS {
            unsafe { self.platform().store_release(to.add(i), from.add(i).read()) };
        }
    }

    /// A copy of a row.
    pub fn read_row(&self, at: Place) -> PathRow {
        const WORDS: usize = size_of::<PathRow>() / 8;
        let mut row = std::mem::MaybeUninit::<PathRow>::uninit();
        let (from, to) = (self.row(at).cast::<u64>(), row.as_mut_ptr().cast::<u64>());
        for i in 0..WORDS {
            unsafe { to.add(i).write(self.platform().load_acquire(from.add(i))) };
        }
        // Every word was written, and any bits are a valid row.
        unsafe { row.assume_init() }
    }

    /// The slot that this PE's direction of a channel is on.
    pub fn active_slot(&self, peer: u32, channel: u32) -> u32 {
        self.switch_word(self.channel_row(peer, channel)).slot()
    }

    /// True if this PE's direction is on the path, and so may have work on it. How much, only kernels know.
    pub fn is_on(&self, at: Place) -> bool {
        self.active_slot(at.peer, at.channel) == at.slot
    }

    /// True if this PE's direction does not use the path: see [`SwitchWord::has_left`]. The second half of Dekker's
    /// handshake: the path's state was made unusable before this is read.
    pub fn has_left(&self, at: Place) -> bool {
        self.platform().announce_before_recheck();
        let row = self.channel_row(at.peer, at.channel);
        let word = self.switch_word(row);
        word.has_left(at.slot) || word.step() == Step::Dead && self.long_dead(row)
    }

    /// How often switches have entered the path, of any incarnation. None of a channel that ended: a switch that did
    /// not open counts nothing.
    pub fn was_entered(&self, at: Place) -> Option<u32> {
        let entered = self.tally(self.channel_row(at.peer, at.channel)).entered[at.slot as usize];
        (!self.is_dead(at.peer, at.channel)).then_some(entered)
    }

    /// True if a channel ended so long ago that who held its post lock is gone with its kernel.
    fn long_dead(&self, row: u32) -> bool {
        let ended_ns = unsafe { self.platform().load_acquire(addr_of_mut!((*self.mirror(row)).opened_ns)) };
        self.world.now_ns().saturating_sub(ended_ns) > GONE_NS
    }

    /// When the switch under way on a channel was noticed, by its row; none if nobody switches.
    pub fn switching_since(&self, row: u32) -> Option<u64> {
        match self.switch_word(row).step() {
            Step::Idle | Step::Dead => None,
            _ => Some(unsafe { self.platform().load_acquire(addr_of_mut!((*self.mirror(row)).noticed_ns)) }),
        }
    }

    /// Since when a channel has had no path, by its row; none if it has one.
    pub fn pathless_since(&self, row: u32) -> Option<u64> {
        let since = unsafe { self.platform().load_acquire(addr_of_mut!((*self.mirror(row)).dead_since_ns)) };
        (since != 0).then_some(since)
    }

    /// How a channel stands, by its row.
    pub fn look_at(&self, row: u32) -> ChannelLook {
        let word = self.switch_word(row);
        ChannelLook {
            step: word.step(),
            slot: word.slot(),
            posted: unsafe { self.platform().load_acquire(addr_of_mut!((*self.mirror(row)).posted)) },
            pathless: self.pathless_since(row).is_some(),
        }
    }

    /// Entries that were ever posted on a channel, by its row.
    pub fn published(&self, row: u32) -> u64 {
        let channel = (self.root().channels as *mut Channel).wrapping_add(row as usize);
        unsafe { self.platform().load_acquire(addr_of_mut!((*channel).ready)) }
    }

    /// The state of a path.
    pub fn path_state(&self, at: Place) -> PathState {
        PathState::from_raw(unsafe { self.platform().load32(addr_of_mut!((*self.row(at)).state)) })
    }

    /// True if a channel is on the first of its paths that no operator took out, and nobody switches it, by its row.
    pub fn is_settled(&self, row: u32) -> bool {
        let word = self.switch_word(row);
        word.step() == Step::Idle && self.is_first_in(row, word.slot())
    }

    /// True if an operator took out every path of a channel before this one, by its row.
    pub fn is_first_in(&self, row: u32, slot: u32) -> bool {
        let per = self.root().channels_per_pe;
        let (peer, channel) = (row / per, row % per);
        (0..slot).all(|slot| self.path_state(Place { peer, channel, slot }) == PathState::Retired)
    }

    /// The send queue that a switch of this channel still reads its journal from, if it may.
    pub fn journal_queue(&self, peer: u32, channel: u32) -> u64 {
        let mirror = self.mirror(self.channel_row(peer, channel));
        unsafe { self.platform().load_acquire(addr_of_mut!((*mirror).journal_queue)) }
    }

    /// True if a ticket is known to be executed at the receiver: of an uncertain one, only the answer is lost then.
    pub fn was_executed(&self, peer: u32, channel: u32, ticket: u64) -> bool {
        let mirror = self.mirror(self.channel_row(peer, channel));
        ticket < unsafe { self.platform().load_acquire(addr_of_mut!((*mirror).executed)) }
    }

    /// True if the channel ended.
    pub fn is_dead(&self, peer: u32, channel: u32) -> bool {
        self.switch_word(self.channel_row(peer, channel)).step() == Step::Dead
    }

    fn home_word(&self, pe: u32, channel: u32) -> *mut u64 {
        (self.root().homes as *mut u64).wrapping_add(self.channel_row(pe, channel) as usize)
    }

    /// The home of a channel index at a PE.
    pub fn home(&self, pe: u32, channel: u32) -> HomeWord {
        HomeWord(unsafe { self.platform().load_acquire(self.home_word(pe, channel)) })
    }

    /// Sets it.
    pub fn set_home(&self, pe: u32, channel: u32, home: Home) {
        let word = HomeWord::new(home.rail, home.version);
        unsafe { self.platform().store_release(self.home_word(pe, channel), word.0) }
    }

    /// True if operations of kind 3 bind a channel to its peer's home, by its row.
    pub fn is_bound(&self, row: u32) -> bool {
        unsafe { self.platform().load_acquire(addr_of_mut!((*self.mirror(row)).bound)) != 0 }
    }

    /// True if a rail of this PE is suspected.
    pub fn is_suspect(&self, rail: u32) -> bool {
        let index = hint_index(self.root().rails, None, rail);
        let word = (self.root().hints as *const u64).wrapping_add(index as usize);
        HintWord(unsafe { self.platform().load_acquire(word) }).suspect()
    }

    /// Sets what is known of a rail of this PE (`None`) or of a peer.
    pub fn set_hint(&self, pe: Option<u32>, rail: u32, down: bool) {
        self.change_hint(pe, rail, |now| if now.down() == down { now } else { now.changed(down) });
    }

    /// True if a rail of this PE (`None`) or of a peer is known to be down.
    pub fn is_down(&self, pe: Option<u32>, rail: u32) -> bool {
        let index = hint_index(self.root().rails, pe, rail);
        let word = (self.root().hints as *mut u64).wrapping_add(index as usize);
        HintWord(unsafe { self.platform().load_acquire(word) }).down()
    }

    /// Sets what is suspected of a rail. One that is cleared is not mute either.
    pub fn set_suspect(&self, pe: Option<u32>, rail: u32, suspect: bool) {
        let change = |now: HintWord| now.suspected(suspect).muted(now.mute() && suspect);
        self.change_hint(pe, rail, |now| if now.suspect() == suspect { now } else { change(now) });
    }

    /// A rail is suspected, and its NIC mute.
    pub fn set_mute(&self, pe: Option<u32>, rail: u32) {
        self.change_hint(pe, rail, |now| if now.mute() { now } else { now.suspected(true).muted(true) });
    }

    /// Its NIC answers again.
    pub fn set_answers(&self, pe: Option<u32>, rail: u32) {
        self.change_hint(pe, rail, |now| if now.mute() { now.muted(false) } else { now });
    }

    /// The agent is the only writer of hints.
    fn change_hint(&self, pe: Option<u32>, rail: u32, change: impl Fn(HintWord) -> HintWord) {
        let index = hint_index(self.root().rails, pe, rail);
        let word = (self.root().hints as *mut u64).wrapping_add(index as usize);
        unsafe {
            let now = HintWord(self.platform().load_acquire(word));
            let next = change(now);
            if next != now {
                self.platform().store_release(word, next.0);
            }
        }
    }

    /// Why a channel's latest switch began.
    pub fn cause(&self, peer: u32, channel: u32) -> CauseKind {
        let mirror = self.mirror(self.channel_row(peer, channel));
        CauseKind::from_raw(unsafe { self.platform().load32(addr_of_mut!((*mirror).cause)) })
    }

    /// Records of switches written since the last look of this reader, of each channel oldest first, and how many were
    /// lost.
    pub fn records_since(&self, reader: &mut Cursor) -> (Vec<SwitchRecord>, u64) {
        self.since(reader, self.root().records_head, RECORDS as u64, |ring, number| self.record(ring, number))
    }

    /// The same of the steps of switches.
    pub fn steps_since(&self, reader: &mut Cursor) -> (Vec<StepRecord>, u64) {
        self.since(reader, self.root().steps_head, STEP_RECORDS as u64, |ring, number| {
            self.step(ring, number)
        })
    }

    fn since<T>(
        &self,
        reader: &mut Cursor,
        heads: u64,
        kept: u64,
        record: impl Fn(u64, u64) -> Option<T>,
    ) -> (Vec<T>, u64) {
        let (mut all, mut all_lost) = (Vec::new(), 0);
        for (side, cursor) in SIDES.into_iter().zip(&mut reader.0) {
            let head = self.counter(heads, side);
            let read = cursor.read(head, kept, self.world.now_ns(), |number| record(side * kept, number));
            all.extend(read.0);
            all_lost += read.1;
        }
        (all, all_lost)
    }

    /// The counters of a channel, by its row.
    pub fn tally(&self, row: u32) -> Tally {
        const WORDS: usize = size_of::<Tally>() / 8;
        let from = (self.root().tallies as *mut Tally).wrapping_add(row as usize).cast::<u64>();
        let mut tally = std::mem::MaybeUninit::<Tally>::uninit();
        let to = tally.as_mut_ptr().cast::<u64>();
        for i in 0..WORDS {
            unsafe { to.add(i).write(self.platform().load_acquire(from.add(i))) };
        }
        // Every word was written, and any bits are valid counters.
        unsafe { tally.assume_init() }
    }

    /// Generations that a channel opened because of a fault, and by a switch-back.
    pub fn generations(&self, row: u32) -> (u64, u64) {
        let (mirror, p) = (self.mirror(row), self.platform());
        unsafe {
            let failovers = p.load_acquire(addr_of_mut!((*mirror).failovers));
            (failovers, p.load_acquire(addr_of_mut!((*mirror).switchbacks)))
        }
    }

    fn record(&self, ring: u64, number: u64) -> Option<SwitchRecord> {
        let slot = ring + number % RECORDS as u64;
        let at = (self.root().records as *mut SwitchRecord).wrapping_add(slot as usize);
        self.copy_record(at, unsafe { addr_of_mut!((*at).sequence) }, number)
    }

    fn step(&self, ring: u64, number: u64) -> Option<StepRecord> {
        let slot = ring + number % STEP_RECORDS as u64;
        let at = (self.root().steps as *mut StepRecord).wrapping_add(slot as usize);
        self.copy_record(at, unsafe { addr_of_mut!((*at).sequence) }, number)
    }

    /// A record whose sequence says that it is number `number`, before and after it was read. Records are integers,
    /// a whole number of aligned words.
    fn copy_record<T: Copy>(&self, at: *mut T, sequence: *mut u64, number: u64) -> Option<T> {
        let words = size_of::<T>() / 8;
        if unsafe { self.platform().load_acquire(sequence) } != number + 1 {
            return None;
        }
        let mut record = std::mem::MaybeUninit::<T>::uninit();
        let (from, to) = (at.cast::<u64>(), record.as_mut_ptr().cast::<u64>());
        for i in 0..words {
            unsafe { to.add(i).write(self.platform().load_acquire(from.add(i))) };
        }
        // A writer that came round meanwhile has zeroed the sequence first.
        let whole = unsafe { self.platform().load_acquire(sequence) } == number + 1;
        whole.then(|| unsafe { record.assume_init() })
    }
}
