//! A channel's fault in words: peer, path, syndrome, unfinished tickets, and how each of its paths stands.

use crate::failure::{Broken, Failure};
use shunt_device::{Fault, FaultKind, Operation};
use shunt_host::agent::standing::{standings, syndrome_text};
use shunt_host::agent::words::{Place, StateWords};
use std::fmt::Write;

/// What is known of an operation (`applied`: that it was), how the program goes on, and which setting avoids the
/// question.
fn uncertain(fault: &Fault, applied: bool) -> String {
    let known = match applied {
        true => "was applied, and its answer is lost",
        false => "may or may not have been applied",
    };
    // By default the owner executes what returns a value, and other atomics are the NIC's.
    let operation = fault.operation();
    let (what, avoids) = match operation {
        Operation::Fetch => ("an atomic that returns a value", "auto"),
        _ => ("a signal, or an atomic that returns none,", "exact"),
    };
    format!(
        "{what} at heap offset {:#x} {known}: shunt_nvshmem_resolve lets the channel go on, before \
         SHUNT_GIVE_UP is over; with SHUNT_FETCH={avoids} the word's owner executes it, and this does not happen",
        fault.address
    )
}

/// What would have helped a job whose fault tolerance was turned off.
const OFF: &str = "; fault tolerance is off, NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE=1 goes on by another path \
                   where there is one";

/// The failure that a fault of a channel is. `gone`: what is known of the peer's process, if it is not there.
pub(super) fn broken(words: &StateWords, gone: Option<String>, fault: &Fault) -> Failure {
    let (me, peer, channel) = (words.root().my_pe, fault.peer, fault.channel);
    let active = words.read_row(Place { peer, channel, slot: fault.slot });
    let (local, remote) = (active.identity.local_rail, active.identity.remote_rail);
    let mut text = format!(
        "peer {peer} on channel {channel}, path {me}.{local}>{peer}.{remote}: {}; ticket {}, {} operations \
             unfinished; first cause {}, {}",
        fault.kind.meaning(),
        fault.at.0,
        fault.unfinished,
        fault.cause.name(),
        syndrome_text(fault.syndrome)
    );
    if fault.kind == FaultKind::Uncertain {
        let _ = write!(text, "; {}", uncertain(fault, words.was_executed(peer, channel, fault.at.0)));
    }
    if words.root().policy.fault_tolerance == 0 {
        text.push_str(OFF);
    }
    if let Some(gone) = gone {
        let _ = write!(text, "; {gone}");
    }
    for (line, _) in standings(words, (peer, channel), fault.kind == FaultKind::PeerLost) {
        let _ = write!(text, "\n    {line}");
    }
    Failure::Channel(Box::new(Broken {
        peer,
        channel,
        rails: (local, remote),
        ticket: fault.at.0,
        unfinished: fault.unfinished,
        syndrome: fault.syndrome,
        uncertain: matches!(fault.kind, FaultKind::Uncertain | FaultKind::AnswerLost),
        text,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_device::Ticket;
    use shunt_layout::state::CauseKind;

    /// A program that is told of both alike cannot know whether to repeat the operation.
    #[test]
    fn what_was_known_of_an_operation_is_said() {
        let fault = |op| Fault {
            kind: FaultKind::Uncertain,
            cause: CauseKind::PortDown,
            peer: 1,
            channel: 0,
            slot: 0,
            at: Ticket(7),
            unfinished: 1,
            syndrome: 0,
            op,
            address: 0x40,
        };
        let lost = uncertain(&fault(Operation::Fetch as u32), true);
        assert!(
            lost.starts_with(
                "an atomic that returns a value at heap offset 0x40 was applied, and its answer is lost"
            ),
            "{lost}"
        );
        let unknown = uncertain(&fault(Operation::Add as u32), false);
        let want =
            "a signal, or an atomic that returns none, at heap offset 0x40 may or may not have been applied";
        assert!(unknown.starts_with(want), "{unknown}");
        // By default a fetch is the owner's: the setting that avoids it is not the dearest one.
        assert!(
            lost.contains("SHUNT_FETCH=auto") && unknown.contains("SHUNT_FETCH=exact"),
            "{lost}\n{unknown}"
        );
        assert!(
            [lost, unknown].iter().all(|text| text.contains("shunt_nvshmem_resolve lets the channel go on"))
        );
    }
}
