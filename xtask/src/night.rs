//! `cargo xtask night`: what takes hours, and what draws at random. The larger bounds of the explorer, many seeds of
//! the swarm, every mutant, fuzzing, a soak, the largest jobs under mpirun; one table.

use crate::{aarch64, doors, explore, fuzz, mutate, profiles, swarm, wheels};
use anyhow::{Result, bail};
use shunt_task::sh;
use std::time::Instant;

pub const SUMMARY: &str = "the larger bounds: explorer and swarm for hours, one table";
pub const HELP: &str = "night [--only PART]... [--seeds N] [--first S] [--runs R] [--baseline REV] [--short]

Each part prints its own progress and table; the last table says what came of all of them.
  explore  models with the larger bounds; then 3 faults and 4 messages of the whole system
  swarm    many seeds, and some from the clock
  mutate   every named break of the protocol: a scenario must catch each
  scenarios  all seeds of each scenario; `cargo xtask test` runs the first quarter of them
  fuzz     parsers of what strangers send under libFuzzer, ten minutes each
  mpirun   all families of NVSHMEM's host calls with 1, 2, 3, 4 and 8 PEs, under shunt run and under mpirun, a port
           down in the middle of each
  profiles the main program's runs on every kind of device
  ptx      every scenario on the PTX machine, for each architecture
  doors    C, CUDA, MoE and Python programs on every kind of device and between two machines, ports down and up
  talks    5,000 seeds of processes that use the recovery engine without channels (virtual time)
  transfers  20,000 seeds of the transfer engine on a simulated domain, 1,000 on soft NICs, and how long faults, cancels
           and cuts take in 1,000 more of each (virtual time)
  package  the Debian package installed in a bare system that debootstrap makes: C by pkg-config and CMake, a port down
  aarch64  all programs and libraries compiled for aarch64 by a nightly; the pure tests under qemu-user
  wheels   Python's, for x86_64 and aarch64 with glibc 2.28; the tests under each interpreter from 3.10 on
  crates   the crate shunt and what it needs, documented, packed as for a registry, and built from that; their API
           against a commit's (cargo-semver-checks): a break that the version does not announce fails
  torch    the library beside NVIDIA's own of the wheel nvidia-nvshmem-cu13, which is fetched
  transport  NVSHMEM's own IBRC and IBDEVX transports: two processes put, get and signal on soft NICs
  verbs    cases of the stage verbs that differ little from those it keeps; on what `cargo build --release` made
  mooncake Mooncake's transfer engine, of the wheel of a python3 in PATH: 10 GiB between two processes while a port goes
           down and up twice; on what `cargo build --release` made
  mass     a port with 1,536 queue pairs goes down, a firmware command at 100 and at 300 us (virtual time)
  pauses   1,000 pauses of 5 to 30 ms and 100 silences, with the patience of hardware (virtual time)
  soak     the main program and perftest side by side for an hour, random faults in both: leaks, verdicts, a plot; on
           what `cargo build --release` made

  --only PART  only this one; may be repeated
  --seeds N    seeds of the swarm (default 100000), and a tenth as many fresh ones
  --first S    the first of them (default 1000000)
  --runs R     runs of each round of the explorer (default 100000)
  --baseline REV  the commit that APIs are compared with (default: the last tag; without one, the last commit that
               raised the version)
  --short      a few minutes of each part, to see that it runs: the explorer with CI's models, 2 faults, 2 messages and
               40 runs, the swarm with 64 seeds, fuzzing for 8 s each, mpirun with what CI runs, a soak of a minute";

/// A part's name, and what it does with these arguments.
struct Part {
    name: &'static str,
    args: Vec<String>,
    run: fn(&[String]) -> Result<()>,
}

fn mass(args: &[String]) -> Result<()> {
    example("mass", args)
}

fn pauses(args: &[String]) -> Result<()> {
    example("pauses", args)
}

