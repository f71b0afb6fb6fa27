//! Every atomic and get against a plain model, with and without switches in between.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use shunt_device::{
    Amo, Channel, Deadline, Fault, FaultKind, Get, HeapOffset, Operation, Put, Resolution, Signal, Solo,
};
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::oracle::{load, store};
use shunt_tests::rng::Rng;
use shunt_tests::sim::SimPlatform;
use shunt_tests::spec::RunSpec;

/// Words that atomics go to, at the peer.
const WORDS: u64 = 12;
/// Where the answers of fetching atomics land: one for each.
const RESULTS_AT: u64 = 1024;
/// Answers at most.
const RESULTS: u64 = 256;

fn spec(log_depth: u32, faults: &[&str]) -> RunSpec {
    RunSpec {
        log_depth,
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// One of all atomics.
fn any(rng: &mut Rng) -> Amo {
    let (value, narrow) = (rng.draw(), rng.draw() as u32);
    let few = rng.below(4);
    match rng.below(14) {
        0 => Amo::Add32(narrow),
        1 => Amo::Add64(value),
        2 => Amo::Set32(narrow),
        3 => Amo::Set64(value),
        4 => Amo::And32(narrow),
        5 => Amo::And64(value),
        6 => Amo::Or32(narrow),
        7 => Amo::Or64(value),
        8 => Amo::Xor32(narrow),
        9 => Amo::Xor64(value),
        10 => Amo::Swap32(few as u32),
        11 => Amo::Swap64(few),
        12 => Amo::CompareSwap32 { expect: few as u32, new: narrow },
        _ => Amo::CompareSwap64 { expect: few, new: value },
    }
}

/// What an atomic makes of a word, and the old value it answers with.
fn model(amo: Amo, word: u64) -> (u64, u64) {
    let low = word as u32;
    let narrow = |new: u32| (word & !0xffff_ffff | u64::from(new), u64::from(low));
    match amo {
        Amo::Add32(v) => narrow(low.wrapping_add(v)),
        Amo::Set32(v) | Amo::Swap32(v) => narrow(v),
        Amo::And32(v) => narrow(low & v),
        Amo::Or32(v) => narrow(low | v),
        Amo::Xor32(v) => narrow(low ^ v),
        Amo::CompareSwap32 { expect, new } => narrow(if low == expect { new } else { low }),
        Amo::Add64(v) => (word.wrapping_add(v), word),
        Amo::Set64(v) | Amo::Swap64(v) => (v, word),
        Amo::And64(v) => (word & v, word),
        Amo::Or64(v) => (word | v, word),
        Amo::Xor64(v) => (word ^ v, word),
        Amo::CompareSwap64 { expect, new } => (if word == expect { new } else { word }, word),
    }
}

/// How often what is uncertain is looked for.
const RESOLVE_NS: u64 = 50_000;

type Lost = Rc<RefCell<Vec<u64>>>;

/// What a run of atomics leaves behind.
#[derive(Debug, Default)]
struct Played {
    words: Vec<u64>,
    /// Answers that differ from the model.
    wrong: Vec<String>,
    /// Answers that were reported as lost.
    lost: u64,
    fault: Option<Fault>,
}

struct Player<'k> {
    kernel: &'k Kernel,
    channel: Channel<'k, SimPlatform<'k>>,
    /// Ticket, atomic, result offset and expected answer of what is under way.
    asked: Vec<(u64, Amo, u64, u64)>,
    /// Tickets whose answers were acknowledged as lost.
    lost: Lost,
    played: Played,
}

/// Acknowledges lost answers, whatever the player waits for: who posts while a channel asks waits too.
fn resolve(kernel: &Kernel, lost: &Lost, ended: &Cell<bool>) {
    let channel = kernel.device().channel(1, 0);
    while !ended.get() {
        if let Some(fault) = channel.uncertain() {
            assert_eq!(fault.operation(), Operation::Fetch, "truth is exact for all else");
            let refused = channel.resolve(fault.at, Resolution::NotApplied).map_err(|fault| fault.kind);
            assert_eq!(refused, Err(FaultKind::BadResolution), "it is known to be applied");
            lost.borrow_mut().push(fault.at.0);
            channel.resolve(fault.at, Resolution::Applied).expect("what is known");
        }
        kernel.world.sleep(RESOLVE_NS);
    }
}

impl Player<'_> {
    /// Waits for all; answers that are lost are somebody else's to acknowledge.
    fn settle(&mut self) -> Result<(), Fault> {
        let deadline = Deadline::after(self.kernel.world.now(), 5_000_000_000);
        while let Err(fault) = self.channel.quiet(Solo, deadline) {
            if fault.kind != FaultKind::Uncertain || self.channel.alive().is_err() {
                return Err(fault);
            }
            self.kernel.world.sleep(RESOLVE_NS);
        }
        for at in self.lost.take() {
            // The ticket of a wide atomic is that of its second block.
            let lost = self.asked.iter().position(|one| one.0 == at || one.0 == at + 1);
            self.asked.remove(lost.expect("one of those under way"));
            self.played.lost += 1;
        }
        for (ticket, amo, result, expected) in self.asked.drain(..) {
            let met = self.kernel.device().fetched(amo, HeapOffset(result));
            if met != expected {
                self.played
                    .wrong
                    .push(format!("ticket {ticket} {amo:?}: expected {expected:#x}, got {met:#x}"));
            }
        }
        Ok(())
    }

    fn play(&mut self, rng: &mut Rng, depth: u64, count: u64, pace_ns: u64) -> Result<(), Fault> {
        self.played.words = vec![0; WORDS as usize];
        let mut open = 0;
        for number in 0..count {
            let (amo, word) = (any(rng), rng.below(WORDS));
            let (new, old) = model(amo, self.played.words[word as usize]);
            let dst = HeapOffset(word * 8);
            if rng.one_in(2) {
                let result = RESULTS_AT + number % RESULTS * 8;
                let ticket = self.channel.amo_fetch_nbi(Solo, dst, amo, HeapOffset(result))?;
                self.asked.push((ticket.0, amo, result, old));
            } else {
                self.channel.amo_nbi(Solo, dst, amo)?;
            }
            self.played.words[word as usize] = new;
            open += amo.blocks();
            if open + 2 > depth || rng.one_in(16) {
                open = 0;
                self.settle()?;
            }
            self.kernel.world.sleep(pace_ns);
        }
        self.settle()
    }
}

