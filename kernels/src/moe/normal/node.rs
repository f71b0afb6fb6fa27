//! What the roles of normal mode have in common: offsets, words of this rank and of its neighbours, posts that do not
//! wait, and the pause of a pass in which nobody could go on.

use super::call::NormalCall;
use super::role::{Halt, Role};
use crate::moe::exchange::{split, tensor};
use crate::moe::stop::Stop;
use shunt_device::{Deadline, Device, FaultKind, HeapOffset, Lanes, Platform, Put, Rounds, Signal, Solo};
use shunt_layout::moe::At;

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

/// What lanes are told whose leader failed.
const FAILED: u64 = 3;

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
    /// Begins a kernel: its time runs from now on. Refuses a call that does not fit the heap or the job.
    #[inline(always)]
    pub fn begin(device: Device<'s, P>, lanes: L, call: &'c NormalCall, role: Role) -> Result<Self, Halt> {
        let (me, deadline) = (device.my_pe(), Deadline::after(device.now_ns(), call.timeout_ns));
        let (node, local) = split(me as u64, call.shape.locals);
        let fits = call.shape.ranks() == device.pe_count()
            && call.tokens <= call.shape.tokens
            && call.topk <= call.shape.topk
            && device.holds(HeapOffset(call.base), call.shape.bytes());
        if fits {
            Ok(Self { device, lanes, call, deadline, me, node, local })
        } else {
            Err(Halt { role, stop: Stop::wrong(me) })
        }
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

    /// Tells all lanes how the leader's turn ended; the leader's answer counts.
    #[inline(always)]
    pub fn agree(&self, role: Role, turn: Result<Turn, Stop>) -> Result<Turn, Halt> {
        let code = match turn {
            Ok(turn) => turn as u64,
            Err(_) => FAILED,
        };
        match (self.lanes.broadcast(code, 0), turn) {
            (0, _) => Ok(Turn::Done),
            (1, _) => Ok(Turn::Moved),
            (2, _) => Ok(Turn::Idle),
            (_, Err(stop)) => Err(Halt { role, stop }),
            _ => Err(Halt { role, stop: Stop::wrong(self.me) }),
        }
    }

    /// Posts a put, if there is one, and behind it an absolute value; false if the channel has no room now. Never
    /// waits. Leader only.
    #[inline(always)]
    pub fn post(
        &self,
        rank: u32,
        index: u32,
        put: Option<Put>,
        at: HeapOffset,
        value: u64,
    ) -> Result<bool, Stop> {
        let channel = self.device.channel(rank, index);
        if !channel.has_room(ENTRIES) {
            // One look: it finds completions, and carries a switch on.
            match room_now(self.device, rank, index) {
                0 => {}
                late if late == FaultKind::Overdue as u64 => return Ok(false),
                kind => return Err(Stop::ended(rank, index, kind)),
            }
        }
        let signal = Signal::Monotone(value);
        let posted = match put {
            Some(put) => channel.try_put_signal(Solo, put, at, signal),
            None => channel.try_signal(Solo, at, signal),
        };
        if posted.ticket().is_some() { Ok(true) } else { Err(Stop::refused(rank, index, posted)) }
    }

    /// The same, and waits for room by the kernel's deadline.
    #[inline(always)]
    pub fn tell(
        &self,
        watch: &mut Watch,
        who: Waits,
        put: Option<Put>,
        at: HeapOffset,
        value: u64,
    ) -> Result<(), Halt> {
        loop {
            // What lanes made is what is sent.
            self.lanes.sync();
            let posted = if self.leads() {
                let posted = self.post(who.rank, who.index, put, at, value);
                posted.map(|posted| if posted { Turn::Done } else { Turn::Idle })
            } else {
                Ok(Turn::Idle)
            };
            if self.agree(who.role, posted)? == Turn::Done {
                return Ok(());
            }
            watch.rest(self, who)?;
        }
    }

    /// Waits until a word of this rank's memory is at least `value`.
    #[inline(always)]
    pub fn hear(&self, watch: &mut Watch, who: Waits, at: At, value: u64) -> Result<(), Halt> {
        loop {
            let there = self.leads() && self.word(at) >= value;
            if self.share(there as u64) != 0 {
                return Ok(());
            }
            watch.rest(self, who)?;
        }
    }
}

