//! `shunt doctor --first-day`: tries in order what a machine must show before a job is trusted to it, and writes one
//! report that a stranger can attach to an issue.

mod child;
mod report;
mod steps;

use crate::files::save;
use crate::print;
use clap::Args;
use report::{Report, Section};
use shunt_doctor::first_day::{Outcome, Rounds, Row, ask_device, not_used, use_device};
use shunt_doctor::{Area, Check, Verdict};
use shunt_host::discover::{Inventory, SysRoot};
use shunt_host::topology::Topology;
use std::path::PathBuf;
use std::time::Duration;

/// The PCI domain of the interposer's devices, which no machine has (docs/SOFT_RDMA.md).
const SOFT_DOMAIN: u32 = 0x5348;

/// Longest wait for a firmware command.
const COMMAND: Duration = Duration::from_secs(5);

/// Options of the first day.
#[derive(Args)]
pub struct Arguments {
    /// Try everything in order and write one report: NICs, proof, command times, two processes, a port that is toggled.
    #[arg(long, conflicts_with_all = ["fence", "root"])]
    first_day: bool,
    /// The report; its data as JSON are written beside it, with the ending .json
    #[arg(long, value_name = "FILE.md", default_value = "first-day.md", requires = "first_day")]
    out: PathBuf,
    /// Takes the first rail's port of process 0 down, such as 'ip link set eth1 down'
    #[arg(long, value_name = "COMMAND", requires = "first_day", requires = "untoggle")]
    toggle: Option<String>,
    /// Brings it up again, such as 'ip link set eth1 up'
    #[arg(long, value_name = "COMMAND", requires = "first_day", requires = "toggle")]
    untoggle: Option<String>,
    /// Fewer rounds and shorter streams: to see whether it runs, not to send
    #[arg(long, requires = "first_day")]
    short: bool,
}

impl Arguments {
    /// Whether it is the first day.
    pub fn asked(&self) -> bool {
        self.first_day
    }
}

/// What the doctor's other checks found.
pub struct Found<'a> {
    /// Where files are read from.
    pub root: &'a SysRoot,
    /// Devices.
    pub inventory: &'a Inventory,
    /// Rails.
    pub topology: &'a Topology,
    /// The checks.
    pub checks: &'a [Check],
}

