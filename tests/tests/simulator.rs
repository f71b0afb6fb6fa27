//! The simulator itself, with toy actors: order, time, limits, panics, unwinding, warps.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use shunt_device::platform::Lanes;
use shunt_device::platform::host::World;
use shunt_tests::sim::{ActorOptions, Clockwork, Sim, SimConfig};
use shunt_tests::warp::spawn_warp;

/// What a panic says.
fn message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("this run must fail");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map(|text| text.to_string()).unwrap_or_default(),
    }
}

/// Two actors that relax in turns; the order in which they wrote, with instants, and the trace.
fn race(seed: u64) -> (Vec<(u32, u64)>, u64) {
    let sim = Sim::new(SimConfig::new(seed));
    let log = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..2)
        .map(|who| {
            let (log, world) = (log.clone(), sim.world());
            sim.spawn(format!("racer{who}"), ActorOptions::kernel(), move || {
                for _ in 0..50 {
                    log.borrow_mut().push((who, world.now()));
                    world.relax();
                }
            })
        })
        .collect();
    sim.finish_all(&tasks);
    let order = log.borrow().clone();
    (order, sim.trace_hash())
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(race(3), race(3));
    assert_ne!(race(3).0, race(4).0);
    let (order, _) = race(5);
    assert!(order.windows(2).all(|pair| pair[0].1 <= pair[1].1), "time never goes back");
}

/// Fires at 1 us, 2 us, ... 5 us.
struct Ticker(Cell<u64>, RefCell<Vec<u64>>);

impl Clockwork for Ticker {
    fn step(&self, now: u64) -> bool {
        let due = self.next_due().is_some_and(|due| due <= now);
        if due {
            self.0.set(self.0.get() + 1);
            self.1.borrow_mut().push(now);
        }
        due
    }
    fn next_due(&self) -> Option<u64> {
        (self.0.get() < 5).then(|| (self.0.get() + 1) * 1000)
    }
}

#[test]
fn the_fabric_is_stepped_at_its_instants_and_relax_outside_an_actor_passes_time() {
    let sim = Sim::new(SimConfig::new(1));
    let ticker = Rc::new(Ticker(Cell::new(0), RefCell::new(Vec::new())));
    sim.drive(ticker.clone());
    let world = sim.world();
    while world.now() < 20_000 {
        world.relax();
    }
    assert_eq!(*ticker.1.borrow(), [1000, 2000, 3000, 4000, 5000]);
}

#[test]
fn a_doorbell_steps_the_fabric_at_the_same_instant() {
    struct Bell(RefCell<Vec<u64>>);
    impl Clockwork for Bell {
        fn step(&self, now: u64) -> bool {
            self.0.borrow_mut().push(now);
            true
        }
        fn next_due(&self) -> Option<u64> {
            None
        }
    }
    let sim = Sim::new(SimConfig::new(1));
    let bell = Rc::new(Bell(RefCell::new(Vec::new())));
    sim.drive(bell.clone());
    let world = sim.world();
    let task = sim.spawn("ringer", ActorOptions::kernel(), move || {
        world.sleep(777);
        world.doorbell();
        world.sleep(1000);
    });
    sim.finish(&task);
    assert_eq!(*bell.0.borrow(), [777]);
}

#[test]
fn quiet_time_makes_polls_rarer_and_never_rarer_than_the_limit() {
    let sim = Sim::new(SimConfig::new(1));
    let world = sim.world();
    let options = ActorOptions { poll_ns: 100, poll_max_ns: 1000, ..ActorOptions::kernel() };
    let task = sim.spawn("waiter", options, move || {
        let mut gaps = Vec::new();
        while world.now() < 100_000 {
            let before = world.now();
            world.relax();
            gaps.push(world.now() - before);
        }
        gaps
    });
    let gaps = sim.finish(&task);
    assert!((100..=125).contains(&gaps[0]), "first gap {}", gaps[0]);
    let last = gaps[gaps.len() - 1];
    assert!((1000..=1250).contains(&last), "last gap {last}");
}

