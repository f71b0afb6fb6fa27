//! All of model M: the word, its mirror, owners, a poster, paths.

use super::setup::{Break, Budget, Setup};
use shunt_layout::state::{Step, SwitchWord};

/// Paths of the channel.
pub(super) const PATHS: usize = 2;

/// A path, as the agent keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) stage: Stage,
    pub(super) incarnation: u8,
    /// What the agent read of the mirror before the path was made unusable. For a break alone.
    pub(super) early: bool,
}

/// The hot line of a path: two of its words, each the incarnation of the row that it was copied from. The second one
/// is that number itself, by which an heir tells whether the line is of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) rest: u8,
    pub(super) incarnation: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Owners may enter it.
    Ready,
    /// They may not.
    Fenced,
    /// And the channel has left it, so the agent read.
    Left,
    /// There is none.
    Absent,
}

/// The ticket word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket {
    pub(super) slot: u8,
    pub(super) closed: bool,
    pub(super) generation: u8,
}

/// A poster: what it rings once it holds the post lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Poster {
    Rest,
    /// It holds the lock.
    Locked,
    /// It saw the channel open on a slot, of this incarnation.
    Rings(u8, u8),
}

/// All of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct System {
    pub(super) word: SwitchWord,
    pub(super) mirror: SwitchWord,
    pub(super) ticket: Ticket,
    /// Who owns the switch; [`NOBODY`].
    pub(super) owner: usize,
    pub(super) owners: [Owner; 2],
    pub(super) poster: Poster,
    pub(super) paths: [Path; PATHS],
    pub(super) lines: [Line; PATHS],
    pub(super) budget: Budget,
}

pub(super) const NOBODY: usize = 2;

/// An owner's next access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    /// Take the owner word.
    Take,
    /// Read where the switch stands.
    Read,
    /// Show the agent, as one that takes over does.
    Show,
    /// Look whether the lease is still its own.
    Lease,
    /// The step.
    Work,
    /// Show the agent what the swap made it.
    Told,
    /// Announced and shown: look at the path again.
    LookAgain,
    /// The path is there: copy what the agent says of it into its hot line, word by word.
    Adopt,
    /// The second word.
    Adopted,
    /// It has read the ticket word: look whether the switch still stands there.
    StillThere,
    /// Open the ticket word.
    Open,
    /// Say that the switch is over.
    Idle,
    /// Let go.
    LetGo,
    /// Never: it is gone with its kernel.
    Gone,
}

/// An owner: what its registers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) at: At,
    /// What it read, or made, of where the switch stands.
    pub(super) word: SwitchWord,
    /// Incarnation of the path that it found ready.
    pub(super) found: u8,
    /// Generation that it saw closed.
    pub(super) closed: u8,
    /// It shows again where it stands before it goes on.
    pub(super) begins: bool,
    /// It looked at the path already, and is to show the announcement. For a break alone.
    pub(super) late: bool,
}

impl Owner {
    pub(super) const AT_REST: Self =
        Self { at: At::Take, word: SwitchWord(0), found: 0, closed: 0, begins: false, late: false };
}

impl System {
    /// True if the channel uses a slot: what the rules of a switch say of where it stands.
    pub(super) fn uses(&self, slot: usize) -> bool {
        let slot = slot as u32;
        let by_switch = match self.word.step() {
            Step::Ledger | Step::Replay => self.word.to() == slot,
            Step::Choose | Step::Uncertain | Step::Dead => false,
            _ => self.word.slot() == slot,
        };
        by_switch || matches!(self.poster, Poster::Rings(at, _) if u32::from(at) == slot)
    }

    pub(super) fn show(&mut self, setup: &Setup, word: SwitchWord) -> Result<(), String> {
        let before = self.mirror;
        self.mirror = if setup.lacks(Break::MirrorByStore) { word } else { before.max(word) };
        if self.mirror < before {
            return Err(format!("mirror: it goes back from {} to {}", before.version(), word.version()));
        }
        Ok(())
    }

    /// The swap that every change of the word is.
    pub(super) fn change(&mut self, setup: &Setup, at: SwitchWord, next: SwitchWord) -> bool {
        let stands = self.word == at || setup.lacks(Break::WordByStore);
        if stands {
            self.word = next;
        }
        stands
    }
}
