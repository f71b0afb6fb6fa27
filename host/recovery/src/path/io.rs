//! What a path's machine is told, what it may ask, and what it answers.

use crate::fenced::{FenceTimes, Urgency};
use crate::nanos::Nanos;
use crate::slots::RailPair;
use crate::truth::SideTruth;
use crate::verdict::Verdict;
use shunt_layout::state::PathState;
use shunt_mlx5::descriptor::{HalfCard, RailCard};
use std::collections::VecDeque;

/// What a machine knows of a queue pair that is this end of a path.
pub trait Handle: Clone {
    /// The rail it was made on.
    fn rail(&self) -> u32;
    /// The incarnation it was made for.
    fn incarnation(&self) -> u32;
    /// The variant of the path's memory that it uses, 0 or 1.
    fn variant(&self) -> u32;
    /// The PSN it began to send with.
    fn psn(&self) -> u32;
    /// What the other end must know to connect to it.
    fn card(&self) -> HalfCard;
}

/// How patient a path's machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Packet lifetime: nothing that a fenced queue pair sent is in the network after it.
    pub lifetime: Nanos,
    /// How long the other end's half of a fence is awaited before it counts as silent.
    pub peer: Nanos,
    /// When a peer that should have answered is told again.
    pub doubt: Nanos,
    /// When it is told once more; doubled each time.
    pub resend: Nanos,
    /// Good probes wanted before a path that was made again may be used.
    pub probes: u32,
    /// Time between probes.
    pub probe: Nanos,
    /// Longest a revival may take from its first half to its last probe.
    pub revive: Nanos,
    /// First pause after a failed revival, doubled with each failure.
    pub backoff: Nanos,
    /// How long after it asked for a fence the owner still waits for it.
    pub owner: Nanos,
    /// How long the owner goes without any path before it gives up.
    pub give_up: Nanos,
}

/// What a path's machine may ask while it decides. All of it is about this path.
pub trait Facts {
    /// False while a port of this end is known to be down.
    fn own_port_up(&self, rail: u32) -> bool;
    /// False while a port at either end of a pair of rails is known to be down.
    fn ports_up(&self, rails: RailPair) -> bool;
    /// When the recovery window of a path that is ready now begins: later where ports flap.
    fn calm_from(&self, now: Nanos, rails: RailPair) -> Nanos;
    /// True if both ends have these rails.
    fn rails_exist(&self, rails: RailPair) -> bool;
    /// True if a NIC of this end has not answered for too long to be waited for.
    fn nic_silent(&self, rail: u32) -> bool;
    /// True if a NIC of this end has room to make one more half.
    fn nic_has_room(&self, rail: u32) -> bool;
    /// True if the count that a NIC of this end gives of a half on these rails is to be trusted.
    fn count_trusted(&self, nic: u32, rails: RailPair) -> bool;
    /// True if a NIC may still have an old half of this path.
    fn destroy_pending(&self, rail: u32) -> bool;
    /// True if a NIC was asked in vain to destroy an old half of this path.
    fn destroy_refused(&self, rail: u32) -> bool;
    /// True if any NIC may still write completions of an old half of this path in a variant of its memory.
    fn completions_in_use(&self, variant: u32) -> bool;
    /// True if nothing is to be made on a rail for now, though its port is up.
    fn rail_being_left(&self, rail: u32) -> bool;
    /// True if the peer was given up.
    fn peer_lost(&self) -> bool;
    /// True if some link reaches the peer's agent. It may send a question.
    fn peer_reachable(&mut self, now: Nanos) -> bool;
    /// Since when the peer owes an answer, as this end was awake. What it owes for a half that was fenced at `awake`
    /// counts from there, unless it has owed one for longer.
    fn peer_owes_since(&mut self, awake: Nanos) -> Nanos;
    /// True if the owner's direction does not use the path, and is not entering it. Where the answer is acted upon for
    /// good, the path's state was made unusable in an earlier call: the owner looks at that state after it has entered.
    fn has_left(&self) -> bool;
    /// True if the owner's direction has left this incarnation of the path and never sent through it.
    fn is_unused(&self) -> bool;
    /// The path's state as its owner reads it.
    fn row_state(&self) -> PathState;
    /// Changes that state, unless the owner has marked the path in between. False if it did.
    fn change_row(&mut self, from: PathState, to: PathState) -> bool;
    /// Number of the newest request on the line that answers about this path go by: an owner that has one line for
    /// several paths is not answered about an older request, of another path.
    fn newest_request(&self) -> u64;
}

/// An offer to make a path again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The leader's half, on its rail.
    pub card: HalfCard,
    /// The rail of this end that it wants the other half on.
    pub rail: u32,
}

impl Offer {
    /// The rails, as this end sees them.
    pub fn rails(&self) -> RailPair {
        RailPair { local: self.rail, remote: self.card.rail.index }
    }
}

/// What the NIC of a path is doing for it, by the number of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Task {
    /// Nothing that matters.
    #[default]
    None,
    /// Fencing this half.
    Fence(u64),
    /// Counting what this half executed.
    Count(u64),
    /// Moving this half to ERR, which was counted before.
    Stop(u64),
    /// Making this half.
    Make(u64),
    /// Connecting this half.
    Connect(u64),
    /// Reading the queue pair of a path that an earlier agent left ready.
    Look(u64),
}

