//! The health of a path (pure): a table of state x observation -> state, action. No clock, no pointers.
//!
//! Health is kept per path, not per NIC and not per GPU: one peer's dead NIC must not make us blame our own.
//! Only the agent moves it. Suspicion never leads here by itself: a path leaves `Ready` only when somebody
//! asks for its fence.

/// Where a path stands. The pair's life is rule 17: ready, fenced, released, recreated, probed, ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Connected: in use or on standby.
    Ready,
    /// This half is being moved to ERR, or is in it; the other half's answer is awaited.
    Fencing,
    /// Both halves are in ERR, both truths are stored.
    Fenced,
    /// Both directions have left; waiting for the packet lifetime, the ports and the backoff.
    Released,
    /// New halves are being made and connected.
    Connecting,
    /// Connected again; probes are under way in both directions.
    Probing,
    /// Taken out by the operator.
    Retired,
}

/// What the agent sees happen to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Observation {
    /// This PE's switcher or the peer asks for the fence.
    FenceAsked,
    /// Both halves fenced, both answers in.
    PairFenced,
    /// Both directions have taken their cut and left.
    BothLeft,
    /// Packet lifetime and backoff are over and both ports are up.
    Due,
    /// The new halves are connected.
    Connected,
    /// Probes answered, in both directions, as many as wanted.
    Proved,
    /// A probe failed, or a step of the revival took too long.
    Failed,
    /// The operator takes the path out.
    Retire,
    /// The operator brings the path back.
    Readmit,
}

/// What the agent does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Move this half to ERR, read it, flush, tell the peer.
    Fence,
    /// Answer the switcher.
    Answer,
    /// Arm the timers of the revival.
    Rest,
    /// Make a new half under the next incarnation.
    Recreate,
    /// Post probes.
    Probe,
    /// Let switchers use the path.
    Admit,
    /// Fence what was recreated, with a longer backoff.
    FenceAgain,
}

impl Health {
    /// Every state, for tables and drawings.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Fencing,
        Self::Fenced,
        Self::Released,
        Self::Connecting,
        Self::Probing,
        Self::Retired,
    ];

    /// The next state and what to do.
    pub const fn observe(self, what: Observation) -> (Self, Action) {
        use Observation as O;
        match (self, what) {
            (Self::Ready, O::FenceAsked | O::Retire) => (Self::Fencing, Action::Fence),
            // What was recreated and fails keeps its incarnation number used: rule 17, never twice.
            (Self::Connecting | Self::Probing, O::FenceAsked | O::Failed) => {
                (Self::Fencing, Action::FenceAgain)
            }
            (Self::Probing, O::Proved) => (Self::Ready, Action::Admit),
            (Self::Fencing, O::PairFenced) => (Self::Fenced, Action::Answer),
            (Self::Fenced, O::FenceAsked) => (Self::Fenced, Action::Answer),
            (Self::Released, O::FenceAsked) => (Self::Released, Action::Answer),
            (Self::Fenced, O::BothLeft) => (Self::Released, Action::Rest),
            (Self::Released, O::Due) => (Self::Connecting, Action::Recreate),
            (Self::Connecting, O::Connected) => (Self::Probing, Action::Probe),
            (Self::Released, O::Retire) => (Self::Retired, Action::Keep),
            (Self::Retired, O::Readmit) => (Self::Released, Action::Rest),
            (state, _) => (state, Action::Keep),
        }
    }
}

impl Observation {
    /// Every observation, for tables and drawings.
    pub const ALL: [Self; 9] = [
        Self::FenceAsked,
        Self::PairFenced,
        Self::BothLeft,
        Self::Due,
        Self::Connected,
        Self::Proved,
        Self::Failed,
        Self::Retire,
        Self::Readmit,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, so that a change of any entry is seen in review. Entries that keep their state are
    /// left out.
    #[test]
    fn the_table_is_the_one_in_the_docs() {
        let mut table = String::new();
        for state in Health::ALL {
            for what in Observation::ALL {
                let (next, action) = state.observe(what);
                if (next, action) != (state, Action::Keep) {
                    table += &format!("{state:?} + {what:?} -> {next:?}, {action:?}\n");
                }
            }
        }
        let expected = "Ready + FenceAsked -> Fencing, Fence\n\
            Ready + Retire -> Fencing, Fence\n\
            Fencing + PairFenced -> Fenced, Answer\n\
            Fenced + FenceAsked -> Fenced, Answer\n\
            Fenced + BothLeft -> Released, Rest\n\
            Released + FenceAsked -> Released, Answer\n\
            Released + Due -> Connecting, Recreate\n\
            Released + Retire -> Retired, Keep\n\
            Connecting + FenceAsked -> Fencing, FenceAgain\n\
            Connecting + Connected -> Probing, Probe\n\
            Connecting + Failed -> Fencing, FenceAgain\n\
            Probing + FenceAsked -> Fencing, FenceAgain\n\
            Probing + Proved -> Ready, Admit\n\
            Probing + Failed -> Fencing, FenceAgain\n\
            Retired + Readmit -> Released, Rest\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_path_is_admitted_only_after_probing() {
        for state in Health::ALL {
            for what in Observation::ALL {
                if state.observe(what).1 == Action::Admit {
                    assert_eq!((state, what), (Health::Probing, Observation::Proved));
                }
            }
        }
    }
}
