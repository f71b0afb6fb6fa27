//! What PEs tell each other beside the data path: that they are done, and that the job is to end. Over the processes'
//! own connections, which a dead port does not touch.

use shunt_host::connect::oob::Oob;
use shunt_host::connect::tcp::{LinkReason, TcpEnd, TcpNet, Topic};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// This PE needs nothing of the others any more.
const BYE: u8 = 1;
/// The job ends with the status behind it.
const EXIT: u8 = 2;
/// Between two times that it is said.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a word about the end of the job may take to leave.
const LAST_WORD: Duration = Duration::from_millis(200);

/// This process's end.
pub struct Control {
    net: TcpNet,
    end: Mutex<TcpEnd>,
    byes: Mutex<BTreeSet<u32>>,
}

impl Control {
    /// Over these connections.
    pub fn new(net: TcpNet) -> Self {
        let end = Mutex::new(net.end(Topic::App));
        Self { net, end, byes: Mutex::default() }
    }

    /// The connections.
    pub fn net(&self) -> &TcpNet {
        &self.net
    }

    fn say(&self, bytes: &[u8]) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        for pe in (0..self.net.world()).filter(|pe| *pe != self.net.rank()) {
            end.send(pe, bytes.to_vec());
        }
    }

    /// Reads what has come. `Some`: a PE ended the job, with this status.
    pub fn hear(&self) -> Option<(u32, i32)> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((from, bytes)) = end.try_recv() {
            match bytes[..] {
                [BYE] => {
                    self.byes.lock().unwrap_or_else(PoisonError::into_inner).insert(from);
                }
                [EXIT, a, b, c, d] => return Some((from, i32::from_le_bytes([a, b, c, d]))),
                _ => {}
            }
        }
        None
    }

    /// Tells all that the job ends.
    pub fn exit(&self, status: i32) {
        let [a, b, c, d] = status.to_le_bytes();
        self.say(&[EXIT, a, b, c, d]);
        std::thread::sleep(LAST_WORD);
    }

    /// Whether a PE's process can no longer say anything.
    pub fn is_gone(&self, pe: u32) -> bool {
        let link = self.net.peer(pe);
        !link.up && !matches!(link.reason, LinkReason::Connecting | LinkReason::Connected)
    }

    /// What is known of the end of a PE's process.
    pub fn describe(&self, pe: u32) -> Option<String> {
        let link = self.net.peer(pe);
        let ago = link.since.elapsed().as_millis();
        let how = match link.reason {
            _ if link.up => return None,
            LinkReason::Connecting | LinkReason::Connected => return None,
            LinkReason::Closed | LinkReason::Refused => "is gone".to_owned(),
            LinkReason::TimedOut => "does not answer".to_owned(),
            LinkReason::Left => "has left the job".to_owned(),
            LinkReason::Failed(why) => format!("cannot be reached ({why})"),
        };
        Some(format!("the process of PE {pe} {how}, {ago} ms before"))
    }

    /// Waits until every other PE is done or gone; answers with those that were neither in time.
    pub fn part(&self, patience: Duration) -> Vec<u32> {
        let (until, mut due) = (Instant::now() + patience, Instant::now());
        loop {
            if Instant::now() >= due {
                self.say(&[BYE]);
                due = Instant::now() + AGAIN;
            }
            self.hear();
            let byes = self.byes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let others = (0..self.net.world()).filter(|pe| *pe != self.net.rank());
            let left: Vec<u32> = others.filter(|pe| !byes.contains(pe) && !self.is_gone(*pe)).collect();
            if left.is_empty() || Instant::now() >= until {
                return left;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
