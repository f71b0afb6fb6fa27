//! Requests that must fail, with the right status, and change nothing.

use super::bench::{Bench, Link, MEMORY, Row, finish};
use crate::verbs::{Api, Op, Remote, Request, Shape, Side};
use anyhow::{Context, Result};
use shunt_mlx5_sys as sys;

/// One way to fail.
struct Case {
    name: &'static str,
    /// Status of the request.
    status: u32,
    /// Vendor's codes seen in the field beside it.
    vendor: &'static [u32],
    /// Buffers that the far side posts: none, or one of this length.
    receive: Option<usize>,
    /// Status of the far side's receive, where it fails, too.
    received: Option<u32>,
    shape: Shape,
    /// What is asked for.
    request: fn(&Bench) -> Request,
}

/// The far side answers, however late its process gets a core.
const ANSWERED: Shape = Shape { depth: 16, sges: 2, inline: 0, rnr_retry: 0, timeout: 17, retry: 7 };
/// An ACK that does not come is missed soon: 1 ms, three times.
const IMPATIENT: Shape = Shape { timeout: 8, retry: 2, ..ANSWERED };

fn local(bench: &Bench, bytes: usize) -> Vec<crate::verbs::Sge> {
    vec![bench.region.sge(64..64 + bytes)]
}

fn write_with(bench: &Bench, remote: Remote) -> Request {
    Request::new(Op::Write, local(bench, 100), remote)
}

fn cases() -> Vec<Case> {
    const REMOTE_ACCESS: (u32, &[u32]) = (sys::IBV_WC_REM_ACCESS_ERR, &[0x88]);
    const LOCAL: (u32, &[u32]) = (sys::IBV_WC_LOC_PROT_ERR, &[0x51, 0x52, 0x53]);
    let case = |name, (status, vendor), request| Case {
        name,
        status,
        vendor,
        receive: None,
        received: None,
        shape: ANSWERED,
        request,
    };
    vec![
        case("write under a key that is none", REMOTE_ACCESS, |bench| {
            write_with(bench, Remote { rkey: bench.remote(0).rkey ^ 0x00ff_ff00, ..bench.remote(0) })
        }),
        case("write under another key byte", REMOTE_ACCESS, |bench| {
            write_with(bench, Remote { rkey: bench.remote(0).rkey ^ 0x5a, ..bench.remote(0) })
        }),
        case("write past the end", REMOTE_ACCESS, |bench| write_with(bench, bench.remote(MEMORY - 99))),
        case("write before the start", REMOTE_ACCESS, |bench| {
            let remote = bench.remote(0);
            write_with(bench, Remote { address: remote.address - 1, ..remote })
        }),
        case("write under a key for reads", REMOTE_ACCESS, |bench| {
            write_with(bench, Remote { rkey: bench.peer.memory().rkey_read, ..bench.remote(0) })
        }),
        case("read under a key for writes", REMOTE_ACCESS, |bench| {
            let remote = Remote { rkey: bench.peer.memory().rkey_write, ..bench.remote(0) };
            Request::new(Op::Read, local(bench, 100), remote)
        }),
        case("read past the end", REMOTE_ACCESS, |bench| {
            Request::new(Op::Read, local(bench, 100), bench.remote(MEMORY - 50))
        }),
        case("atomic under a key for writes", REMOTE_ACCESS, |bench| {
            let remote = Remote { rkey: bench.peer.memory().rkey_write, ..bench.remote(0) };
            Request::new(Op::FetchAdd(1), local(bench, 8), remote)
        }),
        case("local key that is none", LOCAL, |bench| {
            let mut request = write_with(bench, bench.remote(0));
            request.local[0].lkey ^= 0x00ff_ff00;
            request
        }),
        case("local buffer past the end", LOCAL, |bench| {
            let mut request = write_with(bench, bench.remote(0));
            request.local[0].address = bench.region.address() + MEMORY as u64 - 50;
            request
        }),
        Case {
            receive: Some(50),
            received: Some(sys::IBV_WC_LOC_LEN_ERR),
            ..case("send of more than fits", (sys::IBV_WC_REM_INV_REQ_ERR, &[0x89, 0x8a]), |bench| {
                Request::new(Op::Send, local(bench, 100), bench.remote(0))
            })
        },
        case("send without a receive", (sys::IBV_WC_RNR_RETRY_EXC_ERR, &[]), |bench| {
            Request::new(Op::Send, local(bench, 100), bench.remote(0))
        }),
    ]
}

pub(super) fn run(bench: &mut Bench, tell: &mut dyn FnMut(Row)) -> Result<()> {
    for case in cases() {
        for api in Api::ALL {
            let name = format!("{}, {}", case.name, format!("{api:?}").to_lowercase());
            let mut row = Row::new(name);
            let mut link = bench.link(case.shape)?;
            fail(bench, &mut link, &mut row, &case, api).context(case.name)?;
            bench.unlink(link)?;
            tell(row);
        }
    }
    tell(silence(bench)?);
    Ok(())
}

fn fail(bench: &mut Bench, link: &mut Link, row: &mut Row, case: &Case, api: Api) -> Result<()> {
    if let Some(bytes) = case.receive {
        bench.peer.receive(link.far, 1, std::slice::from_ref(&(0..bytes)))?;
    }
    // Unsignaled: an error is told all the same.
    let request = Request { id: bench.id(), signaled: false, ..(case.request)(bench) };
    let done = finish(link, &request, api)?;
    row.count(0);
    row.must(done.status == case.status, || format!("status {}, not {}", done.status, case.status));
    row.must(done.id == request.id, || format!("completion of {} for {}", done.id, request.id));
    let known = case.vendor.is_empty() || case.vendor.contains(&done.vendor);
    row.must(known, || format!("vendor's code {:#x}, not one of {:x?}", done.vendor, case.vendor));
    if let Some(status) = case.received {
        let got = bench.peer.wait(link.far)?;
        row.must(got.status == status, || format!("received with status {}, not {status}", got.status));
    }
    flushed(bench, link, row, api)?;
    bench.look(row, case.name)
}

/// Whatever is posted to a queue pair that failed comes back flushed, signaled or not.
fn flushed(bench: &mut Bench, link: &mut Link, row: &mut Row, api: Api) -> Result<()> {
    for signaled in [true, false] {
        let later = Request { id: bench.id(), signaled, ..write_with(bench, bench.remote(0)) };
        let done = finish(link, &later, api)?;
        let met = (done.id, done.status, done.vendor);
        let want = (later.id, sys::IBV_WC_WR_FLUSH_ERR, 0xf5);
        row.must(met == want, || format!("posted after the error: {met:?}, not {want:?}"));
    }
    Ok(())
}

/// Nobody answers: the far queue pair is gone.
fn silence(bench: &mut Bench) -> Result<Row> {
    let mut row = Row::new("write to a queue pair that is gone");
    let mut link = bench.link(IMPATIENT)?;
    bench.peer.drop_queue(link.far)?;
    let request = Request { id: bench.id(), ..write_with(bench, bench.remote(0)) };
    let done = finish(&mut link, &request, Api::Old)?;
    row.count(0);
    let (met, want) = ((done.status, done.vendor), (sys::IBV_WC_RETRY_EXC_ERR, 0x81));
    row.must(met == want, || format!("status and vendor's code {met:x?}, not {want:x?}"));
    flushed(bench, &mut link, &mut row, Api::Old)?;
    let nothing_more = link.queue.poll(Side::Send)?;
    row.must(nothing_more.is_none(), || format!("one completion too many: {nothing_more:?}"));
    bench.look(&mut row, "silence")?;
    Ok(row)
}
