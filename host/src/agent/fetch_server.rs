//! Exact fetching atomics that peers ask of this PE: which are due, and when a NIC is asked to execute them. Rule 23.
//!
//! A request is executed at the home of its channel index, by the worker of that rail, and answered once: [`due`] says
//! from what lies in memory whether it still is to be. So it does no harm to give the same work twice, and an agent
//! that follows another gives it again. What a home that moves leaves behind is taken back, or awaited.

use crate::nanos::Nanos;
use shunt_device::Amo;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::FetchRequest;

/// Pause before work that failed is given again, doubled by each failure.
const PAUSE: Nanos = Nanos::millis(1);
/// Doublings of that pause at most.
const PAUSE_DOUBLINGS: u32 = 5;
/// An agent does not sleep for so long after a request was served: its requester often has another one.
const AWAKE: Nanos = Nanos::micros(200);

/// Requests that one job executes at most: a fence may wait behind it.
pub const EXECUTED_MAX: u32 = 16;

/// The PE whose request is looked at first in the job after one that began with `first`. Jobs begin with each in turn
/// where one may not get to all of them: those of the first PEs would leave the others no time.
pub fn next_first(first: u32, pes: u32) -> u32 {
    if pes <= EXECUTED_MAX { 0 } else { (first + EXECUTED_MAX) % pes }
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: there is none, it is not whole, or it was answered.
    Nothing,
    /// An atomic on the word at this heap offset.
    Execute(Amo, u64),
    /// It asks for what cannot be.
    Refuse,
}

/// What is to become of the request of a row: `number` is the newest that its requester announced, `replied` that of
/// the reply which lies there.
pub fn due(number: u64, request: &FetchRequest, replied: u64, heap_bytes: u64) -> Due {
    let answered = number == replied && !Mutant::FetchExecutedTwice.on();
    if number == 0 || answered || request.number != number {
        return Due::Nothing;
    }
    match Amo::from_request(request) {
        Some(amo) if is_word(request.word, amo.bytes().into(), heap_bytes) => Due::Execute(amo, request.word),
        _ => Due::Refuse,
    }
}

/// True if an aligned word of so many bytes lies in the heap.
fn is_word(at: u64, bytes: u64, heap_bytes: u64) -> bool {
    at.is_multiple_of(bytes) && at < heap_bytes && bytes <= heap_bytes - at
}

/// How the requests of one channel index stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    /// Some row has a request without a reply.
    due: bool,
    /// A worker was told.
    given: bool,
    /// Not before then.
    rests_until: Nanos,
    /// Failures in a row.
    failures: u32,
    /// Since when nobody has served what is due.
    waiting_since: Option<Nanos>,
}

impl Requests {
    /// Some row has a request without a reply.
    pub fn seen(&mut self, now: Nanos) {
        self.due = true;
        self.waiting_since.get_or_insert(now);
    }

    /// True if what is due has waited for so long.
    pub fn is_overdue(&self, now: Nanos, patience: Nanos) -> bool {
        self.waiting_since.is_some_and(|since| now >= since + patience)
    }

    /// True while nobody is told, because the last one failed.
    pub fn rests(&self, now: Nanos) -> bool {
        now < self.rests_until
    }

    /// True if a worker is to be told now. It counts as told.
    pub fn give(&mut self, now: Nanos, moving: bool) -> bool {
        let due = std::mem::take(&mut self.due);
        if !due || self.given || moving || self.rests(now) {
            return false;
        }
        self.given = true;
        true
    }

    /// The worker is done.
    pub fn worked(&mut self) {
        (self.given, self.failures, self.waiting_since) = (false, 0, None);
    }

    /// It could not: nothing of what is still due was executed.
    pub fn failed(&mut self, now: Nanos) {
        self.given = false;
        self.rests_until = now + PAUSE.doubled(self.failures.min(PAUSE_DOUBLINGS));
        self.failures += 1;
    }

    /// What the worker had not begun was taken back.
    pub fn taken_back(&mut self) {
        self.given = false;
    }
}

/// The requests to one PE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchServer {
    channels: Vec<Requests>,
    /// By row: the newest number that is known to be answered.
    served: Vec<u64>,
    awake_until: Nanos,
    /// By channel index: the PE that the next job begins with.
    first: Vec<u32>,
}

impl FetchServer {
    /// Of so many channels a peer and rows of all.
    pub fn new(channels: usize, rows: usize) -> Self {
        Self {
            channels: vec![Requests::default(); channels],
            served: vec![0; rows],
            awake_until: Nanos::ZERO,
            first: vec![0; channels],
        }
    }

    /// Looks at every row. `number` reads the newest number of a row, `replied` that of its reply.
    pub fn scan(&mut self, now: Nanos, number: impl Fn(usize) -> u64, replied: impl Fn(usize) -> u64) {
        let per = self.channels.len();
        for (row, served) in self.served.iter_mut().enumerate() {
            let newest = number(row);
            if newest == *served {
                continue;
            }
            if replied(row) == newest {
                *served = newest;
            } else {
                self.channels[row % per].seen(now);
            }
        }
    }

