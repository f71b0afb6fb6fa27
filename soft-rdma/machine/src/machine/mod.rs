//! What this process has of RDMA: its devices, the files that describe them, and the socket that faults come by. Made
//! at the first look at a device, and not before: a program that is preloaded and has nothing to do with RDMA gets
//! neither threads nor files.

mod capture;
mod error;
mod slot;

pub use error::StartError;

use crate::control;
use crate::devices::{COMMAND_TIMEOUT, Devices, Nic};
use crate::log::{self, Level};
use crate::per_process::PerProcess;
use crate::settings::{Settings, When};
use crate::sysfs::{Device, Tree, TreeError};
use crate::thread::{Quiet, in_thread};
use shunt_soft_nic::RailAt;
use shunt_soft_nic::uplink::{fabric_directory, runtime_directory};
use slot::Claim;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// What this process has of RDMA.
pub struct Machine {
    settings: Settings,
    directory: PathBuf,
    devices: Devices,
    tree: Mutex<Option<Tree>>,
    root: PathBuf,
    server: Mutex<Option<control::Server>>,
    opened: Once,
    process: u32,
}

/// The machine of each process, or why there is none. A child gets its own: its parent's threads are not there.
static CURRENT: PerProcess<Result<&'static Machine, StartError>> = PerProcess::new();

/// In the path of every file that follows a port.
const PORTS: &[u8] = b"/ports/";

impl Machine {
    /// The machine of this process, made from its environment at the first call.
    pub fn get() -> Result<&'static Self, &'static StartError> {
        let made = CURRENT.get().get_or_init(|| {
            let made = Settings::from_environment().map_err(StartError::from).and_then(|settings| {
                log::set(settings.level);
                Self::start(settings, &runtime_directory())
            });
            match &made {
                Err(error) => crate::log!(Level::Error, "no devices: {error}"),
                Ok(machine) => {
                    // SAFETY: the handler takes no arguments and touches only what lives as long as the process.
                    unsafe { libc::atexit(leave) };
                    let (nics, slot, fabric) =
                        (machine.nics().len(), machine.slot(), &machine.settings.fabric);
                    crate::log!(Level::Info, "{nics} NICs, number {slot} of fabric {fabric}");
                }
            }
            made
        });
        made.as_ref().copied()
    }

