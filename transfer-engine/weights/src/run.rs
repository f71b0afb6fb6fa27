//! The run of an end: every step of every mode, with its faults.

use crate::end::End;
use crate::model::{gathered, spread};
use crate::options::{Mode, Options};
use crate::phase::Phase;
use crate::seen::{Part, Ran, Seen, Step};
use anyhow::Result;
use shunt_transfer::Node;
use shunt_transfer_program::faults::Planned;
use shunt_transfer_program::lost::Lost;
use shunt_weight_sync::stages::Rounding;
use shunt_weight_sync::{Param, PlanError, Schedule};

/// An end goes on for so long after its last phase: what comes twice comes in that time.
const REST: std::time::Duration = std::time::Duration::from_millis(200);

/// The steps of one mode.
#[derive(Clone, Copy, Debug)]
struct Leg {
    is_p2p: bool,
    /// Faults strike in it. Their time runs from its beginning.
    has_faults: bool,
}

/// Rank 0 and p2p without faults stand first: they are what the rest is compared with.
fn legs(options: &Options) -> Vec<Leg> {
    let leg = |is_p2p, has_faults| Leg { is_p2p, has_faults };
    let faults = !options.nics.inject.is_empty();
    match options.mode {
        Mode::P2p => vec![leg(true, faults)],
        Mode::Rank0 => vec![leg(false, faults)],
        Mode::Both if faults => vec![leg(false, false), leg(true, false), leg(true, true)],
        Mode::Both => vec![leg(false, false), leg(true, false)],
    }
}

/// What came of the phases of a step.
enum Came {
    /// All of it is there. Nanoseconds that it took, and of them those in which trainer 0 gathered.
    Whole { took_ns: u64, gather_ns: u64 },
    /// Not all.
    Failed(Vec<Seen>),
    /// Nobody that works holds some bytes.
    NoPlan(PlanError),
}

/// Runs an end. All ends answer with the same; where one is gone, each with what it saw itself.
///
/// # Errors
/// An end does not answer, or a call is refused.
pub fn run(options: &Options, params: &[Param], node: Node) -> Result<Ran> {
    let (mut steps, mut end) = (Vec::new(), End::new(options, params, node)?);
    if end.number() == 0 {
        let (trainers, servers, rails) = (options.trainers, options.servers, options.nics.rails());
        shunt::host::complain!(
            "weight_sync: {trainers} trainers and {servers} servers are connected, {rails} rails each"
        );
    }
    let parts = run_all(&mut end, &mut steps);
    // What this end saw is judged where the others say no more.
    let alone = parts.as_ref().err().and_then(Lost::of);
    let parts = match &alone {
        Some(lost) => {
            end.part.fail(&lost.to_string(), true);
            vec![end.part]
        }
        None => parts?,
    };
    Ok(Ran { parts, steps, alone })
}

/// All legs: what each end saw of them.
fn run_all(end: &mut End<'_>, steps: &mut Vec<Step>) -> Result<Vec<Part>> {
    let mut planned = Planned::default();
    for leg in legs(end.options) {
        if !run_leg(end, leg, &mut planned, steps)? {
            break;
        }
    }
    std::thread::sleep(REST);
    let counts = end.node.counts()?;
    for (trainer, imm) in &end.counted {
        end.part.imm_doubled += end.node.counter(*trainer, *imm)?;
    }
    (end.part.failovers, end.part.returns) = (counts.closed, counts.returned);
    end.part.pieces_again = counts.again;
    end.part.faults = planned.struck(&end.node.place().nics).map_err(anyhow::Error::msg)?;
    end.exchange(&end.part)
}

