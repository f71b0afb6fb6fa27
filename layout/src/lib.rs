//! Every byte that two parties of Shunt agree on.
//!
//! | structure | who writes | who reads |
//! | --- | --- | --- |
//! | [`mlx5::wqe`], doorbells | device code | the NIC |
//! | [`mlx5::cqe`] | the NIC | device code |
//! | [`mlx5::prm`] mailboxes | host | the NIC's firmware |
//! | [`mlx5::eqe`] | the NIC | host |
//! | [`state::DeviceState`], key tables | host, once | device code |
//! | [`state::Channel`] | device code (the agent where it switches) | the same |
//! | [`state::Mirror`] | device code | agent; device code that changes it |
//! | [`state::HomeWord`] | agent | device code, slow paths only |
//! | [`state::PathRow`] | agent; `base`, `next_index` the switcher | both, device code on slow paths only |
//! | [`state::HotPath`] | the switcher that enters a path; pollers | device code |
//! | [`state::Mailbox`] | one line each side | the other side |
//! | [`state::FetchSlot`] | one line each side | the other side |
//! | [`state::HintWord`] | agent | device code, in wait loops only |
//! | [`state::SwitchRecord`], [`state::Tally`], [`state::StepRecord`] | device code | host |
//! | [`moe`], [`moe_normal`] words and messages | MoE kernels of all ranks, their host at start | the same |
//! | [`status::StatusPage`] | agent | any process of the machine |
//!
//! Nothing here has behaviour beyond getting and setting; meaning lives with the parties.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod bits;
pub mod mlx5;
pub mod moe;
pub mod moe_normal;
pub mod mutant;
pub mod state;
pub mod status;

/// Version of everything in [`state`] and of the connection cards. Compared for equality only; a change of
/// any size or offset in the committed table must change it (`tests/abi.rs`).
pub const ABI_VERSION: u32 = 16;
