//! The end of the control socket that lies in the process with the devices.

use super::wire::{Answer, FaultView, Injected, NicView, ProcessView, Request, Watched};
use super::{LINE_MAX, PREFIX, SUFFIX};
use crate::devices::{Devices, Nic};
use crate::log::Level;
use rustix::net::sockopt;
use serde::Serialize;
use shunt_soft_nic::fault::format_time;
use shunt_soft_nic::{FaultKind, RailAt};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv6Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Callers at once.
const CALLERS: u32 = 32;
/// How long a caller may say nothing, or not read.
const IDLE: Duration = Duration::from_secs(60);

/// The socket. Its file goes with it.
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    process: u32,
}

impl Server {
    /// Makes the socket of this process, and removes those of processes that are gone.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        remove_stale(directory);
        let process = std::process::id();
        let path = directory.join(format!("{PREFIX}{process}{SUFFIX}"));
        // It gets its name once it listens: before, it looks to others like one that nobody listens at.
        let unnamed = directory.join(format!(".{PREFIX}{process}"));
        // Of a process with this number that died here, if it is there at all.
        let _ = fs::remove_file(&unnamed);
        let listener = UnixListener::bind(&unnamed)?;
        fs::rename(&unnamed, &path)?;
        Ok(Self { listener, path, process })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Wakes the thread that waits for callers.
            let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes sockets that nobody listens at.
fn remove_stale(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let ours = name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        if ours && UnixStream::connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Starts the thread that answers, and returns the socket.
pub(crate) fn serve(devices: &'static Devices, directory: &Path) -> io::Result<Server> {
    let server = Server::open(directory)?;
    let listener = server.listener.try_clone()?;
    let name = "soft-rdma control".to_owned();
    thread::Builder::new().name(name).spawn(move || accept(devices, &listener))?;
    Ok(server)
}

fn accept(devices: &'static Devices, listener: &UnixListener) {
    let callers = Arc::new(AtomicU32::new(0));
    while !devices.closed() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if devices.closed() => return,
            Err(_) => {
                // No descriptors, most likely: they come back.
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if callers.fetch_add(1, Ordering::AcqRel) >= CALLERS {
            callers.fetch_sub(1, Ordering::AcqRel);
            refuse(stream, format!("{CALLERS} callers are here already; try again later"));
            continue;
        }
        let count = callers.clone();
        let talk = move || {
            let told = talk(devices, stream);
            count.fetch_sub(1, Ordering::AcqRel);
            if let Err(error) = told {
                crate::log!(Level::Debug, "control: {error}");
            }
        };
        if thread::Builder::new().name("soft-rdma caller".into()).spawn(talk).is_err() {
            callers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn refuse(mut stream: UnixStream, text: String) {
    // Somebody who is gone needs no answer.
    let _ = stream.set_write_timeout(Some(IDLE)).and_then(|()| say(&mut stream, &Answer::<()>::Error(text)));
}

/// Answers one caller's requests until there are no more.
fn talk(devices: &Devices, mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let (caller, me) = (sockopt::socket_peercred(&stream)?.uid, rustix::process::geteuid());
    if caller != me {
        let text = format!("a caller of user {}; this process is of user {}", caller.as_raw(), me.as_raw());
        return say(&mut stream, &Answer::<()>::Error(text));
    }
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LINE_MAX {
            // Where the next request begins is not known.
            return say(&mut stream, &Answer::<()>::Error(format!("a line of more than {LINE_MAX} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Request>(&line) {
            Ok(request) => answer(devices, &request, &mut stream)?,
            Err(error) => say(&mut stream, &Answer::<()>::Error(format!("not a request: {error}")))?,
        }
    }
}

fn say<T: Serialize>(stream: &mut UnixStream, answer: &Answer<T>) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn answer(devices: &Devices, request: &Request, stream: &mut UnixStream) -> io::Result<()> {
    match request {
        Request::Inject { nic, at_ns, fault } => match inject(devices, *nic, *at_ns, fault) {
            Ok(id) => say(stream, &Answer::Ok(Injected { id })),
            Err(text) => say(stream, &Answer::<()>::Error(text)),
        },
        Request::Faults {} => say(stream, &Answer::Ok(faults(devices))),
        Request::Nics {} => say(stream, &Answer::Ok(process(devices))),
        Request::Watch { address } => {
            let seen = devices.with_fabric(|fabric| {
                fabric.watch_word(*address);
                fabric.watched(*address)
            });
            say(stream, &Answer::Ok(Watched::from(seen)))
        }
        Request::Watched { address } => {
            let seen = devices.with_fabric(|fabric| fabric.watched(*address));
            say(stream, &Answer::Ok(Watched::from(seen)))
        }
    }
}

fn inject(devices: &Devices, nic: u32, from_now_ns: u64, fault: &str) -> Result<u64, String> {
    let kind: FaultKind = fault.parse().map_err(|error| format!("{error}"))?;
    if nic as usize >= devices.nics().len() {
        let names: Vec<&str> = devices.nics().iter().map(Nic::name).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let named = devices.nics().first().map_or(String::new(), |first| first.kind().device(nic));
        return Err(format!("no {named}; there {verb} {}", names.join(", ")));
    }
    let at = RailAt { pe: devices.slot(), rail: nic };
    let id = devices.with_fabric(|fabric| {
        // The number is the place in the list, which only grows.
        let id = fabric.faults().len() as u64;
        fabric.plan(devices.now_ns().saturating_add(from_now_ns), at, kind);
        id
    });
    crate::log!(Level::Info, "fault {id}: {kind} at NIC {nic} in {}", format_time(from_now_ns));
    Ok(id)
}

fn faults(devices: &Devices) -> Vec<FaultView> {
    let reports = devices.with_fabric(|fabric| fabric.faults());
    let view = |(id, report): (u64, shunt_soft_nic::FaultReport)| FaultView {
        id,
        nic: report.at.rail,
        at_ns: report.at_ns,
        fault: report.kind.to_string(),
        kind: report.kind.name().into(),
        hits: report.hits,
    };
    (0..).zip(reports).map(view).collect()
}

fn process(devices: &Devices) -> ProcessView {
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default().trim().to_owned();
    ProcessView {
        pid: std::process::id(),
        program,
        slot: devices.slot(),
        now_ns: devices.now_ns(),
        nics: devices.nics().iter().map(nic).collect(),
    }
}

fn nic(nic: &Nic) -> NicView {
    let port = nic.port();
    let gid = nic.gid(0).map_or([0; 16], |entry| entry.gid);
    let mac: Vec<String> = nic.mac().iter().map(|byte| format!("{byte:02x}")).collect();
    NicView {
        name: nic.name().into(),
        index: nic.index(),
        gid: Ipv6Addr::from(gid).to_string(),
        mac: mac.join(":"),
        up: port.up,
        mtu: port.mtu,
        rate: port.rate.into(),
        counters: nic.with(|nic| nic.counters()).into(),
    }
}
