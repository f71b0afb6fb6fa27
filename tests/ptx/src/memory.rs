//! Memory as threads, the NIC and the host see it.
//!
//! Strict: each access is made at once. Relaxed: a store waits in its thread's buffer, then in the GPU, where other
//! threads see it and the NIC does not, until a fence, a release or chance moves it on; a plain load may be answered by
//! what its SM loaded before. Fences are cumulative, as the PTX memory model has them: a fence of system scope moves
//! what its thread has seen of others as well. The NIC and the host read and write the memory itself.

use crate::code::{Order, Scope};
use crate::counts::Memory;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A seeded source of decisions (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// A store that only its thread sees.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    address: u64,
    bytes: u32,
    value: u64,
}

/// What one thread has stored and not yet shown.
pub type Buffer = Vec<Pending>;

/// What one SM keeps of plain loads.
pub type Cache = HashMap<u64, u64>;

/// Stores of a thread that wait at most.
const BUFFER_MAX: usize = 64;
/// Words that wait in the GPU at most.
const GPU_MAX: usize = 2048;

/// Says whether so many bytes at an address may be accessed.
pub type Reach = Box<dyn Fn(u64, u32) -> bool>;

/// Says in whose memory a word of a state lies; none of what is no state.
pub type MemoryOf = Box<dyn Fn(u64) -> Option<Memory>>;

/// A GPU's view of memory.
pub struct Gpu {
    reach: Reach,
    /// Registers of devices.
    registers: Reach,
    memory_of: MemoryOf,
    /// Words that threads of this GPU see, and nobody else: value, mask of the bits that are there.
    hidden: BTreeMap<u64, (u64, u64)>,
    relaxed: bool,
    chance: Chance,
    /// What the module's root holds.
    pub root: Vec<u8>,
}

fn mask_of(bytes: u32) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

/// Reads memory that a range vouches for.
fn read(address: u64, bytes: u32) -> u64 {
    // SAFETY: callers looked the address up in `Gpu::ranges`, which the maker of the GPU keeps mapped, and which
    // every party to the simulation accesses as atomic words; it is aligned to its size (checked there as well).
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(address as *mut u8).load(Ordering::Acquire).into(),
            2 => AtomicU16::from_ptr(address as *mut u16).load(Ordering::Acquire).into(),
            4 => AtomicU32::from_ptr(address as *mut u32).load(Ordering::Acquire).into(),
            _ => AtomicU64::from_ptr(address as *mut u64).load(Ordering::Acquire),
        }
    }
}

fn write(address: u64, bytes: u32, value: u64) {
    // SAFETY: as for `read`.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(address as *mut u8).store(value as u8, Ordering::Release),
            2 => AtomicU16::from_ptr(address as *mut u16).store(value as u16, Ordering::Release),
            4 => AtomicU32::from_ptr(address as *mut u32).store(value as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(address as *mut u64).store(value, Ordering::Release),
        }
    }
}

/// Writes the bits of a word that are in the mask, in the largest pieces that are whole.
fn write_masked(word: u64, value: u64, mask: u64) {
    let mut at = 0;
    while at < 8 {
        let whole = |bytes: u32| at % bytes == 0 && mask >> (8 * at) & mask_of(bytes) == mask_of(bytes);
        let bytes = [8, 4, 2, 1].into_iter().find(|bytes| at + bytes <= 8 && whole(*bytes));
        if let Some(bytes) = bytes {
            write(word + u64::from(at), bytes, value >> (8 * at));
        }
        at += bytes.unwrap_or(1);
    }
}

impl Gpu {
    /// A GPU that reaches memory and registers of devices, and has this root.
    ///
    /// # Safety
    /// What they say yes to is mapped as long as they say so, and others access it as atomic words only.
    pub unsafe fn new(
        (reach, registers, memory_of): (Reach, Reach, MemoryOf),
        root: Vec<u8>,
        relaxed: bool,
        seed: u64,
    ) -> Self {
        Self {
            reach,
            registers,
            memory_of,
            hidden: BTreeMap::new(),
            relaxed,
            chance: Chance::new(seed),
            root,
        }
    }

    /// In whose memory a word of a state lies.
    pub fn memory_of(&self, at: u64) -> Option<Memory> {
        (self.memory_of)(at)
    }

    /// True if accesses are delayed.
    pub const fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    /// Why an access is refused.
    pub fn refused(&self, address: u64, bytes: u32, register: bool) -> Option<String> {
        if !address.is_multiple_of(u64::from(bytes)) {
            return Some(format!("address {address:#x}: expected a multiple of {bytes}"));
        }
        let (reach, what) = match register {
            true => (&self.registers, "the doorbell register of no path"),
            false => (&self.reach, "outside of all memory that was handed out"),
        };
        (!reach(address, bytes)).then(|| format!("address {address:#x}, {bytes} bytes: {what}"))
    }

