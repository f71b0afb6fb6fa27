//! The stage `verbs-two-hosts`: unmodified verbs programs between two hosts, which find each other through a store that
//! is gone when the cable is pulled.

use crate::netns::{self, Net, ROUTED};
use anyhow::{Context, Result, anyhow, bail};
use shunt_soft_rdma_tool::{told, wait};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const SUMMARY: &str =
    "unmodified verbs programs between two hosts, which outlive a cable and their store";
pub const HELP: &str = "verbs-two-hosts [--dev]

Runs ib_write_bw and shunt-verbs-count between two network namespaces (root, iproute2), by RoCE v2, on what
`cargo build --release` made. They find each other through `shunt store serve`, a Redis server (skipped without
redis-server) or a folder. That is gone before the cable of the first NIC is pulled for a second and a half, or a router
between the first NICs drops everything for as long. Output is kept under <target>/ci/verbs-two-hosts.

  --dev  run what `cargo build` made instead";

/// Where the store listens, on host 0.
const STORE: &str = "10.77.0.1:7711";
/// Where the server is reached, on host 1.
const SERVER: &str = "10.77.0.2";
/// A secret that is none.
const SECRET: &str = "not a secret, for tests";
/// Far above any case's own time; only a hang reaches it.
const HANG: Duration = Duration::from_secs(120);

/// What becomes of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Store {
    /// `shunt store serve`, which is killed before the cable is pulled.
    Killed,
    /// A Redis server, to which that happens.
    Redis,
    /// A folder, which is removed then.
    Folder,
    /// It never was.
    Absent,
}

/// What fails for a while.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fails {
    Nothing,
    /// The cable of the first NIC: its port goes down.
    Cable,
    /// The router between the first NICs drops everything: no event says so.
    Router,
}

struct Case {
    name: &'static str,
    program: &'static str,
    args: &'static str,
    /// Both run under `shunt verbs run`.
    shim: bool,
    store: Store,
    fails: Fails,
    /// The client ends with status 0.
    well: bool,
    /// What both ends say of themselves.
    moves: bool,
}

const WRITE: &str = "-d mlx5_0 -x 0 -F -D 9";

const CASES: &[Case] = &[
    Case {
        name: "write-without-shunt",
        program: "ib_write_bw",
        args: WRITE,
        shim: false,
        store: Store::Absent,
        fails: Fails::Cable,
        well: false,
        moves: false,
    },
    Case {
        name: "write-without-store",
        program: "ib_write_bw",
        args: "-d mlx5_0 -x 0 -F -n 2000",
        shim: true,
        store: Store::Absent,
        fails: Fails::Nothing,
        well: true,
        moves: false,
    },
    Case {
        name: "write",
        program: "ib_write_bw",
        args: WRITE,
        shim: true,
        store: Store::Killed,
        fails: Fails::Cable,
        well: true,
        moves: true,
    },
    Case {
        name: "count",
        program: "shunt-verbs-count",
        args: "--seconds 9 --adds blind",
        shim: true,
        store: Store::Killed,
        fails: Fails::Cable,
        well: true,
        moves: true,
    },
    Case {
        name: "count-redis",
        program: "shunt-verbs-count",
        args: "--seconds 9",
        shim: true,
        store: Store::Redis,
        fails: Fails::Cable,
        well: true,
        moves: true,
    },
    Case {
        name: "count-folder",
        program: "shunt-verbs-count",
        args: "--seconds 9",
        shim: true,
        store: Store::Folder,
        fails: Fails::Cable,
        well: true,
        moves: true,
    },
    // A timeout of 20 is 4.3 s: no retry runs out, and nothing is even sent again while the router drops it.
    Case {
        name: "write-blackhole",
        program: "ib_write_bw",
        args: "-d mlx5_0 -x 0 -F -D 9 -u 20",
        shim: true,
        store: Store::Killed,
        fails: Fails::Router,
        well: true,
        moves: true,
    },
    Case {
        name: "count-blackhole",
        program: "shunt-verbs-count",
        args: "--seconds 9 --ack-timeout 20",
        shim: true,
        store: Store::Killed,
        fails: Fails::Router,
        well: true,
        moves: true,
    },
];

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    if let Err(said) = netns::permitted() {
        println!("  skipped: no network namespaces with veth here: {said}");
        return Ok(Count { skipped: CASES.len(), ..Count::default() });
    }
    let built = sh::target_dir().join("release");
    run_cases(&built)
}

