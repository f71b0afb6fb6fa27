//! Completion queues: a ring and a doorbell that the program maps.

use super::device::CQES;
use super::kept::refused;
use crate::abi::Plain;
use crate::abi::efa::{CQ_DOORBELL, CQ_WITH_CHANNEL, CQ_WITH_SGID, CreateCq, CreateCqResponse};
use crate::abi::ids::{DESTROY_RESPONSE, HANDLE, UHW_IN, UHW_OUT, create_cq};
use crate::abi::uverbs::CqEvents;
use crate::ioctl::{Call, Context, Page, Resource};
use crate::verbs::comp_vectors;
use crate::verbs::events::Notices;
use rustix::io::Errno;
use shunt_soft_nic::soft_srd::format::{CQE_BYTES, CQE_WITH_SOURCE_BYTES};
use shunt_soft_nic::soft_srd::memory::Shared;
use shunt_soft_nic::soft_srd::queues::{CompletionQueue, Ring};
use std::sync::{Arc, Mutex, PoisonError};

/// Attributes of create.
pub use crate::verbs::CREATE_CQ as CREATE;

/// Memory of the file, as the device sees it.
pub fn shared(page: Page) -> Shared {
    // SAFETY: `alloc_row` mapped it writable, from the start of a page on; it goes back only when the device has let go
    // of the queue. The library writes to it by whole words.
    unsafe { Shared::new(page.address, page.bytes as usize) }
}

/// A completion queue.
pub struct Cq {
    number: u16,
    pages: [Page; 2],
    /// What its program read of its events, once it is gone.
    read: Mutex<CqEvents>,
}

impl Cq {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Resource for Cq {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        context.nic().with_srd(|device| device.remove_cq(self.number))?.map_err(refused)?;
        self.pages.iter().for_each(|page| context.free_page(*page));
        let read = context.events().remove_cq(self.number.into());
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

/// Create.
pub fn create(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let (cqe, request): (u32, CreateCq) = (call.input(create_cq::CQE)?, call.input_grown(UHW_IN)?);
    let user_handle: u64 = call.input(create_cq::USER_HANDLE)?;
    let entry_bytes = request.entry_bytes as usize;
    let wide = request.flags & CQ_WITH_SGID != 0;
    let known = CQ_WITH_CHANNEL | CQ_WITH_SGID;
    let fits = entry_bytes == if wide { CQE_WITH_SOURCE_BYTES } else { CQE_BYTES };
    let entries = cqe.checked_next_power_of_two().filter(|entries| cqe > 0 && *entries <= CQES);
    if request.comp_mask != 0 || request.flags & !known != 0 || request.sub_cqs != 1 || !fits {
        return Err(Errno::INVAL);
    }
    if call.input_or(create_cq::FLAGS, 0u32)? != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let entries = entries.ok_or(Errno::INVAL)?;
    if call.input::<u32>(create_cq::VECTOR)? >= comp_vectors() {
        return Err(Errno::INVAL);
    }
    let completions = context.channel(call, create_cq::CHANNEL)?;
    let asynchronous = context.channel(call, create_cq::EVENT_FD)?;
    let notifies = completions.is_some();
    let pages = [context.alloc_row(u64::from(entries) * entry_bytes as u64)?, context.alloc_page()?];
    let ring = Ring { entries: shared(pages[0]), page: shared(pages[1]), register: 0, depth: entries };
    let queue = CompletionQueue::new(ring, entry_bytes, notifies);
    let added =
        context.nic().with_srd(|device| device.add_cq(queue)).and_then(|added| added.ok_or(Errno::NOMEM));
    let number = added.inspect_err(|_| pages.iter().for_each(|page| context.free_page(*page)))?;
    context.events().add_cq(number.into(), Notices::new(user_handle, completions, asynchronous));
    let handle = context.insert(Arc::new(Cq { number, pages, read: Mutex::default() }));
    answer(call, handle, number, entries, pages).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Cq>(handle);
    })
}

fn answer(call: &mut Call, handle: u32, number: u16, entries: u32, pages: [Page; 2]) -> Result<(), Errno> {
    let [ring, doorbell] = pages;
    let response = CreateCqResponse {
        comp_mask: CQ_DOORBELL,
        ring: ring.offset,
        ring_bytes: ring.bytes,
        number,
        doorbell: doorbell.offset,
        ..CreateCqResponse::default()
    };
    call.output(create_cq::RESPONSE_CQE, entries.bytes())?;
    call.output(UHW_OUT, response.bytes())?;
    call.set_handle(HANDLE, handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let cq = context.destroy::<Cq>(call.handle(HANDLE)?)?;
    let read = *cq.read.lock().unwrap_or_else(PoisonError::into_inner);
    call.output(DESTROY_RESPONSE, read.bytes())
}
