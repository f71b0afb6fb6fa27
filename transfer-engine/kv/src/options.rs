//! The command line. Whatever cannot be honoured is refused, never ignored.

use clap::{Parser, ValueEnum};
use shunt_figures::units::{parse_size, parse_time, show_size, whole};
use shunt_kv::words::Shape;
use shunt_transfer_program::NicOptions;
use shunt_transfer_program::alike::Alike;
use shunt_transfer_program::start::Checked;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// All of it: it starts a process for each decoder and prefiller on this machine.
    All,
    /// A decoder, which listens.
    Decode,
    /// A prefiller, which connects to decoders.
    Prefill,
}

/// A process, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// A prefiller, or a decoder.
    pub is_prefill: bool,
    /// Which.
    pub number: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", if self.is_prefill { "prefill" } else { "decode" }, self.number)
    }
}

/// Something that is done to a process, and when, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// To which.
    pub who: Who,
    /// Since the first request.
    pub at_ns: u64,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected prefill.N@T or decode.N@T as in prefill.1@2s, got {text}");
        let (who, at) = text.split_once('@').ok_or_else(error)?;
        let (kind, number) = who.split_once('.').ok_or_else(error)?;
        let is_prefill = match kind {
            "prefill" => true,
            "decode" => false,
            _ => return Err(error()),
        };
        let number = number.parse().map_err(|_| error())?;
        let at_ns = parse_time(at).map_err(|_| error())?;
        Ok(Self { who: Who { is_prefill, number }, at_ns })
    }
}

/// When a prefiller is started again, nanoseconds since the first request, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// None: the process that is killed last before.
    pub who: Option<Who>,
    /// When.
    pub at_ns: u64,
}

impl FromStr for Again {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || {
            format!("expected prefill.N@T as in prefill.1@3s, or @T for the one that was killed, got {text}")
        };
        match text.strip_prefix('@') {
            Some(at) => Ok(Self { who: None, at_ns: parse_time(at).map_err(|_| error())? }),
            None => text.parse().map(|At { who, at_ns }| Self { who: Some(who), at_ns }).map_err(|_| error()),
        }
    }
}

fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|number| *number <= 100).ok_or_else(|| format!("expected 0% to 100%, got {text}"))
}

/// kv_disagg: decoders ask prefillers for the caches of prompts, layer by layer, while ports fail and processes are
/// killed, stopped and started again, and check every page.
///
/// Alone it starts a process for each decoder and prefiller on this machine. Ends are numbered: the decoders from 0 on,
/// then the prefillers, then those that are started again. Between machines start `--role decode --listen HOST:PORT`
/// and `--role prefill --connect HOST:PORT,..` with the same SHUNT_SECRET_FILE.
#[derive(Parser, Clone, Debug)]
#[command(name = "kv_disagg", version)]
#[command(
    max_term_width = 80,
    after_help = "Exit status: 0 clean, 1 a promise was broken or a fault hit nothing, 2 bad usage, 3 a prefiller was \
                  lost that was neither killed nor stopped. Figures are wall time on what `clock` in the verdict names."
)]
pub struct Options {
    /// What this process is
    #[arg(long, value_enum, default_value = "all")]
    pub role: Role,
    /// Where a decoder listens
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Decoders that a prefiller connects to
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub connect: Vec<String>,
    /// Number of this end, of a process with a role
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=999))]
    pub end: u32,
    /// Prints what this process saw, for the process that started it
    #[arg(long, hide = true)]
    pub part: bool,
    /// Prefillers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=16))]
    pub prefill: u32,
    /// Decoders
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(1..=16))]
    pub decode: u32,
    /// Requests of all decoders together, or of this one
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole(1..=10_000_000))]
    pub requests: u32,
    /// Requests that a decoder has open at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole(1..=1024))]
    pub concurrent: u32,
    /// Of all requests, those that are cancelled
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    pub cancel: u32,
    /// Layers of the model
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole(1..=1024))]
    pub layers: u32,
    /// Most pages of a prompt
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole(1..=65_536))]
    pub pages: u32,
    /// Bytes of a page of one layer
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = parse_size)]
    pub page: u64,
    /// Bytes that follow the last layer
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    pub context: u64,
    /// Time that a prefiller takes for a layer
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = parse_time)]
    pub layer_time: u64,
    /// Seed of prompts and cancels
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Kills a process, as in prefill.1@2s; repeatable
    #[arg(long, value_name = "WHO@T")]
    pub kill: Vec<At>,
    /// Starts a prefiller again that was killed before, the last one with @T; repeatable
    #[arg(long, value_name = "[WHO]@T")]
    pub restart: Vec<Again>,
    /// Stops a process (SIGSTOP); repeatable
    #[arg(long, value_name = "WHO@T")]
    pub stop: Vec<At>,
    /// Lets a process go on that was stopped before; repeatable
    #[arg(long, value_name = "WHO@T")]
    pub cont: Vec<At>,
    /// A run that takes longer has requests that are stuck
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = parse_time)]
    pub within: u64,
    /// Rails, NICs, faults, and the file of the verdict
    #[command(flatten)]
    pub nics: NicOptions,
}

