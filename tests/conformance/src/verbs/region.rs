//! Registered memory with a mirror: what it must hold, kept by the side that knows.

use super::{Device, Sge, VerbsError, done, made};
use shunt_mlx5_sys as sys;
use std::ops::Range;
use std::rc::Rc;

/// Bytes on either side of a region that belong to it, but not to its keys.
const GUARD: usize = 1 << 16;

/// What a key allows the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    All,
    /// READs.
    Read,
    /// WRITEs.
    Write,
}

impl Access {
    fn flags(self) -> u32 {
        let remote = match self {
            Self::All => {
                sys::IBV_ACCESS_REMOTE_READ | sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC
            }
            Self::Read => sys::IBV_ACCESS_REMOTE_READ,
            Self::Write => sys::IBV_ACCESS_REMOTE_WRITE,
        };
        remote | sys::IBV_ACCESS_LOCAL_WRITE
    }
}

/// A memory region, with its keys.
pub struct Key {
    device: Rc<Device>,
    mr: *mut sys::ibv_mr,
}

impl Key {
    /// Key for the local side.
    pub fn local(&self) -> u32 {
        // SAFETY: registered until drop.
        unsafe { (*self.mr).lkey }
    }

    /// Key for the far side.
    pub fn remote(&self) -> u32 {
        // SAFETY: registered until drop.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: registered once, here deregistered once.
        let code = unsafe { self.device.rdma.verbs.ibv_dereg_mr(self.mr) };
        if let Err(error) = done("ibv_dereg_mr", code) {
            eprintln!("{error}");
        }
    }
}

/// Memory between guards.
pub struct Region {
    device: Rc<Device>,
    /// There until drop.
    key: Option<Key>,
    memory: *mut u8,
    bytes: usize,
    /// Guards included.
    mirror: Vec<u8>,
}

impl Region {
    /// `bytes` of memory that hold noise, registered for everything.
    pub fn new(device: &Rc<Device>, bytes: usize, draw: &mut crate::draw::Draw) -> Result<Self, VerbsError> {
        let mut mirror = vec![0; bytes + 2 * GUARD];
        draw.fill(&mut mirror);
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping of our own.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), mirror.len(), read_write, private, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(VerbsError::last("mmap"));
        }
        let memory = memory.cast::<u8>();
        // SAFETY: the mapping is as long as the mirror.
        unsafe { memory.copy_from_nonoverlapping(mirror.as_ptr(), mirror.len()) };
        let key = register(device, memory.wrapping_add(GUARD), bytes, Access::All)?;
        Ok(Self { device: device.clone(), key: Some(key), memory, bytes, mirror })
    }

    /// One more key of the same memory.
    pub fn another_key(&self, access: Access) -> Result<Key, VerbsError> {
        register(&self.device, self.memory.wrapping_add(GUARD), self.bytes, access)
    }

    /// Its key for everything.
    pub fn key(&self) -> &Key {
        self.key.as_ref().expect("only drop takes it")
    }

    /// Where it starts, behind the guard.
    pub fn address(&self) -> u64 {
        self.memory.wrapping_add(GUARD) as u64
    }

    /// Its bytes, guards not counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it as a work request names it.
    pub fn sge(&self, part: Range<usize>) -> Sge {
        assert!(
            part.start <= part.end && part.end <= self.bytes,
            "{part:?} lies outside of {} bytes",
            self.bytes
        );
        Sge {
            address: self.address() + part.start as u64,
            bytes: part.len() as u32,
            lkey: self.key().local(),
        }
    }

    /// What a part must hold.
    pub fn mirror(&self, part: Range<usize>) -> &[u8] {
        &self.mirror[GUARD + part.start..GUARD + part.end]
    }

    /// Says what a part must hold from now on.
    pub fn expect(&mut self, offset: usize, bytes: &[u8]) {
        self.mirror[GUARD + offset..GUARD + offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a part, and says so.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.expect(offset, bytes);
        assert!(offset + bytes.len() <= self.bytes);
        // SAFETY: inside the mapping; no request that is posted names the part.
        unsafe { self.memory.add(GUARD + offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Looks at every byte, guards included. The first ones that are wrong are made right again, so that one
    /// fault is told once.
    pub fn check(&mut self) -> Result<(), String> {
        // SAFETY: the mapping is as long as the mirror, and nothing that is posted writes to it any more.
        let met = unsafe { std::slice::from_raw_parts_mut(self.memory, self.mirror.len()) };
        if met == &self.mirror[..] {
            return Ok(());
        }
        let wrong: Vec<usize> = (0..met.len()).filter(|at| met[*at] != self.mirror[*at]).collect();
        let (first, last) = (wrong[0], wrong[wrong.len() - 1]);
        let text = format!(
            "{} bytes are wrong, from {} to {} of {}: got {:02x}, expected {:02x}",
            wrong.len(),
            first as i64 - GUARD as i64,
            last as i64 - GUARD as i64,
            self.bytes,
            met[first],
            self.mirror[first],
        );
        met.copy_from_slice(&self.mirror);
        Err(text)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.key = None;
        // SAFETY: mapped in `new`, and no longer registered.
        unsafe { libc::munmap(self.memory.cast(), self.mirror.len()) };
    }
}

fn register(device: &Rc<Device>, start: *mut u8, bytes: usize, access: Access) -> Result<Key, VerbsError> {
    // SAFETY: the memory is mapped, and stays so until the key is used no more.
    let mr = unsafe { device.rdma.verbs.ibv_reg_mr(device.pd, start.cast(), bytes, access.flags() as i32) };
    Ok(Key { device: device.clone(), mr: made("ibv_reg_mr", mr)? })
}
