//! What two PEs do to each other's memory through a transport, and what each finds in its own.
//!
//! The symmetric heap is host memory. Each PE writes into the half of the other, both at once, and looks at every
//! byte of its own and of the guards between.

use crate::interface::{
    AmoBytes, AmoMemory, AmoVerb, GET, MemHandle, One, Ops, P, PUT, QP_HOST, RmaBytes, RmaMemory, RmaVerb,
    SIGNAL_ADD, SIGNAL_SET, Transport,
};
use crate::peer;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the heap: what is sent from, what is put into, what is got into.
const HEAP: usize = 4 << 20;
const SOURCE: usize = 0;
const TARGET: usize = 1 << 20;
const FETCHED: usize = 2 << 20;
/// Words that are added to and set.
const WORDS: usize = 3 << 20;
/// Lengths of puts and gets, bytes.
const LENGTHS: [usize; 6] = [1, 8, 4096, 4097, 65_536, 400_000];
/// What a byte is that nobody wrote.
const GUARD: u8 = 0xa5;
/// Signals that are added to one word.
const ADDS: u64 = 7;
/// For how long a signal is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// One PE, connected, with its heap registered.
pub struct Pe {
    transport: &'static mut Transport,
    ops: Ops,
    me: usize,
    heap: *mut u8,
    handles: [MemHandle; 2],
    heaps: [u64; 2],
}

