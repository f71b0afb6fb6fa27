//! The half of a queue pair that asks: what waits, what is under way, what is sent again, what has ended.
//!
//! Nothing here keeps an order. Messages and pieces of reads are each a *flight* of their own: sent, answered, or sent
//! again until they are given up.

use crate::format::{Piece, Status, Task, Wqe};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Flights at once.
const WINDOW: usize = 64;
/// How far the newest flight's number may be ahead of the oldest one's: so much a receiver remembers.
const SPAN: u64 = 4096;
/// How long the first answer is waited for. It doubles with each try, up to the second number.
const PATIENCE_NS: [u64; 2] = [30_000_000, 240_000_000];
/// How long a flight is tried in all.
const GIVE_UP_NS: u64 = 5_000_000_000;
/// How long a receiver that has posted nothing is left alone, times the tries, up to eight.
const NOT_READY_NS: u64 = 500_000;
/// Tries at such a receiver that mean: for ever.
pub const FOR_EVER: u8 = 7;

/// One message, or one piece of a read, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The WQE that asked for it.
    pub wqe: Wqe,
    /// Which read it is a piece of.
    read: Option<u64>,
    /// Where the piece stands in it.
    pub offset: u32,
    /// Bytes of the piece, or of the message.
    pub bytes: u32,
    due: u64,
    since: u64,
    tries: u32,
    refused: u32,
}

/// A read that is not complete.
struct Read {
    wqe: Wqe,
    issued: u32,
    flying: u32,
}

/// A request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The library's number of it.
    pub request: u16,
    /// How it ended.
    pub status: Status,
}

/// The half of a queue pair that asks.
pub struct Sender {
    next: u64,
    piece_bytes: u32,
    waiting: VecDeque<Wqe>,
    /// The read whose pieces are being issued: it is not in `waiting` any more.
    issuing: Option<u64>,
    reads: HashMap<u64, Read>,
    flights: BTreeMap<u64, Flight>,
}

impl Sender {
    /// Nothing to do. Reads go in pieces of so many bytes.
    pub fn new(piece_bytes: u32) -> Self {
        Self {
            next: 1,
            piece_bytes,
            waiting: VecDeque::new(),
            issuing: None,
            reads: HashMap::new(),
            flights: BTreeMap::new(),
        }
    }

    /// Takes a request.
    pub fn post(&mut self, wqe: Wqe) {
        self.waiting.push_back(wqe);
    }

    /// A number for something that is sent once and not waited for.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The number below which all is settled.
    pub fn floor(&self) -> u64 {
        self.flights.first_key_value().map_or(self.next, |(first, _)| *first)
    }

    /// A flight.
    pub fn flight(&self, number: u64) -> Option<&Flight> {
        self.flights.get(&number)
    }

    /// Starts the next flight, if there is one and it may start: its number.
    pub fn start(&mut self, now: u64) -> Option<u64> {
        if self.flights.len() >= WINDOW || self.next - self.floor() >= SPAN {
            return None;
        }
        if self.issuing.is_none() {
            let wqe = self.waiting.pop_front()?;
            let Task::Read { .. } = wqe.task else {
                return Some(self.launch(now, wqe, None, 0, wqe.task.bytes() as u32));
            };
            self.reads.insert(self.next, Read { wqe, issued: 0, flying: 0 });
            self.issuing = Some(self.next);
        }
        let key = self.issuing?;
        let read = self.reads.get_mut(&key)?;
        let (wqe, offset, whole) = (read.wqe, read.issued, read.wqe.task.bytes() as u32);
        let bytes = self.piece_bytes.min(whole - offset);
        read.issued += bytes;
        read.flying += 1;
        if read.issued == whole {
            self.issuing = None;
        }
        Some(self.launch(now, wqe, Some(key), offset, bytes))
    }

    fn launch(&mut self, now: u64, wqe: Wqe, read: Option<u64>, offset: u32, bytes: u32) -> u64 {
        let due = now + PATIENCE_NS[0];
        let flight = Flight { wqe, read, offset, bytes, due, since: now, tries: 1, refused: 0 };
        let number = self.number();
        self.flights.insert(number, flight);
        number
    }

    /// A flight that is due to be sent again by `now`; `Err` for one that is given up instead.
    pub fn again(&mut self, now: u64) -> Option<Result<u64, Ended>> {
        let (&number, flight) = self.flights.iter_mut().find(|(_, flight)| flight.due <= now)?;
        if now - flight.since >= GIVE_UP_NS {
            return self.end(number, Status::Unresponsive).map(Err);
        }
        let [first, most] = PATIENCE_NS;
        flight.due = now + (first << flight.tries.min(8)).min(most);
        flight.tries += 1;
        Some(Ok(number))
    }

