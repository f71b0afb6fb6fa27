//! `shunt-ptx KERNELS.ptx [LIBRARY.ptx] [--short] [--seed N] [--only NAME] [--counts]`: runs it on the machine.

use shunt_deep_ep_bridge::scenarios as moe;
use shunt_kernels::scenarios::{Group, Launch, Scenario, all, each};
use shunt_ptx::code::Module;
use shunt_ptx::costs;
use shunt_ptx::counts::Counts;
use shunt_ptx::coverage::{self, Coverage};
use shunt_ptx::kernels::{Door, judge};
use shunt_ptx::library;
use shunt_ptx::moe::{judge as judge_moe, judge_normal};
use shunt_ptx::moe_costs::{self, Layer};
use shunt_ptx::mutants::MUTANTS;
use shunt_ptx::outcome::Run;
use shunt_ptx::raw;
use shunt_ptx::rig::Mode;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

const USAGE: &str = "usage: shunt-ptx KERNELS.ptx [LIBRARY.ptx] [--short] [--seed N] [--only NAME] [--counts]
  --short      the first scenario of each entry point, every third of MoE's
  --seed N     seed of delays and of the order in which lanes run (default 1)
  --only NAME  scenarios whose name holds NAME; no mutants, and functions that were not run are no finding
  --counts     what each operation costs, and nothing else
cargo xtask gpu makes the files: target/gpu/sm_90/shunt_kernels.ptx and shunt_device.ptx";

/// Sums of many runs.
#[derive(Default)]
struct Sum {
    runs: usize,
    wrong: usize,
    deadlocks: usize,
    failovers: usize,
    instructions: u64,
}

/// All that was found.
#[derive(Default)]
struct Found {
    runs: usize,
    wrong: usize,
    deadlocks: usize,
    coverage: Coverage,
}

impl Sum {
    fn add(&mut self, name: &str, run: &Run, found: &mut Found) {
        self.runs += 1;
        self.failovers += run.failovers;
        self.instructions += run.counts.instructions;
        found.coverage.add(run);
        if let Some(first) = run.wrongs.first() {
            self.wrong += 1;
            self.deadlocks += usize::from(first.contains("deadlock") || first.contains("barrier"));
            println!("WRONG {name}: {}", first.lines().find(|line| line.contains("PTX")).unwrap_or(first));
        }
    }

    fn row(&self, name: &str, begun: Instant, found: &mut Found) {
        let Self { runs, wrong, deadlocks, failovers, instructions } = self;
        println!(
            "{name:40} {runs:4} runs {wrong:3} wrong {deadlocks:3} deadlock {failovers:5} failovers \
             {instructions:11} instructions {:6.1} s",
            begun.elapsed().as_secs_f64()
        );
        found.runs += runs;
        found.wrong += wrong;
        found.deadlocks += deadlocks;
    }
}

#[derive(Default)]
struct Options {
    files: Vec<String>,
    short: bool,
    counts: bool,
    seed: u64,
    only: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seed: 1, ..Options::default() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--short" => options.short = true,
            "--counts" => options.counts = true,
            "--seed" => {
                let text = args.next().unwrap_or_default();
                options.seed =
                    text.parse().map_err(|_| format!("--seed: expected a number, got '{text}'"))?;
            }
            "--only" => options.only = Some(args.next().ok_or("--only: expected a name, got none")?),
            file if !file.starts_with('-') => options.files.push(file.to_owned()),
            other => return Err(format!("option: expected one of those below, got '{other}'\n{USAGE}")),
        }
    }
    match options.files.len() {
        1 | 2 => Ok(options),
        count => Err(format!("files: expected one or two, got {count}\n{USAGE}")),
    }
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match options().and_then(|options| run(&options)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            println!("{wrong} findings");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn read(file: &str) -> Result<(String, Rc<Module>), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let module = Module::read(&text).map_err(|error| format!("{file}: {error}"))?;
    if module.functions.is_empty() {
        return Err(format!(
            "{file}: expected PTX with functions, got none; `cargo xtask gpu` makes the files"
        ));
    }
    println!("{file}: {} functions", module.functions.len());
    Ok((text, Rc::new(module)))
}

fn run(options: &Options) -> Result<usize, String> {
    let begun = Instant::now();
    let (text, module) = read(&options.files[0])?;
    let library = options.files.get(1).map(|file| read(file)).transpose()?;
    if options.counts {
        let wrong = print_costs(&module, library.as_ref());
        print_moe_costs(&module);
        return Ok(wrong);
    }
    // A panic of the machine is a finding, which is printed as one.
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = Found::default();
    for relaxed in [false, true] {
        for door in [(Door::Entries, "kernels"), (Door::Plain, "kernels without fault tolerance")] {
            by_door(options, &module, door, relaxed, &mut found);
        }
        if let Some((_, library)) = &library {
            for door in [(Door::Library, "library"), (Door::Raw, "library, raw posts and looks")] {
                by_door(options, library, door, relaxed, &mut found);
            }
            questions(options, library, relaxed, &mut found);
        }
        for group in [Group::Warp, Group::Block] {
            layers(options, &module, relaxed, group, &mut found);
        }
    }
    let mut wrong = found.wrong;
    if options.only.is_none() {
        let texts = [Some(&text), library.as_ref().map(|(text, _)| text)];
        wrong +=
            texts.into_iter().flatten().map(|text| covered(text, &found)).sum::<usize>() + mutants(&text)?;
        wrong += print_costs(&module, library.as_ref());
    }
    println!(
        "{} runs, {} wrong, {} deadlock, {:.1} s (PTX machine)",
        found.runs,
        found.wrong,
        found.deadlocks,
        begun.elapsed().as_secs_f64()
    );
    Ok(wrong)
}