pub fn run(args: &[String]) -> Result<()> {
    let profile = match args {
        [] => "release",
        [dev] if dev == "--dev" => "debug",
        [other, ..] => return sh::usage(format!("unknown argument '{other}'")),
    };
    netns::permitted().map_err(|said| anyhow!("no network namespaces with veth here: {said}"))?;
    let count = run_cases(&sh::target_dir().join(profile))?;
    if count.failed > 0 { bail!("{} failed", count.failed) } else { Ok(()) }
}

fn run_cases(built: &std::path::Path) -> Result<Count> {
    for file in ["shunt", "libshunt_soft_rdma.so", "libshunt_verbs.so", "shunt-verbs-count"] {
        if !built.join(file).is_file() {
            bail!("{} is not built: cargo build --release", built.join(file).display());
        }
    }
    let dir = sh::target_dir().join("ci/verbs-two-hosts");
    std::fs::create_dir_all(&dir)?;
    let hosts = Hosts { net: Net::make(&ROUTED)?, built: built.to_owned(), dir };
    let mut count = Count::default();
    for case in CASES {
        let start = Instant::now();
        if case.store == Store::Redis && sh::command("redis-server").arg("--version").output().is_err() {
            println!("  {:36} skipped: redis-server needs the package redis-server", case.name);
            count.skipped += 1;
            continue;
        }
        hosts.net.wait_for_links()?;
        let wrong = hosts.run(case)?;
        let outputs = ["store", "server", "client"].map(|side| (side, hosts.file(case, side)));
        count += told(case.name, start.elapsed(), &wrong, &outputs);
    }
    Ok(count)
}

struct Hosts {
    net: Net,
    built: PathBuf,
    dir: PathBuf,
}

/// A process of a case.
struct Side(Child);

