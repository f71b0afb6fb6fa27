//! One end of a path: a queue pair that the engine fences, asks and makes again; its owner posts on it.

use super::path::io::Handle;
use shunt_device::platform::host::World;
use shunt_layout::state::PathRow;
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_mlx5::rail::Rail;
use std::sync::Arc;

/// A queue pair of one incarnation. Dropping it gives it up: a NIC that answers destroys it.
pub trait Endpoint: Send + Sync {
    /// The rail it was made on.
    fn rail(&self) -> u32;
    /// The incarnation it was made for.
    fn incarnation(&self) -> u32;
    /// The variant of its memory that it uses, 0 or 1.
    fn variant(&self) -> u32;
    /// The PSN it begins to send with.
    fn psn(&self) -> u32;
    /// What the other end must know to connect to it.
    fn card(&self) -> HalfCard;

    /// RST2INIT.
    ///
    /// # Errors
    /// As its NIC answers.
    fn init(&self) -> Result<(), NicError>;
    /// INIT2RTR and RTR2RTS, towards the other end.
    ///
    /// # Errors
    /// As its NIC answers, or if the two do not fit.
    fn connect(&self, remote: &HalfCard) -> Result<(), NicError>;
    /// 2ERR: from here on nothing that arrives changes memory, and everything outstanding is flushed.
    ///
    /// # Errors
    /// As its NIC answers.
    fn to_error(&self) -> Result<(), NicError>;
    /// QUERY_QP.
    ///
    /// # Errors
    /// As its NIC answers.
    fn query(&self) -> Result<QpTruth, NicError>;
    /// Has it destroyed: `Ok` once the NIC said so.
    ///
    /// # Errors
    /// As its NIC answers.
    fn destroy(&self) -> Result<(), NicError>;
    /// The same for one that nobody fenced, with the PSN that its requester would have sent next, if the NIC still knew
    /// it.
    ///
    /// # Errors
    /// As its NIC answers.
    fn query_and_destroy(&self) -> Result<Option<u32>, NicError>;

    /// Posts probes on it.
    ///
    /// # Safety
    /// Nobody else posts on it while the prober lives, and the prober does not outlive it.
    unsafe fn prober(&self) -> Box<dyn Prober>;

    /// What device code reads of a path to the other end; none of a queue pair that device code does not post on.
    fn row(&self, remote: &HalfCard) -> Option<PathRow> {
        let _ = remote;
        None
    }
}

/// Posts zero-length WRITEs, and counts their answers.
pub trait Prober: Send {
    /// Posts one.
    fn post(&mut self, world: &dyn World);
    /// Looks once at the oldest that is not answered.
    fn poll(&mut self, world: &dyn World) -> Option<Result<(), NicError>>;
    /// True if one more fits.
    fn has_room(&self) -> bool;
    /// Index of the next request: where its owner begins.
    fn next_index(&self) -> u64;
}

/// Makes the endpoints of one path, one for each incarnation.
pub trait Maker: Send + Sync {
    /// Makes one in RST on a rail. `number`: its incarnation, and the variant of the path's memory (0 or 1) that no
    /// other half of the path uses on any NIC. `psn` is the first that it will send.
    ///
    /// # Errors
    /// As its NIC answers.
    fn make(&self, rail: &Arc<Rail>, number: (u32, u32), psn: u32) -> Result<Half, NicError>;
}

/// An endpoint, which its NIC's worker may hold as well.
pub type Half = Arc<dyn Endpoint>;

impl Handle for Half {
    fn rail(&self) -> u32 {
        (**self).rail()
    }

    fn incarnation(&self) -> u32 {
        (**self).incarnation()
    }

    fn variant(&self) -> u32 {
        (**self).variant()
    }

    fn psn(&self) -> u32 {
        (**self).psn()
    }

    fn card(&self) -> HalfCard {
        (**self).card()
    }
}