/// Plays atomics from PE 0 at PE 1, and compares the words at the end.
fn play(spec: &RunSpec, count: u64, pace_ns: u64) -> (Played, Cluster) {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let (seed, depth) = (spec.seed, 1 << spec.log_depth);
    let (lost, ended) = (Lost::default(), Rc::new(Cell::new(false)));
    let (noted, end) = (lost.clone(), ended.clone());
    cluster.spawn("resolve", 0, move |kernel| resolve(kernel, &noted, &end));
    let task = cluster.spawn("play", 0, move |kernel| {
        let channel = kernel.device().channel(1, 0);
        let mut player = Player { kernel, channel, asked: Vec::new(), lost, played: Played::default() };
        player.played.fault = player.play(&mut Rng::new(seed), depth, count, pace_ns).err();
        player.played
    });
    let played = cluster.sim.finish(&task);
    ended.set(true);
    (played, cluster)
}

fn assert_right(played: &Played, cluster: &Cluster) {
    assert_eq!(played.fault, None);
    assert_eq!(played.wrong, Vec::<String>::new());
    let heap = cluster.pe(1).heap().address;
    let met: Vec<u64> = (0..WORDS).map(|word| load(heap + word * 8)).collect();
    assert_eq!(met, played.words);
}

#[test]
fn every_atomic_does_what_it_says() {
    for log_depth in [1, 2, 3, 7] {
        let spec = RunSpec { seed: u64::from(log_depth), ..spec(log_depth, &[]) };
        let (played, cluster) = play(&spec, 2_000, 0);
        assert_right(&played, &cluster);
        assert_eq!((played.lost, cluster.records().len()), (0, 0), "nothing was switched");
    }
}

