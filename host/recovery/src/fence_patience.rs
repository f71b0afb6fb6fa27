//! How long a fence is awaited, and of which request it is said to be under way. Pure. Rules 10 and 13.

use super::health::Health;
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;

/// A fence is awaited this many times as long as a peer may be silent, counted from its begin, however much else than
/// "in hand" the peer says: with the packet lifetime, less than the device's own wait for a fence.
const ANSWER_PATIENCE: u64 = 3;
/// So many times as long, if the peer says all the while that it has its half in hand.
const IN_HAND_PATIENCE: u64 = 10;
/// So many times as long as a peer may be silent, at least, a NIC that has the fence in hand may still prove it: "not
/// provable" ends the channel.
const PROOF_PATIENCE: u64 = 2;

/// Until when the peer's half is awaited, of a fence that was begun then. A peer that works on it, thousands of others
/// before it, is given longer, but never longer than the switcher waits: with the own half in ERR and the packet
/// lifetime over the signal words are proof enough, and a channel that is dead has no use for a better one.
pub fn awaited_until_ns(
    begun_ns: Nanos,
    in_hand_ns: Option<Nanos>,
    peer_ns: Nanos,
    switcher_ns: Nanos,
) -> Nanos {
    let least_ns = begun_ns + peer_ns * ANSWER_PATIENCE;
    let most_ns = begun_ns + switcher_ns.min(peer_ns * IN_HAND_PATIENCE);
    least_ns.max(in_hand_ns.map_or(Nanos::ZERO, |said_ns| (said_ns + peer_ns).min(most_ns)))
}

/// How long a fence that nobody has proved may still be proved. The channel is lost with it, so a NIC that answers
/// nothing is given what a path that carries nothing is, though no longer than the switcher waits.
pub fn proof_awaited_ns(peer_ns: Nanos, give_up_ns: Nanos, switcher_ns: Nanos) -> Nanos {
    let least_ns = peer_ns * PROOF_PATIENCE;
    if Mutant::ProofHasty.on() { least_ns } else { least_ns.max(give_up_ns.min(switcher_ns)) }
}

/// The request of which is to be said that it is in hand. One word a channel: an older request, of another pair, must
/// not hide the newest one (H8).
pub fn to_say(asked: Option<u64>, health: Health, newest: u64) -> Option<u64> {
    asked.filter(|request| health == Health::Fencing && *request == newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_request_is_not_said_to_be_in_hand() {
        assert_eq!(to_say(Some(7), Health::Fencing, 7), Some(7));
        assert_eq!(to_say(Some(6), Health::Fencing, 7), None, "it would hide the newest one");
        assert_eq!(to_say(Some(7), Health::Fenced, 7), None, "it is answered");
        assert_eq!(to_say(None, Health::Fencing, 7), None);
    }

    /// A peer that says so for ever must not outlast the switcher, which would end the channel.
    #[test]
    fn in_hand_is_no_answer() {
        let ns = Nanos::new;
        let until_ns = |said: Option<u64>, switcher_ns| {
            awaited_until_ns(ns(1_000), said.map(ns), ns(500), ns(switcher_ns)).get()
        };
        assert_eq!(until_ns(None, 100_000), 2_500);
        assert_eq!(until_ns(Some(1_100), 100_000), 2_500, "what it is given anyway");
        assert_eq!(until_ns(Some(2_400), 100_000), 2_900);
        assert_eq!(until_ns(Some(5_900), 100_000), 6_000, "ten times its patience");
        assert_eq!(until_ns(Some(u64::MAX), 100_000), 6_000);
        assert_eq!(until_ns(Some(5_900), 4_000), 5_000, "as long as the switcher");
        assert_eq!(until_ns(Some(5_900), 0), 2_500);
    }

    #[test]
    fn a_proof_is_awaited_as_long_as_a_path() {
        let awaited_ns = |peer_ns: u64, give_up_ns: u64, switcher_ns: u64| {
            proof_awaited_ns(peer_ns.into(), give_up_ns.into(), switcher_ns.into()).get()
        };
        assert_eq!(awaited_ns(500, 0, 100_000), 1_000);
        assert_eq!(awaited_ns(500, 1_000, 100_000), 1_000);
        assert_eq!(awaited_ns(500, 30_000, 100_000), 30_000);
        assert_eq!(awaited_ns(500, 30_000, 4_000), 4_000, "as long as the switcher");
        assert_eq!(awaited_ns(500, 30_000, 0), 1_000);
    }
}
