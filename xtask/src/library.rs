//! A C program of the NVSHMEM-compatible library beside the scenarios of the stage `mlx5`: on the interposer's NICs by
//! `SHUNT_NIC`, a port down in the middle, held against the same program on soft NICs.

use anyhow::{Context, Result};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What each job is started with.
const USUAL: [(&str, &str); 6] = [
    ("NVSHMEM_SYMMETRIC_SIZE", "32M"),
    ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "1"),
    ("SHUNT_GIVE_UP", "60s"),
    ("SHUNT_CALL_DEADLINE", "120s"),
    // A process that waits for a core is silent: ports that go down are told, and found out by that.
    ("SHUNT_SUSPECT", "1s"),
    ("SHUNT_SUSPECT_FLOOR", "1s"),
];

/// What a run must come to.
struct Job {
    name: &'static str,
    /// `SHUNT_NIC`; empty: not set, so auto.
    nic: &'static str,
    pes: &'static str,
    /// What starts the suite: the interposer's arguments, or nothing.
    interposer: &'static str,
    /// Words of a shell before the suite; empty: no shell.
    before: &'static str,
    suite: &'static str,
    exit: i32,
    /// What is said on stderr.
    says: &'static [&'static str],
    /// Whether channels must leave a path.
    switches: bool,
}

const THROUGH: &str = "NICs: mlx5_0, mlx5_1 through libibverbs";

const JOBS: &[Job] = &[
    Job {
        name: "library-mlx5-port-down",
        nic: "mlx5",
        pes: "2",
        interposer: "soft-rdma run --nics 2 --",
        before: "",
        suite: "--fault rma",
        exit: 0,
        says: &[THROUGH],
        switches: true,
    },
    Job {
        name: "library-auto-port-down",
        nic: "",
        pes: "3",
        interposer: "soft-rdma run --nics 2 --",
        before: "",
        suite: "--fault rma",
        exit: 0,
        says: &[THROUGH],
        switches: true,
    },
    Job {
        name: "library-device-memory",
        nic: "mlx5",
        pes: "2",
        interposer: "soft-rdma run --nics 2 --",
        before: "export SHUNT_HEAP=simulated NVSHMEM_CUMEM_GRANULARITY=1M;",
        suite: "--fault rma",
        exit: 0,
        says: &[THROUGH],
        switches: true,
    },
    Job {
        name: "library-one-port-by-name",
        nic: "mlx5",
        pes: "2",
        interposer: "soft-rdma run --nics 2 --",
        before: "export NVSHMEM_HCA_LIST=mlx5_1;",
        suite: "rma",
        exit: 0,
        says: &["NICs: mlx5_1 through libibverbs", "PEs [0, 1] have one port"],
        switches: false,
    },
    Job {
        name: "library-nics-differ",
        nic: "",
        pes: "2",
        interposer: "soft-rdma run --nics 2 --",
        before: "test $SHUNT_RANK = 0 || export SHUNT_NIC=soft;",
        suite: "rma",
        exit: 2,
        says: &["PE 1 was started with SHUNT_NIC soft, PE 0 with SHUNT_NIC mlx5"],
        switches: false,
    },
    Job {
        name: "library-no-such-port",
        nic: "mlx5",
        pes: "2",
        interposer: "soft-rdma run --nics 2 --",
        before: "export NVSHMEM_HCA_LIST=mlx5_7;",
        suite: "rma",
        exit: 2,
        says: &["NVSHMEM_HCA_LIST=mlx5_7 leaves no RDMA port: expected one of mlx5_0:1, mlx5_1:1"],
        switches: false,
    },
];

/// What is compared against.
const CALM: Job = Job {
    name: "library-soft",
    nic: "soft",
    pes: "2",
    interposer: "",
    before: "",
    suite: "rma",
    exit: 0,
    says: &[],
    switches: false,
};

/// What a job printed.
struct Told {
    exit: Option<i32>,
    out: String,
    said: String,
}

