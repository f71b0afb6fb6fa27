//! What the phases of an exchange have in common: offsets, who is left out, credits, waits that look after channels.

use super::call::{ABSOLUTE, ASK, MoeCall};
use super::poster::{ENTRIES, Poster, room_slow};
use super::stop::Stop;
use super::tensor;
use shunt_device::{Channel, Deadline, Device, HeapOffset, Platform, Put, Signal, Solo, WarpLanes};
use shunt_layout::moe::{At, CALLS_MAX, SETS, TOPK_MAX};
use shunt_layout::mutant::Mutant;

/// Which part of a phase's work a warp has: it is shared out among all warps of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

impl Part {
    /// The numbers below `count` that are this part's: the first, and the step to the next.
    #[inline(always)]
    pub const fn stride(self) -> (u64, u64) {
        (self.number as u64, if self.of == 0 { 1 } else { self.of as u64 })
    }
}

/// One warp in one phase.
pub struct Exchange<'s, 'c, P: Platform, L: WarpLanes> {
    pub device: Device<'s, P>,
    pub lanes: L,
    pub call: &'c MoeCall,
    pub deadline: Deadline,
    pub me: u32,
    /// This call's, of all calls.
    pub number: u64,
}

/// What a wait for a word of a peer ended with.
pub enum Heard {
    /// The word's value, not zero.
    Word(u64),
    /// The peer is left out.
    Masked,
}

/// The number that a flag's word carries.
pub const FLAG: u64 = 0;

/// Bits of an absolute word below the call's number.
const CALL_SHIFT: u32 = 32;

/// Of a peer that a look takes: it is asked by a message that moves nothing. Ranks are below `moe::RANKS_MAX`.
const ASKED: u64 = 1 << 31;

/// How a slice of a wait ended where the word did not come.
const GO_ON: u64 = 0;
const LATE: u64 = 1;
const LOST: u64 = 2;
const LEFT_OUT: u64 = 3;

impl<'s, 'c, P: Platform, L: WarpLanes> Exchange<'s, 'c, P, L> {
    /// Begins a phase: its time runs from now on.
    #[inline(always)]
    pub fn begin(device: Device<'s, P>, lanes: L, call: &'c MoeCall) -> Self {
        let (me, deadline) = (device.my_pe(), Deadline::after(device.now_ns(), call.timeout_ns));
        let mut number = call.call;
        if call.before != 0 {
            // SAFETY: a word of the caller's (`MoeCall`), which only the last block of a graph's last kernel writes.
            number = number.wrapping_add(unsafe { tensor::read::<u64>(call.before, 0) });
        }
        Self { device, lanes, call, deadline, me, number }
    }

    /// The set of buffers of this call.
    #[inline(always)]
    pub fn set(&self) -> u64 {
        self.number % SETS
    }