#[test]
fn a_runaway_is_named_with_what_it_waits_for() {
    let mut config = SimConfig::new(9);
    config.time_limit_ns = 1_000_000;
    let text = message(|| {
        let sim = Sim::new(config);
        let world = sim.world();
        let task = sim.spawn("stubborn", ActorOptions::kernel(), move || {
            world.note(|| "waiting for godot".into());
            loop {
                world.relax();
            }
        });
        sim.finish::<()>(&task);
    });
    assert!(text.contains("seed 9") && text.contains("stubborn: waiting, waiting for godot"), "{text}");
}

#[test]
fn a_panic_in_an_actor_reaches_the_test_and_the_rest_unwinds() {
    struct OnDrop(Rc<Cell<u32>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let text = message(|| {
        let sim = Sim::new(SimConfig::new(2));
        let (world, guard) = (sim.world(), OnDrop(dropped.clone()));
        let _bystander = sim.spawn("bystander", ActorOptions::kernel(), move || {
            let _guard = guard;
            loop {
                world.relax();
            }
        });
        let guard = OnDrop(dropped.clone());
        let _unstarted = sim.spawn("late", ActorOptions::kernel(), move || drop(guard));
        let world = sim.world();
        let task = sim.spawn("faulty", ActorOptions::kernel(), move || {
            world.sleep(500);
            panic!("boom at {}", world.now());
        });
        sim.finish::<()>(&task);
    });
    assert_eq!(text, "boom at 500");
    assert_eq!(dropped.get(), 2);
}

#[test]
fn destructors_may_wait_while_a_run_is_torn_down() {
    struct Waits(std::sync::Arc<shunt_tests::sim::SimWorld>, Rc<Cell<u64>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let until = self.0.now() + 50_000;
            while self.0.now() < until {
                self.0.relax();
            }
            self.1.set(self.0.now());
        }
    }
    let ended = Rc::new(Cell::new(0));
    {
        let sim = Sim::new(SimConfig::new(2));
        let (world, waits) = (sim.world(), Waits(sim.world(), ended.clone()));
        let _task = sim.spawn("sleeper", ActorOptions::kernel(), move || {
            let _waits = waits;
            world.sleep(u64::MAX);
        });
        sim.run_for(1_000);
    }
    assert!(ended.get() >= 51_000);
}

#[test]
fn a_warp_meets_and_shares() {
    let sim = Sim::new(SimConfig::new(6));
    let world = sim.world();
    let lanes = spawn_warp(&sim, "w", 32, ActorOptions::kernel(), move |lane| {
        let mut seen = Vec::new();
        for round in 0..20 {
            world.sleep(world.draw(300));
            seen.push(lane.broadcast(u64::from(lane.rank()) * 100 + round, round as u32));
            lane.sync();
        }
        seen
    });
    let expected: Vec<u64> = (0..20).map(|round| round * 100 + round).collect();
    assert!(sim.finish_all(&lanes).iter().all(|seen| *seen == expected));
}

#[test]
fn a_lane_that_does_not_come_is_named() {
    let text = message(|| {
        let sim = Sim::new(SimConfig::new(6));
        let lanes = spawn_warp(&sim, "torn", 4, ActorOptions::kernel(), |lane| {
            if lane.rank() != 2 {
                lane.sync();
            }
        });
        sim.finish_all(&lanes);
    });
    assert!(text.contains("warp torn") && text.contains("of which [2] have returned"), "{text}");
}

#[test]
fn lanes_at_different_meetings_are_an_error() {
    let text = message(|| {
        let sim = Sim::new(SimConfig::new(6));
        let lanes = spawn_warp(&sim, "split", 2, ActorOptions::kernel(), |lane| {
            if lane.rank() == 0 {
                lane.sync();
            } else {
                lane.broadcast(0, 1);
            }
        });
        sim.finish_all(&lanes);
    });
    assert!(text.contains("another meeting than the others"), "{text}");
}
