//! Cleaning of normal mode: buffers that faults broke in the middle of their rings, ranks that come late to either
//! half, and again.

use shunt_deep_ep_bridge::normal::layer;
use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::{Format, MoeError};
use shunt_device::platform::host::World;
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::moe::{all, pause};
use shunt_tests::moe_normal::{NodeBuffer, SMALL as SHAPE, cases, patience, spec, start};
use shunt_tests::rng::Rng;

const TIMEOUT_NS: u64 = 20_000_000;

/// Runs `body` on all ranks.
fn on_all(
    seed: u64,
    body: impl Fn(&mut NodeBuffer, &Kernel, u32) -> Result<Vec<String>, MoeError> + Clone + 'static,
) -> Vec<String> {
    let spec = spec(&SHAPE, seed);
    let cluster = Cluster::start(&spec);
    let mut patience = patience(&spec);
    patience.timeout_ns = TIMEOUT_NS;
    let task = |rank| {
        let body = body.clone();
        start(&cluster, SHAPE, rank, patience, move |buffer, kernel| body(buffer, kernel, rank))
    };
    let tasks: Vec<_> = (0..SHAPE.ranks()).map(task).collect();
    all(cluster.sim.finish_all(&tasks))
}

fn layers(buffer: &mut NodeBuffer, cases: &[NormalCase]) -> Result<Vec<String>, MoeError> {
    let mut wrongs = Vec::new();
    for case in cases {
        let (wrong, handle) = layer::run(buffer, case)?;
        wrongs.extend(wrong);
        let again = NormalCase { case: case.case.again(3), ..case.clone() };
        wrongs.extend(layer::run_cached(buffer, &again, &handle)?);
    }
    buffer.settle()?;
    Ok(wrongs)
}

/// Cleans until all ranks came; how often it had to be called again.
fn clean(
    buffer: &mut NodeBuffer,
    kernel: &Kernel,
    mut rest_ns: impl FnMut() -> u64,
) -> Result<u64, MoeError> {
    let mut again = 0;
    loop {
        match buffer.clean() {
            Ok(()) => return Ok(again),
            Err(MoeError::Fault(_)) => again += 1,
            Err(other) => return Err(other),
        }
        pause(kernel, rest_ns());
    }
}

/// One rank leaves the others in their rings, in a call of each kind; cleaned, all layers are right, and what was
/// handed out before is refused.
#[test]
fn a_buffer_that_was_broken_in_its_rings_is_usable_again() {
    for seed in 0..6 {
        let cases = cases(SHAPE, 3, Format::Bf16, seed, 4);
        let wrongs = on_all(seed, move |buffer, kernel, rank| {
            let (mut wrongs, handle) = layer::run(buffer, &cases[0])?;
            for absent in 0..3 {
                let (wrong, received) = layer::dispatch(buffer, &cases[1])?;
                wrongs.extend(wrong);
                let left = rank != 3;
                let ended = match absent {
                    0 if left => layer::answer(buffer, &cases[1], &received, true).map(|_| ()),
                    1 if left => layer::run_cached(buffer, &cases[1], &received.handle).map(|_| ()),
                    _ if left => layer::dispatch(buffer, &cases[2]).map(|_| ()),
                    _ => Ok(()),
                };
                // One may be through with its own part before it is missed.
                if absent == 2 && left && !matches!(&ended, Err(MoeError::Fault(_))) {
                    wrongs.push(format!("rank {rank}: {ended:?} without rank 3"));
                }
                if ended.is_err() && !matches!(buffer.settle(), Err(MoeError::NormalBroken)) {
                    wrongs.push(format!("rank {rank}: broken, and goes on"));
                }
                clean(buffer, kernel, || 0)?;
                for old in [&handle, &received.handle] {
                    match layer::run_cached(buffer, &cases[1], old) {
                        Err(MoeError::Argument { what: "the handle", .. }) => {}
                        other => wrongs.push(format!("rank {rank}: {other:?} by an old handle")),
                    }
                }
                wrongs.extend(layers(buffer, &cases)?);
            }
            Ok(wrongs)
        });
        assert!(wrongs.is_empty(), "seed {seed}: {}", wrongs.join("\n"));
    }
}

/// Ranks come to a cleaning when they like, some of them only after others have given up, in either half; each tries
/// until it is through.
#[test]
fn ranks_that_come_late_to_a_cleaning_meet_all_the_same() {
    let mut tries = [0; 2];
    for seed in 0..40 {
        let cases = cases(SHAPE, 2, Format::Bf16, seed, 2);
        let said = on_all(seed, move |buffer, kernel, rank| {
            let mut rng = Rng::new(seed * 4 + u64::from(rank));
            let (mut wrongs, mut again) = (Vec::new(), 0u64);
            for _ in 0..3 {
                pause(kernel, rng.below(3 * TIMEOUT_NS));
                again += clean(buffer, kernel, || rng.below(TIMEOUT_NS / 2))?;
                wrongs.extend(layers(buffer, &cases)?);
            }
            if wrongs.is_empty() {
                wrongs.push(format!("{again} again"));
            }
            Ok(wrongs)
        });
        for said in said {
            let again: Option<u64> = said.strip_suffix(" again").and_then(|again| again.parse().ok());
            let again = again.unwrap_or_else(|| panic!("seed {seed}: {said}"));
            tries[usize::from(again > 0)] += 1;
        }
    }
    // Some had to come again, and not all.
    assert!(tries[0] > 10 && tries[1] > 10, "{tries:?}");
}

/// A rank that gave up in the second half comes back when the others are in calls again: what they put into its words
/// since is not set to zero once more.
#[test]
fn a_rank_that_comes_back_to_the_second_half_zeroes_nothing_again() {
    const MS: u64 = 1_000_000;
    for seed in 0..12 {
        let (first, late) = ((seed % 4) as u32, ((seed + 1 + seed / 4) % 4) as u32);
        let cases = cases(SHAPE, 3, Format::Bf16, seed, 2);
        let wrongs = on_all(seed, move |buffer, kernel, rank| {
            let began = kernel.world.now_ns();
            let until = |at_ns: u64| (began + at_ns).saturating_sub(kernel.world.now_ns());
            // One comes and gives up before the others come. They go on to the second half, since it was there, and
            // wait for it until 42 ms. It is back at 45 ms, and so are all but the late one, which comes at 60 ms:
            // within the others' patience, who have been in a call since.
            pause(kernel, if rank == first { 0 } else { 22 * MS });
            let again = clean(buffer, kernel, || match rank {
                _ if rank == first => until(45 * MS),
                _ if rank == late => until(60 * MS),
                _ => 0,
            })?;
            let mut wrongs = layers(buffer, &cases)?;
            if again != 1 {
                wrongs.push(format!("rank {rank}: {again} times again"));
            }
            Ok(wrongs)
        });
        assert!(wrongs.is_empty(), "seed {seed}: {}", wrongs.join("\n"));
    }
}
