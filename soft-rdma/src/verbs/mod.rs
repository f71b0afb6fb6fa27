//! Verbs objects and queries, as the kernel's mlx5 driver answers them: objects are made by firmware mailboxes.

mod channel;
mod device;
mod events;
pub mod firmware;
mod pd;
mod write;

pub use events::Events;
pub use firmware::Umem;
pub use pd::Pd;

use crate::abi::ids::{HANDLE, ONLY_DESTROY, device as on_device, gid_entry, gid_table, object, query_port};
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
    Method { object: object::PD, method: ONLY_DESTROY, attributes: &[HANDLE], run: pd::destroy },
    Method {
        object: object::ASYNC_EVENT,
        method: ONLY_DESTROY, // its only method has that number, and makes one
        attributes: &[HANDLE],
        run: channel::create_asynchronous,
    },
];
