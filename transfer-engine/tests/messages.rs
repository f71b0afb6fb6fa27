//! Messages between engines of a network that fails by seed: in order, each once, none lost whose sender was told that
//! it is there. And transfers that name memory which the peer does not have.

use crate::several::{LATE, Mesh, NODES, RAILS, SEEDS, Told, faults, mesh, mesh_where};
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{OnDone, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::message::PART_BYTES;
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_engine::sim::{Rng, key};
use shunt_transfer_engine::transfer::Cancel;
use std::sync::Arc;

/// A message that was sent: from where, to where, which one, how it ended.
struct Sent {
    from: u32,
    to: u32,
    number: u32,
    id: TransferId,
    ended: Told<Result<(), TransferError>>,
}

fn bytes(number: u32, len: u64) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(4 + len as usize, number as u8);
    bytes
}

fn send(mesh: &mut Mesh, rng: &mut Rng, number: u32) -> Sent {
    let from = rng.below(NODES.into()) as u32;
    let to = (from + 1 + rng.below(u64::from(NODES) - 1) as u32) % NODES;
    let message = bytes(number, rng.below(3 * PART_BYTES as u64));
    let ended = Told::default();
    let told = Arc::clone(&ended);
    let done = OnDone::Call(Box::new(move |end| told.lock().unwrap().push(end.result)));
    let id = mesh.engines[from as usize].submit_send(mesh.sim.now(), PeerId(to), &message, done);
    Sent { from, to, number, id: id.expect("short"), ended }
}

#[test]
fn messages_arrive_in_order_and_once_whatever_fails() {
    let (mut delivered, mut lost, mut cancelled, mut hits) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let (no_truth, unproven) = (3 * rng.below(2), 3 * rng.below(2));
        let mut mesh = mesh_where(seed, faults(&mut rng), no_truth, unproven);
        let mut sent = Vec::new();
        for number in 0..rng.between(1, 60) as u32 {
            sent.push(send(&mut mesh, &mut rng, number));
            if rng.one_in(10) {
                let (last, how) = (&sent[sent.len() - 1], [Cancel::Unposted, Cancel::Now]);
                let how = how[rng.below(2) as usize];
                cancelled += u64::from(mesh.engines[last.from as usize].cancel(mesh.sim.now(), last.id, how));
            }
            let until = mesh.sim.now() + Nanos::new(rng.below(100_000));
            mesh.run(until);
        }
        mesh.run(LATE);
        for (to, engine) in mesh.engines.iter_mut().enumerate() {
            let taken: Vec<_> = std::iter::from_fn(|| engine.take_message()).collect();
            for from in 0..NODES {
                let theirs = taken.iter().filter(|(peer, _)| peer.0 == from);
                let got: Vec<u32> = theirs
                    .map(|(_, message)| {
                        let number = u32::from_be_bytes(message[..4].try_into().unwrap());
                        let same = *message == bytes(number, message.len() as u64 - 4);
                        assert!(same, "seed {seed}: message {number} has other bytes");
                        number
                    })
                    .collect();
                assert!(got.is_sorted_by(|a, b| a < b), "seed {seed}: {from} to {to}: {got:?}");
                for one in sent.iter().filter(|one| (one.from, one.to) == (from, to as u32)) {
                    let ended = one.ended.lock().unwrap();
                    let [end] = &ended[..] else { panic!("seed {seed}: expected one end, got {ended:?}") };
                    let came = got.contains(&one.number);
                    assert!(came || end.is_err(), "seed {seed}: message {} was lost", one.number);
                    delivered += u64::from(came);
                    lost += u64::from(!came);
                }
            }
        }
        hits += mesh.sim.counts().hits;
    }
    assert!(
        delivered > 0 && lost > 0 && cancelled > 0 && hits > 0,
        "{delivered} delivered, {lost} not, {cancelled} cancelled, {hits} faults"
    );
}

#[test]
fn a_transfer_to_memory_that_the_peer_does_not_have_is_refused_and_harms_no_other() {
    let mut denied = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut mesh = mesh(seed, faults(&mut rng));
        let keys: Vec<_> = (0..RAILS).map(|rail| key(1, rail) + 7).collect();
        let taken_back = Mr::new(0, 4096, &keys).expect("a region").describe(Rights::Write);
        let (told, bad) = (Told::default(), rng.below(20));
        for number in 0..20u64 {
            let target = if number == bad { taken_back.clone() } else { mesh.regions[1].1.clone() };
            let (from, at) = (mesh.regions[0].0.clone(), 16 * number);
            mesh.sim.write(0, at, &[1 + number as u8; 16]);
            let write = Write { peer: PeerId(1), len: 16, imm: None, from: (&from, at), to: (&target, at) };
            let told = Arc::clone(&told);
            let done = OnDone::Call(Box::new(move |end| told.lock().unwrap().push((number, end))));
            mesh.engines[0].submit_write(mesh.sim.now(), &write, done).expect("it fits");
        }
        mesh.run(LATE);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 20, "seed {seed}");
        for (number, end) in &*told {
            let is_denied = matches!(end.result, Err(TransferError::Denied { .. }));
            let is_lost = matches!(end.result, Err(TransferError::PeerLost { .. }));
            assert!(
                end.quiesced.is_some() && (is_denied || is_lost || *number != bad),
                "seed {seed}: {end:?}"
            );
            assert!(!is_denied || *number == bad, "seed {seed}: {number} of {bad}: {end:?}");
            let came = mesh.sim.read(1, 16 * number, 16) == [1 + *number as u8; 16];
            assert!(came || end.result.is_err(), "seed {seed}: {number}");
            denied += u64::from(is_denied);
        }
    }
    assert!(denied > SEEDS / 2, "{denied}");
}
