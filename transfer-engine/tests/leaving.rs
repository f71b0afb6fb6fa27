//! A peer that is cut off: nothing of it lands after that, whatever it does, and everything that was begun ends.

use crate::several::{LATE, Mesh, NODES, RAILS, SEEDS, Told, faults, mesh};
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{OnDone, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::sim::Rng;
use std::sync::Arc;

const MARK: u8 = 0xee;
/// Bytes that each peer writes, from its own place on.
const EACH: u64 = 16 * 100;

#[test]
fn nothing_of_a_peer_lands_once_it_is_cut_off_and_all_that_was_begun_ends() {
    let (mut cut_short, mut hits) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut mesh = mesh(seed, faults(&mut rng));
        let (ended, reached, left) = (Told::default(), Told::default(), Told::<()>::default());
        // Both others write to node 0, which cuts node 1 off, and not node 2.
        for from in 1..NODES {
            mesh.sim.write(from, 0, &[from as u8; EACH as usize]);
            for number in 0..100 {
                let (own, target) = (mesh.regions[from as usize].0.clone(), mesh.regions[0].1.clone());
                let (at, to) = (16 * number, u64::from(from) * EACH + 16 * number);
                let write =
                    Write { peer: PeerId(0), len: 16, imm: Some(1), from: (&own, at), to: (&target, to) };
                let told = Arc::clone(&ended);
                let done = OnDone::Call(Box::new(move |end| told.lock().unwrap().push((from, end))));
                mesh.engines[from as usize].submit_write(mesh.sim.now(), &write, done).expect("it fits");
            }
            let told = Arc::clone(&reached);
            let done = Box::new(move |result| told.lock().unwrap().push((from, result)));
            mesh.engines[0].expect((PeerId(from), 1), 100, LATE, done).expect("it is new");
        }
        mesh.run(Nanos::new(rng.below(100_000)));
        let told = Arc::clone(&left);
        let done = Box::new(move || told.lock().unwrap().push(()));
        assert!(mesh.engines[0].leave(mesh.sim.now(), PeerId(1), done));
        assert!(!mesh.engines[0].leave(mesh.sim.now(), PeerId(1), Box::new(|| ())), "it leaves already");
        while left.lock().unwrap().is_empty() {
            let until = mesh.sim.now() + Nanos::new(1_000);
            mesh.run(until);
            assert!(until < LATE, "seed {seed}: it was cut off");
        }
        mesh.sim.write(0, EACH, &[MARK; EACH as usize]);
        let until = mesh.sim.now() + Nanos::new(rng.below(1_000_000));
        mesh.run(until);
        // The other one learns of it, as by the end of a connection.
        mesh.engines[1].leave(mesh.sim.now(), PeerId(0), Box::new(|| ()));
        mesh.run(LATE);
        assert!(
            mesh.sim.read(0, EACH, EACH) == [MARK; EACH as usize],
            "seed {seed}: it wrote after it was cut off"
        );
        let ended = ended.lock().unwrap();
        assert_eq!(ended.len(), 200, "seed {seed}");
        for (from, end) in &*ended {
            let may = matches!(
                end.result,
                Ok(()) | Err(TransferError::PeerLeft { .. } | TransferError::Uncertain { .. })
            );
            let is_lost = matches!(end.result, Err(TransferError::PeerLost { .. }));
            assert!(end.quiesced.is_some() && (may || is_lost), "seed {seed}: {from}: {end:?}");
            let is_cut = matches!(end.result, Err(TransferError::PeerLeft { .. }));
            assert!(!is_cut || *from == 1, "seed {seed}: {from}: {end:?}");
            cut_short += u64::from(is_cut);
        }
        let reached = reached.lock().unwrap();
        assert_eq!(reached.len(), 2, "seed {seed}: {reached:?}");
        hits += mesh.sim.counts().hits;
        // What is begun later ends at once.
        let told = Told::default();
        let to = Arc::clone(&told);
        let done = OnDone::Call(Box::new(move |end| to.lock().unwrap().push(end.result)));
        mesh.engines[0].submit_send(mesh.sim.now(), PeerId(1), b"late", done).expect("short");
        mesh.run(mesh.sim.now() + Nanos::new(1_000));
        let told = told.lock().unwrap();
        assert!(matches!(told[..], [Err(TransferError::PeerLeft { .. })]), "seed {seed}: {told:?}");
    }
    assert!(cut_short > 0 && hits > 0, "{cut_short} were cut short, {hits} faults");
    assert_eq!(RAILS, 2, "more than one lane to each");
}

#[test]
fn nothing_is_kept_of_a_peer_that_was_cut_off_also_of_what_comes_later() {
    let mut late = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed ^ 0x1eaf);
        let mut mesh = mesh(seed, faults(&mut rng));
        let (own, target) = (mesh.regions[1].0.clone(), mesh.regions[0].1.clone());
        for number in 0..50 {
            let (from, to) = ((&own, 16 * number), (&target, 16 * number));
            let write = Write { peer: PeerId(0), len: 16, imm: Some(number as u32), from, to };
            mesh.engines[1].submit_write(mesh.sim.now(), &write, OnDone::None).expect("it fits");
            mesh.engines[1].submit_send(mesh.sim.now(), PeerId(0), b"text", OnDone::None).expect("short");
        }
        mesh.run(Nanos::new(rng.below(150_000)));
        let left = Told::<()>::default();
        let told = Arc::clone(&left);
        mesh.engines[0].leave(mesh.sim.now(), PeerId(1), Box::new(move || told.lock().unwrap().push(())));
        while left.lock().unwrap().is_empty() {
            let until = mesh.sim.now() + Nanos::new(100);
            mesh.run(until);
        }
        let kept = |mesh: &mut Mesh| {
            let counts = (0..50).map(|imm| mesh.engines[0].counter(PeerId(1), imm)).sum::<u64>();
            counts + std::iter::from_fn(|| mesh.engines[0].take_message()).count() as u64
        };
        // Messages that came before belong to the program.
        kept(&mut mesh);
        let executed = mesh.sim.counts().executed;
        mesh.run(LATE);
        late += u64::from(mesh.sim.counts().late > 0 || mesh.sim.counts().executed > executed);
        assert_eq!(kept(&mut mesh), 0, "seed {seed}");
    }
    assert!(late > 0, "nothing came late in {SEEDS} seeds");
}
