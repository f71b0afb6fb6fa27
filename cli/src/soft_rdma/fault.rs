//! `shunt soft-rdma fault`: breaks a NIC of a program that runs.

use super::fabric::{alive, default_fabric};
use crate::print;
use crate::run::fabric_name;
use clap::Args;
use shunt_soft_machine::control::{Client, Process};
use shunt_soft_machine::settings::parse_nic;
use shunt_soft_nic::FaultKind;
use shunt_soft_nic::fault::{format_time, parse_time};
use std::fmt::Write;

/// Let something go wrong at a NIC of a running program.
#[derive(Args)]
#[command(after_help = after_help())]
pub struct Arguments {
    /// Fabric of the program: `shunt soft-rdma list` shows it [default: SHUNT_FABRIC, or default]
    #[arg(long, value_name = "NAME", value_parser = fabric_name)]
    fabric: Option<String>,
    /// The program's process [default: the only one of the fabric]
    #[arg(long, value_name = "PID", conflicts_with = "all")]
    pid: Option<u32>,
    /// Every process of the fabric
    #[arg(long)]
    all: bool,
    /// So long from now
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    after: u64,
    /// Its name or its number: mlx5_0, or 0
    #[arg(value_name = "NIC", value_parser = nic)]
    nic: u32,
    /// What happens: down=300ms, drop=0.01, ..
    #[arg(value_name = "FAULT", value_parser = fault)]
    fault: String,
}

fn after_help() -> String {
    let mut text = "Examples:\n  shunt soft-rdma fault mlx5_0 down=300ms\n  \
                    shunt soft-rdma fault --pid 4711 --after 2s 0 drop=0.01/5s\nFaults:\n"
        .to_owned();
    for fault in FaultKind::LIST {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<28}{}", fault.syntax, fault.meaning);
    }
    text + "Exit status: 0, 1 if the program refused or does not answer, 2 bad usage or no such program."
}

fn time(text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| format!("expected a time like 10ms (ns, us, ms, s, m), got {text:?}"))
}

fn nic(text: &str) -> Result<u32, String> {
    parse_nic(text)
        .ok_or_else(|| format!("expected a NIC's name or number, such as mlx5_0 or 0, got {text:?}"))
}

/// The text of a fault, which the program reads again.
fn fault(text: &str) -> Result<String, String> {
    text.parse::<FaultKind>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let fabric = arguments.fabric.clone().unwrap_or_else(default_fabric);
    let chosen = match choose(arguments, &fabric) {
        Ok(chosen) => chosen,
        Err(text) => return print::usage(&text),
    };
    let (mut out, mut status) = (String::new(), 0);
    for (Process { pid, .. }, mut client) in chosen {
        match client.inject(arguments.nic, arguments.after, &arguments.fault) {
            Ok(id) => {
                let when = match arguments.after {
                    0 => "now".into(),
                    after => format!("in {}", format_time(after)),
                };
                let (fault, nic) = (&arguments.fault, name(&mut client, arguments.nic));
                let _ = writeln!(out, "fault {id} of process {pid}: {fault} at {nic}, {when}");
            }
            Err(error) => {
                shunt_host::complain!("error: process {pid}: {error}");
                status = 1;
            }
        }
    }
    print::stdout(&out, status)
}

/// What a NIC of a process is called.
fn name(client: &mut Client, index: u32) -> String {
    let named = client.nics().ok().and_then(|process| process.nics.into_iter().nth(index as usize));
    named.map_or_else(|| index.to_string(), |nic| nic.name)
}

fn choose(arguments: &Arguments, fabric: &str) -> Result<Vec<(Process, Client)>, String> {
    let mut found = alive(fabric);
    let pids = |found: &[(Process, Client)]| {
        let pids: Vec<String> = found.iter().map(|(process, _)| process.pid.to_string()).collect();
        pids.join(", ")
    };
    if found.is_empty() {
        return Err(format!(
            "no process with soft devices in fabric {fabric}; start one with `shunt soft-rdma run`, or name another \
             --fabric: `shunt soft-rdma list` shows all"
        ));
    }
    if let Some(pid) = arguments.pid {
        let there = pids(&found);
        found.retain(|(process, _)| process.pid == pid);
        return match found.is_empty() {
            true => Err(format!("no process {pid} in fabric {fabric}; there are: {there}")),
            false => Ok(found),
        };
    }
    if found.len() > 1 && !arguments.all {
        return Err(format!(
            "fabric {fabric} has several processes: {}; name one with --pid, or --all",
            pids(&found)
        ));
    }
    Ok(found)
}
