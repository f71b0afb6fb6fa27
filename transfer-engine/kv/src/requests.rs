//! A decoder's requests and the prefillers that it knows: what is to be done, and how each request ends. Pure.
//!
//! A request ends once. It is complete when all its immediates were counted, cancelled when its prefiller says that
//! nothing of it lands any more, and lost when its prefiller was cut off. A prefiller that says nothing for too long is
//! cut off.

use crate::words::{Ask, Word};
use std::collections::BTreeMap;
use std::mem::take;
use std::time::{Duration, Instant};

/// How patient a decoder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Pause between two words that say that it lives.
    pub beat: Duration,
    /// A prefiller that says nothing for so long is cut off.
    pub silent: Duration,
}

impl Patience {
    /// On hardware: ten beats.
    pub const HARDWARE: Self = Self { beat: Duration::from_millis(100), silent: Duration::from_secs(1) };
    /// On soft NICs, whose threads share few cores with everything else.
    pub const SOFT: Self = Self { beat: Duration::from_millis(100), silent: Duration::from_millis(2500) };
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// All of it is there.
    Complete,
    /// Not all of it is there, and nothing of it lands any more. Why, if the decoder did not cancel it.
    Cancelled(Option<String>),
    /// Its prefiller was cut off.
    Lost,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Do {
    /// Say something to a peer.
    Say(u32, Word),
    /// Cut a peer off. [`Requests::left`] follows once it is.
    Revoke(u32),
    /// The immediates of a request that ended are of no use any more.
    Forget(u32, u32),
    /// A request has ended.
    End(u32, u32, How),
}

#[derive(Debug)]
struct Request {
    peer: u32,
    is_cancelled: bool,
}

#[derive(Debug)]
struct Peer {
    name: u32,
    /// Since it was heard, while this end listened.
    silent: Duration,
    next_beat: Instant,
    is_revoked: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Requests {
    patience: Patience,
    next: u32,
    all: BTreeMap<u32, Request>,
    peers: BTreeMap<u32, Peer>,
    /// The last tick.
    ticked: Option<Instant>,
    out: Vec<Do>,
}

impl Requests {
    /// None yet.
    pub const fn new(patience: Patience) -> Self {
        Self {
            patience,
            next: 0,
            all: BTreeMap::new(),
            peers: BTreeMap::new(),
            ticked: None,
            out: Vec::new(),
        }
    }

    /// What is to be done, in order.
    pub fn take(&mut self) -> Vec<Do> {
        take(&mut self.out)
    }

    /// Requests that have not ended.
    pub fn open(&self) -> usize {
        self.all.len()
    }

    /// The prefiller with the fewest requests, of those that serve.
    pub fn least_busy(&self) -> Option<u32> {
        let serves = self.peers.iter().filter(|(_, peer)| !peer.is_revoked).map(|(number, _)| *number);
        serves.min_by_key(|number| self.all.values().filter(|request| request.peer == *number).count())
    }

    /// Prefillers that serve.
    pub fn serving(&self) -> usize {
        self.peers.values().filter(|peer| !peer.is_revoked).count()
    }

    /// What a prefiller is called by the application.
    pub fn name(&self, peer: u32) -> Option<u32> {
        self.peers.get(&peer).map(|peer| peer.name)
    }

    /// The number of the next request. It is not zero, so that no immediate of it is.
    pub const fn next_id(&self) -> u32 {
        self.next.wrapping_add(1)
    }

    /// Asks a prefiller that serves for a prompt.
    pub fn ask(&mut self, peer: u32, prompt: u64, pages: Vec<u32>, context: u64) -> u32 {
        let id = self.next_id();
        self.next = id;
        self.all.insert(id, Request { peer, is_cancelled: false });
        self.out.push(Do::Say(peer, Word::Ask(Ask { id, prompt, pages, context })));
        id
    }

    /// Cancels a request: it ends when its prefiller has answered, or is cut off, or when all of it was there before.
    /// False if it has ended, or was cancelled.
    pub fn cancel(&mut self, id: u32) -> bool {
        let Some(request) = self.all.get_mut(&id).filter(|request| !request.is_cancelled) else {
            return false;
        };
        request.is_cancelled = true;
        self.out.push(Do::Say(request.peer, Word::Cancel(id)));
        true
    }

    fn end(&mut self, id: u32, how: How) {
        if let Some(request) = self.all.remove(&id) {
            if how != How::Complete {
                self.out.push(Do::Forget(request.peer, id));
            }
            self.out.push(Do::End(id, request.peer, how));
        }
    }

    /// All immediates of a request were counted.
    pub fn reached(&mut self, id: u32) {
        self.end(id, How::Complete);
    }

