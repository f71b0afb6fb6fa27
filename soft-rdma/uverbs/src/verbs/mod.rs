//! Verbs objects and queries, as the kernel's mlx5 driver answers them: objects are made by firmware mailboxes.

pub mod address;
pub mod channel;
mod cq;
mod dct;
pub mod device;
mod device_file;
pub mod events;
pub mod firmware;
pub mod invocation;
mod modify;
mod mr;
mod pd;
mod qp;
mod srq;
mod transition;
mod write;

pub use cq::{CREATE as CREATE_CQ, Cq};
pub use device::{DEVICE_CAPS, comp_vectors};
pub use events::Events;
pub use firmware::Umem;
pub use modify::ModifyQpEx;
pub use pd::Pd;
pub use qp::{CREATE as CREATE_QP, Qp};
pub use srq::Srq;

use crate::abi::ids::{
    DESTROY_RESPONSE, HANDLE, ONLY_DESTROY, device as on_device, dmabuf_mr, gid_entry, gid_table,
    mr as on_mr, object, query_mr, query_port, queue,
};
use crate::ioctl::Method;

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
        attributes: device::GET_CONTEXT,
        run: device::get_context,
    },
    Method {
        object: object::DEVICE,
        method: on_device::QUERY_CONTEXT,
        attributes: device::GET_CONTEXT,
        run: device::query_context,
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
        run: device::query_gid_table,
    },
    Method {
        object: object::DEVICE,
        method: on_device::QUERY_GID_ENTRY,
        attributes: &[gid_entry::PORT, gid_entry::INDEX, gid_entry::FLAGS, gid_entry::RESPONSE],
        run: device::query_gid_entry,
    },
    Method { object: object::AH, method: ONLY_DESTROY, attributes: &[HANDLE], run: address::destroy },
    Method { object: object::MR, method: on_mr::DESTROY, attributes: &[HANDLE], run: mr::destroy },
    Method {
        object: object::MR,
        method: on_mr::QUERY,
        attributes: &[HANDLE, query_mr::LKEY, query_mr::RKEY, query_mr::LENGTH, query_mr::IOVA],
        run: mr::query,
    },
    Method {
        object: object::MR,
        method: on_mr::REG_DMABUF,
        attributes: &[
            HANDLE,
            dmabuf_mr::PD,
            dmabuf_mr::OFFSET,
            dmabuf_mr::LENGTH,
            dmabuf_mr::IOVA,
            dmabuf_mr::FD,
            dmabuf_mr::ACCESS,
            dmabuf_mr::LKEY,
            dmabuf_mr::RKEY,
        ],
        run: mr::register_dmabuf,
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
    Method { object: object::SRQ, method: queue::CREATE, attributes: srq::CREATE, run: srq::create },
    Method {
        object: object::SRQ,
        method: queue::DESTROY,
        attributes: &[HANDLE, DESTROY_RESPONSE],
        run: srq::destroy,
    },
    Method { object: object::PD, method: ONLY_DESTROY, attributes: &[HANDLE], run: pd::destroy },
    Method {
        object: object::ASYNC_EVENT,
        method: ONLY_DESTROY, // its only method has that number, and makes one
        attributes: &[HANDLE],
        run: channel::create_asynchronous,
    },
];
