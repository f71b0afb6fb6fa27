//! What the journal holds after lists of all kinds were posted by a provider that refuses some, and completed.

use shunt_mlx5_sys as sys;
use shunt_verbs::completions::CompletionQueue;
use shunt_verbs::hooks::{data, poll};
use shunt_verbs::objects::{At, Context, Domain, Extended};
use shunt_verbs::queue_pair::QueuePair;
use shunt_verbs::registry;
use shunt_verbs_journal::request::{Data, Kind};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Arc, OnceLock, RwLock};

const QPN: u32 = 0x41;
const DEPTH: u32 = 24;

/// What the provider was given and has not completed: number, opcode, signaled. It takes so many more of a list.
#[derive(Default)]
struct Provider {
    queue: VecDeque<(u64, u32, bool)>,
    takes: usize,
}

thread_local! {
    static PROVIDER: RefCell<Provider> = RefCell::default();
}

unsafe extern "C" fn post(
    _: *mut sys::ibv_qp,
    mut at: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> i32 {
    PROVIDER.with_borrow_mut(|provider| {
        while !at.is_null() {
            // SAFETY: the caller's list, and its place for the one that is refused.
            let wr = unsafe { &*at };
            if provider.takes == 0 {
                // SAFETY: as above.
                unsafe { *bad = at };
                return libc::ENOMEM;
            }
            provider.takes -= 1;
            let signaled = wr.send_flags & sys::IBV_SEND_SIGNALED != 0;
            provider.queue.push_back((wr.wr_id, wr.opcode, signaled));
            at = wr.next;
        }
        0
    })
}

unsafe extern "C" fn poll_one(_: *mut sys::ibv_cq, most: i32, to: *mut sys::ibv_wc) -> i32 {
    PROVIDER.with_borrow_mut(|provider| {
        let mut count = 0;
        while count < most && provider.queue.iter().any(|(_, _, signaled)| *signaled) {
            let (wr_id, _, signaled) = provider.queue.pop_front().expect("one that is signaled");
            if signaled {
                // SAFETY: room for so many, by the caller.
                unsafe { *to.add(count as usize) = sys::ibv_wc { wr_id, qp_num: QPN, ..Default::default() } };
                count += 1;
            }
        }
        count
    })
}

fn pair() -> (*mut sys::ibv_qp, *mut sys::ibv_cq, Arc<QueuePair>) {
    let ops = sys::ibv_context_ops { post_send: Some(post), poll_cq: Some(poll_one), ..Default::default() };
    let (raw, channel) = (At(without_provenance_mut(0x1000)), OnceLock::new());
    let known = Arc::new(Context { raw, device: "none".into(), ops, ex: Extended::default(), channel });
    let (regions, changes) = (RwLock::default(), Default::default());
    let domain = Arc::new(Domain {
        raw: At(without_provenance_mut(0x2000)),
        context: known.clone(),
        regions,
        changes,
    });
    let (qp, cq) = (without_provenance_mut(0x3000), without_provenance_mut(0x4000));
    let queue = Arc::new(CompletionQueue::new(At(cq), known, false));
    let cap = sys::ibv_qp_cap { max_send_wr: DEPTH, max_send_sge: 2, ..Default::default() };
    let pair = QueuePair::new(1, (At(qp), QPN), domain, (queue.clone(), queue.clone(), None), cap, false);
    let pair = Arc::new(pair);
    queue.enter().join(QPN, pair.clone());
    registry::with_mut(|objects| {
        objects.put_queue(cq, queue);
        objects.put_pair(qp, pair.clone());
    });
    (qp, cq, pair)
}

/// A small generator: the same numbers each time.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*state >> 33) % below
}

/// One of the kinds of request: its opcode, flags and buffers.
fn kind(seed: &mut u64) -> (u32, u32, i32) {
    let quiet = random(seed, 8) == 0;
    let signaled = if quiet { 0 } else { sys::IBV_SEND_SIGNALED };
    match random(seed, 12) {
        0 => (sys::IBV_WR_SEND, signaled, 1),
        1 => (sys::IBV_WR_RDMA_WRITE, signaled | sys::IBV_SEND_INLINE, 1),
        2 => (sys::IBV_WR_RDMA_WRITE, signaled, 2),
        3 => (sys::IBV_WR_ATOMIC_FETCH_AND_ADD, signaled, 1),
        4 => (sys::IBV_WR_RDMA_READ, signaled, 1),
        _ => (sys::IBV_WR_RDMA_WRITE, signaled, 1),
    }
}

/// What the journal must hold of a request.
#[derive(Clone, Copy, Debug)]
struct Expected {
    wr_id: u64,
    opcode: u32,
    remote: u64,
}

