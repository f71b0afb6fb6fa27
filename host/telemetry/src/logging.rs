//! The log for people (`SHUNT_LOG`, `NVSHMEM_DEBUG`): a `tracing` subscriber that programs install, a line an event.
//!
//! A library installs nothing: where the program has a subscriber of its own, that one gets the same events.

use super::log_writer::LogWriter;
use shunt_settings::{ConfigError, Lookup};
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How long the end of a program waits for its last lines.
const LAST: Duration = Duration::from_secs(1);

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    level: LevelFilter,
    /// A variable was set.
    asked: bool,
    file: Option<PathBuf>,
}

/// Levels by the names of `SHUNT_LOG`.
fn level_of(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_lowercase().as_str() {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return None,
    })
}

/// The same by NVSHMEM's. Its own `ABORT` is a `WARN` that ends the process: here errors end it anyway.
fn level_of_nvshmem(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_uppercase().as_str() {
        "NONE" | "VERSION" | "WARN" | "ABORT" => LevelFilter::WARN,
        "INFO" => LevelFilter::INFO,
        "TRACE" => LevelFilter::TRACE,
        _ => return None,
    })
}

impl Logging {
    /// What the variables that `lookup` knows ask for: warnings, where they ask for nothing.
    ///
    /// # Errors
    /// [`ConfigError`]: a level that there is not, an empty name of a file.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Lookup(lookup);
        let ours = env.parse("SHUNT_LOG", level_of)?;
        let theirs = env.parse("NVSHMEM_DEBUG", level_of_nvshmem)?;
        let path = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let file = env.parse("SHUNT_LOG_FILE", path)?.or(env.parse("NVSHMEM_DEBUG_FILE", path)?);
        Ok(Self {
            asked: ours.is_some() || theirs.is_some() || file.is_some(),
            level: ours.or(theirs).unwrap_or(LevelFilter::WARN),
            file: file.map(|name| PathBuf::from(file_name(&name, &host(), std::process::id()))),
        })
    }

    /// Installs it for this process, until its end. Where the program has a subscriber that one stays.
    pub fn install(self) {
        let Self { level, file, .. } = self;
        let writer = match LogWriter::start(file) {
            Ok(writer) => Arc::new(writer),
            Err(error) => {
                return shunt_settings::complain!("shunt: SHUNT_LOG_FILE: no log is written: {error}");
            }
        };
        let from = format!("{}:{}", host(), std::process::id());
        if tracing::subscriber::set_global_default(Speaker { level, from, writer: writer.clone() }).is_ok() {
            *WRITER.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        }
    }

    /// What the environment of this process asks for, installed.
    ///
    /// # Errors
    /// As [`Logging::from_lookup`].
    pub fn install_from_env() -> Result<(), ConfigError> {
        Self::from_lookup(&|name| std::env::var(name).ok()).map(Self::install)
    }

    /// The same, only if a variable asks for a log: for programs whose own output has what is worth a warning.
    ///
    /// # Errors
    /// As [`Logging::from_lookup`].
    pub fn install_if_asked() -> Result<(), ConfigError> {
        let logging = Self::from_lookup(&|name| std::env::var(name).ok())?;
        if logging.asked {
            logging.install();
        }
        Ok(())
    }
}

/// The log that was installed.
static WRITER: Mutex<Option<Arc<LogWriter>>> = Mutex::new(None);

/// Waits until what was said is written, a second at most. Before a process ends.
pub fn flush_log() {
    let writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(writer) = writer {
        writer.flush(LAST);
    }
}

/// The name of this machine.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".to_owned() } else { name.trim().to_owned() }
}

/// `%h` and `%p` of a file's name, as NVSHMEM has them: host and process.
fn file_name(name: &str, host: &str, pid: u32) -> String {
    name.replace("%h", host).replace("%p", &pid.to_string())
}

/// The subscriber.
struct Speaker {
    level: LevelFilter,
    /// `host:pid`.
    from: String,
    writer: Arc<LogWriter>,
}

