//! What calls cost: loads, stores and atomics, counted at the platform seam, on the very source that goes to the GPU.

use std::cell::Cell;

use shunt_device::platform::host::Host;
use shunt_device::platform::{InMemory, Platform};
use shunt_device::{Amo, Deadline, Device, Fault, Get, HeapOffset, Put, Signal, Solo};
use shunt_layout::mlx5::wqe::Wqebb;

use crate::cluster::Cluster;
use crate::spec::RunSpec;

/// Accesses of device code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Loads, of keys and completions too.
    pub loads: u64,
    /// Stores, a segment of a WQE each.
    pub stores: u64,
    /// Read-modify-writes.
    pub atomics: u64,
    /// Looks at the clock.
    pub clock_reads: u64,
}

thread_local! {
    static COST: Cell<Cost> = const { Cell::new(Cost { loads: 0, stores: 0, atomics: 0, clock_reads: 0 }) };
}

fn count(change: impl FnOnce(&mut Cost)) {
    COST.with(|cell| {
        let mut cost = cell.get();
        change(&mut cost);
        cell.set(cost);
    });
}

/// The host's platform, counted.
#[derive(Clone, Copy)]
struct Counting<'w>(Host<'w>);

/// Methods that only count and pass on.
macro_rules! passed_on {
    ($($counter:ident: fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)?;)*) => {
        $(unsafe fn $name(self, $($arg: $type),*) $(-> $out)? {
            count(|cost| cost.$counter += 1);
            // SAFETY: forwarded to the caller.
            unsafe { self.0.$name($($arg),*) }
        })*
    };
}

impl Platform for Counting<'_> {
    type Root = InMemory;
    passed_on! {
        loads: fn load(address: *const u64) -> u64;
        loads: fn load_acquire(address: *const u64) -> u64;
        loads: fn load32(address: *const u32) -> u32;
        loads: fn load_cqe(address: *const u32) -> u32;
        loads: fn load_two(address: *const u64) -> [u64; 2];
        loads: fn load_four(address: *const u32) -> [u32; 4];
        loads: fn load_key(address: *const u32) -> u32;
        loads: fn load_wqe(address: *const Wqebb) -> Wqebb;
        stores: fn store(address: *mut u64, value: u64);
        stores: fn store_release(address: *mut u64, value: u64);
        stores: fn store32(address: *mut u32, value: u32);
        stores: fn store_segment(address: *mut u32, segment: [u32; 4]);
        stores: fn store_doorbell_record(address: *mut u32, value: u32);
        stores: fn store_register(address: *mut u64, value: u64);
        stores: fn unlock(address: *mut u32);
        atomics: fn fetch_add(address: *mut u64, value: u64) -> u64;
        atomics: fn fetch_or(address: *mut u64, value: u64) -> u64;
        atomics: fn fetch_and(address: *mut u64, value: u64) -> u64;
        atomics: fn compare_swap(address: *mut u64, expected: u64, new: u64) -> u64;
        atomics: fn try_lock(address: *mut u32) -> bool;
    }
    fn now_ns(self) -> u64 {
        count(|cost| cost.clock_reads += 1);
        self.0.now_ns()
    }
    fn relax(self) {
        self.0.relax();
    }
    fn wqes_before_publish(self) {
        self.0.wqes_before_publish();
    }
    fn record_before_register(self) {
        self.0.record_before_register();
    }
    fn cqe_before_data(self) {
        self.0.cqe_before_data();
    }
    fn announce_before_recheck(self) {
        self.0.announce_before_recheck();
    }
}

/// What is counted, in this order.
pub const CALLS: [&str; 7] = ["put", "signal", "quiet", "get", "add", "set64", "cleared"];

