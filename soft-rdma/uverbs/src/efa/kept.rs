//! Objects that a device keeps.

use rustix::io::Errno;
use shunt_soft_nic::soft_srd::device::Kept;

/// What verbs make of an object that is kept.
pub fn refused(kept: Kept) -> Errno {
    match kept {
        Kept::Unknown => Errno::INVAL,
        Kept::Busy => Errno::BUSY,
    }
}
