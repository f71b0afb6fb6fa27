//! Two hosts and a router as network namespaces of this machine: what the stage `netns` runs on.
//!
//! ```text
//!   host a   c 10.77.0.1 ------------------------ 10.77.0.2 c   host b    agents and bootstrap
//!            r0 10.77.1.1 ----------------------- 10.77.1.2 r0            a cable: both ends see it go
//!            r1 10.77.2.1 --- .254 router .254 --- 10.77.3.2 r1           cut in the middle, neither end sees it
//! ```

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where rank 0 listens.
pub const ROOT: &str = "10.77.0.1:7700";
/// Stands for the router's namespace in a scenario's arguments.
pub const ROUTER: &str = "ROUTER";

/// Namespaces, and the cables between them.
#[derive(Debug)]
pub struct Plan {
    /// By the letters that their names end with. The hosts come first.
    pub spaces: &'static [&'static str],
    /// Namespace, interface, address.
    pub addresses: &'static [(&'static str, &'static str, &'static str)],
    /// Namespace and interface of either end.
    pub cables: &'static [[(&'static str, &'static str); 2]],
    /// Namespace, subnet, gateway.
    pub routes: &'static [(&'static str, &'static str, &'static str)],
}

/// As drawn above.
pub const ROUTED: Plan = Plan {
    spaces: &["a", "b", "router"],
    addresses: &[
        ("a", "c", "10.77.0.1/24"),
        ("b", "c", "10.77.0.2/24"),
        ("a", "r0", "10.77.1.1/24"),
        ("b", "r0", "10.77.1.2/24"),
        ("a", "r1", "10.77.2.1/24"),
        ("router", "ra", "10.77.2.254/24"),
        ("b", "r1", "10.77.3.2/24"),
        ("router", "rb", "10.77.3.254/24"),
    ],
    cables: &[
        [("a", "c"), ("b", "c")],
        [("a", "r0"), ("b", "r0")],
        [("a", "r1"), ("router", "ra")],
        [("b", "r1"), ("router", "rb")],
    ],
    // The ends of the routed rail are in different subnets, which neither host knows by itself.
    routes: &[("a", "10.77.3.0/24", "10.77.2.254"), ("b", "10.77.2.0/24", "10.77.3.254")],
};

/// Hosts, and a router if the plan has one. They go when this does.
#[derive(Debug)]
pub struct Net {
    prefix: String,
    plan: &'static Plan,
}

/// Whether this machine lets us make namespaces with cables between them, and if not, what it said.
pub fn permitted() -> Result<(), String> {
    let name = format!("shunt-{}-try", std::process::id());
    let said = ip(&format!("netns add {name}")).and_then(|()| {
        let made = ip(&format!("link add v type veth peer name w netns {name}"));
        // With its namespace one end goes, and so does the other.
        ip(&format!("netns del {name}")).and(made)
    });
    said.map_err(|error| format!("{error:#}"))
}

impl Net {
    /// Makes them.
    pub fn make(plan: &'static Plan) -> Result<Self> {
        let net = Self { prefix: format!("shunt-{}", std::process::id()), plan };
        for space in plan.spaces {
            ip(&format!("netns add {}", net.name(space)))?;
            ip(&format!("-n {} link set lo up", net.name(space)))?;
        }
        for [(a, left), (b, right)] in plan.cables {
            let (a, b) = (net.name(a), net.name(b));
            ip(&format!("link add {left} netns {a} type veth peer name {right} netns {b}"))?;
        }
        for (space, interface, address) in plan.addresses {
            ip(&format!("-n {} address add {address} dev {interface}", net.name(space)))?;
            ip(&format!("-n {} link set {interface} up", net.name(space)))?;
        }
        for (space, subnet, gateway) in plan.routes {
            ip(&format!("-n {} route add {subnet} via {gateway}", net.name(space)))?;
        }
        net.wait_for_links()?;
        if plan.spaces.contains(&"router") {
            let mut forward = net.inside("router", "sh");
            sh::capture(forward.args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]))?;
        }
        Ok(net)
    }

    /// A cable carries something a moment after both of its ends were switched on.
    pub fn wait_for_links(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(10);
        for (space, interface) in self.plan.cables.iter().flatten() {
            let is_up = || {
                let mut show = sh::command("ip");
                show.args(["-n", &self.name(space), "-o", "link", "show", "dev", interface]);
                sh::stdout_of(&mut show).is_some_and(|line| line.contains("state UP"))
            };
            while !is_up() {
                if Instant::now() > until {
                    bail!("{interface} of {} has no link", self.name(space));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    fn name(&self, space: &str) -> String {
        format!("{}-{space}", self.prefix)
    }

    /// A program inside one of them.
    fn inside(&self, space: &str, program: &str) -> Command {
        let mut command = sh::command("ip");
        command.args(["netns", "exec", &self.name(space), program]);
        command
    }

    /// A program on the host of a rank.
    pub fn on_host(&self, rank: u32, program: &str) -> Command {
        self.inside(self.plan.spaces[rank as usize], program)
    }

    /// Addresses of a rank's rails, the primary first: the cable, or what is routed.
    pub fn rails(&self, rank: u32, routed: bool) -> String {
        let rails = [["10.77.1.1", "10.77.2.1"], ["10.77.1.2", "10.77.3.2"]][rank as usize];
        if routed { [rails[1], rails[0]].join(",") } else { rails.join(",") }
    }

    /// A cable of a host: in or out.
    pub fn plug(&self, host: u32, interface: &str, up: bool) -> Result<()> {
        let (name, state) = (self.name(self.plan.spaces[host as usize]), if up { "up" } else { "down" });
        ip(&format!("-n {name} link set {interface} {state}"))
    }

    /// The router drops what it is to forward, both ways, or forwards it again. Neither end sees a port go down.
    pub fn blackhole(&self, drops: bool) -> Result<()> {
        let (router, does) = (self.name("router"), if drops { "add" } else { "del" });
        let drop = |to: &str| ip(&format!("-n {router} route {does} blackhole {to}/32"));
        drop("10.77.3.2").and_then(|()| drop("10.77.2.1"))
    }

    /// An argument, with the router's name where it names it.
    pub fn named(&self, arg: &str) -> String {
        arg.replace(ROUTER, &self.name("router"))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in self.plan.spaces {
            if let Err(error) = ip(&format!("netns del {}", self.name(space))) {
                eprintln!("{} stays: {error:#}", self.name(space));
            }
        }
    }
}

/// Runs `ip`.
fn ip(args: &str) -> Result<()> {
    if !sh::exists("ip") {
        bail!("there is no `ip` here (iproute2)");
    }
    let output = sh::command("ip").args(args.split_whitespace()).output().context("ip")?;
    if output.status.success() {
        return Ok(());
    }
    bail!("ip {args}: {}", String::from_utf8_lossy(&output.stderr).trim())
}