    /// An answer came; the request that ended with it, if one did. `retries`: how often a receiver that has nothing
    /// posted is tried again.
    pub fn answered(&mut self, number: u64, status: Status, retries: u8, now: u64) -> Option<Ended> {
        let flight = self.flights.get_mut(&number)?;
        if status == Status::NotReady && (retries >= FOR_EVER || flight.refused < retries.into()) {
            flight.refused += 1;
            // It is there: the time until it is given up begins anew.
            flight.since = now;
            flight.due = now + NOT_READY_NS * u64::from(flight.refused.min(8));
            return None;
        }
        self.end(number, status)
    }

    /// The bytes of a piece came, and where they go. `None` if nobody waits for them.
    pub fn landing(&self, number: u64) -> Option<(Piece, u32)> {
        let flight = self.flights.get(&number)?;
        let Task::Read { local, .. } = flight.wqe.task else { return None };
        let address = local.address.wrapping_add(flight.offset.into());
        Some((Piece { address, bytes: flight.bytes, ..local }, flight.bytes))
    }

    /// A flight ends; its request does, too, unless other pieces of a read are missing.
    pub fn end(&mut self, number: u64, status: Status) -> Option<Ended> {
        let flight = self.flights.remove(&number)?;
        let ended = Ended { request: flight.wqe.request, status };
        let Some(key) = flight.read else { return Some(ended) };
        let read = self.reads.get_mut(&key)?;
        read.flying -= 1;
        if status == Status::Ok && (read.flying > 0 || read.issued < read.wqe.task.bytes() as u32) {
            return None;
        }
        // Of a read that failed no other piece counts.
        self.reads.remove(&key);
        self.flights.retain(|_, other| other.read != Some(key));
        self.issuing = self.issuing.filter(|issuing| *issuing != key);
        Some(ended)
    }

    /// Forgets everything, and says which requests that was: the oldest first.
    pub fn flush(&mut self) -> Vec<u16> {
        let flying = std::mem::take(&mut self.flights);
        let mut reads = std::mem::take(&mut self.reads);
        self.issuing = None;
        let mut all = Vec::new();
        for flight in flying.into_values() {
            match flight.read {
                None => all.push(flight.wqe.request),
                Some(key) => all.extend(reads.remove(&key).map(|read| read.wqe.request)),
            }
        }
        all.extend(reads.into_values().map(|read| read.wqe.request));
        all.extend(std::mem::take(&mut self.waiting).iter().map(|wqe| wqe.request));
        all
    }