/// Most bytes of a decoder's cache and of a prefiller's memory.
const MEMORY_MAX: u64 = 32 << 30;

impl Options {
    /// The shape of the cache.
    pub fn shape(&self) -> Shape {
        Shape { layers: self.layers, page_len: self.page, context_len: self.context }
    }

    /// Pages of a decoder's cache: as many as its requests have at most, and as many again.
    pub fn cache_pages(&self) -> u32 {
        2 * self.concurrent * self.pages
    }

    /// Requests that a prefiller works on at once.
    pub fn slots(&self) -> u32 {
        self.concurrent * self.decode
    }

    /// How long the whole may take.
    pub fn within(&self) -> Duration {
        Duration::from_nanos(self.within)
    }

    /// What is started again.
    pub fn restarts(&self) -> Vec<At> {
        let last = |at_ns| self.kill.iter().filter(|of| of.at_ns < at_ns).max_by_key(|of| of.at_ns);
        let who = |again: &Again| again.who.or_else(|| Some(last(again.at_ns)?.who));
        self.restart.iter().filter_map(|again| Some(At { who: who(again)?, at_ns: again.at_ns })).collect()
    }

    fn check_processes(&self) -> Result<(), String> {
        let restarts = self.restarts();
        if restarts.len() < self.restart.len() {
            return Err("--restart @T: expected a prefiller that is killed before, got none".to_owned());
        }
        let last = |is_prefill| if is_prefill { self.prefill } else { self.decode } - 1;
        for at in [&self.kill, &restarts, &self.stop, &self.cont].into_iter().flatten() {
            let most = last(at.who.is_prefill);
            if at.who.number > most {
                return Err(format!("a process: expected a number from 0 to {most}, got {}", at.who));
            }
        }
        let earlier = |of: &[At], at: &At| of.iter().any(|of| of.who == at.who && of.at_ns < at.at_ns);
        if let Some(at) = restarts.iter().find(|at| !at.who.is_prefill || !earlier(&self.kill, at)) {
            return Err(format!("--restart: expected a prefiller that is killed before, got {}", at.who));
        }
        match self.cont.iter().find(|at| !earlier(&self.stop, at)) {
            Some(at) => Err(format!("--cont: expected a process that is stopped before, got {}", at.who)),
            None => Ok(()),
        }
    }

    fn check_role(&self) -> Result<(), String> {
        let processes = self.kill.len() + self.restart.len() + self.stop.len() + self.cont.len();
        let (listens, connects) = (self.listen.is_some(), !self.connect.is_empty());
        match self.role {
            Role::All if listens || connects => {
                Err("--role: expected decode with --listen, or prefill with --connect, got all".to_owned())
            }
            Role::Decode if !listens || connects => {
                Err("--role decode: expected --listen HOST:PORT, and no --connect".to_owned())
            }
            Role::Prefill if !connects || listens => {
                Err("--role prefill: expected --connect HOST:PORT, and no --listen".to_owned())
            }
            Role::Decode | Role::Prefill if processes > 0 => {
                Err("--kill, --restart, --stop, --cont: expected --role all, which starts the processes"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Checked for Options {
    fn nics(&self) -> &NicOptions {
        &self.nics
    }

    /// Its ends are no job: decoders say their shape to each prefiller.
    fn own_alike(&self) -> Alike {
        Alike::new()
    }

    fn check(&self) -> Result<(), String> {
        if self.page == 0 || self.page > 1 << 30 || self.context == 0 || self.context > 1 << 30 {
            let (page, context) = (show_size(self.page), show_size(self.context));
            return Err(format!("--page and --context: expected 1 to 1G, got {page} and {context}"));
        }
        let shape = self.shape();
        let layers = u64::from(shape.layers) * shape.page_len;
        let cache = u64::from(self.cache_pages()) * layers;
        let source = u64::from(self.slots()) * u64::from(self.pages) * layers;
        if cache.max(source) > MEMORY_MAX {
            let (most, met) = (show_size(MEMORY_MAX), show_size(cache.max(source)));
            return Err(format!(
                "memory of a process: expected at most {most}, got {met}; take fewer --pages"
            ));
        }
        self.check_role()?;
        self.check_processes()?;
        // A process with a role has faults of its own number, and of no other.
        let again = self.restart.len() as u32;
        let ends = if self.role == Role::All { self.decode + self.prefill + again } else { 1000 };
        self.nics.check_faults(ends)
    }
}
