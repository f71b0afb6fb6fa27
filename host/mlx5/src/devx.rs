//! The hardware seam: everything above [`Devx`] is the same on a ConnectX and on the soft NIC.

use crate::error::DevxError;
use crate::memory::{DmaBuf, Span};
use shunt_layout::mlx5::prm::cmd;
use std::os::fd::RawFd;

/// One UAR page, mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarPage {
    /// Number that contexts carry.
    pub id: u32,
    /// First address of the page, a multiple of 4 KiB.
    pub address: u64,
    /// Address of the send doorbell register: in that page, at the first BlueFlame register's place or a later one's.
    pub register: u64,
}

/// An entry of the port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGid {
    /// The GID.
    pub gid: [u8; 16],
    /// True if it is one of RoCE v2.
    pub roce_v2: bool,
    /// MAC of the interface it belongs to; zero on InfiniBand.
    pub mac: [u8; 6],
}

/// What the driver knows of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// Up and usable.
    pub active: bool,
    /// Largest path MTU code.
    pub mtu: u32,
}

/// Whose MAC is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The other end's GID.
    pub gid: [u8; 16],
    /// Index of our own.
    pub gid_index: u32,
    /// Traffic class of the packets: routes may depend on it.
    pub traffic_class: u8,
}

/// What a key allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This NIC's own queues read and write it.
    Local,
    /// Peers read, write and do atomics, too.
    Remote,
    /// Peers write, and writes may become visible in any order among those of other keys and of this one.
    Relaxed,
}

/// Arguments of CREATE_MKEY.
#[derive(Clone, Copy, Debug)]
pub struct MkeyShape {
    /// Protection domain.
    pub pd: u32,
    /// Umem that holds the memory.
    pub umem: u32,
    /// Offset of the region in its umem.
    pub offset: u64,
    /// First address, as work requests name it.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// What it allows.
    pub access: Access,
}

/// What the tables of a port say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetPort {
    /// Path MTU code in use on the port: `256 << (code - 1)` bytes.
    pub mtu: u32,
    /// Entry 0 of the GID table; `None` where nobody tells, and the port's GUID stands in.
    pub gid: Option<[u8; 16]>,
    /// The P_Key table from entry 0; empty where nobody tells.
    pub pkeys: Vec<u16>,
}

/// One NIC function, opened.
pub trait Devx: Send + Sync {
    /// The NIC's name, e.g. `mlx5_0`.
    fn name(&self) -> String;

    /// Runs a firmware command. `output` is the output mailbox; a status other than OK is an error.
    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError>;

    /// Lets the NIC reach memory; returns the umem's id.
    ///
    /// # Safety
    /// `span` stays valid until `deregister_umem` succeeded, and everybody else who touches it meanwhile does
    /// so atomically. `dmabuf` is the span's, where its memory has one.
    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError>;

    /// Takes memory back from the NIC.
    fn deregister_umem(&self, id: u32) -> Result<(), DevxError>;

    /// Makes a protection domain; returns its number.
    fn alloc_pd(&self) -> Result<u32, DevxError>;

    /// Gives a protection domain back.
    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError>;

    /// Whether keys are made over umems. If not, the driver pins a key's memory itself, and memory that has keys
    /// alone needs no umem.
    fn keys_need_umem(&self) -> bool;

    /// Makes a memory key; returns it, lkey and rkey at once.
    ///
    /// # Safety
    /// The memory stays valid until `destroy_key` succeeded (or the umem of the shape is deregistered, where keys
    /// need one), and everybody else who touches it meanwhile does so atomically. `dmabuf` is the memory's.
    unsafe fn create_key(&self, shape: &MkeyShape, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError>;

    /// Takes a key back.
    fn destroy_key(&self, key: u32) -> Result<(), DevxError>;

    /// Maps a fresh UAR page.
    fn map_uar(&self) -> Result<UarPage, DevxError>;

    /// Gives a UAR page back.
    fn free_uar(&self, id: u32);

    /// Number of the event queue completions may be bound to.
    fn query_eqn(&self) -> Result<u32, DevxError>;

    /// An entry of the GID table; `None` if it is empty or not this process's to use.
    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError>;

    /// Index of the GID that the opener of the NIC chose; `None`: the first one of RoCE v2 will do.
    fn gid_index(&self) -> Option<u32> {
        None
    }

    /// What the driver knows of the port; `None` where there is no driver but the firmware.
    fn port(&self) -> Result<Option<PortReport>, DevxError>;

    /// Bytes that the port has sent and received so far, for whichever process, by its own counters; `None` where
    /// nobody counts. May wait for a NIC that does not answer.
    fn traffic(&self) -> Option<(u64, u64)> {
        None
    }

    /// What the tables of an InfiniBand port say.
    fn subnet(&self) -> Result<SubnetPort, DevxError>;

    /// The MAC that packets to a RoCE neighbour go to: its own, or that of the next router. `None` where nobody
    /// knows better than the neighbour itself. `pd` is one of this NIC's.
    fn resolve_mac(&self, pd: u32, neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError>;

    /// The next asynchronous event, if there is one. Never waits.
    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError>;

    /// A descriptor that may be read when there is an event; none of a device without one.
    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    /// False after a command timed out, until one is answered again. Destructors do not wait for a dead NIC.
    fn responsive(&self) -> bool {
        true
    }
}

/// The name of the command in an input mailbox.
pub fn command_name(input: &[u8]) -> String {
    if input.len() < 4 {
        return "a command of less than 4 bytes".into();
    }
    let raw = cmd::input::OPCODE.get(input) as u16;
    match cmd::Opcode::from_raw(raw) {
        Some(opcode) => format!("{opcode:?}"),
        None => format!("command {raw:#06x}"),
    }
}

/// Turns the status of an output mailbox into a result. Bodies of [`Devx::command`] end with it.
pub fn check_status(nic: &str, input: &[u8], output: &[u8]) -> Result<(), DevxError> {
    if output.len() < cmd::output::BYTES {
        return Err(DevxError::ShortAnswer {
            nic: nic.into(),
            command: command_name(input),
            got: output.len(),
            want: cmd::output::BYTES,
        });
    }
    match cmd::output::STATUS.get(output) as u8 {
        0 => Ok(()),
        status => Err(DevxError::Refused {
            nic: nic.into(),
            command: command_name(input),
            status,
            syndrome: cmd::output::SYNDROME.get(output),
        }),
    }
}
