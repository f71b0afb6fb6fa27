//! `cargo xtask verbs-cost`: what `shunt verbs run` costs a program while all is well, on soft NICs.

use crate::case::{Runtime, Side, numbers};
use crate::run::{listens, wait};
use anyhow::{Context, Result, ensure};
use shunt_task::{ports, sh};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const SUMMARY: &str = "what `shunt verbs run` costs while all is well, on soft NICs";
pub const HELP: &str = "verbs-cost [--runs N] [--pairs N]

Runs `ib_write_lat`, `ib_write_bw` and a program that connects queue pairs, each without and with `shunt verbs run`, in
turns, on what `cargo build --release -p shunt-cli -p shunt-verbs-count -p shunt-verbs-preload -p
shunt-soft-rdma-preload` made. Each is two processes on soft NICs of this machine. It prints medians of all
rounds, the median of their ratios, and what is asked of it, and fails where that is missed. Instructions of the calls
are measured by the library's example `cost`: see docs/how-to/verbs.md.

  --runs N   rounds (default 15, some twelve minutes)
  --pairs N  queue pairs that are connected in a round, at once and again with pauses (default 64)";

/// A run's time: only a hang takes it.
const HANG: Duration = Duration::from_secs(90);
/// Queue pairs that stand by for one of the program's: two on the backup's NIC, one on the first.
const STAND_INS: f64 = 3.0;
/// Requests that a queue pair of the program has room for.
const DEPTH: f64 = 128.0;

/// What is asked for.
struct Asked {
    runs: u32,
    pairs: u32,
}

impl Asked {
    fn of(args: &[String]) -> Result<Self> {
        let mut asked = Self { runs: 15, pairs: 64 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let place = match arg.as_str() {
                "--runs" => &mut asked.runs,
                "--pairs" => &mut asked.pairs,
                _ => return sh::usage(format!("unknown argument '{arg}'")),
            };
            let value = args.next().map_or("nothing", String::as_str);
            match value.parse().ok().filter(|count| (1..=1000).contains(count)) {
                Some(count) => *place = count,
                None => return sh::usage(format!("{arg}: expected a number from 1 to 1000, got {value}")),
            }
        }
        Ok(asked)
    }
}

/// What is measured, without and with the library.
#[derive(Default)]
struct Figures {
    /// Medians of a round, connected one right after the other, then with pauses between them.
    rtr_us: [[Vec<f64>; 2]; 2],
    rts_us: [[Vec<f64>; 2]; 2],
    latency_us: [Vec<f64>; 2],
    rate: [Vec<f64>; 2],
    grown_kib: [Vec<f64>; 2],
    /// With the library alone: from RTS until a queue pair is protected.
    at_once_ms: Vec<f64>,
    apart_ms: Vec<f64>,
}

pub fn run(args: &[String]) -> Result<()> {
    let asked = Asked::of(args)?;
    let place = Place::new()?;
    let mut figures = Figures::default();
    for round in 1..=asked.runs {
        println!("round {round} of {}, load {}", asked.runs, load());
        // Who goes first has the other's warm caches in every second round.
        let both = [round % 2 == 0, round % 2 == 1];
        both.into_iter().try_for_each(|with| place.run_perftest(with, &mut figures))?;
        both.into_iter().try_for_each(|with| place.connect(&asked, with, &mut figures))?;
    }
    let missed = table(&asked, &figures);
    ensure!(missed == 0, "goals: expected all reached, got {missed} missed");
    Ok(())
}

/// The machine's load over a minute, as the kernel says it.
fn load() -> String {
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    said.split(' ').next().unwrap_or_default().to_owned()
}

