//! An RDM endpoint with a completion queue and an address vector of its own, for one peer.
//!
//! No call blocks. What the provider cannot take now is a value.

use crate::error::{FabricError, checked};
use crate::fabric::{Open, Rail};
use crate::region::{Region, pointer};
use shunt_libfabric_sys::{self as sys, fi_context2, fi_cq_data_entry, fi_cq_err_entry};
use shunt_mlx5::memory::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_transfer_engine::domain::Op;
use shunt_transfer_engine::message::PART_BYTES;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Arc;

/// Most bytes of an endpoint's name.
pub const NAME_MAX: usize = 256;
/// Entries that are read at once, and how often in one poll.
const ENTRIES: usize = 32;
const READS: usize = 8;
/// How often a queue is read at its end: more than any peer can have posted.
const LAST_READS: usize = 4096;
const PART: u64 = PART_BYTES as u64;

/// What a SEND carries that stands for no bytes: no part of a message is so short.
const NOTHING: &[u8] = &[0];

/// The bytes and the immediate of what goes as a SEND.
fn as_send<'a>(work: &Work<'a>) -> Option<(&'a [u8], Option<u32>)> {
    match work.op {
        Op::Send => Some((work.part.get(..PART_BYTES).unwrap_or(work.part), None)),
        Op::Write(imm) if work.len == 0 => Some((NOTHING, imm)),
        // No lane here lands late: what completes is in memory.
        Op::Write(_) | Op::Read | Op::Flush => None,
    }
}

/// Of an operation: its number, as its owner counts.
pub type Token = u64;

/// One operation.
pub struct Work<'a> {
    /// What it does.
    pub op: Op,
    /// The bytes of a SEND.
    pub part: &'a [u8],
    /// Where the bytes are at this end, or come to, and in which region. A SEND has none.
    pub local: Option<(&'a Region, u64)>,
    /// Address and key at the peer.
    pub remote: (u64, u32),
    /// How many bytes.
    pub len: u64,
}

/// What became of a call to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is under way.
    Taken,
    /// The provider has no room, or connects: to be asked again.
    Again,
    /// It will not be done: why, by fi_errno.h.
    Refused(i32),
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// An operation is executed: its bytes are at their place.
    Executed(Token),
    /// An operation was not executed: why, by fi_errno.h.
    Failed(Token, i32),
    /// An immediate has arrived, and its bytes before it.
    Imm(u32),
    /// The bytes of a SEND have arrived.
    Part(Vec<u8>),
    /// The endpoint is of no use any more: why, by fi_errno.h.
    Broken(i32),
}

/// A place for libfabric's own notes on an operation.
#[repr(transparent)]
struct Context(UnsafeCell<fi_context2>);

// SAFETY: only libfabric reads and writes what is in the cell.
unsafe impl Send for Context {}

/// What an operation keeps while it is under way.
struct Slot {
    token: Token,
    _memory: Option<Arc<OwnedSpan>>,
}

/// The endpoint. Closed when dropped.
pub struct Endpoint {
    // Dropped in this order: nothing is used by what is dropped later.
    ep: Option<Open<sys::fid_ep>>,
    av: Open<sys::fid_av>,
    cq: Open<sys::fid_cq>,
    peer: Option<sys::fi_addr_t>,
    name: Vec<u8>,
    /// Operations that are under way, by slot; receives have slots behind them, which are not listed.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Receives that are to be posted.
    unposted: Vec<usize>,
    contexts: Box<[Context]>,
    /// Of SENDs and receives, a part for each slot.
    buffers: Region,
    rail: Rail,
}

