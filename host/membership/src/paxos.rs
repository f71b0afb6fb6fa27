//! How ranks agree on who is left out. Pure: no clock, no link; what goes in are facts, messages and the time.
//!
//! Epochs are decided one after the other, each by the members of the last: Paxos, with the ranks that are left out
//! from then on as the value. Nobody is left out for silence: what begins it, and what the mask is made of, are peers
//! that are *lost*, which no time brings back. `docs/DEEPEP.md` has the rules.

use crate::message::{Ballot, Message, Word};
use crate::rank_set::RankSet;
use crate::reachability::{kept, may_decide};
use shunt_layout::mutant::Mutant;

/// Patience, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until something is said again.
    pub resend_ns: u64,
    /// Nothing new for this long, then it is decided: who loses one peer often loses more.
    pub settle_ns: u64,
    /// A rank that knows of a loss and sees no majority for this long masks itself.
    pub patience_ns: u64,
}

impl Times {
    /// For a job with this give-up time.
    pub fn of(give_up_ns: u64) -> Self {
        let patience_ns = give_up_ns.clamp(200_000_000, 60_000_000_000);
        Self { resend_ns: patience_ns / 64, settle_ns: patience_ns / 16, patience_ns }
    }

    /// A rank whose word is older than this is not counted on.
    const fn fresh_ns(&self) -> u64 {
        self.patience_ns / 2
    }
}

/// How this rank stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Standing {
    /// It is one of the ranks that go on.
    #[default]
    Member = 1,
    /// The others go on without it, and told it so.
    Out = 2,
    /// It lost a peer and found no majority: it masked itself.
    Alone = 3,
}

/// An attempt of this rank's to decide.
#[derive(Clone, Debug)]
struct Bid {
    ballot: Ballot,
    /// Who answered so far.
    answered: RankSet,
    /// What was taken before under the newest ballot.
    taken: Option<(Ballot, RankSet)>,
    /// What is proposed, once enough have promised.
    proposed: Option<RankSet>,
}

/// The state of one rank.
#[derive(Clone, Debug)]
pub struct Machine {
    me: u32,
    ranks: u32,
    times: Times,
    // What outlives an agent.
    epoch: u64,
    out: RankSet,
    standing: Standing,
    promised: Ballot,
    taken: Option<(Ballot, RankSet)>,
    /// By rank: which ones it said that it lost. Nothing of it is ever taken back.
    lost: Vec<RankSet>,
    // What does not.
    heard_ns: Vec<Option<u64>>,
    /// Who is known to know the epoch.
    told: RankSet,
    decided_ns: u64,
    recall_ns: u64,
    bid: Option<Bid>,
    changed_ns: u64,
    trouble_ns: Option<u64>,
    next_ns: u64,
    outbox: Vec<(u32, Message)>,
}

impl Machine {
    /// Rank `me` of a job in which all are members, at epoch 0.
    pub fn new(me: u32, ranks: u32, times: Times, now_ns: u64) -> Self {
        Self {
            me,
            ranks,
            times,
            epoch: 0,
            out: RankSet::none(ranks),
            standing: Standing::Member,
            promised: Ballot::default(),
            taken: None,
            lost: vec![RankSet::none(ranks); ranks as usize],
            heard_ns: vec![None; ranks as usize],
            told: RankSet::of(ranks, |_| true),
            decided_ns: now_ns,
            recall_ns: now_ns,
            bid: None,
            changed_ns: now_ns,
            trouble_ns: None,
            next_ns: now_ns,
            outbox: Vec::new(),
        }
    }

    /// Another agent takes over: of what others said, and of what was under way, nothing is known any more.
    pub fn restart(&mut self, now_ns: u64) {
        self.heard_ns = vec![None; self.ranks as usize];
        self.told = RankSet::of(self.ranks, |rank| rank == self.me || self.epoch == 0);
        (self.decided_ns, self.bid, self.trouble_ns) = (now_ns, None, None);
        (self.changed_ns, self.next_ns, self.recall_ns) = (now_ns, now_ns, now_ns);
        self.outbox.clear();
    }

    /// The last epoch that was decided, as far as is known here.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Who is left out by what was decided.
    pub fn decided(&self) -> &RankSet {
        &self.out
    }

