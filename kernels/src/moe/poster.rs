//! Messages on one channel, posted by a warp's leader: the doorbell is rung for several of them.

use crate::nvptx_math::unknown;
use shunt_device::{Channel, Deadline, Device, HeapOffset, Lanes, Platform, Posted, Put, Signal, Solo};
use shunt_layout::mutant::Mutant;

/// Entries of the ring that one post takes at most: a signal between the two words of its bracket.
pub const ENTRIES: u64 = 3;

/// Puts to one doorbell. The signal behind them rings for the rest.
const PUTS_A_BELL: u32 = 4;

/// Waits until a post would find room, with the kernel's deadline: the post itself has none, and one that has taken its
/// place in the ring cannot give it back. The kind of fault it ended with, or 0.
#[inline(never)]
pub fn room_slow<P: Platform>(channel: Channel<'_, P>, until_ns: u64) -> u64 {
    match channel.wait_for_room(ENTRIES, Deadline { at_ns: until_ns }) {
        Ok(()) => 0,
        Err(kind) => kind as u64,
    }
}

/// Posts by the leader alone; once one is refused the rest is left out.
pub struct Poster<'s, P: Platform> {
    pub(super) device: Device<'s, P>,
    pub(super) rank: u32,
    pub(super) index: u32,
    pub(super) until_ns: u64,
    /// The leader's: the kind of fault that a wait for room ended with, or 0.
    pub(super) late: u64,
    /// Puts since the doorbell was rung.
    pub(super) unrung: u32,
    /// The leader's.
    pub(super) failed: Option<Posted>,
}

impl<'s, P: Platform> Poster<'s, P> {
    /// Found again for each post: what is known of it would take dozens of registers while messages are made.
    #[inline(always)]
    fn channel(&self) -> Channel<'s, P> {
        self.device.channel(unknown(self.rank as u64) as u32, self.index)
    }

    /// True to the leader if nothing was refused yet, once all lanes are there: what they stored is what is sent.
    #[inline(always)]
    fn posts<L: Lanes>(&mut self, lanes: L) -> bool {
        lanes.sync();
        if lanes.rank() != 0 || self.late != 0 || self.failed.is_some() {
            return false;
        }
        let channel = self.channel();
        if !channel.has_room(ENTRIES) && !Mutant::RoomNotLookedFor.on() {
            self.late = room_slow(channel, self.until_ns);
        }
        self.late == 0
    }

    #[inline(always)]
    fn keep(&mut self, posted: Posted) {
        if posted.ticket().is_none() {
            self.failed = Some(posted);
        }
    }

    #[inline(always)]
    pub fn put<L: Lanes>(&mut self, lanes: L, put: Put) {
        if self.posts(lanes) {
            self.unrung = (self.unrung + 1) % PUTS_A_BELL;
            self.keep(self.channel().try_put_rung(Solo, put, self.unrung == 0));
        }
    }

    #[inline(always)]
    pub fn signal<L: Lanes>(&mut self, lanes: L, at: HeapOffset, signal: Signal) {
        if self.posts(lanes) {
            self.keep(self.channel().try_signal(Solo, at, signal));
        }
    }
}