fn mode(options: &Options, relaxed: bool, seed: u64) -> Mode {
    Mode { relaxed, seed: options.seed.wrapping_mul(1000) + seed }
}

fn memory(relaxed: bool) -> &'static str {
    if relaxed { "relaxed" } else { "strict" }
}

fn chosen(options: &Options, name: &str) -> bool {
    options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
}

fn scenarios(options: &Options) -> impl Iterator<Item = Scenario> {
    let list = if options.short { each() } else { all() };
    list.into_iter().filter(|scenario| chosen(options, &scenario.name))
}

/// The scenarios that a door has functions for, each with its number, which is its seed.
fn numbered(options: &Options, module: &Module, door: Door) -> Vec<(u64, Scenario)> {
    let has = |launch: &Launch| match door {
        Door::Entries => true,
        Door::Plain => {
            let name = format!("shunt_kernel_{}_ft_off_{}", launch.kernel, launch.group.suffix());
            module.find(&name).is_some()
        }
        Door::Library => library::can(module, launch),
        Door::Raw => raw::can(module, launch),
    };
    let fits = |scenario: &Scenario| {
        let mut launches = scenario.steps.iter().flatten();
        // Without fault tolerance there are but some.
        if door == Door::Plain { launches.any(has) } else { launches.all(has) }
    };
    (1..).zip(scenarios(options)).filter(|(_, scenario)| fits(scenario)).collect()
}

/// When the port of the first doorbell goes down: what was rung for is on its way. A fetch has not left yet: one whose
/// answer is lost is asked about, and none of these is there to answer.
fn strikes(scenario: &Scenario, rang_ns: u64) -> u64 {
    const UNDER_WAY_NS: u64 = 50;
    let fetches = scenario.steps.iter().flatten().any(|launch| launch.kernel.starts_with("fetch"));
    if fetches { rang_ns.saturating_sub(1) } else { rang_ns + UNDER_WAY_NS }
}

/// Each scenario without a fault, and again with the port going down that its first doorbell sends by.
fn by_door(
    options: &Options,
    module: &Rc<Module>,
    (door, what): (Door, &str),
    relaxed: bool,
    found: &mut Found,
) {
    let (mut sum, begun, mut faults) = (Sum::default(), Instant::now(), Vec::new());
    for (number, scenario) in numbered(options, module, door) {
        // The agent may ring before the kernel does: then with another seed.
        let seeds = (0..4).map(|turn| number + 500 * turn);
        for mode in seeds.map(|seed| mode(options, relaxed, seed)) {
            let run = judge(module, &scenario, mode, None, door);
            sum.add(&scenario.name, &run, found);
            if scenario.status != 0 {
                break;
            }
            if let Some((at_ns, pe, rail)) = run.first_bell {
                let fault = format!("{}ns:{pe}.{rail}:down", strikes(&scenario, at_ns));
                faults.push((fault, scenario.clone(), mode));
                break;
            }
        }
    }
    sum.row(&format!("{what}, {}", memory(relaxed)), begun, found);
    if door == Door::Plain {
        return;
    }
    let (mut sum, begun) = (Sum::default(), Instant::now());
    for (fault, scenario, mode) in faults {
        let mut run = judge(module, &scenario, mode, Some(&fault), door);
        if run.wrongs.is_empty() && run.idle_faults != 0 {
            run.wrongs.push(format!("{fault} hit nothing: not exercised"));
        }
        sum.add(&scenario.name, &run, found);
    }
    sum.row(&format!("{what}, {}, a port down", memory(relaxed)), begun, found);
}

/// A channel that asks what became of an operation.
fn questions(options: &Options, module: &Rc<Module>, relaxed: bool, found: &mut Found) {
    const NAME: &str = "an answer that is lost, asked about";
    if chosen(options, NAME) {
        let (mut sum, begun) = (Sum::default(), Instant::now());
        sum.add(NAME, &raw::ask(module, mode(options, relaxed, 1)), found);
        sum.row(&format!("library, questions, {}", memory(relaxed)), begun, found);
    }
    const EXACT: &str = "atomics by the word's owner, while a port goes down";
    if chosen(options, EXACT) {
        let (mut sum, begun) = (Sum::default(), Instant::now());
        let mut run = raw::exact(module, mode(options, relaxed, 1));
        switched(&mut run, true);
        sum.add(EXACT, &run, found);
        sum.row(&format!("library, atomics by the owner, {}", memory(relaxed)), begun, found);
    }
}