impl Endpoint {
    /// Opens one for so many operations under way and so many receives.
    ///
    /// # Errors
    /// As the provider answers.
    pub fn open(rail: &Rail, depth: usize, receives: usize) -> Result<Self, FabricError> {
        let provider = &rail.limits().provider;
        let total = depth + receives;
        let heap: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let memory = OwnedSpan::alloc(&heap, PART * total as u64, Placement::Control).map_err(|error| {
            FabricError::Unfit { what: "an endpoint's buffers", want: "memory", met: error.to_string() }
        })?;
        let buffers = Region::register(rail, &memory, false)?;
        let contexts = (0..total).map(|_| {
            // SAFETY: it is made of pointers, which may be null.
            Context(UnsafeCell::new(unsafe { zeroed() }))
        });
        let contexts: Box<[Context]> = contexts.collect();
        // SAFETY: attributes of zeros are the provider's defaults.
        let (mut cq_attr, mut av_attr): (sys::fi_cq_attr, sys::fi_av_attr) = unsafe { (zeroed(), zeroed()) };
        (cq_attr.format, cq_attr.wait_obj) = (sys::FI_CQ_FORMAT_DATA, sys::FI_WAIT_NONE);
        // Immediates of the peer take room besides: as many as it has under way.
        cq_attr.size = 4 * total;
        (av_attr.count, av_attr.type_) = (1, sys::FI_AV_TABLE);
        let cq = Open::by("fi_cq_open", provider, |cq| {
            // SAFETY: the domain is open; attributes and place outlive the call.
            unsafe { sys::fi_cq_open(rail.domain(), &raw mut cq_attr, cq, null_mut()) }
        })?;
        let av = Open::by("fi_av_open", provider, |av| {
            // SAFETY: as above.
            unsafe { sys::fi_av_open(rail.domain(), &raw mut av_attr, av, null_mut()) }
        })?;
        let ep = Open::by("fi_endpoint", provider, |ep| {
            // SAFETY: as above; the description is of this domain.
            unsafe { sys::fi_endpoint(rail.domain(), rail.info(), ep, null_mut()) }
        })?;
        let flags = u64::from(sys::FI_TRANSMIT | sys::FI_RECV);
        // SAFETY: endpoint, queue and vector are open and of one domain, and the endpoint is closed before them.
        unsafe {
            checked("fi_ep_bind", provider, sys::fi_bind(ep.fid(), cq.fid(), flags) as isize)?;
            checked("fi_ep_bind", provider, sys::fi_bind(ep.fid(), av.fid(), 0) as isize)?;
            checked("fi_enable", provider, sys::fi_enable(ep.get()) as isize)?;
        }
        let mut name = vec![0; NAME_MAX];
        let mut len = name.len();
        // SAFETY: the endpoint is enabled; the buffer has `len` bytes.
        let code = unsafe { sys::fi_getname(ep.get(), name.as_mut_ptr().cast(), &raw mut len) };
        checked("fi_getname", provider, code as isize)?;
        name.truncate(len);
        let mut endpoint = Self {
            ep: Some(ep),
            av,
            cq,
            peer: None,
            name,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            unposted: (depth..total).collect(),
            contexts,
            buffers,
            rail: rail.clone(),
        };
        endpoint.post_receives();
        Ok(endpoint)
    }

    /// By which the peer reaches it.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The peer's endpoint, by its name.
    ///
    /// # Errors
    /// It is no name of this provider.
    pub fn insert(&mut self, name: &[u8]) -> Result<(), FabricError> {
        let provider = &self.rail.limits().provider;
        // A provider reads as many bytes as its names have.
        if name.len() != self.name.len() && provider != "shm" || name.is_empty() || name.len() > NAME_MAX {
            let (what, want) = ("a peer's endpoint", "a name as long as one of this end's");
            return Err(FabricError::Unfit { what, want, met: format!("{} bytes", name.len()) });
        }
        // Names that are texts are read up to a zero.
        let padded: Vec<u8> =
            name.iter().copied().chain(std::iter::repeat_n(0, NAME_MAX + 1 - name.len())).collect();
        let mut peer = sys::FI_ADDR_UNSPEC;
        // SAFETY: the vector is open; the name is followed by zeros, and no name is longer than the buffer.
        let count = unsafe {
            sys::fi_av_insert(self.av.get(), padded.as_ptr().cast(), 1, &raw mut peer, 0, null_mut())
        };
        match checked("fi_av_insert", provider, count as isize)? {
            1 => self.peer = Some(peer),
            _ => {
                let (what, want) = ("a peer's endpoint", "a name that the provider knows");
                return Err(FabricError::Unfit { what, want, met: format!("{name:?}") });
            }
        }
        Ok(())
    }

    fn context(&self, slot: usize) -> *mut c_void {
        self.contexts[slot].0.get().cast()
    }

    /// The slot of a completion, if it is one of ours.
    fn slot_of(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let slot = offset / size_of::<Context>();
        (slot < self.contexts.len()).then_some(slot)
    }

    fn buffer(&self, slot: usize) -> u64 {
        self.buffers.memory().span().address + PART * slot as u64
    }

