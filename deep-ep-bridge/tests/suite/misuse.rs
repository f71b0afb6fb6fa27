//! What is refused, and a buffer that was broken off.

use shunt_deep_ep_bridge::fault::At;
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::{Buffer, Format, MoeError, Patience, Runner, size_hint};
use shunt_device::FaultKind;
use shunt_kernels::moe::Stage;
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{BASE, Lane, RankBuffer, all, cases, patience, pause, spec, start};
use std::cell::Cell;
use std::rc::Rc;

fn text<T>(said: Result<T, MoeError>) -> String {
    said.err().expect("it is refused").to_string()
}

fn refusals(buffer: &mut RankBuffer) -> Vec<(&'static str, String)> {
    let row = vec![0u16; 512];
    let sent = buffer.dispatch(&row, &[0, 3], Format::Bf16).expect("this one is accepted");
    let second = buffer.dispatch(&row, &[0, 3], Format::Bf16).expect("and a second one");
    let mut met = vec![
        ("multiple of 512", text(buffer.dispatch(&row[..500], &[0], Format::Bf16))),
        ("receive one first", text(buffer.dispatch(&row, &[0], Format::Bf16))),
        ("in the order", text(buffer.receive_dispatch(&second))),
    ];
    let received = buffer.receive_dispatch(sent).expect("in order");
    met.extend([
        ("4 at most", text(buffer.dispatch(&vec![0; 5 * 512], &[0; 5], Format::Bf16))),
        ("1 to 11", text(buffer.dispatch(&row, &[0; 12], Format::Bf16))),
        ("below 4", text(buffer.dispatch(&row, &[4], Format::Bf16))),
        ("next_combine_buffer", text(buffer.combine(None, &[1.0; 2], &received.handle))),
        (
            "topk weights: expected 2, got 1",
            text(buffer.combine(Some(&vec![0; 2 * 8 * 512]), &[1.0], &received.handle)),
        ),
        ("got 512", text(buffer.combine(Some(&row), &[1.0; 2], &received.handle))),
        ("below 2, and not", text(buffer.set_mask(2, true))),
        ("and not", text(buffer.set_mask(buffer.runner().rank(), true))),
    ]);
    // What was refused is not lost.
    buffer.receive_dispatch(second).expect("in its turn");
    met
}

#[test]
fn what_cannot_be_is_refused_and_says_what_would_be_right() {
    let shape = Shape::new(2, 4, 4, 512).unwrap();
    let spec = spec(&shape, 1);
    let cluster = Cluster::start(&spec);
    let tasks: Vec<_> = (0..2)
        .map(|rank| start(&cluster, shape, rank, patience(&spec), |buffer, _| refusals(buffer)))
        .collect();
    for (right, met) in cluster.sim.finish_all(&tasks).into_iter().flatten() {
        if right.starts_with("multiple") || right.starts_with("receive") {
            // Both are right to say: two calls are under way.
            assert!(met.contains("receive one first") || met.contains(right), "{right}: {met}");
            continue;
        }
        assert!(met.contains(right), "{right}: {met}");
    }
    assert!(text(size_hint(4, 500, 2, 4)).contains("multiple of 512"));
}

#[test]
fn a_buffer_that_does_not_fit_is_refused() {
    let shape = Shape::new(2, 4, 4, 512).unwrap();
    let spec = spec(&shape, 1);
    let cluster = Cluster::start(&spec);
    let said = start(&cluster, shape, 0, patience(&spec), |buffer, kernel| {
        // As an earlier buffer would have left it: this rank took a call.
        let credit = buffer.runner().address(BASE + buffer.shape().credit(0).0) as *mut u64;
        // SAFETY: an aligned word of the heap, which outlives the task; only kernels of this rank write it.
        let credit = unsafe { std::sync::atomic::AtomicU64::from_ptr(credit) };
        let heap_bytes = buffer.runner().heap_bytes();
        let lane = || Lane::other(kernel, heap_bytes);
        let new = |base, tokens| Buffer::new(lane(), base, tokens, 512, 4, Patience::default()).map(|_| ());
        assert!(new(BASE, 4).is_ok());
        credit.store(57, std::sync::atomic::Ordering::Release);
        (text(new(4096, 4000)), text(new(8, 4)), text(new(!15, 4)), text(new(BASE, 4)))
    });
    let (large, odd, far, used) = cluster.sim.finish(&said);
    assert!(used.contains("that no buffer was in"), "{used}");
    assert!(large.contains("make the heap larger"), "{large}");
    assert!(odd.contains("a multiple of 16"), "{odd}");
    assert!(far.contains("make the heap larger"), "{far}");
}

