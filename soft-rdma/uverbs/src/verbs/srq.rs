//! Shared receive queues: receive memory pools of the firmware, as the kernel makes them of basic ones.

use super::events::Notices;
use super::firmware::{self, Umem};
use super::invocation::Core;
use super::pd::Pd;
use crate::abi::Plain;
use crate::abi::ids::{DESTROY_RESPONSE, HANDLE, UHW_IN, UHW_OUT, create_srq};
use crate::abi::mlx5::{CreateSrq, CreateSrqResponse};
use crate::abi::uverbs::{ModifySrq, QuerySrq, QuerySrqResponse};
use crate::ioctl::{Call, Context, Resource};
use rustix::io::Errno;
use shunt_layout::mlx5::doorbell::RECORD_BYTES;
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::rmp::{
    CONTEXT_COMMAND_BYTES, NEXT_SEGMENT_BYTES, RMPC_OFFSET, STATE_READY, WQ_TYPE_LINKED_LIST,
    modify as fields, rmpc,
};
use shunt_layout::mlx5::wqe::SEGMENT_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Attributes of create.
pub const CREATE: &[u16] = &[
    HANDLE,
    create_srq::PD,
    create_srq::XRCD,
    create_srq::CQ,
    create_srq::USER_HANDLE,
    create_srq::MAX_WR,
    create_srq::MAX_SGE,
    create_srq::LIMIT,
    create_srq::MAX_TAGS,
    create_srq::TYPE,
    create_srq::EVENT_FD,
    create_srq::RESPONSE_MAX_WR,
    create_srq::RESPONSE_MAX_SGE,
    create_srq::RESPONSE_NUMBER,
    UHW_IN,
    UHW_OUT,
];

/// Most receives, and most pieces of one.
const MAX_WR: u32 = (1 << 15) - 1;
const MAX_SGE: u32 = 127;
/// Shortest WQE.
const MIN_STRIDE: u64 = 32;

/// A shared receive queue.
pub struct Srq {
    number: u32,
    shape: Shape,
    umems: [Umem; 2],
    /// Events its program read, once it is gone.
    read: AtomicU32,
}

impl Srq {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Resource for Srq {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        firmware::command(context.nic(), Opcode::DestroyRmp, self.number)?;
        self.umems.iter().for_each(Umem::release);
        self.read.store(context.events().remove_srq(self.number), Ordering::Release);
        Ok(())
    }
}

/// Sizes, as the library and the kernel both work them out: powers of two with room for one receive that is never
/// posted, because it ends the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    log_depth: u32,
    stride: u64,
}

impl Shape {
    fn of(max_wr: u32, max_sge: u32) -> Result<Self, Errno> {
        if max_wr > MAX_WR || max_sge > MAX_SGE {
            return Err(Errno::INVAL);
        }
        let stride = NEXT_SEGMENT_BYTES + max_sge as u64 * SEGMENT_BYTES as u64;
        let stride = stride.next_power_of_two().max(MIN_STRIDE);
        Ok(Self { log_depth: (max_wr + 1).next_power_of_two().ilog2(), stride })
    }

    fn max_wr(self) -> u32 {
        (1 << self.log_depth) - 1
    }

    fn max_sge(self) -> u32 {
        ((self.stride - NEXT_SEGMENT_BYTES) / SEGMENT_BYTES as u64) as u32
    }

    fn mailbox(self, pd: u32, limit: u32, umems: &[Umem; 2]) -> [u8; CONTEXT_COMMAND_BYTES] {
        let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
        input::OPCODE.set(&mut mailbox, Opcode::CreateRmp as u32);
        let context = &mut mailbox[RMPC_OFFSET..RMPC_OFFSET + rmpc::BYTES];
        rmpc::STATE.set(context, STATE_READY);
        rmpc::WQ_TYPE.set(context, WQ_TYPE_LINKED_LIST);
        rmpc::PD.set(context, pd);
        rmpc::LWM.set(context, limit);
        rmpc::LOG_WQ_STRIDE.set(context, self.stride.ilog2());
        rmpc::LOG_WQ_SZ.set(context, self.log_depth);
        rmpc::DBR_UMEM_VALID.set(context, 1);
        rmpc::DBR_UMEM_ID.set(context, umems[1].id());
        rmpc::WQ_UMEM_VALID.set(context, 1);
        rmpc::WQ_UMEM_ID.set(context, umems[0].id());
        mailbox
    }
}