    /// Posts an operation, which keeps its memory until it is done.
    pub fn post(&mut self, work: &Work<'_>, token: Token) -> Posted {
        let (Some(ep), Some(peer)) = (self.ep.as_ref().map(Open::get), self.peer) else {
            return Posted::Refused(sys::FI_ESHUTDOWN as i32);
        };
        let Some(slot) = self.free.pop() else { return Posted::Again };
        let (code, memory) = match self.submit(ep, peer, work, slot) {
            Ok(done) => done,
            Err(code) => (-(code as isize), None),
        };
        if code == 0 {
            self.slots[slot] = Some(Slot { token, _memory: memory });
            return Posted::Taken;
        }
        self.free.push(slot);
        if code == -(sys::FI_EAGAIN as isize) { Posted::Again } else { Posted::Refused((-code) as i32) }
    }

    /// Calls the provider: its answer, and the memory that the operation uses if it is taken.
    fn submit(
        &self,
        ep: *mut sys::fid_ep,
        peer: sys::fi_addr_t,
        work: &Work<'_>,
        slot: usize,
    ) -> Result<(isize, Option<Arc<OwnedSpan>>), i32> {
        let Work { op, local, remote: (address, key), len, .. } = *work;
        let (context, placed) =
            (self.context(slot), u64::from(sys::FI_DELIVERY_COMPLETE | sys::FI_COMPLETION));
        // What has no bytes goes as a SEND: not every provider executes an empty WRITE.
        if let Some((bytes, imm)) = as_send(work) {
            let at = self.buffer(slot);
            self.buffers.memory().memory().write(at, bytes).map_err(|_| sys::FI_EFAULT as i32)?;
            let iov = libc::iovec { iov_base: pointer(at), iov_len: bytes.len() };
            let mut desc = self.buffers.desc();
            let message = sys::fi_msg {
                msg_iov: &raw const iov,
                desc: &raw mut desc,
                iov_count: 1,
                addr: peer,
                context,
                data: imm.unwrap_or(0).into(),
            };
            let flags = placed | if imm.is_some() { u64::from(sys::FI_REMOTE_CQ_DATA) } else { 0 };
            // SAFETY: the endpoint is open; the part lies in the slot's buffer and the context in the slot's, which
            // nothing else uses before the completion, and both outlive the endpoint.
            return Ok((unsafe { sys::fi_sendmsg(ep, &raw const message, flags) }, None));
        }
        let (region, at) = local.ok_or(sys::FI_EFAULT as i32)?;
        if len > self.rail.limits().longest {
            return Err(sys::FI_EMSGSIZE as i32);
        }
        let memory = region.holds(at, len).ok_or(sys::FI_EFAULT as i32)?.clone();
        let iov = libc::iovec { iov_base: pointer(at), iov_len: len as usize };
        let rma = sys::fi_rma_iov { addr: address, len: len as usize, key: key.into() };
        let mut desc = region.desc();
        let (data, flags) = match op {
            Op::Write(Some(imm)) => (u64::from(imm), placed | u64::from(sys::FI_REMOTE_CQ_DATA)),
            Op::Read => (0, u64::from(sys::FI_COMPLETION)),
            _ => (0, placed),
        };
        let message = sys::fi_msg_rma {
            msg_iov: &raw const iov,
            desc: &raw mut desc,
            iov_count: 1,
            addr: peer,
            rma_iov: &raw const rma,
            rma_iov_count: 1,
            context,
            data,
        };
        // SAFETY: the endpoint is open; the bytes lie in a region, whose memory the slot keeps until the completion,
        // and the endpoint is closed before its slots are dropped; the context is the slot's.
        let code = unsafe {
            if op == Op::Read {
                sys::fi_readmsg(ep, &raw const message, flags)
            } else {
                sys::fi_writemsg(ep, &raw const message, flags)
            }
        };
        Ok((code, Some(memory)))
    }

    fn post_receives(&mut self) -> Option<i32> {
        let ep = self.ep.as_ref().map(Open::get)?;
        while let Some(slot) = self.unposted.pop() {
            let (at, context) = (self.buffer(slot), self.context(slot));
            // SAFETY: the endpoint is open; buffer and context are the slot's, as in `submit`.
            let code = unsafe {
                let (desc, any) = (self.buffers.desc(), sys::FI_ADDR_UNSPEC);
                sys::fi_recv(ep, pointer(at), PART_BYTES, desc, any, context)
            };
            if code != 0 {
                self.unposted.push(slot);
                return (code != -(sys::FI_EAGAIN as isize)).then_some((-code) as i32);
            }
        }
        None
    }

