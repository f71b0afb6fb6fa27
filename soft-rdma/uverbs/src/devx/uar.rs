//! Doorbell pages: each a page of the program's uverbs file, which the NIC reads.

use super::ids::{devx, uar};
use crate::abi::Plain;
use crate::ioctl::{Call, Context, Page, Resource};
use crate::user;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Doorbell pages that programs have, by NIC and number.
static GIVEN: Mutex<BTreeSet<(u32, u32)>> = Mutex::new(BTreeSet::new());

fn given() -> MutexGuard<'static, BTreeSet<(u32, u32)>> {
    // No code that may panic runs under the lock.
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A doorbell page.
struct Uar {
    id: u32,
    page: Page,
    /// Its place among the uncached pages of its context, if it is one.
    _uncached: Option<Uncached>,
}

/// One of the uncached pages that the device gives to a context.
struct Uncached(Arc<AtomicUsize>);

impl Uncached {
    /// ENOMEM where the context has all it gets, EOPNOTSUPP where there are none, as the profile has it.
    fn take(context: &Context) -> Result<Self, Errno> {
        let pages = context.nic().with(|nic| nic.config().profile.uncached_pages);
        let taken = context.uncached_pages();
        match taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |has| pages.allows(has).then_some(has + 1))
        {
            Ok(_) => Ok(Self(taken.clone())),
            Err(0) => Err(Errno::OPNOTSUPP),
            Err(_) => Err(Errno::NOMEM),
        }
    }
}

impl Drop for Uncached {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Resource for Uar {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        given().remove(&(context.nic().index(), self.id));
        context.nic().with(|nic| nic.free_uar(self.id));
        context.free_page(self.page);
        Ok(())
    }
}

/// Makes one. To a page of memory all types are the same; which are given is a matter of the profile.
pub(super) fn alloc(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let uncached = match call.input(uar::TYPE)? {
        uar::BLUEFLAME => None,
        uar::UNCACHED => Some(Uncached::take(context)?),
        _ => return Err(Errno::OPNOTSUPP),
    };
    let page = context.alloc_page()?;
    // SAFETY: the page stays until `destroy`, which frees the UAR first. Programs write to it what they write to
    // registers.
    let id = context.nic().with(|nic| unsafe { nic.alloc_uar_at(page.address) }).id;
    given().insert((context.nic().index(), id));
    let handle = context.insert(Arc::new(Uar { id, page, _uncached: uncached }));
    answer(call, handle, page, id).inspect_err(|_| {
        // The program cannot know it.
        let _ = context.destroy::<Uar>(handle);
    })
}

fn answer(call: &mut Call, handle: u32, page: Page, id: u32) -> Result<(), Errno> {
    call.output(uar::MMAP_OFFSET, page.offset.bytes())?;
    call.output(uar::MMAP_BYTES, (user::page_bytes() as u32).bytes())?;
    call.output(uar::ID, id.bytes())?;
    call.set_handle(uar::HANDLE, handle)
}

/// Ends it.
pub(super) fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Uar>(call.handle(uar::HANDLE)?).map(|_| ())
}

/// The NIC's number of a doorbell page: programs know pages by that number already.
pub(super) fn query(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let id = call.input::<u32>(devx::UAR_USER)?;
    if !given().contains(&(context.nic().index(), id)) {
        return Err(Errno::INVAL);
    }
    call.output_value(devx::UAR_DEVICE, &id)
}
