//! Breaks of the protocol, one of which a test may put in on purpose to see that it is noticed.
//!
//! Without the feature `mutants` every question is `false` at compile time and nothing of this is in the code; release
//! artifacts are built without it (`cargo xtask ci` looks). With it a thread asks for one break at a time, so that
//! simulations, which are one thread each, may run beside each other.

#[cfg(feature = "mutants")]
extern crate std;

macro_rules! mutants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal breaks $breaks:literal,)*) => {
        /// A named break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant { $($(#[$doc])* $variant,)* }

        impl Mutant {
            /// Every break, for tables.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// How it is called on a command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The rule or invariant that it takes away.
            pub const fn breaks(self) -> &'static str {
                match self { $(Self::$variant => $breaks,)* }
            }
        }
    };
}

mutants! {
    /// Halves that share a flush get it after the first of them was moved to ERR, and not after the last.
    FlushTooEarly = "flush-too-early" breaks "rule 10, invariant 3, F1",
    /// A half is counted by a query alone as soon as the other one is fenced, with packets on their way to it.
    CountedTooSoon = "counted-too-soon" breaks "rule 13, invariant 2",
    /// A path that is usually fast is suspected after sixteen times as long, however short that is.
    FloorForgotten = "floor-forgotten" breaks "invariant 7",
    /// A path that is silent is taken for one that is paused, for however long.
    PauseNeverEnds = "pause-never-ends" breaks "invariant 6",
    /// A half that was counted by a query alone is never moved to ERR.
    CountedNotStopped = "counted-not-stopped" breaks "rule 17",
    /// A MoE call is sent to a rank that has not taken the call before the last: its buffers are written over.
    CreditNotAwaited = "credit-not-awaited" breaks "invariant 2, exactly once",
    /// A post of a MoE kernel waits for room as long as the channel itself would, and not by the kernel's deadline.
    RoomNotLookedFor = "room-not-looked-for" breaks "invariant 6",
    /// A role of a normal-mode MoE kernel that cannot go on keeps its block until it can.
    RoleKeepsBlock = "role-keeps-block" breaks "invariant 6, roles of one kernel",
    /// A MoE call whose number does not fit the words that hold it is begun all the same.
    NumbersWrap = "numbers-wrap" breaks "invariant 11",
    /// A rank that missed a decision is told of it for one patience, and never again.
    MissedNotTold = "missed-not-told" breaks "the mask, known to all",
    /// Any part of the ranks decides who is left out.
    MinorityDecides = "minority-decides" breaks "the mask, one majority",
    /// Of two halves of the ranks each decides.
    TieUnbroken = "tie-unbroken" breaks "the mask, ties",
    /// A rank that attempts an epoch proposes its own mask, whatever was taken before.
    TakenForgotten = "taken-forgotten" breaks "the mask, one for an epoch",
    /// A rank that promised to take no older proposal takes it.
    PromiseBroken = "promise-broken" breaks "the mask, one for an epoch",
    /// A rank that lost others and sees no majority goes on.
    MinorityGoesOn = "minority-goes-on" breaks "the mask, a minority masks itself",
    /// Who waits does not ring what was published without a doorbell.
    LeftUnrung = "left-unrung" breaks "invariant 1, rule 2",
    /// The post lock is waited for as long as it takes: who holds it may be gone.
    PostLockAwaited = "post-lock-awaited" breaks "invariant 6",
    /// The count of messages before the cut takes each block for a message.
    BlocksTakenForMessages = "blocks-taken-for-messages" breaks "rule 6, H5",
    /// An operation whose fate is unknown is issued again without asking.
    UncertainRepeated = "uncertain-repeated" breaks "H13, invariant 2",
    /// A fetching atomic whose answer was lost counts as done.
    LostAnswerIgnored = "lost-answer-ignored" breaks "rule 14, F3",
    /// A put that its receiver polls is repeated without asking.
    PolledPutNotRefused = "polled-put-not-refused" breaks "H11",
    /// An owner's "applied" does not move X beyond the operation.
    ResolvedNotKept = "resolved-not-kept" breaks "rule 12, invariant 2",
    /// The ledger word before a signal is not looked at: a signal behind it counts as not applied.
    BracketHalfRead = "bracket-half-read" breaks "rule 13, invariant 2",
    /// A NIC that places out of order and denies it is not looked for.
    OrderNotProved = "order-not-proved" breaks "invariant 3, H3",
    /// Signals travel under the keys of data.
    SignalsRelaxed = "signals-relaxed" breaks "invariant 3, H3",
    /// Where writes come in any order, a kind 1 signal is a write all the same.
    SignalsWritten = "signals-written" breaks "invariant 3, H3",
    /// Where writes come in any order, ledger words are writes all the same.
    LedgerWritten = "ledger-written" breaks "rule 13, H3",
    /// A replay leaves ledger words out.
    LedgerNotRewritten = "ledger-not-rewritten" breaks "rule 14, invariant 2",
    /// A fence by time needs no error completion.
    TimeFenceByDeadline = "time-fence-by-deadline" breaks "rule 13, F9",
    /// A fence by time does not wait for the packet lifetime.
    TimeFenceAtOnce = "time-fence-at-once" breaks "rule 13, F9",
    /// The fault of a channel that is dead names no unfinished ticket.
    UnfinishedUnnamed = "unfinished-unnamed" breaks "invariant 1, rule 21",
    /// A group publishes without waiting for those before it.
    PublishOutOfOrder = "publish-out-of-order" breaks "rule 3",
    /// A doorbell is rung though a later group has been rung for.
    RingBackwards = "ring-backwards" breaks "rule 3",
    /// A caller that finds the ring frozen leaves, and its tickets stay a hole.
    LeaveAfterReserve = "leave-after-reserve" breaks "rule 2, H9",
    /// A hole in the publish chain is waited for without a bound.
    HoleAwaitedForEver = "hole-awaited-for-ever" breaks "invariant 6, H9",
    /// A completion is progress, whatever its opcode.
    ErrorTakenForDone = "error-taken-for-done" breaks "invariant 1",
    /// A poller stores the done word instead of swapping it from what it read.
    DoneByStore = "done-by-store" breaks "rule 4, F11",
    /// An error seen in the completions of another generation counts.
    LateLookBelieved = "late-look-believed" breaks "rule 4, F11",
    /// The done word is read at the close and not frozen.
    DoneNotFrozen = "done-not-frozen" breaks "rules 4 and 8, F11",
    /// A waiter adopts a generation that the ticket word does not show yet.
    AdoptByDoneAlone = "adopt-by-done-alone" breaks "rule 5",
    /// A group at the head that cannot fit says nothing.
    BlockedNeverSaid = "blocked-never-said" breaks "rule 5, F7",
    /// Quiet returns once all is published.
    QuietAtPublish = "quiet-at-publish" breaks "rule 22, invariant 1",
    /// A port that is known to be down is not left.
    PortHintIgnored = "port-hint-ignored" breaks "rule 20",
    /// Peers are not told of a port that changed.
    PortNotTold = "port-not-told" breaks "rule 20",
    /// The primary is gone back to as soon as it is ready.
    NoRecoveryWindow = "no-recovery-window" breaks "rule 19, H7",
    /// Flaps and relapses cost no extra time.
    NoDamping = "no-damping" breaks "H7",
    /// The owner word is taken from a caller that has it.
    ManySwitchers = "many-switchers" breaks "rule 7, invariant 9",
    /// An owner that is gone is waited for without a bound.
    LeaseNeverEnds = "lease-never-ends" breaks "rule 7, H4",
    /// The agent leaves switches to kernels.
    AgentNeverSwitches = "agent-never-switches" breaks "rule 7, H4",
    /// Channels at rest to a peer whose agent is gone are not touched.
    SilentNotTouched = "silent-not-touched" breaks "invariant 6",
    /// A trigger of an older generation begins a switch.
    OldTriggerActedOn = "old-trigger-acted-on" breaks "rule 9",
    /// An error of the program's own fails over.
    ProgramErrorsChained = "program-errors-chained" breaks "H12",
    /// The journal ends where publishing stands, though groups are still writing into it.
    NotSettled = "not-settled" breaks "rule 8",
    /// An answer to an older request is taken for this one's.
    OldAnswerTaken = "old-answer-taken" breaks "rule 9, H8",
    /// The agent answers requests that a newer one has overtaken.
    LateAnswerWritten = "late-answer-written" breaks "rule 9, H8",
    /// Messages about an older incarnation are acted on.
    OldMessageActedOn = "old-message-acted-on" breaks "rules 9 and 17, H8",
    /// An answer that does not come in time is taken for a fence.
    DeadlineForFence = "deadline-for-fence" breaks "rule 10, F9",
    /// A half is fenced without being moved to ERR.
    NotMovedToErr = "not-moved-to-err" breaks "rule 10, invariant 4",
    /// The count is read before the half is in ERR.
    QueryBeforeErr = "query-before-err" breaks "rule 10",
    /// The peer's half is not waited for.
    OnlyOwnHalf = "only-own-half" breaks "rule 10, F2",
    /// Truth is told although the receiver's NIC still holds posted writes.
    NoFlushAfterFence = "no-flush-after-fence" breaks "rule 10, invariant 3, F1",
    /// That a half reads as ERR is not looked at.
    StateNotLookedAt = "state-not-looked-at" breaks "rule 12, invariant 12",
    /// A silent peer costs no packet lifetime.
    NoLifetimeAfterFence = "no-lifetime-after-fence" breaks "rule 13, F9",
    /// A NIC that is slow to answer counts as one that never will.
    UnprovableAtOnce = "unprovable-at-once" breaks "invariant 6, H7",
    /// A fence that nobody has proved is given no longer where the operator gives up later.
    ProofHasty = "proof-hasty" breaks "invariant 6, H7",
    /// Where neither half can be fenced, the switch goes on.
    UnprovenGoesOn = "unproven-goes-on" breaks "invariant 12",
    /// A NIC's count is trusted whatever the start-up proof says.
    NoStartProof = "no-start-proof" breaks "invariant 12, H2",
    /// The start-up proof leaves atomics out.
    AtomicsNotProved = "atomics-not-proved" breaks "invariant 12, H2",
    /// The cut is what the completions say.
    NoTruth = "no-truth" breaks "rule 12, invariant 5",
    /// A count outside the window is taken for the window's start.
    RefutedTruthBelieved = "refuted-truth-believed" breaks "rule 12, invariant 12",
    /// A count at a PSN that was never sent passes.
    PsnNotChecked = "psn-not-checked" breaks "rule 12, invariant 12",
    /// The cut is computed from the newest path's truth alone.
    CutRecomputed = "cut-recomputed" breaks "rule 12, invariant 10, F6",
    /// What was proved executed is forgotten once the next path is open.
    CutForgottenAtOpen = "cut-forgotten-at-open" breaks "rule 12, invariant 10, F6",
    /// An exact fetching atomic that was executed is executed again when it is asked for again.
    FetchExecutedTwice = "fetch-executed-twice" breaks "rule 23",
    /// The reply to another request is taken for the one awaited.
    FetchReplyOfAnother = "fetch-reply-of-another" breaks "rule 23",
    /// A home moves while an exact fetching atomic is under way at the old one.
    FetchHomeNotAwaited = "fetch-home-not-awaited" breaks "rules 16, 23",
    /// A path whose ledger READs failed may be entered again as it is.
    FailedLedgerEnteredAgain = "failed-ledger-entered-again" breaks "rule 14, invariant 1",
    /// A READ of the ledger is given no more time where the operator gives all work more.
    LedgerImpatient = "ledger-impatient" breaks "rule 13, invariant 6",
    /// How long there was no path is counted on over paths that were found.
    DeadSinceKept = "dead-since-kept" breaks "rule 21, invariant 7",
    /// Nobody carries on what an owner began that got no further than closing the ticket word.
    CloseNotResumed = "close-not-resumed" breaks "rule 7, invariant 6",
    /// An owner that comes back after its lease goes on where it was.
    ReturnedOwnerGoesOn = "returned-owner-goes-on" breaks "rule 7, invariant 9",
    /// Without truth all is repeated.
    NoLedger = "no-ledger" breaks "rule 13, invariant 5",
    /// The peer is lost as soon as no path is usable.
    PeerLostAtOnce = "peer-lost-at-once" breaks "rule 21, invariant 7",
    /// A path is entered at index 0, wherever probes or a drain left it.
    RingsBeginAtZero = "rings-begin-at-zero" breaks "rule 14, H6",
    /// The doorbell is rung before the window is written.
    DoorbellBeforeReplay = "doorbell-before-replay" breaks "rule 14, H14",
    /// What was executed is repeated as it was.
    ExecutedRepeated = "executed-repeated" breaks "rule 14, invariant 5",
    /// A get that was executed is not issued again.
    GetNotIssuedAgain = "get-not-issued-again" breaks "rule 14, F3",
    /// A repeated operation keeps the keys of the old rail.
    KeysOfTheOldRail = "keys-of-the-old-rail" breaks "rule 14",
    /// The ticket word is opened by a store.
    OpenByStore = "open-by-store" breaks "rule 1, F12",
    /// A switcher forgets which path it entered before its step says so.
    AnnouncementTakenBack = "announcement-taken-back" breaks "rules 7 and 17, H4",
    /// The agent is told of an announcement after the path was looked at again, and not before.
    MirrorStoredLate = "mirror-stored-late" breaks "rules 7 and 17, H4",
    /// The agent reads whether a path was left before it makes the path unusable, and not after.
    MirrorReadEarly = "mirror-read-early" breaks "rules 7 and 17, H4",
    /// The agent makes a ring again whether or not this end's direction has left it: under a kernel that posts there.
    RingMadeUnderKernel = "ring-made-under-kernel" breaks "rules 14 and 17, H14",
    /// The suspect time never grows, however often nothing was finished.
    PatienceNeverLearned = "patience-never-learned" breaks "invariant 10",
    /// A switch-back waits for no completion.
    NoDrain = "no-drain" breaks "rule 19, invariant 3",
    /// A drain ends with the last completion.
    NoFlushAfterDrain = "no-flush-after-drain" breaks "rule 19, invariant 3, F1",
    /// A pair is recreated before both directions have left it.
    RevivedBeforeLeft = "revived-before-left" breaks "rule 17, F2, F4",
    /// The truth of a fenced pair is not kept for a caller that asks later.
    TruthNotKept = "truth-not-kept" breaks "rule 18, F4",
    /// A pair is recreated before the packet lifetime has passed.
    NoLifetimeBeforeRevival = "no-lifetime-before-revival" breaks "rule 17, F5",
    /// A half whose fence failed is recreated like any other.
    UnfencedRecreated = "unfenced-recreated" breaks "rule 17, F5, H15",
    /// A recreated pair begins at the PSN that the old one began at.
    SamePsn = "same-psn" breaks "rule 17, F5",
    /// A revival that failed leaves its number to the next.
    IncarnationUsedTwice = "incarnation-used-twice" breaks "rule 17",
    /// A recreated pair is admitted without probes.
    NoProbes = "no-probes" breaks "rule 17",
    /// A recreated pair gets the ring that is still a journal.
    JournalOverwritten = "journal-overwritten" breaks "rule 14, H14",
    /// Atomics go through whichever NIC the channel is on.
    NoHome = "no-home" breaks "rule 16, F10",
    /// A switch takes any path, though the channel is bound to the home.
    AwayChosen = "away-chosen" breaks "rule 16, F10",
    /// A caller that binds its channel does not look where the channel stands.
    BoundUnseen = "bound-unseen" breaks "rule 16, F10",
    /// Of a half that sent, its end says that it never did.
    UsedSaidUnused = "used-said-unused" breaks "rule 16, F10",
    /// A home moves before the pairs at the old one are fenced.
    HomeMovedUnfenced = "home-moved-unfenced" breaks "rule 16, F10",
    /// What recreates a pair says nothing of homes.
    HomeNotCarried = "home-not-carried" breaks "rule 16, F10",
    /// A slot that leads home keeps its rails, though they do not work.
    UselessKept = "useless-kept" breaks "rule 16, invariant 7",
    /// Which pair of rails comes next is a matter of its rank alone, and one that is silent is waited for until its
    /// retries run out.
    DeadRailsFirst = "dead-rails-first" breaks "invariant 7",
    /// The last slot that works is given to a pair that leads home at once.
    LastGivenAway = "last-given-away" breaks "rule 16, invariant 7",
    /// A slot that works is fenced for a pair that leads home, no matter who uses it.
    SlotTakenUnasked = "slot-taken-unasked" breaks "rule 16",
    /// A follower whose NIC does not let go of the old half lets its leader wait.
    OfferNotRefused = "offer-not-refused" breaks "rule 17, invariant 7",
    /// The agents have their own link alone.
    NoSecondLink = "no-second-link" breaks "rule 10, H16",
    /// A path that falls silent is looked into by nobody.
    NobodyAsked = "nobody-asked" breaks "localisation",
    /// Suspicion alone moves a channel, and keeps it from rails it could use.
    SuspicionMasks = "suspicion-masks" breaks "invariant 7",
    /// A path over a NIC that answers neither commands nor pings is entered as soon as there is no other.
    MuteEntered = "mute-entered" breaks "rule 21, invariant 7",
    /// A copy of a datagram that was taken before is taken again.
    CopiesTaken = "copies-taken" breaks "H8, H16",
    /// Old words of a port are believed like new ones.
    OldPortWordBelieved = "old-port-word-believed" breaks "rule 20, H16",
    /// A port that goes down is left to the kernels: nothing is fenced before one of them asks.
    PortNotFenced = "port-not-fenced" breaks "rule 20",
    /// One worker for all NICs of a PE.
    OneWorker = "one-worker" breaks "H7",
    /// An agent that takes over says that nothing was executed where it does not know.
    RestartTruthZero = "restart-truth-zero" breaks "rule 18, invariant 2",
    /// An agent that takes over believes that what its predecessor began to fence is fenced.
    RestartFencesNothing = "restart-fences-nothing" breaks "rules 10 and 18, invariant 4",
    /// An agent that takes over counts incarnations from the half that is there.
    IncarnationForgotten = "incarnation-forgotten" breaks "rule 17",
    /// Requests that its predecessor did not answer are not seen by an agent that takes over.
    RequestsLostAtRestart = "requests-lost-at-restart" breaks "rule 9",
    /// A leader publishes before the other lanes have written.
    LeaderDoesNotWait = "leader-does-not-wait" breaks "H10",
    /// A queue pair that places out of order is used all the same.
    OrderNotChecked = "order-not-checked" breaks "H3, invariant 3",
    /// A put looks at the agent's hints.
    HintReadByPuts = "hint-read-by-puts" breaks "invariant 8",
    /// A generation is newer where its number is greater.
    GenerationCompared = "generation-compared" breaks "invariant 11",
    /// Completions are told by more bits than their counter has.
    CounterNotWrapped = "counter-not-wrapped" breaks "invariant 11",
    /// A lease ends by a clock that may jump.
    LeaseByClock = "lease-by-clock" breaks "rule 13",
    /// The next ledger is read before an answer for the path of the last one came.
    LedgerPathNotAwaited = "ledger-path-not-awaited" breaks "rule 9",
    /// Callers that wait for room or for their turn give the channel up before an owner that is gone is replaced.
    LeaseNotAwaited = "lease-not-awaited" breaks "rule 7",
    /// A NIC's worker carries out the newest of equally urgent jobs first.
    NewestFirst = "newest-first" breaks "H7",
    /// An agent that takes over takes old words and old copies for new ones.
    WordsForgotten = "words-forgotten" breaks "rule 20, H8, H16",
    /// A switcher does not look whether its agent has the fence in hand.
    QueueIsSilence = "queue-is-silence" breaks "invariant 6, H7",
    /// A peer that has a fence in hand counts as silent after a constant time.
    QueueThereIsSilence = "queue-there-is-silence" breaks "rule 10, H7",
    /// The bytes of a message are not looked at by who suspects its path.
    BytesUnseen = "bytes-unseen" breaks "invariant 7",
    /// While the bytes of a message excuse a silence, nobody reads what the agent says of the rail.
    BytesHideHints = "bytes-hide-hints" breaks "invariant 7",
    /// A put waits for its own completion.
    PutAwaited = "put-awaited" breaks "a public attempt, 1",
    /// What was outstanding on the path that failed counts as executed.
    OutstandingForgotten = "outstanding-forgotten" breaks "a public attempt, 5",
    /// Nobody goes back to a path that recovered.
    NoWayBack = "no-way-back" breaks "a public attempt, 7",
    /// Of all backups the first alone is ever used.
    OneBackup = "one-backup" breaks "a public attempt, 8",
    /// The backup of each rail is its neighbour.
    NeighbourOnly = "neighbour-only" breaks "a public attempt, 8",
    /// Agents talk through one rail alone.
    ControlOnRail = "control-on-rail" breaks "a public attempt, 9",
    /// A fence that failed because a NIC was silent is not tried again.
    FailedFenceLeft = "failed-fence-left" breaks "rule 10, H7",
    /// A flush that failed is tried again for the next few fences at once.
    FailedFlushRepeated = "failed-flush-repeated" breaks "rule 9, H7",
    /// What an agent said of a fence before it fell silent renews the wait for it.
    OldWordRenews = "old-word-renews" breaks "invariant 6, H7",
    /// A drain takes a large message for one that stands still.
    DrainKnowsNoBytes = "drain-knows-no-bytes" breaks "rule 19",
    /// Who was not there to see a path silent counts the time all the same.
    SilenceByClock = "silence-by-clock" breaks "invariant 7",
    /// A pair that an operator took out answers nobody.
    RetiredSaysNothing = "retired-says-nothing" breaks "rules 10 and 17",
    /// Who left a pair that is to be taken out counts as gone, though he is back on it.
    LeftStaysLeft = "left-stays-left" breaks "rule 17",
    /// A pair that an operator takes out, or whose slot is wanted, has failed.
    OrderIsFailure = "order-is-failure" breaks "H7",
    /// The packet lifetime is counted by a clock that may jump.
    ClockTrusted = "clock-trusted" breaks "rule 13",
    /// What a closed lane had executed is sent again with its immediates.
    ExecutedSentAgain = "executed-sent-again" breaks "transfers: an immediate counts once",
    /// What is written again because its receiver only counted it carries its immediate.
    ReplayedWithImmediate = "replayed-with-immediate" breaks "transfers: an immediate counts once",
    /// Where some of an immediate's pieces arrived, all of them are taken for executed.
    SomeIsAll = "some-is-all" breaks "transfers: every byte arrives",
    /// The missing immediates are sent before the bytes that they stand for.
    MissingBeforeBytes = "missing-before-bytes" breaks "transfers: bytes before their immediate",
    /// A transfer ends while pieces of it are under way.
    EndsUnderWay = "ends-under-way" breaks "transfers: nothing lands after the end",
    /// A cancelled transfer waits for no fence.
    CancelledUnfenced = "cancelled-unfenced" breaks "transfers: nothing lands after a proof",
    /// A transfer that ends early waits for no READ behind what was written of it.
    StoppedUnflushed = "stopped-unflushed" breaks "transfers: nothing lands after a proof",
    /// A fence that proves nothing makes a proof.
    UnprovenIsProof = "unproven-is-proof" breaks "transfers: nothing lands after a proof",
    /// A peer counts as cut off while queue pairs to it are being destroyed.
    LeftBeforeDestroyed = "left-before-destroyed" breaks "transfers: nothing lands after a proof",
    /// An expectation begins to count when it is made.
    EarlyForgotten = "early-forgotten" breaks "transfers: an early immediate is kept",
    /// A lane is not suspected while any of its pieces is done.
    AnyProgress = "any-progress" breaks "transfers: a lost piece ends in time",
    /// The last request that the other end has executed counts as not executed.
    CutTooEarly = "cut-too-early" breaks "verbs: nothing is executed twice",
    /// The first request that it has not executed counts as executed.
    CutTooLate = "cut-too-late" breaks "verbs: nothing is lost",
    /// Of messages that were executed and not acknowledged the receiver is told nothing.
    CutUncounted = "cut-uncounted" breaks "verbs: receives are counted at both ends",
    /// The sender goes on before the receiver says where it receives.
    ReadyNotAwaited = "ready-not-awaited" breaks "verbs: receives come first",
    /// An atomic that was executed, and whose answer is lost, is posted again.
    LostAnswerRepeated = "lost-answer-repeated" breaks "verbs: nothing is executed twice",
    /// A READ that was executed counts as done, though its data may not have come.
    ReadNotRepeated = "read-not-repeated" breaks "verbs: what is complete is there",
    /// The backup is left for the first path without a fence, by what has completed.
    ReturnUnfenced = "return-unfenced" breaks "verbs: nothing is executed twice",
    /// A program that sleeps is not woken for what completes elsewhere since its queue pair was moved.
    WakeForgotten = "wake-forgotten" breaks "verbs: who sleeps is woken",
    /// Of shared buffers that come back, one is dealt twice.
    SharedTwice = "shared-twice" breaks "verbs: a buffer is used once",
    /// Of shared buffers that come back, one is dealt to nobody.
    SharedLost = "shared-lost" breaks "verbs: no buffer is lost",
}

#[cfg(feature = "mutants")]
std::thread_local! {
    /// A bit for each break.
    static CHOSEN: core::cell::Cell<[u128; 2]> = const { core::cell::Cell::new([0; 2]) };
}

/// What a binary that can be broken holds: `cargo xtask ci` looks for it in release artifacts.
#[cfg(feature = "mutants")]
pub const MARK: &str = "shunt-mutants-are-built-in";

const _: () = assert!(Mutant::ALL.len() <= 2 * u128::BITS as usize);

impl Mutant {
    /// True if this thread runs with this break.
    #[inline(always)]
    pub fn on(self) -> bool {
        #[cfg(feature = "mutants")]
        return CHOSEN.get()[self as usize / 128] >> (self as u32 % 128) & 1 == 1
            && !core::hint::black_box(MARK).is_empty();
        #[cfg(not(feature = "mutants"))]
        false
    }

    /// This thread runs with the breaks `chosen` from now on, and with no others.
    #[cfg(feature = "mutants")]
    pub fn choose(chosen: &[Self]) {
        let mut bits = [0; 2];
        chosen.iter().for_each(|mutant| bits[*mutant as usize / 128] |= 1 << (*mutant as u32 % 128));
        CHOSEN.set(bits);
    }

    /// The break of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}
