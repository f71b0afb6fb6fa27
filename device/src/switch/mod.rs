//! The switch: one caller at a time moves a channel from one path to another, step by step, from memory.
//!
//! Nothing here waits. Every waiter of a channel calls [`Channel::drive`] between its looks; whoever holds
//! the owner word does the steps that can be done now and lets go, so a switch outlives any of its owners
//! (rule 7). The steps and their order are those of docs/FAILOVER.md, rules 7 to 15 and 19; 16 stands in `home.rs`.

mod back;
mod cut;
mod ledger;
mod owner;
mod record;
mod replay;
mod steps;

use crate::access::Channel;
use crate::patience::Limits;
use crate::platform::Platform;
use crate::root::root;
use crate::types::{Fault, FaultKind};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{
    CLOSED, CauseKind, CqMap, FROZEN, INDEX_MASK, LEASE_NS, NO_SLOT, ReadyWord, SUSPECT_DOUBLINGS_MAX, Step,
    SwitchKind, Word,
};

/// Steps one call does at most; each moves the switch on, so this only bounds a call.
const STEPS_MAX: u32 = 16;
/// Swaps of the ticket word that are tried before a step gives way: each one that fails is a caller that took a ticket,
/// and callers take one each while the channel is closed.
const SWAPS_MAX: u32 = 1024;

/// Why a path should be left, as a waiter saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    /// The done word when it was seen: a trigger of an older generation is stale and ignored.
    pub at: Word,
    /// What was seen.
    pub cause: CauseKind,
    /// Of a completion: syndrome in the low byte, vendor syndrome in the next. 0 of anything else.
    pub syndrome: u32,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It ended; the next one may begin at once.
    Again,
    /// It waits for somebody else.
    Wait,
}

/// Reads a field of the switch.
macro_rules! get {
    ($channel:expr, $field:ident: u64) => {{
        // SAFETY: a field of a valid channel's switch.
        unsafe { $channel.platform().load(addr_of_mut!((*$channel.words()).switch.$field)) }
    }};
    ($channel:expr, $field:ident: u32) => {{
        // SAFETY: a field of a valid channel's switch.
        unsafe { $channel.platform().load32(addr_of_mut!((*$channel.words()).switch.$field)) }
    }};
}
/// Writes a field of the switch. Only its owner does.
macro_rules! set {
    ($channel:expr, $field:ident: u64 = $value:expr) => {{
        let value = $value;
        // SAFETY: a field of a valid channel's switch, which this caller owns.
        unsafe { $channel.platform().store(addr_of_mut!((*$channel.words()).switch.$field), value) }
    }};
    ($channel:expr, $field:ident: u32 = $value:expr) => {{
        let value = $value;
        // SAFETY: a field of a valid channel's switch, which this caller owns.
        unsafe { $channel.platform().store32(addr_of_mut!((*$channel.words()).switch.$field), value) }
    }};
}
/// The address of a field of the switch, for a read-modify-write.
macro_rules! set_word {
    ($channel:expr, $field:ident) => {
        addr_of_mut!((*$channel.words()).switch.$field)
    };
}
pub(crate) use {get, set, set_word};

/// Stages whose end is stamped, in the order of the record's `stamps`.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Stamp {
    Noticed = 0,
    Closed = 1,
    Fenced = 2,
    Cut = 3,
    Replayed = 4,
    Opened = 5,
}

