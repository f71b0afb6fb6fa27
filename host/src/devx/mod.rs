//! The hardware seam: everything above [`Devx`] is the same on a ConnectX and on the soft NIC.

mod soft;
pub use soft::SoftDevx;

use crate::error::DevxError;
use crate::gpu::Span;
use shunt_layout::mlx5::prm::cmd;

/// One UAR page, mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarPage {
    /// Number that contexts carry.
    pub id: u32,
    /// First address of the page.
    pub address: u64,
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
    /// so atomically.
    unsafe fn register_umem(&self, span: Span) -> Result<u32, DevxError>;

    /// Takes memory back from the NIC.
    fn deregister_umem(&self, id: u32) -> Result<(), DevxError>;

    /// Maps a fresh UAR page.
    fn map_uar(&self) -> Result<UarPage, DevxError>;

    /// Gives a UAR page back.
    fn free_uar(&self, id: u32);

    /// Number of the event queue completions may be bound to.
    fn query_eqn(&self) -> Result<u32, DevxError>;

    /// The next asynchronous event, if there is one. Never waits.
    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError>;

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
