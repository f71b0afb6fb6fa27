//! What the roles of normal mode have in common: offsets, words of this rank and of its neighbours, posts that do not
//! wait, and the pause of a pass in which nobody could go on.

use super::call::{CLEAN, NormalCall};
use super::role::{Halt, Role};
use crate::moe::exchange::split;
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::unknown;
use shunt_device::{
    Deadline, Device, FaultKind, HeapOffset, Lanes, Platform, Posted, Put, Rounds, Signal, Solo,
};
use shunt_layout::moe::{At, WORD_BYTES};
use shunt_layout::moe_normal::{OF_RANK, OfRank, Slots, WATCH_WORDS};

/// How a role's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Turn {
    /// It has nothing more to do in this call.
    Done = 0,
    /// It did something.
    Moved = 1,
    /// It has to wait for somebody.
    Idle = 2,
}

/// What a post answered: done.
pub const POSTED: u64 = Turn::Done as u64;
/// No room.
pub const FULL: u64 = 1 << 61;
/// What was posted there before ended with a fault, whose kind is in the low half.
const ENDED: u64 = 1 << 62;
/// Where the rank is in what a post answered that failed. One register: a `Result` of all of it is five, and what tells
/// its two sides apart is half of one, for which the assembler takes a stack.
const RANK: u32 = 32;
/// Ranks are below `moe::RANKS_MAX`.
pub const RANK_MASK: u32 = 0xff_ffff;

/// Entries of a ring that a put and its signal take at most: a put over two chunks of keys, a word of the ledger, and
/// the signal.
const ENTRIES: u64 = 4;

/// One block of a kernel.
pub struct Node<'s, 'c, P: Platform, L: Lanes> {
    pub device: Device<'s, P>,
    pub lanes: L,
    pub call: &'c NormalCall,
    pub deadline: Deadline,
    pub me: u32,
    /// This rank's node.
    pub node: u32,
    /// Its number there.
    pub local: u32,
}

impl<'s, 'c, P: Platform, L: Lanes> Node<'s, 'c, P, L> {
    /// Begins a kernel: its time runs from now on.
    #[inline(always)]
    pub fn begin(device: Device<'s, P>, lanes: L, call: &'c NormalCall) -> Self {
        let (me, deadline) = (device.my_pe(), Deadline::after(device.now_ns(), call.timeout_ns));
        let (node, local) = split(me as u64, call.shape.locals);
        Self { device, lanes, call, deadline, me, node, local }
    }

