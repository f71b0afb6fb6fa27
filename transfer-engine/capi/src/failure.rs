//! Statuses, and the text of the last failure of a thread.

use shunt_transfer::{CallError, NoNode};
use shunt_transfer_engine::error::TransferError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// What a call returns: `STE_..` in the header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Status {
            $(#[doc = $text] $name = $number,)*
        }

        impl Status {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// In words, with the 0 that C wants at the end.
            pub const fn text(self) -> &'static CStr {
                let text = match self {
                    $(Self::$name => concat!($text, "\0"),)*
                };
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => c"a status",
                }
            }
        }
    };
}

statuses! {
    Ok = 0, "done";
    PeerLost = 1, "no rail to the peer worked for the give-up time";
    PeerLeft = 2, "the peer has left, or was cut off";
    Cancelled = 3, "cancelled before all of it was written";
    Uncertain = 4, "pieces with immediates may have arrived or not";
    Unproven = 5, "pieces may still land";
    Denied = 6, "a NIC refused the keys or addresses of a piece";
    Missing = 7, "immediates did not come by the deadline";
    OutOfRegion = 8, "bytes beyond a region";
    Rights = 9, "a region that is not for this use of peers";
    Refused = 10, "an argument that makes no sense";
    Description = 11, "bytes that describe no region of this version";
    Handle = 12, "no handle of this kind that is open";
    TooSmall = 13, "a buffer that is too small";
    Timeout = 14, "not within the time that the call was given";
    Closed = 15, "the engine is closed";
    Nics = 16, "NICs or other ends that cannot be reached";
    System = 17, "a NIC or another end that refuses";
    Defect = 18, "a defect of this library";
}

/// A status that is no success, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the call returns.
    pub status: Status,
    /// `what: expected X, got Y`.
    pub text: String,
}

impl Failure {
    /// That.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// An argument that makes no sense.
    pub fn refused(what: &str, want: &str, got: impl std::fmt::Display) -> Self {
        Self::new(Status::Refused, format!("{what}: expected {want}, got {got}"))
    }
}

impl From<&TransferError> for Failure {
    fn from(error: &TransferError) -> Self {
        let status = match error {
            TransferError::PeerLost { .. } => Status::PeerLost,
            TransferError::PeerLeft { .. } => Status::PeerLeft,
            TransferError::Cancelled { .. } => Status::Cancelled,
            TransferError::Uncertain { .. } => Status::Uncertain,
            TransferError::Unproven { .. } => Status::Unproven,
            TransferError::Missing { .. } => Status::Missing,
            TransferError::OutOfRegion { .. } => Status::OutOfRegion,
            TransferError::Rights { .. } => Status::Rights,
            TransferError::Denied { .. } => Status::Denied,
            TransferError::Description { .. } => Status::Description,
            TransferError::Refused { .. } => Status::Refused,
        };
        Self::new(status, error.to_string())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let status = match &error {
            CallError::Transfer(error) => return error.into(),
            CallError::Memory(_) => Status::Refused,
            CallError::Nic(_) | CallError::Libfabric(_) | CallError::Exchange(_) => Status::System,
            CallError::NotConnected { .. } => Status::Nics,
            CallError::Closed => Status::Closed,
        };
        Self::new(status, error.to_string())
    }
}

impl From<NoNode> for Failure {
    fn from(error: NoNode) -> Self {
        let status = match &error {
            NoNode::Refused(_) | NoNode::Rails { .. } | NoNode::Job(_) => Status::Refused,
            _ => Status::Nics,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn keep(text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending has no last failure any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// The text of the last failure of this thread; empty where there was none. It stands until the next one.
pub fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What a function of the interface does: a failure is kept for its thread, and so is a panic.
pub fn guarded(name: &str, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(_) => {
            Failure::new(Status::Defect, format!("{name}: expected an answer, got a panic: see stderr"))
        }
    };
    keep(&failure.text);
    failure.status as c_int
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_transfer_engine::ids::PeerId;

    fn said() -> String {
        // SAFETY: `last` gives a text with a 0 at its end, which stands until this thread's next failure.
        unsafe { CStr::from_ptr(last()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_stays_inside_and_the_last_text_is_its_threads() {
        assert_eq!((guarded("f", || Ok(())), said()), (0, String::new()));
        let text = "a: expected b, got \0c";
        assert_eq!(guarded("f", || Err(Failure::new(Status::Refused, text))), Status::Refused as c_int);
        assert_eq!(said(), "a: expected b, got ?c");
        assert_eq!(guarded("f", || panic!("on purpose")), Status::Defect as c_int);
        assert_eq!(said(), "f: expected an answer, got a panic: see stderr");
        assert_eq!(std::thread::spawn(said).join().expect("it ends"), "", "another thread has its own");
        assert_eq!(guarded("f", || Ok(())), 0);
        assert!(!said().is_empty(), "a call that succeeds leaves it");
    }

    #[test]
    fn each_end_of_a_transfer_has_a_status_of_its_own() {
        let (peer, written, of, pieces) = (PeerId(1), 2, 3, 1);
        let ends = [
            TransferError::PeerLost { peer, waited_ns: 5, written, of },
            TransferError::PeerLeft { peer, written, of },
            TransferError::Cancelled { written, of },
            TransferError::Uncertain { peer, pieces },
            TransferError::Unproven { peer, pieces },
            TransferError::Denied { peer, written, of },
            TransferError::Missing { imm: 7, got: 0, want: 1, peer },
        ];
        for (number, error) in (1..).zip(&ends) {
            let failure = Failure::from(error);
            assert_eq!((failure.status as i32, failure.text), (number, error.to_string()));
        }
    }

    #[test]
    fn every_status_has_a_number_of_its_own_and_a_text() {
        for (number, status) in (0..).zip(Status::ALL) {
            assert_eq!(*status as i32, number);
            assert!(status.text().to_bytes().len() > 3 && status.text() != c"a status", "{status:?}");
        }
    }
}
