//! The thread that keeps the boards of a job's processes alike and carries their reports to rank 0, over messages that
//! may be lost: everybody tells everybody all it knows, again and again, and a log goes on from where rank 0 says it
//! is.

use super::board::{Board, BoardState};
use super::entry::{Entry, append, take_entries};
use super::message::{Message, State};
use shunt_host::connect::oob::Oob;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two times that everything is told, if nothing is new.
const BEAT: Duration = Duration::from_millis(10);
/// Between two looks for what is new.
const NAP: Duration = Duration::from_millis(1);
/// A piece of a log.
const PIECE: usize = 16 << 10;
/// Bytes of a log that are on their way at most.
const WINDOW: u64 = 512 << 10;
/// Bytes of a log that rank 0 has and that stay here at most.
const KEPT: usize = 64 << 10;
/// Without an answer for this long the log goes on from where the last answer left it.
const AGAIN: Duration = Duration::from_millis(50);
/// A process that was not heard for this long, many beats, is not awaited: a report is, nothing is declared lost.
const SILENT: Duration = Duration::from_secs(5);
/// Beats after which a verdict may be taken to have arrived.
const LAST_BEATS: u32 = 3;

/// Says what is known of the death of a rank.
pub type Gone = Box<dyn Fn(u32) -> Option<String> + Send + Sync>;

/// What is known of another process.
#[derive(Debug)]
struct Peer {
    heard: Instant,
    /// Bytes of its log that came in order.
    got: u64,
    /// Of those, what is no whole entry yet.
    held: Vec<u8>,
    /// Length of its log once it is over.
    length: Option<u64>,
    /// What came and was not collected.
    entries: Vec<Entry>,
    /// Its log is none.
    spoilt: bool,
    /// It has heard the verdict.
    told: bool,
}

impl Peer {
    fn new() -> Self {
        Self {
            heard: Instant::now(),
            got: 0,
            held: Vec::new(),
            length: None,
            entries: Vec::new(),
            spoilt: false,
            told: false,
        }
    }

    fn whole(&self) -> bool {
        self.length == Some(self.got) && !self.spoilt
    }

    fn take_piece(&mut self, at: u64, bytes: &[u8]) {
        let Some(known) = self.got.checked_sub(at) else { return };
        let Some(new) = usize::try_from(known).ok().and_then(|known| bytes.get(known..)) else { return };
        self.got += new.len() as u64;
        self.held.extend_from_slice(new);
        match take_entries(&mut self.held) {
            Ok(entries) => self.entries.extend(entries),
            Err(_) => self.spoilt = true,
        }
    }
}

/// All that the thread and its callers share.
struct Inner {
    me: u32,
    phase: u32,
    board: Option<Arc<Board>>,
    /// Our own log, for rank 0: what it does not have yet, and maybe some of what it has.
    log: Vec<u8>,
    /// Bytes of the log that stood before that.
    dropped: u64,
    log_over: bool,
    /// Bytes of it that were sent, and that rank 0 has.
    sent: u64,
    arrived: u64,
    moved: Instant,
    peers: Vec<Peer>,
    verdict: Option<u8>,
    /// Beats since the verdict was known.
    beats: u32,
    /// Messages that were none.
    refused: u64,
}

impl Inner {
    fn state(&self) -> State {
        let empty = || BoardState {
            links: Vec::new(),
            rows: 0,
            corrupt: 0,
            table_over: false,
            aborted: false,
            stopping: false,
        };
        State {
            phase: self.phase,
            board: self.board.as_ref().map_or_else(empty, |board| board.state()),
            log_bytes: self.log_end(),
            log_over: self.log_over,
            got: self.peers.iter().map(|peer| peer.got).collect(),
            verdict: self.verdict,
        }
    }