    /// Refuses a call that does not fit the heap or the job, or whose number does not fit the words that hold it.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Stop> {
        let (device, call, shape) = (self.device, self.call, &self.call.shape);
        let fits = shape.ranks == device.pe_count()
            && call.tokens <= shape.tokens
            && call.topk <= TOPK_MAX
            && (self.number <= CALLS_MAX || Mutant::NumbersWrap.on())
            && device.holds(HeapOffset(call.base), shape.bytes());
        if fits { Ok(()) } else { Err(Stop::wrong(self.me)) }
    }

    #[inline(always)]
    pub fn channel(&self, rank: u32, index: u32) -> Channel<'s, P> {
        self.device.channel(rank, index)
    }

    /// Where something of the exchange is in the heap.
    #[inline(always)]
    pub fn at(&self, at: At) -> HeapOffset {
        HeapOffset(self.call.base.wrapping_add(at.0))
    }

    #[inline(always)]
    pub fn leads(&self) -> bool {
        self.lanes.rank() == 0
    }

    /// Rank and local expert of an expert.
    #[inline(always)]
    pub fn home(&self, expert: u64) -> (u32, u32) {
        split(expert, self.call.shape.local_experts)
    }

    /// Whether a rank is left out: all lanes get the leader's answer.
    #[inline(always)]
    pub fn masked(&self, rank: u32) -> bool {
        let word = if self.leads() { self.device.load(self.at(self.call.shape.mask(rank))) } else { 0 };
        self.lanes.broadcast(word, 0) != 0
    }

    /// A peer as a look at it takes it: its channels (high half), whether it is asked, and its number. Registers: a
    /// structure would lie on a stack. Of a rank that is mapped here no channel says anything, unless it is asked.
    #[inline(always)]
    fn peer(&self, rank: u32) -> u64 {
        let (mapped, asks) = (self.near(rank) != 0, self.call.has(ASK));
        let channels = if mapped && !asks { 0 } else { self.call.shape.local_experts as u64 };
        let ask = if mapped && asks { ASKED } else { 0 };
        channels << 32 | ask | rank as u64
    }

    /// Where the mask of a rank is.
    #[inline(always)]
    fn mask_at(&self, rank: u32) -> u64 {
        self.at(self.call.shape.mask(rank)).0
    }

    /// Waits until a word of this rank, which `rank` writes by channel `index`, is at least `value`. The leader's
    /// look is shared: what the word covers is there for all lanes.
    ///
    /// The wait looks after this rank's channels, so failures are found and switches go on; every slice it asks whether
    /// the peer is lost.
    #[inline(always)]
    pub fn hear(&self, at: At, value: u64, rank: u32, index: u32) -> Result<Heard, Stop> {
        let (mut word, until) = (0, self.deadline.at_ns);
        if self.leads() {
            word = self.device.load(self.at(at));
            if word < value {
                let (mask, peer, slice) = (self.mask_at(rank), self.peer(rank), self.call.slice_ns);
                word = hear_slow(self.device, self.at(at).0, value, mask, peer, slice, until);
            }
        }
        let word = self.device.share(self.lanes, word);
        if word >= value {
            return Ok(Heard::Word(word));
        }
        let answer = if self.leads() {
            look_slow(self.device, self.mask_at(rank), self.peer(rank), until)
        } else {
            GO_ON
        };
        match self.lanes.broadcast(answer, 0) {
            LEFT_OUT => Ok(Heard::Masked),
            LOST => Err(Stop::lost(rank, self.call.shape.local_experts)),
            _ => Err(Stop::late(rank, index)),
        }
    }

    /// Waits for words of many peers: `count` of them, each at least `least`, or its rank is left out. Lanes look side
    /// by side, and only words that are not there yet are waited for one by one. `word` says where one is, and which
    /// rank writes it by which channel. What words cover is there for all lanes.
    #[inline(always)]
    pub fn hear_all(&self, count: u64, least: u64, word: impl Fn(u64) -> (At, u32, u32)) -> Result<(), Stop> {
        let mut first = 0;
        while first < count {
            let mine = first + self.lanes.rank() as u64;
            let late = self.lanes.ballot(mine < count && !self.is_heard(word(mine), least));
            self.hear_late(first, late, least, &word)?;
            first += self.lanes.size() as u64;
        }
        self.lanes.sync();
        Ok(())
    }

    /// The same for those of 32 numbers at most whose bit is set in `asked`.
    #[inline(always)]
    pub fn hear_those(
        &self,
        asked: u32,
        least: u64,
        word: impl Fn(u64) -> (At, u32, u32),
    ) -> Result<(), Stop> {
        let late = self.which(u32::BITS - asked.leading_zeros(), |mine| {
            asked >> mine & 1 != 0 && !self.is_heard(word(mine as u64), least)
        });
        self.hear_late(0, late, least, &word)?;
        self.lanes.sync();
        Ok(())
    }

    #[inline(always)]
    fn is_heard(&self, (at, rank, _): (At, u32, u32), least: u64) -> bool {
        self.device.load(self.at(at)) >= least || self.is_left_out(rank)
    }

    /// Waits for words from number `first` on whose bit is set in `late`, one after the other.
    #[inline(always)]
    fn hear_late(
        &self,
        first: u64,
        mut late: u32,
        least: u64,
        word: impl Fn(u64) -> (At, u32, u32),
    ) -> Result<(), Stop> {
        while late != 0 {
            let (at, rank, index) = word(first + late.trailing_zeros() as u64);
            self.hear(at, least, rank, index)?;
            late &= late - 1;
        }
        Ok(())
    }

    /// Whether a rank is left out, as this lane sees it.
    #[inline(always)]
    pub fn is_left_out(&self, rank: u32) -> bool {
        self.device.load(self.at(self.call.shape.mask(rank))) != 0
    }

    /// Which of `count` numbers, 32 at most, `yes` is true for: a bit each, the same to all lanes.
    #[inline(always)]
    pub fn which(&self, count: u32, yes: impl Fn(u32) -> bool) -> u32 {
        let (mut first, mut all) = (0, 0);
        while first < count {
            let mine = first + self.lanes.rank();
            all |= self.lanes.ballot(mine < count && yes(mine)) << first;
            first += self.lanes.size();
        }
        all
    }

    /// Does something for each rank that is not left out, lanes side by side. The first that fails is the answer.
    #[inline(always)]
    pub fn for_ranks(&self, each: impl Fn(u32) -> Result<(), Stop>) -> Result<(), Stop> {
        let (mut rank, mut done) = (self.lanes.rank(), Ok(()));
        while rank < self.call.shape.ranks {
            if done.is_ok() && !self.is_left_out(rank) {
                done = each(rank);
            }
            rank += self.lanes.size();
        }
        let failed = self.lanes.ballot(done.is_err());
        if failed == 0 {
            return Ok(());
        }
        let stop = match done {
            Err(stop) => stop,
            Ok(()) => Stop::wrong(self.me),
        };
        Err(stop.of_lane(self.lanes, failed.trailing_zeros()))
    }

    /// Waits until every rank has taken the call before the last: its messages' room is free there, and what was sent
    /// from here is not needed any more.
    #[inline(always)]
    pub fn room(&self) -> Result<(), Stop> {
        let call = self.call;
        if self.number <= call.floor + SETS || Mutant::CreditNotAwaited.on() {
            return Ok(());
        }
        let credit = |rank: u64| (call.shape.credit(rank as u32), rank as u32, 0);
        self.hear_all(call.shape.ranks as u64, self.number - SETS, credit)
    }

    /// Tells `rank` that what it sent in this call is taken. One lane.
    #[inline(always)]
    pub fn thank(&self, rank: u32) -> Result<(), Stop> {
        self.tell(rank, self.call.shape.credit(self.me), self.number)
    }

    /// A kind 1 signal on the channel of credits and meetings, or a store. One lane; others may tell other ranks
    /// meanwhile.
    #[inline(always)]
    pub fn tell(&self, rank: u32, at: At, value: u64) -> Result<(), Stop> {
        let near = self.near(rank);
        if near != 0 {
            self.set_near(near, at, value);
            return Ok(());
        }
        // Inlined, and each kernel has it once: a function would have to save registers over its cold calls.
        let channel = self.channel(rank, 0);
        let room = channel.has_room(ENTRIES) || Mutant::RoomNotLookedFor.on();
        let late = if room { 0 } else { room_slow(channel, self.deadline.at_ns) };
        if late != 0 {
            return Err(Stop::ended(rank, 0, late));
        }
        let posted = channel.try_signal(Solo, self.at(at), Signal::Monotone(value));
        if posted.ticket().is_some() { Ok(()) } else { Err(Stop::refused(rank, 0, posted)) }
    }

    /// Waits until all that was posted on a channel is done. One lane.
    #[inline(always)]
    pub fn quiet(&self, rank: u32, index: u32) -> Result<(), Stop> {
        if self.channel(rank, index).try_quiet(Solo) {
            return Ok(());
        }
        match quiet_slow(self.device, rank, index, self.deadline.at_ns) {
            0 => Ok(()),
            kind => Err(Stop::ended(rank, index, kind)),
        }
    }

    /// Tells all lanes how the leader fared; the leader's answer counts.
    #[inline(always)]
    pub fn agree(&self, done: Result<(), Stop>) -> Result<(), Stop> {
        let bad = self.lanes.broadcast(done.is_err() as u64, 0) != 0;
        if !bad {
            return Ok(());
        }
        Err(match done {
            Err(stop) => stop,
            Ok(()) => Stop::wrong(self.me),
        })
    }

    /// What a word of counts or flags is told that covers messages, and what it is then. Kind 2: minus the number,
    /// minus one, added to zero. Kind 1: the call, and the number.
    #[inline(always)]
    pub fn covering(&self, number: u64) -> (Signal, u64) {
        if self.call.has(ABSOLUTE) {
            let word = self.number << CALL_SHIFT | number;
            return (Signal::Monotone(word), word);
        }
        (Signal::Cleared(!number), !number)
    }

    /// The least that such a word is once it was told.
    #[inline(always)]
    pub fn least(&self) -> u64 {
        if self.call.has(ABSOLUTE) { self.number << CALL_SHIFT } else { 1 }
    }

    /// The number that such a word carries, which cannot be above `most`: one that came twice, or is of another call,
    /// has another.
    #[inline(always)]
    fn number_in(&self, word: u64, most: u64) -> Option<u64> {
        let number = if self.call.has(ABSOLUTE) { word.wrapping_sub(self.least()) } else { !word };
        if number > most { None } else { Some(number) }
    }

    /// Waits for such a word; its number, which cannot be above `most`. Nothing if the peer is left out.
    #[inline(always)]
    pub fn hear_number(&self, at: At, most: u64, rank: u32, index: u32) -> Result<Option<u64>, Stop> {
        let Heard::Word(word) = self.hear(at, self.least(), rank, index)? else { return Ok(None) };
        match self.number_in(word, most) {
            Some(number) => Ok(Some(number)),
            None => Err(Stop::wrong(rank)),
        }
    }

    /// True if such a word, which was heard of, carries [`FLAG`].
    #[inline(always)]
    pub fn is_flag(&self, at: At) -> bool {
        self.number_in(self.device.load(self.at(at)), FLAG).is_some()
    }

    /// Gives such a word back. One lane.
    #[inline(always)]
    pub fn give_back(&self, at: At) {
        if !self.call.has(ABSOLUTE) {
            self.device.store(self.at(at), 0);
        }
    }

    /// Messages on one channel.
    #[inline(always)]
    pub fn poster(&self, rank: u32, index: u32) -> Poster<'s, P> {
        Poster {
            device: self.device,
            rank,
            index,
            until_ns: self.deadline.at_ns,
            late: 0,
            unrung: 0,
            failed: None,
        }
    }

    /// Ends what a poster began: all lanes go the leader's way.
    #[inline(always)]
    pub fn settle(&self, poster: &Poster<'s, P>) -> Result<(), Stop> {
        let done = match poster.failed {
            Some(posted) => Err(Stop::refused(poster.rank, poster.index, posted)),
            None if poster.late != 0 => Err(Stop::ended(poster.rank, poster.index, poster.late)),
            None => Ok(()),
        };
        self.agree(done)
    }
}