impl<P: Platform> Channel<'_, P> {
    /// Carries the switch on as far as it goes now, or begins one for `trigger`.
    ///
    /// # Errors
    /// Only when the channel is dead.
    #[inline(always)]
    pub(crate) fn drive(self, trigger: Option<Trigger>, now: u64) -> Result<(), Fault> {
        let none = Trigger { at: Word(0), cause: CauseKind::None, syndrome: 0 };
        let trigger = trigger.unwrap_or(none);
        let alive = self.drive_slow(trigger.at.0, trigger.cause as u32, trigger.syndrome, now);
        if alive { Ok(()) } else { Err(self.dead_fault()) }
    }

    /// `drive` with its trigger in registers (no cause: no trigger), so that a GPU's caller needs no stack
    /// for it and a kernel holds one copy of the whole switch. False when the channel is dead.
    #[inline(never)]
    fn drive_slow(self, at: u64, cause: u32, syndrome: u32, now: u64) -> bool {
        let trigger = match CauseKind::from_raw(cause) {
            CauseKind::None => None,
            cause => Some(Trigger { at: Word(at), cause, syndrome }),
        };
        if matches!(self.load_step(), Step::Dead) {
            return false;
        }
        let Some(lease) = self.take_switch(now) else { return true };
        let mut steps = 0;
        while steps < STEPS_MAX && self.still_mine(lease) {
            let next = match self.load_step() {
                Step::Idle => match trigger {
                    Some(trigger) if steps == 0 => self.begin(trigger, now),
                    _ => self.resume_close(now),
                },
                Step::Settle => self.settle(now),
                Step::Fence => self.fence(now),
                Step::Choose => self.choose(now),
                Step::Ledger => self.ledger(now),
                Step::Replay => self.replay(now),
                Step::Drain => self.drain(now),
                Step::DrainFlush => self.drain_flush(now),
                Step::Uncertain => self.await_answer(now),
                Step::Dead => Next::Wait,
            };
            if next == Next::Wait {
                break;
            }
            steps += 1;
        }
        self.let_go(lease);
        !matches!(self.load_step(), Step::Dead)
    }

    /// Moves to `step`, from one that it may follow: an owner that comes back after its lease moves nothing that has
    /// gone on without it. The clock is read anew: an owner that was held up since `now` must not find the new step
    /// overdue before the agent has seen its request.
    #[inline(always)]
    pub(crate) fn enter(self, step: Step, now: u64) -> Next {
        let now = now.max(self.platform().now_ns());
        let met = self.load_step();
        if !step.follows(met) && !Mutant::ReturnedOwnerGoesOn.on() {
            return Next::Wait;
        }
        set!(self, step_since_ns: u64 = now);
        set!(self, step: u32 = step as u32);
        self.record_step(step, now);
        Next::Again
    }

    /// True if the present step has lasted longer than `limit_ns`.
    #[inline(always)]
    pub(crate) fn step_overdue(self, now: u64, limit_ns: u64) -> bool {
        now.saturating_sub(get!(self, step_since_ns: u64)) > limit_ns
    }

    /// The longest a whole chain of switches may take: what a wait without a caller's deadline is bounded by.
    #[inline(always)]
    pub(crate) fn chain_bound_ns(self) -> u64 {
        let policy = self.device.policy();
        // "Never" is a duration, too: no sum may wrap.
        let per_path = policy.suspect_ns.saturating_add(policy.fence_wait_ns);
        policy.give_up_ns.saturating_add(per_path.saturating_mul(root!(self.device, slots) as u64))
    }

    /// How long others may have to wait for such a chain: where a switch is under way its owner may be gone, and is
    /// followed by another one.
    #[inline(always)]
    pub(crate) fn patience_with_owners_ns(self) -> u64 {
        let under_way = !self.owner().is_free() || !matches!(self.load_step(), Step::Idle);
        let lease_ns = if under_way && !Mutant::LeaseNotAwaited.on() { LEASE_NS } else { 0 };
        self.chain_bound_ns().saturating_add(lease_ns)
    }

    #[inline(always)]
    pub(crate) fn stamp(self, stage: Stamp, now: u64) {
        // SAFETY: the stamps of a valid channel's switch; `stage` is below their number.
        unsafe {
            let stamps = addr_of_mut!((*self.words()).switch.stamps).cast::<u64>();
            self.platform().store(stamps.add(stage as usize), now);
        }
    }

    /// Rules 7 and 8: closes the ticket word, freezes the done word. A switch-back only closes.
    fn begin(self, trigger: Trigger, now: u64) -> Next {
        let ticket = self.load_ticket();
        if ticket.flag() {
            return self.resume_close(now);
        }
        let stale = !ticket.same_generation(trigger.at) && !Mutant::OldTriggerActedOn.on();
        if stale {
            return Next::Wait; // somebody switched since
        }
        let slot = ticket.slot();
        let back = matches!(trigger.cause, CauseKind::SwitchBack);
        set!(self, cause: u32 = trigger.cause as u32);
        set!(self, syndrome: u32 = trigger.syndrome);
        set!(self, cause_ticket: u64 = trigger.at.index());
        set!(self, from: u32 = slot);
        set!(self, to: u32 = NO_SLOT);
        set!(self, back: u32 = back as u32);
        set!(self, from_incarnation: u32 = self.incarnation(slot));
        set!(self, ledger: u32 = 0);
        set!(self, excluded: u32 = 0);
        set!(self, posted_reads: u64 = 0);
        set!(self, asked: u64 = 0);
        set!(self, resolution: u64 = 0);
        set!(self, erred_seen_ns: u64 = 0);
        self.stamp(Stamp::Noticed, now);
        if !back {
            self.note_first_cause(slot, trigger.cause, trigger.syndrome);
            record::count!(self, suspicions += matches!(trigger.cause, CauseKind::Overdue) as u64);
        }
        let tolerant = self.device.tolerant();
        if !tolerant
            || (trigger.cause == CauseKind::Completion
                && Syndrome(trigger.syndrome as u8).is_program_error()
                && !Mutant::ProgramErrorsChained.on())
        {
            return self.die(FaultKind::Completion, now);
        }
        if self.close_tickets(ticket) { self.closed(now) } else { Next::Wait }
    }

    /// Closes the ticket word. The close point is in memory before the flag is, so that whoever takes over finds it;
    /// flags change only by read-modify-write, so tickets handed out meanwhile stand.
    fn close_tickets(self, mut ticket: Word) -> bool {
        let mut tries = 0;
        while tries < SWAPS_MAX && !ticket.flag() {
            set!(self, close: u64 = ticket.index());
            // SAFETY: a channel word.
            let met = Word(unsafe {
                self.platform().compare_swap(self.ticket_word(), ticket.0, ticket.0 | CLOSED)
            });
            if met == ticket {
                return true;
            }
            if !met.same_generation(ticket) {
                return false;
            }
            ticket = met;
            tries += 1;
        }
        false
    }

    /// An owner that closed the ticket word and got no further: the rest of what it began.
    fn resume_close(self, now: u64) -> Next {
        if !self.load_ticket().flag() || Mutant::CloseNotResumed.on() {
            return Next::Wait;
        }
        self.closed(now)
    }

    fn closed(self, now: u64) -> Next {
        if get!(self, back: u32) != 0 {
            self.stamp(Stamp::Closed, now);
            return self.enter(Step::Drain, now);
        }
        if !self.freeze() {
            return Next::Wait;
        }
        self.stamp(Stamp::Closed, now);
        self.enter(Step::Settle, now)
    }

    /// Keeps the first cause of a path for the report of a lost peer.
    #[inline(always)]
    pub(crate) fn note_first_cause(self, slot: u32, cause: CauseKind, syndrome: u32) {
        // SAFETY: a field of a valid row; the agent clears it when it makes the path anew.
        unsafe {
            let word = addr_of_mut!((*self.path(slot)).first_cause);
            if self.platform().load32(word) == 0 {
                self.platform().store32(word, syndrome & 0xffff | (cause as u32) << 16);
            }
        }
    }

    /// Ends the channel: every waiter leaves with a typed fault, tickets stay closed for good.
    pub(crate) fn die(self, kind: FaultKind, now: u64) -> Next {
        // SAFETY: channel words. Closed and frozen, nothing moves any more.
        unsafe {
            self.platform().fetch_or(self.ticket_word(), CLOSED);
            self.platform().fetch_or(self.done_word(), FROZEN);
        }
        set!(self, fault: u32 = kind as u32);
        self.stamp(Stamp::Opened, now);
        set!(self, step: u32 = Step::Dead as u32);
        self.record_step(Step::Dead, now);
        self.write_record(SwitchKind::Dead, self.load_ticket().generation());
        Next::Wait
    }

    /// Gives the channel up from outside a switch: a caller between reserve and publish has no other exit
    /// (rule 2).
    pub(crate) fn abandon(self, now: u64) {
        if let Some(lease) = self.take_switch(now) {
            if !matches!(self.load_step(), Step::Dead) {
                set!(self, to: u32 = NO_SLOT); // the record is to name no path that an earlier switch entered
                self.die(FaultKind::PeerLost, now);
            }
            self.let_go(lease);
        }
    }

    pub(crate) fn dead_fault(self) -> Fault {
        self.fault(self.dead_kind())
    }

    /// The kind of the fault that ended the channel.
    #[inline(always)]
    pub(crate) fn dead_kind(self) -> FaultKind {
        match get!(self, fault: u32) {
            1 => FaultKind::Completion,
            5 => FaultKind::FenceUnproven,
            6 => FaultKind::Uncertain,
            _ => FaultKind::PeerLost,
        }
    }

    /// Rule 15: ring and base are in place; now the ticket flags, `ready`, and last the done word. `closed` and
    /// `frozen` are the words as this switch closed and froze them: an owner that comes back after its lease, when the
    /// channel has long been opened by another, changes nothing.
    pub(crate) fn open(self, to: u32, base: u64, (closed, frozen): (Word, Word), now: u64) -> Next {
        if !self.still_closed(closed) {
            return Next::Wait;
        }
        // SAFETY: channel words and the row being entered, all owned by the switch until `done` opens.
        unsafe {
            let p = self.platform();
            p.store(addr_of_mut!((*self.path(to)).base), base);
            let generation = closed.generation() + 1;
            self.set_cq_map(to, CqMap::new(base, self.cq_map(to).lag(), generation));
            if Mutant::OpenByStore.on() {
                p.store(self.ticket_word(), Word::new(to, generation, closed.index()).0);
            } else if !self.open_tickets(closed, Word::new(to, generation, 0)) {
                return Next::Wait;
            }
            self.open_done(frozen, now)
        }
    }

    /// Swaps the flags of the ticket word; tickets reserved meanwhile stand (F12). False if this switch is over.
    fn open_tickets(self, closed: Word, opened: Word) -> bool {
        let (mut ticket, mut tries) = (self.load_ticket(), 0);
        while tries < SWAPS_MAX && ticket.flag() && ticket.same_generation(closed) {
            let new = opened.with_index(ticket.index());
            // SAFETY: a channel word.
            let met = Word(unsafe { self.platform().compare_swap(self.ticket_word(), ticket.0, new.0) });
            if met == ticket {
                return true;
            }
            ticket = met;
            tries += 1;
        }
        false
    }

    /// The rest of an opening, once the ticket word shows the new generation: by its owner, or by whoever took over.
    pub(crate) fn open_done(self, frozen: Word, now: u64) -> Next {
        let ticket = self.load_ticket();
        let (to, generation, done) = (ticket.slot(), ticket.generation(), get!(self, done_at_close: u64));
        // SAFETY: channel words.
        unsafe {
            self.platform().fetch_and(self.ready_word(), INDEX_MASK);
            let new = Word::new(to, generation, done);
            if frozen.flag() && self.platform().compare_swap(self.done_word(), frozen.0, new.0) != frozen.0 {
                return Next::Wait;
            }
        }
        self.stamp(Stamp::Opened, now);
        let back = get!(self, back: u32) != 0;
        if !Mutant::PatienceNeverLearned.on() {
            self.learn_patience(back, done);
        }
        if Mutant::CutForgottenAtOpen.on() {
            set!(self, executed: u64 = 0);
        }
        if back {
            set!(self, switchbacks: u64 = get!(self, switchbacks: u64) + 1);
        } else {
            set!(self, failovers: u64 = get!(self, failovers: u64) + 1);
        }
        set!(self, to: u32 = to);
        record::count!(self, late_tickets += ticket.index().saturating_sub(get!(self, close: u64)));
        self.count_opened(get!(self, from: u32), to);
        self.write_record(if back { SwitchKind::SwitchBack } else { SwitchKind::Failover }, generation);
        // `to` stays as it is until the next switch begins: the agent takes a slot that is not announced for left.
        if Mutant::AnnouncementTakenBack.on() {
            set!(self, to: u32 = NO_SLOT);
        }
        set!(self, dead_since_ns: u64 = 0);
        self.enter(Step::Idle, now)
    }

    /// Paths that are slower than the suspect time are left before anything arrives over them, each in turn, for
    /// ever. So a whole round of generations that had work and finished none of it doubles the suspect time, and one
    /// that finished something halves it: false suspicion costs a switch, never the stream.
    fn learn_patience(self, back: bool, done: u64) {
        let (fruitless, rounds) = (get!(self, fruitless: u32) + 1, get!(self, rounds: u32));
        let idle = back || get!(self, journal_end: u64) <= done;
        let (fruitless, rounds) = if done > get!(self, opened_at: u64) {
            (0, rounds.saturating_sub(1))
        } else if idle {
            (0, rounds)
        } else if fruitless < root!(self.device, slots) {
            (fruitless, rounds)
        } else {
            (0, if rounds < SUSPECT_DOUBLINGS_MAX { rounds + 1 } else { rounds })
        };
        set!(self, opened_at: u64 = done);
        set!(self, fruitless: u32 = fruitless);
        set!(self, rounds: u32 = rounds);
    }

    /// Between what the active path may be silent.
    #[inline(always)]
    pub(crate) fn limits(self) -> Limits {
        let policy = self.device.policy();
        let doublings = get!(self, rounds: u32).min(SUSPECT_DOUBLINGS_MAX);
        Limits { floor_ns: policy.suspect_floor_ns << doublings, bound_ns: policy.suspect_ns << doublings }
    }

    /// Leaves a record for the host. The sequence is written last.
    fn write_record(self, kind: SwitchKind, generation: u64) {
        let p = self.platform();
        let (from, to) = (get!(self, from: u32), get!(self, to: u32));
        let (cause, syndrome, ledger) =
            (get!(self, cause: u32), get!(self, syndrome: u32), get!(self, ledger: u32));
        let (done, executed) = (get!(self, done_at_close: u64), get!(self, executed: u64));
        let journal_end = get!(self, journal_end: u64);
        // SAFETY: the head counter and the ring of records are device state; the record is this call's alone
        // until the ring has gone round, and a reader that is overtaken sees it by the sequence.
        unsafe {
            let number = p.fetch_add(root!(self.device, records_head) as *mut u64, 1);
            let record = self.record(number);
            p.store_release(addr_of_mut!((*record).sequence), 0);
            p.announce_before_recheck();
            p.store32(addr_of_mut!((*record).kind), kind as u32);
            p.store32(addr_of_mut!((*record).cause), cause);
            p.store32(addr_of_mut!((*record).peer), self.peer());
            p.store32(addr_of_mut!((*record).channel), self.index());
            p.store32(addr_of_mut!((*record).from), from);
            p.store32(addr_of_mut!((*record).to), to);
            p.store32(addr_of_mut!((*record).syndrome), syndrome);
            p.store32(addr_of_mut!((*record).ledger), (ledger != 0) as u32);
            p.store(addr_of_mut!((*record).done_at_close), done);
            p.store(addr_of_mut!((*record).executed), executed);
            p.store(addr_of_mut!((*record).journal_end), journal_end);
            p.store(addr_of_mut!((*record).generation), generation);
            let stamps = addr_of_mut!((*record).stamps).cast::<u64>();
            let own = addr_of_mut!((*self.words()).switch.stamps).cast::<u64>();
            let mut i = 0;
            while i < 6 {
                p.store(stamps.add(i), p.load(own.add(i)));
                i += 1;
            }
            self.copy_identity(from, addr_of_mut!((*record).left));
            if to != NO_SLOT {
                self.copy_identity(to, addr_of_mut!((*record).entered));
            }
            p.store_release(addr_of_mut!((*record).sequence), number + 1);
        }
    }

    /// `ready` without its flag.
    #[inline(always)]
    pub(crate) fn ready(self) -> ReadyWord {
        self.load_ready()
    }
}
