//! What the phases of an exchange have in common: offsets, who is left out, credits, waits that look after channels.

use super::call::{ABSOLUTE, MASK_LOST, MoeCall};
use shunt_device::{
    Channel, Deadline, Device, Fault, FaultKind, HeapOffset, Lanes, Platform, Posted, Put, Signal, Solo,
};
use shunt_layout::moe::{At, SETS, TOPK_MAX};
use shunt_layout::mutant::Mutant;

/// One block in one phase.
pub struct Exchange<'s, 'c, P: Platform, L: Lanes> {
    pub device: Device<'s, P>,
    pub lanes: L,
    pub call: &'c MoeCall,
    pub deadline: Deadline,
    pub me: u32,
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

/// How a slice of a wait ended where the word did not come.
const GO_ON: u64 = 0;
const LATE: u64 = 1;
const LOST: u64 = 2;
const LEFT_OUT: u64 = 3;

impl<'s, 'c, P: Platform, L: Lanes> Exchange<'s, 'c, P, L> {
    /// Begins a phase: its time runs from now on.
    #[inline(always)]
    pub fn begin(device: Device<'s, P>, lanes: L, call: &'c MoeCall) -> Self {
        let (me, deadline) = (device.my_pe(), Deadline::after(device.now_ns(), call.timeout_ns));
        Self { device, lanes, call, deadline, me }
    }

    /// Refuses a call that does not fit the heap or the job.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Fault> {
        let (device, call, shape) = (self.device, self.call, &self.call.shape);
        let fits = shape.ranks == device.pe_count()
            && call.tokens <= shape.tokens
            && call.topk <= TOPK_MAX
            && device.holds(HeapOffset(call.base), shape.bytes());
        if fits { Ok(()) } else { Err(self.wrong(self.me)) }
    }

    /// The fault of a call, or of data, that cannot be.
    #[inline(always)]
    pub fn wrong(&self, rank: u32) -> Fault {
        self.channel(rank, 0).told(FaultKind::BadAddress)
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

    /// A peer is lost: it is left out from now on, or that is the kernel's fault.
    #[inline(always)]
    pub fn lost(&self, fault: Fault) -> Result<(), Fault> {
        if fault.kind != FaultKind::PeerLost || !self.call.has(MASK_LOST) {
            return Err(fault);
        }
        if self.leads() {
            self.device.store(self.at(self.call.shape.mask(fault.peer)), 1);
        }
        Ok(())
    }

    /// A peer as a look at it takes it: its channels (high half) and its number. Registers: a structure would lie on a
    /// stack.
    #[inline(always)]
    fn peer(&self, rank: u32) -> u64 {
        (self.call.shape.local_experts as u64) << 32 | rank as u64
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
    pub fn hear(&self, at: At, value: u64, rank: u32, index: u32) -> Result<Heard, Fault> {
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
            LOST => self.lost(self.why_lost(rank)).map(|()| Heard::Masked),
            _ => Err(self.channel(rank, index).told(FaultKind::Overdue)),
        }
    }

    /// The fault of the first channel to `rank` that is dead.
    #[inline(always)]
    fn why_lost(&self, rank: u32) -> Fault {
        let mut index = 0;
        while index < self.call.shape.local_experts {
            if let Err(fault) = self.channel(rank, index).alive() {
                return fault;
            }
            index += 1;
        }
        self.channel(rank, 0).told(FaultKind::PeerLost)
    }

    /// Waits until every rank has taken the call before the last: its messages' room is free there, and what was sent
    /// from here is not needed any more.
    #[inline(always)]
    pub fn room(&self) -> Result<(), Fault> {
        let call = self.call;
        if call.call <= call.floor + SETS || Mutant::CreditNotAwaited.on() {
            return Ok(());
        }
        let mut rank = 0;
        while rank < call.shape.ranks {
            if !self.masked(rank) {
                self.hear(call.shape.credit(rank), call.call - SETS, rank, 0)?;
            }
            rank += 1;
        }
        Ok(())
    }

    /// Tells `rank` that what it sent in this call is taken. Leader only.
    #[inline(always)]
    pub fn thank(&self, rank: u32) -> Result<(), Fault> {
        let at = self.at(self.call.shape.credit(self.me));
        if rank == self.me {
            self.device.store(at, self.call.call);
            return Ok(());
        }
        self.tell(rank, at, self.call.call)
    }

    /// A kind 1 signal on the channel of credits and meetings. Leader only.
    #[inline(always)]
    pub fn tell(&self, rank: u32, at: HeapOffset, value: u64) -> Result<(), Fault> {
        let posted = post_monotone(self.device, rank, at.0, value);
        if posted.ticket().is_some() { Ok(()) } else { self.lost(self.channel(rank, 0).why(posted)) }
    }

    /// Tells all lanes how the leader fared; the leader's answer counts.
    #[inline(always)]
    pub fn agree(&self, done: Result<(), Fault>) -> Result<(), Fault> {
        let bad = self.lanes.broadcast(done.is_err() as u64, 0) != 0;
        match done {
            Ok(()) if bad => Err(self.wrong(self.me)),
            done => done,
        }
    }

    /// What a word of counts or flags is told that covers messages, and what it is then. Kind 2: minus the number,
    /// minus one, added to zero. Kind 1: the call, and the number.
    #[inline(always)]
    pub fn covering(&self, number: u64) -> (Signal, u64) {
        if self.call.has(ABSOLUTE) {
            let word = self.call.call << CALL_SHIFT | number;
            return (Signal::Monotone(word), word);
        }
        (Signal::Cleared(!number), !number)
    }

    /// Waits for such a word; its number, which cannot be above `most`. Nothing if the peer is left out.
    #[inline(always)]
    pub fn hear_number(&self, at: At, most: u64, rank: u32, index: u32) -> Result<Option<u64>, Fault> {
        let absolute = self.call.has(ABSOLUTE);
        let least = if absolute { self.call.call << CALL_SHIFT } else { 1 };
        let Heard::Word(word) = self.hear(at, least, rank, index)? else { return Ok(None) };
        let number = if absolute { word - least } else { !word };
        // A signal that came twice, or one of another call.
        if number > most { Err(self.wrong(rank)) } else { Ok(Some(number)) }
    }

    /// Gives such a word back. Leader only.
    #[inline(always)]
    pub fn give_back(&self, at: At) {
        if !self.call.has(ABSOLUTE) {
            self.device.store(self.at(at), 0);
        }
    }

    /// Messages on one channel.
    #[inline(always)]
    pub fn poster(&self, rank: u32, index: u32) -> Poster<'s, P> {
        Poster { channel: self.channel(rank, index), failed: None }
    }

