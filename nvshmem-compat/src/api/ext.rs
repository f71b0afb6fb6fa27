//! What NVSHMEM does not have: errors as values, the state of paths, faults of soft NICs. Declared in
//! `shunt_nvshmem.h`.

use super::{call, session, status};
use crate::failure::Failure;
use crate::report::{ErrorReport, Handler, set_handler, take_last};
use std::ffi::{CStr, c_char, c_int, c_void};

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_last_error(report: *mut ErrorReport) -> c_int {
    let last = take_last().unwrap_or_else(|| Box::new(ErrorReport::none()));
    if !report.is_null() {
        // SAFETY: the caller's structure.
        unsafe { report.write(*last) };
    }
    last.kind
}

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_on_error(handler: Option<Handler>, user: *mut c_void) {
    set_handler(handler, user);
}

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_resolve(pe: c_int, ticket: u64, applied: c_int) -> c_int {
    status("shunt_nvshmem_resolve", |s| s.resolve(pe, ticket, applied != 0))
}

/// 1 while a channel to the PE carries anything, 0 once it is lost.
#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_peer_alive(pe: c_int) -> c_int {
    call("shunt_nvshmem_peer_alive", |s| {
        let pe = s.peers().check(pe)?;
        Ok((!s.peers().lost().contains(&pe)).into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_switches(failovers: *mut u64, switchbacks: *mut u64) {
    let counts = session().map_or((0, 0), |session| session.peers().generations());
    for (to, value) in [(failovers, counts.0), (switchbacks, counts.1)] {
        if !to.is_null() {
            // SAFETY: the caller's word.
            unsafe { to.write(value) };
        }
    }
}

/// Peers that this PE reaches by the first path of its channel.
#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_on_primary() -> c_int {
    call("shunt_nvshmem_on_primary", |s| Ok(s.peers().on_primaries() as c_int))
}

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_soft_fault(rail: c_int, fault: *const c_char) -> c_int {
    status("shunt_nvshmem_soft_fault", |s| {
        if fault.is_null() {
            return Err(Failure::Argument { what: "fault", met: 0, want: "a text such as down=200ms" });
        }
        // SAFETY: the caller's text, which ends with a 0.
        let text = unsafe { CStr::from_ptr(fault) }.to_string_lossy();
        s.nics().inject(rail, &text)
    })
}

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_restart_agent() -> c_int {
    status("shunt_nvshmem_restart_agent", |s| {
        s.restart_agent();
        Ok(())
    })
}
