//! What a combine puts on the wire, as the soft NICs' ports count it.

use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::{Case, expert};
use shunt_deep_ep_bridge::{Format, MoeError};
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{RankBuffer, all, cases, patience, spec, start};
use std::rc::Rc;

const RANKS: u32 = 2;

fn layers(buffer: &mut RankBuffer, case: &Case, manner: Option<Manner>) -> Result<Vec<String>, MoeError> {
    let Some(manner) = manner else {
        let sent = layer::send(buffer, case)?;
        buffer.receive_dispatch(sent)?;
        return Ok(Vec::new());
    };
    layer::run(buffer, case, manner)
}

/// Bytes that all ports sent, of a dispatch and, unless `manner` is none, a combine.
fn sent(case: &Rc<Case>, manner: Option<Manner>) -> u64 {
    let spec = spec(&case.shape, 1);
    let cluster = Cluster::start(&spec);
    let tasks: Vec<_> = (0..RANKS)
        .map(|rank| {
            let case = case.clone();
            start(&cluster, case.shape, rank, patience(&spec), move |buffer, _| layers(buffer, &case, manner))
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{manner:?}: {}", wrongs.join("\n"));
    let ports = (0..RANKS).flat_map(|pe| (0..spec.rails).map(move |rail| (pe, rail)));
    ports.map(|(pe, rail)| cluster.counters(pe, rail).bytes_tx).sum()
}

/// Rows that come back from the other rank, and their groups that reach one.
fn rows(case: &Case) -> (u64, u64) {
    let (mut rows, mut wholes) = (0, 0);
    for rank in 0..RANKS {
        let local = u64::from(case.shape.local_experts);
        let others = (0..case.shape.experts()).filter(|of| of / local != u64::from(rank));
        for (of, token) in
            others.flat_map(|of| case.chosen(rank, of).into_iter().map(move |token| (of, token)))
        {
            let made = |bits: &u32| f32::from_bits(u32::from(expert(of, f32::from_bits(*bits))) << 16);
            let reaches = |group: &&[u32]| group.iter().any(|bits| made(bits).abs() >= 1.0);
            wholes += case.sent(rank, token).values.chunks(128).filter(reaches).count() as u64;
            rows += 1;
        }
    }
    (rows, wholes)
}

/// Groups that come back, and those that reach one; what LogFMT saves is what its layout says.
fn hold(case: Case) -> (u64, u64) {
    let (rows, wholes) = rows(&case);
    let case = Rc::new(case);
    let dispatch = sent(&case, None);
    let combine = |manner| sent(&case, Some(manner)) - dispatch;
    let (bf16, log) = (combine(Manner::Copied), combine(Manner::LogFmt));
    let groups = rows * case.shape.scales();
    eprintln!("soft NIC: {rows} rows, {wholes} of {groups} groups reach 1: BF16 {bf16} bytes, LogFMT {log}");
    // What both send beside rows is the same: flags and credits.
    assert_eq!(bf16 - log, rows * case.shape.bf16_bytes() - groups * 164 - wholes * 96);
    (groups, wholes)
}

#[test]
fn logfmt_saves_what_its_layout_says() {
    let shape = Shape::new(RANKS, 8, 16, 7168).unwrap();
    let case = || cases(shape, 4, Format::Bf16, 3, 1).remove(0);
    let (groups, wholes) = hold(case());
    assert!(0 < wholes && wholes < groups, "{wholes} of {groups} groups: expected some that reach 1");
    assert_eq!(hold(case().smaller(8192.0)).1, 0);
}
