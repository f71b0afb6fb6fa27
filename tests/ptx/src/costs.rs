//! What one operation executes, with its queues in memory of the host and of the GPU: a table, and what must not be in
//! it.

use crate::code::Module;
use crate::counts::Counts;
use crate::kernels::{Door, OnMachine};
use crate::library::{long, short};
use crate::outcome::placed;
use crate::raw::Caller;
use crate::rig::{Mode, Rig, actor};
use shunt_kernels::Call;
use shunt_kernels::scenarios::{Group, Launch, Machine};
use std::fmt;
use std::rc::Rc;

/// Kernels that are counted: an operation each.
const KERNELS: [&str; 9] = [
    "put",
    "put_signal",
    "signal_monotone",
    "signal_cleared",
    "signal_add",
    "amo_add64",
    "p",
    "quiet",
    "wait_until",
];
const MODE: Mode = Mode { relaxed: false, seed: 1 };
/// By then all that was posted is delivered.
const DELIVERED_NS: u64 = 100_000;

/// The table's head. Trips are loads and read-modify-writes: their thread waits for each.
pub const HEAD: &str = "\
| no fault | queues | issued | trips to the host's memory | to the GPU's | stores, host's | GPU's | doorbells | `.gpu` \
fences | `.sys` fences | sectors, host's | GPU's |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

/// What one operation executed.
#[derive(Clone, Debug)]
pub struct Row {
    /// The operation, and by whom.
    pub what: String,
    /// Whether its queues lie in memory of the GPU.
    pub on_gpu: bool,
    /// What was executed.
    pub counts: Counts,
}

