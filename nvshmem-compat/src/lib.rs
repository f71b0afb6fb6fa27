//! The library that programs link instead of NVSHMEM's host library: the same functions, structures and variables, over
//! Shunt's channels.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`env`], [`env_table`] | what the environment asks for, and what becomes of it; pure |
//! | [`launcher`], [`nodes`], [`bootstrap`], [`pmi`], [`mpi`] | who this process is, and how it finds the others |
//! | [`heap_home`] | in which memory the heap lies; pure |
//! | [`heap`], [`registry`], [`teams`], [`reduce`] | books of heap, buffers, teams; sums; pure |
//! | [`attr`] | structures of the C interface |
//! | [`duplicate_library`] | another library of that name in this process |
//! | [`stream_call`] | a call on a stream as a kernel has it; pure |
//! | [`kernels`] | the program's kernels: where they run, what they are told |
//! | [`session`] | one PE that is up: transfers, atomics, waits, collective calls |
//! | `api` | the C functions, each a line of a macro |
//! | [`failure`], [`report`] | what can go wrong, and how a program without statuses hears of it |

mod api;
pub mod attr;
pub mod bootstrap;
pub mod duplicate_library;
pub mod env;
pub mod env_table;
pub mod failure;
pub mod heap;
pub mod heap_home;
pub mod kernels;
pub mod mpi;
pub mod reduce;
pub mod registry;
pub mod report;
pub mod session;
pub mod stream_call;
pub mod teams;
