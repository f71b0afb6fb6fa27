//! `cargo xtask beside`: the transfer engine beside perftest and Mooncake, on the same soft NICs.
//!
//! | module | what it is |
//! | --- | --- |
//! | `figures` | what the systems say, in one unit, and what is asked of that |

mod figures;

use crate::case::{Runtime, Side};
use crate::mooncake::{self, Wheel};
use crate::run::{listens, wait};
use anyhow::{Context, Result, bail, ensure};
use figures::{GOALS, ROWS, Row, System};
use shunt_task::{ports, sh};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const SUMMARY: &str = "the transfer engine beside perftest and Mooncake, on soft NICs";
pub const HELP: &str = "beside [--mooncake PLACE] [--runs N] [--seconds S] [--gbps G]

Runs `ib_write_bw` with writes of 1 MiB, Mooncake's transfer engine with blocks of 64 KiB on one and on two NICs, and
`transfer_bw --nic mlx5` with both, on what `cargo build --release -p shunt-cli -p shunt-transfer-bw -p
shunt-soft-rdma-preload` made. Each is two processes on soft NICs of this machine. The systems take turns. It prints
one table in MB/s and fails unless transfer_bw has 0.95 of ib_write_bw, and as much as Mooncake. Nothing is fetched.

  --mooncake PLACE  a virtual environment with Mooncake's wheel, or a folder that the wheel was unpacked into; without
                    it Mooncake's rows are left out, and so is what is asked of them
  --runs N          rounds (default 3)
  --seconds S       of each run, about (default 4)
  --gbps G          rate of a soft NIC's port in Gb/s (default 1)";

/// A run's time beyond what it was asked for: only a hang takes it.
const HANG: Duration = Duration::from_secs(90);
/// Requests of a call of Mooncake's: as many as make no call short.
const BATCH: u32 = 256;

/// What is asked for.
struct Asked {
    wheel: Option<Wheel>,
    runs: u32,
    seconds: u32,
    gbps: f64,
}

impl Asked {
    fn of(args: &[String]) -> Result<Self> {
        let mut asked = Self { wheel: None, runs: 3, seconds: 4, gbps: 1.0 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let Some(value) = args.next() else {
                return sh::usage(format!("{arg} needs a value, or is unknown"));
            };
            let count = || value.parse::<u32>().ok().filter(|count| (1..=100).contains(count));
            match (arg.as_str(), count()) {
                ("--mooncake", _) => asked.wheel = Some(Wheel::at(Path::new(value))?),
                ("--runs", Some(runs)) => asked.runs = runs,
                ("--seconds", Some(seconds)) => asked.seconds = seconds,
                ("--runs" | "--seconds", None) => {
                    return sh::usage(format!("{arg}: expected a number from 1 to 100, got '{value}'"));
                }
                ("--gbps", _) => match value.parse::<f64>() {
                    Ok(gbps) if (0.01..=400.0).contains(&gbps) => asked.gbps = gbps,
                    _ => return sh::usage(format!("--gbps: expected 0.01 to 400, got '{value}'")),
                },
                _ => return sh::usage(format!("unknown argument '{arg}'")),
            }
        }
        Ok(asked)
    }

    /// Bytes that take Mooncake as long as the others.
    fn bytes(&self, nics: u32) -> u64 {
        (self.gbps * 1e9 / 8.0) as u64 * u64::from(self.seconds) * u64::from(nics)
    }
}

pub fn run(args: &[String]) -> Result<()> {
    let asked = Asked::of(args)?;
    let place = Place::new()?;
    let rows = ROWS.iter().filter(|row| row.system != System::Mooncake || asked.wheel.is_some());
    let rows: Vec<Row> = rows.copied().collect();
    let mut rates = vec![Vec::new(); ROWS.len()];
    for round in 1..=asked.runs {
        println!("round {round} of {}, load {}", asked.runs, load());
        for row in &rows {
            let rate = place.measure(&asked, *row)?;
            println!("  {:12} {:17} NICs {}: {rate:.1} MB/s", row.system.name(), row.what, row.nics);
            rates[at(*row)].push(rate);
        }
    }
    println!(
        "\nsoft NIC, wall time, {} Gb/s a port, about {} s a run, MB/s, load {} at the end\n{:12} {:17} {:>4}  {:>7}  \
         each round",
        asked.gbps,
        asked.seconds,
        load(),
        "system",
        "what",
        "NICs",
        "median"
    );
    ROWS.iter().for_each(|row| println!("{}", figures::line(*row, &rates[at(*row)])));
    let mut missed = 0;
    for goal in GOALS {
        match figures::goal(&rates[at(goal.0)], &rates[at(goal.1)], goal) {
            Some((line, is_reached)) => {
                println!("{line}");
                missed += usize::from(!is_reached);
            }
            None => println!("{}, NICs {}: not run", goal.1.system.name(), goal.1.nics),
        }
    }
    ensure!(missed == 0, "goals: expected all reached, got {missed} missed");
    Ok(())
}

fn at(row: Row) -> usize {
    ROWS.iter().position(|it| *it == row).unwrap_or_default()
}

/// The machine's load over a minute, as the kernel says it.
fn load() -> String {
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    said.split(' ').next().unwrap_or_default().to_owned()
}

/// Where programs and their output are.
struct Place {
    built: PathBuf,
    dir: PathBuf,
    runtime: Runtime,
}

