//! Polling.

use super::data::provider;
use crate::completions::{CompletionQueue, Completions, Goes};
use crate::objects::At;
use crate::registry;
use crate::settings::{Mode, settings};
use crate::status::COUNTS;
use core::ffi::c_int;
use shunt_mlx5_sys::{ibv_cq, ibv_wc};
use shunt_verbs_near::gate::Inside;
use std::sync::atomic::Ordering;

/// `poll_cq` of a context.
///
/// # Safety
/// As the manual of `ibv_poll_cq` says.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    // SAFETY: forwarded to the caller.
    let here = |known: &CompletionQueue| unsafe { poll(cq, most, to, known) };
    // SAFETY: the queue is alive until this returns, by the caller, who has room for this many.
    unsafe { registry::near_queue(cq, here, || poll_far(cq, most, to)) }
}

/// Polls one that has no place, or is not protected.
#[cold]
unsafe fn poll_far(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    if let Some(known) = registry::queue(cq) {
        // SAFETY: forwarded to the caller.
        return unsafe { poll(cq, most, to, &known) };
    }
    if settings().mode == Mode::Observe {
        COUNTS.polls.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the queue is alive, by the caller.
    let ops = provider(unsafe { (*cq).context });
    // SAFETY: forwarded to the caller.
    ops.and_then(|ops| ops.poll_cq).map_or(-libc::EOPNOTSUPP, |poll| unsafe { poll(cq, most, to) })
}

#[inline(always)]
unsafe fn poll(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc, known: &CompletionQueue) -> c_int {
    let Some(mut inside) = known.enter_straight() else {
        // SAFETY: forwarded to the caller.
        return unsafe { poll_moved(known, most, to) };
    };
    // Kept here, and not across the call.
    inside.to = At(to);
    // SAFETY: the queue is alive while the program polls it; there is room for this many.
    let count = unsafe { (known.poll)(cq, most, to) };
    // SAFETY: the provider has written one.
    if count == 1 && inside.count_like_last(unsafe { &*inside.to.0 }) {
        return count;
    }
    if count <= 0 {
        return count;
    }
    // SAFETY: as above.
    unsafe { poll_several(inside, count) }
}

/// The provider has written several completions, or one that is not of who completed last.
#[inline(never)]
unsafe fn poll_several(inside: Inside<'_, Completions>, count: c_int) -> c_int {
    // SAFETY: the provider has written so many, and they are plain words.
    let wcs = unsafe { std::slice::from_raw_parts(inside.to.0, count as usize) };
    if inside.count_all_like_last(wcs) {
        return count;
    }
    // SAFETY: forwarded to the caller.
    unsafe { poll_other(inside, count) }
}

/// The provider has written completions of which one is not of who completed last.
#[inline(never)]
unsafe fn poll_other(mut inside: Inside<'_, Completions>, count: c_int) -> c_int {
    // SAFETY: the provider has written so many, and they are plain words.
    let wcs = unsafe { std::slice::from_raw_parts_mut(inside.to.0, count as usize) };
    let good = inside.count(wcs);
    if good == wcs.len() { count } else { good as c_int + sift(&inside, &mut wcs[good..]) as c_int }
}

/// Keeps those that the program gets, in front: how many.
#[cold]
fn sift(inside: &Completions, wcs: &mut [ibv_wc]) -> usize {
    let mut got = 0;
    for at in 0..wcs.len() {
        if inside.absorb(&wcs[at]) == Goes::On {
            wcs[got] = wcs[at];
            got += 1;
        }
    }
    got
}

/// Polls while not all completions come from the program's own queue.
#[cold]
unsafe fn poll_moved(cq: &CompletionQueue, most: c_int, to: *mut ibv_wc) -> c_int {
    let Ok(most) = usize::try_from(most) else { return -libc::EINVAL };
    if most == 0 {
        return 0;
    }
    // SAFETY: the caller has room for this many, and they are plain words.
    let to = unsafe { std::slice::from_raw_parts_mut(to, most) };
    let mut inside = cq.enter();
    let mut got = take_ready(&mut inside, to);
    if got < to.len() {
        let rest = &mut to[got..];
        // SAFETY: the queue is alive while the program polls it; there is room for this many.
        let count = unsafe { (cq.poll)(cq.raw.0, rest.len() as c_int, rest.as_mut_ptr()) };
        let Ok(count) = usize::try_from(count) else {
            // What was taken before is not lost: the provider fails again at the next call.
            return if got > 0 { got as c_int } else { count };
        };
        got += sift(&inside, &mut rest[..count.min(most)]);
    }
    if cq.has_moved() {
        inside.collect(cq);
        got += take_ready(&mut inside, &mut to[got..]);
    }
    got as c_int
}

fn take_ready(inside: &mut Completions, to: &mut [ibv_wc]) -> usize {
    let count = inside.ready.len().min(to.len());
    to.iter_mut().zip(inside.ready.drain(..count)).for_each(|(to, wc)| *to = wc);
    count
}

/// Takes what has completed elsewhere: whether the queue has more for the program than when this was asked last.
pub fn has_more(cq: &CompletionQueue) -> bool {
    let mut inside = cq.enter_first();
    inside.collect(cq);
    std::mem::take(&mut inside.fresh)
}

/// Takes what the NIC has written for the program's own queue pairs, ahead of the program.
pub fn drain(cq: &CompletionQueue) {
    // What is put in front is taken from there before anything else.
    cq.mark_moved();
    let mut inside = cq.enter_first();
    let mut wcs = [ibv_wc::default(); 16];
    loop {
        // SAFETY: the queue is alive while a queue pair of the program uses it; there is room for this many.
        let count = unsafe { (cq.poll)(cq.raw.0, wcs.len() as c_int, wcs.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or_default().min(wcs.len());
        let got = sift(&inside, &mut wcs[..count]);
        inside.fresh |= got > 0;
        inside.ready.extend(&wcs[..got]);
        if count < wcs.len() {
            break;
        }
    }
    inside.collect(cq);
}