/// A peer that does not come: a typed fault by the deadline, then a buffer that is refused until all have cleaned it.
#[test]
fn a_peer_that_is_late_is_named_and_cleaning_mends_the_buffer() {
    let shape = Shape::new(3, 6, 4, 512).unwrap();
    let spec = spec(&shape, 2);
    let cluster = Cluster::start(&spec);
    let waits = Patience { timeout_ns: 200_000_000, ..patience(&spec) };
    let tasks: Vec<_> = (0..3)
        .map(|rank| {
            let cases = cases(shape, 2, Format::Fp8, 3, 6);
            start(&cluster, shape, rank, waits, move |buffer, kernel| {
                let mut wrongs = layer::run(buffer, &cases[0], Manner::default())?;
                if rank == 2 {
                    // It comes to clean, and does nothing else.
                    pause(kernel, 300_000_000);
                } else {
                    let before = kernel.world.now();
                    let fault = match layer::run(buffer, &cases[1], Manner::default()) {
                        Err(MoeError::Fault(fault)) => fault,
                        other => return Ok(vec![format!("rank {rank}: no fault but {other:?}")]),
                    };
                    let took = kernel.world.now() - before;
                    let named = (fault.at, fault.fault.kind, fault.fault.peer);
                    if named != (At::Stage(Stage::DispatchReceive), FaultKind::Overdue, 2)
                        || fault.path.is_none()
                    {
                        wrongs.push(format!("rank {rank}: {fault}"));
                    }
                    if !(200_000_000..400_000_000).contains(&took) {
                        wrongs.push(format!("rank {rank}: the wait took {took} ns"));
                    }
                    match layer::send(buffer, &cases[2]) {
                        Err(MoeError::Broken) => {}
                        _ => wrongs.push(format!("rank {rank}: a broken buffer sends")),
                    }
                    pause(kernel, 200_000_000);
                }
                buffer.clean()?;
                for case in &cases[3..] {
                    wrongs.extend(layer::run(buffer, case, Manner::default())?);
                }
                Ok(wrongs)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// A rank that is left out by all others: they go on, and its experts count nothing.
#[test]
fn a_rank_that_is_masked_is_left_out() {
    let shape = Shape::new(4, 8, 4, 512).unwrap();
    let spec = spec(&shape, 2);
    let cluster = Cluster::start(&spec);
    let tasks: Vec<_> = (0..3)
        .map(|rank| {
            let cases = cases(shape, 4, Format::Bf16, 3, 4);
            start(&cluster, shape, rank, patience(&spec), move |buffer, _| {
                buffer.set_mask(3, true)?;
                let mut wrongs = Vec::new();
                for case in &cases {
                    wrongs.extend(layer::run(buffer, case, Manner::default())?);
                }
                if buffer.mask() != [false, false, false, true] {
                    wrongs.push(format!("rank {rank}: mask {:?}", buffer.mask()));
                }
                Ok(wrongs)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// Who was left out counted half of what came: a buffer that takes a rank in again is broken until all have cleaned.
#[test]
fn a_rank_that_is_taken_in_again_breaks_the_buffer_until_it_is_cleaned() {
    let shape = Shape::new(2, 4, 4, 512).unwrap();
    let spec = spec(&shape, 4);
    let cluster = Cluster::start(&spec);
    let tasks: Vec<_> = (0..2)
        .map(|rank| {
            let cases = cases(shape, 2, Format::Fp8, 5, 3);
            start(&cluster, shape, rank, patience(&spec), move |buffer, _| {
                let mut wrongs = layer::run(buffer, &cases[0], Manner::default())?;
                // Nobody was left out: that changes nothing.
                buffer.set_mask(1 - rank, false)?;
                wrongs.extend(layer::run(buffer, &cases[1], Manner::default())?);
                buffer.set_mask(1 - rank, true)?;
                buffer.set_mask(1 - rank, false)?;
                match layer::send(buffer, &cases[2]) {
                    Err(MoeError::Broken) => {}
                    _ => wrongs.push(format!("rank {rank}: sends, and counts from an unknown place")),
                }
                buffer.clean()?;
                wrongs.extend(layer::run(buffer, &cases[2], Manner::default())?);
                Ok(wrongs)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// What one buffer handed out is another's neither to receive nor to answer; it is not lost to its own.
#[test]
fn what_another_buffer_handed_out_is_refused() {
    let shape = Shape::new(2, 4, 4, 512).unwrap();
    let mut spec = spec(&shape, 1);
    // Room for two.
    spec.traffic.slot_bytes *= 2;
    let cluster = Cluster::start(&spec);
    let waits = patience(&spec);
    let tasks: Vec<_> = (0..2)
        .map(|rank| {
            let cases = cases(shape, 2, Format::Bf16, 6, 1);
            start(&cluster, shape, rank, waits, move |buffer, kernel| {
                let lane = Lane::of(kernel, rank, (2, 1), buffer.runner().heap_bytes());
                let at = (BASE + buffer.shape().bytes()).next_multiple_of(128);
                let mut other = Buffer::new(lane, at, 4, 512, 4, waits)?;
                let sent = layer::send(buffer, &cases[0])?;
                let dispatch = text(other.receive_dispatch(&sent));
                let received = buffer.receive_dispatch(sent)?;
                let weights = &cases[0].topk_weights[rank as usize];
                let made = vec![0; 2 * 8 * 512];
                let handle = text(other.combine(Some(&made), weights, &received.handle));
                let mut wrongs = layer::check_received(buffer, &cases[0], &received);
                let sent = layer::answer(buffer, &cases[0], received, Manner::default())?;
                let combine = text(other.receive_combine(&sent));
                let combined = buffer.receive_combine(sent)?;
                wrongs.extend(layer::check_combined(buffer, &cases[0], &combined));
                for (said, right) in
                    [(dispatch, "what was sent"), (handle, "a handle"), (combine, "what was sent")]
                {
                    if !said.contains(right) || !said.contains("this buffer's own") {
                        wrongs.push(format!("rank {rank}: {said}"));
                    }
                }
                // And it is as good as new.
                wrongs.extend(layer::run(&mut other, &cases[0], Manner::default())?);
                Ok(wrongs)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// The buffer that experts may write is still sent from until the peer has taken the call before the last.
#[test]
fn the_zero_copy_buffer_is_lent_once_its_last_call_is_taken() {
    let shape = Shape::new(2, 4, 4, 512).unwrap();
    let spec = spec(&shape, 1);
    let cluster = Cluster::start(&spec);
    let taken = Rc::new(Cell::new(false));
    let tasks: Vec<_> = (0..2)
        .map(|rank| {
            let (cases, taken) = (cases(shape, 2, Format::Bf16, 8, 2), taken.clone());
            start(&cluster, shape, rank, patience(&spec), move |buffer, kernel| {
                let sent = (layer::send(buffer, &cases[0])?, layer::send(buffer, &cases[1])?);
                if rank == 1 {
                    pause(kernel, 5_000_000);
                    taken.set(true);
                }
                let received = buffer.receive_dispatch(sent.0)?;
                let mut wrongs = Vec::new();
                if rank == 0 {
                    // Rank 1 sent both calls and has taken none yet.
                    wrongs.extend(taken.get().then(|| "rank 1 was too early for this test".to_owned()));
                }
                let second = buffer.receive_dispatch(sent.1)?;
                if rank == 0 {
                    buffer.next_combine_buffer()?;
                    wrongs.extend((!taken.get()).then(|| "lent while it may still be sent from".to_owned()));
                }
                let case = (&cases[0], &cases[1]);
                let first = layer::answer(buffer, case.0, received, Manner::ZeroCopy)?;
                let second = layer::answer(buffer, case.1, second, Manner::ZeroCopy)?;
                let combined = buffer.receive_combine(first)?;
                wrongs.extend(layer::check_combined(buffer, case.0, &combined));
                let combined = buffer.receive_combine(second)?;
                wrongs.extend(layer::check_combined(buffer, case.1, &combined));
                Ok(wrongs)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}