/// What a byte of a PE's source is.
fn pattern(pe: usize, at: usize) -> u8 {
    (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(101 * pe as u8)
}

fn done(what: &str, status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{what}: expected status 0, got {status}")) }
}

const fn verb(operation: c_int) -> RmaVerb {
    RmaVerb { operation, not_blocking: 0, on_stream: 0, stream: ptr::null_mut() }
}

const fn bytes(count: usize, element: c_int) -> RmaBytes {
    RmaBytes { count, element, source_stride: 1, destination_stride: 1 }
}

impl Pe {
    /// Registers a heap and tells the other PE of it.
    pub fn new(transport: &'static mut Transport, me: usize) -> Result<Self, String> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, which stay for as long as the process.
        let heap = unsafe { libc::mmap(ptr::null_mut(), HEAP, access, kind, -1, 0) };
        if heap == libc::MAP_FAILED {
            return Err(format!("no memory of {HEAP} bytes"));
        }
        transport.heap = heap;
        let (ops, mut mine) = (transport.ops, MemHandle([0; 512]));
        let register = ops.register.ok_or("the transport registers no memory")?;
        // SAFETY: the memory is mapped and stays.
        done("registering the heap", unsafe { register(&raw mut mine, heap, HEAP, transport, false) })?;
        let handles = peer::gather(&mine.0, me)?.map(MemHandle);
        let heaps = peer::gather(&(heap as u64).to_ne_bytes(), me)?.map(u64::from_ne_bytes);
        let mut pe = Self { transport, ops, me, heap: heap.cast(), handles, heaps };
        pe.memory().fill(GUARD);
        pe.memory()[WORDS..].fill(0);
        for at in 0..TARGET {
            pe.memory()[SOURCE + at] = pattern(me, at);
        }
        peer::meet()?;
        Ok(pe)
    }

    /// The heap. NICs write to it, but not while it is looked at: both PEs have met before.
    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: mapped by `new` for as long as the process; the other PE has finished what it wrote.
        unsafe { std::slice::from_raw_parts_mut(self.heap, HEAP) }
    }

    fn word(&self, nth: usize) -> &AtomicU64 {
        // SAFETY: aligned, inside the heap; all that a NIC does to it is whole words.
        unsafe { AtomicU64::from_ptr(self.heap.add(WORDS + 8 * nth).cast()) }
    }

    const fn other(&self) -> usize {
        1 - self.me
    }

    fn at(&mut self, pe: usize, offset: usize) -> RmaMemory {
        RmaMemory {
            address: self.heaps[pe] + offset as u64,
            offset: offset as u64,
            handle: &raw mut self.handles[pe],
        }
    }

    fn rma(
        &mut self,
        operation: c_int,
        remote: usize,
        mut local: RmaMemory,
        length: RmaBytes,
    ) -> Result<(), String> {
        let rma = self.ops.rma.ok_or("the transport has no rma")?;
        let (other, mut remote) = (self.other(), self.at(self.other(), remote));
        let verb = verb(operation);
        // SAFETY: both places are registered memory of this length.
        let status = unsafe {
            rma(self.transport, other as c_int, verb, &raw mut remote, &raw mut local, length, QP_HOST)
        };
        done("rma", status)
    }

    fn quiet(&mut self) -> Result<(), String> {
        let quiet = self.ops.quiet.ok_or("the transport has no quiet")?;
        let other = self.other() as c_int;
        // SAFETY: a connected transport.
        done("quiet", unsafe { quiet(self.transport, other, QP_HOST) })
    }

    fn signal(&mut self, word: usize, value: u64) -> AmoMemory {
        AmoMemory {
            remote: self.at(self.other(), WORDS + 8 * word),
            return_flag: 0,
            places: [ptr::null_mut::<c_void>(); 3],
            value,
            compare: 0,
            return_handle: ptr::null_mut(),
        }
    }

    fn amo(&mut self, operation: c_int, word: usize, value: u64) -> Result<(), String> {
        let amo = self.ops.amo.ok_or("the transport has no amo")?;
        let (other, mut target) = (self.other() as c_int, self.signal(word, value));
        let verb = AmoVerb { operation, fetches: 0, by_value: 1, compares: 0 };
        let size = AmoBytes { kind: 0, element: 8 };
        let transport = &raw mut *self.transport;
        // SAFETY: the word is registered memory of the other PE.
        let status = unsafe { amo(transport, other, ptr::null_mut(), verb, &raw mut target, size, QP_HOST) };
        done("amo", status)
    }

    /// That `length` bytes at `offset` are the other PE's source, and what is behind them was not written.
    fn check(&mut self, what: &str, offset: usize, from: usize, length: usize) -> Result<(), String> {
        let other = self.other();
        let wanted = |at: usize| if at < length { pattern(other, from + at) } else { GUARD };
        let memory = &self.memory()[offset..][..length + 64];
        match (0..memory.len()).find(|at| memory[*at] != wanted(*at)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{what} of {length} bytes: expected {:#04x} at byte {at}, got {:#04x}",
                wanted(at),
                memory[at]
            )),
        }
    }

    /// Puts of each length behind each other.
    pub fn puts(&mut self) -> Result<String, String> {
        let mut offset = TARGET;
        for length in LENGTHS {
            let local = self.at(self.me, SOURCE + length);
            self.rma(PUT, offset, local, bytes(length, 1))?;
            offset += length.next_multiple_of(64) + 64;
        }
        self.quiet()?;
        peer::meet()?;
        let mut offset = TARGET;
        for length in LENGTHS {
            self.check("put", offset, SOURCE + length, length)?;
            offset += length.next_multiple_of(64) + 64;
        }
        Ok(format!("{} puts of {LENGTHS:?} bytes, whole", LENGTHS.len()))
    }

    pub fn gets(&mut self) -> Result<String, String> {
        let mut offset = FETCHED;
        for length in LENGTHS {
            let local = self.at(self.me, offset);
            self.rma(GET, SOURCE + length, local, bytes(length, 1))?;
            self.quiet()?;
            self.check("get", offset, SOURCE + length, length)?;
            offset += length.next_multiple_of(64) + 64;
        }
        peer::meet()?;
        Ok(format!("{} gets of {LENGTHS:?} bytes, whole", LENGTHS.len()))
    }

    /// One value, which travels in the request.
    pub fn single(&mut self) -> Result<String, String> {
        let value = 0x5151_0000_u64 + self.me as u64;
        let local = RmaMemory { address: (&raw const value) as u64, offset: 0, handle: ptr::null_mut() };
        self.rma(P, WORDS, local, bytes(1, 8))?;
        self.quiet()?;
        peer::meet()?;
        let (wanted, got) = (0x5151_0000 + self.other() as u64, self.word(0).load(Ordering::Acquire));
        if got != wanted {
            return Err(format!("p: expected {wanted:#x}, got {got:#x}"));
        }
        Ok("p of 8 bytes, the value as it was sent".into())
    }

    /// Signals: words that are added to, and one that is set.
    pub fn signals(&mut self) -> Result<String, String> {
        for _ in 0..ADDS {
            self.amo(SIGNAL_ADD, 1, 3)?;
        }
        self.amo(SIGNAL_SET, 2, 0x77)?;
        self.quiet()?;
        peer::meet()?;
        let got = [1, 2].map(|nth| self.word(nth).load(Ordering::Acquire));
        if got != [3 * ADDS, 0x77] {
            return Err(format!("signals: expected {:?}, got {got:?}", [3 * ADDS, 0x77]));
        }
        Ok(format!("{ADDS} signals added, one set, each once"))
    }

    /// Puts with a signal behind each. The receiver looks as soon as it sees the signal.
    pub fn puts_with_signals(&mut self) -> Result<String, String> {
        let put_signal = self.ops.put_signal.ok_or("the transport has no put_signal")?;
        let length = 200_000;
        for round in 1..=4_u64 {
            let (from, target) = (round as usize * 1000, TARGET + (600 << 10));
            let (remote, local) = (self.at(self.other(), target), self.at(self.me, SOURCE + from));
            let (size, mut signal) = (bytes(length, 1), self.signal(3, round));
            let verb = AmoVerb { operation: SIGNAL_SET, fetches: 0, by_value: 1, compares: 0 };
            let other = self.other() as c_int;
            // SAFETY: registered memory of both PEs; the vectors live until the call returns.
            let status = unsafe {
                put_signal(
                    self.transport,
                    other,
                    self::verb(PUT),
                    &One::of(&remote),
                    &One::of(&local),
                    &One::of(&size),
                    verb,
                    &raw mut signal,
                    AmoBytes { kind: 0, element: 8 },
                    QP_HOST,
                )
            };
            done("put with a signal", status)?;
            let until = Instant::now() + PATIENCE;
            while self.word(3).load(Ordering::Acquire) != round {
                if Instant::now() > until {
                    return Err(format!("signal {round} did not come"));
                }
                std::hint::spin_loop();
            }
            self.check("put with a signal", target, SOURCE + from, length)?;
            self.quiet()?;
            peer::meet()?;
        }
        Ok(format!("4 puts of {length} bytes with signals: all of it there when the signal is"))
    }

    pub fn finish(self) -> Result<String, String> {
        peer::meet()?;
        let mut mine = self.handles[self.me];
        let release = self.ops.release.ok_or("the transport releases no memory")?;
        // SAFETY: the handle that `register` made; nobody uses it any more.
        done("releasing the heap", unsafe { release(&raw mut mine, self.transport) })?;
        let finalize = self.ops.finalize.ok_or("the transport does not end")?;
        // SAFETY: it is not used again.
        match unsafe { finalize(self.transport) } {
            // Its own: it keeps the address handles of its connections, and a domain that has some is not freed.
            libc::EBUSY => {
                Ok("memory released; finalize could not free its protection domain (EBUSY)".into())
            }
            status => done("finalize", status).map(|()| "memory released, transport finalized".into()),
        }
    }
}
