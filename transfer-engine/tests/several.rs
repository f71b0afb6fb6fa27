//! Calls to several peers: what each share came to, and when engines have met, in a network that fails by seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{Barrier, Engine, Policy, Scatter, Share};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::sim::faults::{Fault, Kind};
use shunt_transfer_engine::sim::{Config, Rng, Sim, SimDomain, key};
use shunt_transfer_engine::transfer::{Cancel, Ended};

pub const NODES: u32 = 3;
pub const RAILS: u32 = 2;
const MEMORY: u64 = 1 << 16;
pub const SEEDS: u64 = 200;
/// Long after every fault and give-up time.
pub const LATE: Nanos = Nanos::millis(500);

pub struct Mesh {
    pub sim: Sim,
    pub engines: Vec<Engine<SimDomain>>,
    pub regions: Vec<(Mr, MrDesc)>,
    /// The time of the network, for callbacks.
    clock: Arc<AtomicU64>,
}

pub fn mesh(seed: u64, faults: Vec<Fault>) -> Mesh {
    mesh_where(seed, faults, 0, 0)
}

/// One fence in so many ends without a count, one in so many proves nothing; 0: none.
pub fn mesh_where(seed: u64, faults: Vec<Fault>, no_truth: u64, unproven: u64) -> Mesh {
    let config = Config {
        seed,
        nodes: NODES,
        rails: RAILS,
        memory: MEMORY as usize,
        depth: 4,
        unordered: seed % 2 == 1,
        late: false,
        no_truth,
        unproven,
        faults,
    };
    let (sim, domains) = Sim::new(config);
    let policy = Policy { give_up: Nanos::millis(2), ..Policy::of_rails(RAILS) };
    let region = |node| {
        let keys: Vec<_> = (0..RAILS).map(|rail| key(node, rail)).collect();
        let mr = Mr::new(0, MEMORY, &keys).expect("a region");
        let desc = mr.describe(Rights::Write);
        (mr, desc)
    };
    Mesh {
        sim,
        engines: domains.into_iter().map(|domain| Engine::new(domain, policy)).collect(),
        regions: (0..NODES).map(region).collect(),
        clock: Arc::default(),
    }
}

impl Mesh {
    /// Until nothing happens any more, or until then.
    pub fn run(&mut self, until: Nanos) {
        loop {
            let now = self.sim.now();
            self.clock.store(now.get(), Ordering::Relaxed);
            while self.engines.iter_mut().fold(false, |busy, engine| engine.step(now) | busy) {}
            let timers = self.engines.iter().map(Engine::next_deadline);
            let next = timers.chain([self.sim.next_time()]).min().unwrap_or(Nanos::MAX).min(until);
            if next == now || next == Nanos::MAX {
                return;
            }
            self.sim.advance(next);
        }
    }
}

pub fn faults(rng: &mut Rng) -> Vec<Fault> {
    (0..rng.below(5)).map(|_| Fault::random(rng, NODES, RAILS, 1_000_000)).collect()
}

/// Every rail of a node, from the start.
fn dead(node: u32) -> Vec<Fault> {
    let fault = |rail| Fault { from: 0, lasts: u64::MAX / 2, node, rail, kind: Kind::Down };
    (0..RAILS).map(fault).collect()
}

pub type Told<T> = Arc<Mutex<Vec<T>>>;

fn scatter(mesh: &mut Mesh, shares: &[(u32, u64, u64)]) -> Told<Vec<(PeerId, Ended)>> {
    let told: Told<_> = Arc::default();
    let shares: Vec<Share<'_>> = shares
        .iter()
        .enumerate()
        .map(|(number, (peer, at, len))| Share {
            peer: PeerId(*peer),
            len: *len,
            imm: Some(number as u32),
            from: *at,
            to: (&mesh.regions[*peer as usize].1, *at),
        })
        .collect();
    let (now, from, to) = (mesh.sim.now(), &mesh.regions[0].0, told.clone());
    let done = Box::new(move |ends| to.lock().unwrap().push(ends));
    mesh.engines[0].submit_scatter(now, &Scatter { from, shares: &shares }, done).expect("a scatter");
    told
}

