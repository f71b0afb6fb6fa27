//! What is refused, and a buffer that was broken off.

use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::{Buffer, Format, MoeError, Patience, Runner, size_hint};
use shunt_device::FaultKind;
use shunt_kernels::moe::Stage;
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{BASE, Lane, RankBuffer, all, cases, patience, pause, spec, start};

fn text<T>(said: Result<T, MoeError>) -> String {
    said.err().expect("it is refused").to_string()
}

fn refusals(buffer: &mut RankBuffer) -> Vec<(&'static str, String)> {
    let row = vec![0u16; 512];
    let sent = buffer.dispatch(&row, &[0, 3], Format::Bf16).expect("this one is right");
    let second = buffer.dispatch(&row, &[0, 3], Format::Bf16).expect("and a second one");
    let mut met = vec![
        ("multiple of 512", text(buffer.dispatch(&row[..500], &[0], Format::Bf16))),
        ("receiving one first", text(buffer.dispatch(&row, &[0], Format::Bf16))),
        ("in the order", text(buffer.receive_dispatch(&second))),
    ];
    let received = buffer.receive_dispatch(sent).expect("in order");
    met.extend([
        ("4 at most", text(buffer.dispatch(&vec![0; 5 * 512], &[0; 5], Format::Bf16))),
        ("1 to 11", text(buffer.dispatch(&row, &[0; 12], Format::Bf16))),
        ("below 4", text(buffer.dispatch(&row, &[4], Format::Bf16))),
        ("next_combine_buffer", text(buffer.combine(None, &[1.0; 2], &received.handle))),
        ("topk weights: 1", text(buffer.combine(Some(&vec![0; 2 * 8 * 512]), &[1.0], &received.handle))),
        ("all local experts: 512", text(buffer.combine(Some(&row), &[1.0; 2], &received.handle))),
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
        if right.starts_with("multiple") || right.starts_with("receiving") {
            // Both are right to say: two calls are under way.
            assert!(met.contains("receiving one first") || met.contains(right), "{right}: {met}");
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
    assert!(large.contains("a larger heap"), "{large}");
    assert!(odd.contains("a multiple of 16"), "{odd}");
    assert!(far.contains("a larger heap"), "{far}");
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
                    let named = (fault.stage, fault.fault.kind, fault.fault.peer);
                    if named != (Stage::DispatchReceive, FaultKind::Overdue, 2) || fault.path.is_none() {
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
