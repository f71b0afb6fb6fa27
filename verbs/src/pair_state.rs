//! What changes of a queue pair: where its two directions run, and what has not completed.

use crate::completions::{Goes, Tally};
use crate::objects::At;
use crate::spare::{Keys, Spare};
use crate::voice::is_the_programs;
use shunt_mlx5_sys::{IBV_WC_WR_FLUSH_ERR, ibv_qp_attr, ibv_send_wr, ibv_wc};
use shunt_verbs_journal::receive_queue::ReceiveQueue;
use shunt_verbs_journal::send_queue::SendQueue;
use shunt_verbs_near::gate::Inside;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLock};

/// Where one direction runs.
#[derive(Clone, Default)]
pub enum On {
    /// On the program's own queue pair.
    #[default]
    Own,
    /// Nowhere: it is being moved.
    Nowhere,
    /// On one that stands in.
    Spare(Track),
}

impl On {
    /// The queue pair that stands in.
    pub const fn spare(&self) -> Option<&Track> {
        match self {
            Self::Spare(track) => Some(track),
            _ => None,
        }
    }

    /// True on the program's own.
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Own)
    }
}

/// A queue pair that stands in, and where the counts of both begin.
#[derive(Clone)]
pub struct Track {
    /// The path's key.
    pub key: usize,
    /// The queue pair.
    pub queue: Arc<Spare>,
    /// The first request on it, by number.
    pub first_number: u64,
    /// The same by its index on that queue pair.
    pub first_index: u64,
}

/// What the program connected it with.
#[derive(Clone, Copy, Default)]
pub struct Connection {
    /// The attributes, gathered.
    pub attr: ibv_qp_attr,
    /// Its own GID.
    pub gid: [u8; 16],
    /// It was moved to RTR.
    pub receives: bool,
    /// It was moved to RTS.
    pub sends: bool,
}

impl Connection {
    /// The queue pair that it is connected to.
    pub fn remote(&self) -> ([u8; 16], u32) {
        // SAFETY: both views of the union are plain bytes.
        (unsafe { self.attr.ah_attr.grh.dgid.raw }, self.attr.dest_qp_num)
    }
}

/// What changes.
#[derive(Default)]
pub struct State {
    /// What was posted to send.
    pub sends: SendQueue,
    /// What was posted to receive.
    pub receives: ReceiveQueue,
    /// Where it sends.
    pub send_on: On,
    /// Where it receives.
    pub recv_on: On,
    /// Requests are kept back: the queue pair that they would go to is being fenced.
    pub closed: bool,
    /// It is not protected, and why.
    pub passing: Option<&'static str>,
    /// No path is left: what is outstanding ends in errors.
    pub lost: bool,
    /// No NIC reads or writes any buffer of what is left: it may be told.
    pub released: bool,
    /// The request for which the other end had no receive, by number, on a queue pair that stands in.
    pub not_ready: Option<u64>,
    /// Why, if the agent gave it up.
    pub lost_for: Option<&'static str>,
    /// The error was told.
    pub lost_told: bool,
    /// It is lost because the program ended it while it stood elsewhere, and how.
    pub stopped: Option<&'static str>,
    /// A completion of the program's own queue pair said that something is wrong.
    pub own_failed: bool,
    /// The program's own queue pair is in ERR at its NIC, and stays there.
    pub own_fenced: bool,
    /// The same, by whatever moved it there.
    pub own_stopped: bool,
    /// A request, and a receive, that were posted there to wake the program and are not flushed yet.
    pub waking: [bool; 2],
    /// One of what stands in did, to send and to receive, at once perhaps: the path and incarnation of each.
    pub spare_failed: [Option<(usize, u32)>; 2],
    /// The first such completion.
    pub first_error: Option<ibv_wc>,
    /// Both ends know each other, and a backup is being made.
    pub armed: bool,
    /// Keys of the peer's memory on its rails.
    pub keys: Arc<RwLock<Keys>>,
    /// What it was connected with.
    pub connection: Connection,
    /// Times that it moved.
    pub switches: u32,
    /// Requests that were posted again.
    pub replayed: u64,
    /// What the program posts, while the provider takes it: the list, and where it wants to know what was not taken.
    pub(crate) asked: (At<ibv_send_wr>, At<*mut ibv_send_wr>),
    /// Of the tally, what the journal knows.
    pub(crate) settled: [u64; 2],
}

/// The state of a queue pair, up to date, for who may change it.
pub struct Held<'a>(pub(crate) Inside<'a, State>);

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let straight = self.0.goes_straight();
        self.0.sends.set_open(straight);
    }
}

/// Why a queue pair is not protected that posts past verbs.
pub const NOT_POSTED: &str = "its completions were not those of what it posted through ibv_post_send";
/// Why a queue pair is lost, or refused, that could be moved by itself.
pub const SHARES: &str = "it shares its receive queue with one that is not protected";
/// Why one is not protected that takes nothing any more.
pub const STOPPED: &str = "the program moved it to ERR";
/// Numbers of the request and the receive that are posted to wake the program: both are flushed.
pub const WAKE: [u64; 2] = [u64::MAX - 1, u64::MAX - 2];

