//! Firmware: one command at a time, each with its latency, each answered with a status code.

mod create;
mod query;
mod refusal;
mod shared;
mod transition;

pub(crate) use refusal::Refusal;

use crate::fault::FaultKind;
use crate::nic::SoftNic;
use crate::profile::{CommandTime, Latency};
use crate::trace;
use shunt_layout::mlx5::prm::cmd::{Opcode, Status, input, output};
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mlx5::prm::{cq, mkey, pd, port, qp, rmp};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Smallest mailbox, in and out.
const HEADER_BYTES: usize = 16;
/// Output bytes of QUERY_ADAPTER, QUERY_MKEY and QUERY_CQ.
const QUERY_OUT_BYTES: usize = 272;

/// A submitted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

struct Queued {
    id: u64,
    due: u64,
    input: Vec<u8>,
    out_len: usize,
    /// `fw-timeout` counted it.
    stuck: bool,
}

/// The command queue of a NIC.
pub(crate) struct Firmware {
    queue: VecDeque<Queued>,
    answers: HashMap<u64, Vec<u8>>,
    submitted: u64,
    busy_until: u64,
    /// Executed, by opcode.
    executed: BTreeMap<u16, u64>,
    latency: Latency,
}

impl Firmware {
    /// Nothing submitted; `seed` decides what commands take where that is drawn.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            answers: HashMap::new(),
            submitted: 0,
            busy_until: 0,
            executed: BTreeMap::new(),
            latency: Latency::new(seed),
        }
    }

    /// What the next command takes.
    pub(crate) fn draw(&mut self, time: CommandTime) -> u64 {
        self.latency.draw(time)
    }

    pub(crate) fn submit(&mut self, now: u64, latency: u64, input: &[u8], out_len: usize) -> CommandId {
        let due = now.max(self.busy_until) + latency;
        self.busy_until = due;
        self.submitted += 1;
        let (id, input) = (self.submitted, input.to_vec());
        self.queue.push_back(Queued { id, due, input, out_len, stuck: false });
        CommandId(id)
    }

    pub(crate) fn take(&mut self, id: CommandId) -> Option<Vec<u8>> {
        self.answers.remove(&id.0)
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.front().map(|queued| queued.due)
    }
}

/// Mailbox bytes a command needs: in, out.
fn lengths(opcode: Opcode) -> (usize, usize) {
    match opcode {
        Opcode::CreateMkey => (mkey::CREATE_IN_BYTES, HEADER_BYTES),
        Opcode::CreateCq => (cq::CREATE_IN_BYTES, HEADER_BYTES),
        Opcode::CreateQp
        | Opcode::Rst2InitQp
        | Opcode::Init2InitQp
        | Opcode::Init2RtrQp
        | Opcode::Rtr2RtsQp
        | Opcode::Rts2RtsQp => (qp::CONTEXT_COMMAND_BYTES, HEADER_BYTES),
        Opcode::QueryAdapter | Opcode::QueryMkey | Opcode::QueryCq => (HEADER_BYTES, QUERY_OUT_BYTES),
        Opcode::QuerySpecialContexts => (HEADER_BYTES, pd::special::BYTES),
        Opcode::QueryQp => (HEADER_BYTES, qp::QUERY_OUT_BYTES),
        Opcode::CreateRmp | Opcode::ModifyRmp => (rmp::CONTEXT_COMMAND_BYTES, HEADER_BYTES),
        Opcode::QueryRmp => (HEADER_BYTES, rmp::CONTEXT_COMMAND_BYTES),
        Opcode::QueryNicVportContext => (HEADER_BYTES, port::NIC_VPORT_OUT_BYTES),
        Opcode::QueryRoceAddress => (HEADER_BYTES, port::ROCE_ADDRESS_OUT_BYTES),
        Opcode::QueryHcaVportContext => (HEADER_BYTES, port::HCA_VPORT_OUT_BYTES),
        Opcode::QueryHcaVportGid => (HEADER_BYTES, port::HCA_VPORT_GID_OUT_BYTES),
        Opcode::QueryHcaVportPkey => (HEADER_BYTES, port::HCA_VPORT_PKEY_OUT_BYTES),
        _ => (HEADER_BYTES, HEADER_BYTES),
    }
}

impl SoftNic {
    /// True while firmware does not finish commands.
    pub(crate) fn commands_stuck(&self) -> bool {
        let by_fault = self.faults.any()
            && self
                .faults
                .has(|kind| matches!(kind, FaultKind::FwTimeout { .. } | FaultKind::NicGone { .. }));
        by_fault || self.killed
    }

    /// Executes the commands that complete by `now`. True if there were any.
    pub(crate) fn run_commands(&mut self, now: u64) -> bool {
        let mut any = false;
        while self.firmware.queue.front().is_some_and(|queued| queued.due <= now) {
            if self.commands_stuck() {
                self.count_stuck_command();
                break;
            }
            let Some(queued) = self.firmware.queue.pop_front() else { break };
            let answer = self.execute(queued.due, &queued.input, queued.out_len);
            self.counters.commands += 1;
            if queued.input.len() >= HEADER_BYTES {
                *self.firmware.executed.entry(input::OPCODE.get(&queued.input) as u16).or_default() += 1;
            }
            self.firmware.answers.insert(queued.id, answer);
            any = true;
        }
        if any {
            self.wake();
        }
        any
    }