/// The leader's wait for a word, in slices; what it is then, which is too little if the peer is left out, lost or late.
#[inline(never)]
fn hear_slow<P: Platform>(
    device: Device<'_, P>,
    word: u64,
    value: u64,
    mask: u64,
    peer: u64,
    slice_ns: u64,
    until_ns: u64,
) -> u64 {
    loop {
        let slice = Deadline::after(device.now_ns(), slice_ns);
        let slice = if slice.at_ns < until_ns { slice } else { Deadline { at_ns: until_ns } };
        if let Ok(seen) = device.wait_until_ge(Solo, HeapOffset(word), value, slice) {
            return seen;
        }
        if look_slow(device, mask, peer, until_ns) != GO_ON {
            return device.load(HeapOffset(word));
        }
    }
}

/// The leader's look between two slices: whether a peer is left out, lost, or late.
#[inline(never)]
fn look_slow<P: Platform>(device: Device<'_, P>, mask: u64, peer: u64, until_ns: u64) -> u64 {
    let (rank, channels) = ((peer & (ASKED - 1)) as u32, (peer >> 32) as u32);
    if device.load(HeapOffset(mask)) != 0 {
        return LEFT_OUT;
    }
    // A rank's own words are written by its own blocks: no channel leads there.
    if rank != device.my_pe() {
        if peer & ASKED != 0 {
            ask_slow(device, rank, mask);
        }
        let mut index = 0;
        while index < channels {
            if device.channel(rank, index).alive().is_err() {
                return LOST;
            }
            index += 1;
        }
    }
    if device.now_ns() > until_ns { LATE } else { GO_ON }
}