impl Found<'_> {
    /// Names of the devices that rails are of, each once.
    fn devices(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for rail in &self.topology.rails {
            let name = self.inventory.rdma[rail.device].name.as_str();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Whether there are NICs and all are the interposer's.
    fn soft(&self) -> bool {
        let is_soft = |address: shunt_host::discover::PciAddress| address.domain == SOFT_DOMAIN;
        let mut all =
            self.inventory.rdma.iter().map(|device| device.address().is_some_and(is_soft)).peekable();
        all.peek().is_some() && all.all(|soft| soft)
    }

    /// What kind of NIC this ran on, in words.
    fn kind(&self) -> String {
        let each = |device: &shunt_host::discover::RdmaDevice| {
            let soft = device.address().is_some_and(|address| address.domain == SOFT_DOMAIN);
            let kind = if soft { "soft NIC through the interposer" } else { "hardware" };
            format!("{} ({kind}, {}, firmware {})", device.name, device.hca_type, device.firmware)
        };
        match &self.inventory.rdma[..] {
            [] => "no RDMA device".into(),
            devices => devices.iter().map(each).collect::<Vec<_>>().join("; "),
        }
    }
}

/// Runs it; gives the exit status: 0 if no row failed.
pub fn run(arguments: &Arguments, found: &Found<'_>) -> u8 {
    let json = arguments.out.with_extension("json");
    if json == arguments.out {
        return print::usage(
            &"--out: expected a name that does not end in .json, got one that does; the data are written beside the \
              report with that ending: give a name such as first-day.md",
        );
    }
    let mut report = Report { on: found.kind(), sections: vec![machine(found)], ..Report::default() };
    let devices = found.devices();
    let usable = capabilities(&devices, &mut report);
    progress("devx check");
    report.sections.push(Section::new("devx check", vec![steps::devx_check(&devices)]));
    use_nics(arguments, &devices, &usable, &mut report);
    let plan = steps::Plan {
        devices: devices.len(),
        soft: found.soft(),
        toggle: arguments.toggle.as_deref().zip(arguments.untoggle.as_deref()),
        duration_ms: if arguments.short { 600 } else { 5_000 },
    };
    for (title, step) in [
        ("two processes, one rail", steps::one_rail as fn(&steps::Plan<'_>) -> Row),
        ("two processes, two rails", steps::two_rails),
        ("a port that goes down and comes back", steps::toggled),
    ] {
        progress(title);
        report.sections.push(Section::new(title, vec![step(&plan)]));
    }
    report.sections.push(Section::new("GPU", gpu(found)));
    let failed = report.count(Outcome::Fail) > 0;
    for (path, text) in [(&arguments.out, report.markdown()), (&json, report.json())] {
        if let Err(error) = save(path, &text) {
            return print::usage(&error);
        }
    }
    let (out, json) = (arguments.out.display(), json.display());
    print::stdout(
        &format!("{}\n{out} and {json} are the report: attach both\n", report.summary()),
        u8::from(failed),
    )
}

fn progress(what: &str) {
    shunt_host::complain!("first day: {what}");
}

/// Capabilities of each NIC; gives which of them can be used.
fn capabilities(devices: &[&str], report: &mut Report) -> Vec<bool> {
    const TITLE: &str = "capabilities";
    progress(TITLE);
    let (mut rows, mut usable) = (Vec::new(), Vec::new());
    for device in devices {
        let seen = ask_device(device, COMMAND);
        usable.push(seen.row.outcome != Outcome::Fail);
        rows.push(seen.row);
        report.capabilities.push(((*device).to_owned(), seen.bytes));
    }
    report.sections.push(section(TITLE, rows));
    usable
}

/// Proof and command times of each NIC.
fn use_nics(arguments: &Arguments, devices: &[&str], usable: &[bool], report: &mut Report) {
    let rounds = match arguments.short {
        true => Rounds { pairs: 4, keys: 4, patience_ns: 10_000_000_000 },
        false => Rounds { pairs: 100, keys: 100, patience_ns: 10_000_000_000 },
    };
    let (mut proofs, mut timed) = (Vec::new(), Vec::new());
    for (device, usable) in devices.iter().zip(usable) {
        progress(&format!("{device}: truth proof, command times"));
        let seen = if *usable { use_device(device, COMMAND, rounds) } else { not_used(device) };
        proofs.push(seen.proof);
        timed.push(seen.timed);
        report.times.push(((*device).to_owned(), seen.times));
    }
    report.sections.push(section("truth proof", proofs));
    report.sections.push(section("command times", timed));
}

/// A section with a row for each NIC, or one that says that there is none.
fn section(title: &'static str, mut rows: Vec<Row>) -> Section {
    if rows.is_empty() {
        rows.push(steps::no_nic(title));
    }
    Section::new(title, rows)
}

/// Kernel, modules and the doctor's checks but those of the GPU.
fn machine(found: &Found<'_>) -> Section {
    let mut rows = vec![match found.root.read("proc/sys/kernel/osrelease") {
        Some(release) => Row::new("kernel", Outcome::Ok, release.trim()),
        None => Row::new("kernel", Outcome::NotRun, "/proc/sys/kernel/osrelease cannot be read")
            .todo("uname -r, by hand"),
    }];
    rows.extend(["mlx5_core", "mlx5_ib", "ib_uverbs", "nvidia"].map(|module| parameters(found.root, module)));
    let shown = found.checks.iter().filter(|check| check.area != Area::Gpu);
    rows.extend(shown.filter_map(|check| row(check, found.soft())));
    Section::new("machine and versions", rows)
}

/// A module's parameters as the running kernel has them.
fn parameters(root: &SysRoot, module: &str) -> Row {
    let name = format!("parameters of {module}");
    if module == "nvidia"
        && let Some(text) = root.read("proc/driver/nvidia/params")
    {
        return Row::new(name, Outcome::Ok, text.lines().collect::<Vec<_>>().join(", "));
    }
    let folder = format!("sys/module/{module}/parameters");
    let value = |parameter: &String| {
        let value = root.read(&format!("{folder}/{parameter}")).unwrap_or_else(|| "(not readable)".into());
        format!("{parameter}={}", value.trim())
    };
    let all: Vec<String> = root.list(&folder).iter().map(value).collect();
    match (all.is_empty(), root.exists(&format!("sys/module/{module}"))) {
        (false, _) => Row::new(name, Outcome::Ok, all.join(", ")),
        (true, true) => Row::new(name, Outcome::Ok, "loaded, without parameters"),
        (true, false) => Row::new(name, Outcome::NotRun, "the module is not loaded"),
    }
}

/// A check of the doctor's as a row; `None` if it says nothing on this machine.
fn row(check: &Check, soft: bool) -> Option<Row> {
    let (outcome, note) = match check.verdict {
        Verdict::Ok => (Outcome::Ok, ""),
        Verdict::Warn => (Outcome::Warn, ""),
        // What hardware needs and a soft NIC does not is no failure of a run on soft NICs.
        Verdict::Missing if soft => (Outcome::Warn, " (hardware needs it; a soft NIC does without)"),
        Verdict::Missing => (Outcome::Fail, ""),
        Verdict::ByHand => (Outcome::NotRun, ""),
        Verdict::NotApplicable => return None,
    };
    Some(Row::new(check.name, outcome, format!("{}{note}", check.met)).todo(check.fix.clone()))
}

/// Checks of GPUs, and where the rows that run on one come from.
fn gpu(found: &Found<'_>) -> Vec<Row> {
    if found.inventory.gpus.is_empty() {
        return vec![
            Row::new("GPU rows", Outcome::NotRun, "no GPU found")
                .todo("run it on a machine with a data center GPU as well"),
        ];
    }
    let checks = found.checks.iter().filter(|check| check.area == Area::Gpu);
    let mut rows: Vec<Row> = checks.filter_map(|check| row(check, found.soft())).collect();
    rows.push(Row::new("GPU rows", Outcome::NotRun, "another program runs them").todo(
        "`cargo xtask gpu pack DIR` where there are compilers, carry DIR here, DIR/run.sh; attach its table",
    ));
    rows
}