    fn receive(&mut self, from: u32, message: Message) {
        let (me, phase, rank_0) = (self.me as usize, self.phase, from == 0);
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        peer.heard = Instant::now();
        match message {
            Message::Log { phase: theirs, at, bytes } => {
                if theirs == phase {
                    peer.take_piece(at, &bytes);
                }
            }
            Message::State(state) => {
                // The verdict is of no phase: who hears it may be in another.
                peer.told |= state.verdict.is_some();
                if rank_0 && self.me != 0 {
                    self.verdict = self.verdict.or(state.verdict);
                }
                if state.phase != phase {
                    return;
                }
                if state.log_over {
                    peer.length = Some(state.log_bytes);
                }
                if let Some(board) = &self.board {
                    board.merge(&state.board);
                }
                if let Some(arrived) = state.got.get(me).filter(|_| rank_0)
                    && *arrived > self.arrived
                {
                    (self.arrived, self.moved) = (*arrived, Instant::now());
                    self.sent = self.sent.max(*arrived);
                    self.drop_arrived();
                }
            }
        }
    }

    /// Bytes of our log, those that are no longer here among them.
    fn log_end(&self) -> u64 {
        self.dropped + self.log.len() as u64
    }

    /// Lets go of what rank 0 has, many pieces at a time: a run of hours must not hold its whole log.
    fn drop_arrived(&mut self) {
        let known = self.arrived.min(self.log_end()).saturating_sub(self.dropped) as usize;
        if known >= KEPT {
            self.log.drain(..known);
            self.dropped += known as u64;
        }
    }

    /// Pieces of our log that may go now.
    fn pieces(&mut self) -> Vec<Message> {
        let mut pieces = Vec::new();
        if self.me == 0 {
            return pieces;
        }
        if self.sent > self.arrived && self.moved.elapsed() > AGAIN {
            (self.sent, self.moved) = (self.arrived, Instant::now());
        }
        while self.sent < self.log_end() && self.sent - self.arrived < WINDOW {
            let at = (self.sent - self.dropped) as usize;
            let bytes = self.log[at..self.log.len().min(at + PIECE)].to_vec();
            let (from, bytes_sent) = (self.sent, bytes.len() as u64);
            self.sent += bytes_sent;
            pieces.push(Message::Log { phase: self.phase, at: from, bytes });
        }
        pieces
    }
}

/// The thread and what it knows. It stops when this is dropped.
pub struct Courier {
    inner: Arc<Mutex<Inner>>,
    stop: Arc<AtomicBool>,
    gone: Arc<Gone>,
    thread: Option<JoinHandle<()>>,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Courier {
    /// Starts the thread of process `me` in a job of `world`.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn start(me: u32, world: u32, end: Box<dyn Oob>, gone: Gone) -> Self {
        let inner = Arc::new(Mutex::new(Inner {
            me,
            phase: 0,
            board: None,
            log: Vec::new(),
            dropped: 0,
            log_over: false,
            sent: 0,
            arrived: 0,
            moved: Instant::now(),
            peers: (0..world).map(|_| Peer::new()).collect(),
            verdict: None,
            beats: 0,
            refused: 0,
        }));
        let (stop, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(gone));
        let (shared, halt) = (inner.clone(), stop.clone());
        let run = move || run(&shared, &halt, &*end);
        let thread = std::thread::Builder::new().name("courier".into()).spawn(run);
        Self { inner, stop, gone, thread: Some(thread.expect("a thread can be started")) }
    }

    /// A new phase with a board of its own: everything of the one before is forgotten.
    pub fn begin(&self, board: &Arc<Board>) {
        let mut inner = lock(&self.inner);
        inner.phase += 1;
        inner.board = Some(board.clone());
        inner.log.clear();
        (inner.dropped, inner.sent, inner.arrived) = (0, 0, 0);
        inner.log_over = false;
        for peer in &mut inner.peers {
            *peer = Peer { told: peer.told, ..Peer::new() };
        }
    }

    /// Appends to our log.
    pub fn publish(&self, entry: &Entry) {
        let mut inner = lock(&self.inner);
        if inner.me != 0 {
            append(&mut inner.log, entry);
        }
    }

    /// Nothing will be appended.
    pub fn close(&self) {
        lock(&self.inner).log_over = true;
    }

