//! Firmware: one command at a time, each with its latency, each answered with a status code.

mod create;
mod create_qp;
mod dct;
mod limits;
mod pool;
mod query;
mod query_port;
mod transition;

pub use crate::status::{status_name, syndrome_meaning};

use crate::hca::Hca;
use crate::profile::{CommandTime, Latency};
use crate::status::Refusal;
use shunt_layout::mlx5::prm::cmd::{Opcode, input, output};
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mlx5::prm::{cq, dct as target, mkey, pd, port, qp, rmp};
use shunt_soft_fault::{FaultKind, Faults};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Smallest mailbox, in and out.
const HEADER_BYTES: usize = 16;

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

    /// Queues a command, which takes what is drawn from `time`, or else `constant_ns`.
    pub(crate) fn submit(
        &mut self,
        now: u64,
        time: Option<CommandTime>,
        constant_ns: u64,
        input: &[u8],
        out_len: usize,
    ) -> CommandId {
        let latency = time.map_or(constant_ns, |time| self.latency.draw(time));
        let due = now.max(self.busy_until) + latency;
        self.busy_until = due;
        self.submitted += 1;
        let (id, input) = (self.submitted, input.to_vec());
        self.queue.push_back(Queued { id, due, input, out_len, stuck: false });
        CommandId(id)
    }

    /// The answer to a command, once.
    pub(crate) fn take(&mut self, id: CommandId) -> Option<Vec<u8>> {
        self.answers.remove(&id.0)
    }

    /// When the next command completes.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.front().map(|queued| queued.due)
    }

    /// When all that were submitted are complete.
    pub(crate) fn done_at(&self) -> u64 {
        self.busy_until
    }

    /// True if a command completes by `now`.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    /// The command that is due does not finish: once for each counts as a hit.
    pub(crate) fn count_stuck(&mut self, faults: &mut Faults) {
        let hangs = |kind: &FaultKind| matches!(kind, FaultKind::FwTimeout { .. });
        if let Some(queued) = self.queue.front_mut()
            && !queued.stuck
        {
            queued.stuck = faults.strikes(hangs);
        }
    }

    /// Has the oldest command executed: at its instant, with its mailbox and room for the answer.
    pub(crate) fn run_one(&mut self, execute: impl FnOnce(u64, &[u8], usize) -> Vec<u8>) {
        let Some(queued) = self.queue.pop_front() else { return };
        let answer = execute(queued.due, &queued.input, queued.out_len);
        if queued.input.len() >= HEADER_BYTES {
            *self.executed.entry(input::OPCODE.get(&queued.input) as u16).or_default() += 1;
        }
        self.answers.insert(queued.id, answer);
    }

    /// How many commands of each opcode were executed, refused ones among them.
    pub(crate) fn executed(&self) -> &BTreeMap<u16, u64> {
        &self.executed
    }

    /// The mailboxes of those that were not executed yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &[u8]> {
        self.queue.iter().map(|queued| &queued.input[..])
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
        Opcode::QueryAdapter | Opcode::QueryMkey | Opcode::QueryCq => (HEADER_BYTES, query::OUT_BYTES),
        Opcode::QuerySpecialContexts => (HEADER_BYTES, pd::special::BYTES),
        Opcode::QueryQp => (HEADER_BYTES, qp::QUERY_OUT_BYTES),
        Opcode::CreateDct => (target::CONTEXT_COMMAND_BYTES, HEADER_BYTES),
        Opcode::QueryDct => (HEADER_BYTES, target::CONTEXT_COMMAND_BYTES),
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

/// Executes one mailbox. The answer has the length asked for, and at least a header.
pub(crate) fn execute(hca: &mut Hca, now: u64, mailbox: &[u8], out_len: usize) -> Vec<u8> {
    let mut out = vec![0; out_len.max(HEADER_BYTES)];
    if let Err(refusal) = dispatch(hca, now, mailbox, out_len, &mut out) {
        out.fill(0);
        output::STATUS.set(&mut out, refusal.status() as u32);
        output::SYNDROME.set(&mut out, refusal.syndrome());
    }
    out
}

/// True for commands about a queue pair: targets of dynamically connected transport share their numbers.
fn is_of_queue_pairs(opcode: Opcode) -> bool {
    (Opcode::DestroyQp as u16..=Opcode::Init2InitQp as u16).contains(&(opcode as u16))
}

fn dispatch(hca: &mut Hca, now: u64, mailbox: &[u8], room: usize, out: &mut [u8]) -> Result<(), Refusal> {
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
    if is_of_queue_pairs(opcode) && hca.qps.get(object).is_some_and(|qp| qp.endpoint.service.is_hidden()) {
        return Err(Refusal::NoSuchQp);
    }
    match opcode {
        Opcode::AllocPd => create::alloc_pd(hca, out),
        Opcode::DeallocPd => create::dealloc_pd(hca, object),
        Opcode::CreateMkey => create::create_mkey(hca, mailbox, out),
        Opcode::DestroyMkey => create::destroy_mkey(&mut hca.units.memory, object),
        Opcode::QueryMkey => query::mkey(&hca.units.memory, object, out),
        Opcode::CreateCq => create::create_cq(hca, mailbox, out),
        Opcode::DestroyCq => create::destroy_cq(hca, object),
        Opcode::QueryCq => query::cq(&hca.units.cqs, object, out),
        Opcode::CreateQp => create_qp::create_qp(hca, mailbox, out),
        Opcode::DestroyQp => create_qp::destroy_qp(hca, object),
        Opcode::QueryQp => query::qp(hca, object, out),
        Opcode::Rst2InitQp => transition::rst2init(hca, object, mailbox, out),
        Opcode::Init2RtrQp => transition::init2rtr(hca, object, mailbox, out),
        Opcode::Rtr2RtsQp => transition::rtr2rts(hca, object, mailbox, out),
        Opcode::Init2InitQp => transition::same_state(hca, object, State::Init, mailbox, out),
        Opcode::Rts2RtsQp => transition::same_state(hca, object, State::Rts, mailbox, out),
        Opcode::Qp2Err => transition::err_qp(hca, now, object),
        Opcode::Qp2Rst => transition::reset_qp(hca, object),
        Opcode::QueryHcaCap => query::hca_cap(&hca.units.config, mailbox, out),
        Opcode::QueryAdapter => query::adapter(out),
        Opcode::QuerySpecialContexts => query::special_contexts(out),
        Opcode::QueryVportState => query_port::vport_state(&hca.port, out),
        Opcode::QueryNicVportContext => query_port::nic_vport(&hca.units.config, out),
        Opcode::QueryRoceAddress => query_port::roce_address(&hca.units.config, mailbox, out),
        Opcode::QueryHcaVportContext => query_port::hca_vport(&hca.units.config, &hca.port, out),
        Opcode::QueryHcaVportGid => query_port::hca_vport_gid(&hca.units.config, mailbox, out),
        Opcode::QueryHcaVportPkey => query_port::hca_vport_pkey(&hca.units.config, mailbox, out),
        Opcode::CreateDct => dct::create_dct(hca, mailbox, out),
        Opcode::DestroyDct => dct::destroy_dct(hca, object),
        Opcode::QueryDct => dct::query_dct(hca, object, out),
        Opcode::Nop => Ok(()),
        Opcode::CreateRmp => pool::create_rmp(hca, mailbox, out),
        Opcode::ModifyRmp => pool::modify_rmp(&mut hca.units, now, mailbox),
        Opcode::DestroyRmp => pool::destroy_rmp(&mut hca.units, object),
        Opcode::QueryRmp => pool::query_rmp(&hca.units, object, out),
    }
}
