//! A whole cluster in one OS thread on virtual time: kernels, agents, NICs and links, from one seed.
//!
//! | module | holds |
//! | --- | --- |
//! | [`sim`] | the scheduler, the virtual clock, actors, interference |
//! | [`warp`] | a warp of coroutine lanes |
//! | [`clockwork`] | what moves the NICs |
//! | [`cluster`] | PEs, their NICs and agents, brought up in a simulation |
//! | [`late`] | packets that come up to a minute late |
//! | [`lies`] | NICs whose firmware lies: truth to be refuted, and mutations of the fence |
//! | [`justify`] | whether a typed fault is an answer |
//! | [`pe_faults`] | faults of whole PEs |
//! | [`mutations`] | which scenarios must fail when a part of the protocol is taken away |
//! | [`promises`] | invariants and rules by number, and the breaks of each |
//! | [`oracle`] | the memory model of every put and signal |
//! | [`traffic`] | what a run's streams consist of |
//! | [`kernel`] | what a kernel has around it, and how it waits |
//! | [`workload`] | the kernels of a run |
//! | [`cost`] | what calls cost in accesses to memory |
//! | [`moe`] | ranks that exchange MoE layers |
//! | [`moe_normal`] | the same in normal mode, some of them on one node |
//! | [`echo`] | their gets and fetching atomics |
//! | [`run`] | a whole run and its verdict |
//! | [`outcome`] | what came of it |
//! | [`spec`] | a run in words |
//! | [`scenarios`] | runs by name, and what must follow |
//! | [`toml`] | the little of TOML that a run in words needs |
//! | [`adder`] | raw atomics beside the streams |
//! | [`sharer`] | several PEs that add to one word |
//! | [`draw`] | what the swarm runs for a seed |
//! | [`swarm`] | many runs, judged |
//! | [`ranks`] | ranks that agree on a mask, without anything below them |
//! | [`transfers`] | processes that move memory with the transfer engine |
//! | [`verbs`] | verbs programs that outlive a NIC, and the library that makes them |
//! | [`rng`] | the one source of chance |

pub mod adder;
pub mod clockwork;
pub mod cluster;
pub mod cost;
pub mod draw;
pub mod echo;
pub mod justify;
pub mod kernel;
pub mod late;
pub mod lies;
pub mod moe;
pub mod moe_normal;
pub mod moe_warps;
pub mod mutations;
pub mod oracle;
pub mod outcome;
pub mod pe_faults;
pub mod promises;
pub mod ranks;
pub mod rng;
pub mod run;
pub mod scale;
pub mod scenarios;
pub mod second_user;
pub mod sharer;
pub mod sim;
pub mod spec;
pub mod spread;
pub mod swarm;
pub mod toml;
pub mod traffic;
pub mod transfers;
pub mod verbs;
pub mod warp;
pub mod workload;
