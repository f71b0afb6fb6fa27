//! The launcher's key-value store by PMIx, with the machine's libpmix, which is loaded when it is needed. A client that
//! begins must end: a launcher takes a process that did not end its client for one that crashed.

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Longest wait for the launcher: its fence waits for all processes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of the library, since PMIx 2.
const LIBRARY: &str = "libpmix.so.2";
/// Our key.
const KEY: &CStr = c"shunt-uid";

/// What of `pmix_common.h` is used here: statuses, types of values, scopes, ranks, keys.
const SUCCESS: c_int = 0;
const STRING: u16 = 3;
const UINT32: u16 = 14;
const GLOBAL: u8 = 3;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const JOB_SIZE: &CStr = c"pmix.job.size";

/// Why PMIx gave nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PmixError {
    /// No library.
    #[error(
        "{LIBRARY}: {why}; install PMIx (Debian: libpmix2), or set SHUNT_ROOT=HOST:PORT, the same for all ranks, and \
         SHUNT_WORLD where the launcher sets no size"
    )]
    Load {
        /// The loader's words.
        why: String,
    },
    /// A call failed.
    #[error("{call}: expected status 0, got {status}")]
    Call {
        /// Function.
        call: &'static str,
        /// Its status.
        status: c_int,
    },
    /// A value of another kind.
    #[error("{key}: expected a value of type {want}, got type {met}")]
    Value {
        /// Key.
        key: String,
        /// Type that is known.
        want: u16,
        /// Type that came.
        met: u16,
    },
    /// Nothing came.
    #[error("expected an answer within {} s, got none: is a rank missing?", PATIENCE.as_secs())]
    Silent,
}

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    namespace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: a type, and a union of which the largest member takes 24 bytes.
#[repr(C)]
struct Value {
    kind: u16,
    data: [u64; 3],
}

const _: () = assert!(size_of::<Process>() == 260 && size_of::<Value>() == 32);

type Init = unsafe extern "C" fn(*mut Process, *const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const c_void, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Process, *const c_char, *const c_void, usize, *mut *const Value) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;

fn checked(call: &'static str, status: c_int) -> Result<(), PmixError> {
    if status == SUCCESS { Ok(()) } else { Err(PmixError::Call { call, status }) }
}

fn function<F>(library: &Library, name: &'static [u8]) -> Result<Symbol<F>, PmixError> {
    // SAFETY: callers name the type that pmix.h declares under this name.
    let found = unsafe { library.get(name) };
    found.map_err(|error: libloading::Error| PmixError::Load { why: error.to_string() })
}

/// A client that has begun. Dropping it ends it.
struct Client {
    /// It stays loaded: threads of it may still be on their way out.
    library: ManuallyDrop<Library>,
    me: Process,
}

impl Client {
    fn begin() -> Result<Self, PmixError> {
        let load = |error: libloading::Error| PmixError::Load { why: error.to_string() };
        // SAFETY: the machine's PMIx runs what it does at its start; parts that it loads look for its symbols.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) }.map_err(load)?;
        let library = ManuallyDrop::new(library);
        let mut me = Process { namespace: [0; 256], rank: 0 };
        let init: Symbol<Init> = function(&library, b"PMIx_Init\0")?;
        // SAFETY: room for the process's own name, no further information.
        checked("PMIx_Init", unsafe { init(&raw mut me, null(), 0) })?;
        Ok(Self { library, me })
    }

    /// The words of a value; the library's memory of it is left to it, a hundred bytes a job.
    fn get(&self, rank: u32, key: &CStr, want: u16) -> Result<*const Value, PmixError> {
        let get: Symbol<Get> = function(&self.library, b"PMIx_Get\0")?;
        let whose = Process { rank, ..self.me };
        let mut value = null();
        // SAFETY: a name and a key that end with 0, and room for a pointer.
        checked("PMIx_Get", unsafe { get(&raw const whose, key.as_ptr(), null(), 0, &raw mut value) })?;
        // SAFETY: it succeeded, so it points to a value of the library's.
        let met = unsafe { (*value).kind };
        let key = || key.to_string_lossy().into_owned();
        if met == want { Ok(value) } else { Err(PmixError::Value { key: key(), want, met }) }
    }

    fn size(&self) -> Result<u32, PmixError> {
        let value = self.get(RANK_WILDCARD, JOB_SIZE, UINT32)?;
        // SAFETY: a value of this type has its number in front.
        Ok(unsafe { (&raw const (*value).data).cast::<u32>().read() })
    }

    fn exchange(&self, mine: Option<&str>) -> Result<String, PmixError> {
        let put: Symbol<Put> = function(&self.library, b"PMIx_Put\0")?;
        let commit: Symbol<Commit> = function(&self.library, b"PMIx_Commit\0")?;
        let fence: Symbol<Fence> = function(&self.library, b"PMIx_Fence\0")?;
        if let Some(text) = mine {
            let text = CString::new(text).map_err(|_| PmixError::Call { call: "PMIx_Put", status: -1 })?;
            let value = Value { kind: STRING, data: [text.as_ptr().expose_provenance() as u64, 0, 0] };
            // SAFETY: a key and a text that end with 0; PMIx copies both.
            checked("PMIx_Put", unsafe { put(GLOBAL, KEY.as_ptr(), &raw const value) })?;
            // SAFETY: no argument.
            checked("PMIx_Commit", unsafe { commit() })?;
        }
        // SAFETY: null means all processes of the job.
        checked("PMIx_Fence", unsafe { fence(null(), 0, null(), 0) })?;
        let value = self.get(0, KEY, STRING)?;
        // SAFETY: a value of this type has the address of its text in front, which ends with 0.
        let text = unsafe { CStr::from_ptr((&raw const (*value).data).cast::<*const c_char>().read()) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Ok(finalize) = function::<Finalize>(&self.library, b"PMIx_Finalize\0") {
            // SAFETY: no further information. What it answers changes nothing here.
            let _ = unsafe { finalize(null(), 0) };
        }
    }
}

/// The client of this process, once it has begun.
static CLIENT: Mutex<Option<Client>> = Mutex::new(None);

/// Size of the job, as its launcher says. The client stays for [`exchange`], or until [`end`].
///
/// # Errors
/// PMIx does not say.
pub fn size() -> Result<u32, PmixError> {
    patiently(|client| Ok((client.size()?, Some(client))))
}

/// Gives a text to all, or gets what rank 0 gave. The client ends with it.
///
/// # Errors
/// PMIx does not.
pub fn exchange(mine: Option<String>) -> Result<String, PmixError> {
    patiently(move |client| Ok((client.exchange(mine.as_deref())?, None)))
}

/// Ends the client of a process that asked for the size and joins nobody.
pub fn end() {
    drop(CLIENT.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// In a thread of its own: PMIx's calls have no deadline. The client is gone where a call failed.
fn patiently<T: Send + 'static>(
    ask: impl FnOnce(Client) -> Result<(T, Option<Client>), PmixError> + Send + 'static,
) -> Result<T, PmixError> {
    let (tell, answer) = channel();
    let body = move || {
        let mut place = CLIENT.lock().unwrap_or_else(PoisonError::into_inner);
        let client = place.take().map_or_else(Client::begin, Ok);
        let answer = client.and_then(ask).map(|(answer, client)| {
            *place = client;
            answer
        });
        let _ = tell.send(answer);
    };
    let thread = std::thread::Builder::new().name("pmix".to_owned()).spawn(body);
    thread.map_err(|error| PmixError::Load { why: error.to_string() })?;
    answer.recv_timeout(PATIENCE).unwrap_or(Err(PmixError::Silent))
}
