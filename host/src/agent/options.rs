//! The agent's own patience: as it is given, and as its machines read it.

use super::path::Timing;
use crate::nanos::Nanos;
use crate::pe::PROVE_NS;
use shunt_layout::state::Policy;

/// The agent's own patience. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// Packet lifetime (`SHUNT_MPL`): nothing a fenced QP sent is in the network after it.
    pub lifetime_ns: u64,
    /// How long the peer's half of a fence is awaited before it counts as silent.
    pub peer_ns: u64,
    /// How long a NIC of this PE may owe an answer to a command before its pairs count as not fenced here.
    pub nic_ns: u64,
    /// When a peer that should have answered is told again, over the rails as well.
    pub doubt_ns: u64,
    /// When it is told once more; doubled each time, up to a quarter of `peer_ns`.
    pub resend_ns: u64,
    /// Good probes wanted before a recreated path may be used.
    pub probes: u32,
    /// Time between probes.
    pub probe_ns: u64,
    /// Longest a revival may take from its first half to its last probe.
    pub revive_ns: u64,
    /// First pause after a failed revival, doubled with each failure.
    pub backoff_ns: u64,
    /// Time between looks at a port that is down, in case its event was lost.
    pub port_poll_ns: u64,
    /// Time between two looks for peers whose agent is out of reach; the largest number: none is made.
    pub touch_ns: u64,
    /// Channels looked after in one step; 0 leaves every switch to the kernels.
    pub looks: usize,
    /// How long after its start the agent has idle backups proved; the largest number: never.
    pub prove_ns: u64,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            lifetime_ns: 50_000_000,
            peer_ns: 500_000_000,
            nic_ns: 200_000_000,
            doubt_ns: 2_000_000,
            resend_ns: 10_000_000,
            probes: 3,
            probe_ns: 1_000_000,
            revive_ns: 2_000_000_000,
            backoff_ns: 20_000_000,
            port_poll_ns: 100_000_000,
            touch_ns: 20_000_000,
            looks: 64,
            prove_ns: PROVE_NS,
        }
    }
}

impl AgentOptions {
    /// What is said at start where the give-up time is shorter than the longest fence that may end well: a NIC and a
    /// peer that do not answer, and the packet lifetime.
    pub(super) fn misfit(&self, policy: &Policy) -> Option<String> {
        let fence_ns = self.nic_ns + self.peer_ns + self.lifetime_ns;
        let (give_up, fence) = (Nanos::new(policy.give_up_ns), Nanos::new(fence_ns));
        (give_up <= fence).then(|| {
            let ms = |span: Nanos| span.get() / 1_000_000;
            let none = policy.give_up_ns == 0;
            let at_once = if none { ", which gives up at the first moment without a path" } else { "" };
            format!(
                "SHUNT_GIVE_UP: expected more than {} ms, which a fence may take where a NIC or peer does not answer, \
                 got {} ms{at_once}; a peer may be given up though a backup would carry on",
                ms(fence),
                ms(give_up)
            )
        })
    }

    /// How patient machines of paths are, for channels of so many slots under a policy.
    pub(super) fn timing(&self, policy: &Policy, slots: u32) -> Timing {
        // How long after it asked a switcher still waits for one that has its fence in hand: of the bound of its chain,
        // all but one wait and the packet lifetime that may follow.
        let fence = Nanos::new(policy.fence_wait_ns);
        let path = Nanos::new(policy.suspect_ns) + fence;
        let chain = Nanos::new(policy.give_up_ns) + path * u64::from(slots);
        let lifetime = self.lifetime_ns.into();
        Timing {
            lifetime,
            peer: self.peer_ns.into(),
            doubt: self.doubt_ns.into(),
            resend: self.resend_ns.into(),
            probes: self.probes,
            probe: self.probe_ns.into(),
            revive: self.revive_ns.into(),
            backoff: self.backoff_ns.into(),
            owner: chain - fence - lifetime,
            give_up: policy.give_up_ns.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EnvConfig, policy};

    /// A peer was given up while its path was being fenced.
    #[test]
    fn a_give_up_time_that_no_fence_fits_in_is_told() {
        let options = AgentOptions::default();
        let told = |give_up_ns| options.misfit(&policy(&EnvConfig { give_up_ns, ..EnvConfig::default() }));
        assert_eq!(options.misfit(&policy(&EnvConfig::default())), None, "the defaults fit each other");
        assert!(told(0).is_some_and(|said| said.contains("got 0 ms, which gives up at the first moment")));
        let said = told(300_000_000).expect("too short");
        assert!(
            said.starts_with("SHUNT_GIVE_UP: expected more than 750 ms") && said.contains("got 300 ms"),
            "{said}"
        );
    }
}