    /// Has an operation given up, if the provider can: it completes with [`Done::Failed`] then.
    pub fn cancel(&mut self, token: Token) {
        let slot = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.token == token));
        if let (Some(slot), Some(ep)) = (slot, self.ep.as_ref()) {
            // SAFETY: the endpoint is open, and the context is of an operation that is under way.
            let _ = unsafe { sys::fi_cancel(ep.get(), self.context(slot)) };
        }
    }

    /// What has happened.
    pub fn poll(&mut self, out: &mut Vec<Done>) {
        self.read(READS, out);
        if let Some(code) = self.post_receives() {
            out.push(Done::Broken(code));
        }
    }

    fn read(&mut self, reads: usize, out: &mut Vec<Done>) {
        for _ in 0..reads {
            // SAFETY: entries are numbers and pointers that may be null.
            let mut entries: [fi_cq_data_entry; ENTRIES] = unsafe { zeroed() };
            // SAFETY: the queue is open and gives entries of this format; the place has as many.
            let count = unsafe { sys::fi_cq_read(self.cq.get(), entries.as_mut_ptr().cast(), ENTRIES) };
            match usize::try_from(count) {
                Ok(count) => entries.iter().take(count).for_each(|entry| self.completed(entry, out)),
                Err(_) if count == -(sys::FI_EAVAIL as isize) => self.failed(out),
                Err(_) if count == -(sys::FI_EAGAIN as isize) => return,
                Err(_) => return out.push(Done::Broken((-count) as i32)),
            }
        }
    }

    fn completed(&mut self, entry: &fi_cq_data_entry, out: &mut Vec<Done>) {
        let remote = u64::from(sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA);
        if entry.flags & u64::from(sys::FI_RECV) == 0 && entry.flags & remote != 0 {
            return out.push(Done::Imm(entry.data as u32));
        }
        let Some(slot) = self.slot_of(entry.op_context) else { return };
        match self.slots.get_mut(slot) {
            Some(taken) => {
                let Some(Slot { token, .. }) = taken.take() else { return };
                self.free.push(slot);
                out.push(Done::Executed(token));
            }
            None if entry.flags & u64::from(sys::FI_REMOTE_CQ_DATA) != 0 => {
                self.unposted.push(slot);
                out.push(Done::Imm(entry.data as u32));
            }
            None if entry.len == NOTHING.len() => self.unposted.push(slot),
            None => {
                let mut part = vec![0; entry.len.min(PART_BYTES)];
                let read = self.buffers.memory().memory().read(self.buffer(slot), &mut part);
                out.extend(read.is_ok().then_some(Done::Part(part)));
                self.unposted.push(slot);
            }
        }
    }

    fn failed(&mut self, out: &mut Vec<Done>) {
        // SAFETY: the entry is numbers and pointers that may be null: the provider keeps its own data.
        let mut entry: fi_cq_err_entry = unsafe { zeroed() };
        // SAFETY: the queue is open, and the entry outlives the call.
        let count = unsafe { sys::fi_cq_readerr(self.cq.get(), &raw mut entry, 0) };
        if count <= 0 {
            return;
        }
        let slot = if entry.op_context.is_null() { None } else { self.slot_of(entry.op_context) };
        match slot.and_then(|slot| Some((slot, self.slots.get_mut(slot)?))) {
            Some((slot, taken)) => {
                let Some(Slot { token, .. }) = taken.take() else { return };
                self.free.push(slot);
                out.push(Done::Failed(token, entry.err));
            }
            // A receive that is taken back, or what is of no operation: a peer that broke off.
            None if entry.err == sys::FI_ECANCELED as i32 => {}
            None => out.push(Done::Broken(entry.err)),
        }
    }

    /// Closes it: nothing lands through it any more, and nothing of this end is sent. What had happened before is told.
    ///
    /// # Errors
    /// The provider does not let go of it: it is not to be dropped.
    pub fn close(&mut self, out: &mut Vec<Done>) -> Result<(), FabricError> {
        self.read(LAST_READS, out);
        if let Some(ep) = self.ep.take() {
            let provider = &self.rail.limits().provider;
            // SAFETY: the endpoint is open; if it cannot be closed it stays so, and is not dropped.
            let code = unsafe { sys::fi_close(ep.fid()) };
            std::mem::forget(ep);
            checked("fi_close", provider, code as isize)?;
        }
        self.read(LAST_READS, out);
        Ok(())
    }
}
