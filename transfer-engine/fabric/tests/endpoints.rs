//! Two endpoints in one process: what each operation does, and that a closed one lets nothing land.

use crate::rig::{SHM, TCP, memory, rail, read, until, write};
use shunt_mlx5::memory::OwnedSpan;
use shunt_transfer_engine::domain::Op;
use shunt_transfer_fabric::endpoint::{Done, Endpoint, Posted, Work};
use shunt_transfer_fabric::fabric::{Rail, Wanted};
use shunt_transfer_fabric::region::Region;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: u64 = 1 << 20;
const DEPTH: usize = 16;

struct End {
    endpoint: Endpoint,
    region: Region,
    memory: Arc<OwnedSpan>,
    done: Vec<Done>,
}

fn ends(wanted: &Wanted<'_>) -> Option<[End; 2]> {
    let mut ends = [(); 2].map(|()| {
        let rail = rail(wanted)?;
        let memory = memory(BYTES);
        let region = Region::register(&rail, &memory, true).expect("a region");
        let endpoint = Endpoint::open(&rail, DEPTH, DEPTH).expect("an endpoint");
        Some(End { endpoint, region, memory, done: Vec::new() })
    });
    let names = ends.each_ref().map(|end| end.as_ref().map(|end| end.endpoint.name().to_vec()));
    for (end, name) in ends.iter_mut().zip(names.iter().rev()) {
        end.as_mut()?.endpoint.insert(name.as_ref()?).expect("a name");
    }
    let [a, b] = ends;
    Some([a?, b?])
}

impl End {
    fn poll(&mut self) {
        self.endpoint.poll(&mut self.done);
    }
}

fn post(ends: &mut [End; 2], op: Op, len: u64, token: u64) {
    post_part(ends, op, (&[], len), token);
}

fn post_part([a, b]: &mut [End; 2], op: Op, (part, len): (&[u8], u64), token: u64) {
    until("room", || {
        b.poll();
        a.poll();
        let local = Some((&a.region, a.memory.span().address));
        let remote = (b.memory.span().address, b.region.key());
        match a.endpoint.post(&Work { op, part, local, remote, len }, token) {
            Posted::Taken => true,
            Posted::Again => false,
            Posted::Refused(code) => panic!("refused: {code}"),
        }
    });
}

fn wait(ends: &mut [End; 2], token: u64) {
    until("a completion", || {
        ends.iter_mut().for_each(End::poll);
        ends[0].done.contains(&Done::Executed(token))
    });
}

fn every_operation(wanted: &Wanted<'_>) {
    let Some(mut ends) = ends(wanted) else { return };
    write(&ends[0].memory, 0, &[7; 70_000]);
    post(&mut ends, Op::Write(None), 70_000, 0);
    wait(&mut ends, 0);
    assert_eq!(read(&ends[1].memory, 0, 70_001), [&[7; 70_000][..], &[0]].concat());
    assert_eq!(ends[1].done, [], "a write without an immediate is silent");
    post(&mut ends, Op::Write(Some(0xffff_fffe)), 5000, 1);
    wait(&mut ends, 1);
    post(&mut ends, Op::Write(Some(9)), 0, 2);
    wait(&mut ends, 2);
    until("immediates", || {
        ends[1].poll();
        ends[1].done.len() == 2
    });
    assert_eq!(ends[1].done, [Done::Imm(0xffff_fffe), Done::Imm(9)]);
    write(&ends[1].memory, 0, &[8; 3000]);
    post(&mut ends, Op::Read, 3000, 3);
    wait(&mut ends, 3);
    assert_eq!(read(&ends[0].memory, 0, 3001), [&[8; 3000][..], &[7]].concat());
    ends[1].done.clear();
    for number in 0..3 * DEPTH as u8 {
        post_part(&mut ends, Op::Send, (&[number; 20], 0), 100 + u64::from(number));
    }
    wait(&mut ends, 99 + 3 * DEPTH as u64);
    until("parts", || {
        ends[1].poll();
        ends[1].done.len() == 3 * DEPTH
    });
    let parts: Vec<_> = (0..3 * DEPTH as u8).map(|number| Done::Part(vec![number; 20])).collect();
    assert_eq!(ends[1].done, parts);
}

#[test]
fn every_operation_over_tcp() {
    every_operation(&TCP);
}

#[test]
fn every_operation_over_shared_memory() {
    every_operation(&SHM);
}

const PAGE: u64 = 16 << 10;
const POISON: u8 = 0xee;