/// What one end of a path tells the other, with the incarnation it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// Leave this path; I am fencing my half, and somebody waits for it.
    Fence,
    /// Leave this path; I am fencing my half, because its port is down. Nobody waits yet.
    Leave,
    /// My half is fenced (or cannot be); this is its truth.
    Truth(SideTruth),
    /// My direction has taken its cut and uses the path no more.
    Left,
    /// I made a new half: make yours, on this rail of yours.
    Make(HalfCard, u32),
    /// I made mine and connected it to yours.
    Made(HalfCard),
    /// Mine is connected as well: probe. Said again, it asks whether the other's probes were answered.
    Up,
    /// My probes were answered.
    Proved,
    /// An operator's order by its number: odd takes the path out, even brings it back.
    Order(u32),
    /// I want the slot of this path for another one: leave it by a drain, and fence it.
    Vacate,
}

/// What happened to a path, for those who watch.
#[derive(Debug)]
pub enum Notice {
    /// The owner asked for its fence, by a request of this number.
    FenceAsked(u64),
    /// Its fence began: `asked`, `retire` or `failed`.
    Fencing(&'static str),
    /// This half is fenced.
    HalfFenced(SideTruth, FenceTimes),
    /// This half could not be fenced.
    FenceFailed(String),
    /// Both halves are fenced; the time since the fence began.
    Fenced(Nanos),
    /// Both directions have left.
    Released,
    /// Its next incarnation began.
    Revived,
    /// It is being probed.
    Probing,
    /// Its revival failed.
    RevivalFailed(String),
    /// It is ready again; the time since it was fenced.
    Admitted(Nanos),
    /// It is out.
    Retired,
}

/// A command for the NIC of a half.
pub enum Command<H> {
    /// 2ERR, query, flush, query.
    Fence(H),
    /// 2ERR of a half that was counted.
    Stop(H),
    /// Query of a half that is to stay as it is.
    Look(H),
    /// Connect a half to the other one.
    Connect(H, HalfCard),
    /// Make the half of an incarnation.
    Make {
        /// The rail to make it on.
        rail: u32,
        /// The half of the last incarnation, to be destroyed first.
        old: Option<H>,
        /// The incarnation.
        incarnation: u32,
        /// The variant of the path's memory that no half uses, 0 or 1.
        variant: u32,
        /// First PSN that it sends.
        psn: u32,
        /// The other half, if it was made first: then both are connected at once.
        remote: Option<HalfCard>,
    },
}

/// What a path's machine decided, to be carried out in this order.
pub enum Output<H> {
    /// Tell the other end, about this incarnation.
    Tell(u32, Word),
    /// Command a NIC; the machine learns the command's number by [`super::PathMachine::given`].
    Command(Urgency, Command<H>),
    /// The NIC's command of this number is wanted sooner.
    Hasten(Urgency, u32, u64),
    /// The fence of this number may become a query: nothing can reach the half any more.
    Count(u32, u64),
    /// Take a connection back that has not begun.
    CancelConnect(u32, u64),
    /// Take a half back that has not been begun; then [`super::PathMachine::given`] is told that nothing is under way.
    CancelMake(u32, u64),
    /// Keep a half until it is gone.
    Destroy(H),
    /// An older half on this rail was never proven quiet.
    Unproven(u32),
    /// Nothing older is left on this rail.
    Proven(u32),
    /// Show the owner this state of the path.
    Row(PathState),
    /// Show the owner the half and its remote, not usable yet.
    Publish,
    /// The old ring may still be read by the owner: the next half is made on the spare one.
    SpareJournal,
    /// Answer the owner's request about this incarnation.
    Answer(u32, u64, Verdict),
    /// Say that a request is being worked on, for the so-many-th time.
    InHand(u64, u64),
    /// Get ready to post probes.
    OpenProbes,
    /// Post one.
    PostProbe,
    /// No more of them.
    CloseProbes,
    /// Let the owner use the path: it begins where probes ended, and its recovery window at this time.
    HandOver(Nanos),
    /// The peer was asked in vain.
    Doubt,
    /// The address of one of the peer's rails.
    Moved(RailCard),
    /// The rails of this path fell silent, though no port of them is known to be down.
    RailsFailed,
    /// They work.
    RailsWorked,
    /// They are being left because of silence: whose fault is it?
    LookInto,
    /// The address of this rail may be another one.
    AskAddress(u32),
    /// The NIC of this rail, of this end or of the peer (true), did not answer for its half.
    Mute(bool, u32),
    /// It did.
    Answers(bool, u32),
    /// Tell those who watch, as the path stood then.
    Notice(RailPair, u32, Notice),
    /// The peer offers rails that do not exist.
    NoSuchRails(Offer),
    /// The peer made its half on the first rail, asked for was the second.
    OtherRail(u32, u32),
}

/// One look at a path: the time, what may be asked, and where decisions go.
pub struct Step<'a, H> {
    /// Now.
    pub now: Nanos,
    /// The engine's age: what packet lifetimes are counted by.
    pub age: Nanos,
    /// How long the engine was awake: what patience is counted by.
    pub awake: Nanos,
    /// How patient it is.
    pub timing: &'a Timing,
    /// What may be asked.
    pub facts: &'a mut dyn Facts,
    /// What was decided.
    pub out: &'a mut VecDeque<Output<H>>,
}

impl<H> Step<'_, H> {
    /// Decides one thing more.
    pub(super) fn put(&mut self, output: Output<H>) {
        self.out.push_back(output);
    }
}

/// What became of probes since the last look.
#[derive(Debug, Default)]
pub struct Polled {
    /// Answered.
    pub answered: u32,
    /// One failed.
    pub failed: Option<String>,
    /// There is room for one more.
    pub has_room: bool,
}
