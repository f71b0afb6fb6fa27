//! What an event is made of: fields and their kinds, and the macro that makes everything follow from one table.

use std::fmt;
use tracing::field::DisplayValue;

/// How loud an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Single steps.
    Debug,
    /// What happened and needs nobody.
    Info,
    /// Something is worse than it was; the job goes on.
    Warn,
    /// Something is lost, or somebody must look.
    Error,
}

impl Level {
    /// As JSON and tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// A pair's place in the tables of this PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Peer.
    pub peer: u32,
    /// Channel at the peer.
    pub channel: u32,
    /// Slot.
    pub slot: u32,
}

/// A path of this PE, as events name it: JSON has it as an object, tables as `0.1>1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// This PE.
    pub pe: u32,
    /// Where it leads.
    pub place: Place,
    /// Rail of this end.
    pub local_rail: u32,
    /// Rail of the other end.
    pub remote_rail: u32,
    /// Incarnation of the pair.
    pub incarnation: u32,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}>{}.{}", self.pe, self.local_rail, self.place.peer, self.remote_rail)
    }
}

/// What JSON has for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number that is not negative.
    Number,
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// An object: [`Route`].
    Route,
}

/// The value of a field, as a sink sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// A word from a fixed list, or what somebody said.
    Text(&'a str),
    /// A path.
    Route(&'a Route),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Route(route) => route.fmt(f),
        }
    }
}

/// A path in `tracing`: `0.1>1.0` and, behind `#`, the channel.
pub struct Traced<'a>(&'a Route);

impl fmt::Display for Traced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.0, self.0.place.channel)
    }
}

/// What can be a field.
pub trait Field {
    /// What JSON has for it.
    const KIND: Kind;
    /// Its kind in `tracing`: numbers are numbers there, too.
    type Traced<'a>: tracing::Value
    where
        Self: 'a;

    /// The value.
    fn value(&self) -> Value<'_>;

    /// The same for `tracing`.
    fn traced(&self) -> Self::Traced<'_>;
}

macro_rules! field {
    ($type:ty, $kind:ident, $traced:ty, $self:ident => $value:expr, $tracing:expr) => {
        impl Field for $type {
            const KIND: Kind = Kind::$kind;
            type Traced<'a> = $traced;

            fn value(&self) -> Value<'_> {
                let $self = self;
                $value
            }

            fn traced(&self) -> Self::Traced<'_> {
                let $self = self;
                $tracing
            }
        }
    };
}
field!(u32, Number, u32, it => Value::Number(u64::from(*it)), *it);
field!(u64, Number, u64, it => Value::Number(*it), *it);
field!(bool, Flag, bool, it => Value::Flag(*it), *it);
field!(&'static str, Text, &'static str, it => Value::Text(it), it);
field!(String, Text, &'a str, it => Value::Text(it), it);
field!(Route, Route, DisplayValue<Traced<'a>>, it => Value::Route(it), tracing::field::display(Traced(it)));

/// One event as it is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Name in JSON, in metrics and in `tracing`.
    pub name: &'static str,
    /// Level.
    pub level: Level,
    /// Field names with what they are.
    pub fields: &'static [(&'static str, &'static str)],
    /// What JSON has for each field.
    pub kinds: &'static [Kind],
    /// One sentence.
    pub sentence: &'static str,
}

/// Makes the enum, its declarations and its emission from one table.
macro_rules! events {
    ($(
        #[doc = $sentence:literal]
        $variant:ident $name:literal $level:ident { $( $field:ident: $type:ty = $meaning:literal ),* $(,)? }
    )+) => {
        /// Everything that is told.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Event {
            $(
                #[doc = $sentence]
                $variant {
                    $( #[doc = $meaning] $field: $type, )*
                },
            )+
        }

        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Number { $($variant),+ }

        /// Every event, in the order of the table.
        pub const EVENTS: &[Declaration] = &[$(
            Declaration {
                name: $name,
                level: Level::$level,
                fields: &[$((stringify!($field), $meaning)),*],
                kinds: &[$(<$type as Field>::KIND),*],
                sentence: $sentence.trim_ascii(),
            },
        )+];

        impl Event {
            /// Number of the event in [`EVENTS`].
            pub const fn number(&self) -> usize {
                match self { $( Self::$variant { .. } => Number::$variant as usize, )+ }
            }

            /// Hands every field to `visit`, by name.
            pub fn visit(&self, visit: &mut dyn FnMut(&'static str, Value<'_>)) {
                match self {
                    $( Self::$variant { $($field),* } => {
                        let _ = &visit;
                        $( visit(stringify!($field), $field.value()); )*
                    } )+
                }
            }

            /// Hands the event to `tracing`.
            pub fn trace(&self, pe: u32, at_ns: u64) {
                match self {
                    $( Self::$variant { $($field),* } => tracing::event!(
                        target: "shunt",
                        events!(@level $level),
                        event = $name, pe, at_ns, $( $field = $field.traced(), )*
                        "{}", $sentence.trim_ascii()
                    ), )+
                }
            }
        }
    };
    (@level Debug) => { tracing::Level::DEBUG };
    (@level Info) => { tracing::Level::INFO };
    (@level Warn) => { tracing::Level::WARN };
    (@level Error) => { tracing::Level::ERROR };
}
pub(crate) use events;