    /// The machine of this process if it was made already.
    pub fn made() -> Option<&'static Self> {
        CURRENT.get().get()?.as_ref().ok().copied()
    }

    /// Makes a machine below a runtime directory. It stays for the life of the process, because devices do; what it
    /// has outside of it ends with [`Self::close`].
    pub fn start(settings: Settings, runtime: &Path) -> Result<&'static Self, StartError> {
        Self::start_with(settings, runtime, COMMAND_TIMEOUT)
    }

    fn start_with(
        settings: Settings,
        runtime: &Path,
        timeout: Duration,
    ) -> Result<&'static Self, StartError> {
        let directory = fabric_directory(runtime, &settings.fabric)?;
        let Claim { slot, nics, uplink } = slot::claim(&settings, runtime)?;
        let tree = Tree::new(&directory)?;
        let quiet = Quiet::new();
        let kind = settings.kind;
        let devices = Devices::start(slot, kind, nics, timeout, |fabric, clock| {
            fabric.attach(uplink)?;
            let path = settings.pcap.as_deref();
            path.map_or(Ok(()), |path| capture::start(fabric, path, clock))
        })?;
        let machine: &'static Self = Box::leak(Box::new(Self {
            settings,
            directory,
            devices,
            root: tree.root().to_owned(),
            tree: Mutex::new(Some(tree)),
            server: Mutex::new(None),
            opened: Once::new(),
            process: std::process::id(),
        }));
        machine.describe(|tree, devices| tree.write(devices, machine.connects()))?;
        let what = "soft-rdma events";
        let events = in_thread(what, || machine.devices.dispatch(|| machine.refresh()));
        events.map_err(|cause| StartError::Thread { what, cause })?;
        match control::serve(&machine.devices, &machine.directory) {
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
        let devices: Vec<Device> = self.nics().iter().map(Nic::describe).collect();
        tree.as_mut().map_or(Ok(()), |tree| write(tree, &devices))
    }

    /// Has the files that follow the NICs follow them.
    fn refresh(&self) {
        if let Err(error) = self.describe(Tree::update) {
            crate::log!(Level::Warn, "port files are not what the ports are: {error}");
        }
    }

    /// The NICs, by index.
    pub fn nics(&self) -> &[Nic] {
        self.devices.nics()
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
        self.devices.slot()
    }

    /// True if there is a device of connections: processes of a fabric find each other in its directory. Those of
    /// other machines have no part in it.
    pub fn connects(&self) -> bool {
        self.settings.roce.is_empty()
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
            let now = self.devices.now_ns();
            for fault in &self.settings.faults {
                let at = RailAt { pe: self.slot(), rail: fault.nic };
                self.devices.with_fabric(|fabric| match fault.when {
                    When::After(ns) => fabric.plan(now.saturating_add(ns), at, fault.kind),
                    When::Packets(count) => fabric.plan_after(count, at, fault.kind),
                });
            }
        });
    }

    /// Planned faults that have hit nothing: NIC and kind.
    fn not_hit(&self) -> Vec<String> {
        let faults = self.devices.with_fabric(|fabric| fabric.faults());
        let not_hit = faults.iter().filter(|fault| fault.hits == 0);
        not_hit.map(|fault| format!("{} {}", self.settings.kind.device(fault.at.rail), fault.kind)).collect()
    }

    /// Leaves the fabric and removes its files. The NICs answer as before, but nobody else's packets reach them.
    pub fn close(&self) {
        if self.process != std::process::id() {
            return;
        }
        let not_hit = self.not_hit();
        if !self.devices.close() {
            return;
        }
        for fault in not_hit {
            log::line(Level::Warn, format_args!("fault {fault}: the program ended before it hit anything"));
        }
        self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// At the process's end.
extern "C" fn leave() {
    if let Some(machine) = Machine::made() {
        machine.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PlannedFault;
    use rustix::io::Errno;
    use shunt_layout::mlx5::prm::cmd::{Opcode, input};
    use shunt_soft_nic::FaultKind;

    #[test]
    fn a_fault_that_comes_too_late_is_known() {
        let runtime = std::env::temp_dir().join(format!("shunt-late-{}", std::process::id()));
        let late = PlannedFault {
            when: When::After(60_000_000_000),
            nic: 0,
            kind: FaultKind::Down { for_ns: None },
        };
        let settings = Settings { faults: vec![late], ..Settings::default() };
        let machine = Machine::start_with(settings, &runtime, Duration::from_millis(50)).unwrap();
        assert_eq!(machine.not_hit(), Vec::<String>::new(), "none is planned before a device is opened");
        machine.opened();
        assert_eq!(machine.not_hit(), ["mlx5_0 down"]);
        machine.close();
        let _ = std::fs::remove_dir_all(&runtime);
    }

    #[test]
    fn a_command_that_is_not_answered_ends() {
        let runtime = std::env::temp_dir().join(format!("shunt-command-{}", std::process::id()));
        let machine = Machine::start_with(Settings::default(), &runtime, Duration::from_millis(50)).unwrap();
        let nic = &machine.nics()[0];
        let mut nop = [0; 16];
        input::OPCODE.set(&mut nop, Opcode::Nop as u32);
        assert_eq!(nic.command(&nop, &mut [0xff; 16]), Ok(()));
        let at = RailAt { pe: machine.slot(), rail: 0 };
        machine.devices.with_fabric(|fabric| {
            fabric.plan(0, at, FaultKind::FwTimeout { for_ns: None });
            // The engine would begin with it, but maybe only behind the command.
            fabric.round(machine.devices.now_ns());
        });
        assert_eq!(nic.command(&nop, &mut [0; 16]), Err(Errno::TIMEDOUT));
        // The device is in its error state: the driver takes things away by itself, and does nothing else.
        let (mut destroy, mut answer) = ([0; 16], [0xff; 16]);
        input::OPCODE.set(&mut destroy, Opcode::DestroyQp as u32);
        assert_eq!((nic.command(&destroy, &mut answer), answer), (Ok(()), [0; 16]));
        assert_eq!(nic.command(&nop, &mut [0; 16]), Err(Errno::IO));
        machine.close();
        std::fs::remove_dir_all(runtime).unwrap();
    }
}
