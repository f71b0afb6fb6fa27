//! Where the ends are: all in this process, or one, and the others in other processes of the job.

use crate::options::{NAMES, NicOptions};
use anyhow::{Result, bail, ensure};
use shunt::host::error::GpuError;
use shunt::host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt::soft_nic::FaultKind;
use shunt::soft_nic::fault::{Fault, Injection};
use shunt_transfer::{NoNode, Place, Source, Transport, Wish, needed_variable};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Gb/s of a rail in software, where nothing is said.
const SOFT_GBPS: f64 = 1.0;

/// Sets what libfabric must find in the environment for what the options ask of it. What is set stays.
///
/// # Safety
/// No other thread runs: it might read the environment.
pub unsafe fn prepare(options: &NicOptions) {
    let needed = options.provider.as_deref().and_then(needed_variable);
    if let Some((name, value)) = needed.filter(|(name, _)| std::env::var_os(name).is_none()) {
        // SAFETY: the caller has no other thread.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Whether rails of a transport fail like this.
fn has(transport: Transport, injection: &Injection) -> Result<()> {
    let (rails, kinds) = match transport {
        Transport::Rdma => return Ok(()),
        Transport::Sim => {
            ("a simulated network", "down, down=TIME, up, drop-acks, drop-acks=TIME or hold=TIME")
        }
        Transport::Tcp | Transport::Shm | Transport::Libfabric => ("libfabric", "down, down=TIME or up"),
    };
    let is_one = match injection.fault {
        Fault::Nic(FaultKind::Down { .. } | FaultKind::Up) => true,
        Fault::Nic(FaultKind::DropAcks { .. } | FaultKind::Hold { .. }) => transport == Transport::Sim,
        _ => false,
    };
    let fault = injection.fault.name();
    ensure!(is_one, "--inject {injection}: expected {kinds} of a rail of {rails}, got {fault}");
    Ok(())
}

/// What carries the packets, if it can do what the options ask of it.
///
/// # Errors
/// It is not there, or it cannot.
pub fn source(options: &NicOptions) -> Result<Source> {
    let (transport, is_reordered) = (options.transport, options.reorder.is_some());
    ensure!(
        !is_reordered || transport == Transport::Sim,
        "--reorder: expected --transport sim, got {}",
        transport.name()
    );
    let nic = options.kind(&|name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    let soft_gbps = options.rail_gbps.unwrap_or(SOFT_GBPS);
    let source = Source::by(&options.way(), &NAMES, Wish { nic, rails: options.rails, soft_gbps })?;
    if let Some(gbps) = options.rail_gbps.filter(|_| source.are_devices()) {
        bail!("--rail-gbps: expected no rate with RDMA devices, whose ports have their own, got {gbps}");
    }
    options.inject.iter().try_for_each(|injection| has(options.transport, injection))?;
    match options.inject.first().filter(|_| !source.fail_on_request()) {
        Some(fault) => bail!(
            "--inject {fault}: expected NICs in software, which fail on request, got hardware; take its cable out, or \
             its port down, during the run"
        ),
        None => Ok(source),
    }
}

/// Joins the job that the environment names; makes one of this process alone where it names none.
///
/// # Errors
/// The NICs cannot be had, the others were not reached, or the job has another number of ends.
pub fn take(program: &str, source: &Source, ends: u32) -> Result<Place> {
    let place = match Place::from_env(source)? {
        None => Place::alone(source, ends)?,
        Some(place) => place,
    };
    let met = place.ends();
    let wrong = || NoNode::Refused(format!("processes: expected {ends}, got {met}; use shunt run -n {ends}"));
    ensure!(met == ends, wrong());
    for line in &place.lines {
        shunt::host::complain!("{program}: {line}");
    }
    Ok(place)
}

/// Memory on this machine's heap, whole pages of it.
///
/// # Errors
/// There is none.
pub fn heap(bytes: u64) -> Result<Arc<OwnedSpan>, GpuError> {
    let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
    OwnedSpan::alloc(&memory, bytes.next_multiple_of(4096), Placement::Heap)
}

/// What the threads of the ends that live here answer, by number of the end.
///
/// # Errors
/// What went wrong at each end that failed.
pub fn joined<T>(ends: impl IntoIterator<Item = (u32, JoinHandle<Result<T>>)>) -> Result<Vec<T>> {
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for (end, thread) in ends {
        match thread.join() {
            Ok(Ok(seen)) => all.push(seen),
            Ok(Err(error)) => failed.push(format!("end {end}: {error:#}")),
            Err(_) => failed.push(format!("end {end} panicked")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(all)
}