    /// The same with its call [afresh](NormalCall::afresh).
    #[inline(always)]
    pub fn told<'d>(&self, call: &'d NormalCall) -> Node<'s, 'd, P, L> {
        let Self { device, lanes, deadline, me, node, local, .. } = *self;
        Node { device, lanes, call, deadline, me, node, local }
    }

    /// Refuses a call that does not fit the heap or the job. It hands no `Self` out: the call's address, in one word
    /// with what a refusal holds, would have the call copied to a stack.
    #[inline(always)]
    pub fn check(&self, role: Role) -> Result<(), Halt> {
        let (device, call) = (self.device, self.call);
        let fits = call.shape.ranks() == device.pe_count()
            && call.tokens <= call.shape.tokens
            && call.topk <= call.shape.topk
            && device.holds(HeapOffset(call.base), call.shape.bytes());
        if fits { Ok(()) } else { Err(Halt { role, stop: Stop::wrong(self.me) }) }
    }

    /// The rank of a node that has this one's number there.
    #[inline(always)]
    pub fn rank_of(&self, node: u32) -> u32 {
        node * self.call.shape.locals + self.local
    }

    #[inline(always)]
    pub fn leads(&self) -> bool {
        self.lanes.rank() == 0
    }

    /// Where something of the exchange is in the heap.
    #[inline(always)]
    pub fn at(&self, at: At) -> HeapOffset {
        HeapOffset(self.call.base.wrapping_add(at.0))
    }

    /// A word of this rank's memory.
    #[inline(always)]
    pub fn word(&self, at: At) -> u64 {
        self.device.load(self.at(at))
    }

    /// Sets a word of this rank's memory: by its leader, or by the lane whose word it is.
    #[inline(always)]
    pub fn set(&self, at: At, value: u64) {
        self.device.store(self.at(at), value);
    }

    /// The address of something at a rank of this node.
    #[inline(always)]
    pub fn near(&self, local: u32, at: At) -> u64 {
        // SAFETY: an address for each rank of the node (`NormalCall`).
        unsafe { tensor::read::<u64>(self.call.peers, local as u64) }.wrapping_add(at.0)
    }

    /// Sets a word at a rank of this node. Leader only.
    #[inline(always)]
    pub fn set_near(&self, local: u32, at: At, value: u64) {
        // SAFETY: a word of the exchange at that rank, which lies inside its part of the heap (`NormalCall::peers`).
        unsafe { self.device.store_near(self.near(local, at), value) }
    }

    /// What the leader knows, to all lanes: what it acquired is there for them.
    #[inline(always)]
    pub fn share(&self, value: u64) -> u64 {
        self.device.share(self.lanes, value)
    }

    /// Tells all lanes how the leader's turn ended: a [`Turn`], or what a post to channel `index` of some rank
    /// answered.
    #[inline(always)]
    pub fn agree(&self, role: Role, index: u32, word: u64) -> Result<Turn, Halt> {
        match self.lanes.broadcast(word, 0) {
            0 => Ok(Turn::Done),
            1 => Ok(Turn::Moved),
            2 => Ok(Turn::Idle),
            failed => Err(Halt { role, stop: stop(failed, index) }),
        }
    }

    /// Posts a put, if there is one, and behind it an absolute value. [`POSTED`]; [`FULL`] if the channel has no room
    /// by then; else a word for [`agree`](Self::agree). A time that is over is one look: it finds completions, and
    /// carries a switch on. Leader only.
    #[inline(always)]
    pub fn post(
        &self,
        (rank, index): (u32, u32),
        put: Option<Put>,
        at: HeapOffset,
        value: u64,
        until_ns: u64,
    ) -> u64 {
        let (channel, of_rank) = (self.device.channel(rank, index), (rank as u64) << RANK);
        if !channel.has_room(ENTRIES) {
            match room_slow(self.device, rank, index, until_ns) {
                0 => {}
                late if late == FaultKind::Overdue as u64 => return FULL,
                kind => return ENDED | of_rank | kind,
            }
        }
        let signal = Signal::Monotone(value);
        let posted = match put {
            Some(put) => channel.try_put_signal(Solo, put, at, signal),
            None => channel.try_signal(Solo, at, signal),
        };
        if posted.ticket().is_some() { POSTED } else { posted.raw() | of_rank }
    }

    /// The same, and waits for room by the kernel's deadline.
    #[inline(always)]
    pub fn tell(&self, who: Waits, put: Option<Put>, at: HeapOffset, value: u64) -> Result<(), Halt> {
        let Waits { role, rank, index } = who;
        // What lanes made is what is sent.
        self.lanes.sync();
        let mut word = POSTED;
        if self.leads() {
            word = self.post((rank, index), put, at, value, self.deadline.at_ns);
            word = if word == FULL { FULL | (rank as u64) << RANK } else { word };
        }
        self.agree(role, index, word).map(|_| ())
    }

    /// Waits until a word of this rank's memory is at least `value`.
    #[inline(always)]
    pub fn hear(&self, who: Waits, at: At, value: u64) -> Result<(), Halt> {
        self.hear_from(who, at, value, self.peers())
    }

    /// The same; every slice it is asked of these ranks whether they are lost.
    #[inline(always)]
    pub fn hear_from(&self, who: Waits, at: At, value: u64, peers: u64) -> Result<(), Halt> {
        let mut answer = GO_ON;
        if self.leads() && self.word(at) < value {
            let (word, until, slice) = (self.at(at).0, self.deadline.at_ns, self.call.slice_ns);
            answer = hear_slow(self.device, word, value, peers, self.gave_up(), slice, until);
        }
        self.heard(who, self.share(answer))
    }

    /// What a wait ended with.
    #[inline(always)]
    fn heard(&self, who: Waits, answer: u64) -> Result<(), Halt> {
        let Waits { role, rank, index } = who;
        match answer {
            GO_ON => Ok(()),
            LATE => Err(Halt { role, stop: Stop::late(rank, index) }),
            gave_up if gave_up >= GAVE_UP => {
                let rank = (gave_up - GAVE_UP) as u32;
                let why = self.word(self.call.shape.of_rank(OfRank::GaveUp, rank)) as u32;
                Err(Halt { role: Role::GaveUp, stop: Stop::told(rank, why) })
            }
            lost => {
                let stop = Stop::lost((lost - LOST) as u32, 2 * self.call.shape.channels);
                Err(Halt { role, stop })
            }
        }
    }

    /// Where rank 0 says that it gave a call up; who gave up comes to a cleaning as well.
    #[inline(always)]
    fn gave_up(&self) -> u64 {
        if self.call.has(CLEAN) { NOBODYS } else { self.at(self.call.shape.of_rank(OfRank::GaveUp, 0)).0 }
    }

    /// Ranks that this one puts to, as a look at them takes it: the channels to each (high half), and how far they are
    /// apart. Registers: a structure would lie on a stack.
    #[inline(always)]
    fn peers(&self) -> u64 {
        let shape = &self.call.shape;
        (2 * shape.channels as u64) << 32 | shape.locals as u64
    }
}

