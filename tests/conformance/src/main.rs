//! `shunt-verbs-check`: checks data and formats over rdma-core's verbs, on whatever mlx5 device the process has.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use shunt_conformance::checks::Row;
use shunt_conformance::verbs::Setup;
use shunt_conformance::{checks, options, peer, wqes};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Checks data and formats over RDMA verbs, on any mlx5 device.
///
/// Exit status: 0 all holds, 1 something is wrong, 2 it could not be checked. Without RDMA devices: `shunt soft-rdma
/// run -- shunt-verbs-check data`.
#[derive(Parser)]
#[command(name = "shunt-verbs-check", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Transfers of every kind between two sides, every byte looked at; errors that must come.
    ///
    /// Without --listen and --connect both sides are threads of this process.
    Data {
        #[command(flatten)]
        device: DeviceArgs,
        /// Be the far side: wait at this port, serve one run, and end.
        #[arg(long, value_name = "PORT", conflicts_with = "connect")]
        listen: Option<u16>,
        /// Be the near side: the far one waits there.
        #[arg(long, value_name = "HOST:PORT")]
        connect: Option<String>,
    },
    /// Send queue entries and completions of libmlx5 against Shunt's own layout.
    Wqes {
        #[command(flatten)]
        device: DeviceArgs,
    },
}

#[derive(Args)]
struct DeviceArgs {
    /// Name of the device.
    #[arg(long, default_value = "mlx5_0")]
    device: String,
    /// Index in its GID table.
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
    /// Seed of everything random; the clock's by default.
    #[arg(long)]
    seed: Option<u64>,
}

impl DeviceArgs {
    fn setup(&self) -> Setup {
        Setup { device: self.device.clone(), gid_index: self.gid_index }
    }

    fn seed(&self) -> u64 {
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
        self.seed.unwrap_or_else(clock)
    }
}

fn main() -> ExitCode {
    if let Some(status) = shunt_pages::answered::<Cli>(std::env::args_os()) {
        return ExitCode::from(status);
    }
    let since = Instant::now();
    let mut report = Report::default();
    let result = run(Cli::parse().command, &mut |row| report.add(&row));
    if report.checks > 0 {
        println!("{} checks, {} wrong, {:.1} s", report.checks, report.wrong, since.elapsed().as_secs_f64());
    }
    match result {
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
        Ok(()) if report.wrong > 0 => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// What is told.
#[derive(Default)]
struct Report {
    checks: u32,
    wrong: u32,
}

impl Report {
    fn add(&mut self, row: &Row) {
        self.checks += 1;
        self.wrong += !row.wrong.is_empty() as u32;
        let word = if row.wrong.is_empty() { "ok" } else { "WRONG" };
        println!("  {:44} {:6} requests {:12} B  {word}", row.name, row.requests, row.bytes);
        for line in &row.wrong {
            println!("      {line}");
        }
    }
}

fn run(what: What, tell: &mut dyn FnMut(Row)) -> Result<()> {
    match what {
        What::Wqes { device } => {
            let seed = device.seed();
            println!("seed {seed}");
            wqes::run(&device.setup(), seed, tell)
        }
        What::Data { device, listen: Some(port), .. } => {
            let listener = TcpListener::bind(("0.0.0.0", port)).with_context(|| format!("port {port}"))?;
            peer::serve(listener.accept()?.0, &device.setup())
        }
        What::Data { device, connect, .. } => {
            let seed = device.seed();
            println!("seed {seed}");
            match connect {
                Some(address) => checks::run(&device.setup(), reach(&address)?, seed, tell),
                None => both(&device.setup(), seed, tell),
            }?;
            options::run(&device.setup(), tell)
        }
    }
}

/// The far side may still be starting.
fn reach(address: &str) -> Result<TcpStream> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => {
                return Err(error).context(format!("far side at {address}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Both sides in one process, each with a context of its own.
fn both(setup: &Setup, seed: u64, tell: &mut dyn FnMut(Row)) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| peer::serve(far, setup));
        let result = checks::run(setup, stream, seed, tell);
        let served = server.join().map_err(|_| anyhow::anyhow!("the far side panicked"))?;
        result?;
        served.context("the far side")
    })
}
