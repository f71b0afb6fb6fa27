//! One open uverbs file: its NIC, its objects by handle, its pages, its events.

use super::call::Call;
use super::channel::Channel;
use super::pages::{Page, Pages};
use crate::verbs::Events;
use rustix::io::Errno;
use shunt_soft_machine::devices::Nic;
use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An object that a handle names: of verbs, or of DEVX.
pub trait Resource: Any + Send + Sync {
    /// Gives back what the NIC holds for it. After an error it is as it was.
    fn destroy(&self, context: &Context) -> Result<(), Errno>;
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<u32, Arc<dyn Resource>>,
    next: u32,
}

/// One open uverbs file. Each `open` makes its own.
pub struct Context {
    nic: &'static Nic,
    pages: Pages,
    table: Mutex<Table>,
    events: Arc<Events>,
    /// GET_CONTEXT was answered.
    made: AtomicBool,
    /// Doorbell pages that are not cached, as long as there are such.
    uncached_pages: Arc<AtomicUsize>,
}

impl Context {
    /// A new file on a NIC, and the descriptor that the program gets.
    pub fn open(nic: &'static Nic, close_on_exec: bool) -> Result<(Self, OwnedFd), Errno> {
        let (pages, fd) = Pages::new(&format!("uverbs{}", nic.index()), close_on_exec)?;
        let events = Events::subscribe(nic);
        let context = Self {
            nic,
            pages,
            table: Mutex::default(),
            events,
            made: AtomicBool::new(false),
            uncached_pages: Arc::default(),
        };
        Ok((context, fd))
    }

    /// The NIC.
    pub fn nic(&self) -> &'static Nic {
        self.nic
    }

    /// The NIC's events, as this file sees them.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The channel of an attribute of a call, if it is there.
    pub fn channel(&self, call: &Call, id: u16) -> Result<Option<Arc<Channel>>, Errno> {
        if call.has(id) { self.events.channel(call.fd(id)?).map(Some) } else { Ok(None) }
    }

    /// A descriptor of the file that stays open as long as this.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.pages.file()
    }

    /// Notes that the user context is made. False if it was before.
    pub fn make(&self) -> bool {
        !self.made.swap(true, Ordering::AcqRel)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that may panic runs under the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object, and returns its handle.
    pub fn insert(&self, object: Arc<dyn Resource>) -> u32 {
        let mut table = self.table();
        let handle = table.next;
        table.next += 1;
        table.objects.insert(handle, object);
        handle
    }

    /// The object of a handle: ENOENT if there is none, EINVAL if it is of another kind.
    pub fn get<T: Resource>(&self, handle: u32) -> Result<Arc<T>, Errno> {
        let object = self.table().objects.get(&handle).cloned().ok_or(Errno::NOENT)?;
        let object: Arc<dyn Any + Send + Sync> = object;
        object.downcast().map_err(|_| Errno::INVAL)
    }

    /// Takes an object out of the table, not destroyed.
    pub fn take<T: Resource>(&self, handle: u32) -> Result<Arc<T>, Errno> {
        let object = self.get(handle)?;
        // Of two that take it, one gets it.
        self.table().objects.remove(&handle).ok_or(Errno::NOENT)?;
        Ok(object)
    }

    /// Destroys an object, and returns what is left of it. After an error it is still there.
    pub fn destroy<T: Resource>(&self, handle: u32) -> Result<Arc<T>, Errno> {
        let object = self.take::<T>(handle)?;
        if let Err(error) = object.destroy(self) {
            self.table().objects.insert(handle, object);
            return Err(error);
        }
        Ok(object)
    }

    /// How many doorbell pages it has that are not cached.
    pub fn uncached_pages(&self) -> &Arc<AtomicUsize> {
        &self.uncached_pages
    }

    /// A page of the file, for doorbells.
    pub fn alloc_page(&self) -> Result<Page, Errno> {
        self.pages.alloc()
    }

    /// Pages of the file that lie in a row, for a ring of so many bytes.
    pub fn alloc_row(&self, bytes: u64) -> Result<Page, Errno> {
        self.pages.alloc_row(bytes)
    }

    /// Takes a page back, once the NIC reads it no more.
    pub fn free_page(&self, page: Page) {
        self.pages.free(page);
    }

    /// Destroys all that is left, as the kernel does when a file is closed: the newest first, and again as long as
    /// that helps, since what others use goes only after them.
    pub fn close(&self) {
        loop {
            let left: Vec<u32> = self.table().objects.keys().rev().copied().collect();
            let mut gone = 0;
            for handle in &left {
                match self.destroy_any(*handle) {
                    Ok(()) => gone += 1,
                    // The NIC does not answer, and will not.
                    Err(Errno::TIMEDOUT) => return self.events.unsubscribe(self.nic),
                    Err(_) => {}
                }
            }
            if gone == 0 {
                break;
            }
        }
        self.events.unsubscribe(self.nic);
    }

    fn destroy_any(&self, handle: u32) -> Result<(), Errno> {
        let object = self.table().objects.remove(&handle).ok_or(Errno::NOENT)?;
        let result = object.destroy(self);
        if result.is_err() {
            self.table().objects.insert(handle, object);
        }
        result
    }
}