    /// Who is left out: for a rank that is out or alone, everyone else.
    pub fn mask(&self) -> RankSet {
        match self.standing {
            Standing::Member => self.out.clone(),
            Standing::Out | Standing::Alone => RankSet::of(self.ranks, |rank| rank != self.me),
        }
    }

    /// How this rank stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// True while members are known to have lost each other, and nothing was decided about it.
    pub fn is_troubled(&self) -> bool {
        let members = self.members();
        self.standing == Standing::Member
            && members.iter().any(|rank| self.lost[rank as usize].meets(&members))
    }

    /// What is to be sent, and to whom.
    pub fn drain(&mut self) -> Vec<(u32, Message)> {
        std::mem::take(&mut self.outbox)
    }

    fn members(&self) -> RankSet {
        RankSet::of(self.ranks, |rank| !self.out.has(rank))
    }

    fn is_member(&self, rank: u32) -> bool {
        rank < self.ranks && !self.out.has(rank)
    }

    fn say(&mut self, to: u32, epoch: u64, word: Word) {
        self.outbox.push((to, Message { epoch, word }));
    }

    fn say_to_members(&mut self, epoch: u64, word: &Word) {
        let others: Vec<u32> = self.members().iter().filter(|rank| *rank != self.me).collect();
        others.into_iter().for_each(|rank| self.say(rank, epoch, word.clone()));
    }

    /// Every path to `peer` is dead, and the give-up time has passed.
    pub fn lose(&mut self, now_ns: u64, peer: u32) {
        if peer != self.me && self.lost[self.me as usize].add(peer) {
            self.changed(now_ns);
        }
    }

    /// Something new is known: it is told at once, and decided once it settles.
    fn changed(&mut self, now_ns: u64) {
        (self.changed_ns, self.next_ns) = (now_ns, now_ns);
    }

    /// What `rank` says it lost.
    fn learn(&mut self, now_ns: u64, rank: u32, lost: &RankSet) {
        if self.lost[rank as usize].add_all(lost) {
            self.changed(now_ns);
        }
    }

    fn heard(&self, now_ns: u64) -> RankSet {
        let fresh = |at_ns: u64| now_ns.saturating_sub(at_ns) < self.times.fresh_ns();
        RankSet::of(self.ranks, |rank| rank == self.me || self.heard_ns[rank as usize].is_some_and(fresh))
    }

    /// Who could go on, if they are enough.
    fn prospect(&self, now_ns: u64) -> Option<RankSet> {
        let (members, heard) = (self.members(), self.heard(now_ns));
        let kept = kept(&members, &heard, &self.lost);
        let ready = RankSet::of(self.ranks, |rank| kept.has(rank) && heard.has(rank));
        may_decide(&ready, &members).then_some(kept)
    }