/// Why a role stops whose post to a channel of this number failed.
#[inline(always)]
const fn stop(failed: u64, index: u32) -> Stop {
    let (rank, kind) = ((failed >> RANK) as u32 & RANK_MASK, failed as u32 as u64);
    match Posted::from_raw(failed & !((RANK_MASK as u64) << RANK)) {
        posted if posted.ticket().is_none() => Stop::refused(rank, index, posted),
        _ if failed & ENDED != 0 => Stop::ended(rank, index, kind),
        _ => Stop::late(rank, index),
    }
}

/// A channel without room: looks after it until there is some, or time is up. The kind of fault it ended with,
/// `Overdue` where there is still none, or 0.
#[inline(never)]
fn room_slow<P: Platform>(device: Device<'_, P>, rank: u32, index: u32, until_ns: u64) -> u64 {
    match device.channel(rank, index).wait_for_room(ENTRIES, Deadline { at_ns: until_ns }) {
        Ok(()) => 0,
        Err(kind) => kind as u64,
    }
}

/// The leader's wait for a word, in slices; how it ended.
#[inline(never)]
fn hear_slow<P: Platform>(
    device: Device<'_, P>,
    word: u64,
    value: u64,
    peers: u64,
    gave_up: u64,
    slice_ns: u64,
    until_ns: u64,
) -> u64 {
    loop {
        let slice = Deadline::after(device.now_ns(), slice_ns);
        let slice = if slice.at_ns < until_ns { slice } else { Deadline { at_ns: until_ns } };
        if device.wait_until_ge(Solo, HeapOffset(word), value, slice).is_ok() {
            return GO_ON;
        }
        let lost = lost_slow(device, peers, gave_up);
        if lost != GO_ON {
            return lost;
        }
        if device.now_ns() > until_ns {
            return LATE;
        }
    }
}