/// Many seeds of one test of the simulator, which reads their number from a variable.
fn seeds(test: &str, variable: &str, seeds: &str) -> Result<()> {
    let mut cargo = sh::cargo();
    cargo.args(["test", "--quiet", "-p", "shunt-tests", "--test", "suite", test, "--", "--nocapture"]);
    sh::run(cargo.env(variable, seeds))
}

fn talks(args: &[String]) -> Result<()> {
    seeds("second_user::talks", "SHUNT_TALK_SEEDS", &args[0])
}

fn transfers(args: &[String]) -> Result<()> {
    let mut swarm = sh::cargo();
    swarm.args([
        "run",
        "--quiet",
        "-p",
        "shunt-transfer-engine",
        "--example",
        "transfer_swarm",
        "--",
        "0",
        &args[0],
    ]);
    sh::run(&mut swarm)?;
    // A seed on NICs takes as long as twenty without.
    let few = args[0].parse::<u64>()? / 20;
    seeds("transfers::transfers_of_many", "SHUNT_TRANSFER_SEEDS", &few.to_string())?;
    let mut times = sh::cargo();
    times.args(["run", "--quiet", "-p", "shunt-transfer-virtual", "--", "--seeds", &few.to_string()]);
    sh::run(&mut times)
}

fn torch(_: &[String]) -> Result<()> {
    let mut test = sh::cargo();
    test.args(["test", "--quiet", "-p", "shunt-nvshmem-compat", "-p", "shunt-cli", "--test", "suite"]);
    test.args(["--", "beside_torch::what", "--nocapture"]);
    sh::run(test.env("SHUNT_THEIRS", shunt_gpu_tool::nvshmem_library()?))
}

/// A program of the simulator, as `cargo test` builds it.
fn example(name: &str, args: &[String]) -> Result<()> {
    sh::run(sh::cargo().args(["build", "--quiet", "--profile", "test", "--workspace", "--example", name]))?;
    let program = sh::target_dir().join("debug/examples").join(name);
    sh::run(sh::command(&program.to_string_lossy()).args(args))
}

