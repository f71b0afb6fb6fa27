//! Kernels hold against their model: the list of scenarios that a GPU runs as well, here on warps of coroutines.

use shunt_kernels::Outcome;
use shunt_kernels::scenarios::{CHANNELS, Group, HEAP_BYTES, Launch, Machine, PES, Scenario, all, run};
use shunt_tests::cluster::Cluster;
use shunt_tests::oracle::{load, store};
use shunt_tests::sim::{ActorOptions, Task};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use shunt_tests::warp::spawn_warp;

/// A cluster whose kernels are those of `shunt-kernels`.
struct Simulated(Cluster);

impl Simulated {
    fn start(seed: u64, faults: &[&str]) -> Self {
        let spec = RunSpec {
            seed,
            pes: PES,
            channels: CHANNELS,
            both_ways: true,
            log2_chunk: 12,
            // No streams of its own run: this is room in the heap.
            traffic: Traffic { slots: 32, slot_bytes: 4096, ..Traffic::default() },
            ..RunSpec::default()
        };
        let cluster = Cluster::start(&spec);
        assert!(cluster.pe(0).heap().bytes as usize >= HEAP_BYTES);
        faults.iter().for_each(|fault| cluster.inject(&fault.parse().expect("a fault")));
        Self(cluster)
    }

    /// One block: a group of lanes on one body.
    fn block(&self, launch: Launch, block: u32) -> Vec<Task<Outcome>> {
        let kernel = self.0.kernel(launch.pe);
        let name = format!("{}.{}.{block}", launch.kernel, launch.pe);
        spawn_warp(&self.0.sim, &name, launch.group.threads(), ActorOptions::kernel(), move |lane| {
            shunt_kernels::run(launch.kernel, kernel.device(), lane, block, &launch.call)
                .expect("a kernel's name")
        })
    }
}

impl Machine for Simulated {
    fn fill(&mut self, pe: u32, bytes: &[u8]) {
        let heap = self.0.pe(pe).heap().address;
        for (at, word) in (heap..).step_by(8).zip(bytes.chunks_exact(8)) {
            store(at, u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    }

    fn heap(&mut self, pe: u32) -> Vec<u8> {
        let heap = self.0.pe(pe).heap().address;
        (heap..heap + HEAP_BYTES as u64).step_by(8).flat_map(|at| load(at).to_le_bytes()).collect()
    }

    fn launch(&mut self, launches: &[Launch]) -> Vec<Vec<Outcome>> {
        let started: Vec<Vec<Vec<Task<Outcome>>>> = launches
            .iter()
            .map(|one| (0..one.blocks).map(|block| self.block(*one, block)).collect())
            .collect();
        let leader = |block: &Vec<Task<Outcome>>| self.0.sim.finish_all(block)[0];
        started.iter().map(|blocks| blocks.iter().map(leader).collect()).collect()
    }
}

/// Runs scenarios on one cluster after the other: a kind 1 word must begin at 0, so each has channels of its own.
fn judge(scenarios: &[Scenario], faults: &[&str]) {
    let mut wrongs = Vec::new();
    for (seed, scenario) in (1..).zip(scenarios) {
        let mut machine = Simulated::start(seed, faults);
        wrongs.extend(run(scenario, &mut machine, seed).err());
    }
    assert!(wrongs.is_empty(), "{} of {}:\n{}", wrongs.len(), scenarios.len(), wrongs.join("\n"));
}

/// The scenarios of warps alone, and the others.
fn by_group() -> (Vec<Scenario>, Vec<Scenario>) {
    let of_warps = |one: &Scenario| one.steps.iter().flatten().all(|launch| launch.group == Group::Warp);
    all().into_iter().partition(of_warps)
}

#[test]
fn kernels_do_what_their_model_says() {
    judge(&by_group().0, &[]);
}

#[test]
fn kernels_of_threads_and_blocks_do_what_their_model_says() {
    judge(&by_group().1, &[]);
}

#[test]
fn kernels_do_what_their_model_says_while_a_port_fails() {
    let scenarios: Vec<Scenario> = all().into_iter().filter(|scenario| scenario.status == 0).collect();
    judge(&scenarios, &["3us:0.0:down"]);
}

#[test]
fn a_model_that_is_wrong_is_found_out() {
    let scenario =
        all().into_iter().find(|one| one.name.starts_with("put of 100 bytes")).expect("in the list");
    /// Loses one byte of what was put.
    struct Lossy(Simulated);
    impl Machine for Lossy {
        fn fill(&mut self, pe: u32, bytes: &[u8]) {
            self.0.fill(pe, bytes);
        }
        fn heap(&mut self, pe: u32) -> Vec<u8> {
            let mut heap = self.0.heap(pe);
            if pe == 1 {
                heap[12 * 4096 + 50] ^= 1;
            }
            heap
        }
        fn launch(&mut self, launches: &[Launch]) -> Vec<Vec<Outcome>> {
            self.0.launch(launches)
        }
    }
    let wrong = run(&scenario, &mut Lossy(Simulated::start(1, &[])), 1);
    assert!(wrong.as_ref().is_err_and(|text| text.contains("byte 0xc032 of PE 1")), "{wrong:?}");
}
