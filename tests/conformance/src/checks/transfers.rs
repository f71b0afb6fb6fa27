//! One request at a time: kinds, sizes, offsets, lists, inline data, atomics.

use super::bench::{Bench, LARGEST, Link, Row, finish, good, takes_receive};
use crate::verbs::{Api, Op, Request, Shape};
use anyhow::{Context, Result};
use shunt_mlx5_sys as sys;
use std::ops::Range;

/// Powers of two from 1 B to 8 MiB, and odd lengths between them.
fn sizes(bench: &mut Bench) -> Vec<usize> {
    let mut sizes = vec![0];
    for shift in 0..=23 {
        let size = 1 << shift;
        sizes.push(size);
        if size > 2 && size < LARGEST {
            sizes.push(size + 1 + bench.draw.below(size as u64 - 1) as usize);
        }
    }
    sizes
}

pub(super) fn run(bench: &mut Bench, tell: &mut dyn FnMut(Row)) -> Result<()> {
    for api in Api::ALL {
        let mut link = bench.link(Shape::default())?;
        for (name, op) in kinds() {
            let mut row = Row::new(format!("{name}, {api:?}, by size").to_lowercase());
            for size in sizes(bench) {
                let near = vec![bench.place(size)];
                let far = vec![bench.place(size)];
                transfer(bench, &mut link, &mut row, &Plan { op, near, far, inline: false, api })?;
            }
            tell(row);
        }
        tell(inline(bench, &mut link, api)?);
        tell(lists(bench, &mut link, api)?);
        tell(atomics(bench, &mut link, api)?);
        bench.unlink(link)?;
    }
    Ok(())
}

