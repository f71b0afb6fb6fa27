//! Many requests in flight on several queue pairs, and completions told by events.

use super::bench::{Bench, Link, MEMORY, Row, finish, good};
use crate::verbs::{Api, Op, Request, Shape, Side};
use anyhow::{Context, Result, bail};
use std::time::Duration;

const LINKS: usize = 4;
const ROUNDS: usize = 40;
/// An event that must come.
const SOON: Duration = Duration::from_secs(20);
/// An event that must not.
const NEVER: Duration = Duration::from_millis(100);

pub(super) fn run(bench: &mut Bench, tell: &mut dyn FnMut(Row)) -> Result<()> {
    for api in Api::ALL {
        tell(together(bench, api)?);
    }
    tell(events(bench)?);
    Ok(())
}

/// A batch for each of several queues, all in flight at once; only some requests are signaled.
fn together(bench: &mut Bench, api: Api) -> Result<Row> {
    let mut row = Row::new(format!("{LINKS} queue pairs at once, {api:?}").to_lowercase());
    let mut links = Vec::new();
    for _ in 0..LINKS {
        links.push(bench.link(Shape::default())?);
    }
    for _ in 0..ROUNDS {
        let batches = plan(bench)?;
        for (link, batch) in links.iter_mut().zip(&batches) {
            link.queue.post(batch, api)?;
        }
        for (link, batch) in links.iter_mut().zip(&batches) {
            for request in batch.iter().filter(|request| request.signaled) {
                let done =
                    link.queue.wait(Side::Send).with_context(|| format!("a batch with {request:?}"))?;
                good(&mut row, "one of a batch", request, &done);
            }
            batch.iter().for_each(|request| row.count(request.bytes()));
        }
        bench.look(&mut row, "a batch")?;
    }
    for link in links {
        bench.unlink(link)?;
    }
    Ok(row)
}

/// Batches whose buffers do not overlap, near or far, so that their order does not matter; the mirrors say what
/// there is when all are done.
fn plan(bench: &mut Bench) -> Result<Vec<Vec<Request>>> {
    let count = 8 + bench.draw.below(24) as usize;
    let limit = MEMORY / (LINKS * count) / 2;
    let lengths: Vec<usize> = (0..LINKS * count)
        .map(|_| {
            let short = bench.draw.coin();
            1 + bench.draw.below(if short { 64 } else { limit as u64 }) as usize
        })
        .collect();
    let (near, far) = (bench.places(&lengths), bench.places(&lengths));
    let mut batches = vec![Vec::new(); LINKS];
    for (n, (near, far)) in near.into_iter().zip(far).enumerate() {
        let op = if bench.draw.below(4) == 0 { Op::Read } else { Op::Write };
        let mut request = Request::new(op, vec![bench.region.sge(near.clone())], bench.remote(far.start));
        request.id = bench.id();
        request.inline = op == Op::Write && near.len() <= 64 && bench.draw.coin();
        request.fence = bench.draw.below(8) == 0;
        // The last one tells of all before it.
        request.signaled = n / LINKS == count - 1 || bench.draw.below(3) == 0;
        if op == Op::Read {
            let source = bench.peer.mirror(far)?;
            bench.region.expect(near.start, &source);
        } else {
            let data = bench.region.mirror(near).to_vec();
            bench.peer.expect(far.start, &data)?;
        }
        batches[n % LINKS].push(request);
    }
    Ok(batches)
}

/// Completion channels: any completion, solicited ones only, on both sides.
fn events(bench: &mut Bench) -> Result<Row> {
    let mut row = Row::new("completion events");
    let mut link = bench.link(Shape::default())?;
    for round in 0..20 {
        let solicited_only = round % 2 == 1;
        if solicited_only {
            bench.peer.arm(link.far, true)?;
            send(bench, &mut link, &mut row, false)?;
            let came = bench.peer.event(link.far, NEVER)?;
            row.must(!came, || "an event for a message that asked for none".to_owned());
        } else {
            bench.peer.arm(link.far, false)?;
        }
        link.queue.arm(Side::Send, false)?;
        send(bench, &mut link, &mut row, solicited_only)?;
        let came = bench.peer.event(link.far, SOON)?;
        row.must(came, || format!("no event on the far side, solicited only: {solicited_only}"));
        match link.queue.event(SOON)? {
            Some(Side::Send) => {}
            Some(Side::Receive) => row.must(false, || "an event of the wrong queue".to_owned()),
            None => bail!("no event of a completed request within {SOON:?}"),
        }
    }
    bench.unlink(link)?;
    Ok(row)
}

fn send(bench: &mut Bench, link: &mut Link, row: &mut Row, solicited: bool) -> Result<()> {
    let (near, far) = (bench.place(1000), bench.place(1000));
    bench.peer.receive(link.far, 1, std::slice::from_ref(&far))?;
    let data = bench.region.mirror(near.clone()).to_vec();
    bench.peer.expect(far.start, &data)?;
    let request = Request {
        solicited,
        id: bench.id(),
        ..Request::new(Op::Send, vec![bench.region.sge(near)], bench.remote(0))
    };
    let done = finish(link, &request, Api::Old)?;
    row.count(1000);
    good(row, "a message", &request, &done);
    let got = bench.peer.wait(link.far)?;
    row.must(got.status == 0, || format!("received with status {}", got.status));
    bench.look(row, "a message")
}
