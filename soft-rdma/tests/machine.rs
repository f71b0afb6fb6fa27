//! Machines of several processes in one fabric: numbers, what killed ones leave, files, commands, events.

use crate::support::{PATIENCE, Runtime, read, wait};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::cmd::{Opcode, input, output};
use shunt_soft_machine::control::{Client, processes_in};
use shunt_soft_machine::devices::{EventSink, GidKind};
use shunt_soft_machine::machine::{Machine, StartError};
use shunt_soft_machine::settings::Settings;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

/// Tells a process of this test where its fabric is; its environment is otherwise what users set.
const RUNTIME: &str = "SHUNT_TEST_RUNTIME";
/// Tells it to fork.
const FORK: &str = "SHUNT_TEST_FORK";

/// Not a test of its own: what another process of the tests below does.
#[test]
fn another_process() {
    let Some(runtime) = std::env::var_os(RUNTIME) else { return };
    // The way of the interposer: from the environment.
    // SAFETY: this process runs nothing else.
    unsafe { std::env::set_var("XDG_RUNTIME_DIR", runtime) };
    let machine = Machine::get().unwrap();
    println!("\nnumber {}", machine.slot());
    if std::env::var_os(FORK).is_some() {
        fork(machine);
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    // As a program ends, and without the test harness's last words: nobody reads them.
    std::process::exit(0);
}

/// Makes a child that looks at devices of its own, and waits for its end.
fn fork(machine: &Machine) {
    // SAFETY: the child does what a program may do after a fork, and a C library that lets it allocate.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            // What it sees of its parent's is a picture.
            assert_eq!(machine.nics()[0].command(&[0; 16], &mut [0; 16]), Err(rustix::io::Errno::IO));
            println!("\nchild {}", Machine::get().unwrap().slot());
            std::process::exit(0);
        }
        nix::unistd::ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            println!("\nend {ended:?} {}", machine.sysfs_root().exists());
        }
    }
}

#[test]
fn a_child_has_devices_of_its_own() {
    let (base, runtime) = runtime_for_others();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["machine::another_process", "--exact", "--nocapture"]).env(RUNTIME, &base.0).env(FORK, "1");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    for line in ["number 0", "child 1"] {
        assert!(said.lines().any(|said| said == line), "{line} is not in {said}");
    }
    // The child's end took nothing of the parent's with it.
    assert!(said.contains("Exited(") && said.contains(", 0) true"), "{said}");
    assert_eq!(runtime.names(), ["lock"]);
}

fn other(runtime: &Path) -> (Child, u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["machine::another_process", "--exact", "--nocapture"]).env(RUNTIME, runtime);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let slot =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("number ")?.parse().ok()).unwrap();
    (child, slot)
}

/// The runtime directory that a process with this `XDG_RUNTIME_DIR` has.
fn runtime_for_others() -> (Runtime, Runtime) {
    let base = Runtime::new();
    std::fs::create_dir(&base.0).unwrap();
    let inside = Runtime(base.0.join("shunt"));
    (base, inside)
}

