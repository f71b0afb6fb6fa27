//! What the environment asks for.

use shunt_settings::{ConfigError, Lookup, parse_duration};
use shunt_verbs_directory::StoreAt;
use shunt_verbs_journal::policy::{Answers, Policy, Rule};
use std::sync::OnceLock;

/// What is done for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: calls go on to the real library.
    Off,
    /// Calls are counted and go on.
    Observe,
    /// Reliable connections outlive their NIC.
    On,
}

impl Mode {
    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "observe" => Some(Self::Observe),
            "on" => Some(Self::On),
            _ => None,
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::On => "on",
        }
    }
}

/// Which NIC of the other end may execute atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// The one that the program connected to: NICs are atomic each for itself.
    Keep,
    /// Any.
    Move,
}

/// What becomes of a connection that cannot be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It is made without protection.
    Optional,
    /// It is refused.
    Required,
}

/// All settings. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is done.
    pub mode: Mode,
    /// How long a queue pair may be without any path before the program gets the error.
    pub give_up_ns: u64,
    /// A queue pair of which nothing is acknowledged for so long leaves its path.
    pub suspect_ns: u64,
    /// How long the first path must have been ready again before a queue pair goes back to it.
    pub recovery_window_ns: u64,
    /// Packet lifetime in the network.
    pub lifetime_ns: u64,
    /// Good probes wanted of a path.
    pub probes: u32,
    /// What is posted again, and what an atomic without its answer is.
    pub policy: Policy,
    /// Where atomics may go.
    pub atomics: Atomics,
    /// Where the other end is found.
    pub store: StoreAt,
    /// What becomes of a connection without protection.
    pub peer: Peer,
    /// Backup NICs of a queue pair, at most.
    pub backups: u32,
}

fn answers(text: &str) -> Option<Answers> {
    match text {
        "error" => Some(Answers::Needed),
        "any" => Some(Answers::Unread),
        _ => None,
    }
}

fn rule(text: &str) -> Option<Rule> {
    match text {
        "exact" => Some(Rule::Exact),
        "paper" => Some(Rule::Paper),
        _ => None,
    }
}

fn atomics(text: &str) -> Option<Atomics> {
    match text {
        "keep" => Some(Atomics::Keep),
        "move" => Some(Atomics::Move),
        _ => None,
    }
}

fn peer(text: &str) -> Option<Peer> {
    match text {
        "optional" => Some(Peer::Optional),
        "required" => Some(Peer::Required),
        _ => None,
    }
}

fn suspect(text: &str) -> Option<u64> {
    parse_duration(text).filter(|ns| (100_000..=10_000_000_000).contains(ns))
}

const GIVE_UP_NS: u64 = 1_000_000_000;
/// As long as a local ACK timeout of 14, 67 ms, may take at least: most programs ask for that one.
const SUSPECT_NS: u64 = 100_000_000;
const RECOVERY_WINDOW_NS: u64 = 100_000_000;
const LIFETIME_NS: u64 = 50_000_000;
const PROBES: u32 = 3;
/// As many as the driver makes for a channel.
const BACKUPS_MAX: u32 = 7;

impl Settings {
    /// Reads them through a function.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Lookup(lookup);
        let store = env.parse("SHUNT_VERBS_STORE", StoreAt::parse);
        // A password must not stand in an error.
        let hidden = |error: ConfigError| {
            let met = StoreAt::without_password(&error.met);
            ConfigError { met, ..error }
        };
        Ok(Self {
            mode: env.parse("SHUNT_VERBS", Mode::parse)?.unwrap_or(Mode::On),
            give_up_ns: env.parse("SHUNT_GIVE_UP", parse_duration)?.unwrap_or(GIVE_UP_NS),
            suspect_ns: env.parse("SHUNT_SUSPECT", suspect)?.unwrap_or(SUSPECT_NS),
            recovery_window_ns: env
                .parse("SHUNT_RECOVERY_WINDOW", parse_duration)?
                .unwrap_or(RECOVERY_WINDOW_NS),
            lifetime_ns: env.parse("SHUNT_MPL", parse_duration)?.unwrap_or(LIFETIME_NS),
            probes: env.number("SHUNT_PROBES", 1..=1000)?.unwrap_or(PROBES),
            policy: Policy {
                answers: env.parse("SHUNT_VERBS_ATOMIC_ANSWER", answers)?.unwrap_or_default(),
                rule: env.parse("SHUNT_VERBS_RULE", rule)?.unwrap_or_default(),
            },
            atomics: env.parse("SHUNT_VERBS_ATOMICS", atomics)?.unwrap_or(Atomics::Keep),
            store: store.map_err(hidden)?.unwrap_or(StoreAt::Folder),
            peer: env.parse("SHUNT_VERBS_PEER", peer)?.unwrap_or(Peer::Optional),
            backups: env.number("SHUNT_VERBS_BACKUPS", 1..=BACKUPS_MAX)?.unwrap_or(1),
        })
    }
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// These are the settings from now on, whatever the environment says: for a simulator. The first ones stay.
pub fn fix(settings: Settings) {
    SETTINGS.get_or_init(|| settings);
}