impl Drop for Side {
    fn drop(&mut self) {
        // Ended already, unless the case was given up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Hosts {
    fn file(&self, case: &Case, side: &str) -> PathBuf {
        self.dir.join(format!("{}.{side}", case.name))
    }

    /// `shunt` on a host, with files of its own.
    fn shunt(&self, case: &Case, host: u32) -> Result<Command> {
        let runtime = self.dir.join(format!("host-{host}"));
        std::fs::create_dir_all(&runtime)?;
        let mut command = self.net.on_host(host, &self.built.join("shunt").to_string_lossy());
        command.env("XDG_RUNTIME_DIR", runtime).env("SHUNT_SECRET", SECRET).env("SHUNT_GIVE_UP", "30s");
        let at = match case.store {
            Store::Killed | Store::Absent => format!("tcp://{STORE}"),
            Store::Redis => format!("redis://{STORE}"),
            Store::Folder => format!("file://{}", self.folder().display()),
        };
        // A folder says no address, and the rails have some as well.
        command.env("SHUNT_VERBS_STORE", at).env("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "=c");
        // The cable takes the answers of some atomics with it, and nobody reads them.
        command.env("SHUNT_VERBS_ATOMIC_ANSWER", "any");
        Ok(command)
    }

    fn spawn(&self, case: &Case, side: &str, mut command: Command) -> Result<Side> {
        let out = File::create(self.file(case, side))?;
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        Ok(Side(command.spawn().with_context(|| format!("cannot start the {side}"))?))
    }

    fn start(&self, case: &Case, host: u32) -> Result<Side> {
        let client = host == 0;
        let mut command = self.shunt(case, host)?;
        command.args([
            "soft-rdma",
            "run",
            "--roce",
            &self.net.rails(host, case.fails == Fails::Router),
            "--",
        ]);
        if case.shim {
            command.arg(self.built.join("shunt")).args(["verbs", "run", "--"]);
        }
        let ours = self.built.join(case.program);
        let is_ours = ours.is_file();
        command.arg(if is_ours { ours.as_path() } else { std::path::Path::new(case.program) });
        command.args(case.args.split_whitespace());
        match (is_ours, client) {
            (true, false) => _ = command.args(["--listen", &format!("{SERVER}:7801")]),
            (true, true) => _ = command.args(["--connect", &format!("{SERVER}:7801")]),
            (false, false) => _ = command.args(["-p", "7801"]),
            (false, true) => _ = command.args(["-p", "7801", SERVER]),
        }
        self.spawn(case, if client { "client" } else { "server" }, command)
    }

    fn folder(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Makes the store, if there is to be one.
    fn open_store(&self, case: &Case) -> Result<Option<Side>> {
        let command = match case.store {
            Store::Absent => return Ok(None),
            Store::Folder => {
                std::fs::create_dir_all(self.folder())?;
                return Ok(None);
            }
            Store::Killed => {
                let mut command = self.shunt(case, 0)?;
                command.args(["store", "serve", "--listen", STORE]);
                command
            }
            Store::Redis => {
                let mut command = self.net.on_host(0, "redis-server");
                let (at, port) = STORE.split_once(':').context("HOST:PORT")?;
                command.args(["--bind", at, "--port", port, "--save", "", "--protected-mode", "no"]);
                command
            }
        };
        self.spawn(case, "store", command).map(Some)
    }

    /// Runs a case; what is wrong.
    fn run(&self, case: &Case) -> Result<Vec<String>> {
        for host in 0..2 {
            // What earlier cases have told.
            let _ = std::fs::remove_dir_all(self.dir.join(format!("host-{host}")));
        }
        let store = self.open_store(case)?;
        let mut server = self.start(case, 1)?;
        std::thread::sleep(Duration::from_secs(1));
        let mut client = self.start(case, 0)?;
        std::thread::sleep(Duration::from_secs(3));
        drop(store);
        let _ = std::fs::remove_dir_all(self.folder());
        for fails in [true, false] {
            match case.fails {
                Fails::Nothing => break,
                Fails::Cable => self.net.plug(0, "r0", !fails)?,
                Fails::Router => self.net.blackhole(fails)?,
            }
            if fails {
                std::thread::sleep(Duration::from_millis(1500));
            }
        }
        let mut wrong = Vec::new();
        let until = Instant::now() + HANG;
        let ended = wait(&mut client.0, until)?;
        if ended.is_some_and(|status| status.success()) != case.well {
            wrong.push(format!("the client ended with {ended:?}"));
        }
        let until = if case.well { until } else { Instant::now() + Duration::from_secs(5) };
        let ended = wait(&mut server.0, until)?;
        if case.well && !ended.is_some_and(|status| status.success()) {
            wrong.push(format!("the server ended with {ended:?}"));
        }
        for host in 0..2 {
            let said = self.shunt(case, host)?.args(["verbs", "status", "--json"]).output()?;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let moved = said.contains("\"switches\":") && !said.contains("\"switches\": 0");
            if case.shim && moved != case.moves {
                wrong.push(format!("host {host} says: {said}"));
            }
        }
        let said = std::fs::read_to_string(self.file(case, "client")).unwrap_or_default();
        if let Some(gap) = said.split("\"longest_gap_ms\": ").nth(1).and_then(|rest| rest.split(',').next()) {
            println!("    longest time between two completions: {gap} ms");
        }
        Ok(wrong)
    }
}
