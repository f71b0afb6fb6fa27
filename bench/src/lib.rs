//! The main program: NVSHMEM perftest's `shmem_put_bw`, with a fault in the middle and a verdict.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`], [`inject`], [`units`] | the command line |
//! | [`heap`], [`pattern`], [`verify`] | what is written where, and whether it arrived; pure |
//! | [`kernel`], [`stream`], [`table`] | the kernels: a verified stream, and perftest's table |
//! | [`cluster`], [`runner`] | PEs and NICs in this process, and one run over them |
//! | [`timeline`], [`switches`], [`report`], [`plot`] | figures, verdict, JSON, pictures; pure |
//! | [`program`], [`progress`], [`outputs`] | what is printed and written |

pub mod cluster;
pub mod heap;
pub mod inject;
pub mod kernel;
pub mod options;
pub mod outputs;
pub mod pattern;
pub mod plot;
pub mod program;
pub mod progress;
pub mod report;
pub mod runner;
pub mod stream;
pub mod switches;
pub mod table;
pub mod timeline;
pub mod units;
pub mod verify;
