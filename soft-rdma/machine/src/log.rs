//! Lines to stderr, as many as `SHUNT_SOFT_RDMA_LOG` asks for. A program that was not written for soft devices gets
//! nothing of them on its output unless something is wrong.

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing is written.
    Off,
    /// Something does not work.
    Error,
    /// Something works less well than it was meant to.
    Warn,
    /// What happens once or rarely: devices, faults, ports.
    Info,
    /// Each call that makes or ends something.
    Debug,
    /// Each call.
    Trace,
}

impl Level {
    /// All of them, by name.
    const NAMES: [(&str, Self); 6] = [
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// What a level looks like, for errors.
pub(crate) const WANTED: &str = "one of off, error, warn, info, debug, trace";

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, level)| *level).ok_or(())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize].0)
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

/// Writes lines up to this level from now on.
pub fn set(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// True if a line of this level is written: what it costs to make one may be saved.
pub fn on(level: Level) -> bool {
    level != Level::Off && level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes one line, whole, so that those of several processes do not mix.
pub fn line(level: Level, text: fmt::Arguments<'_>) {
    if on(level) {
        let line = format!("shunt soft-rdma[{}] {level}: {text}\n", std::process::id());
        // Nobody can be told that stderr is gone.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// `log!(Level::Info, "port {} is up", name)`.
#[macro_export]
macro_rules! log {
    ($level:expr, $($text:tt)*) => {
        if $crate::log::on($level) {
            $crate::log::line($level, format_args!($($text)*));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_read_and_print_themselves() {
        for (name, level) in Level::NAMES {
            assert_eq!(name.parse(), Ok(level));
            assert_eq!(level.to_string(), name);
            assert!(WANTED.contains(name));
        }
        assert_eq!("loud".parse::<Level>(), Err(()));
    }
}
