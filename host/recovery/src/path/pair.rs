//! What of a path outlives its phases: its number, its half, what its NIC is doing, and the record of its last fence.

use super::fence_record::FenceRecord;
use super::io::{Command, Handle, Notice, Offer, Output, Step, Task, Word};
use crate::fenced::Urgency;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use crate::truth::SideTruth;
use crate::verdict::{Sent, may_count, verdict};
use shunt_layout::mutant::Mutant;
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::endpoint::revived_psn;

/// What this end has told the other one of what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Telling {
    /// When, last.
    pub at: Nanos,
    /// How often.
    pub times: u32,
}

/// This end of a path, whatever phase it is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pair<H> {
    /// This end leads a revival (rule 17).
    pub leads: bool,
    /// Incarnation; never used twice.
    pub incarnation: u32,
    /// The rails it is given to.
    pub rails: RailPair,
    /// This half, while there is one.
    pub half: Option<H>,
    /// What its NIC is doing.
    pub task: Task,
    /// It was given to its rails and has not been made there yet.
    pub untried: bool,
    /// The other half's card.
    pub remote: Option<HalfCard>,
    /// PSN that the next incarnation starts at.
    pub next_psn: u32,
    /// An offer that came before this side was done resting.
    pub offered: Option<Offer>,
    /// The request to answer when the fence is complete.
    pub asked: Option<u64>,
    /// The operators' last order of either end: odd if the path is to be out. The larger number is the later order.
    pub orders: u32,
    /// It was brought back, and the peer, which leads, does not seem to know.
    pub readmitted: bool,
    /// Failures to revive in a row.
    pub failures: u32,
    /// Times in a row that it was left soon after it was admitted.
    pub relapses: u32,
    /// When the path was last made again and admitted; `None` for a path as it was made at start.
    pub admitted: Option<Nanos>,
    /// The incarnation whose probes were all answered, both ways; 0 if none was.
    pub probed: u32,
    /// The peer's probes were answered.
    pub proved_there: bool,
    /// What was told of what it waits for.
    pub telling: Telling,
    /// How often it was said of its fence that it is in hand: when, in pauses of the engine's life awake.
    pub in_hand: u64,
    /// The last fence.
    pub fence: FenceRecord,
}

impl<H: Handle> Pair<H> {
    /// True if it was never made: nothing of it can be in the network, or wait to be left.
    pub(super) fn is_fresh(&self) -> bool {
        self.incarnation == 0
    }

    /// True if an operator wants it out.
    pub(super) fn is_out(&self) -> bool {
        self.orders & 1 == 1
    }

    /// An operator of this end wants it out, or back. What it is already needs no new number.
    pub(super) fn order(&mut self, out: bool) {
        self.orders = self.orders.saturating_add((self.is_out() != out) as u32);
    }

    /// The rail whose NIC works for it: that of its half. The path may have been given to another one since.
    pub(super) fn rail_at_work(&self) -> u32 {
        self.half.as_ref().map_or(self.rails.local, Handle::rail)
    }

    /// True if the NIC could not fence this half, and has nothing in hand for it.
    pub(super) fn is_unproven(&self) -> bool {
        self.fence.mine == Some(SideTruth::Dead) && self.task == Task::None
    }

    pub(super) fn tell(&self, cx: &mut Step<'_, H>, word: Word) {
        cx.put(Output::Tell(self.incarnation, word));
    }

    pub(super) fn tell_order(&self, cx: &mut Step<'_, H>) {
        self.tell(cx, Word::Order(self.orders));
    }

    pub(super) fn notice(&self, cx: &mut Step<'_, H>, notice: Notice) {
        cx.put(Output::Notice(self.rails, self.incarnation, notice));
    }

    /// An owner waits for what so far nobody waited for.
    pub(super) fn hasten(&self, cx: &mut Step<'_, H>, urgency: Urgency) {
        if let Task::Fence(number) | Task::Count(number) | Task::Stop(number) = self.task {
            cx.put(Output::Hasten(urgency, self.rail_at_work(), number));
        }
    }

