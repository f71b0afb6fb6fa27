//! Takes the part of NVSHMEM's host library towards one of NVSHMEM's own transports, on whatever NICs there are.
//!
//! `cargo xtask transport` runs it under `shunt soft-rdma run`; by hand:
//! `shunt soft-rdma run --nics 2 -- nvshmem_transport FILE.so.MAJOR init|connect|data`
//!
//! | | what is called |
//! | --- | --- |
//! | `init` | `nvshmemt_init`, the one function that a transport exports |
//! | `connect` | that and `connect_endpoints`, in two processes |
//! | `data` | that and puts, gets, signals; every byte is compared, in both processes |
//!
//! There is no CUDA here, and no driver is pretended: memory is the host's, and the runtime inside of a transport finds
//! none. A transport that cannot do without ends where it asks for it.

mod cuda;
mod interface;
mod peer;
mod traffic;

use interface::{EmptyMap, LONGEST, Transport};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::ExitCode;
use std::ptr;
use traffic::Pe;

type Init = unsafe extern "C" fn(*mut *mut Transport, *const cuda::Entry, c_int) -> c_int;

fn said(by: *const c_char) -> String {
    if by.is_null() {
        return "nothing".into();
    }
    // SAFETY: the loader gives a string that ends.
    unsafe { CStr::from_ptr(by) }.to_string_lossy().into_owned()
}

/// The number behind the last dot of a transport's name: the interface that it was built for.
fn major(path: &str) -> Result<c_int, String> {
    let last = path.rsplit('.').next().unwrap_or_default();
    last.parse().map_err(|_| format!("a transport's name ends in its interface's number, got {path}"))
}

fn open(path: &str) -> Result<Init, String> {
    let name = CString::new(path).map_err(|_| "a name with a zero byte".to_owned())?;
    // SAFETY: a string that ends; what the library does when it is loaded is its own.
    let library: *mut c_void = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        // SAFETY: asked for right after the failure.
        return Err(format!("not loaded: {}", said(unsafe { libc::dlerror() })));
    }
    // SAFETY: the library is open, the name ends.
    let init = unsafe { libc::dlsym(library, c"nvshmemt_init".as_ptr()) };
    if init.is_null() {
        return Err(format!("no nvshmemt_init in {path}"));
    }
    // SAFETY: the one entry of a transport has this signature.
    Ok(unsafe { std::mem::transmute::<*mut c_void, Init>(init) })
}

fn initialised(path: &str) -> Result<&'static mut Transport, String> {
    let (init, table) = (open(path)?, Box::leak(Box::new(cuda::table())));
    let mut transport = ptr::null_mut();
    // SAFETY: a place for the answer, and a table with more entries than are called, which stays.
    let status = unsafe { init(&raw mut transport, table.as_ptr(), major(path)? * 10_000) };
    if status != 0 || transport.is_null() {
        return Err(format!("nvshmemt_init: expected status 0 and a transport, got {status}"));
    }
    // SAFETY: made by the transport's library, which stays loaded.
    let transport = unsafe { &mut *transport };
    // A layout that is another one would show here.
    if transport.longest != LONGEST || !(1..=32).contains(&transport.devices) || !transport.initialized {
        return Err(format!(
            "the transport's answer: expected {LONGEST} bytes at most, 1 to 32 NICs, got {} and {}",
            transport.longest, transport.devices
        ));
    }
    println!("PE {}: initialised, {} NICs", std::process::id(), transport.devices);
    Ok(transport)
}

/// Gives the transport what the host library shares with it, and connects both PEs by the first NIC.
fn connect(transport: &mut Transport, pe: usize) -> Result<(), String> {
    transport.bootstrap = peer::handle(pe as c_int);
    (transport.pe, transport.pes, transport.index) = (pe as c_int, 2, 1);
    transport.log2_chunk = 29;
    transport.capabilities = Box::leak(Box::new([0; 2])).as_mut_ptr();
    (transport.alias_map, transport.egm_map) = (EmptyMap::leaked(), EmptyMap::leaked());
    let connect = transport.ops.connect.ok_or("the transport connects nothing")?;
    let mut nics = [0];
    // SAFETY: a transport that was initialised and has what it needs of us; one NIC is named.
    let status = unsafe { connect(transport, nics.as_mut_ptr(), 1, ptr::null_mut(), 0) };
    if status != 0 {
        return Err(format!("connect_endpoints: expected status 0, got {status}"));
    }
    println!("PE {pe}: connected");
    peer::meet()
}

fn pair(path: &str, data: bool, pe: usize) -> Result<(), String> {
    let transport = initialised(path)?;
    connect(transport, pe)?;
    if !data {
        return Ok(());
    }
    let mut traffic = Pe::new(transport, pe)?;
    type Step = fn(&mut Pe) -> Result<String, String>;
    let steps: [Step; 5] = [Pe::puts, Pe::gets, Pe::single, Pe::signals, Pe::puts_with_signals];
    for step in steps {
        println!("PE {pe}: {}", step(&mut traffic)?);
    }
    println!("PE {pe}: {}", traffic.finish()?);
    Ok(())
}

/// Both processes, of which this is PE 0.
fn both(args: &[String], data: bool) -> Result<(), String> {
    let mut second = peer::start(args).map_err(|error| format!("no second process: {error}"))?;
    let first = pair(&args[0], data, 0);
    if first.is_err() {
        // It waits for words that do not come.
        let _ = second.kill();
    }
    let status = second.wait().map_err(|error| error.to_string())?;
    first?;
    if status.success() { Ok(()) } else { Err(format!("the second process ended with {status}")) }
}

fn run(args: &[String]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [path, "init"] => initialised(path).map(|_| ()),
        [_, "connect"] => both(args, false),
        [_, "data"] => both(args, true),
        [path, what @ ("connect" | "data"), "--second"] => {
            peer::join().map_err(|error| error.to_string())?;
            pair(path, what == "data", 1)
        }
        _ => Err("expected the file of a transport, then init, connect or data".into()),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("probe: {error}");
            ExitCode::FAILURE
        }
    }
}
