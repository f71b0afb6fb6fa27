//! One exploration of model M: what may happen, and what is taken away.

/// What may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Reasons to leave a path.
    pub triggers: u8,
    /// Leases that end while their owner sleeps.
    pub takeovers: u8,
    /// Paths that are taken out of use.
    pub fences: u8,
    /// Groups that post.
    pub posts: u8,
    /// Channels that end because somebody holds the post lock.
    pub deaths: u8,
    /// Owners that are gone with their kernel.
    pub gone: u8,
}

/// A part of the rules taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The agent is shown an announcement after the path was looked at again.
    StoredLate,
    /// The agent reads the mirror before it takes the path out of use.
    ReadEarly,
    /// The mirror is stored whatever it shows already.
    MirrorByStore,
    /// The word is stored whatever it says meanwhile.
    WordByStore,
    /// Who takes a switch over does not show the agent where it stands.
    NotShownByHeir,
    /// Who is to open a generation does not look again where the switch stands once it saw it closed.
    NotLookedAgain,
    /// No waiter shows the agent what a gone owner did not.
    NobodyReminds,
    /// What the agent says of a path that it made again is not copied into the hot line.
    LineKept,
    /// It is copied before the path was looked at again.
    LineCopiedEarly,
    /// The line's incarnation is stored before the rest.
    IncarnationFirst,
    /// A dead channel has left its paths, whoever holds the post lock.
    DeadHasLeft,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What may happen, how often.
    pub budget: Budget,
    /// There is one path.
    pub alone: bool,
    /// What is taken away.
    pub broken: Option<Break>,
}

impl Setup {
    /// So many reasons to leave a path, leases that end, and paths that are taken out of use.
    pub fn new(triggers: u8, takeovers: u8, fences: u8) -> Self {
        Self {
            budget: Budget { triggers, takeovers, fences, posts: 0, deaths: 0, gone: 0 },
            alone: false,
            broken: None,
        }
    }

    /// So many groups post.
    pub fn posts(mut self, posts: u8) -> Self {
        self.budget.posts = posts;
        self
    }

    /// An owner may be gone with its kernel.
    pub fn gone(mut self) -> Self {
        self.budget.gone = 1;
        self
    }

    /// There is one path.
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// The channel may end.
    pub fn death(mut self) -> Self {
        self.budget.deaths = 1;
        self
    }

    /// The same without a part of the rules.
    pub fn without(mut self, part: Break) -> Self {
        self.broken = Some(part);
        self
    }

    pub(super) fn lacks(&self, part: Break) -> bool {
        self.broken == Some(part)
    }
}
