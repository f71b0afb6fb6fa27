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
    /// Truth is told although the receiver's NIC still holds posted writes.
    NoFlushAfterFence = "no-flush-after-fence" breaks "rule 10, invariant 3",
    /// A drain ends with the last completion.
    NoFlushAfterDrain = "no-flush-after-drain" breaks "rule 19, invariant 3",
    /// The cut is what the completions say.
    NoTruth = "no-truth" breaks "rule 12, invariant 5",
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static CHOSEN: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

impl Mutant {
    /// True if this thread runs with this break.
    #[inline(always)]
    pub fn on(self) -> bool {
        #[cfg(feature = "mutants")]
        return CHOSEN.get() == Some(self);
        #[cfg(not(feature = "mutants"))]
        false
    }

    /// This thread runs with `chosen` from now on.
    #[cfg(feature = "mutants")]
    pub fn choose(chosen: Option<Self>) {
        CHOSEN.set(chosen);
    }
}
