//! Mailboxes: verbs objects are made by firmware commands, as the kernel's mlx5 driver makes them.

use crate::user;
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{Opcode, Status, input, output};
use shunt_soft_machine::devices::Nic;
use shunt_soft_machine::log::Level;
use shunt_soft_nic::command::syndrome_meaning;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mailbox with nothing but a header.
pub fn short(opcode: Opcode, object: u32) -> [u8; 16] {
    let mut mailbox = [0; 16];
    input::OPCODE.set(&mut mailbox, opcode as u32);
    input::OBJECT.set(&mut mailbox, object);
    mailbox
}

/// What the kernel makes of a firmware status.
fn errno_of(status: u8) -> Errno {
    match status {
        status if status == Status::ResBusy as u8 => Errno::BUSY,
        status if status == Status::ExceedLim as u8 => Errno::NOMEM,
        status if status == Status::NoResources as u8 => Errno::AGAIN,
        0x02 | 0x03 | 0x05 | 0x09 | 0x0a | 0x10 | 0x30 | 0x40 => Errno::INVAL,
        _ => Errno::IO,
    }
}

/// Has the firmware execute a mailbox: a refusal is an error.
pub fn execute<const OUT: usize>(nic: &Nic, mailbox: &[u8]) -> Result<[u8; OUT], Errno> {
    let mut out = [0; OUT];
    nic.command(mailbox, &mut out)?;
    match output::STATUS.get(&out) as u8 {
        0 => Ok(out),
        status => {
            let (opcode, why) = (input::OPCODE.get(mailbox), syndrome_meaning(&out));
            shunt_soft_machine::log!(Level::Info, "{}: command {opcode:#x} refused: {why}", nic.name());
            Err(errno_of(status))
        }
    }
}

/// Executes a mailbox that makes an object, and returns its number.
pub fn create(nic: &Nic, mailbox: &[u8]) -> Result<u32, Errno> {
    Ok(output::OBJECT.get(&execute::<16>(nic, mailbox)?))
}

/// Executes a mailbox that needs no answer but its status.
pub fn command(nic: &Nic, opcode: Opcode, object: u32) -> Result<(), Errno> {
    execute::<16>(nic, &short(opcode, object)).map(|_| ())
}

/// Memory of the program that the NIC may touch.
pub struct Umem {
    nic: &'static Nic,
    id: u32,
    released: AtomicBool,
}

impl Umem {
    /// Lends a range to the NIC, if all of it is there.
    pub fn register(nic: &'static Nic, address: u64, bytes: u64, writable: bool) -> Result<Self, Errno> {
        user::populate(address, bytes, writable)?;
        // SAFETY: the program promises by verbs what is promised here: registered memory stays until it is
        // deregistered, and what it does to it meanwhile races with nobody but a device.
        let id = nic.with(|nic| unsafe { nic.register_umem(address, bytes) }).map_err(|_| Errno::INVAL)?;
        Ok(Self { nic, id, released: AtomicBool::new(false) })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Takes the memory back; nothing is written to it any more. Not possible while an object lies in it.
    pub fn release(&self) {
        if !self.released.swap(true, Ordering::AcqRel)
            && let Err(error) = self.nic.with(|nic| nic.deregister_umem(self.id))
        {
            shunt_soft_machine::log!(Level::Warn, "{}: {error}", self.nic.name());
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        self.release();
    }
}
