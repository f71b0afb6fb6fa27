//! The atomic home: all that comes to a word from many writers goes through one NIC of its receiver. Rule 16; F10.
//!
//! Two NICs do not know of each other's atomics: each reads, then writes, and an add is lost. So a receiver has one
//! rail, its home, for each channel index, and a channel that carries operations of kind 3 is *bound* to it: its
//! switches choose paths to that rail only. The agent keeps the word that says which rail it is.
//!
//! Why no operation of kind 3 ever leaves through another rail: a caller sets `BINDING`, passes a fence, and then looks
//! at the ticket word. If it finds the channel open, every switch that closes it later passes the fence in `choose`
//! after its close, so it finds `BINDING` and opens at home; if it finds it closed, or open elsewhere, it waits and
//! looks again, so a switch that chose before `BINDING` was there does no harm. Only a caller that saw the channel open
//! at home sets `BOUND`, and only behind `BOUND` are tickets taken: whatever generation such a ticket is written in was
//! opened at home. Where the home is may have changed meanwhile; then the pairs to the old one are in ERR at the
//! receiver, and nothing is executed there.

use crate::access::{Channel, Device};
use crate::patience::Patience;
use crate::platform::Platform;
use core::ptr::addr_of_mut;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{BINDING, BOUND, HomeWord};

impl<P: Platform> Channel<'_, P> {
    /// True if operations of kind 3 may be posted: one load, all that a bound channel ever pays.
    #[inline(always)]
    pub(crate) fn is_bound(self) -> bool {
        self.load_bound() & BOUND != 0
    }

    #[inline(always)]
    fn load_bound(self) -> u64 {
        // SAFETY: a field of a valid channel.
        unsafe { self.platform().load_acquire(addr_of_mut!((*self.words()).bound)) }
    }

    /// The remote rail that a bound channel keeps to; none if it is not bound.
    #[inline(always)]
    pub(crate) fn home_rail(self) -> Option<u32> {
        if self.load_bound() == 0 || Mutant::NoHome.on() {
            return None;
        }
        // SAFETY: a field of a valid channel; the agent writes it whole.
        let home = HomeWord(unsafe { self.platform().load_acquire(addr_of_mut!((*self.words()).home)) });
        Some(home.rail())
    }

    /// True if a slot leads to `home`, or nothing is asked of it.
    #[inline(always)]
    pub(crate) fn leads_to(self, slot: u32, home: Option<u32>) -> bool {
        match home {
            Some(rail) => self.view(slot).remote_rail == rail,
            None => true,
        }
    }

    /// Binds the channel, and waits until it stands at home. False if it does not
    /// come to that in time, or is dead. Nothing is reserved yet, so leaving is free.
    #[inline(never)]
    pub(crate) fn bind_slow(device: Device<'_, P>, row: u32) -> bool {
        let channel = device.row(row);
        let p = channel.platform();
        // SAFETY: a field of a valid channel; its bits are only set.
        unsafe { p.fetch_or(addr_of_mut!((*channel.words()).bound), BINDING) };
        p.announce_before_recheck();
        let tolerant = channel.device.tolerant();
        let start = p.now_ns();
        let mut patience = Patience::new(start);
        loop {
            let ticket = channel.load_ticket();
            let at_home = !ticket.flag() && channel.leads_to(ticket.slot(), channel.home_rail());
            // Without fault tolerance nothing is ever switched.
            if at_home || !tolerant || Mutant::BoundUnseen.on() {
                // SAFETY: as above.
                unsafe { p.fetch_or(addr_of_mut!((*channel.words()).bound), BOUND) };
                return true;
            }
            if channel.attend(&mut patience).is_err() {
                return false;
            }
            if p.now_ns().saturating_sub(start) > channel.chain_bound_ns() {
                return false;
            }
            p.relax();
        }
    }
}