fn layers(options: &Options, module: &Rc<Module>, relaxed: bool, group: Group, found: &mut Found) {
    let step = if options.short { 3 } else { 1 };
    let (mut sum, begun) = (Sum::default(), Instant::now());
    let list = moe::of(group).into_iter().filter(|scenario| chosen(options, &scenario.name)).step_by(step);
    for (seed, scenario) in (1..).zip(list) {
        let mut run = judge_moe(module, &scenario, mode(options, relaxed, seed));
        switched(&mut run, scenario.fails);
        sum.add(&scenario.name, &run, found);
    }
    sum.row(&format!("MoE, low latency, {}, by a {}", memory(relaxed), group.suffix()), begun, found);
    let (mut sum, begun) = (Sum::default(), Instant::now());
    let list =
        moe::normal::of(group).into_iter().filter(|scenario| chosen(options, &scenario.name)).step_by(step);
    for (seed, scenario) in (1..).zip(list) {
        let mut run = judge_normal(module, &scenario, mode(options, relaxed, seed));
        switched(&mut run, scenario.fault.is_some());
        sum.add(&scenario.name, &run, found);
    }
    sum.row(&format!("MoE, normal, {}, by a {}", memory(relaxed), group.suffix()), begun, found);
}

/// A fault that makes nobody switch exercises nothing.
fn switched(run: &mut Run, fails: bool) {
    if fails && run.wrongs.is_empty() && (run.failovers == 0 || run.idle_faults != 0) {
        run.wrongs.push("the rail was hurt, and no channel switched or lost anything: not exercised".into());
    }
}

/// Functions that nothing ran, or that nobody switched in a run of.
fn covered(text: &str, found: &Found) -> usize {
    let names = coverage::names(text);
    let missing = found.coverage.missing(&names);
    println!("{} of {} functions run and switched as they can", names.len() - missing.len(), names.len());
    missing.iter().for_each(|line| println!("{line}"));
    missing.len()
}

/// Defects put into the text: how many were not found.
fn mutants(text: &str) -> Result<usize, String> {
    let mut missed = 0;
    for mutant in MUTANTS {
        let module = Rc::new(Module::read(&mutant.apply(text)?).map_err(|error| error.to_string())?);
        let uses = |scenario: &Scenario| {
            scenario.steps.iter().flatten().any(|launch| launch.entry() == mutant.function)
        };
        let runs =
            (1..20).flat_map(|seed| all().into_iter().filter(uses).map(move |scenario| (seed, scenario)));
        let caught = runs.take(60).find_map(|(seed, scenario)| {
            let run = judge(&module, &scenario, Mode { relaxed: mutant.relaxed, seed }, None, Door::Entries);
            run.wrongs.first().map(|wrong| (seed, scenario.name, wrong.clone()))
        });
        match caught {
            Some((seed, scenario, wrong)) => {
                let wrong = wrong.lines().find(|line| line.contains("PTX")).unwrap_or(&wrong).to_owned();
                println!("caught {}: seed {seed}, {scenario}: {wrong}", mutant.name);
            }
            None => {
                println!("MISSED {} in {}", mutant.name, mutant.function);
                missed += 1;
            }
        }
    }
    Ok(missed)
}

/// A layer over 32 ranks and 256 experts, with few tokens; and the message of a token of 7168 channels.
fn print_moe_costs(module: &Rc<Module>) {
    let layer =
        Layer { ranks: 32, experts: 256, tokens: 8, hidden: 512, topk: 8, launch: (8, 256), fp8: true };
    println!(
        "{:32} {:>12} {:>9} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8}",
        "MoE, 32 ranks, 256 experts",
        "instructions",
        "issued",
        "loads",
        "atomics",
        "doorbells",
        "barriers",
        ".gpu",
        ".sys"
    );
    let row = |name: &str, counts: &Counts| {
        println!(
            "{name:32} {:12} {:9} {:8} {:8} {:9} {:8} {:8} {:8}",
            counts.instructions,
            counts.issued,
            counts.loads,
            counts.atomics,
            counts.doorbells,
            counts.barriers,
            counts.fences_gpu,
            counts.fences_system
        );
    };
    for (stage, counts) in moe_costs::costs(module, layer) {
        row(stage.name(), &counts);
    }
    for fp8 in [true, false] {
        let layer = Layer { ranks: 2, experts: 2, hidden: 7168, launch: (1, 256), fp8, ..layer };
        row(
            if fp8 { "message of a token, FP8" } else { "message of a token, BF16" },
            &moe_costs::message(module, layer),
        );
    }
}

/// The table of operations, and how many of those that find no fault have what they should not: waits for the host's
/// memory although queues lie in the GPU's, or other fences than they need.
fn print_costs(module: &Rc<Module>, library: Option<&(String, Rc<Module>)>) -> usize {
    println!("{}", costs::HEAD);
    let rows = costs::all(module, library.map(|(_, library)| library));
    rows.iter().for_each(|row| println!("{row}"));
    let wrongs: Vec<String> =
        rows.iter().filter_map(costs::Row::wrong).chain(costs::wrong_scopes(module)).collect();
    wrongs.iter().for_each(|wrong| println!("WRONG {wrong}"));
    wrongs.len()
}
