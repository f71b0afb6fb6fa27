//! Objects of the mlx5 provider: what programs make by mailboxes of their own (DEVX), and what that needs.
//!
//! As in the kernel, a command is only let through where it belongs; what the firmware refuses is EREMOTEIO, and its
//! answer is handed out all the same.

mod channels;
mod event;
mod ids;
mod memory;
mod object;
mod policy;
mod uar;

use crate::ioctl::{Call, Context, Method};
use ids::{channel, devx, obj, object as objects, uar as pages, umem};
use rustix::io::Errno;

const fn method(
    object: u16,
    method: u16,
    attributes: &'static [u16],
    run: fn(&Context, &mut Call) -> Result<(), Errno>,
) -> Method {
    Method { object, method, attributes, run }
}

const IN_OUT: &[u16] = &[obj::HANDLE, obj::IN, obj::OUT];
const ASYNC: &[u16] = &[obj::HANDLE, obj::IN, obj::ASYNC_CHANNEL, obj::ASYNC_COOKIE, obj::ASYNC_OUT_BYTES];
const LEND: &[u16] =
    &[umem::HANDLE, umem::ADDRESS, umem::BYTES, umem::ACCESS, umem::ID, umem::PAGE_SIZES, umem::DMABUF_FD];
const SUBSCRIBE: &[u16] = &[
    devx::SUBSCRIBE_CHANNEL,
    devx::SUBSCRIBE_OBJECT,
    devx::SUBSCRIBE_TYPES,
    devx::SUBSCRIBE_EVENTFD,
    devx::SUBSCRIBE_COOKIE,
];
const PAGE: &[u16] = &[pages::HANDLE, pages::TYPE, pages::MMAP_OFFSET, pages::MMAP_BYTES, pages::ID];

/// The methods of the provider's objects.
pub const METHODS: &[Method] = &[
    method(objects::DEVX, devx::OTHER, &[devx::OTHER_IN, devx::OTHER_OUT], object::other),
    method(objects::DEVX, devx::QUERY_UAR, &[devx::UAR_USER, devx::UAR_DEVICE], uar::query),
    method(objects::DEVX, devx::QUERY_EQN, &[devx::EQN_VECTOR, devx::EQN_NUMBER], memory::query_eqn),
    method(objects::DEVX, devx::SUBSCRIBE_EVENT, SUBSCRIBE, event::subscribe),
    method(objects::OBJ, obj::CREATE, IN_OUT, object::create),
    method(objects::OBJ, obj::DESTROY, &[obj::HANDLE], object::destroy),
    method(objects::OBJ, obj::MODIFY, IN_OUT, object::modify),
    method(objects::OBJ, obj::QUERY, IN_OUT, object::query),
    method(objects::OBJ, obj::ASYNC_QUERY, ASYNC, object::async_query),
    method(objects::UMEM, umem::REG, LEND, memory::register),
    method(objects::UMEM, umem::DEREG, &[umem::HANDLE], memory::deregister),
    method(objects::ASYNC_CMD_FD, channel::ALLOC, &[channel::FD], event::alloc_commands),
    method(objects::ASYNC_EVENT_FD, channel::ALLOC, &[channel::FD, channel::FLAGS], event::alloc_events),
    method(objects::UAR, pages::ALLOC, PAGE, uar::alloc),
    method(objects::UAR, pages::DESTROY, &[pages::HANDLE], uar::destroy),
];