#[test]
fn each_machine_has_a_number_of_its_own() {
    let (base, runtime) = runtime_for_others();
    let first = runtime.start(1);
    let (mut child, of_child) = other(&base.0);
    let second = runtime.start(2);
    assert_eq!((first.slot(), of_child, second.slot()), (0, 1, 2));
    assert_eq!(first.nics()[0].gid(0).unwrap().gid[10..], [0xff, 0xff, 10, 0, 0, 1]);
    assert_eq!(second.nics()[1].gid(0).unwrap().gid[10..], [0xff, 0xff, 10, 1, 0, 3]);
    let entry = first.nics()[0].gid(0).unwrap();
    assert_eq!((entry.index, entry.kind, first.nics()[0].gid(1)), (0, GidKind::RoceV2, None));
    // A process that leaves makes room, by its own will or not.
    first.close();
    let again = runtime.start(1);
    assert_eq!(again.slot(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let in_its_place = runtime.start(1);
    assert_eq!(in_its_place.slot(), 1);
    [second, again, in_its_place].iter().for_each(|machine| machine.close());
}

#[test]
fn what_a_process_leaves_is_removed() {
    let (base, runtime) = runtime_for_others();
    let first = runtime.start(1);
    let (mut killed, _) = other(&base.0);
    let addresses = || runtime.names().iter().filter(|name| name.starts_with("00000000")).count();
    assert_eq!(addresses(), 2, "{:?}", runtime.names());
    let mine = |child: &Child| {
        let pid = child.id().to_string();
        runtime.names().into_iter().filter(|name| name.contains(&pid)).collect::<Vec<_>>()
    };
    assert_eq!(mine(&killed).len(), 2, "a tree and a socket: {:?}", runtime.names());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(mine(&killed).len(), 2, "a killed process cleans nothing up");
    first.close();
    // It takes another address than the killed one had.
    let machine = runtime.start(1);
    assert_eq!(mine(&killed), [""; 0]);
    assert_eq!((machine.slot(), addresses()), (0, 1), "{:?}", runtime.names());
    // One that ends by itself leaves nothing.
    let (mut ended, slot) = other(&base.0);
    assert_eq!(slot, 1);
    drop(ended.stdin.take());
    assert!(ended.wait().unwrap().success());
    assert_eq!(mine(&ended), [""; 0]);
    machine.close();
    assert_eq!(runtime.names(), ["lock"]);
}

#[test]
fn the_tree_says_what_a_device_is() {
    let runtime = Runtime::new();
    let machine = runtime.start(2);
    let root = machine.sysfs_root();
    for (file, text) in [
        ("sys/class/infiniband_verbs/abi_version", "6"),
        ("sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_1"),
        ("sys/class/infiniband_verbs/uverbs1/dev", "231:193"),
        ("sys/class/infiniband_verbs/uverbs1/abi_version", "1"),
        ("sys/class/infiniband_verbs/uverbs1/device/vendor", "0x15b3"),
        ("sys/class/infiniband/mlx5_0/node_type", "1: CA"),
        ("sys/class/infiniband/mlx5_0/node_guid", "0053:48ff:fe00:0000"),
        ("sys/class/infiniband/mlx5_1/node_guid", "0053:48ff:fe01:0000"),
        ("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002"),
        ("sys/class/infiniband/mlx5_0/hca_type", "MT4129"),
        ("sys/class/infiniband/mlx5_0/device/device", "0x1021"),
        ("sys/class/infiniband/mlx5_0/device/numa_node", "-1"),
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("sys/class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp"),
        ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "RoCE v2"),
        ("sys/class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"),
        ("sys/bus/pci/devices/5348:00:01.0/infiniband/mlx5_1/node_type", "1: CA"),
    ] {
        assert_eq!(read(root, file), text, "{file}");
    }
    let modalias = read(root, "sys/class/infiniband/mlx5_0/device/modalias");
    assert!(modalias.starts_with("pci:v000015B3d00001021sv"), "{modalias}");
    assert!(root.join("dev/infiniband/uverbs0").is_file());
    let driver = root.join("sys/class/infiniband/mlx5_0/device/driver").canonicalize().unwrap();
    assert_eq!(driver.file_name().unwrap(), "mlx5_core");
    let home = root.join("sys/class/infiniband/mlx5_1/device").canonicalize().unwrap();
    assert_eq!(home, root.canonicalize().unwrap().join("sys/devices/pci5348:00/5348:00:01.0"));
    machine.close();
    assert!(!root.exists());
}

struct Forward(Sender<[u8; 64]>);

impl EventSink for Forward {
    fn event(&mut self, eqe: &[u8; 64]) {
        // A test that ended listens no more.
        let _ = self.0.send(*eqe);
    }
}

#[test]
fn ports_tell_when_they_go_down() {
    let runtime = Runtime::new();
    let machine = runtime.start(2);
    let (sender, events) = channel();
    let nic = &machine.nics()[1];
    let subscription = nic.subscribe(Box::new(Forward(sender.clone())));
    let mut client = Client::connect(&processes_in(&runtime.0, "default")[0].socket).unwrap();
    assert_eq!(client.inject(1, 0, "down").unwrap(), 0);
    let sub_type = |eqe: [u8; 64]| (eqe::EVENT_TYPE.get(&eqe) as u8, eqe::SUB_TYPE.get(&eqe) as u8);
    assert_eq!(sub_type(events.recv_timeout(PATIENCE).unwrap()), (eqe::event::PORT_CHANGE, eqe::port::DOWN));
    let state = |n: u32| read(machine.sysfs_root(), &format!("sys/class/infiniband/mlx5_{n}/ports/1/state"));
    wait("the file of the port", || state(1) == "1: DOWN");
    assert_eq!(state(0), "4: ACTIVE");
    assert!(!nic.port().up && !client.nics().unwrap().nics[1].up);
    client.inject(1, 0, "up").unwrap();
    assert_eq!(
        sub_type(events.recv_timeout(PATIENCE).unwrap()),
        (eqe::event::PORT_CHANGE, eqe::port::ACTIVE)
    );
    wait("the file of the port", || state(1) == "4: ACTIVE");
    nic.unsubscribe(subscription);
    client.inject(1, 0, "down").unwrap();
    wait("the port", || !nic.port().up);
    wait("the file of the port", || state(1) == "1: DOWN");
    assert!(events.try_recv().is_err(), "an event after the subscription ended");
    // A file is what the port is when it is asked for, whether an event told or not.
    client.inject(0, 0, "event-lost").unwrap();
    client.inject(0, 0, "down").unwrap();
    wait("the silent port", || !machine.nics()[0].port().up);
    machine.looked_at(b"/sys/class/infiniband/mlx5_0/ports/1/state");
    assert_eq!(state(0), "1: DOWN");
    machine.close();
}

#[test]
fn firmware_answers_with_a_status() {
    let runtime = Runtime::new();
    let machine = runtime.start(1);
    let nic = &machine.nics()[0];
    let mut mailbox = [0; 16];
    input::OPCODE.set(&mut mailbox, Opcode::AllocPd as u32);
    let mut answer = [0xff; 16];
    nic.command(&mailbox, &mut answer).unwrap();
    assert_eq!(output::STATUS.get(&answer), 0);
    input::OPCODE.set(&mut mailbox, 0xfff);
    nic.command(&mailbox, &mut answer).unwrap();
    assert_ne!(output::STATUS.get(&answer), 0);
    machine.close();
}

#[test]
fn planned_faults_count_from_the_first_open() {
    let runtime = Runtime::new();
    let fault = shunt_soft_machine::settings::parse_fault("1ms:mlx5_0:down", 1, Default::default()).unwrap();
    let machine =
        Machine::start(Settings { faults: vec![fault], ..Settings::default() }, &runtime.0).unwrap();
    let mut client = Client::connect(&processes_in(&runtime.0, "default")[0].socket).unwrap();
    assert_eq!(client.faults().unwrap(), []);
    let before = client.nics().unwrap().now_ns;
    machine.opened();
    machine.opened();
    let faults = client.faults().unwrap();
    assert!(faults.len() == 1 && faults[0].at_ns >= before + 1_000_000, "{faults:?}");
    wait("the fault", || client.faults().unwrap()[0].hits == 1);
    machine.close();
}

#[test]
fn a_name_that_is_no_name_is_refused() {
    let runtime = Runtime::new();
    let settings = Settings { fabric: "../up".into(), ..Settings::default() };
    let error = Machine::start(settings, &runtime.0).map(|_| ()).unwrap_err();
    assert!(matches!(error, StartError::Uplink(_)) && error.to_string().contains("\"../up\""), "{error}");
}

#[test]
fn nics_at_addresses_of_their_own() {
    let runtime = Runtime::new();
    let roce = |address: [u8; 4]| Settings { roce: vec![address.into()], ..Settings::default() };
    // In the range that is this machine's, at a place that nobody takes.
    let id = std::process::id();
    let address = [127, (id >> 14) as u8 | 0x80, (id >> 7) as u8 & 0x7f, (id as u8 & 0x7f) + 1];
    let capture = runtime.0.with_extension("%p.pcap");
    let settings = Settings { pcap: Some(capture.clone()), ..roce(address) };
    let machine = Machine::start(settings.clone(), &runtime.0).unwrap();
    let gid = machine.nics()[0].gid(0).unwrap();
    assert_eq!(gid.gid[12..], address);
    assert_eq!(read(machine.sysfs_root(), "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0"), "lo");
    let file = capture.to_str().unwrap().replace("%p", &id.to_string());
    assert_eq!(std::fs::read(&file).unwrap().len(), 24, "the head of a capture");
    let refused = |settings| Machine::start(settings, &runtime.0).map(|_| ()).unwrap_err().to_string();
    assert!(refused(roce(address)).contains("in use"));
    assert!(refused(roce([192, 0, 2, 1])).contains("no interface of this machine"));
    let [a, b, c, d] = address;
    let other = Settings { roce: vec![[a, b, c, d + 100].into()], ..settings };
    assert!(refused(other).contains("another process writes packets to"));
    machine.close();
    std::fs::remove_file(file).unwrap();
}
