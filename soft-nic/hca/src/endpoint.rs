//! What both halves of a queue pair share: who it is, its state, the other end, its timer and its turn.

use crate::completion_queue::Origin;
use crate::config::{LinkLayer, NicConfig};
use crate::dma::Owner;
use crate::step_context::StepContext;
use crate::timer::{NEVER, Timer, Timers};
use crate::units::Units;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::qp::{State, qpc};
use shunt_layout::mlx5::wqe::AddressVector;
use shunt_soft_wire::packet::{Body, NO_ROUTE, Packet};

/// What a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Reliable,
    Datagram,
    /// Sends to the target that each WQE names.
    DcInitiator,
    /// Takes connections of initiators.
    DcTarget,
    /// A target's end of one path.
    DcResponder,
}

impl Service {
    /// True for what is no queue pair to a program.
    pub(crate) fn is_hidden(self) -> bool {
        matches!(self, Self::DcTarget | Self::DcResponder)
    }
}

/// The other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) qpn: u32,
    /// GID, or LID on InfiniBand without a GRH.
    pub(crate) address: u128,
    pub(crate) mac: u64,
    /// NIC it leads to, valid for `epoch`.
    pub(crate) route: u32,
    epoch: u32,
}

impl Remote {
    /// Nobody: no NIC has this address, so nothing comes from it.
    pub(crate) const fn none() -> Self {
        Self::at(0, u128::MAX, 0)
    }

    /// A queue pair at an address; where that is, is not known yet.
    pub(crate) const fn at(qpn: u32, address: u128, mac: u64) -> Self {
        Self { qpn, address, mac, route: NO_ROUTE, epoch: 0 }
    }

    /// The queue pair that an address vector names.
    pub(crate) fn of(to: &AddressVector, link_layer: LinkLayer) -> Self {
        let by_lid = link_layer == LinkLayer::InfiniBand && !to.grh;
        let address = if by_lid { to.rlid as u128 } else { u128::from_be_bytes(to.rgid) };
        Self::at(to.qpn, address, to.rmac.iter().fold(0, |mac, byte| mac << 8 | *byte as u64))
    }

    /// Finds the NIC that owns the address, unless it is known.
    #[inline]
    pub(crate) fn resolve(&mut self, cx: &mut StepContext) {
        if self.epoch != cx.epoch {
            self.route = cx.route(self.address, self.mac);
            self.epoch = cx.epoch;
        }
    }
}

/// One end of a connection.
pub(crate) struct Endpoint {
    pub(crate) qpn: u32,
    pub(crate) state: State,
    pub(crate) service: Service,
    /// Key of datagrams.
    pub(crate) qkey: u32,
    pub(crate) pd: u32,
    pub(crate) user_index: u32,
    /// The number in its completions: its own, or its target's.
    pub(crate) told: u32,
    pub(crate) mtu: u32,
    pub(crate) log_max_message: u32,
    pub(crate) remote: Remote,
    /// Options of ECE in force.
    pub(crate) ece: u32,
    /// It has a receive queue.
    pub(crate) receives: bool,
    /// The context as software wrote it.
    pub(crate) context: [u8; qpc::BYTES],
    /// It stands in a transmit queue.
    queued: bool,
    /// The retry clock; in ERR, when posted work is flushed.
    timer: Timer,
    /// ERR and not all posted work flushed.
    flush_due: bool,
}

impl Endpoint {
    /// A new queue pair, in RST.
    pub(crate) fn new(
        qpn: u32,
        service: Service,
        receives: bool,
        log_max_message: u32,
        context: [u8; qpc::BYTES],
    ) -> Self {
        Self {
            qpn,
            state: State::Rst,
            service,
            qkey: 0,
            pd: qpc::PD.get(&context),
            user_index: qpc::USER_INDEX.get(&context),
            told: qpn,
            mtu: 256,
            log_max_message,
            remote: Remote::none(),
            ece: 0,
            receives,
            context,
            queued: false,
            timer: Timer::new(),
            flush_due: false,
        }
    }

    /// Back to RST, out of turn. The heap may still hold the old timer's entry; keeping the timer keeps their
    /// bookkeeping true.
    pub(crate) fn reset(&mut self) {
        self.state = State::Rst;
        self.remote = Remote::none();
        self.ece = 0;
        self.queued = false;
        self.flush_due = false;
        self.stop_clock();
    }