impl State {
    /// Its connection, with the address of its own end where that is known.
    pub fn addressed(&mut self, gid: Option<[u8; 16]>) -> Connection {
        self.connection.gid = gid.unwrap_or(self.connection.gid);
        self.connection
    }

    /// It is not protected from now on. Only while both directions are on the program's own queue pair.
    pub fn pass(&mut self, why: &'static str) {
        self.passing.get_or_insert(why);
    }

    /// The program does what ends its protection.
    pub fn stop(&mut self, why: &'static str) {
        if self.is_at_home() {
            self.pass(why);
        } else {
            // Nothing failed: all that is left is flushed.
            (self.lost, self.lost_told) = (true, true);
            self.stopped.get_or_insert(why);
        }
    }

    /// It was connected, has receives, or is not protected any more: a move to RESET ends all that.
    pub fn has_past(&self) -> bool {
        self.connection.receives || !self.receives.is_empty() || self.lost || self.over().is_some()
    }

    /// Why it is not protected any more, and whether it stood elsewhere by then.
    pub fn over(&self) -> Option<(&'static str, bool)> {
        self.passing.map(|why| (why, false)).or(self.stopped.map(|why| (why, true)))
    }

    /// Who has just come in sees what was posted straight to the program's own queue pair: its NIC has taken it.
    pub(crate) fn caught_up(&mut self) {
        if self.goes_straight() {
            self.sends.all_given();
        }
    }

    /// Tells the journals what was counted since.
    pub(crate) fn settle(&mut self, tally: &Tally) {
        let counts = tally.counts();
        let [sent, received] = [0, 1].map(|at| counts[at] - self.settled[at]);
        if sent + received == 0 {
            return;
        }
        self.settled = counts;
        if self.passing.is_some() {
            return;
        }
        let sends = self.sends.signaled_done(sent);
        let fits = sends.is_ok() && (0..received).all(|_| self.receives.own_done().is_some());
        if !fits {
            self.pass(NOT_POSTED);
        }
    }

    /// Requests go straight to the program's own queue pair.
    pub const fn goes_straight(&self) -> bool {
        self.passing.is_none() && self.send_on.is_own() && !self.closed && !self.lost
    }

    /// Receives go there.
    pub const fn receives_straight(&self) -> bool {
        self.passing.is_none() && self.recv_on.is_own() && !self.lost
    }

    /// True while everything is on the program's own queue pair and nothing is being moved.
    pub const fn is_at_home(&self) -> bool {
        self.send_on.is_own() && self.recv_on.is_own() && !self.closed && !self.lost
    }

    /// Takes a completion of what was posted to wake the program. True if this is one.
    pub(crate) fn woke(&mut self, wc: &ibv_wc) -> bool {
        let flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
        let which = WAKE.iter().position(|number| flushed && *number == wc.wr_id);
        which.is_some_and(|which| std::mem::take(&mut self.waking[which]))
    }

    pub(crate) fn failed(&mut self, wc: &ibv_wc) -> Goes {
        let over = !self.send_on.is_own() && !self.recv_on.is_own();
        if over {
            return Goes::Nowhere;
        }
        if self.is_at_home() && is_the_programs(wc.status) {
            self.pass("an error of the program's own");
            return Goes::On;
        }
        if !self.armed && self.is_at_home() {
            self.pass("it failed before a backup was ready");
            return Goes::On;
        }
        self.first_error.get_or_insert(*wc);
        self.own_failed = true;
        Goes::Nowhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_verbs_journal::request::Piece;

    /// One that had lost an atomic's answer sent what was posted after that, over the backup: a message arrived though
    /// others before it had failed.
    #[test]
    fn nothing_goes_straight_once_it_is_lost() {
        let mut state = State::default();
        assert!(state.goes_straight());
        state.lost = true;
        assert!(!state.goes_straight());
    }

    /// A receiver that posts nothing counted as a path that had failed: the queue pair moved without end.
    #[test]
    fn a_receiver_that_is_not_ready_is_the_programs_error() {
        let mut state = State { armed: true, ..State::default() };
        let wc = ibv_wc { status: shunt_mlx5_sys::IBV_WC_RNR_RETRY_EXC_ERR, ..ibv_wc::default() };
        assert_eq!(state.failed(&wc), Goes::On);
        assert!(!state.own_failed && state.passing.is_some());
        let wc = ibv_wc { status: shunt_mlx5_sys::IBV_WC_RETRY_EXC_ERR, ..ibv_wc::default() };
        let mut state = State { armed: true, ..State::default() };
        assert_eq!(state.failed(&wc), Goes::Nowhere);
        assert!(state.own_failed && state.passing.is_none());
    }

    /// Mooncake begins each connection by a move to RESET, and none of its queue pairs was protected.
    #[test]
    fn a_reset_before_the_first_connection_forgets_nothing() {
        let mut state = State::default();
        assert!(!state.has_past());
        state.connection.receives = true;
        assert!(state.has_past());
        let mut state = State::default();
        state.receives.push(1, &[Piece::default()]);
        assert!(state.has_past(), "the NIC forgets a receive that is kept here");
        let mut state = State::default();
        state.stop(STOPPED);
        assert!(state.has_past(), "it would stay unprotected");
    }
}