    /// When a flight is to be sent again.
    pub fn next_due(&self) -> Option<u64> {
        self.flights.values().map(|flight| flight.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wqe(request: u16, task: Task) -> Wqe {
        Wqe { request, phase: false, qpn: 1, handle: 0, qkey: 0, imm: None, task }
    }

    fn send(request: u16) -> Wqe {
        wqe(request, Task::Inline([0; 32], 8))
    }

    fn read(request: u16, bytes: u32) -> Wqe {
        let piece = |key| Piece { key, address: 0x1000, bytes };
        wqe(request, Task::Read { remote: piece(1), local: piece(2) })
    }

    fn ended(request: u16, status: Status) -> Option<Ended> {
        Some(Ended { request, status })
    }

    #[test]
    fn messages_end_in_any_order_and_once() {
        let mut sender = Sender::new(100);
        (0..3).for_each(|request| sender.post(send(request)));
        let numbers: Vec<u64> = std::iter::from_fn(|| sender.start(0)).collect();
        assert_eq!((numbers.len(), sender.floor()), (3, numbers[0]));
        assert_eq!(sender.answered(numbers[2], Status::Ok, 7, 1), ended(2, Status::Ok));
        assert_eq!(sender.answered(numbers[2], Status::Ok, 7, 2), None, "an answer that came twice");
        assert_eq!(sender.floor(), numbers[0]);
        assert_eq!(sender.answered(numbers[0], Status::BadRemoteQp, 7, 2), ended(0, Status::BadRemoteQp));
        assert_eq!(sender.floor(), numbers[1]);
    }

    #[test]
    fn the_window_and_the_span_end_what_starts() {
        let mut sender = Sender::new(100);
        (0..10_000).for_each(|request| sender.post(send(request)));
        let first = sender.start(0).unwrap();
        let mut started = 1;
        while let Some(number) = sender.start(0) {
            started += 1;
            if started > WINDOW {
                break;
            }
            let _ = sender.answered(number, Status::Ok, 7, 0);
        }
        // One is never answered: what is behind it goes on, but not for ever.
        while let Some(number) = sender.start(0) {
            started += 1;
            let _ = sender.answered(number, Status::Ok, 7, 0);
        }
        assert_eq!((started as u64, sender.floor()), (SPAN, first));
        assert_eq!(sender.answered(first, Status::Ok, 7, 0), ended(0, Status::Ok));
        assert!(sender.start(0).is_some());
    }

    #[test]
    fn what_is_not_answered_is_sent_again_and_given_up() {
        let mut sender = Sender::new(100);
        sender.post(send(5));
        let number = sender.start(0).unwrap();
        let (mut now, mut tries) = (0, 0);
        let gone = loop {
            assert_eq!(sender.again(now), None, "not before its time");
            now = sender.next_due().unwrap();
            match sender.again(now).unwrap() {
                Ok(again) => assert_eq!(again, number),
                Err(ended) => break ended,
            }
            tries += 1;
        };
        assert_eq!(Some(gone), ended(5, Status::Unresponsive));
        assert!(tries > 10 && now >= GIVE_UP_NS, "{tries} tries");
        assert_eq!(sender.next_due(), None);
    }

    #[test]
    fn a_receiver_that_is_not_ready_is_asked_again_as_often_as_was_said() {
        let mut sender = Sender::new(100);
        sender.post(send(5));
        let number = sender.start(0).unwrap();
        for n in 1..=2 {
            assert_eq!(sender.answered(number, Status::NotReady, 2, n), None);
            assert_eq!(sender.next_due(), Some(n + n * NOT_READY_NS));
        }
        assert_eq!(sender.answered(number, Status::NotReady, 2, 3), ended(5, Status::NotReady));
        sender.post(send(6));
        let number = sender.start(0).unwrap();
        for n in 0..1000 {
            assert_eq!(sender.answered(number, Status::NotReady, FOR_EVER, n), None);
        }
    }

    #[test]
    fn a_read_ends_with_its_last_piece() {
        let mut sender = Sender::new(100);
        sender.post(read(9, 250));
        sender.post(send(10));
        let numbers: Vec<u64> = std::iter::from_fn(|| sender.start(0)).collect();
        assert_eq!(numbers.len(), 4);
        let piece = |n: usize| {
            let flight = sender.flight(numbers[n]).unwrap();
            (flight.offset, flight.bytes)
        };
        assert_eq!([piece(0), piece(1), piece(2)], [(0, 100), (100, 100), (200, 50)]);
        let (landing, bytes) = sender.landing(numbers[2]).unwrap();
        assert_eq!((landing.address, landing.key, bytes), (0x1000 + 200, 2, 50));
        assert_eq!(sender.landing(numbers[3]), None, "a message lands elsewhere");
        assert_eq!(sender.answered(numbers[2], Status::Ok, 7, 1), None);
        assert_eq!(sender.answered(numbers[0], Status::Ok, 7, 1), None);
        assert_eq!(sender.answered(numbers[1], Status::Ok, 7, 1), ended(9, Status::Ok));
    }

    #[test]
    fn a_read_fails_once_and_as_a_whole() {
        let mut sender = Sender::new(100);
        sender.post(read(9, 100_000));
        sender.post(read(10, 0));
        let numbers: Vec<u64> = std::iter::from_fn(|| sender.start(0)).collect();
        assert_eq!(numbers.len(), WINDOW);
        let failed = sender.answered(numbers[1], Status::BadRemoteAddress, 7, 1);
        assert_eq!(failed, ended(9, Status::BadRemoteAddress));
        assert_eq!(sender.answered(numbers[0], Status::Ok, 7, 1), None);
        let next = sender.start(1).unwrap();
        assert_eq!(sender.flight(next).unwrap().wqe.request, 10, "the rest of it is not asked for");
        assert_eq!(sender.answered(next, Status::Ok, 7, 1), ended(10, Status::Ok));
        assert_eq!(sender.start(1), None);
    }

    #[test]
    fn a_flush_names_every_request_once() {
        let mut sender = Sender::new(100);
        sender.post(read(0, 250));
        (1..200).for_each(|request| sender.post(send(request)));
        while sender.start(0).is_some() {}
        assert_eq!(sender.flush(), (0..200).collect::<Vec<u16>>());
        assert!(sender.flush().is_empty() && sender.start(0).is_none() && sender.next_due().is_none());
    }
}