/// Those of this process. A value that makes no sense is told once, and nothing is done for the program.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        let found = Settings::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        found.unwrap_or_else(|error| {
            shunt_settings::complain!("shunt: verbs: {error}; the program runs without protection");
            let off = |name: &str| (name == "SHUNT_VERBS").then(|| "off".to_owned());
            Settings::read(&off).expect("off is a mode")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_what_makes_no_sense() {
        let none = Settings::read(&|_| None).unwrap();
        assert_eq!((none.mode, none.give_up_ns, none.probes), (Mode::On, GIVE_UP_NS, PROBES));
        let with = |name: &'static str, value: &'static str| {
            Settings::read(&move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(with("SHUNT_VERBS", "observe").map(|settings| settings.mode), Ok(Mode::Observe));
        let error = with("SHUNT_VERBS", "always").unwrap_err().to_string();
        assert!(error.contains("SHUNT_VERBS: expected ") && error.contains("always"), "{error}");
        assert!(with("SHUNT_MPL", "50").is_err());
        let at = |text: &str| StoreAt::Tcp(text.parse().unwrap());
        let store = |text| with("SHUNT_VERBS_STORE", text).map(|found| found.store);
        assert_eq!(store("tcp://10.0.0.1:7700"), Ok(at("10.0.0.1:7700")));
        assert_eq!((&none.store, store("unix:")), (&StoreAt::Folder, Ok(StoreAt::Folder)));
        assert!(store("ftp://x").is_err() && store("tcp://x").is_err());
        let error = store("redis://me:secret@x").unwrap_err().to_string();
        assert!(error.contains("\"redis://..@x\"") && !error.contains("secret"), "{error}");
        assert_eq!((none.peer, none.backups), (Peer::Optional, 1));
        assert_eq!(with("SHUNT_VERBS_PEER", "required").map(|found| found.peer), Ok(Peer::Required));
        assert_eq!(with("SHUNT_VERBS_BACKUPS", "7").map(|found| found.backups), Ok(7));
        let error = with("SHUNT_VERBS_BACKUPS", "9").unwrap_err().to_string();
        assert_eq!(error, "SHUNT_VERBS_BACKUPS: expected a whole number from 1 to 7, got \"9\"");
        assert!(with("SHUNT_VERBS_BACKUPS", "0").is_err() && with("SHUNT_VERBS_PEER", "1").is_err());
        assert_eq!((none.policy, none.atomics), (Policy::default(), Atomics::Keep));
        let policy = |name, value| with(name, value).map(|found| found.policy);
        assert_eq!(policy("SHUNT_VERBS_RULE", "paper").map(|found| found.rule), Ok(Rule::Paper));
        assert!(policy("SHUNT_VERBS_RULE", "shift").is_err());
        let any = policy("SHUNT_VERBS_ATOMIC_ANSWER", "any");
        assert_eq!(any.map(|found| found.answers), Ok(Answers::Unread));
        assert_eq!(with("SHUNT_VERBS_ATOMICS", "move").map(|found| found.atomics), Ok(Atomics::Move));
        assert!(
            with("SHUNT_VERBS_ATOMICS", "any").is_err() && with("SHUNT_VERBS_ATOMIC_ANSWER", "0").is_err()
        );
    }
}