/// Costs of each call in a steady state, not of the first one; the quiet finds everything complete.
pub fn costs(ft_off: bool) -> [Cost; 7] {
    let cluster = Cluster::start(&RunSpec { ft_off, channels: 2, ..RunSpec::default() });
    // Or it would look at completions first, and the quiet would find everything done.
    cluster.kill_agent(0);
    let state = cluster.pe(0).state();
    let task = cluster.spawn("cost", 0, move |kernel| {
        let world = &*kernel.world;
        // SAFETY: the cluster outlives the kernel; its state was uploaded.
        let device =
            unsafe { Device::attach(state, Counting(Host::new(world))) }.expect("a state of this version");
        let channel = device.channel(1, 0);
        // Wide atomics go to a channel of their own: a put beside them must cost what it did.
        let beside = device.channel(1, 1);
        let at = HeapOffset;
        let put = Put { dst: at(4096), src: at(0), bytes: 512 };
        let get = Get { dst: at(2048), src: at(1024), bytes: 512 };
        let mut costs = [Cost::default(); 7];
        for round in 1..=5 {
            let deadline = Deadline::after(world.now(), 10_000_000);
            let steps: [&dyn Fn() -> Result<(), Fault>; 7] = [
                &|| channel.put_nbi(Solo, put).map(drop),
                &|| channel.signal_nbi(Solo, at(64), Signal::Monotone(round)).map(drop),
                &|| {
                    // Complete by now, so that the quiet counts its one look and no waiting.
                    world.sleep(100_000);
                    COST.set(Cost::default());
                    channel.quiet(Solo, deadline)
                },
                &|| channel.get_nbi(Solo, get).map(drop),
                &|| channel.amo_nbi(Solo, at(72), Amo::Add64(1)).map(drop),
                &|| beside.amo_nbi(Solo, at(80), Amo::Set64(round)).map(drop),
                &|| beside.signal_nbi(Solo, at(88), Signal::Cleared(1)).map(drop),
            ];
            for (step, cost) in steps.iter().zip(&mut costs) {
                COST.set(Cost::default());
                step().expect("a healthy path with room");
                *cost = COST.get();
            }
            world.sleep(100_000);
            channel.quiet(Solo, Deadline::after(world.now(), 10_000_000)).expect("a healthy path");
            beside.quiet(Solo, Deadline::after(world.now(), 10_000_000)).expect("a healthy path");
        }
        costs
    });
    cluster.sim.finish(&task)
}

/// Rounds of a soak, and what each posts: 100,000 operations in all, more than a 16-bit counter counts.
const ROUNDS: u64 = 1_250;
const EACH: u64 = 40;

/// What each operation of a long run costs: for puts and for signals, the cheapest and the dearest, and what all came
/// to, the quiet behind each round included.
pub fn soak(ft_off: bool) -> [Cost; 5] {
    let cluster = Cluster::start(&RunSpec { ft_off, time_limit_ns: 60_000_000_000, ..RunSpec::default() });
    // Or it would look at completions first.
    cluster.kill_agent(0);
    let state = cluster.pe(0).state();
    let task = cluster.spawn("soak", 0, move |kernel| {
        let world = &*kernel.world;
        // SAFETY: the cluster outlives the kernel; its state was uploaded.
        let device =
            unsafe { Device::attach(state, Counting(Host::new(world))) }.expect("a state of this version");
        let channel = device.channel(1, 0);
        let put = Put { dst: HeapOffset(4096), src: HeapOffset(0), bytes: 512 };
        let most = Cost { loads: u64::MAX, stores: u64::MAX, atomics: u64::MAX, clock_reads: u64::MAX };
        let mut costs = [most, Cost::default(), most, Cost::default(), Cost::default()];
        for round in 0..ROUNDS {
            for number in 0..EACH {
                COST.set(Cost::default());
                channel.put_nbi(Solo, put).expect("a healthy path with room");
                let each = COST.get();
                (costs[0], costs[1]) = (costs[0].least(each), costs[1].most(each));
                COST.set(Cost::default());
                let signal = Signal::Monotone(round * EACH + number + 1);
                channel.signal_nbi(Solo, HeapOffset(64), signal).expect("a healthy path with room");
                let signal = COST.get();
                (costs[2], costs[3]) = (costs[2].least(signal), costs[3].most(signal));
                costs[4] = costs[4].plus(each).plus(signal);
            }
            // Complete by now: what a wait costs is the network's time.
            world.sleep(100_000);
            COST.set(Cost::default());
            channel.quiet(Solo, Deadline::after(world.now(), 10_000_000)).expect("a healthy path");
            costs[4] = costs[4].plus(COST.get());
        }
        costs
    });
    cluster.sim.finish(&task)
}

impl Cost {
    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            loads: with(self.loads, other.loads),
            stores: with(self.stores, other.stores),
            atomics: with(self.atomics, other.atomics),
            clock_reads: with(self.clock_reads, other.clock_reads),
        }
    }

    fn least(self, other: Self) -> Self {
        self.each(other, u64::min)
    }

    fn most(self, other: Self) -> Self {
        self.each(other, u64::max)
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }
}