impl Job {
    /// `calm`: what PE 0 prints on soft NICs where nothing fails, for so many PEs.
    fn wrong(&self, told: &Told, calm: Option<&str>) -> Vec<String> {
        let mut wrong = Vec::new();
        if told.exit != Some(self.exit) {
            wrong.push(format!("exit status {:?}, not {}", told.exit, self.exit));
        }
        let lacks = self.says.iter().filter(|words| !told.said.contains(**words));
        wrong.extend(lacks.map(|words| format!("does not say '{words}'")));
        let count = |line: &str| line.split(" failovers").next()?.split(": ").last()?.parse::<u64>().ok();
        let switches: u64 = told.said.lines().filter_map(count).sum();
        if self.switches && switches == 0 {
            wrong.push("no channel switched".to_owned());
        }
        if let Some(calm) = calm.filter(|calm| self.exit == 0 && *calm != told.out) {
            wrong.push(format!("the data is {:?}, not {:?}", told.out.trim(), calm.trim()));
        }
        wrong
    }

    fn run(&self, suite: &Path) -> Result<Told> {
        let shunt = sh::target_dir().join("release/shunt");
        let mut command = Command::new("timeout");
        command.arg("150").arg(&shunt).args(["run", "-n", self.pes, "--"]);
        if !self.interposer.is_empty() {
            command.arg(&shunt).args(self.interposer.split(' '));
        }
        if self.before.is_empty() {
            command.arg(suite).args(self.suite.split(' '));
        } else {
            let script = format!("{} exec {} {}", self.before, suite.display(), self.suite);
            command.args(["sh", "-c", &script]);
        }
        command.envs(USUAL).env_remove("SHUNT_NIC").stdin(Stdio::null());
        if !self.nic.is_empty() {
            command.env("SHUNT_NIC", self.nic);
        }
        let output = command.output().context("cannot start timeout")?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Told { exit: output.status.code(), out: text(output.stdout), said: text(output.stderr) })
    }
}

/// Links the conformance suite with the library of this build.
fn link() -> Result<PathBuf> {
    let folder = sh::target_dir().join("ci/library");
    std::fs::create_dir_all(&folder)?;
    let library = sh::target_dir().join("release/libshunt_nvshmem.so");
    std::fs::copy(&library, folder.join("libshunt_nvshmem.so.3"))
        .with_context(|| library.display().to_string())?;
    let home = sh::root().join("nvshmem-compat");
    let sources = std::fs::read_dir(home.join("conformance"))?.flatten().map(|entry| entry.path());
    let suite = folder.join("suite");
    let mut command = Command::new("cc");
    command.args(sources.filter(|path| path.extension().is_some_and(|end| end == "c")));
    command.args(["-std=gnu11", "-O1", "-I"]).arg(home.join("include")).arg("-L").arg(&folder);
    command.args(["-l:libshunt_nvshmem.so.3", "-ldl"]).arg(format!("-Wl,-rpath,{}", folder.display()));
    sh::run(command.arg("-o").arg(&suite))?;
    Ok(suite)
}

/// Part of the stage `mlx5` of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let suite = link()?;
    let mut count = Count::default();
    let mut calm = std::collections::BTreeMap::new();
    for job in JOBS {
        if !calm.contains_key(job.pes) {
            let told = Job { pes: job.pes, ..CALM }.run(&suite)?;
            let wrong = CALM.wrong(&told, None);
            count += Count::told(CALM.name, &wrong);
            calm.insert(job.pes, told.out);
        }
        let told = job.run(&suite)?;
        let wrong = job.wrong(&told, calm.get(job.pes).map(String::as_str));
        count += Count::told(job.name, &wrong);
        if !wrong.is_empty() {
            println!("{}", sh::last_lines(&(told.out + &told.said), 40));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_must_end_well_say_its_nics_switch_and_bring_the_same_data() {
        let job = &JOBS[0];
        let told = |exit, out: &str, said: &str| Told { exit, out: out.into(), said: said.into() };
        let said = format!("[rank 0] shunt: {THROUGH}\n[rank 1] PE 1: 2 failovers, 0 switch-backs\n");
        let calm = Some("rma 12\n");
        assert!(job.wrong(&told(Some(0), "rma 12\n", &said), calm).is_empty());
        assert_eq!(job.wrong(&told(Some(0), "rma 13\n", &said), calm).len(), 1);
        assert_eq!(job.wrong(&told(Some(0), "rma 12\n", &said.replace("2 fail", "0 fail")), calm).len(), 1);
        assert_eq!(job.wrong(&told(Some(0), "rma 12\n", &said.replace("NICs", "nics")), calm).len(), 1);
        assert_eq!(job.wrong(&told(None, "", ""), calm).len(), 4);
        let differ = JOBS.iter().find(|job| job.exit == 2).unwrap();
        assert!(differ.wrong(&told(Some(2), "", differ.says[0]), calm).is_empty());
    }
}