    /// What came since the last call.
    pub fn collect(&self) -> Vec<(u32, Entry)> {
        let mut inner = lock(&self.inner);
        let of = |(rank, peer): (u32, &mut Peer)| {
            std::mem::take(&mut peer.entries).into_iter().map(move |entry| (rank, entry)).collect::<Vec<_>>()
        };
        (0..).zip(&mut inner.peers).flat_map(of).collect()
    }

    /// Other ranks whose log is not whole.
    pub fn missing(&self) -> Vec<u32> {
        let inner = lock(&self.inner);
        let open = (0..).zip(&inner.peers).filter(|(rank, peer)| *rank != inner.me && !peer.whole());
        open.map(|(rank, _)| rank).collect()
    }

    /// Those of them that may still send the rest.
    pub fn awaited(&self) -> Vec<u32> {
        self.missing().into_iter().filter(|rank| self.lives(*rank)).collect()
    }

    fn lives(&self, rank: u32) -> bool {
        let inner = lock(&self.inner);
        let peer = &inner.peers[rank as usize];
        let heard = peer.heard.elapsed() < SILENT && !peer.spoilt;
        drop(inner);
        heard && (self.gone)(rank).is_none()
    }

    /// What is known of a rank's death.
    pub fn gone(&self, rank: u32) -> Option<String> {
        (self.gone)(rank)
    }

    /// Waits until `done`, or `patience` is over.
    fn wait(&self, patience: Duration, mut done: impl FnMut(&Inner) -> bool) -> bool {
        let until = Instant::now() + patience;
        loop {
            if done(&lock(&self.inner)) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(NAP);
        }
    }

    /// Our log is with rank 0, or will not be.
    pub fn flush(&self, patience: Duration) {
        self.wait(patience, |inner| inner.me == 0 || inner.arrived >= inner.log_end());
    }

    /// Rank 0 tells everybody its verdict, until all that live have heard it.
    pub fn tell(&self, status: u8, patience: Duration) {
        lock(&self.inner).verdict = Some(status);
        let until = Instant::now() + patience;
        while Instant::now() < until {
            let deaf: Vec<u32> = {
                let inner = lock(&self.inner);
                (0..)
                    .zip(&inner.peers)
                    .filter(|(rank, p)| *rank != inner.me && !p.told)
                    .map(|(r, _)| r)
                    .collect()
            };
            if !deaf.into_iter().any(|rank| self.lives(rank)) {
                return;
            }
            std::thread::sleep(NAP);
        }
    }

    /// The others wait for it; `None` if rank 0 is gone or says nothing.
    pub fn hear(&self, patience: Duration) -> Option<u8> {
        let until = Instant::now() + patience;
        while self.lives(0) && Instant::now() < until && lock(&self.inner).verdict.is_none() {
            std::thread::sleep(NAP);
        }
        let verdict = lock(&self.inner).verdict?;
        // Rank 0 waits for our word that we have heard; it may get lost a few times.
        self.wait(BEAT * 4 * LAST_BEATS, |inner| inner.beats >= LAST_BEATS);
        Some(verdict)
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Mutex<Inner>, stop: &AtomicBool, end: &dyn Oob) {
    let mut last = None;
    let mut next = Instant::now();
    while !stop.load(Ordering::Acquire) {
        while let Some((from, bytes)) = end.try_recv() {
            let mut inner = lock(shared);
            match Message::from_bytes(&bytes) {
                Ok(message) => inner.receive(from, message),
                Err(_) => inner.refused += 1,
            }
        }
        let (state, pieces, me, world) = {
            let mut inner = lock(shared);
            (inner.state(), inner.pieces(), inner.me, inner.peers.len() as u32)
        };
        for piece in pieces {
            end.send(0, piece.to_bytes());
        }
        if last.as_ref() != Some(&state) || Instant::now() >= next {
            next = Instant::now() + BEAT;
            let bytes = Message::State(state.clone()).to_bytes();
            (0..world).filter(|rank| *rank != me).for_each(|rank| end.send(rank, bytes.clone()));
            if state.verdict.is_some() {
                lock(shared).beats += 1;
            }
            last = Some(state);
        }
        std::thread::sleep(NAP);
    }
}

#[cfg(test)]
#[path = "courier_tests.rs"]
mod tests;