    /// Whose keys it uses.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        Owner { pd: self.pd, qpn: self.qpn }
    }

    /// What its completions say of it in a queue.
    #[inline]
    pub(crate) fn origin(&self, cqn: u32) -> Origin {
        Origin { cqn, qpn: self.told, user_index: self.user_index }
    }

    /// Puts it in the transmit queue, unless it is there.
    #[inline]
    pub(crate) fn want_turn(&mut self, units: &mut Units, cx: &mut StepContext) {
        if self.queued {
            return;
        }
        self.queued = true;
        self.remote.resolve(cx);
        units.transmit.push(self.qpn, self.remote.route == units.number);
    }

    /// Its turn came.
    #[inline]
    pub(crate) fn take_turn(&mut self) {
        self.queued = false;
    }

    /// True while it wants to send and waits for room at its destination.
    #[inline]
    pub(crate) fn is_paused(&self, cx: &StepContext) -> bool {
        self.queued && cx.remote_nics.is_full(self.remote.route)
    }

    /// Hands a packet to the other end to the fabric.
    #[inline]
    pub(crate) fn emit(&self, units: &mut Units, psn: u32, ack_request: bool, solicited: bool, body: Body) {
        units.send(Packet {
            from: units.number,
            to: self.remote.route,
            source: units.config.source_address(self.remote.address),
            qpn: self.remote.qpn,
            psn,
            ack_request,
            solicited,
            body,
        });
    }

    /// Restarts the clock, or stops it with [`NEVER`].
    #[inline]
    pub(crate) fn set_clock(&mut self, timers: &mut Timers, at: u64) {
        timers.set(&mut self.timer, self.qpn, at);
    }

    pub(crate) fn stop_clock(&mut self) {
        self.timer.at = NEVER;
    }

    /// True if the clock runs.
    #[inline]
    pub(crate) fn clock_runs(&self) -> bool {
        self.timer.at != NEVER
    }

    /// Judges an entry of the heap: true if the clock has run out.
    pub(crate) fn clock_ran_out(&mut self, timers: &mut Timers, filed_at: u64, now: u64) -> bool {
        timers.expired(&mut self.timer, self.qpn, filed_at, now)
    }

    /// Puts the queue pair into ERR: it neither sends nor answers from here on. Posted work is flushed a little later,
    /// as hardware does.
    pub(crate) fn enter_error(&mut self, units: &mut Units, now: u64) {
        self.state = State::Err;
        if self.receives && !units.failed_receivers.contains(&self.qpn) {
            units.failed_receivers.push(self.qpn);
        }
        self.flush_later(units, now);
    }

    /// Has posted work flushed a little later.
    pub(crate) fn flush_later(&mut self, units: &mut Units, now: u64) {
        if !self.flush_due {
            self.flush_due = true;
            self.set_clock(&mut units.timers, now + units.config.flush_ns);
        }
    }

    /// True while posted work is to be flushed.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.flush_due
    }

    /// Posted work is flushed now.
    pub(crate) fn begin_flush(&mut self) {
        self.flush_due = false;
    }

    /// True if writes to it land in any order. What turns round inside the NIC meets no switch.
    #[inline]
    pub(crate) fn is_unordered(&self, config: &NicConfig) -> bool {
        config.may_scatter()
            && (if self.remote.address == config.source_address(self.remote.address) {
                config.quirks.out_of_order_inside
            } else {
                config.quirks.out_of_order || self.is_routed_freely(config)
            })
    }

    /// True if the network may deliver its packets in any order.
    fn is_routed_freely(&self, config: &NicConfig) -> bool {
        let bit = |field: Field| field.get(&self.context) == 1;
        config.profile.order.scatters(bit(qpc::DP_ORDERING_FORCE), bit(qpc::DP_ORDERING_0))
    }

    /// True if QUERY_QP says that its data may land in any order. It does not look where the packets go.
    pub(crate) fn admits_disorder(&self, config: &NicConfig) -> bool {
        let quirks = &config.quirks;
        let odd = (quirks.out_of_order || quirks.out_of_order_inside) && !quirks.order_denied;
        odd || self.is_routed_freely(config)
    }
}