/// The one that so large a part of them is not above.
fn part(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Prints the table. How many goals are missed.
fn table(asked: &Asked, figures: &Figures) -> u32 {
    println!(
        "\nsoft NIC, wall time, {} rounds, {} queue pairs each, load {} at the end\n{:42} {:>9} {:>9} {:>7}  asked",
        asked.runs,
        asked.pairs,
        load(),
        "median of",
        "without",
        "with",
        "ratio"
    );
    let mut missed = 0;
    let mut say = |name: &str, [without, with]: &[Vec<f64>; 2], least: bool, bar: f64| {
        // Each round has a ratio: the machine is not as fast from minute to minute.
        let ratios: Vec<f64> = without.iter().zip(with).map(|(without, with)| with / without).collect();
        let (without, with, ratio) = (part(without, 0.5), part(with, 0.5), part(&ratios, 0.5));
        let sign = if least { ">=" } else { "<=" };
        println!("{name:42} {without:9.2} {with:9.2} {ratio:7.3}  {sign} {bar}");
        let reached = if least { ratio >= bar } else { ratio <= bar };
        missed += u32::from(!reached);
    };
    for (how, at) in [("at once", 0), ("30 ms apart", 1)] {
        say(&format!("ibv_modify_qp to RTR, {how}, us"), &figures.rtr_us[at], false, 1.10);
        say(&format!("ibv_modify_qp to RTS, {how}, us"), &figures.rts_us[at], false, 1.10);
    }
    say("ib_write_lat, 2 bytes, typical, us", &figures.latency_us, false, 1.03);
    say("ib_write_bw, 64 KiB, MiB/s", &figures.rate, true, 0.98);
    let [without, with] = figures.grown_kib.each_ref().map(|grown| part(grown, 0.5));
    // A queue pair and its completion queues: 171 KB, and 16 bytes a request.
    let (stand_in, bar) = ((with - without) / STAND_INS, (171e3 + 16.0 * DEPTH) / 1024.0);
    println!(
        "memory of a queue pair, KiB: {without:.0} without, {with:.0} with; of each of the {STAND_INS} that stand in \
         {stand_in:.0}, the soft NIC's part included, <= {bar:.0}"
    );
    let [at_once, apart] = [&figures.at_once_ms, &figures.apart_ms].map(|ms| [part(ms, 0.5), part(ms, 1.0)]);
    println!(
        "from RTS until protected, ms: 30 ms apart, median {:.1}, <= 35, longest {:.1}; at once, median {:.1}, longest \
         {:.1}",
        apart[0], apart[1], at_once[0], at_once[1]
    );
    missed + u32::from(stand_in.is_nan() || stand_in > bar) + u32::from(apart[0].is_nan() || apart[0] > 35.0)
}

/// Where programs and their output are.
struct Place {
    built: PathBuf,
    dir: PathBuf,
}

impl Place {
    fn new() -> Result<Self> {
        let (built, dir) = (sh::target_dir().join("release"), sh::target_dir().join("ci/verbs-cost"));
        for file in ["shunt", "libshunt_soft_rdma.so", "libshunt_verbs.so", "shunt-verbs-count"] {
            let file = built.join(file);
            ensure!(file.is_file(), "{}: expected a release build, got none", file.display());
        }
        std::fs::create_dir_all(&dir)?;
        Ok(Self { built, dir })
    }

    fn shunt(&self, runtime: &Runtime) -> Command {
        let mut command = sh::command(&self.built.join("shunt").to_string_lossy());
        command.env("XDG_RUNTIME_DIR", runtime.path()).env("SHUNT_GIVE_UP", "30s");
        command
    }

    /// One end, on two soft NICs.
    fn start(&self, runtime: &Runtime, with: bool, side: &str, words: &[String]) -> Result<Side> {
        let mut command = self.shunt(runtime);
        command.args(["soft-rdma", "run", "--nics", "2", "--fabric", "verbs-cost", "--"]);
        if with {
            command.arg(self.built.join("shunt")).args(["verbs", "run", "--"]);
        }
        let out = File::create(self.dir.join(side))?;
        command.args(words).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        Ok(Side(command.spawn().with_context(|| format!("cannot start {}", sh::shown(&command)))?))
    }

    fn said(&self, side: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.dir.join(side))?)
    }

    /// Runs both ends, and `meanwhile` beside them; what the client said.
    fn both(
        &self,
        with: bool,
        server: &[String],
        client: &[String],
        port: u16,
        meanwhile: impl FnOnce(&Runtime, Instant) -> Result<()>,
    ) -> Result<String> {
        let runtime = Runtime::make("shunt-verbs-cost")?;
        let until = Instant::now() + HANG;
        let mut server = self.start(&runtime, with, "server", server)?;
        ensure!(
            listens(&mut server.0, port, until)?,
            "expected a listener at {port}: {}",
            self.said("server")?
        );
        let mut client = self.start(&runtime, with, "client", client)?;
        meanwhile(&runtime, until)?;
        for (end, name) in [(&mut client, "client"), (&mut server, "server")] {
            let ended = wait(&mut end.0, until)?;
            let well = ended.is_some_and(|status| status.success());
            ensure!(well, "{name}: expected exit status 0, got {ended:?}; {}", self.said(name)?);
        }
        self.said("client")
    }

    /// Latency and bandwidth.
    fn run_perftest(&self, with: bool, figures: &mut Figures) -> Result<()> {
        let which = usize::from(with);
        let perftest = |program: &str, args: &str, column: usize| -> Result<f64> {
            let port = ports::free(1)?;
            let words = |host: &str| -> Vec<String> {
                let line = format!("{program} -d mlx5_0 -x 0 -F {args} -p {port} {host}");
                line.split_whitespace().map(str::to_owned).collect()
            };
            let said = self.both(with, &words(""), &words("127.0.0.1"), port, |_, _| Ok(()))?;
            figure(&said, column).with_context(|| format!("{program}: no figures in {said}"))
        };
        // Columns of perftest: bytes, iterations, then the least, the most and the typical; or the peak and the mean.
        figures.latency_us[which].push(perftest("ib_write_lat", "-s 2 -n 20000", 4)?);
        figures.rate[which].push(perftest("ib_write_bw", "-s 65536 -D 8", 3)?);
        Ok(())
    }

    /// Queue pairs that are connected.
    fn connect(&self, asked: &Asked, with: bool, figures: &mut Figures) -> Result<()> {
        let which = usize::from(with);
        let port = ports::free(1)?;
        let words = |side: &str, at: String| -> Vec<String> {
            let program = self.built.join("shunt-verbs-count").display().to_string();
            let pairs = asked.pairs.to_string();
            [&program, "--connects", &pairs, "--seconds", "2", side, &at].map(str::to_owned).to_vec()
        };
        let (server, client) =
            (words("--listen", port.to_string()), words("--connect", format!("127.0.0.1:{port}")));
        let mut protected = Vec::new();
        let said = self.both(with, &server, &client, port, |runtime, until| {
            while with && protected.len() < 2 * asked.pairs as usize && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
                if self.said("client")?.contains("\"grown_kib\"") {
                    let output = self.shunt(runtime).args(["verbs", "status", "--json"]).output()?;
                    protected = since(&String::from_utf8_lossy(&output.stdout));
                }
            }
            Ok(())
        })?;
        let us = |name| -> Vec<f64> { numbers(&said, name).map(|ns| ns as f64 / 1e3).collect() };
        for (at, [rtr, rts]) in
            [["rtr_ns", "rts_ns"], ["apart_rtr_ns", "apart_rts_ns"]].into_iter().enumerate()
        {
            figures.rtr_us[at][which].push(part(&us(rtr), 0.5));
            figures.rts_us[at][which].push(part(&us(rts), 0.5));
        }
        let pairs = 2.0 * f64::from(asked.pairs);
        figures.grown_kib[which].extend(numbers(&said, "grown_kib").map(|kib| kib as f64 / pairs));
        if !with {
            return Ok(());
        }
        let since = |qpn: u64| protected.iter().find(|(known, _)| *known == qpn).map(|(_, at)| *at);
        let took = |qpn: &str, from: &str| -> Option<Vec<f64>> {
            let ms = |(qpn, from): (u64, u64)| Some(since(qpn)?.saturating_sub(from) as f64 / 1e6);
            numbers(&said, qpn).zip(numbers(&said, from)).map(ms).collect()
        };
        let all = took("qpn", "unix_ns").zip(took("apart_qpn", "apart_unix_ns"));
        let (at_once, apart) =
            all.context("expected all queue pairs to be protected in two seconds, got others")?;
        figures.at_once_ms.extend(at_once);
        figures.apart_ms.extend(apart);
        Ok(())
    }
}

