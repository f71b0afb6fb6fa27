//! How a failure reaches the program: one clear message and the end of this process, unless the program asked to be
//! told instead.

use crate::failure::{Broken, Failure, Kind};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};

/// Longest message, the last 0 among its bytes.
pub const MESSAGE_BYTES: usize = 1024;

/// `shunt_nvshmem_error`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ErrorReport {
    /// Bytes of this structure.
    pub bytes: u32,
    /// A [`Kind`].
    pub kind: i32,
    /// What the process would end with.
    pub status: i32,
    /// Peer; -1: none is concerned.
    pub peer: i32,
    /// Channel at the peer; -1: none.
    pub channel: i32,
    /// Rail of this end; -1: none.
    pub local_rail: i32,
    /// Rail of the other end; -1: none.
    pub remote_rail: i32,
    /// Syndrome, and vendor syndrome << 8.
    pub syndrome: u32,
    /// First ticket not known to be done.
    pub ticket: u64,
    /// Tickets handed out and not done.
    pub unfinished: u64,
    /// All of it, for people.
    pub message: [c_char; MESSAGE_BYTES],
}

/// `shunt_nvshmem_error_handler`.
pub type Handler = extern "C" fn(*const ErrorReport, *mut c_void);

struct Registered {
    handler: Handler,
    user: usize,
}

static HANDLER: Mutex<Option<Registered>> = Mutex::new(None);

thread_local! {
    static LAST: RefCell<Option<Box<ErrorReport>>> = const { RefCell::new(None) };
}

impl ErrorReport {
    /// What is told of a failure in a call.
    pub fn new(call: &str, failure: &Failure) -> Self {
        let text = format!("{call}: {failure}");
        let mut message = [0; MESSAGE_BYTES];
        let mut end = text.len().min(MESSAGE_BYTES - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        for (to, from) in message.iter_mut().zip(text.as_bytes()[..end].iter()) {
            *to = *from as c_char;
        }
        let none = Broken {
            peer: u32::MAX,
            channel: u32::MAX,
            rails: (u32::MAX, u32::MAX),
            ticket: 0,
            unfinished: 0,
            syndrome: 0,
            uncertain: false,
            text: String::new(),
        };
        let broken = failure.broken().unwrap_or(&none);
        Self {
            bytes: size_of::<Self>() as u32,
            kind: failure.kind() as i32,
            status: failure.status(),
            peer: broken.peer as i32,
            channel: broken.channel as i32,
            local_rail: broken.rails.0 as i32,
            remote_rail: broken.rails.1 as i32,
            syndrome: broken.syndrome,
            ticket: broken.ticket,
            unfinished: broken.unfinished,
            message,
        }
    }

    /// No failure.
    pub fn none() -> Self {
        Self {
            kind: Kind::None as i32,
            status: 0,
            message: [0; MESSAGE_BYTES],
            ..Self::new("", &Failure::Stream)
        }
    }
}

/// Whom failures are told from now on; `None`: they end the process.
pub fn set_handler(handler: Option<Handler>, user: *mut c_void) {
    let registered = handler.map(|handler| Registered { handler, user: user.expose_provenance() });
    *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = registered;
}

/// The last failure of a call of this thread, once.
pub fn take_last() -> Option<Box<ErrorReport>> {
    LAST.with(|last| last.borrow_mut().take())
}

/// Tells of a failure of a call that has a status; answers with that.
pub fn tell(call: &str, pe: Option<u32>, failure: &Failure) -> i32 {
    let report = ErrorReport::new(call, failure);
    LAST.with(|last| *last.borrow_mut() = Some(Box::new(report)));
    let registered = {
        let handler = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
        handler.as_ref().map(|registered| (registered.handler, registered.user))
    };
    match registered {
        Some((handler, user)) => handler(&report, std::ptr::with_exposed_provenance_mut(user)),
        None => {
            let who = pe.map_or_else(String::new, |pe| format!(" PE {pe}:"));
            shunt_host::complain!("shunt:{who} {call}: {failure}");
        }
    }
    report.status
}

/// Tells of a failure; answers with its status. Returns only to a program that asked to be told.
pub fn fail(call: &str, pe: Option<u32>, failure: &Failure) -> i32 {
    let status = tell(call, pe, failure);
    let asked = HANDLER.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if asked { status } else { end_process(status) }
}

/// Ends this process: what C programs have printed is written, and nothing else of theirs runs.
pub fn end_process(status: i32) -> ! {
    shunt_host::events::flush_log();
    // SAFETY: a null stream means all of them.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: ends the process; destructors of a program in the middle of a failed call may wait for what never comes.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn lost() -> Failure {
        Failure::Channel(Box::new(Broken {
            peer: 3,
            channel: 0,
            rails: (1, 0),
            ticket: 7,
            unfinished: 2,
            syndrome: 0x8115,
            uncertain: false,
            text: "peer 3 is lost".into(),
        }))
    }

    #[test]
    fn reports_name_peer_path_syndrome_and_tickets() {
        let report = ErrorReport::new("nvshmem_quiet", &lost());
        assert_eq!((report.kind, report.status, report.peer), (Kind::PeerLost as i32, 3, 3));
        assert_eq!((report.local_rail, report.remote_rail, report.syndrome), (1, 0, 0x8115));
        assert_eq!((report.ticket, report.unfinished), (7, 2));
        let report = ErrorReport::new("nvshmem_p", &Failure::NoPe { met: 9, pes: 2 });
        assert_eq!((report.kind, report.status, report.peer, report.local_rail), (1, 2, -1, -1));
        // SAFETY: the message ends with a 0.
        let text = unsafe { CStr::from_ptr(report.message.as_ptr()) }.to_str().unwrap();
        assert_eq!(text, "nvshmem_p: PE: expected 0 to 1, got 9");
    }

    #[test]
    fn messages_that_are_too_long_are_cut_at_a_letter() {
        let report = ErrorReport::new(&"ü".repeat(2000), &Failure::Stream);
        // SAFETY: the message ends with a 0.
        let text = unsafe { CStr::from_ptr(report.message.as_ptr()) }.to_str().unwrap();
        assert_eq!(text.len(), 1022);
    }

    #[test]
    fn a_program_that_asked_is_told_and_goes_on() {
        extern "C" fn note(report: *const ErrorReport, user: *mut c_void) {
            // SAFETY: `fail` passes a report, and the test its own word.
            unsafe { *user.cast::<i32>() += (*report).status };
        }
        let mut seen = 0i32;
        set_handler(Some(note), (&raw mut seen).cast());
        assert_eq!(fail("nvshmem_quiet", Some(0), &lost()), 3);
        set_handler(None, std::ptr::null_mut());
        assert_eq!((seen, take_last().map(|report| report.peer)), (3, Some(3)));
        assert!(take_last().is_none());
        assert_eq!(ErrorReport::none().kind, 0);
    }
}
