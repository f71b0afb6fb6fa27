//! The NIC that serializes atomics: all that comes to a word from many writers goes through one NIC of its receiver,
//! the word's home. Rule 16.
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
//! receiver, and nothing is executed there. The wait is `Poster::bind_slow`.

use crate::part::part;
use crate::platform::Platform;
use crate::shared::fields;
use core::ptr::addr_of_mut;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{BINDING, BOUND, Channel, Mirror};

fields!(Channel { bound: u64 });
fields!(Mirror { pub(crate) bound: u64 });

part! {
    /// Whether a channel is bound to one NIC of its peer, and to which.
    pub(crate) AtomicOwner {}
}

impl<P: Platform> AtomicOwner<'_, P> {
    /// True if operations of kind 3 may be posted: one load, all that a bound channel ever pays.
    #[inline(always)]
    pub(crate) fn is_bound(self) -> bool {
        self.load_bound() & BOUND != 0
    }

    #[inline(always)]
    fn load_bound(self) -> u64 {
        self.ptr.words().bound().load_acquire()
    }

    /// Binds the channel: from here on switches choose paths to the home. The caller looks at the ticket word next.
    #[inline(always)]
    pub(crate) fn begin_binding(self) {
        self.ptr.words().bound().fetch_or(BINDING);
        self.ptr.mirror().bound().store(1);
        self.ptr.platform().announce_before_recheck();
    }

    /// Operations of kind 3 may be posted: the channel was seen open at home.
    #[inline(always)]
    pub(crate) fn set_bound(self) {
        self.ptr.words().bound().fetch_or(BOUND);
    }

    /// The remote rail that a bound channel keeps to; none if it is not bound.
    #[inline(always)]
    pub(crate) fn rail(self) -> Option<u32> {
        if self.load_bound() == 0 || Mutant::NoHome.on() {
            return None;
        }
        Some(self.ptr.home().rail())
    }

    /// Local and remote rail of a path, of any, as the agent says.
    #[inline(always)]
    pub(crate) fn rails(self, slot: u32) -> (u32, u32) {
        let (row, p) = (self.ptr.path(slot).address(), self.ptr.platform());
        // SAFETY: neighbouring fields of a row of the path table, each whole by itself.
        let [_, _, local, remote] = unsafe { p.load_four(addr_of_mut!((*row).qpn_shifted)) };
        (local, remote)
    }

    /// True if a slot leads to rail `home`, or nothing is asked of it.
    #[inline(always)]
    pub(crate) fn leads_to(self, slot: u32, home: Option<u32>) -> bool {
        match home {
            Some(rail) => self.rails(slot).1 == rail,
            None => true,
        }
    }
}