/// Whether a rank gave the call up, or one that this one puts to is lost.
#[inline(never)]
fn lost_slow<P: Platform>(device: Device<'_, P>, peers: u64, gave_up: u64) -> u64 {
    let (me, mut rank) = (device.my_pe(), 0);
    let word = |rank| device.load(HeapOffset(gave_up + rank as u64 * OF_RANK_BYTES));
    while gave_up != NOBODYS && rank < device.pe_count() {
        // Of this epoch, and not zero: nobody gave up for no reason.
        if rank != me && word(rank) as u32 != 0 && (word(rank) ^ word(me)) >> 32 == 0 {
            return GAVE_UP + rank as u64;
        }
        rank += 1;
    }
    let (locals, channels) = (peers as u32, (peers >> 32) as u32);
    let (_, mut rank) = split(me as u64, locals);
    while rank < device.pe_count() {
        let mut index = 0;
        while rank != me && index < channels {
            if device.channel(rank, index).alive().is_err() {
                return LOST + rank as u64;
            }
            index += 1;
        }
        // No panic path and an end, whatever the shape.
        rank = rank.saturating_add(locals.max(1));
    }
    GO_ON
}

/// Who waits, and for what: a rank, and the channel there.
#[derive(Clone, Copy)]
pub struct Waits {
    pub role: Role,
    pub rank: u32,
    pub index: u32,
}

const GO_ON: u64 = 0;
const LATE: u64 = 1;
/// And the rank that is lost.
const LOST: u64 = 2;
/// And the rank that gave up.
const GAVE_UP: u64 = 1 << 32;
/// Of a look at all other ranks: one channel to each.
pub const OTHERS: u64 = 1 << 32 | 1;
/// In place of where ranks say that they gave up: nobody is asked.
const NOBODYS: u64 = u64::MAX;
const OF_RANK_BYTES: u64 = OF_RANK * WORD_BYTES;

/// Pauses of a block whose roles all wait: each looks after this rank's channels, so failures are found and switches go
/// on; every slice it asks whether a peer is lost. What it remembers lies in memory: registers are the roles'.
pub struct Watch {
    at: At,
}

const _: () = assert!(Rounds::WORDS as u64 + 1 == WATCH_WORDS);

impl Watch {
    /// Of a block, whose first channel has its number. One without channels never pauses.
    #[inline(always)]
    pub fn new<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, block: u32) -> Self {
        let at = node.call.shape.watch(block);
        if node.leads() && block < node.call.shape.channels {
            let slice = Deadline::after(node.device.now_ns(), node.call.slice_ns);
            keep(node.device, node.at(at).0, &node.device.rounds(), slice);
        }
        Self { at }
    }

    /// One pause, for somebody who waits.
    #[inline(always)]
    pub fn rest<P: Platform, L: Lanes>(&self, node: &Node<'_, '_, P, L>, who: Waits) -> Result<(), Halt> {
        let mut answer = GO_ON;
        if node.leads() {
            let (at, call, until) = (node.at(self.at).0, node.call, node.deadline.at_ns);
            let (peers, gave_up) = (node.peers(), node.gave_up());
            answer = rest_slow(node.device, at, peers, gave_up, call.slice_ns, until);
        }
        node.heard(who, node.lanes.broadcast(answer, 0))
    }
}

#[inline(always)]
fn keep<P: Platform>(device: Device<'_, P>, at: u64, rounds: &Rounds, slice: Deadline) {
    let [rows, done, looked, silence, counts, usual] = rounds.words();
    device.store(HeapOffset(at), slice.at_ns);
    device.store(HeapOffset(at + 8), rows);
    device.store(HeapOffset(at + 16), done);
    device.store(HeapOffset(at + 24), looked);
    device.store(HeapOffset(at + 32), silence);
    device.store(HeapOffset(at + 40), counts);
    device.store(HeapOffset(at + 48), usual);
}

