//! Memory that firmware objects lie in, and the event queue.

use super::ids::{devx, umem};
use crate::abi::ids::access;
use crate::ioctl::{Call, Context, Resource};
use crate::user;
use rustix::io::Errno;
use shunt_soft_nic::NicError;
use std::sync::Arc;

/// Rights that a program may give; others make no sense for memory of firmware objects.
const RIGHTS: u32 =
    access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ | access::RELAXED_ORDERING;

/// Memory lent to the NIC.
struct Umem(u32);

impl Resource for Umem {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        match context.nic().with(|nic| nic.deregister_umem(self.0)) {
            Ok(()) => Ok(()),
            Err(NicError::UmemBusy { .. }) => Err(Errno::BUSY),
            Err(_) => Err(Errno::INVAL),
        }
    }
}

/// Lends memory.
pub(super) fn register(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let (address, bytes) = (call.input::<u64>(umem::ADDRESS)?, call.input::<u64>(umem::BYTES)?);
    let rights = call.input_or::<u32>(umem::ACCESS, 0)?;
    let writes = access::LOCAL_WRITE | access::REMOTE_WRITE;
    let senseless = rights & writes == access::REMOTE_WRITE;
    if rights & !RIGHTS != 0 || senseless || !call.has(umem::HANDLE) {
        return Err(Errno::INVAL);
    }
    if call.has(umem::DMABUF_FD) {
        return Err(Errno::OPNOTSUPP);
    }
    // Of the page sizes that are offered one must be a page size; which one is used is nothing to this NIC.
    if call.has(umem::PAGE_SIZES) && call.input::<u64>(umem::PAGE_SIZES)? & !(user::page_bytes() - 1) == 0 {
        return Err(Errno::INVAL);
    }
    user::populate(address, bytes, rights & writes != 0)?;
    // SAFETY: the program promises what is promised here: memory it lends stays until it takes it back, and what it
    // does to it meanwhile races with nobody but a device.
    let id =
        context.nic().with(|nic| unsafe { nic.register_umem(address, bytes) }).map_err(|_| Errno::INVAL)?;
    let handle = context.insert(Arc::new(Umem(id)));
    let told = call.output_value(umem::ID, &id).and_then(|()| call.set_handle(umem::HANDLE, handle));
    if told.is_err() {
        context.destroy::<Umem>(handle)?;
    }
    told
}

/// Takes it back.
pub(super) fn deregister(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Umem>(call.handle(umem::HANDLE)?).map(|_| ())
}

/// The event queue of a completion vector.
pub(super) fn query_eqn(context: &Context, call: &mut Call) -> Result<(), Errno> {
    if call.input::<u32>(devx::EQN_VECTOR)? >= crate::verbs::comp_vectors() {
        return Err(Errno::INVAL);
    }
    call.output_value(devx::EQN_NUMBER, &context.nic().with(|nic| nic.query_eqn()))
}
