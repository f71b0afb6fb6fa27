//! Test, wait, poll, functions that are called, cancel.

use super::patience;
use crate::engine::Engine;
use crate::failure::{Failure, Status, guarded};
use crate::handles::{self, Handle, find, pointer};
use crate::operation::{Ended, Operation};
use crate::raw;
use shunt_transfer::pending::CancelHow;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// `ste_result`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Outcome {
    /// What it ended with.
    pub status: i32,
    /// 1: no byte of it lands any more.
    pub quiet: i32,
}

/// `ste_event`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// Which operation.
    pub operation: *mut c_void,
    /// What it was begun with.
    pub user: *mut c_void,
    /// How it ended.
    pub result: Outcome,
}

impl From<&Ended> for Outcome {
    fn from(ended: &Ended) -> Self {
        Self { status: ended.status() as i32, quiet: ended.is_quiet.into() }
    }
}

/// # Safety
/// `result` is NULL or can be written.
unsafe fn wait_for(operation: Handle, patience: Duration, result: *mut Outcome) -> Result<(), Failure> {
    let ended = find::<Operation>(operation)?.wait(patience).ok_or_else(|| {
        let text = format!("operation: expected its end within {patience:?}, it goes on");
        Failure::new(Status::Timeout, text)
    })?;
    if !result.is_null() {
        // SAFETY: the caller's structure.
        unsafe { raw::write("result", result, Outcome::from(&ended)) }?;
    }
    ended.failure.map_or(Ok(()), Err)
}

/// # Safety
/// `result` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_test(operation: Handle, result: *mut Outcome) -> c_int {
    // SAFETY: as the caller of this function says.
    guarded("ste_test", || unsafe { wait_for(operation, Duration::ZERO, result) })
}

/// # Safety
/// `result` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_wait(operation: Handle, timeout_ns: u64, result: *mut Outcome) -> c_int {
    // SAFETY: as the caller of this function says.
    guarded("ste_wait", || unsafe { wait_for(operation, patience(timeout_ns), result) })
}

#[unsafe(no_mangle)]
extern "C" fn ste_cancel(operation: Handle, how: u32, timeout_ns: u64) -> c_int {
    guarded("ste_cancel", || {
        let operation = find::<Operation>(operation)?;
        operation.cancel(match how {
            0 => CancelHow::Unposted,
            1 => CancelHow::Drain(patience(timeout_ns)),
            2 => CancelHow::Now,
            other => return Err(Failure::refused("how", "one of STE_CANCEL_..", other)),
        })
    })
}

/// The end of an operation that has ended and was not freed.
fn event(handle: usize) -> Option<Event> {
    let operation = find::<Operation>(pointer(handle)).ok()?;
    let ended = operation.wait(Duration::ZERO)?;
    let user = std::ptr::with_exposed_provenance_mut(operation.user());
    Some(Event { operation: pointer(handle), user, result: Outcome::from(&ended) })
}

#[unsafe(no_mangle)]
extern "C" fn ste_when_ended(operation: Handle, call: Option<extern "C" fn(*const Event)>) -> c_int {
    guarded("ste_when_ended", || {
        let found = find::<Operation>(operation)?;
        let call = call.ok_or_else(|| Failure::refused("call", "a function", "NULL"))?;
        let handle = operation.addr();
        let tell = move || {
            // One that was freed since is told of no more.
            if let Some(event) = event(handle) {
                call(&raw const event);
            }
        };
        found.call(handle, Box::new(tell))
    })
}

/// # Safety
/// `events` is NULL or has `most` places; `count` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_poll(
    engine: Handle,
    events: *mut Event,
    most: usize,
    timeout_ns: u64,
    count: *mut usize,
) -> c_int {
    guarded("ste_poll", || {
        let engine = find::<Engine>(engine)?;
        raw::present("events", events)?;
        raw::present("count", count)?;
        // SAFETY: the caller's word.
        unsafe { raw::write("count", count, 0) }?;
        if most == 0 {
            return Err(Failure::refused("most", "1 or more", most));
        }
        let closed =
            || Failure::new(Status::Closed, "ste_poll: expected an event, got none: the engine is closed");
        let ended = engine.events().take(most, patience(timeout_ns)).ok_or_else(closed)?;
        let mut told = 0;
        for handle in ended {
            // One that another thread has freed since is no event any more.
            let Some(event) = event(handle) else { continue };
            // SAFETY: the caller's array has `most` places, and no more operations were taken.
            unsafe { events.add(told).write_unaligned(event) };
            told += 1;
        }
        // SAFETY: the caller's word.
        unsafe { raw::write("count", count, told) }?;
        match told {
            0 => {
                let text = format!("ste_poll: expected an event within {:?}, got none", patience(timeout_ns));
                Err(Failure::new(Status::Timeout, text))
            }
            _ => Ok(()),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ste_free_operation(operation: Handle) -> c_int {
    guarded("ste_free_operation", || {
        if let Some(freed) = handles::free::<Operation>(operation)? {
            freed.forget(operation.addr());
        }
        Ok(())
    })
}