#[test]
fn each_share_is_written_once_or_its_end_says_that_it_was_not() {
    let (mut written, mut lost, mut hits) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut mesh = mesh(seed, faults(&mut rng));
        let shares: Vec<_> =
            (0..rng.between(1, 40)).map(|at| (1 + rng.below(2) as u32, 256 * at, rng.below(257))).collect();
        for (at, len) in shares.iter().map(|(_, at, len)| (*at, *len)) {
            mesh.sim.write(0, at, &vec![1 + (at / 256) as u8; len as usize]);
        }
        let told = scatter(&mut mesh, &shares);
        mesh.run(LATE);
        let told = told.lock().unwrap();
        let [ends] = &told[..] else { panic!("seed {seed}: expected one end, got {}", told.len()) };
        assert_eq!(ends.len(), shares.len(), "seed {seed}");
        for (number, ((to, at, len), (peer, ended))) in shares.iter().zip(ends).enumerate() {
            let arrived = mesh.engines[*to as usize].counter(PeerId(0), number as u32);
            let proof = ended.quiesced.as_ref().map(|proof| proof.written());
            assert_eq!(
                (*peer, proof),
                (PeerId(*to), Some(arrived)),
                "seed {seed}, share {number}: {ended:?}"
            );
            assert_eq!(ended.result.is_ok(), arrived == 1, "seed {seed}, share {number}: {ended:?}");
            if arrived == 1 {
                let bytes = mesh.sim.read(*to, *at, *len);
                assert!(
                    bytes.iter().all(|byte| u64::from(*byte) == 1 + at / 256),
                    "seed {seed}, share {number}"
                );
            }
            written += arrived;
            lost += 1 - arrived;
        }
        hits += mesh.sim.counts().hits;
    }
    assert!(
        written > 0 && lost > 0 && hits > 0,
        "{written} written, {lost} lost, {hits} hits in {SEEDS} seeds"
    );
}

#[test]
fn a_peer_that_is_lost_holds_up_no_other_share() {
    let mut mesh = mesh(1, dead(2));
    let told = scatter(&mut mesh, &[(1, 0, 64), (2, 64, 64), (1, 128, 0)]);
    mesh.run(LATE);
    let ends = told.lock().unwrap().pop().expect("its end");
    let of = |at: usize| &ends[at].1.result;
    assert!(matches!((of(0), of(2)), (Ok(()), Ok(()))), "{ends:?}");
    assert!(matches!(of(1), Err(TransferError::PeerLost { peer: PeerId(2), .. })), "{ends:?}");
}

#[test]
fn a_scatter_is_cancelled_as_a_whole_and_each_end_has_its_proof() {
    let mut mesh = mesh(1, dead(2));
    let told: Told<Vec<(PeerId, Ended)>> = Arc::default();
    let (now, to) = (mesh.sim.now(), told.clone());
    let share = |peer: u32| Share {
        peer: PeerId(peer),
        len: 8,
        imm: None,
        from: 0,
        to: (&mesh.regions[peer as usize].1, 0),
    };
    let shares = [share(1), share(2)];
    let scatter = Scatter { from: &mesh.regions[0].0, shares: &shares };
    let done = Box::new(move |ends| to.lock().unwrap().push(ends));
    let id = mesh.engines[0].submit_scatter(now, &scatter, done).expect("a scatter");
    assert!(mesh.engines[0].cancel_scatter(now, id, Cancel::Now));
    mesh.run(LATE);
    let ends = told.lock().unwrap().pop().expect("its end");
    assert!(ends.iter().all(|(_, ended)| ended.quiesced.is_some()), "{ends:?}");
    assert!(matches!(ends[1].1.result, Err(TransferError::Cancelled { written: 0, .. })), "{ends:?}");
    assert!(!mesh.engines[0].cancel_scatter(now, id, Cancel::Now), "it has ended");
}

#[test]
fn what_a_call_to_several_cannot_do_is_refused_before_anything_is_posted() {
    let mut mesh = mesh(1, Vec::new());
    let (now, from) = (mesh.sim.now(), mesh.regions[0].0.clone());
    let (target, local) = (mesh.regions[1].1.clone(), mesh.regions[1].0.describe(Rights::Local));
    let share = |len, from, to| Share { peer: PeerId(1), len, imm: None, from, to: (to, 0) };
    let good = share(8, 0, &target);
    for shares in [
        &[][..],
        &[good, share(8, MEMORY - 7, &target)],
        &[good, share((1 << 30) + 1, 0, &target)],
        &[good, share(8, 0, &local)],
    ] {
        let scatter = Scatter { from: &from, shares };
        assert!(mesh.engines[0].submit_scatter(now, &scatter, Box::new(|_| ())).is_err(), "{shares:?}");
    }
    mesh.engines[0].expect((PeerId(2), 7), 1, LATE, Box::new(|_| ())).expect("an expectation");
    for others in [
        &[][..],
        &[(PeerId(1), &target), (PeerId(1), &target)],
        &[(PeerId(1), &target), (PeerId(2), &target)],
        &[(PeerId(1), &local)],
    ] {
        let barrier = Barrier { imm: 7, from: &from, others, until: LATE };
        assert!(mesh.engines[0].submit_barrier(now, &barrier, Box::new(|_| ())).is_err(), "{others:?}");
    }
    // Who is waited for is spoken to.
    mesh.engines[0].forget(PeerId(2), 7);
    mesh.run(LATE);
    assert_eq!(mesh.sim.counts().executed, 0);
}

