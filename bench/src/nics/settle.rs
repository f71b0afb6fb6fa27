//! What a command line means once its NICs are known: which faults can be made at them, and what happens when nobody
//! says.

use super::Medium;
use super::error::NoNics;
use super::source::Source;
use crate::options::Options;
use crate::plan::default_plan;
use shunt_soft_nic::fault::{Fault, Injection, PeFault};

/// Looks for the NICs and settles what is to go wrong at them.
///
/// # Errors
/// They are not there, or cannot be made to fail as asked.
pub fn settle(options: &Options) -> Result<(Options, Source), NoNics> {
    let source = Source::find(options)?;
    let mut options = Options { medium: source.medium(), ..options.clone() };
    if source.medium() == Medium::Interposer && options.hurts_by_itself() {
        options.inject = default_plan(options.duration);
    }
    check(&options, &source)?;
    Ok((options, source))
}

/// Refuses what these NICs cannot do.
fn check(options: &Options, source: &Source) -> Result<(), NoNics> {
    let refusal = |injection| refusal(injection, source.medium(), options.job.is_some(), source.shared());
    match options.inject.iter().find_map(refusal) {
        Some(text) => Err(NoNics::Fault(text)),
        None => Ok(()),
    }
}

/// Why a fault cannot be made. `processes`: each PE is one; `shared`: PEs of this process have ports in common.
fn refusal(injection: &Injection, medium: Medium, processes: bool, shared: bool) -> Option<String> {
    match injection.fault {
        Fault::Pe(fault) if fault.is_simulated() => Some(format!(
            "--inject {injection}: only the simulator makes this; cargo xtask swarm --fault {} runs it, and here \
             there are oob-cut, agent-stalled and clock-jump",
            fault.name()
        )),
        Fault::Nic(_) if medium == Medium::ConnectX => {
            let rail = injection.rail.unwrap_or(0);
            Some(format!(
                "--inject {injection}: the NICs are hardware, only soft NICs fail on request; \
                 '<time>:{}.{rail}:exec=COMMAND' runs a command that makes the fault, such as \
                 exec=ip link set DEV down; `shunt soft-rdma run` gives a program soft NICs",
                injection.pe
            ))
        }
        // Where a PE is no process, its death is that of its NICs.
        Fault::Pe(PeFault::PeerKilled) if !processes && (medium == Medium::ConnectX || shared) => {
            Some(format!(
                "--inject {injection}: the PE is no process and its NICs cannot be taken away; give each PE a process: \
             shunt run -n {} -- shmem_put_bw ...",
                2.max(injection.pe + 1)
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hardware_cannot_do_is_refused_with_what_can() {
        let refused = |text: &str, medium, processes, shared| {
            refusal(&text.parse().unwrap(), medium, processes, shared).unwrap_or_default()
        };
        let text = refused("300ms:1.1:down", Medium::ConnectX, true, false);
        for part in ["1.1:down", "<time>:1.1:exec=COMMAND", "shunt soft-rdma run"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let killed = "300ms:1:peer-killed";
        for (medium, shared) in [(Medium::ConnectX, false), (Medium::Interposer, true)] {
            let text = refused(killed, medium, false, shared);
            assert!(text.contains("shunt run -n 2"), "{text}");
            assert_eq!(refused(killed, medium, true, shared), "", "a process can be killed anywhere");
        }
        assert_eq!(refused(killed, Medium::Interposer, false, false), "");
        for text in ["1ms:0.0:exec=true", "1ms:0:agent-killed", "1ms:0:oob-cut", "1ms:0:clock-jump=1s"] {
            assert_eq!(refused(text, Medium::ConnectX, false, true), "", "{text}");
        }
        for text in ["1ms:0:oob-dup=2", "1ms:0:oob-delay=1ms", "1ms:0:oob-reorder=2", "1ms:0:peer-stopped=1s"]
        {
            let said = refused(text, Medium::Soft, true, false);
            assert!(said.contains("cargo xtask swarm --fault") && said.contains(text), "{said}");
        }
        assert_eq!(refused("1ms:0.0:nic-gone", Medium::Interposer, false, true), "");
        assert_eq!(refused("1ms:0.0:nic-gone", Medium::Soft, false, false), "");
    }
}
