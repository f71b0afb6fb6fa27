//! The way out of a process: frames to and from NICs of other processes.
//!
//! A fabric that has an uplink sends what is not for one of its own NICs there, as [frames](crate::frame), and takes
//! frames for its NICs from it. What an uplink owes it: frames arrive whole or not at all, and no call blocks. Beyond
//! that there are two kinds:
//!
//! | | [`UnixUplink`] | [`RoceUplink`] |
//! | --- | --- | --- |
//! | frames are lost | when nobody is at the address | as on any network |
//! | somebody slow | pauses the sender: [`is_full`](Uplink::is_full) | is spared: [`window`](Uplink::window) |
//! | order | kept | kept where the network keeps it |
//! | who may send | this user | anybody who reaches the port |

mod directory;
mod error;
mod roce;
mod unix;

pub use directory::{
    fabric_directory, remove_fabric, remove_unused_fabric, remove_unused_in, runtime_directory,
};
pub use error::UplinkError;
pub use roce::{RoceOptions, RoceUplink, path_mtu};
pub use unix::UnixUplink;

use crate::frame::Outer;
use crate::packet::MTU_MAX;
use std::os::fd::BorrowedFd;

/// An address as an uplink numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressId(pub u32);

/// What crossed an uplink, and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UplinkCounters {
    /// Frames handed to the other side.
    pub frames_tx: u64,
    /// Frames that came.
    pub frames_rx: u64,
    /// Datagrams those were sent in.
    pub datagrams_tx: u64,
    /// Datagrams that came.
    pub datagrams_rx: u64,
    /// Frames to an address where nobody was, or for which the system had no socket left.
    pub vanished: u64,
    /// Frames dropped because more waited for one address than any honest fabric queues.
    pub overflowed: u64,
    /// Frames dropped because they were under way for longer than a packet lives.
    pub expired: u64,
    /// Datagrams that the system dropped because their socket was full; their frames were not seen.
    pub lost: u64,
    /// Datagrams that are no row of frames, or longer than any frame.
    pub malformed: u64,
    /// Frames that do not decode.
    pub undecodable: u64,
    /// Frames whose destination is no NIC of this fabric, or whose MAC is not its.
    pub misaddressed: u64,
}

/// A way to NICs of other processes.
pub trait Uplink: Send {
    /// Frames to `address` come here from now on, to a NIC with this MAC. Doing it again changes nothing.
    fn own(&mut self, address: u128, mac: u64) -> Result<(), UplinkError>;

    /// The number of an address, for [`Self::send`].
    fn address(&mut self, address: u128) -> AddressId;

    /// The framing it wants.
    fn outer(&self) -> Outer {
        Outer::Grh
    }

    /// Largest payload of a packet that an own address can send.
    fn mtu(&self, _address: u128) -> u32 {
        MTU_MAX as u32
    }

    /// Packets that should be unacknowledged towards one address at most; nothing if none is ever lost for their
    /// number.
    fn window(&self) -> Option<u32> {
        None
    }

    /// Queues the frame that `write` appends, in the framing it wants.
    fn send(&mut self, to: AddressId, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Hands over what is queued, as far as the other side takes it.
    fn flush(&mut self);

    /// Gives some of the frames that came to `take`. False if there were none.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool;

    /// True while so much waits for an address that a sender ought to pause.
    fn is_full(&self, to: AddressId) -> bool;

    /// Changes whenever an answer of [`Self::is_full`] does.
    fn turns(&self) -> u64;

    /// Tells the own addresses whose interfaces lost their link or have it again since the last call; a link is there
    /// until it is told otherwise.
    fn link_changes(&mut self, _tell: &mut dyn FnMut(u128, bool)) {}

    /// Readable when a call of [`Self::receive`], [`Self::flush`] or [`Self::link_changes`] would do something that it
    /// could not do before.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What it counted. It leaves those that judge a frame's contents to the fabric.
    fn counters(&self) -> UplinkCounters;
}
