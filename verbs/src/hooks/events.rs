//! Asynchronous events: the failure of a port, device or queue pair that the program outlives is not told.

use crate::objects::At;
use crate::port_events::Withheld;
use crate::real;
use crate::registry;
use crate::settings::{Mode, settings};
use core::ffi::c_int;
use shunt_mlx5_sys::{
    IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_FATAL, ibv_async_event, ibv_context,
};
use std::sync::{Mutex, PoisonError};

static WITHHELD: Mutex<Withheld> = Mutex::new(Withheld::empty());

/// `ibv_get_async_event`: the next that the program is told. A program that waits in it goes on waiting.
///
/// # Safety
/// As its manual says.
pub unsafe fn get(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    loop {
        // SAFETY: forwarded to the caller.
        let got = unsafe { real::ibv_get_async_event(context, event) };
        // SAFETY: the real function has written it.
        if got != 0 || settings().mode != Mode::On || unsafe { !is_withheld(At(context), &*event) } {
            return got;
        }
        // SAFETY: it was taken above, and the program does not see it.
        unsafe { real::ibv_ack_async_event(event) };
    }
}

/// # Safety
/// An event that was just taken.
unsafe fn is_withheld(context: At<ibv_context>, event: &ibv_async_event) -> bool {
    if event.event_type == IBV_EVENT_QP_FATAL {
        // SAFETY: the union holds a queue pair for an event of one. Its address alone is looked at.
        let qp = unsafe { event.element.qp };
        return registry::pair(qp).is_some_and(|pair| pair.is_protected());
    }
    let of_port = matches!(event.event_type, IBV_EVENT_PORT_ERR | IBV_EVENT_PORT_ACTIVE);
    // SAFETY: the union holds a port for events of one.
    let port = if of_port { unsafe { event.element.port_num } } else { 0 };
    let mut withheld = WITHHELD.lock().unwrap_or_else(PoisonError::into_inner);
    withheld.takes(context.0.addr(), port, event.event_type, || registry::outlives(context.0))
}

/// A context is closed.
pub fn forget(context: *mut ibv_context) {
    WITHHELD.lock().unwrap_or_else(PoisonError::into_inner).forget(context.addr());
}
