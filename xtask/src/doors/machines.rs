//! Two machines that share nothing but a network: each a namespace of network, mounts, processes and host name. What
//! can be written to is their own; all else is read-only, as if it was installed on both.
//!
//! ```text
//!   a   eth0 10.0.0.1, 10.0.0.11 ----- 10.0.0.2, 10.0.0.12 eth0   b    agents and bootstrap
//!       eth1 10.0.1.1, 10.0.1.11 ----- 10.0.1.2, 10.0.1.12 eth1        the primary
//!       eth2 10.0.2.1, 10.0.2.11 ----- 10.0.2.2, 10.0.2.12 eth2
//! ```

use crate::netns::{Net, Plan};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The interface of the primary.
pub const PRIMARY: &str = "eth1";
/// Where machine a is reached.
pub const A: &str = "10.0.0.1";
/// Where programs run, on either.
pub const HOME: &str = "/tmp/home";

const PLAN: Plan = Plan {
    spaces: &["a", "b"],
    addresses: &[
        ("a", "eth0", "10.0.0.1/24"),
        ("a", "eth0", "10.0.0.11/24"),
        ("b", "eth0", "10.0.0.2/24"),
        ("b", "eth0", "10.0.0.12/24"),
        ("a", "eth1", "10.0.1.1/24"),
        ("a", "eth1", "10.0.1.11/24"),
        ("b", "eth1", "10.0.1.2/24"),
        ("b", "eth1", "10.0.1.12/24"),
        ("a", "eth2", "10.0.2.1/24"),
        ("a", "eth2", "10.0.2.11/24"),
        ("b", "eth2", "10.0.2.2/24"),
        ("b", "eth2", "10.0.2.12/24"),
    ],
    cables: &[[("a", "eth0"), ("b", "eth0")], [("a", "eth1"), ("b", "eth1")], [("a", "eth2"), ("b", "eth2")]],
    routes: &[],
};

/// What the first process of a machine does: files of its own, the tree and what was built read-only, wherever they
/// are. Arguments: the tree, what was built, the machine's name.
const BOOT: &str = r#"set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/tree /mnt/built
mount --bind "$1" /mnt/tree
mount --bind "$2" /mnt/built
for own in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs tmpfs $own; done
mkdir -p "$1" "$2" /tmp/home
mount --bind /mnt/tree "$1"
mkdir -p "$2" 2>/dev/null || true
mount --bind /mnt/built "$2"
for shared in "$2" "$1" /; do mount -o remount,bind,ro "$shared"; done
umount -R -l /mnt
hostname "$3"
echo up
exec sleep infinity
"#;

/// The first process of a machine: with it all of its processes go.
#[derive(Debug)]
struct Init {
    outer: Child,
    pid: String,
}

impl Drop for Init {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

/// Both of them.
#[derive(Debug)]
pub struct Machines {
    inits: Vec<Init>,
    net: Net,
}

impl Machines {
    /// Starts them.
    pub fn boot() -> Result<Self> {
        let net = Net::make(&PLAN)?;
        let inits = (0..2).map(|machine| boot(&net, machine)).collect::<Result<_>>()?;
        Ok(Self { inits, net })
    }

    /// A program of a machine.
    pub fn on(&self, machine: usize, program: &str) -> Command {
        let mut command = sh::command("nsenter");
        command.args(["--target", &self.inits[machine].pid, "--mount", "--uts", "--pid", "--net", "--"]);
        command.args(["sh", "-c", &format!("cd {HOME} && exec \"$@\""), "sh", program]);
        command.env_remove("XDG_RUNTIME_DIR").env_remove("SHUNT_NIC").stdin(Stdio::null());
        command
    }

    /// A file of a machine, as it is reached from here.
    pub fn file(&self, machine: usize, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.inits[machine].pid, path.display()))
    }

    /// Machine a's end of the primary's cable: in or out.
    pub fn plug(&self, up: bool) -> Result<()> {
        self.net.plug(0, PRIMARY, up)
    }

    /// All cables in, and both ends of each see it.
    pub fn whole(&self) -> Result<()> {
        self.plug(true)?;
        self.net.wait_for_links()
    }
}

fn boot(net: &Net, machine: u32) -> Result<Init> {
    let name = ["a", "b"][machine as usize];
    let mut command = net.on_host(machine, "unshare");
    command.args([
        "--mount",
        "--uts",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        "sh",
        "-c",
        BOOT,
        "sh",
    ]);
    command.arg(sh::root()).arg(sh::target_dir()).arg(format!("machine-{name}"));
    let mut outer = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("ip netns exec")?;
    let mut line = String::new();
    let out = outer.stdout.take().context("no pipe")?;
    BufReader::new(out).read_line(&mut line)?;
    let id = outer.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let init = Init { outer, pid: children.trim().to_owned() };
    if line.trim() != "up" || init.pid.is_empty() {
        bail!("machine {name}: expected its first process, got '{}' and child '{}'", line.trim(), init.pid);
    }
    Ok(init)
}
