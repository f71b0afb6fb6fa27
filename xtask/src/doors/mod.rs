//! The programs that people have, four ranks each: a C program for NVSHMEM, CUDA programs for NVSHMEM compiled for the
//! processor, MoE layers of both modes, Python; and programs on the transfer engine. A port goes down and comes
//! back in the middle of each. Each must leave its path and go back to it, by its own counts, with all data as it must
//! be.
//!
//! | module | what it is |
//! | --- | --- |
//! | `compiled` | the C and CUDA programs, linked with the library of this build |
//! | `jobs` | the programs, and what each must say at its end |
//! | `machines` | two machines that share nothing but a network, as namespaces |
//! | `between` | the programs between those machines |
//! | `interposed` | the programs on one machine, on each kind of device |
//! | `page` | the page on two machines, run as it is written |

mod between;
mod compiled;
mod interposed;
mod jobs;
mod machines;
mod page;

use crate::netns;
use anyhow::{Result, bail};
use jobs::Ready;
use shunt_task::stages::Count;

/// The stage `two-machines`: the programs between two machines, and the page on them.
pub fn two_machines() -> Result<Count> {
    if let Err(said) = netns::permitted() {
        println!("  skipped: no network namespaces with veth here: {said}");
        return Ok(Count { skipped: jobs::SHORT.len() + 1, ..Count::default() });
    }
    let ready = Ready::make()?;
    let mut count = between::all(&ready, jobs::SHORT)?;
    count += page::run(&ready)?;
    Ok(count)
}

/// A part of the stage `mlx5`: what it does not have otherwise.
pub fn interposed() -> Result<Count> {
    let ready = Ready::compiled()?;
    interposed::compiled(&ready)
}

/// `cargo xtask night --only doors`: all of the programs, between machines and on every kind of device.
pub fn night(_: &[String]) -> Result<()> {
    let ready = Ready::make()?;
    let mut count = interposed::every_kind(&ready)?;
    match netns::permitted() {
        Ok(()) => count += between::all(&ready, jobs::ALL)?,
        Err(said) => println!("  skipped: no network namespaces with veth here: {said}"),
    }
    if count.failed > 0 {
        bail!("{} programs failed, {} passed", count.failed, count.passed);
    }
    Ok(())
}
