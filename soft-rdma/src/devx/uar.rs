//! Doorbell pages: each a page of the program's uverbs file, which the NIC reads.

use crate::abi::Plain;
use crate::abi::ids::DRIVER;
use crate::ioctl::{Call, Context, Page, Resource};
use crate::user;
use rustix::io::Errno;
use std::sync::Arc;

const HANDLE: u16 = DRIVER;
const TYPE: u16 = DRIVER + 1;
const MMAP_OFFSET: u16 = DRIVER + 2;
const MMAP_LENGTH: u16 = DRIVER + 3;
const PAGE_ID: u16 = DRIVER + 4;

/// Attributes of alloc.
pub const ALLOC: &[u16] = &[HANDLE, TYPE, MMAP_OFFSET, MMAP_LENGTH, PAGE_ID];
/// Attributes of destroy.
pub const DESTROY: &[u16] = &[HANDLE];

/// Types: BlueFlame, and not to be cached. To a page of memory they are the same.
const BLUEFLAME: u32 = 0;
const NOT_CACHED: u32 = 1;

/// A doorbell page.
struct Uar {
    id: u32,
    page: Page,
}

impl Resource for Uar {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        context.nic().with(|nic| nic.free_uar(self.id));
        context.free_page(self.page);
        Ok(())
    }
}

/// Alloc.
pub fn alloc(context: &Context, call: &mut Call) -> Result<(), Errno> {
    if !matches!(call.input(TYPE)?, BLUEFLAME | NOT_CACHED) {
        return Err(Errno::OPNOTSUPP);
    }
    let page = context.alloc_page()?;
    // SAFETY: the page stays until `destroy`, which frees the UAR first. Programs write to it what they write to
    // registers.
    let id = context.nic().with(|nic| unsafe { nic.alloc_uar_at(page.address) }).id;
    let handle = context.insert(Arc::new(Uar { id, page }));
    answer(call, handle, page, id).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Uar>(handle);
    })
}

fn answer(call: &mut Call, handle: u32, page: Page, id: u32) -> Result<(), Errno> {
    call.output(MMAP_OFFSET, page.offset.bytes())?;
    call.output(MMAP_LENGTH, (user::page_bytes() as u32).bytes())?;
    call.output(PAGE_ID, id.bytes())?;
    call.set_handle(HANDLE, handle)
}

/// Destroy.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Uar>(call.handle(HANDLE)?).map(|_| ())
}
