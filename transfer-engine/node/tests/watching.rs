//! A word that a thread writes a million times while an engine's thread watches it.

use crate::nodes;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use shunt_transfer_engine::watch::Goes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Values, and after how many of them the writer waits until the last one was told.
const VALUES: u64 = 1_000_000;
const BURST: u64 = 1_000;
const SOON: Duration = Duration::from_secs(20);
const PAGE: usize = 4096;

/// A page that processes can share: the word, and one that is written before it, on another cache line.
struct Shared(*mut AtomicU64);

// SAFETY: what lies in the page is atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Self {
        // SAFETY: a new mapping, which nothing else knows.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        };
        Self(page.expect("a page").cast())
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped and aligned while this lives, and holds zeros or what was stored.
        unsafe { &*self.0 }
    }

    fn before(&self) -> &AtomicU64 {
        // SAFETY: as above; it is 64 bytes further in the page.
        unsafe { &*self.0.add(8) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, and nobody has a reference to it any more.
        let _ = unsafe { munmap(self.0.cast(), PAGE) };
    }
}

#[derive(Default)]
struct Seen {
    last: u64,
    told: u64,
    wrong: Vec<String>,
}

#[test]
fn no_last_value_of_a_word_is_lost_and_order_is_kept() {
    let nodes = nodes(2, 1);
    let (page, seen, (tell, told)) =
        (Arc::new(Shared::new()), Arc::new(Mutex::new(Seen::default())), channel());
    let (read, looked, to) = (page.clone(), page.clone(), seen.clone());
    let each = move |old: u64, new: u64| {
        let mut seen = to.lock().expect("no callback panics");
        let before = looked.before().load(Ordering::Relaxed);
        let expected = seen.last;
        if old != expected || new <= old || before < new {
            seen.wrong.push(format!("from {old} to {new}, {before} before it; the last one was {expected}"));
        }
        (seen.last, seen.told) = (new, seen.told + 1);
        if new.is_multiple_of(BURST) {
            let _ = tell.send(new);
        }
        Goes::On
    };
    let read = Box::new(move || read.word().load(Ordering::Relaxed));
    let watcher = nodes[1].watch(read, Box::new(each)).expect("open");
    let writer = std::thread::spawn(move || {
        let mut lost = 0;
        for value in 1..=VALUES {
            page.before().store(value, Ordering::Relaxed);
            page.word().store(value, Ordering::Release);
            if value % BURST == 0 {
                lost += u64::from(!is_told(&told, value));
            }
        }
        lost
    });
    let lost = writer.join().expect("it ends");
    assert!(nodes[1].unwatch(watcher).expect("open"), "it watches until then");
    let seen = seen.lock().expect("no callback panics");
    let bursts = VALUES / BURST;
    assert_eq!((lost, seen.last, &seen.wrong), (0, VALUES, &Vec::new()), "last values lost of {bursts}");
    assert!(seen.told >= bursts, "{} changes were told", seen.told);
    println!("{VALUES} values, {} told, {lost} of {bursts} last ones lost", seen.told);
}

/// True once this value was told.
fn is_told(told: &std::sync::mpsc::Receiver<u64>, value: u64) -> bool {
    let until = Instant::now() + SOON;
    loop {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(last) if last == value => return true,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
    }
}