    fn count_stuck_command(&mut self) {
        let hangs = |kind: &FaultKind| matches!(kind, FaultKind::FwTimeout { .. });
        if self.firmware.queue.front().is_some_and(|queued| !queued.stuck)
            && self.faults.strikes(hangs)
            && let Some(queued) = self.firmware.queue.front_mut()
        {
            queued.stuck = true;
        }
    }

    /// Executes one mailbox. The answer has the length asked for, and at least a header.
    fn execute(&mut self, now: u64, mailbox: &[u8], out_len: usize) -> Vec<u8> {
        let mut out = vec![0; out_len.max(HEADER_BYTES)];
        if let Err(refusal) = self.dispatch_command(now, mailbox, out_len, &mut out) {
            out.fill(0);
            output::STATUS.set(&mut out, refusal.status() as u32);
            output::SYNDROME.set(&mut out, refusal.syndrome());
        }
        out
    }

    fn dispatch_command(
        &mut self,
        now: u64,
        mailbox: &[u8],
        room: usize,
        out: &mut [u8],
    ) -> Result<(), Refusal> {
        if mailbox.len() < HEADER_BYTES {
            return Err(Refusal::InputLength);
        }
        let raw = input::OPCODE.get(mailbox) as u16;
        let opcode = Opcode::from_raw(raw).ok_or(Refusal::UnknownOpcode)?;
        let (need_in, need_out) = lengths(opcode);
        if mailbox.len() < need_in {
            return Err(Refusal::InputLength);
        }
        if room < need_out {
            return Err(Refusal::OutputLength);
        }
        let object = input::OBJECT.get(mailbox);
        match opcode {
            Opcode::AllocPd => self.alloc_pd(out),
            Opcode::DeallocPd => self.dealloc_pd(object),
            Opcode::CreateMkey => self.create_mkey(mailbox, out),
            Opcode::DestroyMkey => self.destroy_mkey(object),
            Opcode::QueryMkey => self.query_mkey(object, out),
            Opcode::CreateCq => self.create_cq(mailbox, out),
            Opcode::DestroyCq => self.destroy_cq(object),
            Opcode::QueryCq => self.query_cq(object, out),
            Opcode::CreateQp => self.create_qp(mailbox, out),
            Opcode::DestroyQp => self.destroy_qp(object),
            Opcode::QueryQp => self.query_qp(object, out),
            Opcode::Rst2InitQp => self.rst2init(object, mailbox),
            Opcode::Init2RtrQp => self.init2rtr(object, mailbox),
            Opcode::Rtr2RtsQp => self.rtr2rts(object, mailbox),
            Opcode::Init2InitQp => self.same_state(object, State::Init, mailbox),
            Opcode::Rts2RtsQp => self.same_state(object, State::Rts, mailbox),
            Opcode::Qp2Err => self.err_qp(now, object),
            Opcode::Qp2Rst => self.reset_qp(object),
            Opcode::QueryHcaCap => self.query_hca_cap(mailbox, out),
            Opcode::QueryAdapter => self.query_adapter(out),
            Opcode::QuerySpecialContexts => self.query_special_contexts(out),
            Opcode::QueryVportState => self.query_vport_state(out),
            Opcode::QueryNicVportContext => self.query_nic_vport(out),
            Opcode::QueryRoceAddress => self.query_roce_address(mailbox, out),
            Opcode::QueryHcaVportContext => self.query_hca_vport(out),
            Opcode::QueryHcaVportGid => self.query_hca_vport_gid(mailbox, out),
            Opcode::QueryHcaVportPkey => self.query_hca_vport_pkey(mailbox, out),
            Opcode::Nop => Ok(()),
            Opcode::CreateRmp => self.create_rmp(mailbox, out),
            Opcode::ModifyRmp => self.modify_rmp(now, mailbox),
            Opcode::DestroyRmp => self.destroy_rmp(object),
            Opcode::QueryRmp => self.query_rmp(object, out),
        }
    }

    /// How many commands of each opcode were executed, refused ones among them.
    pub fn commands_by_opcode(&self) -> &BTreeMap<u16, u64> {
        &self.firmware.executed
    }

    /// The last commands that were not taken yet, as text, for a failing test.
    pub fn trace_commands(&self) -> Vec<String> {
        self.firmware.queue.iter().map(|queued| trace::command(&queued.input)).collect()
    }
}

/// A status code by name, for messages.
pub fn status_name(mailbox: &[u8]) -> &'static str {
    Status::name(mailbox.first().copied().unwrap_or(Status::InternalErr as u8))
}

/// What a 32-bit syndrome of this firmware means.
pub fn syndrome_meaning(mailbox: &[u8]) -> &'static str {
    let syndrome = if mailbox.len() >= 8 { output::SYNDROME.get(mailbox) } else { 0 };
    Refusal::ALL
        .iter()
        .find(|refusal| refusal.syndrome() == syndrome)
        .map_or("none", |refusal| refusal.meaning())
}