fn parts(args: &[String]) -> Result<Vec<Part>> {
    let short = args.iter().any(|arg| arg == "--short");
    let (seeds, runs) = if short { ("64", "40") } else { ("100000", "100000") };
    let (mut seeds, mut first, mut runs) = (seeds.to_owned(), "1000000".to_owned(), runs.to_owned());
    let (mut only, mut baseline) = (Vec::new(), Vec::new());
    let mut args = args.iter().filter(|arg| *arg != "--short");
    while let Some(arg) = args.next() {
        let Some(value) = args.next() else {
            return sh::usage(format!("{arg} needs a value, or is unknown"));
        };
        match arg.as_str() {
            "--only" => only.push(value.as_str()),
            "--seeds" => value.clone_into(&mut seeds),
            "--first" => value.clone_into(&mut first),
            "--runs" => value.clone_into(&mut runs),
            "--baseline" => baseline = vec![arg.clone(), value.clone()],
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    let of = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect();
    let explore: &[&str] =
        if short { &["--faults", "2", "--ops", "2"] } else { &["--night", "--faults", "3", "--ops", "4"] };
    let Ok(fresh) = seeds.parse::<u64>().map(|seeds| (seeds / 10).to_string()) else {
        return sh::usage(format!("--seeds: expected a number, got '{seeds}'"));
    };
    // Few seeds need not show every kind of fault.
    let kinds: &[&str] = if short { &[] } else { &["--every-kind"] };
    let brief = || of(if short { &["--short"] } else { &[] });
    let all = [
        Part { name: "explore", args: of(&[explore, &["--runs", &runs]].concat()), run: explore::run },
        Part {
            name: "swarm",
            args: of(&[&["--seeds", &seeds, "--first", &first, "--fresh", &fresh], kinds].concat()),
            run: swarm::run,
        },
        Part { name: "mutate", args: of(&[]), run: mutate::run },
        Part { name: "scenarios", args: of(&["--plain", ""]), run: mutate::run },
        Part {
            name: "fuzz",
            args: of(if short { &["--short"] } else { &["--minutes", "10"] }),
            run: fuzz::run,
        },
        Part {
            name: "soak",
            args: of(if short { &["--seconds", "60"] } else { &["--minutes", "60"] }),
            run: shunt_soak_tool::run,
        },
        Part { name: "profiles", args: brief(), run: profiles::run },
        Part { name: "ptx", args: brief(), run: shunt_gpu_tool::ptx_night },
        Part { name: "doors", args: of(&[]), run: doors::night },
        Part { name: "talks", args: of(&[if short { "100" } else { "5000" }]), run: talks },
        Part { name: "transfers", args: of(&[if short { "600" } else { "20000" }]), run: transfers },
        Part { name: "package", args: of(&[]), run: shunt_package_tool::night },
        Part { name: "aarch64", args: of(&[]), run: aarch64::night },
        Part { name: "wheels", args: of(&[]), run: wheels::night },
        Part { name: "crates", args: baseline, run: shunt_package_tool::crates_night },
        Part { name: "torch", args: of(&[]), run: torch },
        Part { name: "transport", args: of(&[]), run: shunt_gpu_tool::transport_night },
        Part { name: "verbs", args: of(&[]), run: shunt_soft_rdma_tool::verbs_night },
        Part { name: "mooncake", args: of(&[]), run: shunt_soft_rdma_tool::mooncake_night },
        Part { name: "mass", args: of(if short { &["300"] } else { &[] }), run: mass },
        Part { name: "pauses", args: of(if short { &["50"] } else { &[] }), run: pauses },
        Part { name: "mpirun", args: brief(), run: shunt_gpu_tool::prefix_night },
    ];
    if let Some(unknown) = only.iter().find(|name| !all.iter().any(|part| part.name == **name)) {
        return sh::usage(format!("no part is called '{unknown}'"));
    }
    Ok(all.into_iter().filter(|part| only.is_empty() || only.contains(&part.name)).collect())
}

pub fn run(args: &[String]) -> Result<()> {
    let mut lines = Vec::new();
    let (mut failed, mut skipped) = (0, 0);
    for part in parts(args)? {
        println!("\n== {} {}", part.name, part.args.join(" "));
        let start = Instant::now();
        let result = (part.run)(&part.args);
        if let Err(error) = &result {
            println!("{}: {error:#}", part.name);
        }
        let word = match &result {
            Ok(()) => "ok",
            // What cannot be had here says nothing of what it would have shown.
            Err(error)
                if error.is::<shunt_gpu_tool::Unreachable>()
                    || error.is::<shunt_soft_rdma_tool::Missing>() =>
            {
                "skipped"
            }
            Err(_) => "FAILED",
        };
        failed += usize::from(word == "FAILED");
        skipped += usize::from(word == "skipped");
        lines.push(format!("  {:10} {word:7} {:9.1} s", part.name, start.elapsed().as_secs_f64()));
    }
    println!("\n== night\n{}\n{skipped} parts skipped", lines.join("\n"));
    if failed > 0 {
        bail!("{failed} parts failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_chosen_by_name_and_the_rest_is_refused() {
        let of = |args: &[&str]| parts(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap().len(), 22);
        let swarm = of(&["--only", "swarm", "--seeds", "7"]).unwrap();
        assert!(swarm.len() == 1 && swarm[0].args.contains(&"7".to_owned()));
        let crates = of(&["--only", "crates", "--baseline", "HEAD"]).unwrap();
        assert_eq!(crates[0].args, ["--baseline", "HEAD"]);
        let short = of(&["--short", "--first", "9"]).unwrap();
        assert_eq!(short[1].args, ["--seeds", "64", "--first", "9", "--fresh", "6"]);
        assert!(!short[0].args.contains(&"--night".to_owned()));
        assert!(
            of(&["--only", "day"]).is_err()
                && of(&["--seeds", "x"]).is_err()
                && of(&["--fast"]).is_err()
                && of(&["--speed", "1"]).is_err()
        );
    }
}