    /// Time passes. To be called often.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns.saturating_add(self.times.resend_ns);
        let troubled = self.is_troubled();
        self.trouble_ns = if troubled { Some(self.trouble_ns.unwrap_or(now_ns)) } else { None };
        self.tell_decision(now_ns);
        if !troubled {
            self.bid = None;
            return;
        }
        let mine = Word::Lost(self.lost[self.me as usize].clone());
        self.say_to_members(self.epoch, &mine);
        if now_ns >= self.changed_ns.saturating_add(self.times.settle_ns) {
            self.pursue(now_ns);
        }
        self.despair(now_ns);
    }

    /// Tells who may not know of the epoch until they answer: members again and again, others once in a while when
    /// patience is over. Those are gone, mostly.
    fn tell_decision(&mut self, now_ns: u64) {
        let recent = now_ns.saturating_sub(self.decided_ns) < self.times.patience_ns;
        let all = recent || now_ns >= self.recall_ns;
        if all {
            self.recall_ns = now_ns.saturating_add(self.times.patience_ns);
        }
        let again = |rank: u32| (all || self.is_member(rank)) && !Mutant::MissedNotTold.on();
        let due = |rank: &u32| !self.told.has(*rank) && (recent || again(*rank));
        if self.epoch > 0 && self.standing == Standing::Member {
            let silent: Vec<u32> = (0..self.ranks).filter(due).collect();
            silent.into_iter().for_each(|rank| self.say(rank, self.epoch, Word::Decided(self.out.clone())));
        }
    }

    /// Carries an attempt on, or begins one, where this rank is the lowest of those that could go on.
    fn pursue(&mut self, now_ns: u64) {
        let leads = self.prospect(now_ns).is_some_and(|kept| kept.iter().next() == Some(self.me));
        if !leads {
            self.bid = None;
            return;
        }
        let epoch = self.epoch + 1;
        if self.bid.is_none() {
            let ballot = Ballot { round: self.promised.round + 1, rank: self.me };
            self.promised = ballot;
            let mut answered = RankSet::none(self.ranks);
            answered.add(self.me);
            self.bid = Some(Bid { ballot, answered, taken: self.taken.clone(), proposed: None });
        }
        let Some(bid) = self.bid.clone() else { return };
        let word = match bid.proposed {
            None => Word::Ask(bid.ballot),
            Some(out) => Word::Propose(bid.ballot, out),
        };
        let silent: Vec<u32> = self.members().iter().filter(|rank| !bid.answered.has(*rank)).collect();
        silent.into_iter().for_each(|rank| self.say(rank, epoch, word.clone()));
        // One that may decide alone waits for nobody.
        self.advance(now_ns);
    }

    /// Enough answers carry an attempt on.
    fn advance(&mut self, now_ns: u64) {
        while let Some(bid) = self.bid.clone() {
            if !may_decide(&bid.answered, &self.members()) {
                return;
            }
            let Some(out) = bid.proposed else {
                if !self.propose(now_ns, bid) {
                    return;
                }
                continue;
            };
            return self.adopt(now_ns, self.epoch + 1, out);
        }
    }

    /// A majority has promised: what one of them took before is what is proposed, else what is seen from here.
    fn propose(&mut self, now_ns: u64, bid: Bid) -> bool {
        let taken = bid.taken.filter(|_| !Mutant::TakenForgotten.on()).map(|(_, out)| out);
        let fresh = || {
            let kept = self.prospect(now_ns)?;
            Some(RankSet::of(self.ranks, |rank| !kept.has(rank)))
        };
        let Some(out) = taken.or_else(fresh) else {
            self.bid = None;
            return false;
        };
        let mut answered = RankSet::none(self.ranks);
        answered.add(self.me);
        self.taken = Some((bid.ballot, out.clone()));
        self.say_to_members(self.epoch + 1, &Word::Propose(bid.ballot, out.clone()));
        self.bid = Some(Bid { ballot: bid.ballot, answered, taken: None, proposed: Some(out) });
        true
    }

    /// An epoch was decided, here or by others.
    fn adopt(&mut self, now_ns: u64, epoch: u64, out: RankSet) {
        (self.epoch, self.promised, self.taken, self.bid) = (epoch, Ballot::default(), None, None);
        if out.has(self.me) {
            self.standing = Standing::Out;
        }
        self.told = RankSet::of(self.ranks, |rank| rank == self.me);
        (self.out, self.decided_ns, self.trouble_ns) = (out, now_ns, None);
        self.changed(now_ns);
        self.tell_decision(now_ns);
    }

    /// Members have lost each other, and no majority is in sight: then others may go on without this rank, and it must
    /// not go on without them.
    fn despair(&mut self, now_ns: u64) {
        let since = self.trouble_ns.unwrap_or(now_ns);
        let long = now_ns >= since.saturating_add(self.times.patience_ns);
        if long && !Mutant::MinorityGoesOn.on() && self.prospect(now_ns).is_none() {
            self.standing = Standing::Alone;
            self.bid = None;
            self.lost[self.me as usize] = RankSet::of(self.ranks, |rank| rank != self.me);
            // A rank that hears it need not wait for it any more.
            let word = Word::Lost(self.lost[self.me as usize].clone());
            self.say_to_members(self.epoch, &word);
        }
    }

    /// A message of `from` arrived.
    pub fn take(&mut self, now_ns: u64, from: u32, message: Message) {
        if from >= self.ranks || from == self.me {
            return;
        }
        self.heard_ns[from as usize] = Some(now_ns);
        if self.standing == Standing::Alone {
            // It may still learn that it is out; it votes no more.
            if !matches!(message.word, Word::Decided(_)) {
                let word = Word::Lost(self.lost[self.me as usize].clone());
                self.say(from, self.epoch, word);
            }
            return;
        }
        let Message { epoch, word } = message;
        match word {
            Word::Lost(lost) => {
                self.learn(now_ns, from, &lost);
                self.compare(from, epoch);
            }
            Word::Decided(out) => self.hear_decision(now_ns, from, epoch, out),
            about if epoch != self.epoch + 1 => self.other_epoch(from, epoch, &about),
            _ if self.standing != Standing::Member || !self.is_member(from) => {}
            Word::Ask(ballot) if ballot.rank == from => self.asked(from, ballot),
            Word::Propose(ballot, out) if ballot.rank == from => self.proposed(from, ballot, out),
            Word::Promise(ballot, taken) => self.promise(now_ns, from, ballot, taken),
            Word::Taken(ballot) => self.voted(now_ns, from, ballot),
            Word::Newer(ballot) => self.overtaken(now_ns, ballot),
            Word::Ask(_) | Word::Propose(..) => {}
        }
    }

    /// `from` knows of no later epoch than this one.
    fn compare(&mut self, from: u32, epoch: u64) {
        if epoch < self.epoch {
            self.say(from, self.epoch, Word::Decided(self.out.clone()));
        } else if epoch == self.epoch {
            self.told.add(from);
        } else {
            // It is asked for what is not known here.
            self.say(from, self.epoch, Word::Lost(self.lost[self.me as usize].clone()));
        }
    }

    /// Of a ballot for another epoch than the next.
    fn other_epoch(&mut self, from: u32, epoch: u64, about: &Word) {
        if matches!(about, Word::Ask(_) | Word::Propose(..)) {
            self.compare(from, epoch.saturating_sub(1));
        }
    }

    fn hear_decision(&mut self, now_ns: u64, from: u32, epoch: u64, out: RankSet) {
        if epoch > self.epoch && out.holds(&self.out) {
            self.adopt(now_ns, epoch, out);
        }
        if epoch == self.epoch {
            self.told.add(from);
        }
        // The answer that it waits for.
        self.say(from, self.epoch, Word::Lost(self.lost[self.me as usize].clone()));
    }

    fn asked(&mut self, from: u32, ballot: Ballot) {
        let epoch = self.epoch + 1;
        if ballot < self.promised {
            return self.say(from, epoch, Word::Newer(self.promised));
        }
        self.promise_to(ballot);
        self.say(from, epoch, Word::Promise(ballot, self.taken.clone()));
    }

    fn proposed(&mut self, from: u32, ballot: Ballot, out: RankSet) {
        let epoch = self.epoch + 1;
        if ballot < self.promised && !Mutant::PromiseBroken.on() {
            return self.say(from, epoch, Word::Newer(self.promised));
        }
        self.promise_to(ballot);
        self.taken = Some((ballot, out));
        self.say(from, epoch, Word::Taken(ballot));
    }

    /// No older ballot is taken from now on, one of this rank's own neither.
    fn promise_to(&mut self, ballot: Ballot) {
        self.promised = self.promised.max(ballot);
        if self.bid.as_ref().is_some_and(|bid| bid.ballot < ballot) {
            self.bid = None;
        }
    }

    fn promise(&mut self, now_ns: u64, from: u32, ballot: Ballot, taken: Option<(Ballot, RankSet)>) {
        let Some(bid) = &mut self.bid else { return };
        if bid.ballot != ballot || bid.proposed.is_some() {
            return;
        }
        bid.answered.add(from);
        let newer = |(mine, _): &(Ballot, RankSet)| taken.as_ref().is_some_and(|(theirs, _)| theirs > mine);
        if bid.taken.as_ref().is_none_or(newer) {
            bid.taken = taken.or(bid.taken.take());
        }
        self.advance(now_ns);
    }

    fn voted(&mut self, now_ns: u64, from: u32, ballot: Ballot) {
        let Some(bid) = &mut self.bid else { return };
        if bid.ballot == ballot && bid.proposed.is_some() {
            bid.answered.add(from);
            self.advance(now_ns);
        }
    }

    /// Somebody else attempts it: this rank waits until it settles again, the higher the longer, so that two do not
    /// overtake each other for ever.
    fn overtaken(&mut self, now_ns: u64, ballot: Ballot) {
        if self.bid.as_ref().is_none_or(|bid| ballot < bid.ballot) {
            return;
        }
        self.bid = None;
        self.promised = self.promised.max(ballot);
        let turn = self.members().iter().take_while(|rank| *rank != self.me).count() as u64;
        self.changed_ns = now_ns.saturating_add(turn.min(8) * 2 * self.times.resend_ns);
    }
}
