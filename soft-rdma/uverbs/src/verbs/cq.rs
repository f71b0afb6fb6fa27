//! Completion queues.

use super::device::comp_vectors;
use super::events::Notices;
use super::firmware::{self, Umem};
use super::invocation::Core;
use crate::abi::Plain;
use crate::abi::ids::{DESTROY_RESPONSE, HANDLE, UHW_IN, UHW_OUT, create_cq};
use crate::abi::mlx5::{CQ_UAR_PAGE_INDEX, CreateCq, CreateCqResponse};
use crate::abi::uverbs::CqEvents;
use crate::ioctl::{Call, Context, Resource};
use crate::user;
use rustix::io::Errno;
use shunt_layout::mlx5::cqe::CQE_BYTES;
use shunt_layout::mlx5::doorbell::{ARM_WORD_OFFSET, RECORD_BYTES};
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::cq::{CQC_OFFSET, CREATE_IN_BYTES, cqc, create as fields};
use shunt_soft_machine::log::Level;
use std::sync::{Arc, Mutex, PoisonError};

/// Attributes of create.
pub const CREATE: &[u16] = &[
    HANDLE,
    create_cq::CQE,
    create_cq::USER_HANDLE,
    create_cq::CHANNEL,
    create_cq::VECTOR,
    create_cq::FLAGS,
    create_cq::RESPONSE_CQE,
    create_cq::EVENT_FD,
    UHW_IN,
    UHW_OUT,
];

/// A word that is no request for an event: bits are set that none has.
const NO_REQUEST: u32 = !0;

/// A completion queue.
pub struct Cq {
    number: u32,
    umems: [Umem; 2],
    /// What its program read of its events, once it is gone.
    read: Mutex<CqEvents>,
}

impl Cq {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Resource for Cq {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        firmware::command(context.nic(), Opcode::DestroyCq, self.number)?;
        self.umems.iter().for_each(Umem::release);
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = context.events().remove_cq(self.number);
        Ok(())
    }
}

/// What a program asks for.
struct Wanted {
    request: CreateCq,
    entries: u32,
    ignore_overrun: bool,
}

impl Wanted {
    fn read(call: &Call) -> Result<Self, Errno> {
        let cqe: u32 = call.input(create_cq::CQE)?;
        let request: CreateCq = call.input_grown(UHW_IN)?;
        let flags = call.input_or(create_cq::FLAGS, 0u32)?;
        if flags & !(create_cq::TIMESTAMPS | create_cq::IGNORE_OVERRUN) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let entries = cqe.checked_add(1).and_then(u32::checked_next_power_of_two);
        let entries = entries.filter(|entries| cqe > 0 && *entries <= 1 << 24).ok_or(Errno::INVAL)?;
        if call.input::<u32>(create_cq::VECTOR)? >= comp_vectors() {
            return Err(Errno::INVAL);
        }
        if request.cqe_bytes as usize != CQE_BYTES || request.compressed != 0 {
            shunt_soft_machine::log!(
                Level::Warn,
                "completion entries of 64 bytes, not compressed, are all there are"
            );
            return Err(Errno::OPNOTSUPP);
        }
        if request.flags & !CQ_UAR_PAGE_INDEX != 0 || request.flags & CQ_UAR_PAGE_INDEX == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Self { request, entries, ignore_overrun: flags & create_cq::IGNORE_OVERRUN != 0 })
    }

    fn mailbox(&self, umems: &[Umem; 2], eqn: u32) -> [u8; CREATE_IN_BYTES] {
        let mut mailbox = [0; CREATE_IN_BYTES];
        input::OPCODE.set(&mut mailbox, Opcode::CreateCq as u32);
        fields::CQ_UMEM_ID.set(&mut mailbox, umems[0].id());
        fields::CQ_UMEM_VALID.set(&mut mailbox, 1);
        let context = &mut mailbox[CQC_OFFSET..CQC_OFFSET + cqc::BYTES];
        cqc::DBR_UMEM_VALID.set(context, 1);
        cqc::DBR_UMEM_ID.set(context, umems[1].id());
        cqc::OI.set(context, self.ignore_overrun as u32);
        cqc::LOG_CQ_SIZE.set(context, self.entries.ilog2());
        cqc::UAR_PAGE.set(context, self.request.uar_page as u32);
        cqc::C_EQN.set(context, eqn & 0xff);
        mailbox
    }
}

/// Create.
pub fn create(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let wanted = Wanted::read(call)?;
    let user_handle: u64 = call.input(create_cq::USER_HANDLE)?;
    let completions = context.channel(call, create_cq::CHANNEL)?;
    let asynchronous = context.channel(call, create_cq::EVENT_FD)?;
    let (nic, request) = (context.nic(), &wanted.request);
    let bytes = wanted.entries as u64 * CQE_BYTES as u64;
    let umems = [
        Umem::register(nic, request.buffer, bytes, true)?,
        Umem::register(nic, request.record, RECORD_BYTES as u64, true)?,
    ];
    // The library fills the record in before and never reads this word: no request looks like it, so that the first
    // one is seen even if the register it is rung in was overwritten.
    user::write(request.record + ARM_WORD_OFFSET as u64, &NO_REQUEST.to_ne_bytes())?;
    let eqn = nic.with(|nic| nic.query_eqn());
    let number = firmware::create(nic, &wanted.mailbox(&umems, eqn))?;
    context.events().add_cq(number, Notices::new(user_handle, completions, asynchronous));
    let handle = context.insert(Arc::new(Cq { number, umems, read: Mutex::default() }));
    answer(call, handle, number, wanted.entries - 1).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Cq>(handle);
    })
}

fn answer(call: &mut Call, handle: u32, number: u32, cqe: u32) -> Result<(), Errno> {
    call.output(create_cq::RESPONSE_CQE, cqe.bytes())?;
    call.output(UHW_OUT, CreateCqResponse { cqn: number, reserved: 0 }.bytes())?;
    call.set_handle(HANDLE, handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let cq = context.destroy::<Cq>(call.handle(HANDLE)?)?;
    let read = *cq.read.lock().unwrap_or_else(PoisonError::into_inner);
    call.output(DESTROY_RESPONSE, read.bytes())
}

/// RESIZE_CQ: this NIC cannot.
pub fn resize(_: &Context, _: &mut Core) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}
