//! Asynchronous events: the DEVX event channel, and what only verbs tells. Both read without waiting.

use crate::error::DevxError;
use shunt_layout::mlx5::eqe;
use shunt_mlx5_sys::{
    IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, Rdma, ibv_async_event, ibv_context,
    ibv_event_type, mlx5_ib_uapi_devx_async_event_hdr, mlx5dv_devx_event_channel,
};
use std::io::{Error, ErrorKind};
use std::os::fd::RawFd;

/// Bytes of an event queue entry.
const EQE_BYTES: usize = 64;
/// What a read of the channel gives: a cookie and the entry.
const RECORD_BYTES: usize = 8 + EQE_BYTES;

/// Events of the port, subscribed without an object.
pub(super) const PORT_EVENTS: [u16; 1] = [eqe::event::PORT_CHANGE as u16];
/// Events of a QP.
pub(super) const QP_EVENTS: [u16; 3] =
    [eqe::event::WQ_CATASTROPHIC as u16, eqe::event::WQ_INVALID_REQUEST as u16, eqe::event::WQ_ACCESS as u16];
/// Events of a CQ.
pub(super) const CQ_EVENTS: [u16; 1] = [eqe::event::CQ_ERROR as u16];

/// Where events of an open device are read.
pub(super) struct Events {
    rdma: &'static Rdma,
    nic: String,
    context: *mut ibv_context,
    /// Null if the driver gives none: verbs tells of the port, then.
    channel: *mut mlx5dv_devx_event_channel,
}

// SAFETY: both objects are read through file descriptors, which any thread may do; they are closed by the command
// thread, after the `IbverbsDevx` that holds this object let it go (fields are dropped in order).
unsafe impl Send for Events {}
// SAFETY: as above; two readers get different events.
unsafe impl Sync for Events {}

impl Events {
    /// Reads from these, which do not block.
    ///
    /// # Safety
    /// Context and channel (or null) stay open while this object lives.
    pub(super) unsafe fn new(
        rdma: &'static Rdma,
        nic: String,
        context: *mut ibv_context,
        channel: *mut mlx5dv_devx_event_channel,
    ) -> Self {
        Self { rdma, nic, context, channel }
    }

    /// The next event as an event queue entry. Never waits.
    pub(super) fn next(&self) -> Result<Option<[u8; EQE_BYTES]>, DevxError> {
        if let Some(event) = self.next_of_channel()? {
            return Ok(Some(event));
        }
        while let Some((kind, port)) = self.next_of_verbs()? {
            if let Some(event) = entry_of(kind, port, self.channel.is_null()) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The descriptor of the channel, if the driver gives one.
    pub(super) fn fd(&self) -> Option<RawFd> {
        // SAFETY: the channel is open (see `new`).
        (!self.channel.is_null()).then(|| unsafe { (*self.channel).fd })
    }

    fn failed(&self, what: &'static str, detail: String) -> DevxError {
        DevxError::Resource { nic: self.nic.clone(), what, detail }
    }

    fn next_of_channel(&self) -> Result<Option<[u8; EQE_BYTES]>, DevxError> {
        if self.channel.is_null() {
            return Ok(None);
        }
        // Words, because the record begins with one.
        let mut record = [0u64; RECORD_BYTES / 8];
        let header: *mut mlx5_ib_uapi_devx_async_event_hdr = record.as_mut_ptr().cast();
        // SAFETY: the channel is open (see `new`), the record as long as said.
        let read = unsafe { self.rdma.mlx5.mlx5dv_devx_get_event(self.channel, header, RECORD_BYTES) };
        if read < 0 {
            let error = Error::last_os_error();
            return match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
                _ => Err(self.failed("event channel", format!("{error}; events were lost"))),
            };
        }
        if read as usize != RECORD_BYTES {
            return Err(self.failed("event channel", format!("expected {RECORD_BYTES} bytes, got {read}")));
        }
        let mut event = [0; EQE_BYTES];
        for (to, word) in event.chunks_exact_mut(8).zip(&record[1..]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(Some(event))
    }

    fn next_of_verbs(&self) -> Result<Option<(ibv_event_type, u32)>, DevxError> {
        let mut event = ibv_async_event::default();
        // SAFETY: the context is open (see `new`).
        if unsafe { self.rdma.verbs.ibv_get_async_event(self.context, &raw mut event) } != 0 {
            let error = Error::last_os_error();
            return match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
                _ => Err(self.failed("asynchronous event", error.to_string())),
            };
        }
        // SAFETY: any of the union's fields may be read as a number; it is the port for events of one.
        let port = unsafe { event.element.port_num } as u32;
        // SAFETY: the event was taken above and is acknowledged once.
        unsafe { self.rdma.verbs.ibv_ack_async_event(&raw mut event) };
        Ok(Some((event.event_type, port)))
    }
}

/// A verbs event as the entry that the NIC wrote for it. Ports are left to the DEVX channel where there is one: the
/// same change told twice, by two channels that are not read at once, could end in the older of two states.
fn entry_of(kind: ibv_event_type, port: u32, ports_too: bool) -> Option<[u8; EQE_BYTES]> {
    let (kind, sub) = match kind {
        IBV_EVENT_DEVICE_FATAL => (eqe::event::INTERNAL_ERROR, 0),
        IBV_EVENT_PORT_ERR if ports_too => (eqe::event::PORT_CHANGE, eqe::port::DOWN),
        IBV_EVENT_PORT_ACTIVE if ports_too => (eqe::event::PORT_CHANGE, eqe::port::ACTIVE),
        _ => return None,
    };
    let mut event = [0; EQE_BYTES];
    eqe::EVENT_TYPE.set(&mut event, kind.into());
    eqe::SUB_TYPE.set(&mut event, sub.into());
    if kind == eqe::event::PORT_CHANGE {
        eqe::PORT_NUM.set(&mut event, port);
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5_sys::{IBV_EVENT_GID_CHANGE, IBV_EVENT_QP_FATAL};

    #[test]
    fn a_dead_device_is_told_with_and_without_a_channel() {
        for alone in [false, true] {
            let event = entry_of(IBV_EVENT_DEVICE_FATAL, 0, alone).unwrap();
            assert_eq!(eqe::EVENT_TYPE.get(&event), eqe::event::INTERNAL_ERROR.into());
        }
    }

    #[test]
    fn ports_are_told_once() {
        for (kind, sub) in [(IBV_EVENT_PORT_ERR, eqe::port::DOWN), (IBV_EVENT_PORT_ACTIVE, eqe::port::ACTIVE)]
        {
            assert_eq!(entry_of(kind, 1, false), None, "the channel tells");
            let event = entry_of(kind, 1, true).unwrap();
            let met = [eqe::EVENT_TYPE.get(&event), eqe::SUB_TYPE.get(&event), eqe::PORT_NUM.get(&event)];
            assert_eq!(met, [eqe::event::PORT_CHANGE.into(), sub.into(), 1]);
        }
    }

    #[test]
    fn what_nobody_asked_for_is_left_out() {
        for kind in [IBV_EVENT_GID_CHANGE, IBV_EVENT_QP_FATAL] {
            assert_eq!(entry_of(kind, 1, true), None);
        }
    }
}
