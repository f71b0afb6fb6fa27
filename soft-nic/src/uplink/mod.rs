//! The way out of a process: frames to and from NICs of other processes.
//!
//! A fabric that has an uplink sends what is not for one of its own NICs there, as [frames](crate::wire), and takes
//! frames for its NICs from it. What an uplink owes it: frames of one sender to one address arrive in order and
//! whole; they are lost only when nobody is at that address, never because somebody is slow; no call blocks.

mod directory;
mod error;
mod unix;

pub use directory::{fabric_directory, remove_fabric, runtime_directory};
pub use error::UplinkError;
pub use unix::UnixUplink;

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
    /// Datagrams that are no row of frames.
    pub malformed: u64,
    /// Frames that do not decode.
    pub undecodable: u64,
    /// Frames whose destination is no NIC of this fabric, or whose MAC is not its.
    pub misaddressed: u64,
}

/// A way to NICs of other processes.
pub trait Uplink: Send {
    /// Frames to `address` come here from now on. Doing it again changes nothing.
    fn own(&mut self, address: u128) -> Result<(), UplinkError>;

    /// The number of an address, for [`Self::send`].
    fn address(&mut self, address: u128) -> AddressId;

    /// Queues the frame that `write` appends.
    fn send(&mut self, to: AddressId, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Hands over what is queued, as far as the other side takes it.
    fn flush(&mut self);

    /// Gives some of the frames that came to `take`. False if there were none.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> bool;

    /// True while so much waits for an address that a sender ought to pause.
    fn is_full(&self, to: AddressId) -> bool;

    /// Changes whenever an answer of [`Self::is_full`] does.
    fn turns(&self) -> u64;

    /// Readable when a call of [`Self::receive`] or [`Self::flush`] would do something that it could not do before.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What it counted. It leaves those that judge a frame's contents to the fabric.
    fn counters(&self) -> UplinkCounters;
}
