//! `shunt-ptx PTX [--short] [--seed N] [--only NAME]`: runs the entry points of a module on the machine.

use shunt_deep_ep_bridge::scenarios as moe;
use shunt_kernels::scenarios::{Group, Scenario, all, each};
use shunt_ptx::code::Module;
use shunt_ptx::kernels::{Run, judge};
use shunt_ptx::moe::{judge as judge_moe, judge_normal};
use shunt_ptx::rig::Mode;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

/// Sums of many runs.
#[derive(Default)]
struct Sum {
    runs: usize,
    wrong: usize,
    deadlocks: usize,
    failovers: usize,
    instructions: u64,
}

impl Sum {
    fn add(&mut self, name: &str, run: &Run) {
        self.runs += 1;
        self.failovers += run.failovers;
        self.instructions += run.counts.instructions;
        if let Some(first) = run.wrongs.first() {
            self.wrong += 1;
            self.deadlocks += usize::from(first.contains("deadlock") || first.contains("barrier"));
            println!("WRONG {name}: {first}");
        }
    }

    fn row(&self, name: &str, begun: Instant) {
        let Self { runs, wrong, deadlocks, failovers, instructions } = self;
        println!(
            "{name:40} {runs:5} runs {wrong:3} wrong {deadlocks:3} deadlock {failovers:6} failovers {instructions:12} \
             instructions {:6.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
}

struct Options {
    file: String,
    short: bool,
    seed: u64,
    only: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { file: String::new(), short: false, seed: 1, only: None };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--short" => options.short = true,
            "--seed" => {
                let text = args.next().unwrap_or_default();
                options.seed = text.parse().map_err(|_| format!("--seed: expected a number, got '{text}'"))?;
            }
            "--only" => options.only = Some(args.next().ok_or("--only: expected a name, got none")?),
            file if !file.starts_with('-') => options.file = file.to_owned(),
            other => return Err(format!("expected a file of PTX, --short, --seed N or --only NAME, got '{other}'")),
        }
    }
    if options.file.is_empty() {
        return Err("expected a file of PTX (cargo xtask gpu makes target/gpu/sm_90/shunt_kernels.ptx), got none".into());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("shunt-ptx: {error}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            println!("{wrong} runs were wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("shunt-ptx: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<usize, String> {
    let text = std::fs::read_to_string(&options.file).map_err(|error| format!("{}: {error}", options.file))?;
    let module = Rc::new(Module::read(&text).map_err(|error| format!("{}: {error}", options.file))?);
    println!("{} functions of {}", module.functions.len(), options.file);
    let chosen = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut wrong = 0;
    for relaxed in [false, true] {
        let memory = if relaxed { "relaxed" } else { "strict" };
        let mode = |seed: u64| Mode { relaxed, seed: options.seed.wrapping_mul(1000) + seed };
        let list: Vec<Scenario> = if options.short { each() } else { all() };
        for faults in [&[][..], &["3us:0.0:down"]] {
            let (mut sum, begun) = (Sum::default(), Instant::now());
            let list = list.iter().filter(|scenario| faults.is_empty() || scenario.status == 0);
            for (seed, scenario) in (1..).zip(list.filter(|scenario| chosen(&scenario.name))) {
                sum.add(&scenario.name, &judge(&module, scenario, mode(seed), faults));
            }
            let port = if faults.is_empty() { "" } else { ", a port down" };
            sum.row(&format!("kernels, {memory}{port}"), begun);
            wrong += sum.wrong;
        }
        for group in [Group::Warp, Group::Block] {
            let step = if options.short { 3 } else { 1 };
            let (mut sum, begun) = (Sum::default(), Instant::now());
            let list = moe::of(group).into_iter().filter(|scenario| chosen(&scenario.name)).step_by(step);
            for (seed, scenario) in (1..).zip(list) {
                let run = judge_moe(&module, &scenario, mode(seed));
                if scenario.fails && run.wrongs.is_empty() && run.failovers == 0 {
                    println!("WRONG {}: the port failed, and nobody switched", scenario.name);
                    wrong += 1;
                }
                sum.add(&scenario.name, &run);
            }
            sum.row(&format!("MoE, low latency, {memory}, by a {}", group.suffix()), begun);
            wrong += sum.wrong;
            let (mut sum, begun) = (Sum::default(), Instant::now());
            let list = moe::normal::of(group).into_iter().filter(|scenario| chosen(&scenario.name)).step_by(step);
            for (seed, scenario) in (1..).zip(list) {
                sum.add(&scenario.name, &judge_normal(&module, &scenario, mode(seed)));
            }
            sum.row(&format!("MoE, normal, {memory}, by a {}", group.suffix()), begun);
            wrong += sum.wrong;
        }
    }
    Ok(wrong)
}