#[test]
fn every_atomic_is_applied_once_across_switches() {
    let faults = [
        "3ms:0.0:down",
        "6ms:0.0:up",
        // On the path that leads home from the other rail, on the primary again, and a home that has to move.
        "30ms:0.1:lost-atomic-response=12ms",
        "80ms:0.0:lost-atomic-response=12ms",
        "110ms:1.0:down",
    ];
    let (mut lost, mut switches) = (0, 0);
    for seed in 0..12 {
        let spec = RunSpec { seed, recovery_ns: 2_000_000, ..spec(3 + seed as u32 % 3, &faults) };
        let (played, cluster) = play(&spec, 3_000, 30_000);
        assert_right(&played, &cluster);
        (lost, switches) = (lost + played.lost, switches + cluster.records().len());
    }
    assert!(switches > 24 && lost > 0, "{switches} switches, {lost} answers lost");
}

/// Wide atomics alone, so that completions run far behind blocks, on a ring so short that each wraps.
#[test]
fn a_path_full_of_wide_atomics_keeps_its_count() {
    for depth in [1, 2, 5] {
        let spec = RunSpec { both_ways: false, ..spec(depth, &["1ms:0.0:drop-acks=12ms", "30ms:1.0:down"]) };
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let task = cluster.spawn("wide", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            for bit in 0..20_000u64 {
                let amo = if bit % 3 == 0 { Amo::Set64(bit) } else { Amo::Or64(1 << 40) };
                channel.amo_nbi(Solo, HeapOffset(0), amo)?;
                if bit % 7 == 0 {
                    channel.signal_nbi(Solo, HeapOffset(64), Signal::Add(1))?;
                }
            }
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 5_000_000_000))
        });
        cluster.sim.finish(&task).expect("every path that is left works");
        let heap = cluster.pe(1).heap().address;
        assert_eq!(load(heap), 19_998 | 1 << 40);
        assert_eq!(load(heap + 64), 20_000u64.div_ceil(7));
        assert!(cluster.records().len() >= 2);
    }
}

#[test]
fn gets_bring_what_was_put_before_them_across_switches() {
    for seed in 0..6 {
        let faults = ["2ms:0.0:down", "5ms:0.0:up", "20ms:1.0:drop-acks=12ms", "40ms:0.1:down"];
        let mut spec = RunSpec { seed, recovery_ns: 2_000_000, log2_chunk: 12, ..spec(5, &faults) };
        spec.traffic.slot_bytes = 4096;
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let task = cluster.spawn("get", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            // Across the edge of a key chunk at both ends.
            let (src, there, back) = (4096 - 64, 8192 - 32, 12288 - 96);
            for round in 1..=1_000u64 {
                for word in 0..16 {
                    store(kernel.heap + src + word * 8, round << 8 | word);
                }
                channel.put_nbi(Solo, Put { dst: HeapOffset(there), src: HeapOffset(src), bytes: 128 })?;
                let ticket = channel
                    .get_nbi(Solo, Get { dst: HeapOffset(back), src: HeapOffset(there), bytes: 128 })?;
                channel.wait(Solo, ticket, Deadline::after(kernel.world.now(), 5_000_000_000))?;
                for word in 0..16 {
                    assert_eq!(load(kernel.heap + back + word * 8), round << 8 | word, "round {round}");
                }
                kernel.world.sleep(50_000);
            }
            Ok::<_, Fault>(())
        });
        cluster.sim.finish(&task).expect("every path that is left works");
        assert!(cluster.records().len() >= 2);
    }
}

#[test]
fn what_cannot_be_posted_is_refused_before_anything_is() {
    let cluster = Cluster::start(&spec(1, &[]));
    let end = cluster.pe(0).heap().bytes;
    let task = cluster.spawn("refused", 0, move |kernel| {
        let channel = kernel.device().channel(1, 0);
        let at = HeapOffset;
        let get = |dst, src, bytes| Get { dst: at(dst), src: at(src), bytes };
        [
            channel.amo_nbi(Solo, at(4), Amo::Add64(1)),
            channel.amo_nbi(Solo, at(2), Amo::Add32(1)),
            channel.amo_nbi(Solo, at(end), Amo::Add32(1)),
            channel.amo_fetch_nbi(Solo, at(0), Amo::Add64(1), at(4)),
            channel.amo_fetch_nbi(Solo, at(0), Amo::Add64(1), at(end)),
            channel.signal_nbi(Solo, at(12), Signal::Add(1)),
            // Three tickets in a ring of two.
            channel.signal_nbi(Solo, at(8), Signal::Cleared(1)),
            channel.get_nbi(Solo, get(end, 0, 1)),
            channel.get_nbi(Solo, get(0, end - 8, 9)),
        ]
        .map(|result| result.err().map(|fault| fault.kind))
    });
    assert_eq!(cluster.sim.finish(&task), [Some(FaultKind::BadAddress); 9]);
}

