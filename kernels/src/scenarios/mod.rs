//! What kernels must compute: one list of scenarios, and a model that says what each leaves in the heaps. Whatever can
//! launch kernels runs the list: a simulated cluster whose warps are coroutines, or a GPU.
//!
//! Each scenario begins with heaps of random bytes, no byte of which is left unlooked at in the end.

mod launch;
mod list;
mod model;

pub use launch::{CHANNELS, Group, HEAP_BYTES, Launch, PES, Scenario};
pub use list::{all, each};

use crate::Outcome;

/// What can launch kernels on [`PES`] PEs.
pub trait Machine {
    /// Fills the first bytes of a PE's heap.
    fn fill(&mut self, pe: u32, bytes: &[u8]);
    /// The first bytes of a PE's heap.
    fn heap(&mut self, pe: u32) -> Vec<u8>;
    /// Runs launches at the same time; the outcomes of each, one a block.
    fn launch(&mut self, launches: &[Launch]) -> Vec<Vec<Outcome>>;
}

/// Runs a scenario and compares outcomes and every byte of all heaps with the model.
///
/// # Errors
/// The first thing that is not as the model says.
pub fn run(scenario: &Scenario, machine: &mut impl Machine, seed: u64) -> Result<(), String> {
    let mut heaps: Vec<Vec<u8>> = (0..PES).map(|pe| random(seed ^ u64::from(pe) << 56)).collect();
    model::clear_words(&mut heaps);
    (0..PES).zip(&heaps).for_each(|(pe, bytes)| machine.fill(pe, bytes));
    for (number, step) in scenario.steps.iter().enumerate() {
        let status = if number + 1 == scenario.steps.len() { scenario.status } else { 0 };
        let expected: Vec<Vec<Option<u64>>> = step
            .iter()
            .map(|launch| if status == 0 { model::apply(launch, &mut heaps) } else { Vec::new() })
            .collect();
        for ((launch, outcomes), expected) in step.iter().zip(machine.launch(step)).zip(expected) {
            let at = format!("{}, step {number}: {launch:?}", scenario.name);
            if outcomes.len() != launch.blocks as usize {
                return Err(format!("{at}: {} outcomes of {} blocks", outcomes.len(), launch.blocks));
            }
            if let Some(wrong) = outcomes.iter().find(|outcome| outcome.status != status) {
                return Err(format!("{at}: status {status} was expected, there is {wrong:?}"));
            }
            for (outcome, value) in outcomes.iter().zip(expected) {
                if value.is_some_and(|value| value != outcome.value) {
                    return Err(format!(
                        "{at}: value {value:x?} was expected, there is {:#x}",
                        outcome.value
                    ));
                }
            }
        }
    }
    for (pe, expected) in (0..PES).zip(&heaps) {
        let found = machine.heap(pe);
        if let Some(at) = (0..HEAP_BYTES).find(|at| found.get(*at) != expected.get(*at)) {
            let (want, have) = (expected[at], found.get(at));
            return Err(format!(
                "{}: byte {at:#x} of PE {pe}: expected {want:#x}, got {have:x?}",
                scenario.name
            ));
        }
    }
    Ok(())
}

/// Bytes that nothing else has.
fn random(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let word = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    (0..HEAP_BYTES / 8).flat_map(word).collect()
}