/// Writes pages without an end; the receiver closes its end, or does not, and poisons its memory. True if anything
/// lands afterwards, while both ends go on for a while. Immediates that the receiver had are of whole pages.
fn lands_after(wanted: &Wanted<'_>, closes: bool) -> Option<bool> {
    let mut ends = ends(wanted)?;
    let pages = BYTES / PAGE;
    write(&ends[0].memory, 0, &vec![7; BYTES as usize]);
    let mut posted = 0;
    let mut go = |ends: &mut [End; 2]| {
        let at = posted % pages * PAGE;
        let [a, b] = ends;
        a.poll();
        let local = Some((&a.region, a.memory.span().address + at));
        let remote = (b.memory.span().address + at, b.region.key());
        let op = Op::Write(Some((posted % pages) as u32));
        if a.endpoint.post(&Work { op, part: &[], local, remote, len: PAGE }, posted) == Posted::Taken {
            posted += 1;
        }
    };
    until("traffic", || {
        go(&mut ends);
        ends[1].poll();
        ends[1].done.len() > 100
    });
    // Some are on their way.
    (0..2 * DEPTH).for_each(|_| go(&mut ends));
    if closes {
        let End { endpoint, done, .. } = &mut ends[1];
        endpoint.close(done).expect("closed");
        let executed = ends[0].done.iter().filter(|done| matches!(done, Done::Executed(_))).count();
        let arrived = ends[1].done.iter().filter(|done| matches!(done, Done::Imm(_))).count();
        assert!(arrived >= executed, "{executed} executed, and {arrived} arrived");
        for done in &ends[1].done {
            let Done::Imm(page) = done else { continue };
            let bytes = read(&ends[1].memory, u64::from(*page) * PAGE, PAGE as usize);
            assert!(bytes.iter().all(|byte| *byte == 7), "page {page} was counted, and is not whole");
        }
    }
    write(&ends[1].memory, 0, &vec![POISON; BYTES as usize]);
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        go(&mut ends);
        ends[1].poll();
    }
    Some(read(&ends[1].memory, 0, BYTES as usize).iter().any(|byte| *byte != POISON))
}

#[test]
fn nothing_lands_through_a_closed_endpoint() {
    for (closes, lands) in [(true, false), (false, true)] {
        let Some(met) = lands_after(&TCP, closes) else { return };
        assert_eq!(met, lands, "closed: {closes}");
    }
}

#[test]
fn nothing_lands_under_a_key_that_is_none() {
    let Some(mut ends) = ends(&TCP) else { return };
    until("a failure", || {
        let [a, b] = &mut ends;
        b.poll();
        a.poll();
        let local = Some((&a.region, a.memory.span().address));
        let remote = (b.memory.span().address, b.region.key().wrapping_add(77));
        a.endpoint.post(&Work { op: Op::Write(Some(1)), part: &[], local, remote, len: 100 }, 5);
        a.done.iter().any(|done| matches!(done, Done::Failed(5, _)))
    });
    assert_eq!((read(&ends[1].memory, 0, 100), ends[1].done.len()), (vec![0; 100], 0));
}

#[test]
fn what_cannot_be_a_rail_is_refused_with_what_was_met() {
    if rail(&TCP).is_none() {
        return;
    }
    let refused =
        |wanted: Wanted<'_>| Rail::open(&wanted).err().map(|error| error.to_string()).unwrap_or_default();
    let layered = refused(Wanted { provider: "udp;ofi_rxd", ..TCP });
    assert!(
        layered.contains("once they are closed") && layered.contains("got the layer ofi_rxd"),
        "{layered}"
    );
    // Its own protocol reads through a null pointer; the one that is used has to be asked for by a variable.
    if std::env::var_os("FI_OFI_RXM_ENABLE_PASSTHRU").is_none() {
        let layered = refused(Wanted { provider: "tcp;ofi_rxm", ..TCP });
        assert!(
            layered.contains("FI_OFI_RXM_ENABLE_PASSTHRU=1") && layered.ends_with("got none"),
            "{layered}"
        );
    }
    // Both were `61 (No data available)`.
    let none = refused(Wanted { provider: "none", ..TCP });
    assert!(none.starts_with("provider none of libfabric: expected a domain"), "{none}");
    assert!(none.contains("fi_info -p 'none' shows"), "{none}");
    let elsewhere = refused(Wanted { address: Some("nowhere"), ..TCP });
    assert!(elsewhere.starts_with("address nowhere: expected one of this machine"), "{elsewhere}");
    assert!(elsewhere.contains("fi_info -p 'tcp' shows"), "{elsewhere}");
}
