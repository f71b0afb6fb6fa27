//! Options of the command line.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// What an end is to do.
pub struct Options {
    /// Name of its device.
    pub device: String,
    /// Index of its address there.
    pub gid: u8,
    /// How long it posts.
    pub duration: Duration,
    /// To the other process.
    pub stream: TcpStream,
    /// It sleeps on a completion channel.
    pub sleeps: bool,
    /// It receives by a shared receive queue.
    pub shares: bool,
    /// Whether it adds.
    pub adds: Adds,
    /// What its queue pair is connected to.
    pub to: To,
    /// Every so manyeth message is a WRITE with immediate data.
    pub immediates: bool,
    /// It reads.
    pub reads: bool,
    /// Local ACK timeout, 4.096 us << this.
    pub ack_timeout: u8,
    /// Its queue pair is moved to RESET and connected again, so that it is so many one behind the other.
    pub lives: u32,
    /// It only makes and connects so many queue pairs, twice, and tells how long that took.
    pub pairs: Option<u32>,
}

/// What a queue pair is connected to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// One of the other process.
    Other,
    /// Another one of this process.
    Here,
    /// Itself.
    Itself,
}

/// Whether it adds to the other end's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Adds {
    No,
    /// Who connects does, and looks at what was there.
    Seen,
    /// Both do, and do not look.
    Blind,
}

const TO: [(&str, To); 3] = [("other", To::Other), ("here", To::Here), ("itself", To::Itself)];
const ADDS: [(&str, Adds); 3] = [("no", Adds::No), ("seen", Adds::Seen), ("blind", Adds::Blind)];

/// All of it.
pub const USAGE: &str =
    "usage: shunt-verbs-count (--listen [HOST:]PORT | --connect HOST:PORT) [--device NAME] [--gid INDEX] [--seconds N]
    [--wait poll|events] [--adds no|seen|blind] [--receives own|shared] [--to other|here|itself]
    [--ops send[,write-imm][,read][,fetch-add]]
    [--ack-timeout CODE] [--lives N] [--connects PAIRS]";

/// Those of the command line.
///
/// # Errors
/// What is wrong with them; no other process.
pub fn options() -> Result<Options, String> {
    let mut words = std::env::args().skip(1);
    let (mut device, mut gid, mut seconds) = ("mlx5_0".to_owned(), 0, 4.0);
    let (mut stream, mut sleeps, mut adds, mut connects) = (None, false, Adds::No, false);
    let (mut shares, mut to, mut pairs, mut lives) = (false, To::Other, None, 1);
    let (mut immediates, mut reads, mut ack_timeout) = (true, true, 14);
    while let Some(word) = words.next() {
        let want = match word.as_str() {
            "--device" => "a name",
            "--gid" => "an index from 0 to 255",
            "--seconds" => "a number",
            "--wait" => "poll or events",
            "--receives" => "own or shared",
            "--adds" => "no, seen or blind",
            "--to" => "other, here or itself",
            "--ops" => "send, and of write-imm, read and fetch-add those that are wanted, with commas",
            "--connects" => "a number from 1 to 4096",
            "--ack-timeout" => "a number from 1 to 31",
            "--lives" => "a number from 1 to 64",
            "--listen" => "[HOST:]PORT",
            "--connect" => "HOST:PORT",
            _ => return Err(format!("{word}: no such option; {USAGE}")),
        };
        let value = words.next().ok_or_else(|| format!("{word}: expected {want}, got nothing; {USAGE}"))?;
        let bad = || format!("{word}: expected {want}, got {value:?}; {USAGE}");
        match word.as_str() {
            "--device" => device = value,
            "--gid" => gid = value.parse().map_err(|_| bad())?,
            "--seconds" => seconds = within(&value, 0.0..=1e6).ok_or_else(bad)?,
            "--wait" => sleeps = one_of(&value, [("poll", false), ("events", true)]).ok_or_else(bad)?,
            "--receives" => shares = one_of(&value, [("own", false), ("shared", true)]).ok_or_else(bad)?,
            "--adds" => adds = one_of(&value, ADDS).ok_or_else(bad)?,
            "--to" => to = one_of(&value, TO).ok_or_else(bad)?,
            "--ops" => {
                let [imm, read, add] = ops(&value).ok_or_else(bad)?;
                (immediates, reads, adds) = (imm, read, if add { Adds::Seen } else { Adds::No });
            }
            "--connects" => pairs = Some(within(&value, 1..=4096).ok_or_else(bad)?),
            "--lives" => lives = within(&value, 1..=64).ok_or_else(bad)?,
            "--ack-timeout" => ack_timeout = within(&value, 1..=31).ok_or_else(bad)?,
            "--listen" => {
                let here = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
                let at = value.parse().or_else(|_| value.parse().map(here)).map_err(|_| bad())?;
                stream = Some(accept(at).map_err(|error| error.to_string())?);
            }
            "--connect" if !value.contains(':') => return Err(bad()),
            "--connect" => (stream, connects) = (Some(reach(&value)?), true),
            _ => unreachable!("what the table above does not know was refused"),
        }
    }
    let stream = stream.ok_or_else(|| format!("expected --listen or --connect, got neither; {USAGE}"))?;
    let adds = if adds == Adds::Seen && !connects { Adds::No } else { adds };
    Ok(Options {
        device,
        gid,
        duration: Duration::from_secs_f64(seconds),
        stream,
        sleeps,
        shares,
        adds,
        to,
        immediates,
        reads,
        ack_timeout,
        lives,
        pairs,
    })
}

/// A number within bounds.
fn within<T: FromStr + PartialOrd>(text: &str, bounds: RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|value| bounds.contains(value))
}

/// What a word stands for.
fn one_of<T, const N: usize>(word: &str, all: [(&str, T); N]) -> Option<T> {
    all.into_iter().find(|(name, _)| *name == word).map(|(_, value)| value)
}

/// Whether WRITEs with immediate data, READs and atomics are among the operations; none if that is no list with SENDs.
fn ops(list: &str) -> Option<[bool; 3]> {
    let others = ["write-imm", "read", "fetch-add"];
    let known = list.split(',').all(|op| op == "send" || others.contains(&op));
    let has = |op: &str| list.split(',').any(|one| one == op);
    (known && has("send")).then(|| others.map(has))
}

/// The one that connects.
fn accept(at: SocketAddr) -> std::io::Result<TcpStream> {
    Ok(TcpListener::bind(at)?.accept()?.0)
}

/// The other end may still be starting.
fn reach(address: &str) -> Result<TcpStream, String> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(format!("{address}: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