/// Asks a rank for a sign of life, unless it has yet to answer the last time: what its NIC does not acknowledge ends
/// the channel once every path is dead past the give-up time.
#[inline(never)]
fn ask_slow<P: Platform>(device: Device<'_, P>, rank: u32, at: u64) {
    let channel = device.channel(rank, 0);
    if channel.try_quiet(Solo) && channel.has_room(ENTRIES) {
        // Refused, by a channel that is dead or a switch under way: the next look at it says so.
        let _ = channel.try_put(Solo, Put { dst: HeapOffset(at), src: HeapOffset(at), bytes: 0 });
    }
}

/// Waits until all that was posted on a channel is done; the kind of fault it ended with, or 0.
#[inline(never)]
pub fn quiet_slow<P: Platform>(device: Device<'_, P>, rank: u32, index: u32, until_ns: u64) -> u64 {
    match device.channel(rank, index).quiet(Solo, Deadline { at_ns: until_ns }) {
        Ok(()) => 0,
        Err(fault) => fault.kind as u64,
    }
}

/// Quotient and remainder as small numbers. A divisor of zero, which no shape has, gives zeros: no panic path.
#[inline(always)]
pub const fn split(value: u64, by: u32) -> (u32, u32) {
    let (value, by) = (value as u32, by);
    match (value.checked_div(by), value.checked_rem(by)) {
        (Some(quotient), Some(remainder)) => (quotient, remainder),
        _ => (0, 0),
    }
}