/// A column of the last line that has numbers alone.
fn figure(said: &str, column: usize) -> Option<f64> {
    let row = |line: &str| -> Option<Vec<f64>> {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() > column)
    };
    said.lines().rev().find_map(row).map(|numbers| numbers[column])
}

/// Protected queue pairs of the client, and since when they are.
fn since(status: &str) -> Vec<(u64, u64)> {
    let client = status.split("\"alive\"").find(|program| program.contains("--connect "));
    let pairs =
        client.unwrap_or_default().split('}').filter(|pair| pair.contains("\"state\": \"protected\""));
    pairs.flat_map(|pair| numbers(pair, "qpn").zip(numbers(pair, "since_unix_ns"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_perftest_and_of_status_are_read() {
        let said = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n\
                     2 20000 5.10 38.55 6.24 \t 6.51 \t1.09\t\t12.0 \t20.1\n------\n";
        assert_eq!(figure(said, 4), Some(6.24));
        assert_eq!(figure("65536 1000 10.5 9.25 0.01\n", 3), Some(9.25));
        assert_eq!(figure("no numbers 7\n", 0), None);
        let pair =
            |qpn, state, at| format!("{{\"qpn\": {qpn}, \"state\": \"{state}\", \"since_unix_ns\": {at}}}, ");
        let status = format!(
            "\"alive\": 1, \"command\": \"x --listen 1\", {} \"alive\": 1, \"command\": \"x --connect h:1\", {}{}",
            pair(1, "protected", 5),
            pair(2, "protected", 6),
            pair(3, "connecting", 7)
        );
        assert_eq!(since(&status), [(2, 6)]);
        assert_eq!(part(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(part(&[3.0, 1.0, 2.0], 1.0), 3.0);
        assert!(part(&[], 0.5).is_nan());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [&["--runs"][..], &["--runs", "0"], &["--pairs", "x"], &["--fast"]] {
            let asked = Asked::of(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
            assert_eq!(sh::status_of(&asked.err().unwrap()), 2, "{args:?}");
        }
    }
}