#[test]
fn what_is_expected_of_a_dead_peer_ends_though_nothing_is_sent_to_it() {
    let mut mesh = mesh(1, dead(1));
    let told: Told<(u32, Result<(), TransferError>)> = Arc::default();
    let expect = |mesh: &mut Mesh, peer: u32| {
        let to = told.clone();
        let done = Box::new(move |result| to.lock().unwrap().push((peer, result)));
        mesh.engines[0].expect((PeerId(peer), 5), 1, Nanos::MAX, done).expect("an expectation");
    };
    expect(&mut mesh, 1);
    expect(&mut mesh, 2);
    mesh.run(LATE);
    let missing = || Err(TransferError::Missing { imm: 5, got: 0, want: 1, peer: PeerId(1) });
    assert_eq!(*told.lock().unwrap(), [(1, missing())], "and not of the other one");
    // The peer was lost before this one began.
    expect(&mut mesh, 1);
    mesh.run(LATE + LATE);
    assert_eq!(*told.lock().unwrap(), [(1, missing()), (1, missing())]);
}

/// What became of a barrier, and when.
type Met = (Result<(), Vec<(PeerId, TransferError)>>, Nanos);

fn meet(mesh: &mut Mesh, node: u32, imm: u32, until: Nanos) -> Told<Met> {
    let (told, now) = (Told::<Met>::default(), mesh.sim.now());
    let others: Vec<_> = (0..NODES).filter(|other| *other != node).collect();
    let others: Vec<_> = others.iter().map(|at| (PeerId(*at), &mesh.regions[*at as usize].1)).collect();
    let (to, clock) = (told.clone(), mesh.clock.clone());
    let done =
        Box::new(move |result| to.lock().unwrap().push((result, Nanos::new(clock.load(Ordering::Relaxed)))));
    let barrier = Barrier { imm, from: &mesh.regions[node as usize].0, others: &others, until };
    mesh.engines[node as usize].submit_barrier(now, &barrier, done).expect("a barrier");
    told
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let (mut met, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut mesh = mesh(seed, faults(&mut rng));
        for round in 0..4 {
            let mut came: Vec<_> = (0..NODES).map(|node| (rng.below(400_000), node)).collect();
            came.sort_unstable();
            let start = mesh.sim.now();
            let told: Vec<_> = came
                .iter()
                .map(|(after, node)| {
                    mesh.run(start + Nanos::new(*after));
                    meet(&mut mesh, *node, round, start + LATE)
                })
                .collect();
            let last = mesh.sim.now();
            mesh.run(start + LATE);
            for told in told {
                let told = told.lock().unwrap();
                let [(result, at)] = &told[..] else {
                    panic!("seed {seed}, round {round}: expected one end, got {told:?}");
                };
                assert!(
                    result.is_err() || *at >= last,
                    "seed {seed}, round {round}: left at {at:?}, last at {last:?}"
                );
                met += u32::from(result.is_ok());
                failed += u32::from(result.is_err());
            }
        }
    }
    assert!(met > 0 && failed > 0, "{met} ended well, {failed} failed in {SEEDS} seeds");
}

#[test]
fn a_barrier_without_one_of_them_ends_and_names_it() {
    let mut mesh = mesh(1, Vec::new());
    let told = [meet(&mut mesh, 0, 5, Nanos::millis(30)), meet(&mut mesh, 1, 5, Nanos::millis(30))];
    mesh.run(LATE);
    for told in told {
        let (result, at) = told.lock().unwrap().pop().expect("its end");
        let failed = result.expect_err("one did not come");
        let [(PeerId(2), TransferError::Missing { imm: 5, got: 0, want: 1, .. })] = failed[..] else {
            panic!("expected peer 2 to be missing, got {failed:?}");
        };
        assert_eq!(at, Nanos::millis(30));
    }
}

/// Cause: a barrier waited for the end of its word to a peer that no rail reached, long after its deadline, and that
/// end was told first.
#[test]
fn a_barrier_ends_at_its_deadline_whatever_becomes_of_the_word_to_who_does_not_come() {
    let until = Nanos::millis(1);
    let mut mesh = mesh(1, dead(2));
    let told = meet(&mut mesh, 0, 5, until);
    let _ = meet(&mut mesh, 1, 5, until);
    mesh.run(LATE);
    let (result, at) = told.lock().unwrap().pop().expect("its end");
    let failed = result.expect_err("one did not come");
    let [(PeerId(2), TransferError::Missing { imm: 5, got: 0, want: 1, .. })] = failed[..] else {
        panic!("expected peer 2 to be missing, got {failed:?}");
    };
    assert_eq!(at, until);
    // No fence is proved, and the word to it ends so before the deadline.
    let mut mesh = mesh_where(1, dead(2), 0, 1);
    let told = meet(&mut mesh, 0, 5, Nanos::millis(300));
    mesh.run(LATE);
    let (result, _) = told.lock().unwrap().pop().expect("its end");
    let first = result.expect_err("none came").into_iter().find(|(peer, _)| *peer == PeerId(2));
    assert!(matches!(first, Some((_, TransferError::Missing { .. }))), "{first:?}");
}
