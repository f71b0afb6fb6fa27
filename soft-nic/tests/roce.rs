//! Two fabrics joined by RoCE v2 over the loopback interface: everything a queue pair does, losses, strangers.
//!
//! The kernel carries the packets, so these run by the clock.

mod rig;

use rig::loopback::{addresses, options, rig};
use rig::two::{exchange, join, run_by_the_clock};
use rig::{Options, Rig};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Long enough that only what was lost is sent again, however busy the machine is: 268 ms.
fn patient() -> Options {
    Options { psn: [0xff_fff0, 5], ack_timeout: 16, ..Options::default() }
}

fn two() -> (Rig, Rig) {
    run_by_the_clock();
    let [a, b] = addresses();
    (rig(0, options(a)), rig(1, options(b)))
}

#[test]
fn writes_reads_and_atomics_both_ways() {
    let (mut a, mut b) = two();
    let (mut left, mut right) = join(&mut a, &mut b, patient());
    exchange(&mut a, &mut b, &mut left);
    exchange(&mut b, &mut a, &mut right);
    for rig in [&a, &b] {
        let counters = rig.fabric.uplink_counters();
        assert!(counters.frames_tx > 300 && counters.frames_rx > 300, "{counters:?}");
        let bad = [counters.vanished, counters.overflowed, counters.malformed, counters.lost];
        assert_eq!((bad, counters.undecodable, counters.misaddressed), ([0; 4], 0, 0));
    }
}

/// A file that a capture is written to while the test looks at it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The frames in a capture.
fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(capture[..4], 0xa1b2_3c4du32.to_le_bytes());
    let (mut frames, mut rest) = (Vec::new(), &capture[24..]);
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    frames
}

#[test]
fn both_ends_write_down_the_same_frames() {
    let (mut a, mut b) = two();
    let files = [Shared::default(), Shared::default()];
    for (rig, file) in [&mut a, &mut b].into_iter().zip(&files) {
        rig.fabric.capture(Box::new(file.clone()), 0).unwrap();
    }
    let (mut left, _right) = join(&mut a, &mut b, patient());
    exchange(&mut a, &mut b, &mut left);
    let reports = [&a, &b].map(|rig| rig.fabric.captured().expect("a capture"));
    let [sent, came] = files.map(|file| frames(&file.0.lock().unwrap()));
    assert_eq!(reports.map(|report| report.frames), [sent.len() as u64, came.len() as u64]);
    // Not in one order, since each writes what it sends when it sends it.
    let (mut sent, mut came) = (sent, came);
    sent.sort();
    came.sort();
    assert!(sent.len() > 300 && sent == came, "{} and {} frames", sent.len(), came.len());
}
