//! Objects on a NIC, one a file: made by a firmware command, destroyed on drop.
//!
//! Each mailbox is built by a pure function of its arguments, so that tests compare it byte for byte with
//! values from the PRM.

pub mod atomics;
pub mod caps;
pub mod cq;
pub mod datagram;
pub mod ece;
pub mod heap_keys;
pub mod loopback;
pub mod mkey;
pub mod order;
pub mod pd;
pub mod qp;
pub mod queue;
pub mod rmsn_selftest;
pub(crate) mod rmsn_selftest_atomics;
pub mod subnet;
pub mod uar;
pub mod umem;

use crate::devx::Devx;
use crate::error::DevxError;
use shunt_layout::mlx5::prm::caps::op_mod_current;
use shunt_layout::mlx5::prm::cmd;

/// Runs a command with an output mailbox of `OUT` bytes.
pub fn execute<const OUT: usize>(devx: &dyn Devx, input: &[u8]) -> Result<[u8; OUT], DevxError> {
    let mut output = [0; OUT];
    devx.command(input, &mut output)?;
    Ok(output)
}

/// Runs a command that makes an object; returns the object's number.
pub fn create(devx: &dyn Devx, input: &[u8]) -> Result<u32, DevxError> {
    Ok(cmd::output::OBJECT.get(&execute::<16>(devx, input)?))
}

/// Destroys an object from a destructor: a refusal changes nothing there, and a dead NIC is not waited for.
pub(crate) fn destroy(devx: &dyn Devx, opcode: cmd::Opcode, object: u32) {
    if devx.responsive() {
        let _ = execute::<16>(devx, &short_in(opcode, object));
    }
}

/// A 16-byte input mailbox: opcode, and the object it names.
pub fn short_in(opcode: cmd::Opcode, object: u32) -> [u8; 16] {
    let mut mailbox = [0; 16];
    cmd::input::OPCODE.set(&mut mailbox, opcode as u32);
    cmd::input::OBJECT.set(&mut mailbox, object);
    mailbox
}

/// QUERY_HCA_CAP of one group of capabilities, current values.
pub(crate) fn query_group_in(group: u32) -> [u8; 16] {
    let mut mailbox = [0; 16];
    cmd::input::OPCODE.set(&mut mailbox, cmd::Opcode::QueryHcaCap as u32);
    cmd::input::OP_MOD.set(&mut mailbox, op_mod_current(group));
    mailbox
}
