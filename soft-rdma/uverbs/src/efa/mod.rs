//! Verbs objects and queries of soft EFAs, as the kernel's efa driver answers them. Objects are those of the device
//! itself: there is no firmware between.

mod address;
mod cq;
mod device;
mod kept;
mod memory;
mod pd;
mod qp;
mod transition;
mod write;

use crate::abi::ids::{
    DESTROY_RESPONSE, HANDLE, ONLY_DESTROY, device as on_device, gid_entry, gid_table, mr as on_mr, object,
    query_mr, query_port, queue,
};
use crate::ioctl::Method;
use crate::verbs::{channel, device as common};

/// The methods of the common objects.
pub const METHODS: &[Method] = &[
    Method {
        object: object::DEVICE,
        method: on_device::INVOKE_WRITE,
        attributes: write::ATTRIBUTES,
        run: write::invoke,
    },
    Method {
        object: object::DEVICE,
        method: on_device::GET_CONTEXT,
        attributes: common::GET_CONTEXT,
        run: device::get_context,
    },
    Method {
        object: object::DEVICE,
        method: on_device::QUERY_CONTEXT,
        attributes: common::GET_CONTEXT,
        run: common::query_context,
    },
    Method {
        object: object::DEVICE,
        method: on_device::QUERY_PORT,
        attributes: &[query_port::PORT, query_port::RESPONSE],
        run: device::query_port,
    },
    Method {
        object: object::DEVICE,
        method: on_device::QUERY_GID_TABLE,
        attributes: &[gid_table::ENTRY_BYTES, gid_table::FLAGS, gid_table::ENTRIES, gid_table::COUNT],
        run: common::query_gid_table,
    },
    Method {
        object: object::DEVICE,
        method: on_device::QUERY_GID_ENTRY,
        attributes: &[gid_entry::PORT, gid_entry::INDEX, gid_entry::FLAGS, gid_entry::RESPONSE],
        run: common::query_gid_entry,
    },
    Method { object: object::AH, method: ONLY_DESTROY, attributes: &[HANDLE], run: address::destroy },
    Method { object: object::MR, method: on_mr::DESTROY, attributes: &[HANDLE], run: memory::destroy },
    Method {
        object: object::MR,
        method: on_mr::QUERY,
        attributes: &[HANDLE, query_mr::LKEY, query_mr::RKEY, query_mr::LENGTH, query_mr::IOVA],
        run: memory::query,
    },
    Method { object: object::CQ, method: queue::CREATE, attributes: cq::CREATE, run: cq::create },
    Method {
        object: object::CQ,
        method: queue::DESTROY,
        attributes: &[HANDLE, DESTROY_RESPONSE],
        run: cq::destroy,
    },
    Method { object: object::QP, method: queue::CREATE, attributes: qp::CREATE, run: qp::create },
    Method {
        object: object::QP,
        method: queue::DESTROY,
        attributes: &[HANDLE, DESTROY_RESPONSE],
        run: qp::destroy,
    },
    Method { object: object::PD, method: ONLY_DESTROY, attributes: &[HANDLE], run: pd::destroy },
    Method {
        object: object::ASYNC_EVENT,
        method: ONLY_DESTROY, // its only method has that number, and makes one
        attributes: &[HANDLE],
        run: channel::create_asynchronous,
    },
];