    /// Where the port of a half is down and its NIC has many to fence, a query is all that is left to do for one that
    /// nothing can reach any more.
    pub(super) fn lighten(&self, cx: &mut Step<'_, H>) {
        let Task::Fence(number) = self.task else { return };
        let rail = self.rail_at_work();
        let quiet = cx.age - self.fence.theirs_age;
        if !cx.facts.own_port_up(rail) && may_count(self.fence.theirs, quiet, cx.timing.lifetime) {
            cx.put(Output::Count(rail, number));
        }
    }

    /// 2ERR, query, flush, query: a command of its NIC. A half that is being made is fenced once it is there.
    pub(super) fn fence_half(&mut self, cx: &mut Step<'_, H>, urgency: Urgency) {
        if let Task::Connect(number) = self.task {
            cx.put(Output::CancelConnect(self.rail_at_work(), number));
        }
        if matches!(self.task, Task::Make(_)) {
            return;
        }
        match self.half.clone() {
            Some(half) => cx.put(Output::Command(urgency, Command::Fence(half))),
            // A half that was never made counts nothing, and nothing can reach it.
            None => self.half_fenced(cx, SideTruth::Fenced),
        }
    }

    /// What is known of this half now. The truth is stored with its incarnation and told.
    pub(super) fn half_fenced(&mut self, cx: &mut Step<'_, H>, mine: SideTruth) {
        let mine = self.fence.said_of(mine);
        if self.fence.mine.is_none() {
            self.fence.fenced_awake = cx.awake;
        }
        if mine == SideTruth::Dead {
            self.fence.again = cx.now + cx.timing.backoff.doubled(self.fence.failed);
            self.fence.failed += 1;
            cx.put(Output::Mute(false, self.rail_at_work()));
        } else if self.half.is_some() && mine.is_of_the_nic() {
            cx.put(Output::Answers(false, self.rail_at_work()));
        }
        self.fence.mine = Some(mine);
        (self.fence.fenced, self.fence.fenced_age) = (cx.now, cx.age);
        self.telling.at = cx.now;
        self.tell_truth(cx, mine);
    }

    /// Tells what is known of this half. Of one that its NIC did not fence, whether its owner ever sent through it: the
    /// path was made unusable in an earlier call.
    pub(super) fn tell_truth(&self, cx: &mut Step<'_, H>, mine: SideTruth) {
        let unused = cx.facts.is_unused() || Mutant::UsedSaidUnused.on();
        let told = if mine == SideTruth::Dead && unused { SideTruth::Unused } else { mine };
        self.tell(cx, Word::Truth(told));
    }

    /// Answers the owner, if it asked. The truth stays until the path is made again (rule 18).
    pub(super) fn answer(&mut self, cx: &mut Step<'_, H>) {
        let (Some(request), Some(mine)) = (self.asked, self.fence.mine) else { return };
        // The phase says that the fence is complete, so the lifetime has passed wherever it was needed.
        let Some(verdict) = verdict(mine, self.fence.theirs, self.fence.sent, true) else { return };
        self.asked = None;
        // One answer line a channel: a late answer must not overwrite that of a newer request (H8).
        if cx.facts.newest_request() == request || Mutant::LateAnswerWritten.on() {
            cx.put(Output::Answer(self.incarnation, request, verdict));
        }
    }

