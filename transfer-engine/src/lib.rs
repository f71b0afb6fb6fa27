//! Point-to-point transfers that outlive a NIC: single and paged writes over several rails, scatters, barriers,
//! immediates counted once, messages in order, cancel with proof.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`engine`] | [`Engine`](engine::Engine): takes writes and expectations, steps the rest, calls back |
//! | [`call`] | writes, scatters, barriers, and who is told |
//! | `cut` | what a call posts: checked, and cut into pieces; pure |
//! | [`transfer`] | all transfers: pieces by lane, what is sent again, [`Quiesced`](transfer::Quiesced); pure |
//! | `lives`, `life` | all of them by age, and one of them; pure |
//! | `landing` | bytes that a lane has executed and that may not be in memory yet; pure |
//! | `piece`, `batch` | what a transfer has to do, its pieces, and how a domain sees them; pure |
//! | `lane` | one lane: its pieces, and what becomes of them when it is closed; pure |
//! | `route` | the way to one peer: pieces that wait, and the choice of a lane; pure |
//! | `routes` | the ways to all peers; pure |
//! | `recover` | what is sent again where a receiver only counts immediates; pure |
//! | [`join`] | calls of several parts: scatters, barriers; pure |
//! | `told` | what ends are for, how callers are told |
//! | [`watch`] | words that a kernel writes and the engine looks at |
//! | [`message`] | messages in parts: in order, each once; pure |
//! | `suspect` | lanes whose oldest piece is not done; pure |
//! | `probe` | peers that are only waited for; pure |
//! | [`imm`] | immediates that have arrived, and what is expected of them; pure |
//! | [`shard`] | pieces of a write, pages, the choice of a rail; pure |
//! | [`region`] | regions and their descriptions, bounds and rights; pure |
//! | [`domain`] | [`Domain`](domain::Domain): the rails of one transport |
//! | [`rc`] | a domain of RC queue pairs, whose lanes the recovery engine fences and makes again |
//! | [`sim`] | a domain in virtual time that does what a network may do, by seed |
//! | `slab` | things by numbers that are never used twice; pure |
//! | [`ids`], [`error`] | numbers, and what goes wrong |
//!
//! Time is an argument everywhere.

mod batch;
pub mod call;
mod cut;
pub mod domain;
pub mod engine;
pub mod error;
pub mod ids;
pub mod imm;
pub mod join;
mod landing;
mod lane;
mod life;
mod lives;
pub mod message;
mod piece;
mod probe;
pub mod rc;
mod recover;
pub mod region;
mod route;
mod routes;
pub mod shard;
pub mod sim;
mod slab;
mod suspect;
mod told;
pub mod transfer;
pub mod watch;
