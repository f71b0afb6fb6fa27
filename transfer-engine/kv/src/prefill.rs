//! The part of a prefiller.

use crate::model::fill;
use crate::options::Options;
use anyhow::Result;
use shunt_kv::{Job, Prefiller};
use shunt_transfer::{Node, Place};
use shunt_transfer_program::faults::{Planned, Struck};
use shunt_transfer_program::place::heap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// It looks for decoders that it is not connected to so often.
const LOOK: Duration = Duration::from_millis(200);
/// A decoder is waited for so long at a time: the others wait meanwhile.
const PATIENCE: Duration = Duration::from_millis(300);
/// After so many looks in a row without a decoder it ends. Time would not do: this process may be stopped.
const ALONE: u32 = 8;

/// Runs a prefiller until no decoder is there any more. What its faults struck, and whether a decoder ever was.
///
/// # Errors
/// A NIC refuses.
pub fn run(options: &Options, place: &Arc<Place>) -> Result<(Vec<Struck>, bool)> {
    let (end, shape) = (options.end, options.shape());
    let node = Arc::new(Node::open(place, end, options.nics.rails(), "127.0.0.1:0")?);
    let memory = heap(Prefiller::bytes(shape, options.pages, options.slots()))?;
    let mut prefiller = Prefiller::new(end, node.clone(), memory.clone(), shape, options.pages)?;
    let planned = Planned::begin(&options.nics.inject, end, &place.nics).map_err(anyhow::Error::msg)?;
    let (over, alone, mut bytes) = (AtomicBool::new(false), AtomicBool::new(false), Vec::new());
    std::thread::scope(|threads| {
        // One that waits for a decoder keeps no other one waiting.
        threads.spawn(|| {
            let known =
                Known { decoders: options.connect.clone(), numbers: BTreeMap::new(), why: String::new() };
            if let Some(why) = known.look_on(&node, end, &over) {
                shunt::host::complain!("kv_disagg: end {end}: no decoder was there: {why}");
                alone.store(true, Ordering::Relaxed);
            }
        });
        while !over.load(Ordering::Relaxed) {
            let worked =
                prefiller.step(Duration::from_millis(1), |job| compute(options, &memory, job, &mut bytes));
            if worked.is_err() {
                over.store(true, Ordering::Relaxed);
                return worked;
            }
        }
        Ok(())
    })?;
    shunt::host::complain!("kv_disagg: end {end} has served {} requests and ends", prefiller.served());
    if let Some(why) = prefiller.refusal() {
        shunt::host::complain!("kv_disagg: end {end} refused requests: {why}");
    }
    let struck = planned.struck(&place.nics).map_err(anyhow::Error::msg)?;
    Ok((struck, !alone.into_inner()))
}

fn compute(options: &Options, memory: &shunt::host::gpu::OwnedSpan, job: Job, bytes: &mut Vec<u8>) {
    let each = job.layer.map_or(options.context, |_| options.page);
    bytes.resize(each as usize, 0);
    for (page, at) in (0..).zip((0..job.bytes).step_by(each as usize)) {
        fill(job.prompt, job.layer, page, bytes);
        // It lies in memory of this end's own, which has as many bytes.
        let _ = memory.memory().write(job.at + at, bytes);
    }
    if job.layer.is_some() && options.layer_time > 0 {
        std::thread::sleep(Duration::from_nanos(options.layer_time));
    }
}

/// Decoders, and the numbers of those that are connected.
struct Known {
    decoders: Vec<String>,
    /// `None`: it was connected, and is not any more.
    numbers: BTreeMap<String, Option<u32>>,
    /// Why the last one that was not there was not.
    why: String,
}

impl Known {
    /// Connects to decoders that are not connected, until it was alone for [`ALONE`] looks. Why none ever was there,
    /// if so.
    fn look_on(mut self, node: &Node, end: u32, over: &AtomicBool) -> Option<String> {
        let mut alone = 0;
        while alone < ALONE && !over.load(Ordering::Relaxed) {
            self.look(node, end);
            alone = if node.peers().is_ok_and(|peers| !peers.is_empty()) { 0 } else { alone + 1 };
            std::thread::sleep(LOOK);
        }
        over.store(true, Ordering::Relaxed);
        self.numbers.is_empty().then_some(self.why)
    }

    fn look(&mut self, node: &Node, end: u32) {
        let there = node.peers().unwrap_or_default();
        for decoder in &self.decoders {
            let number = self.numbers.get_mut(decoder);
            if number.as_ref().is_some_and(|number| number.is_some_and(|number| there.contains(&number))) {
                continue;
            }
            let was_there = number.is_some();
            number.into_iter().for_each(|number| *number = None);
            match node.connect(decoder, PATIENCE) {
                Ok(number) => {
                    let again = if was_there { " again" } else { "" };
                    shunt::host::complain!("kv_disagg: end {end} is connected to {decoder}{again}");
                    self.numbers.insert(decoder.clone(), Some(number));
                }
                Err(error) => self.why = error.to_string(),
            }
        }
    }
}
