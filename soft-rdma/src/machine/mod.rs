//! What this process has of RDMA: soft NICs in one fabric, the thread that steps them, and the way to the NICs of
//! other processes. Made at the first look at a device, and not before: a program that is preloaded and has nothing
//! to do with RDMA gets neither threads nor files.

mod capture;
mod dispatch;
mod error;
mod nic;
mod slot;

pub use dispatch::{EventSink, SubscriptionId};
pub use error::StartError;
pub use nic::{GidEntry, GidKind, Nic, PortView};

use crate::control;
use crate::log::{self, Level};
use crate::settings::Settings;
use crate::sysfs::{Device, Tree, TreeError};
use dispatch::{Bell, Sinks};
use nix::sys::signal::SigSet;
use shunt_soft_nic::uplink::{fabric_directory, runtime_directory};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, RailAt, SharedFabric, SoftNic};
use slot::Claim;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;
use std::{ptr, thread};

/// What this process has of RDMA.
pub struct Machine {
    settings: Settings,
    slot: u32,
    directory: PathBuf,
    nics: Vec<Nic>,
    tree: Mutex<Option<Tree>>,
    root: PathBuf,
    server: Mutex<Option<control::Server>>,
    clock: Clock,
    bell: Arc<Bell>,
    opened: Once,
    closed: AtomicBool,
    process: u32,
    /// Steps the fabric. It is never stopped: a program may ring doorbells until its last instruction.
    _engine: Engine,
    fabric: SharedFabric,
}

/// The machine of one process, or why there is none. A child gets its own.
struct OfProcess {
    process: u32,
    machine: OnceLock<Result<&'static Machine, StartError>>,
}

/// In the path of every file that follows a port.
const PORTS: &[u8] = b"/ports/";

static CURRENT: AtomicPtr<OfProcess> = AtomicPtr::new(ptr::null_mut());

impl Machine {
    /// The machine of this process, made from its environment at the first call.
    pub fn get() -> Result<&'static Self, &'static StartError> {
        let made = of_process().machine.get_or_init(|| {
            let made = Settings::from_environment().map_err(StartError::from).and_then(|settings| {
                log::set(settings.level);
                Self::start(settings, &runtime_directory())
            });
            match &made {
                Err(error) => crate::log!(Level::Error, "no devices: {error}"),
                Ok(machine) => {
                    // SAFETY: the handler takes no arguments and touches only what lives as long as the process.
                    unsafe { libc::atexit(leave) };
                    let (nics, slot, fabric) = (machine.nics.len(), machine.slot, &machine.settings.fabric);
                    crate::log!(Level::Info, "{nics} NICs, number {slot} of fabric {fabric}");
                }
            }
            made
        });
        made.as_ref().copied()
    }

