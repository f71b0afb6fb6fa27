//! The main program: NVSHMEM perftest's `shmem_put_bw`, with a fault in the middle and a verdict.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`], [`environment`], [`plan`], [`usage`] | the command line and the environment |
//! | [`heap`] | what lies where; what is written there, and whether it arrived, says [`shunt_oracle`] |
//! | [`kernel`], [`stream`], [`uncertain_policy`], [`table`] | the kernels: a verified stream, and perftest's table |
//! | [`job`] | how PEs are spread over processes, and how those hear of each other |
//! | [`nics`] | what carries the packets, behind one trait |
//! | [`cluster`], [`clock`], [`agent_pause`] | PEs of this process |
//! | [`gpu`], [`hand`] | kernels on a GPU, and what posts for a sender: a thread or they |
//! | [`runner`], [`faults`], [`sampler`], [`interrupt`] | one run over them: phases, planned faults, what is reported |
//! | [`report`], [`page`] | the verdict, JSON, the run as a page; of what [`shunt_figures`] counts and draws |
//! | [`program`], [`progress`], [`remarks`] | what is printed and written |

pub mod agent_pause;
pub mod clock;
pub mod cluster;
pub mod environment;
pub mod faults;
pub mod gpu;
pub mod hand;
pub mod heap;
pub mod interrupt;
pub mod job;
pub mod kernel;
pub mod nics;
pub mod options;
pub mod page;
pub mod plan;
pub mod program;
pub mod progress;
pub mod remarks;
pub mod report;
pub mod runner;
pub mod sampler;
pub mod stream;
pub mod table;
pub mod thread_limit;
pub mod uncertain_policy;
pub mod usage;