/// A caller may ask after any number; one in the middle of a wide atomic must not stop the channel.
#[test]
fn a_ticket_in_the_middle_of_a_wide_atomic_is_harmless() {
    let cluster = Cluster::start(&spec(3, &[]));
    let task = cluster.spawn("middle", 0, |kernel| {
        let channel = kernel.device().channel(1, 0);
        for round in 0..100u64 {
            let ticket = channel.amo_nbi(Solo, HeapOffset(0), Amo::Set64(round)).expect("room");
            let deadline = Deadline::after(kernel.world.now(), 1_000_000_000);
            channel.wait(Solo, shunt_device::Ticket(ticket.0 - 1), deadline).expect("a healthy path");
            channel.wait(Solo, ticket, deadline).expect("a healthy path");
        }
    });
    cluster.sim.finish(&task);
    assert_eq!(load(cluster.pe(1).heap().address), 99);
    assert_eq!(cluster.records().len(), 0);
}

/// A channel left one path after the other because of a NIC's "opcode not supported", and none of them carried it.
#[test]
fn what_a_nic_has_no_atomic_for_is_refused_where_it_is_posted_and_the_channel_goes_on() {
    let spec = RunSpec { profile: "vf".into(), exact: 1, ..RunSpec::default() };
    let cluster = Cluster::start(&spec);
    let task = cluster.spawn("refused", 0, |kernel| {
        let (channel, word) = (kernel.device().channel(1, 0), HeapOffset(64));
        let deadline = || Deadline::after(kernel.world.now(), 1_000_000_000);
        let kind = |fault: Fault| fault.kind;
        let refused = [
            channel.amo_nbi(Solo, word, Amo::Set64(7)).map(|_| ()).map_err(kind),
            channel.amo_nbi(Solo, word, Amo::Add32(7)).map(|_| ()).map_err(kind),
            channel.amo_fetch_nbi(Solo, word, Amo::Or64(7), HeapOffset(1024)).map(|_| ()).map_err(kind),
            channel.signal_nbi(Solo, word, Signal::Cleared32(7)).map(|_| ()).map_err(kind),
            channel
                .put_signal_nbi(Solo, Put { dst: word, src: word, bytes: 8 }, word, Signal::Cleared32(7))
                .map(|_| ())
                .map_err(kind),
            channel.fetch_exact(Solo, word, Amo::Swap32(7), deadline()).map(|_| ()).map_err(kind),
        ];
        assert_eq!(refused, [Err(FaultKind::NoMaskedAtomics); 6]);
        // Those that it has, and those that the word's owner puts together.
        channel.amo_nbi(Solo, word, Amo::Add64(5)).map_err(kind)?;
        channel.signal_nbi(Solo, word, Signal::Add(6)).map_err(kind)?;
        channel.quiet(Solo, deadline()).map_err(kind)?;
        let olds = [Amo::Swap64(0xf0), Amo::Or64(0x0f), Amo::And64(0x3c), Amo::Xor64(1)]
            .map(|amo| channel.fetch_exact(Solo, word, amo, deadline()).map_err(kind));
        assert_eq!(olds, [Ok(11), Ok(0xf0), Ok(0xff), Ok(0x3c)]);
        Ok::<(), FaultKind>(())
    });
    assert_eq!(cluster.sim.finish(&task), Ok(()));
    assert_eq!((load(cluster.pe(1).heap().address + 64), cluster.records().len()), (0x3d, 0));
}
