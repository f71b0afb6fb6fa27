//! Where the ends are: all in this process, or one, and the others in other processes of the job.

use crate::alike::{self, Alike, option};
use crate::options::{NAMES, NicOptions};
use anyhow::{Result, ensure};
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
fn has(transport: Transport, injection: &Injection) -> Result<(), String> {
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
    let refused = || {
        let fault = injection.fault.name();
        format!("--inject {injection}: expected {kinds} of a rail of {rails}, got {fault}")
    };
    is_one.then_some(()).ok_or_else(refused)
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
    let source = Source::by(&options.way(), &NAMES, Wish { nic, rails: options.rails(), soft_gbps })?;
    fits(options, source.are_devices(), source.fail_on_request()).map_err(anyhow::Error::msg)?;
    Ok(source)
}

/// Whether what was found can do what the options ask of it.
fn fits(options: &NicOptions, are_devices: bool, fail_on_request: bool) -> Result<(), String> {
    if let Some(gbps) = options.rail_gbps.filter(|_| are_devices) {
        return Err(format!(
            "--rail-gbps: expected no rate with RDMA devices, whose ports have their own, got {gbps}; --nic soft takes \
             NICs in software"
        ));
    }
    options.inject.iter().try_for_each(|injection| has(options.transport, injection))?;
    match options.inject.first().filter(|_| !fail_on_request) {
        Some(fault) => Err(format!(
            "--inject {fault}: expected NICs in software, which fail on request, got hardware; --nic soft takes them. \
             Of hardware take the cable out, or the port down, during the run"
        )),
        None => Ok(()),
    }
}

/// Joins the job that the environment names; makes one of this process alone where it names none. `own`: options that
/// all its ends must have alike.
///
/// # Errors
/// The NICs cannot be opened, the others were not reached, they have other options, or the job has another number of
/// ends.
pub fn take(program: &str, source: &Source, own: Alike, ends: u32) -> Result<Place> {
    let place = match Place::from_env(source)? {
        None => Place::alone(source, ends)?,
        Some(place) => place,
    };
    let own = [vec![option("program", program)], own].concat();
    let all = place.exchange(&serde_json::to_vec(&own)?)?;
    let all: Vec<Alike> =
        all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<_, _>>().map_err(|_| {
            NoNode::Refused(format!("program: expected {program} at all ends, got another one"))
        })?;
    if let Some(difference) = alike::difference(place.own(), &all) {
        return Err(NoNode::Refused(difference).into());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        nics: NicOptions,
    }

    /// A plan of faults made hardware of its own accord, once devices are taken where there are any.
    #[test]
    fn hardware_that_was_found_is_refused_where_it_cannot_do_what_was_asked() {
        let said = |line: &str, are_devices, fail_on_request| {
            let typed = Typed::parse_from(["program"].into_iter().chain(line.split_whitespace()));
            fits(&typed.nics, are_devices, fail_on_request)
        };
        let fault = "--inject 1s:0.0:down";
        let hardware = said(fault, true, false).expect_err("it does not fail on request");
        assert!(hardware.contains("got hardware; --nic soft takes them"), "{hardware}");
        let rate = said("--rail-gbps 2", true, true).expect_err("ports have their own rate");
        assert!(rate.contains("got 2; --nic soft takes NICs in software"), "{rate}");
        for (line, are_devices, fail_on_request) in
            [("", true, false), (fault, true, true), (fault, false, true), ("--rail-gbps 2", false, true)]
        {
            assert_eq!(said(line, are_devices, fail_on_request), Ok(()), "{line}");
        }
    }
}