fn kinds() -> [(&'static str, Op); 5] {
    [
        ("write", Op::Write),
        ("write with immediate", Op::WriteImm(0x1234_5678)),
        ("send", Op::Send),
        ("send with immediate", Op::SendImm(0x89ab_cdef)),
        ("read", Op::Read),
    ]
}

/// A transfer: which bytes, and how.
struct Plan {
    op: Op,
    near: Vec<Range<usize>>,
    far: Vec<Range<usize>>,
    inline: bool,
    api: Api,
}

/// Does one, and looks at every byte.
fn transfer(bench: &mut Bench, link: &mut Link, row: &mut Row, plan: &Plan) -> Result<()> {
    let bytes: usize = plan.near.iter().map(Range::len).sum();
    let what = format!("{:?} of {bytes} B in {} parts", plan.op, plan.near.len());
    let local = plan.near.iter().map(|part| bench.region.sge(part.clone())).collect();
    let remote = bench.remote(plan.far[0].start);
    let request = Request { inline: plan.inline, id: bench.id(), ..Request::new(plan.op, local, remote) };
    let receive = bench.id();
    if takes_receive(plan.op) {
        let into: &[Range<usize>] = if matches!(plan.op, Op::WriteImm(_)) { &[] } else { &plan.far };
        bench.peer.receive(link.far, receive, into)?;
    }
    let done = finish(link, &request, plan.api).context(what.clone())?;
    row.count(bytes);
    good(row, &what, &request, &done);
    if plan.op == Op::Read {
        row.must(done.bytes as usize == bytes, || format!("{what}: reported as {} B", done.bytes));
        let source = bench.peer.mirror(plan.far[0].clone())?;
        let mut rest = &source[..];
        for part in &plan.near {
            let (now, later) = rest.split_at(part.len());
            bench.region.expect(part.start, now);
            rest = later;
        }
    } else {
        let data: Vec<u8> =
            plan.near.iter().flat_map(|part| bench.region.mirror(part.clone()).to_vec()).collect();
        let mut rest = &data[..];
        for part in &plan.far {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            bench.peer.expect(part.start, now)?;
            rest = later;
        }
    }
    if takes_receive(plan.op) {
        received(bench, link, row, plan, (receive, bytes))?;
    }
    bench.look(row, &what)
}

/// The far side's completion.
fn received(
    bench: &mut Bench,
    link: &Link,
    row: &mut Row,
    plan: &Plan,
    (id, bytes): (u64, usize),
) -> Result<()> {
    let got = bench.peer.wait(link.far).with_context(|| format!("{:?} of {bytes} B", plan.op))?;
    let opcode =
        if matches!(plan.op, Op::WriteImm(_)) { sys::IBV_WC_RECV_RDMA_WITH_IMM } else { sys::IBV_WC_RECV };
    let met = (got.id, got.status, got.opcode, got.bytes as usize, got.imm);
    let want = (id, 0, opcode, bytes, plan.op.immediate());
    row.must(met == want, || format!("{:?}: received {met:?}, not {want:?}", plan.op));
    Ok(())
}

/// Every inline length.
fn inline(bench: &mut Bench, link: &mut Link, api: Api) -> Result<Row> {
    let mut row = Row::new(format!("inline, {api:?}, every length").to_lowercase());
    for bytes in 0..=link.queue.inline_max() as usize {
        let op = [Op::Write, Op::Send, Op::WriteImm(7)][bytes % 3];
        // Of several buffers, too: libmlx5 puts them together.
        let split =
            if bytes > 8 && bench.draw.coin() { vec![bytes / 3, bytes - bytes / 3] } else { vec![bytes] };
        let near = bench.places(&split);
        let far = vec![bench.place(bytes)];
        transfer(bench, link, &mut row, &Plan { op, near, far, inline: true, api })?;
    }
    Ok(row)
}

/// Gathers and scatters.
fn lists(bench: &mut Bench, link: &mut Link, api: Api) -> Result<Row> {
    let mut row = Row::new(format!("lists of buffers, {api:?}").to_lowercase());
    for round in 0..40 {
        let op = [Op::Write, Op::Read, Op::Send, Op::SendImm(round)][round as usize % 4];
        let parts = 2 + bench.draw.below(link.queue.sges_max() as u64 - 1);
        let lengths: Vec<usize> = (0..parts).map(|_| 1 + bench.draw.below(6000) as usize).collect();
        let bytes: usize = lengths.iter().sum();
        let near = bench.places(&lengths);
        let far = if takes_receive(op) {
            // The far side's list is cut elsewhere, and has room to spare.
            let cut = 1 + bench.draw.below(bytes as u64 - 1) as usize;
            bench.places(&[cut, bytes - cut + 100])
        } else {
            vec![bench.place(bytes)]
        };
        transfer(bench, link, &mut row, &Plan { op, near, far, inline: false, api })?;
    }
    Ok(row)
}

/// Atomics: what was there comes back, what must be there is.
fn atomics(bench: &mut Bench, link: &mut Link, api: Api) -> Result<Row> {
    let mut row = Row::new(format!("atomics, {api:?}").to_lowercase());
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    for _ in 0..60 {
        let far = bench.place(16).start.next_multiple_of(8);
        let near = bench.place(8);
        let before = word(&bench.peer.mirror(far..far + 8)?);
        let operand = bench.draw.bits(64);
        let (op, after) = if bench.draw.coin() {
            (Op::FetchAdd(operand), before.wrapping_add(operand))
        } else if bench.draw.coin() {
            (Op::CompareSwap { compare: before, swap: operand }, operand)
        } else {
            (Op::CompareSwap { compare: !before, swap: operand }, before)
        };
        let what = format!("{op:x?} on {before:#x}");
        let local = vec![bench.region.sge(near.clone())];
        let request = Request { id: bench.id(), ..Request::new(op, local, bench.remote(far)) };
        let done = finish(link, &request, api).context(what.clone())?;
        row.count(8);
        good(&mut row, &what, &request, &done);
        row.must(done.bytes == 8, || format!("{what}: reported as {} B", done.bytes));
        bench.region.expect(near.start, &before.to_le_bytes());
        bench.peer.expect(far, &after.to_le_bytes())?;
        bench.look(&mut row, &what)?;
    }
    Ok(row)
}