/// Create.
pub fn create(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let others = [create_srq::XRCD, create_srq::CQ, create_srq::MAX_TAGS];
    if others.iter().any(|id| call.has(*id)) || call.input::<u32>(create_srq::TYPE)? != create_srq::BASIC {
        return Err(Errno::OPNOTSUPP);
    }
    let request: CreateSrq = call.input_grown(UHW_IN)?;
    if request.flags != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let shape = Shape::of(call.input(create_srq::MAX_WR)?, call.input(create_srq::MAX_SGE)?)?;
    let limit: u32 = call.input(create_srq::LIMIT)?;
    let user_handle: u64 = call.input(create_srq::USER_HANDLE)?;
    if limit > shape.max_wr() {
        return Err(Errno::INVAL);
    }
    let asynchronous = context.channel(call, create_srq::EVENT_FD)?;
    let pd = context.get::<Pd>(call.handle(create_srq::PD)?)?.number();
    let nic = context.nic();
    let umems = [
        Umem::register(nic, request.buffer, shape.stride << shape.log_depth, true)?,
        Umem::register(nic, request.record, RECORD_BYTES as u64, true)?,
    ];
    let number = firmware::create(nic, &shape.mailbox(pd, limit, &umems))?;
    context.events().add_srq(number, Notices::new(user_handle, None, asynchronous));
    let handle = context.insert(Arc::new(Srq { number, shape, umems, read: AtomicU32::new(0) }));
    answer(call, handle, number, shape).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Srq>(handle);
    })
}

fn answer(call: &mut Call, handle: u32, number: u32, shape: Shape) -> Result<(), Errno> {
    call.output(create_srq::RESPONSE_MAX_WR, shape.max_wr().bytes())?;
    call.output(create_srq::RESPONSE_MAX_SGE, shape.max_sge().bytes())?;
    call.output_if(create_srq::RESPONSE_NUMBER, &number)?;
    if call.has(UHW_OUT) {
        call.output(UHW_OUT, CreateSrqResponse { srqn: number, reserved: 0 }.bytes())?;
    }
    call.set_handle(HANDLE, handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let srq = context.destroy::<Srq>(call.handle(HANDLE)?)?;
    call.output(DESTROY_RESPONSE, srq.read.load(Ordering::Acquire).bytes())
}

/// MODIFY_SRQ: the limit below which one event comes. The size stays.
pub fn modify(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: ModifySrq = core.request()?;
    let srq = context.get::<Srq>(request.handle)?;
    match request.mask {
        0 => return Ok(()),
        create_srq::MODIFIES_LIMIT if request.limit <= srq.shape.max_wr() => {}
        _ => return Err(Errno::INVAL),
    }
    let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
    input::OPCODE.set(&mut mailbox, Opcode::ModifyRmp as u32);
    fields::STATE.set(&mut mailbox, STATE_READY);
    fields::RMPN.set(&mut mailbox, srq.number);
    fields::BITMASK_LOW.set(&mut mailbox, 1);
    rmpc::LWM.within(RMPC_OFFSET).set(&mut mailbox, request.limit);
    firmware::execute::<16>(context.nic(), &mailbox).map(|_| ())
}

/// QUERY_SRQ.
pub fn query(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: QuerySrq = core.request()?;
    core.check_room::<QuerySrqResponse>()?;
    let srq = context.get::<Srq>(request.handle)?;
    let mailbox = firmware::short(Opcode::QueryRmp, srq.number);
    let out = firmware::execute::<CONTEXT_COMMAND_BYTES>(context.nic(), &mailbox)?;
    core.reply(&QuerySrqResponse {
        max_wr: srq.shape.max_wr(),
        max_sge: srq.shape.max_sge(),
        limit: rmpc::LWM.within(RMPC_OFFSET).get(&out),
        reserved: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_librarys() {
        assert_eq!(Shape::of(500, 1), Ok(Shape { log_depth: 9, stride: 32 }));
        assert_eq!(Shape::of(512, 1).map(Shape::max_wr), Ok(1023));
        assert_eq!(Shape::of(1, 0), Ok(Shape { log_depth: 1, stride: 32 }));
        assert_eq!(Shape::of(1, 4).map(|shape| (shape.stride, shape.max_sge())), Ok((128, 7)));
        // As the kernel has it: a queue for nothing but the receive that is never posted.
        assert_eq!(Shape::of(0, 1).map(|shape| (shape.log_depth, shape.max_wr())), Ok((0, 0)));
        assert_eq!(Shape::of(MAX_WR + 1, 1), Err(Errno::INVAL));
        assert_eq!(Shape::of(1, MAX_SGE + 1), Err(Errno::INVAL));
    }
}
