//! The plan of faults of a command line: what is refused, and what happens when nobody says.

use crate::usage::{Usage, bad};
use shunt_soft_nic::FaultKind;
use shunt_soft_nic::fault::{Fault, Injection, format_time};

/// The stream that faults are planned for.
pub(crate) struct Stream {
    /// How long it runs.
    pub duration_ns: u64,
    /// PEs of the job.
    pub pes: u32,
    /// Rails of each.
    pub rails: u32,
}

/// Refuses what would do nothing, and what hits nothing. `watch`: the run only looks on.
pub(crate) fn check(plan: &[Injection], watch: bool, stream: &Stream) -> Result<(), Usage> {
    let Stream { duration_ns, pes, rails } = *stream;
    if watch && !plan.is_empty() {
        return bad("--watch injects nothing: leave --inject out, or --watch".to_owned());
    }
    for injection in plan {
        if injection.fault.does_nothing() {
            return bad(format!("--inject {injection}: expected a value above 0, got 0, which does nothing"));
        }
        if injection.at_ns >= duration_ns {
            return bad(format!(
                "--inject {injection}: expected a time before the end of the stream, {} (--duration), got {}",
                format_time(duration_ns),
                format_time(injection.at_ns)
            ));
        }
        if injection.pe >= pes || injection.rail.is_some_and(|rail| rail >= rails) {
            let (pe, last) = (injection.pe, pes - 1);
            return bad(match injection.rail {
                Some(rail) => format!(
                    "--inject {injection}: expected PE 0 to {last} and rail 0 to {}, got {pe}.{rail}",
                    rails - 1
                ),
                None => format!("--inject {injection}: expected PE 0 to {last}, got {pe}"),
            });
        }
    }
    Ok(())
}

/// What happens when nobody says: the primary rail of PE 0 goes down at a sixth of the stream and comes back at half of
/// it.
pub fn default_plan(duration_ns: u64) -> Vec<Injection> {
    let make = |at_ns, kind| Injection { at_ns, pe: 0, rail: Some(0), fault: Fault::Nic(kind) };
    vec![make(duration_ns / 6, FaultKind::Down { for_ns: None }), make(duration_ns / 2, FaultKind::Up)]
}