    /// The machine of this process if it was made already.
    pub fn made() -> Option<&'static Self> {
        of_process().machine.get()?.as_ref().ok().copied()
    }

    /// Makes a machine below a runtime directory. It stays for the life of the process, because devices do; what it
    /// has outside of it ends with [`Self::close`].
    pub fn start(settings: Settings, runtime: &Path) -> Result<&'static Self, StartError> {
        Self::start_with(settings, runtime, nic::COMMAND_TIMEOUT)
    }

    fn start_with(
        settings: Settings,
        runtime: &Path,
        timeout: Duration,
    ) -> Result<&'static Self, StartError> {
        let directory = fabric_directory(runtime, &settings.fabric)?;
        let Claim { slot, nics, uplink } = slot::claim(&settings, runtime)?;
        let tree = Tree::new(&directory)?;
        let mut fabric = Fabric::new(FabricConfig::default());
        let (bell, clock) = (Arc::new(Bell::default()), Clock::new());
        let mut parts = Vec::new();
        for (rail, (config, interface)) in (0..).zip(nics) {
            let name = config.name.clone();
            let mut nic = SoftNic::new(config);
            let rung = bell.clone();
            nic.set_waker(Arc::new(move || rung.ring()));
            parts.push((name, interface, fabric.add(nic, RailAt { pe: slot, rail })));
        }
        fabric.attach(uplink)?;
        if let Some(path) = &settings.pcap {
            capture::start(&mut fabric, path, clock)?;
        }
        let quiet = Quiet::new();
        let engine = Engine::spawn_beside_pollers(fabric, clock);
        let shared = engine.fabric();
        let nic = |(index, (name, interface, id))| Nic {
            name,
            index,
            interface,
            id,
            fabric: shared.clone(),
            clock,
            bell: bell.clone(),
            sinks: Sinks::default(),
            timeout,
            unanswered: Mutex::default(),
            process: std::process::id(),
        };
        let machine: &'static Self = Box::leak(Box::new(Self {
            settings,
            slot,
            directory,
            nics: (0..).zip(parts).map(nic).collect(),
            root: tree.root().to_owned(),
            tree: Mutex::new(Some(tree)),
            server: Mutex::new(None),
            clock,
            bell: bell.clone(),
            opened: Once::new(),
            closed: AtomicBool::new(false),
            process: std::process::id(),
            _engine: engine,
            fabric: shared.clone(),
        }));
        machine.describe(Tree::write)?;
        let what = "soft-rdma events";
        let events = in_thread(what, move || dispatch::run(machine));
        events.map_err(|cause| StartError::Thread { what, cause })?;
        match control::serve(machine, &machine.directory) {
            Ok(server) => *machine.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server),
            // The devices are as good without.
            Err(error) => crate::log!(Level::Warn, "faults cannot be injected from outside: {error}"),
        }
        drop(quiet);
        Ok(machine)
    }

    /// Writes what the NICs are now into the tree.
    fn describe(
        &self,
        write: impl FnOnce(&mut Tree, &[Device]) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let devices: Vec<Device> = self.nics.iter().map(Device::of).collect();
        tree.as_mut().map_or(Ok(()), |tree| write(tree, &devices))
    }

    /// Has the files that follow the NICs follow them.
    pub(crate) fn refresh(&self) {
        if let Err(error) = self.describe(Tree::update) {
            crate::log!(Level::Warn, "port files are not what the ports are: {error}");
        }
    }

    /// The NICs, by index.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// The directory that stands for `/` where devices are looked for: `sys/class/infiniband` lies below it.
    pub fn sysfs_root(&self) -> &Path {
        &self.root
    }

    /// The program is about to look at a path of soft devices: what is below a port shall say what the port is at this
    /// moment.
    pub fn looked_at(&self, path: &[u8]) {
        if path.windows(PORTS.len()).any(|part| part == PORTS) && self.process == std::process::id() {
            self.refresh();
        }
    }

    /// The number no other live process of the fabric has.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// What it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The directory of its fabric.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A device was opened: the plan of faults counts its times from the first call.
    pub fn opened(&self) {
        self.opened.call_once(|| {
            let now = self.clock.now_ns();
            for fault in &self.settings.faults {
                let at = RailAt { pe: self.slot, rail: fault.nic };
                let at_ns = now.saturating_add(fault.at_ns);
                self.with_fabric(|fabric| fabric.plan(at_ns, at, fault.kind));
            }
        });
    }

    /// Nanoseconds of the clock that faults are planned by.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Runs `f` on the fabric.
    pub(crate) fn with_fabric<R>(&self, f: impl FnOnce(&mut Fabric) -> R) -> R {
        self.fabric.with(f)
    }

    /// Leaves the fabric and removes its files. The NICs answer as before, but nobody else's packets reach them.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) || self.process != std::process::id() {
            return;
        }
        self.bell.ring();
        self.with_fabric(Fabric::detach);
        self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// True after [`Self::close`].
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// The place for this process's machine. One made before a fork is the parent's: its threads are not here.
fn of_process() -> &'static OfProcess {
    let process = std::process::id();
    loop {
        let known = CURRENT.load(Ordering::Acquire);
        // SAFETY: what is stored was leaked below, so it is whole and stays.
        if let Some(known) = unsafe { known.as_ref() }
            && known.process == process
        {
            return known;
        }
        let fresh = Box::into_raw(Box::new(OfProcess { process, machine: OnceLock::new() }));
        if CURRENT.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it came from `into_raw` above and nobody else saw it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// At the process's end.
extern "C" fn leave() {
    if let Some(machine) = Machine::made() {
        machine.close();
    }
}

/// Starts a thread of ours in the midst of a program: it gets no signals, those are the program's own.
pub(crate) fn in_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _quiet = Quiet::new();
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Threads started while it lives get no signals: those are the program's own.
struct Quiet {
    before: Option<SigSet>,
}

impl Quiet {
    fn new() -> Self {
        Self { before: SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).ok() }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was this thread's mask a moment ago: it is a valid one.
            let _ = before.thread_set_mask();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use shunt_layout::mlx5::prm::cmd::{Opcode, input};
    use shunt_soft_nic::FaultKind;

    #[test]
    fn a_command_that_nobody_answers_ends() {
        let runtime = std::env::temp_dir().join(format!("shunt-command-{}", std::process::id()));
        let machine = Machine::start_with(Settings::default(), &runtime, Duration::from_millis(50)).unwrap();
        let nic = &machine.nics()[0];
        let mut nop = [0; 16];
        input::OPCODE.set(&mut nop, Opcode::Nop as u32);
        assert_eq!(nic.command(&nop, &mut [0xff; 16]), Ok(()));
        let at = RailAt { pe: machine.slot(), rail: 0 };
        machine.with_fabric(|fabric| {
            fabric.plan(0, at, FaultKind::FwTimeout { for_ns: None });
            // The engine would begin with it, but maybe only behind the command.
            fabric.round(machine.clock.now_ns());
        });
        assert_eq!(nic.command(&nop, &mut [0; 16]), Err(Errno::TIMEDOUT));
        machine.close();
        std::fs::remove_dir_all(runtime).unwrap();
    }
}
