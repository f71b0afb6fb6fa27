//! A shared receive queue of libibverbs on a soft NIC.

use std::cell::RefCell;
use std::sync::Arc;

use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_host::devx::Devx;
use shunt_host::error::NicError;
use shunt_host::nic::umem::{QUEUE_ALIGN, Umem};
use shunt_host::nic::{create, execute, short_in};
use shunt_layout::mlx5::doorbell::{self, RECEIVE_COUNTER_OFFSET};
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::rmp::{
    CONTEXT_COMMAND_BYTES, NEXT_SEGMENT_BYTES, RMPC_OFFSET, STATE_READY, WQ_TYPE_LINKED_LIST, rmpc,
};
use shunt_layout::mlx5::wqe;
use shunt_mlx5_sys as sys;

use super::memory::{EINVAL, ENOMEM, Place, memory, pointer};

/// Bytes of a receive: where the list goes on, and one buffer.
const STRIDE: u64 = 32;

/// Which receives are posted: they are linked, and come back in any order.
struct List {
    /// The next one to post, and the last that came back: a list of one has none to post.
    head: u16,
    tail: u16,
    next: Vec<u16>,
    /// The program's numbers.
    numbers: Vec<u64>,
    posted: u64,
}

/// The queue. What the program sees lies in front.
#[repr(C)]
pub struct VerbsSrq {
    raw: sys::ibv_srq,
    devx: Arc<dyn Devx>,
    /// Its number at its NIC.
    pub number: u32,
    world: Arc<dyn World>,
    _umem: Umem,
    base: u64,
    record: u64,
    list: RefCell<List>,
}

impl VerbsSrq {
    /// Makes one with so much room.
    ///
    /// # Errors
    /// As the NIC answers.
    pub fn make(place: &Place<'_>, most: u32) -> Result<Box<Self>, NicError> {
        let (rail, log) = (place.rail, (most + 1).next_power_of_two().ilog2());
        let record_offset = (STRIDE << log).next_multiple_of(QUEUE_ALIGN);
        let umem = Umem::register(&rail.devx, &memory(record_offset + QUEUE_ALIGN)?)?;
        let mut mailbox = [0; CONTEXT_COMMAND_BYTES];
        input::OPCODE.set(&mut mailbox, Opcode::CreateRmp as u32);
        let context = &mut mailbox[RMPC_OFFSET..RMPC_OFFSET + rmpc::BYTES];
        rmpc::STATE.set(context, STATE_READY);
        rmpc::WQ_TYPE.set(context, WQ_TYPE_LINKED_LIST);
        rmpc::PD.set(context, rail.pd());
        rmpc::LOG_WQ_STRIDE.set(context, STRIDE.ilog2());
        rmpc::LOG_WQ_SZ.set(context, log);
        rmpc::DBR_UMEM_VALID.set(context, 1);
        rmpc::DBR_UMEM_ID.set(context, umem.id());
        rmpc::DBR_ADDR.set(context, record_offset);
        rmpc::WQ_UMEM_VALID.set(context, 1);
        rmpc::WQ_UMEM_ID.set(context, umem.id());
        let number = create(&*rail.devx, &mailbox)?;
        let (count, base) = (1u16 << log, umem.memory().span().address);
        let next: Vec<u16> = (0..count).map(|at| (at + 1) % count).collect();
        let numbers = vec![0; next.len()];
        let made = Self {
            raw: sys::ibv_srq::default(),
            devx: rail.devx.clone(),
            number,
            world: place.world.clone(),
            _umem: umem,
            base,
            record: base + record_offset,
            list: RefCell::new(List { head: 0, tail: count - 1, next, numbers, posted: 0 }),
        };
        (0..count).for_each(|at| made.link(at, (at + 1) % count));
        Ok(Box::new(made))
    }

    /// The receive in one place is followed by that in another.
    fn link(&self, at: u16, next: u16) {
        let [high, low] = next.to_be_bytes();
        let segment = [u32::from_ne_bytes([0, 0, high, low]), 0, 0, 0];
        // SAFETY: inside the ring, which is this object's own and mapped while it lives. The NIC reads of a receive
        // that was posted alone, and the last one that came back is none.
        unsafe {
            Host::new(&*self.world).store_segment(pointer(self.base + u64::from(at) * STRIDE), segment)
        };
    }

    /// `post_srq_recv` of one receive, of one buffer or none: 0, or an errno.
    ///
    /// # Safety
    /// Its list of buffers is as long as it says.
    pub unsafe fn post(&self, wr: &sys::ibv_recv_wr) -> i32 {
        let mut list = self.list.borrow_mut();
        if list.head == list.tail {
            return ENOMEM;
        }
        let segment = match wr.num_sge {
            0 => wqe::scatter_end(),
            1 => {
                // SAFETY: one, by the caller.
                let sge = unsafe { *wr.sg_list };
                wqe::data(sge.addr, sge.lkey.to_be(), sge.length)
            }
            _ => return EINVAL,
        };
        let at = list.head;
        list.numbers[usize::from(at)] = wr.wr_id;
        list.head = list.next[usize::from(at)];
        list.posted += 1;
        let platform = Host::new(&*self.world);
        // SAFETY: ring and record are this object's own and mapped while it lives.
        unsafe {
            platform.store_segment(pointer(self.base + u64::from(at) * STRIDE + NEXT_SEGMENT_BYTES), segment);
            platform.wqes_before_publish();
            let record = self.record + RECEIVE_COUNTER_OFFSET as u64;
            platform.store_doorbell_record(pointer(record), doorbell::send_counter(list.posted));
        }
        0
    }

    /// A receive has completed: its number, and its place is the last of the list.
    pub fn completed(&self, at: u16) -> u64 {
        let mut list = self.list.borrow_mut();
        let tail = usize::from(list.tail);
        list.next[tail] = at;
        self.link(list.tail, at);
        list.tail = at;
        list.numbers[usize::from(at)]
    }
}

impl Drop for VerbsSrq {
    fn drop(&mut self) {
        // A NIC that does not answer is gone, and its queues with it.
        _ = execute::<16>(&*self.devx, &short_in(Opcode::DestroyRmp, self.number));
    }
}