impl Row {
    /// What is wrong with it, if anything is. With queues in the GPU's memory nothing waits for the host's, and a post
    /// needs no fence of the whole system; with queues in the host's it needs two, before `ready` and before the
    /// register.
    pub fn wrong(&self) -> Option<String> {
        let Counts { host, doorbells, fences_system, .. } = &self.counts;
        let (place, due) = if self.on_gpu { ("GPU", 0) } else { ("host", 2) };
        if self.on_gpu && host.loads + host.atomics > 0 {
            let met = format!("{} loads, {} read-modify-writes", host.loads, host.atomics);
            return Some(format!(
                "{}, queues on the GPU: expected no wait for the host's memory, got {met}",
                self.what
            ));
        }
        (*doorbells > 0 && *fences_system != due).then(|| {
            format!(
                "{}, queues on the {place}: expected {due} fences of the system, got {fences_system}",
                self.what
            )
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { issued, doorbells, fences_gpu, fences_system, host, gpu, .. } = &self.counts;
        write!(
            f,
            "| {} | {} | {issued} | {} | {} | {} | {} | {doorbells} | {fences_gpu} | {fences_system} | {} | {} |",
            self.what,
            if self.on_gpu { "GPU" } else { "host" },
            host.loads + host.atomics,
            gpu.loads + gpu.atomics,
            host.stores,
            gpu.stores,
            host.sectors,
            gpu.sectors
        )
    }
}

/// All rows. Those of looks need the library.
pub fn all(kernels: &Rc<Module>, library: Option<&Rc<Module>>) -> Vec<Row> {
    let mut rows = Vec::new();
    for kernel in KERNELS {
        for group in [Group::Thread, Group::Warp] {
            if kernels.find(&format!("shunt_kernel_{kernel}_{}", group.suffix())).is_none() {
                continue;
            }
            let by = format!("{kernel} by a {}", group.suffix());
            rows.extend([false, true].map(|on_gpu| Row {
                what: by.clone(),
                on_gpu,
                counts: operation(kernels, kernel, group, on_gpu),
            }));
        }
    }
    for (what, finds) in [("look that finds a completion", true), ("look that finds nothing", false)] {
        let row =
            |library, on_gpu| Row { what: what.to_owned(), on_gpu, counts: look(library, finds, on_gpu) };
        rows.extend(library.into_iter().flat_map(|library| [false, true].map(|on_gpu| row(library, on_gpu))));
    }
    rows
}

/// Where a put's source begins, and its bytes.
const SOURCE: (u64, u64) = (16384, 64);

/// What is wrong with the fences of posts with queues on the GPU, by where its part of the heap ends: what has a NIC
/// read beyond that takes a fence of the system.
pub fn wrong_scopes(kernels: &Rc<Module>) -> Vec<String> {
    let end = SOURCE.0 + SOURCE.1;
    let expected = [("put", end, 0), ("put", end - 1, 1), ("signal_monotone", 0, 0)];
    let wrong = expected.iter().filter_map(|(kernel, own_heap, due)| {
        let rig = Rig::with_own_heap(placed(true), kernels, MODE, false, *own_heap);
        let got = launched(rig, kernel, Group::Warp).fences_system;
        (got != *due).then(|| {
            format!("{kernel}, {own_heap} bytes of the heap on the GPU: expected {due} fences of the system, got {got}")
        })
    });
    wrong.collect()
}

fn operation(module: &Rc<Module>, kernel: &'static str, group: Group, on_gpu: bool) -> Counts {
    launched(Rig::new(placed(on_gpu), module, MODE, false), kernel, group)
}

/// The counts of a kernel's second launch, when its first has ended.
fn launched(rig: Rig, kernel: &'static str, group: Group) -> Counts {
    let mut machine = OnMachine(rig, Door::Entries);
    let call = Call {
        peer: 1,
        src: SOURCE.0,
        dst: 49152,
        bytes: if kernel == "p" { 8 } else { SOURCE.1 },
        word: 320,
        value: 1,
        timeout_ns: 1 << 30,
        ..Call::default()
    };
    let launch = |kernel, call| Launch { kernel, pe: 0, blocks: 1, group, call };
    let mut before = Counts::default();
    for value in 1..=2 {
        // A wait finds its word there.
        let call = Call { value: if kernel == "wait_until" { 0 } else { value }, ..call };
        before = machine.0.counts();
        machine.launch(&[launch(kernel, call)]);
        if value == 1 {
            machine.launch(&[launch("quiet", call)]);
        }
    }
    machine.0.counts().less(&before)
}

/// The counts of a look at a channel: the first or the second behind a put.
fn look(library: &Rc<Module>, finds: bool, on_gpu: bool) -> Counts {
    let rig = Rig::new(placed(on_gpu), library, MODE, false);
    let call = |name: &'static str, arguments: Vec<Vec<u8>>| {
        let station = rig.station(0);
        let task = rig.cluster.sim.spawn(name, actor(), move || {
            let caller = Caller { station: &station, peer: 1, channel: 0, timeout_ns: 1 << 30 };
            caller.of(name, &arguments)
        });
        rig.cluster.sim.finish(&task)
    };
    let progress = || call("shunt_progress", vec![long(1 << 30)]);
    for _ in 0..2 {
        call("shunt_try_put", vec![long(49152), long(16384), long(64), short(1)]);
        rig.cluster.sim.run_for(DELIVERED_NS);
        if !finds {
            progress();
        }
    }
    let before = rig.counts();
    progress();
    rig.counts().less(&before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Accesses;

    #[test]
    fn a_wait_for_the_hosts_memory_is_wrong_where_queues_lie_on_the_gpu() {
        let row = |on_gpu, host| {
            let mut counts = Counts::default();
            counts.host = host;
            Row { what: "put".to_owned(), on_gpu, counts }.wrong()
        };
        let stores = Accesses { stores: 3, sectors: 3, ..Accesses::default() };
        for waits in [Accesses { loads: 1, ..stores }, Accesses { atomics: 1, ..stores }] {
            assert!(row(true, waits).is_some() && row(false, waits).is_none());
        }
        assert_eq!(row(true, stores), None);
    }
}