/// False if the run is over: something went wrong that no other schedule mends.
fn run_leg(end: &mut End<'_>, leg: Leg, planned: &mut Planned, done: &mut Vec<Step>) -> Result<bool> {
    let (mut step, mut begun, mut is_repeated) = (0, false, false);
    let steps = if leg.is_p2p { end.options.steps() } else { end.options.rank0_steps() };
    while step < steps {
        end.part.turns += 1;
        let turn = end.part.turns;
        end.train(turn)?;
        let rails = end.exchange(&end.rails()?)?;
        let mut trainers = (0..).zip(&rails[..end.options.trainers as usize]);
        if let Some((gone, _)) = trainers.find(|(_, rails)| **rails == 0) {
            end.part.fail(&format!("trainer {gone}: expected a rail that works, got none"), true);
        }
        if leg.has_faults && !begun {
            let (number, nics) = (end.number(), &end.node.place().nics);
            *planned = Planned::begin(&end.options.nics.inject, number, nics).map_err(anyhow::Error::msg)?;
            begun = true;
        }
        match carry_out(end, leg, &rails)? {
            Came::Whole { took_ns, gather_ns } => {
                end.part.bytes_wrong += end.wrong(turn)?;
                step += 1;
                is_repeated = false;
                let row = Step::of(
                    (end.options, end.params),
                    (leg.is_p2p, leg.has_faults, step),
                    &rails,
                    (took_ns, gather_ns),
                );
                if end.number() == 0 {
                    shunt::host::complain!("weight_sync: {row}");
                }
                done.push(row);
            }
            Came::NoPlan(error) => {
                end.part.fail(&error.to_string(), true);
                return Ok(false);
            }
            Came::Failed(seen) => {
                // A trainer without a rail is planned around, once for each step.
                let trainers = end.options.trainers as usize;
                let rails = end.exchange(&end.rails()?)?;
                let is_gone = leg.is_p2p && seen.iter().any(|it| it.lost) && rails[..trainers].contains(&0);
                if is_repeated || !is_gone {
                    return Ok(false);
                }
                is_repeated = true;
                end.part.steps_repeated += 1;
            }
        }
    }
    Ok(true)
}

fn carry_out(end: &mut End<'_>, leg: Leg, rails: &[u32]) -> Result<Came> {
    let (trainers, servers, rounding) = (end.options.trainers, end.options.servers, end.options.rounding());
    let (rules, servers_at) = (end.rules(), trainers..trainers + servers);
    let rates = &rails[..trainers as usize];
    let params = end.params;
    if leg.is_p2p {
        let schedule = match Schedule::plan(rates, servers, params, rules) {
            Ok(schedule) => schedule,
            Err(error) => return Ok(Came::NoPlan(error)),
        };
        let phase = Phase { params, schedule, to: servers_at, rounding, is_gathered: false };
        let seen = end.carry_out(&phase)?;
        return Ok(whole(&seen).map_or(Came::Failed(seen), |took_ns| Came::Whole { took_ns, gather_ns: 0 }));
    }
    let (gathered, spread) = (gathered(params), spread(params));
    let mut others = rates.to_vec();
    others[0] = 0;
    let mut gather_ns = 0;
    if gathered.iter().any(|param| !param.wanted.is_empty()) {
        let schedule = match Schedule::plan(&others, 1, &gathered, rules) {
            Ok(schedule) => schedule,
            Err(error) => return Ok(Came::NoPlan(error)),
        };
        let rounding = Rounding::Keep;
        let seen =
            end.carry_out(&Phase { params: &gathered, schedule, to: 0..1, rounding, is_gathered: false })?;
        match whole(&seen) {
            Some(took_ns) => gather_ns = took_ns,
            None => return Ok(Came::Failed(seen)),
        }
    }
    let schedule = match Schedule::plan(&[1], servers, &spread, rules) {
        Ok(schedule) => schedule,
        Err(error) => return Ok(Came::NoPlan(error)),
    };
    let seen =
        end.carry_out(&Phase { params: &spread, schedule, to: servers_at, rounding, is_gathered: true })?;
    Ok(match whole(&seen) {
        Some(took_ns) => Came::Whole { took_ns: took_ns + gather_ns, gather_ns },
        None => Came::Failed(seen),
    })
}

/// How long the slowest end took, if all went well.
fn whole(seen: &[Seen]) -> Option<u64> {
    let is_whole = seen.iter().all(|seen| seen.failure.is_empty());
    is_whole.then(|| seen.iter().map(|seen| seen.took_ns).max().unwrap_or(0))
}
