//! Puts whose doorbell was left: a caller that posts behind them, waits, looks or switches rings. Rule 2. And what else
//! a look does.

use shunt_device::{Deadline, HeapOffset, Put, Signal, Solo};

use super::kit::{Wrongs, judged, spec, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::oracle::{load, store};

pub const SCENARIOS: &[Scenario] = &[Scenario { name: "doorbells_that_were_left", seeds: 12, run: left }];

/// Where puts go.
const DATA: u64 = 4096;
/// Two words of four bytes, one beside the other, that the receiver would clear.
const WORDS: u64 = 1024;
const PUTS: u64 = 3;
/// Longer than a path may be silent.
const LONG_NS: u64 = 200_000_000;

/// Posts puts and rings for none of them; true if all were taken.
fn put_and_leave(kernel: &Kernel) -> bool {
    let channel = kernel.device().channel(1, 0);
    (0..PUTS).all(|number| {
        store(kernel.heap + number * 8, 70 + number);
        let put = Put { dst: HeapOffset(DATA + number * 8), src: HeapOffset(number * 8), bytes: 8 };
        channel.try_put_rung(Solo, put, false).ticket().is_some()
    })
}

/// What happens to the doorbell that was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// A quiet.
    Quiet,
    /// Nothing but the agent.
    Nothing,
    /// A quiet, after the port went down.
    Fault,
    /// A signal to the second of two words, which alone rings.
    Signal,
    /// A look.
    Look,
    /// A look, once a completion said that the path failed; the agent looks at nothing.
    Error,
}

/// The agent is gone: nobody rings before somebody is told to.
fn untold(then: Then) -> bool {
    matches!(then, Then::Quiet | Then::Signal | Then::Look)
}

fn left(seed: u64) -> Wrongs {
    let then =
        [Then::Quiet, Then::Nothing, Then::Fault, Then::Signal, Then::Look, Then::Error][(seed % 6) as usize];
    judged(|| {
        let faults: &[&str] = match then {
            Then::Fault => &["60us:0.0:down"],
            Then::Error => &["60us:0.0:cqe-error=0x15"],
            _ => &[],
        };
        let mut spec = spec(seed, faults);
        if then == Then::Error {
            spec.agent.looks = 0;
        }
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        if untold(then) {
            cluster.kill_agent(0);
        }
        let task = cluster.spawn("put", 0, move |kernel| {
            let channel = kernel.device().channel(1, 0);
            if then == Then::Error {
                kernel.world.sleep(100_000);
            }
            let taken = put_and_leave(kernel);
            kernel.world.sleep(LONG_NS);
            let rung = [load(kernel.heaps[1] + DATA), u64::from(taken)];
            let look = || channel.progress(Deadline::after(kernel.world.now(), 100_000_000));
            if matches!(then, Then::Look | Then::Error) {
                // The first one rings, the second one finds what came of it.
                for _ in 0..2 {
                    assert_eq!(look(), Ok(true));
                    kernel.world.sleep(5_000_000);
                }
                return (rung, look() == Ok(true));
            }
            if then == Then::Signal {
                let at = HeapOffset(WORDS + 4);
                channel.signal_nbi(Solo, at, Signal::Cleared32(5)).expect("a healthy path");
                channel.signal_nbi(Solo, at, Signal::Cleared32(u32::MAX)).expect("a healthy path");
                kernel.world.sleep(1_000_000);
            }
            let ended = then == Then::Nothing
                || channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000)).is_ok();
            (rung, ended)
        });
        let ([early, taken], ended) = cluster.sim.finish(&task);
        judge(&cluster, then, early, taken == 1 && ended)
    })
}

fn judge(cluster: &Cluster, then: Then, early: u64, ended: bool) -> Wrongs {
    let heap = cluster.pe(1).heap().address;
    let seen: Vec<u64> = (0..PUTS).map(|number| load(heap + DATA + number * 8)).collect();
    let want: Vec<u64> = (0..PUTS).map(|number| 70 + number).collect();
    let mut wrongs = wrong_if(!ended, || "a put was refused, or the quiet failed".into());
    wrongs.extend(wrong_if(seen != want, || format!("the puts are {seen:?}, not {want:?}")));
    let untold = untold(then) || then == Then::Error;
    wrongs.extend(wrong_if(untold != (early == 0), || format!("before anybody rang, a put was {early}")));
    let words = load(heap + WORDS);
    let right = if then == Then::Signal { 4 << 32 } else { 0 };
    wrongs.extend(wrong_if(words != right, || format!("the words are {words:#x}, not {right:#x}")));
    // What nobody rang is not overdue: only the port's end is a reason to leave a path.
    let switches = usize::from(matches!(then, Then::Fault | Then::Error));
    let met = cluster.records().iter().filter(|(pe, _)| *pe == 0).count();
    wrongs.extend(wrong_if(met != switches, || format!("{met} switches, not {switches}")));
    wrongs
}