impl Place {
    fn new() -> Result<Self> {
        let (built, dir) = (sh::target_dir().join("release"), sh::target_dir().join("ci/beside"));
        for file in ["shunt", "libshunt_soft_rdma.so", "transfer_bw"] {
            ensure!(
                built.join(file).is_file(),
                "{}: expected a release build, got none",
                built.join(file).display()
            );
        }
        std::fs::create_dir_all(&dir)?;
        Ok(Self { built, dir, runtime: Runtime::make("shunt-beside")? })
    }

    fn shunt(&self) -> Command {
        let mut command = sh::command(&self.built.join("shunt").to_string_lossy());
        command.env("XDG_RUNTIME_DIR", self.runtime.path()).env_remove("SHUNT_NIC");
        command
    }

    /// Words that give a program so many NICs.
    fn nics(asked: &Asked, row: Row, port: u16) -> [String; 9] {
        let (nics, gbps) = (row.nics.to_string(), asked.gbps.to_string());
        let fabric = format!("beside-{port}");
        ["soft-rdma", "run", "--nics", &nics, "--rail-gbps", &gbps, "--fabric", &fabric, "--"]
            .map(str::to_owned)
    }

    fn start(&self, mut command: Command, side: &str) -> Result<Side> {
        let out = File::create(self.dir.join(side))?;
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        Ok(Side(command.spawn().with_context(|| format!("cannot start {}", sh::shown(&command)))?))
    }

    /// The rate of one run, in MB/s.
    fn measure(&self, asked: &Asked, row: Row) -> Result<f64> {
        let port = ports::free(1)?;
        let until = Instant::now() + HANG + Duration::from_secs(u64::from(asked.seconds) * 4);
        let mut ends = self.ends(asked, row, port)?.into_iter();
        let (Some(client), server) = (ends.next(), ends.next()) else { bail!("no program") };
        let mut server = server.map(|server| self.start(server, "server")).transpose()?;
        if let Some(server) = &mut server {
            ensure!(
                listens(&mut server.0, port, until)?,
                "{}: expected a listener at {port}",
                row.system.name()
            );
        }
        let mut client = self.start(client, "client")?;
        for side in [Some(&mut client), server.as_mut()].into_iter().flatten() {
            let ended = wait(&mut side.0, until)?;
            if !ended.is_some_and(|status| status.success()) {
                bail!("{}: expected exit status 0, got {ended:?}; {}", row.system.name(), self.said());
            }
        }
        let said = std::fs::read_to_string(self.dir.join("client"))?;
        let is_right = row.system.proof().is_none_or(|proof| said.contains(proof));
        ensure!(is_right, "{}: expected all bytes as sent, got {}", row.system.name(), self.said());
        row.system.rate(&said).with_context(|| format!("{}: no rate in {}", row.system.name(), self.said()))
    }

    fn said(&self) -> String {
        let of = |side| std::fs::read_to_string(self.dir.join(side)).unwrap_or_default();
        format!("{}\n{}", sh::last_lines(&of("server"), 20), sh::last_lines(&of("client"), 20))
    }

    /// What runs: the client, whose output counts, and the server where there is one to start.
    fn ends(&self, asked: &Asked, row: Row, port: u16) -> Result<Vec<Command>> {
        let nics = Self::nics(asked, row, port);
        let seconds = asked.seconds.to_string();
        let both = || {
            [self.shunt(), self.shunt()].map(|mut command| {
                command.args(&nics);
                command
            })
        };
        let there = format!("127.0.0.1:{port}");
        Ok(match row.system {
            System::Perftest => {
                let port = port.to_string();
                let [mut client, mut server] = both();
                for end in [&mut client, &mut server] {
                    end.args(["ib_write_bw", "-d", "mlx5_0", "-x", "0", "-F", "-s", "1048576"]);
                    end.args(["-D", &seconds, "-p", &port]);
                }
                client.arg("127.0.0.1");
                vec![client, server]
            }
            System::Mooncake => {
                let wheel = asked.wheel.as_ref().context("no wheel")?;
                let devices = ["mlx5_0", "mlx5_0,mlx5_1"][row.nics as usize - 1];
                let [mut client, mut server] = both();
                for end in [&mut client, &mut server] {
                    wheel.add_to(end);
                    end.arg(mooncake::script()).args(["--device", devices, "--batch", &BATCH.to_string()]);
                }
                client.args(["--connect", &there, "--bytes", &asked.bytes(row.nics).to_string()]);
                server.args(["--listen", &port.to_string()]);
                vec![client, server]
            }
            System::Ours => {
                let mode = if row.what.starts_with("pages") { ["paged", "64K"] } else { ["single", "1M"] };
                let mut job = self.shunt();
                job.args(["run", "-n", "2", "--"]).arg(self.built.join("shunt")).args(&nics);
                job.arg(self.built.join("transfer_bw")).args([
                    "--nic",
                    "mlx5",
                    "--rails",
                    &row.nics.to_string(),
                ]);
                job.args(["--mode", mode[0], "--size", mode[1], "--duration", &format!("{seconds}s")]);
                vec![job]
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        let of = |args: &[&str]| Asked::of(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        let asked = of(&["--runs", "2", "--seconds", "3", "--gbps", "0.5"]).unwrap();
        assert_eq!((asked.runs, asked.seconds, asked.bytes(2)), (2, 3, 375_000_000));
        for args in [
            &["--runs"][..],
            &["--runs", "0"],
            &["--seconds", "x"],
            &["--gbps", "nan"],
            &["--mooncake", "/nowhere"],
            &["--fast", "1"],
        ] {
            assert_eq!(sh::status_of(&of(args).err().unwrap()), 2, "{args:?}");
        }
    }
}