    /// A peer says something.
    pub fn heard(&mut self, now: Instant, from: u32, word: &Word) {
        let beat = self.patience.beat;
        if let Word::Serves(name) = *word {
            let peer = Peer { name, silent: Duration::ZERO, next_beat: now + beat, is_revoked: false };
            self.peers.entry(from).or_insert(peer);
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.silent = Duration::ZERO;
        let is_theirs = |id: &u32| self.all.get(id).is_some_and(|request| request.peer == from);
        match word {
            Word::Over(id, why) if is_theirs(id) => {
                let is_cancelled = self.all.get(id).is_some_and(|request| request.is_cancelled);
                let why = why.clone().filter(|_| !is_cancelled);
                self.end(*id, How::Cancelled(why));
            }
            Word::Unproven(id) if is_theirs(id) => self.revoke(from),
            _ => {}
        }
    }

    fn revoke(&mut self, number: u32) {
        if let Some(peer) = self.peers.get_mut(&number).filter(|peer| !peer.is_revoked) {
            peer.is_revoked = true;
            self.out.push(Do::Revoke(number));
        }
    }

    /// Time passes, and all that has come was heard. A pause of this process is no silence of another one.
    pub fn tick(&mut self, now: Instant) {
        let Patience { beat, silent } = self.patience;
        let passed =
            self.ticked.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let mut gone = Vec::new();
        for (number, peer) in self.peers.iter_mut().filter(|(_, peer)| !peer.is_revoked) {
            peer.silent += passed.min(beat);
            if peer.silent >= silent {
                gone.push(*number);
            } else if peer.next_beat <= now {
                peer.next_beat = now + beat;
                self.out.push(Do::Say(*number, Word::Beat));
            }
        }
        gone.into_iter().for_each(|number| self.revoke(number));
    }

    /// A peer is cut off: nothing of it lands any more.
    pub fn left(&mut self, number: u32) {
        self.peers.remove(&number);
        let theirs = self.all.iter().filter(|(_, request)| request.peer == number);
        let theirs: Vec<u32> = theirs.map(|(id, _)| *id).collect();
        theirs.into_iter().for_each(|id| self.end(id, How::Lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn begun(now: Instant) -> Requests {
        let mut requests = Requests::new(Patience::HARDWARE);
        for peer in [1, 2] {
            requests.heard(now, peer, &Word::Serves(10 + peer));
        }
        assert_eq!(requests.take(), []);
        requests
    }

    #[test]
    fn a_request_ends_in_one_of_three_ways() {
        let now = Instant::now();
        let mut requests = begun(now);
        let asked: Vec<(u32, u32)> = (0..4)
            .map(|prompt| {
                let peer = requests.least_busy().expect("they serve");
                (requests.ask(peer, prompt, vec![0], 0), peer)
            })
            .collect();
        let of = |peer| asked.iter().filter(move |(_, other)| *other == peer).map(|(id, _)| *id);
        assert_eq!((of(1).count(), of(2).count()), (2, 2), "they share");
        requests.take();
        let (first, second) = (of(1).next().unwrap(), of(1).nth(1).unwrap());
        requests.reached(first);
        assert_eq!(requests.take(), [Do::End(first, 1, How::Complete)]);
        assert!(requests.cancel(second) && !requests.cancel(second) && !requests.cancel(first));
        assert_eq!(requests.take(), [Do::Say(1, Word::Cancel(second))]);
        requests.heard(now, 2, &Word::Over(second, None));
        assert_eq!(requests.take(), [], "it is not that one's");
        requests.heard(now, 1, &Word::Over(second, None));
        assert_eq!(requests.take(), [Do::Forget(1, second), Do::End(second, 1, How::Cancelled(None))]);
        requests.heard(now, 2, &Word::Unproven(of(2).next().unwrap()));
        assert_eq!(requests.take(), [Do::Revoke(2)]);
        assert_eq!((requests.least_busy(), requests.open()), (Some(1), 2), "it serves no more");
        requests.left(2);
        assert_eq!(requests.take().iter().filter(|one| matches!(one, Do::End(_, 2, How::Lost))).count(), 2);
        assert_eq!(requests.open(), 0);
    }

    #[test]
    fn a_prefiller_that_says_nothing_is_cut_off() {
        let now = Instant::now();
        let mut requests = begun(now);
        let Patience { beat, silent } = Patience::HARDWARE;
        requests.tick(now);
        requests.tick(now + beat);
        assert_eq!(requests.take(), [Do::Say(1, Word::Beat), Do::Say(2, Word::Beat)]);
        requests.tick(now + 10 * silent);
        assert!(!requests.take().contains(&Do::Revoke(1)), "this process did not listen");
        let mut at = now + 10 * silent;
        for _ in 0..silent.as_millis() / beat.as_millis() {
            at += beat;
            requests.heard(at, 2, &Word::Beat);
            requests.tick(at);
        }
        let revoked = |one: &&Do| matches!(one, Do::Revoke(_));
        assert_eq!(requests.take().iter().filter(revoked).collect::<Vec<_>>(), [&Do::Revoke(1)], "once");
        requests.left(1);
        requests.heard(at, 1, &Word::Beat);
        assert_eq!(requests.serving(), 1, "its number is not used again");
    }

    proptest! {
        /// Whatever comes, and in which order: each request ends at most once, and those of a peer that left all do.
        #[test]
        fn requests_end_once(steps in proptest::collection::vec((0..7u8, 0..3u32, 0..12u32), 0..100)) {
            let now = Instant::now();
            let mut requests = begun(now);
            let mut ended = BTreeMap::new();
            let mut asked = 0;
            for (what, peer, id) in steps {
                match what {
                    0 => {
                        if let Some(peer) = requests.least_busy() {
                            requests.ask(peer, 0, vec![], 0);
                            asked += 1;
                        }
                    }
                    1 => _ = requests.cancel(id),
                    2 => requests.reached(id),
                    3 => requests.heard(now, peer, &Word::Over(id, None)),
                    4 => requests.heard(now, peer, &Word::Unproven(id)),
                    5 => requests.left(peer),
                    _ => requests.tick(now + Duration::from_secs(u64::from(id))),
                }
                for one in requests.take() {
                    if let Do::End(id, ..) = one {
                        prop_assert_eq!(ended.insert(id, ()), None);
                    }
                }
            }
            prop_assert_eq!(ended.len() + requests.open(), asked);
            (0..3).for_each(|peer| requests.left(peer));
            prop_assert_eq!(requests.open(), 0);
        }
    }
}
