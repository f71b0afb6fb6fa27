//! Calls up to the last number that words of the exchange hold.

use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::{Format, MoeError, Runner, Signals};
use shunt_device::FaultKind;
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::moe::{CALLS_MAX, Shape};
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{BASE, all, cases, patience, spec, start};

fn numbers<T>(said: Result<T, MoeError>) -> String {
    match said {
        Err(error @ MoeError::Numbers { .. }) => error.to_string(),
        Err(error) => format!("another error: {error}"),
        Ok(_) => "it was not refused".to_owned(),
    }
}

#[test]
fn layers_are_right_up_to_the_last_number_and_refused_behind_it() {
    for signals in [Signals::Cleared, Signals::Absolute] {
        let shape = Shape::new(2, 4, 3, 512).unwrap();
        let spec = spec(&shape, 7);
        let cluster = Cluster::start(&spec);
        let patience = shunt_deep_ep_bridge::Patience { signals, ..patience(&spec) };
        let tasks: Vec<_> = (0..2)
            .map(|rank| {
                let cases = cases(shape, 2, Format::Fp8, 7, 4);
                start(&cluster, shape, rank, patience, move |buffer, _| {
                    let mut met =
                        vec![(numbers(buffer.count_from(CALLS_MAX + 1)), "number 4294967296 was to come")];
                    buffer.count_from(CALLS_MAX - 1 - 6)?;
                    let mut wrongs = Vec::new();
                    for case in &cases[..3] {
                        wrongs.extend(layer::run(buffer, case, Manner::ZeroCopy)?);
                    }
                    met.push((numbers(layer::send(buffer, &cases[3])), "4294967294 is the last"));
                    met.push((numbers(buffer.next_combine_buffer()), "4294967294 is the last"));
                    // One meeting behind it, and nothing more.
                    buffer.clean()?;
                    met.push((numbers(layer::send(buffer, &cases[3])), "4294967294 is the last"));
                    met.push((numbers(buffer.clean()), "call number 4294967296"));
                    wrongs.extend(
                        met.into_iter().filter(|(met, right)| !met.contains(right)).map(|(met, _)| met),
                    );
                    match buffer.count_from(1) {
                        Err(MoeError::Order(_)) => {}
                        other => wrongs.push(format!("counted already: {other:?}")),
                    }
                    Ok(wrongs)
                })
            })
            .collect();
        let wrongs = all(cluster.sim.finish_all(&tasks));
        assert!(wrongs.is_empty(), "{signals:?}: {}", wrongs.join("\n"));
    }
}

/// What a graph replays has its number in memory that no host looks at: the kernel does.
#[test]
fn a_replay_behind_the_last_number_is_refused_by_the_kernel() {
    let shape = Shape::new(2, 4, 3, 512).unwrap();
    let spec = spec(&shape, 8);
    let cluster = Cluster::start(&spec);
    let ended = start(&cluster, shape, 0, patience(&spec), move |buffer, _| {
        [CALLS_MAX - 1, CALLS_MAX, u64::MAX - 1].map(|before| {
            let call = MoeCall {
                shape,
                base: BASE,
                call: 1,
                before: &raw const before as u64,
                // Nobody is waited for.
                floor: before,
                timeout_ns: 1_000_000,
                slice_ns: 1_000_000,
                blocks: 1,
                ..MoeCall::default()
            };
            buffer.runner().run(Stage::Room, &call).as_fault().map(|fault| fault.kind)
        })
    });
    let bad = Some(FaultKind::BadAddress);
    assert_eq!(cluster.sim.finish(&ended), [None, bad, bad]);
}
