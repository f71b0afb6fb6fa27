//! A command's data, in and out, as INVOKE_WRITE carries it.

use crate::abi::Plain;
use crate::abi::ids::{UHW_IN, UHW_OUT, write};
use crate::ioctl::Call;
use rustix::io::Errno;

/// A command's data, in and out: the common part, and the driver's.
pub struct Core<'c>(pub(super) &'c mut Call);

impl<'c> Core<'c> {
    /// The data of a call of INVOKE_WRITE.
    pub fn of(call: &'c mut Call) -> Self {
        Self(call)
    }

    /// The common part in; shorter is refused, longer must go on with zeros.
    pub fn request<T: Plain>(&self) -> Result<T, Errno> {
        self.0.input(write::CORE_IN)
    }

    /// Room for the common answer.
    pub fn room(&self) -> usize {
        self.0.len(write::CORE_OUT)
    }

    /// Refuses to go on if the answer would find no room: before anything is made.
    pub fn check_room<T: Plain>(&self) -> Result<(), Errno> {
        if self.room() < size_of::<T>() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Answers; ENOSPC if it does not fit.
    pub fn reply<T: Plain>(&mut self, answer: &T) -> Result<(), Errno> {
        self.0.output_value(write::CORE_OUT, answer)
    }

    /// Answers as much as fits.
    pub fn reply_grown<T: Plain>(&mut self, answer: &T) -> Result<(), Errno> {
        self.0.output(write::CORE_OUT, answer.bytes())
    }

    /// The driver's part in; what an older program leaves out is zero.
    pub fn driver_request<T: Plain + Default>(&self) -> Result<T, Errno> {
        if self.0.has(UHW_IN) { self.0.input_grown(UHW_IN) } else { Ok(T::default()) }
    }

    /// Room for the driver's answer.
    pub fn driver_room(&self) -> usize {
        self.0.len(UHW_OUT)
    }

    /// The driver's answer, as much as fits, if there is any room.
    pub fn driver_reply(&mut self, answer: &[u8]) -> Result<(), Errno> {
        if self.driver_room() == 0 { Ok(()) } else { self.0.output(UHW_OUT, answer) }
    }
}