    /// Ends what a poster began.
    #[inline(always)]
    pub fn settle(&self, poster: &Poster<'s, P>) -> Result<(), Fault> {
        let bad = self.lanes.broadcast(poster.failed.is_some() as u64, 0) != 0;
        if !bad {
            return Ok(());
        }
        let fault = match poster.failed {
            Some(posted) => poster.channel.why(posted),
            None => self.wrong(self.me),
        };
        // All lanes go the same way: by the leader's fault.
        let done = self.lost(fault);
        let stays = self.lanes.broadcast(done.is_err() as u64, 0) != 0;
        if stays { Err(fault) } else { Ok(()) }
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
    let (rank, channels) = (peer as u32, (peer >> 32) as u32);
    if device.load(HeapOffset(mask)) != 0 {
        return LEFT_OUT;
    }
    // A rank's own words are written by its own blocks: no channel leads there.
    if rank != device.my_pe() {
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

/// A function of its own, so that a kernel has its code once, and registers are all that it takes.
#[inline(never)]
fn post_monotone<P: Platform>(device: Device<'_, P>, rank: u32, at: u64, value: u64) -> Posted {
    device.channel(rank, 0).try_signal(Solo, HeapOffset(at), Signal::Monotone(value))
}

/// Posts by the leader alone; once one is refused the rest is left out.
pub struct Poster<'s, P: Platform> {
    channel: Channel<'s, P>,
    /// The leader's.
    failed: Option<Posted>,
}

impl<P: Platform> Poster<'_, P> {
    #[inline(always)]
    fn post<L: Lanes>(&mut self, lanes: L, post: impl FnOnce(Channel<'_, P>) -> Posted) {
        // What all lanes stored is what is sent.
        lanes.sync();
        if lanes.rank() == 0 && self.failed.is_none() {
            let posted = post(self.channel);
            if posted.ticket().is_none() {
                self.failed = Some(posted);
            }
        }
    }

    #[inline(always)]
    pub fn put<L: Lanes>(&mut self, lanes: L, put: Put) {
        self.post(lanes, |channel| channel.try_put(Solo, put));
    }

    #[inline(always)]
    pub fn signal<L: Lanes>(&mut self, lanes: L, at: HeapOffset, signal: Signal) {
        self.post(lanes, |channel| channel.try_signal(Solo, at, signal));
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

/// Memory of whoever called: tensors that nobody else touches while the kernel runs.
pub mod tensor {
    /// Element `number` of a tensor.
    ///
    /// # Safety
    /// The tensor holds it, at an aligned address; see `MoeCall`.
    #[inline(always)]
    pub unsafe fn read<T: Copy>(tensor: u64, number: u64) -> T {
        // SAFETY: forwarded to the caller.
        unsafe { (tensor as *const T).add(number as usize).read() }
    }

    /// Sets element `number` of a tensor.
    ///
    /// # Safety
    /// As for `read`, and no other lane touches the element.
    #[inline(always)]
    pub unsafe fn write<T: Copy>(tensor: u64, number: u64, value: T) {
        // SAFETY: forwarded to the caller.
        unsafe { (tensor as *mut T).add(number as usize).write(value) }
    }
}
