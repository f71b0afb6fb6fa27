//! What a kernel of a run has around it, and how it waits.

use std::rc::Rc;
use std::sync::Arc;

use shunt_device::{Channel, Deadline, Device, Fault, FaultKind, Lanes, Ticket};
use shunt_layout::state::DeviceState;

use crate::oracle::{Kind, Oracle};
use crate::sim::{Interference, PeWorld, SimPlatform};

/// A look may take this long beyond a deadline: one poll interval of a quiet world, and one interference.
pub const LATE_SLACK_NS: u64 = 500_000;

/// How often what is uncertain is looked for.
pub(crate) const RESOLVE_NS: u64 = 500_000;

/// A kernel's surroundings.
#[derive(Clone)]
pub struct Kernel {
    /// The world it lives in, by the clock of its PE.
    pub world: Arc<PeWorld>,
    /// The state of its PE; mapped as long as the run lasts.
    pub state: *const DeviceState,
    /// First address of its PE's heap.
    pub heap: u64,
    /// First address of each PE's heap.
    pub heaps: Rc<Vec<u64>>,
    /// A wait for a word is cut into waits of this length.
    pub slice_ns: u64,
    /// How it is disturbed.
    pub interference: Rc<Interference>,
    /// Where broken promises go.
    pub oracle: Oracle,
    /// Tickets of a ledger word.
    pub ledger_blocks: u64,
}

impl Kernel {
    /// The device of this kernel's PE.
    pub fn device(&self) -> Device<'_, SimPlatform<'_>> {
        let platform = SimPlatform::new(&self.world, &self.interference);
        // SAFETY: the cluster keeps the state mapped until every kernel has ended, and only uploads write the root.
        unsafe { Device::attach(self.state, platform) }.expect("the host wrote a state of this version")
    }

    pub(crate) fn deadline(&self, span_ns: u64) -> Deadline {
        Deadline::after(self.world.now(), span_ns)
    }

    /// What was taken from this kernel so far: by a clock that jumped, by stops of its process.
    pub(crate) fn taken_ns(&self) -> u64 {
        self.world.ahead_ns() + self.world.stopped_ns()
    }

    /// Invariant 6: a wait that was given `deadline` has just ended. `taken_ns` is what had been taken as it began.
    pub(crate) fn check_late(&self, deadline: Deadline, taken_ns: u64, what: &str) {
        let now = self.world.now();
        let taken_ns = self.taken_ns() - taken_ns;
        if let Some(late_ns) = late_ns(now, deadline, taken_ns)
            && self.interference.one_in.get() == 0
        {
            self.oracle.report(Kind::Late, now, format!("{what} ended {late_ns} ns after its deadline"));
        }
    }

    /// Quiet, over what is uncertain for a while: somebody else resolves it.
    pub(crate) fn quiet<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        deadline: Deadline,
    ) -> Result<(), Fault> {
        self.over_uncertain(channel, deadline, || channel.quiet(lanes, deadline))
    }

    /// Waits for a ticket, over what is uncertain for a while.
    pub(crate) fn wait<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        ticket: Ticket,
        span_ns: u64,
    ) -> Result<(), Fault> {
        let (deadline, taken_ns) = (self.deadline(span_ns), self.taken_ns());
        let waited = self.over_uncertain(channel, deadline, || channel.wait(lanes, ticket, deadline));
        self.check_late(deadline, taken_ns, "wait for a ticket");
        waited
    }

    fn over_uncertain(
        &self,
        channel: &Channel<'_, SimPlatform<'_>>,
        deadline: Deadline,
        mut wait: impl FnMut() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            match wait() {
                Err(fault) if fault.kind == FaultKind::Uncertain && channel.alive().is_ok() => {
                    if self.world.now() > deadline.at_ns {
                        return Err(fault);
                    }
                    self.world.sleep(RESOLVE_NS);
                }
                other => return other,
            }
        }
    }
}

/// How long after its deadline a wait ended, if that is too long. Who is stopped ends nothing, and whose clock jumps is
/// late by that at once: what was taken from the kernel during this wait is granted, and nothing from before it.
pub fn late_ns(now: u64, deadline: Deadline, taken_ns: u64) -> Option<u64> {
    let late_ns = now.saturating_sub(deadline.at_ns);
    (late_ns > taken_ns.saturating_add(LATE_SLACK_NS)).then_some(late_ns)
}