    /// The PE to begin with, if a worker is to be told of a channel index now. It counts as told.
    pub fn give(&mut self, now: Nanos, channel: usize, moving: bool) -> Option<u32> {
        let pes = (self.served.len() / self.channels.len()) as u32;
        self.channels[channel].give(now, moving).then(|| {
            let first = self.first[channel];
            self.first[channel] = next_first(first, pes);
            first
        })
    }

    /// The worker is done with a channel index.
    pub fn worked(&mut self, now: Nanos, channel: usize) {
        self.channels[channel].worked();
        self.awake_until = now + AWAKE;
    }

    /// It could not: nothing of what is still due was executed.
    pub fn failed(&mut self, now: Nanos, channel: usize) {
        self.channels[channel].failed(now);
    }

    /// What the worker had not begun was taken back.
    pub fn taken_back(&mut self, channel: usize) {
        self.channels[channel].taken_back();
    }

    /// True if what is due of a channel index has waited for so long.
    pub fn is_overdue(&self, now: Nanos, channel: usize, patience: Nanos) -> bool {
        self.channels[channel].is_overdue(now, patience)
    }

    /// What was due of a channel index was answered without being executed.
    pub fn ended(&mut self, channel: usize) {
        self.channels[channel] = Requests::default();
    }

    /// True while a worker has a channel index.
    pub fn is_given(&self, channel: usize) -> bool {
        self.channels[channel].given
    }

    /// True while the agent should not sleep.
    pub fn is_awake(&self, now: Nanos) -> bool {
        now < self.awake_until || self.channels.iter().any(|one| one.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_layout::state::AmoForm;

    fn add(number: u64, word: u64) -> FetchRequest {
        FetchRequest { number, word, operand: 3, form: AmoForm::Add64 as u32, ..FetchRequest::default() }
    }

    #[test]
    fn a_request_is_due_until_its_number_is_answered() {
        let due = |number, request: &FetchRequest, replied| due(number, request, replied, 4096);
        assert_eq!(due(0, &add(0, 64), 0), Due::Nothing, "none was made");
        assert_eq!(due(1, &add(1, 64), 0), Due::Execute(Amo::Add64(3), 64));
        assert_eq!(due(1, &add(1, 64), 1), Due::Nothing);
        assert_eq!(due(2, &add(1, 64), 1), Due::Nothing, "the record is not the number's");
        assert_eq!(due(2, &add(2, 4096), 1), Due::Refuse, "behind the heap");
        assert_eq!(due(2, &add(2, 68), 1), Due::Refuse, "not aligned");
        assert_eq!(due(2, &FetchRequest { form: 77, ..add(2, 64) }, 1), Due::Refuse);
    }

    #[test]
    fn work_is_given_once_and_again_after_it_failed() {
        let mut server = FetchServer::new(2, 4);
        let at = Nanos::micros;
        let scan = |server: &mut FetchServer, numbers: [u64; 4], replied: [u64; 4]| {
            server.scan(at(0), |row| numbers[row], |row| replied[row]);
        };
        scan(&mut server, [0, 1, 0, 0], [0; 4]);
        assert!(server.give(at(0), 0, false).is_none(), "nothing is due there");
        assert!(server.give(at(0), 1, false).is_some() && server.is_awake(at(0)));
        scan(&mut server, [0, 1, 0, 1], [0; 4]);
        assert!(server.give(at(1), 1, false).is_none(), "it is given");
        server.failed(at(1), 1);
        scan(&mut server, [0, 1, 0, 1], [0; 4]);
        assert!(server.give(at(2), 1, false).is_none(), "it rests");
        scan(&mut server, [0, 1, 0, 1], [0; 4]);
        assert!(server.give(at(1500), 1, true).is_none(), "its home moves");
        scan(&mut server, [0, 1, 0, 1], [0; 4]);
        assert!(server.give(at(1500), 1, false).is_some());
        assert!(server.is_overdue(at(1500), 1, at(1500)) && !server.is_overdue(at(1500), 1, at(1501)));
        server.worked(at(1501), 1);
        assert!(!server.is_overdue(at(9999), 1, at(1)), "it was served");
        scan(&mut server, [0, 1, 0, 1], [0, 1, 0, 1]);
        assert!(server.give(at(1502), 1, false).is_none(), "both are answered");
        assert!(server.is_awake(at(1600)) && !server.is_awake(at(1800)));
    }

    /// The sixteen first PEs always had another request, and those behind them waited until it was too late.
    #[test]
    fn every_pe_comes_first_before_long() {
        for pes in [17, 18, 32, 1000] {
            let mut first = 0;
            let mut looked: std::collections::BTreeSet<u32> = (0..EXECUTED_MAX).collect();
            for _ in 0..pes {
                first = next_first(first, pes);
                looked.extend((first..first + EXECUTED_MAX).map(|pe| pe % pes));
            }
            assert_eq!(looked.len() as u32, pes, "of {pes}");
        }
        assert_eq!(next_first(0, EXECUTED_MAX), 0, "one job gets to all");
        let mut server = FetchServer::new(1, 20);
        let firsts = [0, 1, 2].map(|turn| {
            server.scan(Nanos::ZERO, |_| turn + 1, |_| turn);
            let first = server.give(Nanos::ZERO, 0, false);
            server.worked(Nanos::ZERO, 0);
            first
        });
        assert_eq!(firsts, [Some(0), Some(16), Some(12)]);
    }
}
