//! The other process, and what PEs exchange through it while they connect.

use crate::interface::BootstrapHandle;
use std::ffi::c_int;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For how long a PE waits for words of the other: its process has failed or stands still.
const PATIENCE: Duration = Duration::from_secs(30);

/// The one stream to the other PE. The transport's calls carry no state of ours, so it is here.
static PEER: Mutex<Option<UnixStream>> = Mutex::new(None);

/// Starts PE 1: this program again, with the stream as its standard input.
pub fn start(args: &[String]) -> std::io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut second = Command::new(std::env::current_exe()?);
    let child = second.args(args).arg("--second").stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
    set(ours)?;
    Ok(child)
}

/// In PE 1: takes the stream.
pub fn join() -> std::io::Result<()> {
    set(UnixStream::from(input()?))
}

fn input() -> std::io::Result<OwnedFd> {
    use std::os::fd::AsFd;
    std::io::stdin().as_fd().try_clone_to_owned()
}

fn set(stream: UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    *PEER.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    Ok(())
}

/// Sends, and takes as much.
fn swap(send: &[u8], receive: &mut [u8]) -> c_int {
    let peer = PEER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut stream) = peer.as_ref() else { return 1 };
    match stream.write_all(send).and_then(|()| stream.read_exact(receive)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("probe: no words from the other process: {error}");
            1
        }
    }
}

/// `bytes` of each PE behind one another at `all`, this PE's at its place; PE numbers are 0 and 1.
fn both<'a>(all: *mut u8, bytes: c_int) -> &'a mut [u8] {
    // SAFETY: an exchange's caller has room for the words of both PEs.
    unsafe { std::slice::from_raw_parts_mut(all, 2 * bytes as usize) }
}

fn me(handle: *mut BootstrapHandle) -> usize {
    // SAFETY: callers give the handle that they were given, which stays.
    unsafe { (*handle).pe as usize }
}

extern "C" fn allgather(send: *const u8, all: *mut u8, bytes: c_int, handle: *mut BootstrapHandle) -> c_int {
    // SAFETY: the caller sends that many bytes. They may lie in what is received, so they are copied.
    let mine = unsafe { std::slice::from_raw_parts(send, bytes as usize) }.to_vec();
    let (me, all) = (me(handle), both(all, bytes));
    all[me * mine.len()..][..mine.len()].copy_from_slice(&mine);
    swap(&mine, &mut all[(1 - me) * mine.len()..][..mine.len()])
}

extern "C" fn alltoall(send: *const u8, all: *mut u8, bytes: c_int, handle: *mut BootstrapHandle) -> c_int {
    let (me, each) = (me(handle), bytes as usize);
    // SAFETY: the caller sends that many bytes to each PE.
    let sent = unsafe { std::slice::from_raw_parts(send, 2 * each) }.to_vec();
    let all = both(all, bytes);
    all[me * each..][..each].copy_from_slice(&sent[me * each..][..each]);
    swap(&sent[(1 - me) * each..][..each], &mut all[(1 - me) * each..][..each])
}

extern "C" fn barrier(_: *mut BootstrapHandle) -> c_int {
    swap(&[1], &mut [0])
}

/// The handle that a transport gets. It stays.
pub fn handle(pe: c_int) -> *mut BootstrapHandle {
    Box::leak(Box::new(BootstrapHandle {
        version: 30_000,
        pe,
        pes: 2,
        pe_on_node: pe,
        pes_on_node: 2,
        allgather,
        alltoall,
        barrier,
        unused: [std::ptr::null(); 5],
    }))
}

/// A value of each PE, by PE.
pub fn gather<const N: usize>(mine: &[u8; N], pe: usize) -> Result<[[u8; N]; 2], String> {
    let mut other = [0; N];
    if swap(mine, &mut other) != 0 {
        return Err("the other process has ended".into());
    }
    Ok(if pe == 0 { [*mine, other] } else { [other, *mine] })
}

/// Waits until the other PE waits as well.
pub fn meet() -> Result<(), String> {
    gather(&[0], 0).map(|_| ())
}