    /// What a thread sees at an address, whose own stores are `buffer`.
    pub fn load(
        &mut self,
        address: u64,
        bytes: u32,
        order: Order,
        plain: bool,
        own: (&Buffer, &mut Cache),
    ) -> u64 {
        if !self.relaxed {
            return read(address, bytes);
        }
        let (buffer, cache) = own;
        let word = address & !7;
        let shift = 8 * (address - word) as u32;
        // An SM keeps what is around a plain load as well.
        let keeps = plain && (bytes == 8 || (self.reach)(word, 8));
        let mut value = match cache.get(&word) {
            Some(kept) if plain && self.chance.below(2) == 0 => kept >> shift,
            _ => {
                let (from, size) = if keeps { (word, 8) } else { (address, bytes) };
                let skipped = 8 * (from - word) as u32;
                let mut value = read(from, size);
                if let Some((hidden, mask)) = self.hidden.get(&word) {
                    value = value & !(mask >> skipped) | (hidden & mask) >> skipped;
                }
                if keeps {
                    cache.insert(word, value);
                }
                value >> (shift - skipped)
            }
        };
        for pending in buffer.iter().filter(|pending| pending.address & !7 == word) {
            let at = 8 * (pending.address - word) as u32;
            let mask = mask_of(pending.bytes) << at;
            value = value & !(mask >> shift) | (pending.value << at & mask) >> shift;
        }
        if order.acquires {
            cache.clear();
        }
        value & mask_of(bytes)
    }

    /// A store of a thread.
    pub fn store(&mut self, access: (u64, u32), value: u64, order: Order, own: (&mut Buffer, &mut Cache)) {
        let (address, bytes) = access;
        if !self.relaxed {
            return write(address, bytes, value);
        }
        let (buffer, cache) = own;
        if order.releases {
            self.release(order.scope, buffer, cache);
        }
        buffer.push(Pending { address, bytes, value });
        if order.releases {
            self.show(buffer, buffer.len() - 1, cache);
            if order.scope == Scope::System {
                self.reveal(address & !7);
            }
        } else if buffer.len() > BUFFER_MAX {
            self.show(buffer, 0, cache);
        }
    }

    /// A device's register: nothing that waits elsewhere is waited for.
    pub fn store_register(&self, address: u64, bytes: u32, value: u64) {
        write(address, bytes, value);
    }

    /// A read-modify-write; what was there.
    pub fn modify(
        &mut self,
        access: (u64, u32),
        order: Order,
        change: impl FnOnce(u64) -> u64,
        own: (&mut Buffer, &mut Cache),
    ) -> u64 {
        let (address, bytes) = access;
        let (buffer, cache) = own;
        if self.relaxed {
            if order.releases {
                self.release(order.scope, buffer, cache);
            }
            while let Some(at) = buffer.iter().position(|pending| pending.address & !7 == address & !7) {
                self.show(buffer, at, cache);
            }
            self.reveal(address & !7);
            // Its thread sees no older value any more.
            cache.remove(&(address & !7));
            if order.acquires {
                cache.clear();
            }
        }
        // One OS thread runs the simulation: nobody comes between.
        let old = read(address, bytes);
        write(address, bytes, change(old));
        old
    }

    /// A fence.
    pub fn fence(&mut self, order: Order, own: (&mut Buffer, &mut Cache)) {
        let (buffer, cache) = own;
        if self.relaxed {
            self.release(order.scope, buffer, cache);
            cache.clear();
        }
    }

    /// A barrier of a block or a warp: its threads see each other's stores.
    pub fn meet(&mut self, buffer: &mut Buffer, cache: &mut Cache) {
        if self.relaxed {
            self.release(Scope::Gpu, buffer, cache);
        }
    }

    /// The end of a kernel: all is visible.
    pub fn end(&mut self, buffer: &mut Buffer, cache: &mut Cache) {
        self.release(Scope::System, buffer, cache);
    }

    /// Time passes: some of what waits moves on.
    pub fn drift(&mut self, buffer: &mut Buffer, cache: &mut Cache) {
        if !self.relaxed {
            return;
        }
        if !buffer.is_empty() && self.chance.below(4) == 0 {
            let at = self.chance.below(buffer.len() as u64) as usize;
            self.show(buffer, at, cache);
        }
        if self.hidden.len() > GPU_MAX || !self.hidden.is_empty() && self.chance.below(8) == 0 {
            let at = self.chance.below(self.hidden.len() as u64) as usize;
            if let Some(word) = self.hidden.keys().nth(at).copied() {
                self.reveal(word);
            }
        }
    }

    /// What a release of this scope moves on.
    fn release(&mut self, scope: Scope, buffer: &mut Buffer, cache: &mut Cache) {
        while !buffer.is_empty() {
            self.show(buffer, 0, cache);
        }
        if scope == Scope::System {
            for (word, (value, mask)) in std::mem::take(&mut self.hidden) {
                write_masked(word, value, mask);
            }
        }
    }

    /// Takes a store out of a thread's buffer, earlier ones to its word first.
    fn show(&mut self, buffer: &mut Buffer, at: usize, cache: &mut Cache) {
        let word = buffer[at].address & !7;
        let mut rest = Vec::with_capacity(buffer.len());
        for (number, pending) in buffer.drain(..).enumerate() {
            if number > at || pending.address & !7 != word {
                rest.push(pending);
                continue;
            }
            let shift = 8 * (pending.address - word) as u32;
            let mask = mask_of(pending.bytes) << shift;
            let (value, known) = self.hidden.entry(word).or_insert((0, 0));
            *value = *value & !mask | pending.value << shift & mask;
            *known |= mask;
            cache.remove(&word);
        }
        *buffer = rest;
    }

    /// Shows a word to everybody.
    fn reveal(&mut self, word: u64) {
        if let Some((value, mask)) = self.hidden.remove(&word) {
            write_masked(word, value, mask);
        }
    }
}