/// One look at a channel without room; the kind of fault it ended with, `Overdue` where there is still none, or 0.
#[inline(never)]
fn room_now<P: Platform>(device: Device<'_, P>, rank: u32, index: u32) -> u64 {
    match device.channel(rank, index).wait_for_room(ENTRIES, Deadline { at_ns: device.now_ns() }) {
        Ok(()) => 0,
        Err(kind) => kind as u64,
    }
}

/// Who waits, and for what: a rank, and the channel there.
#[derive(Clone, Copy)]
pub struct Waits {
    pub role: Role,
    pub rank: u32,
    pub index: u32,
}

/// Pauses of a kernel: each looks after this rank's channels, so failures are found and switches go on; every slice it
/// asks whether a peer is lost.
pub struct Watch {
    rounds: Rounds,
    slice: Deadline,
}

const GO_ON: u64 = 0;
const LATE: u64 = 1;
/// And the rank that is lost.
const LOST: u64 = 2;

impl Watch {
    #[inline(always)]
    pub fn new<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Self {
        let slice = Deadline::after(node.device.now_ns(), node.call.slice_ns);
        Self { rounds: node.device.rounds(), slice }
    }

    /// One pause, for somebody who waits.
    #[inline(always)]
    pub fn rest<P: Platform, L: Lanes>(&mut self, node: &Node<'_, '_, P, L>, who: Waits) -> Result<(), Halt> {
        let mut answer = GO_ON;
        if node.leads() {
            node.device.look_after(&mut self.rounds);
            let now = node.device.now_ns();
            if now > self.slice.at_ns {
                self.slice = Deadline::after(now, node.call.slice_ns);
                answer = lost(node);
            }
            if answer == GO_ON && now > node.deadline.at_ns {
                answer = LATE;
            }
            if answer == GO_ON {
                node.device.relax();
            }
        }
        let Waits { role, rank, index } = who;
        match node.lanes.broadcast(answer, 0) {
            GO_ON => Ok(()),
            LATE => Err(Halt { role, stop: Stop::late(rank, index) }),
            lost => {
                let stop = Stop::lost((lost - LOST) as u32, 2 * node.call.shape.channels);
                Err(Halt { role, stop })
            }
        }
    }
}

/// Whether a rank that this one puts to is lost.
#[inline(always)]
fn lost<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> u64 {
    let mut other = 0;
    while other < node.call.shape.nodes {
        let (rank, mut index) = (node.rank_of(other), 0);
        while other != node.node && index < 2 * node.call.shape.channels {
            if node.device.channel(rank, index).alive().is_err() {
                return LOST + rank as u64;
            }
            index += 1;
        }
        other += 1;
    }
    GO_ON
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

/// A slot of a ring. Of a ring without slots, which no shape has, the first: no panic path.
#[inline(always)]
pub const fn slot_of(number: u64, slots: u32) -> u64 {
    match number.checked_rem(slots as u64) {
        Some(slot) => slot,
        None => 0,
    }
}

#[inline(always)]
pub const fn least(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

/// Slots that may be filled until the next put: those up to a whole chunk or the end of the ring, as far as the other
/// side has taken what was in them. Second: whether the put is due for its size alone.
#[inline(always)]
pub const fn may_fill(filled: u64, put: u64, head: u64, slots: u32, chunk: u32) -> (u64, bool) {
    let whole = least(chunk as u64, slots as u64 - slot_of(put, slots));
    let pending = filled - put;
    let room = (slots as u64).saturating_sub(filled.saturating_sub(head));
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
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (may, _) = may_fill(filled, put, head, slots, chunk);
                filled += may.min(seed >> 33 & 3);
                assert!(filled - head <= u64::from(slots), "a slot that is not taken is filled");
                let (_, due) = may_fill(filled, put, head, slots, chunk);
                if due || seed >> 40 & 3 == 0 && filled > put {
                    let (first, last) = (slot_of(put, slots), slot_of(filled - 1, slots));
                    assert!(first <= last && filled - put <= u64::from(chunk), "a put over the end");
                    put = filled;
                }
                // Heads are returned by whole chunks.
                if put - head >= u64::from(chunk) && seed >> 50 & 1 == 0 {
                    head = put;
                }
                // Whoever is held up has a put due, or the other side a head to return.
                let (may, due) = may_fill(filled, put, head, slots, chunk);
                assert!(may > 0 || due || put - head >= u64::from(chunk), "{slots} slots, {chunk} a chunk");
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
