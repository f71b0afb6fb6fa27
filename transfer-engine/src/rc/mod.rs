//! A domain of RC queue pairs on ConnectX, or on soft NICs: each lane is a path of the recovery engine.
//!
//! A lane that fails is fenced at both ends by the engine, whoever noticed first. The count of the receiver's NIC says
//! which pieces were executed; the engine makes the path again, and it opens as another lane. A NIC that is gone counts
//! nothing any more: then the receiver itself says how many receives were taken.
//!
//! | module | what it is |
//! | --- | --- |
//! | `queue` | a queue pair: WRITEs with and without immediates, a receive queue that is topped up |
//! | `endpoint` | the same, as the recovery engine sees it |
//! | `owner` | the paths, as their owner knows them |
//! | `lane` | one incarnation of a path, as transfers use it |
//! | `leaving` | peers that are being cut off; pure |
//! | `doubts` | lanes whose fence told no count: peers are asked for theirs; pure |
//! | `address` | where an end is, as it is sent to others |
//! | `words` | what ends tell each other; pure |
//! | `rails` | NICs, opened; memory, registered |
//! | `registrar` | the same memory, on whichever thread asks |
//! | `domain` | [`RcDomain`] |

mod address;
mod domain;
mod doubts;
mod endpoint;
mod lane;
mod leaving;
mod listening;
mod owner;
mod queue;
mod rails;
mod registrar;
mod words;

pub use address::{address, address_from_bytes, address_to_bytes};
pub use domain::{Parts, RcDomain};
pub use rails::{Draw, Patience, open_rails};
pub use registrar::{Regions, Registered, Registrar};
pub use shunt_recovery::links::PeerAddress;