fn post_some(
    qp: *mut sys::ibv_qp,
    seed: &mut u64,
    next: &mut u64,
    held: &mut VecDeque<Expected>,
    flags: &mut VecDeque<bool>,
) {
    let bytes = [7_u8; 8];
    let addr = bytes.as_ptr().expose_provenance() as u64;
    let mut sges = [sys::ibv_sge { addr, length: 8, lkey: 1 }; 2];
    let (count, takes) = (1 + random(seed, 9), random(seed, 12) as usize);
    let mut wrs: Vec<sys::ibv_send_wr> = (0..count)
        .map(|at| {
            let (opcode, send_flags, num_sge) = kind(seed);
            let mut wr =
                sys::ibv_send_wr { wr_id: *next + at, opcode, send_flags, num_sge, ..Default::default() };
            wr.sg_list = sges.as_mut_ptr();
            wr.wr.rdma.remote_addr = (*next + at) << 33 | 5;
            wr.wr.rdma.rkey = 9;
            if opcode == sys::IBV_WR_ATOMIC_FETCH_AND_ADD {
                wr.wr.atomic.compare_add = *next + at;
                wr.wr.atomic.rkey = 9;
            }
            wr
        })
        .collect();
    for at in (1..wrs.len()).rev() {
        wrs[at - 1].next = &raw mut wrs[at];
    }
    let room = DEPTH as usize - held.len();
    let takes = takes.min(room);
    PROVIDER.with_borrow_mut(|provider| provider.takes = takes);
    let mut bad = null_mut();
    // SAFETY: objects of this test, which the provider does not look at.
    let errno = unsafe { data::post_send(qp, wrs.as_mut_ptr(), &raw mut bad) };
    let taken = takes.min(wrs.len());
    assert_eq!(errno, if taken < wrs.len() { libc::ENOMEM } else { 0 });
    for wr in &wrs[..taken] {
        // SAFETY: the address lies at the same place of both.
        let remote = unsafe { wr.wr.rdma.remote_addr };
        held.push_back(Expected { wr_id: wr.wr_id, opcode: wr.opcode, remote });
        flags.push_back(wr.send_flags & sys::IBV_SEND_SIGNALED != 0);
    }
    *next += count;
}

#[test]
fn the_journal_holds_what_the_provider_took_and_has_not_completed() {
    let (qp, cq, pair) = pair();
    let (mut seed, mut next, mut refusals) = (1, 0, 0);
    let (mut held, mut flags) = (VecDeque::<Expected>::new(), VecDeque::new());
    for _ in 0..4000 {
        let before = next - held.len() as u64;
        post_some(qp, &mut seed, &mut next, &mut held, &mut flags);
        refusals += u64::from(next - held.len() as u64 != before);
        let mut wcs = [sys::ibv_wc::default(); 6];
        let most = random(&mut seed, 7) as i32;
        // SAFETY: as above; room for so many.
        let count = unsafe { poll::poll_cq(cq, most, wcs.as_mut_ptr()) };
        for wc in &wcs[..count as usize] {
            loop {
                let (one, signaled) = (held.pop_front().expect("it is held"), flags.pop_front());
                if signaled == Some(true) {
                    assert_eq!(one.wr_id, wc.wr_id);
                    break;
                }
            }
        }
        if random(&mut seed, 3) == 0 {
            let state = pair.state();
            let (first, end) = (state.sends.first(), state.sends.end());
            assert!(state.passing.is_none() && state.sends.next() == end, "{:?}", state.passing);
            let ids: Vec<_> = (first..end).filter_map(|number| state.sends.wr_id(number)).collect();
            assert_eq!(ids, held.iter().map(|one| one.wr_id).collect::<Vec<_>>());
        }
    }
    assert!(refusals > 100, "{refusals} lists were refused");
    assert_whole(&pair, &held);
}

/// What would be posted again is what was posted.
fn assert_whole(pair: &QueuePair, held: &VecDeque<Expected>) {
    let mut state = pair.state();
    let (first, count) = (state.sends.first(), held.len());
    state.closed = true;
    state.sends.cut(first as u32, 0, 0).expect("nothing more was executed");
    for one in held {
        let (request, executed) = state.sends.peek().expect("it is held");
        assert_eq!(
            (request.wr_id, request.remote, request.rkey, executed),
            (one.wr_id, one.remote, 9, false)
        );
        match (one.opcode, &request.kind) {
            (sys::IBV_WR_ATOMIC_FETCH_AND_ADD, Kind::FetchAdd(by)) => assert_eq!(*by, one.wr_id),
            (sys::IBV_WR_SEND, Kind::Send(None))
            | (sys::IBV_WR_RDMA_READ, Kind::Read)
            | (sys::IBV_WR_RDMA_WRITE, Kind::Write(None)) => {}
            other => panic!("expected the opcode that was posted, got {other:?}"),
        }
        let whole = match &request.data {
            Data::Inline(bytes) => **bytes == [7; 8],
            Data::Pieces(pieces) => pieces.iter().all(|piece| (piece.length, piece.lkey) == (8, 1)),
        };
        assert!(whole, "{request:?}");
        state.sends.given(1);
    }
    assert!(count > 0 && state.sends.peek().is_none());
}