impl Subscriber for Speaker {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && about.target().starts_with("shunt") && *about.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let level = *event.metadata().level();
        let mut words = Words::default();
        event.record(&mut words);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = words.line(&stamp(now), &self.from, level);
        self.writer.write(line, level <= Level::WARN);
    }

    // Nothing here has a span.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The fields of an event, as a line has them.
#[derive(Default)]
struct Words {
    pe: Option<u64>,
    event: String,
    fields: String,
    sentence: String,
    text: Option<String>,
}

impl Words {
    fn line(&self, stamp: &str, from: &str, level: Level) -> String {
        let pe = self.pe.map_or_else(String::new, |pe| format!(" PE {pe}"));
        let Self { event, fields, sentence, text, .. } = self;
        let sentence = text.as_ref().unwrap_or(sentence);
        match event.is_empty() {
            true => format!("shunt: {stamp} {from}{pe} {level} {sentence}{fields}\n"),
            false => format!("shunt: {stamp} {from}{pe} {level} {event}{fields}: {sentence}\n"),
        }
    }

    fn add(&mut self, name: &str, value: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = write!(self.fields, " {name}={value}");
    }
}

impl Visit for Words {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match (field.name(), field.name().strip_suffix("_ns")) {
            ("pe", _) => self.pe = Some(value),
            // The line has a time of its own.
            ("at_ns", _) => {}
            (_, Some(name)) => self.add(name, format_args!("{:?}", Duration::from_nanos(value))),
            (name, None) => self.add(name, format_args!("{value}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "event" => self.event = value.to_owned(),
            // What a remark says, in place of what remarks are.
            "text" => self.text = Some(one_line(value)),
            name => self.add(name, format_args!("{}", one_line(value))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.sentence = one_line(&format!("{value:?}")),
            name => self.add(name, format_args!("{value:?}")),
        }
    }
}

/// A line stays one.
fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

/// `2026-11-26T15:03:14.123456Z`.
fn stamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (mut days, mut year) = (seconds / 86_400, 1970);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let of_year = |year| 365 + u64::from(leap(year));
    while days >= of_year(year) {
        days -= of_year(year);
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let micros = since_1970.subsec_micros();
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Logging, ConfigError> {
        Logging::from_lookup(&|name| {
            pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000007Z"),
            (951_826_154, "2000-02-29T12:09:14.000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000007Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000007Z"),
        ] {
            assert_eq!(stamp(Duration::new(seconds, 7_000)), want);
        }
    }

    #[test]
    fn warnings_are_said_where_nothing_is_set_and_ours_wins() {
        let level = |pairs: &[(&str, &str)]| with(pairs).unwrap().level;
        assert_eq!(level(&[]), LevelFilter::WARN);
        assert_eq!(level(&[("NVSHMEM_DEBUG", "version")]), LevelFilter::WARN);
        assert_eq!(level(&[("NVSHMEM_DEBUG", "TRACE")]), LevelFilter::TRACE);
        assert_eq!(level(&[("NVSHMEM_DEBUG", "TRACE"), ("SHUNT_LOG", "info")]), LevelFilter::INFO);
        let asked = |pairs: &[(&str, &str)]| with(pairs).unwrap().asked;
        assert!(!asked(&[]) && asked(&[("SHUNT_LOG", "warn")]) && asked(&[("NVSHMEM_DEBUG_FILE", "/a")]));
        assert_eq!(with(&[("SHUNT_LOG", "loud")]).unwrap_err().variable, "SHUNT_LOG");
        assert_eq!(with(&[("NVSHMEM_DEBUG", "1")]).unwrap_err().variable, "NVSHMEM_DEBUG");
    }

    #[test]
    fn files_have_host_and_process_in_their_name() {
        assert_eq!(file_name("/tmp/%h.%p.log", "node1", 77), "/tmp/node1.77.log");
        let both = [("NVSHMEM_DEBUG_FILE", "/a"), ("SHUNT_LOG_FILE", "/b")];
        assert_eq!(with(&both).unwrap().file, Some(PathBuf::from("/b")));
        assert_eq!(with(&both[..1]).unwrap().file, Some(PathBuf::from("/a")));
    }
}
