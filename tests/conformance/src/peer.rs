//! The far side of the checks: a process or a thread that does as it is told over a stream.
//!
//! A command is a line of words, with bytes behind it where it says so; the answer begins with `ok` or `error`.

use crate::draw::Draw;
use crate::verbs::{Access, Completion, Device, Ends, Key, Queue, Region, Setup, Shape, Side};
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the near side knows of the far one's memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Where it starts.
    pub address: u64,
    /// Its length.
    pub bytes: usize,
    /// Key for everything.
    pub rkey: u32,
    /// Key for READs.
    pub rkey_read: u32,
    /// Key for WRITEs.
    pub rkey_write: u32,
}

/// The near side's hold of it.
pub struct Peer {
    stream: BufReader<TcpStream>,
    memory: Memory,
}

impl Peer {
    /// Asks the far side to open its device and to take `bytes` of memory.
    pub fn meet(stream: TcpStream, bytes: usize, seed: u64) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut peer = Self { stream: BufReader::new(stream), memory: Memory::default() };
        let words = peer.ask(&format!("hello {bytes} {seed}"), &[])?;
        peer.memory = Memory {
            address: number(&words, 0)?,
            bytes,
            rkey: number(&words, 1)?,
            rkey_read: number(&words, 2)?,
            rkey_write: number(&words, 3)?,
        };
        Ok(peer)
    }

    /// Its memory.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    fn ask(&mut self, line: &str, payload: &[u8]) -> Result<Vec<String>> {
        let mut out = format!("{line}\n").into_bytes();
        out.extend_from_slice(payload);
        self.stream.get_mut().write_all(&out)?;
        let mut answer = String::new();
        self.stream
            .read_line(&mut answer)
            .with_context(|| format!("no answer of the far side to '{line}'"))?;
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("ok", rest) => Ok(rest.split(' ').map(str::to_owned).collect()),
            ("error", text) => bail!("the far side, asked for '{line}': {text}"),
            _ => bail!("the far side went away at '{line}'"),
        }
    }

    /// Makes a queue pair there and connects it with ours. Its number in the list, and its end.
    pub fn queue(&mut self, ours: Ends, shape: Shape) -> Result<(usize, Ends)> {
        let Shape { depth, sges, inline, rnr_retry, timeout, retry } = shape;
        let gid: String = ours.gid.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("queue {} {gid} {depth} {sges} {inline} {rnr_retry} {timeout} {retry}", ours.qpn);
        let words = self.ask(&line, &[])?;
        Ok((number(&words, 0)?, Ends { qpn: number(&words, 1)?, gid: gid_of(&words, 2)? }))
    }

    /// Destroys a queue pair there.
    pub fn drop_queue(&mut self, queue: usize) -> Result<()> {
        self.ask(&format!("drop {queue}"), &[]).map(|_| ())
    }

    /// Tells what a part of its memory must hold from now on.
    pub fn expect(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.ask(&format!("expect {offset} {}", bytes.len()), bytes).map(|_| ())
    }

    /// What a part of its memory must hold.
    pub fn mirror(&mut self, part: Range<usize>) -> Result<Vec<u8>> {
        self.ask(&format!("mirror {} {}", part.start, part.len()), &[])?;
        let mut bytes = vec![0; part.len()];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Makes it look at every byte; what is wrong.
    pub fn check(&mut self) -> Result<Option<String>> {
        let words = self.ask("check", &[])?;
        Ok((words[0] != "good").then(|| words[1..].join(" ")))
    }

    /// Makes it post a buffer to receive into.
    pub fn receive(&mut self, queue: usize, id: u64, parts: &[Range<usize>]) -> Result<()> {
        let parts: String = parts.iter().map(|part| format!(" {} {}", part.start, part.len())).collect();
        self.ask(&format!("receive {queue} {id}{parts}"), &[]).map(|_| ())
    }

    /// Makes it wait for the completion of a receive.
    pub fn wait(&mut self, queue: usize) -> Result<Completion> {
        let words = self.ask(&format!("wait {queue}"), &[])?;
        Ok(Completion {
            id: number(&words, 0)?,
            status: number(&words, 1)?,
            opcode: number(&words, 2)?,
            vendor: number(&words, 3)?,
            bytes: number(&words, 4)?,
            imm: if words.get(5).is_some_and(|word| word == "-") { None } else { Some(number(&words, 5)?) },
        })
    }

    /// Makes it ask for an event of the next receive.
    pub fn arm(&mut self, queue: usize, solicited_only: bool) -> Result<()> {
        self.ask(&format!("arm {queue} {}", solicited_only as u32), &[]).map(|_| ())
    }

    /// True if it saw an event of a receive within that time.
    pub fn event(&mut self, queue: usize, patience: Duration) -> Result<bool> {
        Ok(self.ask(&format!("event {queue} {}", patience.as_millis()), &[])?[0] == "yes")
    }
}

fn number<T: std::str::FromStr>(words: &[String], at: usize) -> Result<T> {
    let word = words.get(at).ok_or_else(|| anyhow!("a message of {} words lacks word {at}", words.len()))?;
    word.parse().map_err(|_| anyhow!("'{word}' is no number"))
}

fn gid_of(words: &[String], at: usize) -> Result<[u8; 16]> {
    let word = words.get(at).filter(|word| word.len() == 32).ok_or_else(|| anyhow!("no GID in a message"))?;
    let digits = u128::from_str_radix(word, 16).map_err(|_| anyhow!("'{word}' is no GID"))?;
    Ok(digits.to_be_bytes())
}