    /// Says once more what this side has to say of a fenced path: messages may get lost. `asks`: an answer is wanted.
    /// `most` is the longest pause.
    pub(super) fn tell_again(&mut self, cx: &mut Step<'_, H>, asks: bool, most: Nanos) {
        let pause = match self.telling.times {
            0 => cx.timing.doubt,
            told => cx.timing.resend << (told - 1).min(10),
        };
        // An answer is given sooner than a question is asked again, or both sides would only ask.
        let due = if asks { pause.min(most) } else { cx.timing.resend / 2 };
        if cx.now < self.telling.at + due {
            return;
        }
        self.telling.at = cx.now;
        let FenceRecord { mine, theirs, left_here, bulk, .. } = self.fence;
        // Nobody waits for the way back to a peer that is gone. If it comes back it is asked again.
        if asks && left_here && (cx.facts.peer_lost() || !cx.facts.peer_reachable(cx.now)) {
            return;
        }
        self.telling.times = self.telling.times.saturating_add(asks as u32);
        if asks && theirs.is_none() {
            cx.put(Output::Doubt);
        }
        // Without a truth yet, this says that it is being worked on.
        if asks || mine.is_none() {
            self.tell(cx, if bulk { Word::Leave } else { Word::Fence });
        }
        if let Some(mine) = mine {
            self.tell_truth(cx, mine);
        }
        if left_here {
            self.tell(cx, Word::Left);
        }
    }

    /// Gives up this half. What comes after it begins far from where it did, whatever it sent since. What its NIC has
    /// still in hand for it means nothing any more.
    pub(super) fn give_up_half(&mut self, cx: &mut Step<'_, H>) {
        let Some(half) = self.half.take() else { return };
        if matches!(self.fence.mine, None | Some(SideTruth::Dead)) {
            self.next_psn = revived_psn(half.psn());
        }
        cx.put(Output::Destroy(half));
    }

    /// Puts the old half away, and takes back one that is still to be made. One in the making is put away once it is
    /// made.
    pub(super) fn discard(&mut self, cx: &mut Step<'_, H>) {
        self.give_up_half(cx);
        match self.task {
            Task::Make(number) => cx.put(Output::CancelMake(self.rail_at_work(), number)),
            _ => self.task = Task::None,
        }
    }

    /// Has the next incarnation of this half made, in this variant of its memory.
    pub(super) fn make(&mut self, cx: &mut Step<'_, H>, variant: u32) {
        let rail = self.rails.local;
        let mut old = self.half.take();
        if old.as_ref().is_some_and(|half| half.rail() != rail) {
            // By its own NIC, which may be dead; the new one is not to wait for that.
            old.take().into_iter().for_each(|old| cx.put(Output::Destroy(old)));
        }
        let (incarnation, psn, remote) = (self.incarnation, self.next_psn, self.remote);
        let making = Command::Make { rail, old, incarnation, variant, psn, remote };
        cx.put(Output::Command(Urgency::Making, making));
    }

    /// What came of a fence or a count of this half.
    pub(super) fn fenced(&mut self, cx: &mut Step<'_, H>, result: Result<super::Fenced, String>) {
        let nic = self.rail_at_work();
        let trusted = cx.facts.count_trusted(nic, self.rails);
        cx.put(Output::AskAddress(nic));
        self.task = Task::None;
        let fenced = match result {
            Ok(fenced) => fenced,
            Err(error) => {
                self.notice(cx, Notice::FenceFailed(error));
                return self.half_fenced(cx, SideTruth::Dead);
            }
        };
        let again = self.half.as_ref().filter(|_| Mutant::SamePsn.on()).map(Handle::psn);
        self.next_psn = again.unwrap_or(revived_psn(fenced.last.next_send_psn));
        self.fence.sent = Some(Sent::of(&fenced.last));
        let mine = fenced.truth(trusted);
        self.notice(cx, Notice::HalfFenced(mine, fenced.times));
        let to_stop = self.half.clone().filter(|_| !fenced.stopped && !fenced.shows_err());
        if let Some(half) = to_stop.filter(|_| !Mutant::CountedNotStopped.on()) {
            // A port that came back in the meantime lets it send again.
            let up = cx.facts.own_port_up(half.rail());
            let urgency = if up { Urgency::Asked } else { Urgency::Idle };
            cx.put(Output::Command(urgency, Command::Stop(half)));
        }
        self.half_fenced(cx, mine);
    }
}
