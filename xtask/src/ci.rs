//! `cargo xtask ci`: everything a change must pass, on a machine without GPU and NIC.

use crate::scenarios_list::{SCENARIOS, SOFT_RDMA, TWO_HOSTS};
use crate::{
    bindings, check, doors, explore, facade, fuzz, mutate, pages, profiles, python, run_scenarios, swarm,
    test, verbs_hosts,
};
use anyhow::Result;
use shunt_task::sh;
use shunt_task::stages::{self, Count, Stage, stage};

pub const SUMMARY: &str = "everything a change must pass; aims at 40 minutes on 2 cores";
pub const HELP: &str = "ci [--only STAGE]... [--list]

Runs all stages; a failed one does not stop the others, the exit status tells. Installs nothing: scripts/setup-debian.sh
does, and .ci/run calls it. Sets CI=1: a witness that is missing is a failure, where `cargo xtask test` skips it.

  --only STAGE  only this one; may be repeated
  --list        print the stages, and the scenarios' command lines";

const STAGES: &[Stage] = &[
    stage("check", "form, lints, house rules, module graph, ABI table", || {
        check::run(&[]).map(|()| Count::ONE)
    }),
    stage("bindings", "the FFI of libibverbs and libmlx5 against their headers", || {
        bindings::run(&[]).map(|()| Count::ONE)
    }),
    stage("test", "cargo xtask test", test::stage_of_ci),
    stage(
        "later",
        "tests of programs, tests that take long (xtask/later.txt), tests in documentation",
        test::the_rest,
    ),
    stage("swarm", "500 seeds of the simulator as it ships, every kind of fault among them", swarm::stage),
    stage("explore", "every interleaving of the switch within bounds, as it ships", explore::stage),
    stage("fuzz", "parsers of what strangers send, under libFuzzer, 8 s each", fuzz::stage),
    stage(
        "gpu",
        "PTX for sm_80, sm_90, sm_100; machine code against its table; link with CUDA C++",
        shunt_gpu_tool::gpu_stage,
    ),
    stage("ptx", "that PTX executed without a GPU, against soft NICs", shunt_gpu_tool::ptx_stage),
    stage("build", "all programs and libraries, release; nothing of it can be broken by name", build),
    stage(
        "prefix",
        "the folder in NVSHMEM's place: linked from C and C++, held against NVSHMEM 3.8.0",
        shunt_gpu_tool::prefix_stage,
    ),
    stage(
        "package",
        "the Debian package: unpacked, used from C by pkg-config and CMake",
        shunt_package_tool::stage,
    ),
    stage("pages", "a run's page in headless Chromium, with a picture; docs/ as a book", pages::stage),
    stage("scenarios", "the main program's runs in real time, by their verdict", run_scenarios::all),
    stage(
        "mlx5",
        "the same through libibverbs and libmlx5, on the interposer's soft NICs",
        run_scenarios::soft_rdma,
    ),
    stage("profiles", "some of both on every kind of device", profiles::stage),
    stage("python", "the wheel in a fresh virtual environment", python::stage),
    stage("soft-rdma", "unmodified RDMA programs on soft NICs", shunt_soft_rdma_tool::stage),
    stage("verbs", "the same programs, which outlive a port", shunt_soft_rdma_tool::verbs_stage),
    stage(
        "netns",
        "two hosts as network namespaces; skipped where they are not permitted",
        run_scenarios::two_hosts,
    ),
    stage(
        "verbs-two-hosts",
        "verbs programs between two namespaces, which outlive a cable and their store",
        verbs_hosts::stage,
    ),
    stage(
        "two-machines",
        "C, CUDA, MoE and Python programs between two namespaces without shared files; the page on two machines",
        doors::two_machines,
    ),
];

pub fn run(args: &[String]) -> Result<()> {
    let mut only: Vec<&str> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => return list(),
            "--only" => match args.next() {
                Some(stage) => only.push(stage),
                None => return sh::usage("--only needs a stage"),
            },
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    stages::run(&stages::chosen(STAGES, &only)?)
}

fn list() -> Result<()> {
    stages::list(STAGES);
    println!();
    for scenario in SCENARIOS.iter().chain(SOFT_RDMA).chain(TWO_HOSTS) {
        println!("{:36} exit {}  {}", scenario.name, scenario.exit, scenario.command_line());
    }
    Ok(())
}

/// Programs and the library that gives others soft NICs.
fn build() -> Result<Count> {
    sh::run(sh::cargo().args(["build", "--quiet", "--release"]))?;
    facade::build()?;
    mutate::absent_from_release().map(|()| Count::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_stages_and_arguments_are_refused() {
        for args in [&["--only", "nothing"][..], &["--only"], &["--fast"]] {
            assert!(run(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).is_err(), "{args:?}");
        }
    }
}