/// The far side's own state.
struct Far {
    device: Rc<Device>,
    queues: Vec<Option<Queue>>,
    keys: [Key; 2],
    region: Region,
}

/// Does as it is told until the stream ends.
pub fn serve(stream: TcpStream, setup: &Setup) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut far = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let out = match obey(&words, &mut stream, &mut far, setup) {
            Ok((text, bytes)) => [format!("ok {text}\n").into_bytes(), bytes].concat(),
            Err(error) => format!("error {error:#}\n").into_bytes(),
        };
        stream.get_mut().write_all(&out)?;
    }
}

/// One command: the words of the answer, and the bytes behind them.
fn obey(
    words: &[String],
    stream: &mut impl Read,
    far: &mut Option<Far>,
    setup: &Setup,
) -> Result<(String, Vec<u8>)> {
    let (name, words) = words.split_first().ok_or_else(|| anyhow!("an empty line"))?;
    if name == "hello" {
        let made = Far::new(setup, number(words, 0)?, number(words, 1)?)?;
        let (all, [read, write]) = (made.region.key().remote(), made.keys.each_ref().map(Key::remote));
        let text = format!("{} {all} {read} {write}", made.region.address());
        *far = Some(made);
        return Ok((text, Vec::new()));
    }
    let far = far.as_mut().ok_or_else(|| anyhow!("'{name}' before 'hello'"))?;
    match name.as_str() {
        "queue" => far.queue(words).map(|text| (text, Vec::new())),
        "drop" => {
            let at: usize = number(words, 0)?;
            far.queues.get_mut(at).ok_or_else(|| anyhow!("no queue {at}"))?.take();
            Ok(Default::default())
        }
        "expect" => {
            let (offset, bytes) = part(words, far.region.bytes())?;
            let mut payload = vec![0; bytes];
            stream.read_exact(&mut payload)?;
            far.region.expect(offset, &payload);
            Ok(Default::default())
        }
        "mirror" => {
            let (offset, bytes) = part(words, far.region.bytes())?;
            Ok((String::new(), far.region.mirror(offset..offset + bytes).to_vec()))
        }
        "check" => {
            let text = far.region.check().err().map_or("good".to_owned(), |text| format!("wrong {text}"));
            Ok((text, Vec::new()))
        }
        _ => far.on_queue(name, words).map(|text| (text, Vec::new())),
    }
}

/// Offset and length, inside the memory.
fn part(words: &[String], limit: usize) -> Result<(usize, usize)> {
    let (offset, bytes): (usize, usize) = (number(words, 0)?, number(words, 1)?);
    match offset.checked_add(bytes) {
        Some(end) if end <= limit => Ok((offset, bytes)),
        _ => bail!("{bytes} bytes at {offset} lie outside of {limit}"),
    }
}

impl Far {
    fn new(setup: &Setup, bytes: usize, seed: u64) -> Result<Self> {
        let device = Rc::new(Device::open(setup)?);
        let region = Region::new(&device, bytes, &mut Draw::new(seed))?;
        let keys = [region.another_key(Access::Read)?, region.another_key(Access::Write)?];
        Ok(Self { device, queues: Vec::new(), keys, region })
    }

    fn queue(&mut self, words: &[String]) -> Result<String> {
        let near = Ends { qpn: number(words, 0)?, gid: gid_of(words, 1)? };
        let shape = Shape {
            depth: number(words, 2)?,
            sges: number(words, 3)?,
            inline: number(words, 4)?,
            rnr_retry: number(words, 5)?,
            timeout: number(words, 6)?,
            retry: number(words, 7)?,
        };
        let queue = Queue::new(&self.device, shape)?;
        queue.connect(near)?;
        let ends = queue.ends();
        self.queues.push(Some(queue));
        let gid: String = ends.gid.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{} {} {gid}", self.queues.len() - 1, ends.qpn))
    }

    /// Commands about one queue.
    fn on_queue(&mut self, name: &str, words: &[String]) -> Result<String> {
        let at: usize = number(words, 0)?;
        let queue =
            self.queues.get_mut(at).and_then(Option::as_mut).ok_or_else(|| anyhow!("no queue {at}"))?;
        match name {
            "receive" => {
                let limit = self.region.bytes();
                let parts = words[2..].chunks(2).map(|pair| part(pair, limit));
                let list = parts.map(|part| part.map(|(at, bytes)| self.region.sge(at..at + bytes)));
                queue.receive(number(words, 1)?, &list.collect::<Result<Vec<_>>>()?)?;
                Ok(String::new())
            }
            "wait" => {
                let Completion { id, status, opcode, vendor, bytes, imm } = queue.wait(Side::Receive)?;
                let imm = imm.map_or("-".to_owned(), |imm| imm.to_string());
                Ok(format!("{id} {status} {opcode} {vendor} {bytes} {imm}"))
            }
            "arm" => {
                queue.arm(Side::Receive, number::<u32>(words, 1)? == 1)?;
                Ok(String::new())
            }
            "event" => {
                let event = queue.event(Duration::from_millis(number(words, 1)?))?;
                Ok(if event == Some(Side::Receive) { "yes" } else { "no" }.to_owned())
            }
            other => bail!("unknown command '{other}'"),
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Queue pairs go before what they use.
        self.queues.clear();
    }
}