/// The leader's part of a pause; how it ended.
#[inline(never)]
fn rest_slow<P: Platform>(
    device: Device<'_, P>,
    at: u64,
    peers: u64,
    gave_up: u64,
    slice_ns: u64,
    until_ns: u64,
) -> u64 {
    let word = |number: u64| device.load(HeapOffset(at + 8 * number));
    let mut slice = Deadline { at_ns: word(0) };
    let mut rounds = Rounds::from_words([word(1), word(2), word(3), word(4), word(5), word(6)]);
    device.look_after(&mut rounds);
    let (now, mut answer) = (device.now_ns(), GO_ON);
    if now > slice.at_ns {
        slice = Deadline::after(now, slice_ns);
        answer = lost_slow(device, peers, gave_up);
    }
    keep(device, at, &rounds, slice);
    if answer == GO_ON && now > until_ns {
        answer = LATE;
    }
    if answer == GO_ON {
        device.relax();
    }
    answer
}

/// One pass over all roles of a block: how it went, and the first who waits.
pub struct Pass {
    pub moved: bool,
    pub waits: Option<Waits>,
}

impl Pass {
    #[inline(always)]
    pub const fn new() -> Self {
        Self { moved: false, waits: None }
    }

    #[inline(always)]
    pub fn note(&mut self, turn: Turn, role: Role, rank: u32, index: u32) {
        self.moved |= matches!(turn, Turn::Moved);
        if !matches!(turn, Turn::Done) && self.waits.is_none() {
            self.waits = Some(Waits { role, rank, index });
        }
    }
}

/// A number that a role begins with, as its compiler cannot know it: what a role makes of it is made in each turn
/// again, and does not lie in registers while others have theirs.
#[inline(always)]
pub fn afresh(number: u32) -> u32 {
    unknown(number as u64) as u32
}

#[inline(always)]
pub const fn least(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

/// Slots that may be filled until the next put: those up to a whole chunk or the end of the ring, as far as the other
/// side has taken what was in them. Second: whether the put is due for its size alone.
#[inline(always)]
pub const fn may_fill(filled: u64, put: u64, head: u64, slots: Slots, chunk: u32) -> (u64, bool) {
    let whole = least(chunk as u64, slots.count() - slots.slot(put));
    let pending = filled - put;
    let room = slots.count().saturating_sub(filled.saturating_sub(head));
    (least(whole.saturating_sub(pending), room), pending >= whole)
}

/// Slots that there are to take: what has come, up to the end of the call. A tail that is repeated may be an old one.
#[inline(always)]
pub const fn may_take(tail: u64, taken: u64, until: u64, most: u32) -> u64 {
    least(least(tail.saturating_sub(taken), until.saturating_sub(taken)), most as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_filled_in_chunks_that_never_wrap_and_never_run_over() {
        for (slots, chunk) in [(2, 1), (4, 2), (6, 2), (6, 3), (12, 4)] {
            let (mut filled, mut put, mut head, mut seed) = (0u64, 0u64, 0u64, 7u64);
            let slots = Slots::of(slots);
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (may, _) = may_fill(filled, put, head, slots, chunk);
                filled += may.min(seed >> 33 & 3);
                assert!(filled - head <= slots.count(), "a slot that is not taken is filled");
                let (_, due) = may_fill(filled, put, head, slots, chunk);
                if due || seed >> 40 & 3 == 0 && filled > put {
                    let (first, last) = (slots.slot(put), slots.slot(filled - 1));
                    assert!(first <= last && filled - put <= u64::from(chunk), "a put over the end");
                    put = filled;
                }
                // Heads are returned by whole chunks.
                if put - head >= u64::from(chunk) && seed >> 50 & 1 == 0 {
                    head = put;
                }
                // A rank that is held up has a put due, or the other side a head to return.
                let (may, due) = may_fill(filled, put, head, slots, chunk);
                assert!(may > 0 || due || put - head >= u64::from(chunk), "{slots:?}, {chunk} a chunk");
            }
            assert!(filled > 5_000);
        }
    }

    #[test]
    fn an_old_tail_brings_nothing() {
        assert_eq!(may_take(7, 9, 20, 4), 0);
        assert_eq!(may_take(12, 9, 20, 4), 3);
        assert_eq!(may_take(30, 9, 20, 40), 11);
        assert_eq!(may_take(30, 9, 20, 4), 4);
    }
}
