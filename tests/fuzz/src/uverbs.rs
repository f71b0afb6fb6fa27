//! Calls of a program on an RDMA device's file: headers, attributes, and the structures that they lead to.
//!
//! ```text
//! length 2, bytes of the program's memory | call: object 2, method 2, count 1, attributes | call | ...
//! attribute: id 2, length 2, kind 1, data 8
//! ```
//!
//! The program's memory lies at the same address in every run, so that an input can name it. Attributes lead there,
//! nowhere, or hold their data; none leads into other memory of this process, which a well-formed call may overwrite.

use crate::input::Input;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::settings::Settings;
use shunt_soft_uverbs::ioctl::{Context, Method};
use shunt_soft_uverbs::methods::run as call;
use shunt_soft_uverbs::verbs::firmware::short;
use shunt_soft_uverbs::{devx, verbs};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the program's memory begins, guards included.
const BASE: u64 = 0x5000_0000_0000;
/// In front of what calls use, and behind it.
const GUARD: u64 = 0x1_0000;
/// What calls use. An address in the first half, and no length leads out of it.
const SCRATCH: u64 = 0x2_0000;
/// Where a call's own header lies: behind both guards.
const HEADER: u64 = BASE + 2 * GUARD + SCRATCH;
const ALL: u64 = 2 * GUARD + SCRATCH + 0x1000;
const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

const CALLS_MAX: usize = 32;
const ATTRIBUTES_MAX: u8 = 12;
/// Kinds of data: as it stands but no address, an address of the program's memory, an address nobody has.
const VALUE: u8 = 0;
const ADDRESS: u8 = 1;
const NOWHERE: u8 = 2;
const MANDATORY: u8 = 4;

/// Where the device's files are.
pub fn runtime() -> PathBuf {
    std::env::temp_dir().join(format!("shunt-fuzz-{}", std::process::id()))
}

fn machine() -> &'static Machine {
    static MACHINE: OnceLock<&'static Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let fixed = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: new memory at a place where there is none, or an error.
        let made = unsafe { mmap_anonymous(BASE as *mut _, ALL as usize, rights, fixed) };
        assert_eq!(made.expect("memory at a fixed place") as u64, BASE);
        for at in guards() {
            word(at).store(UNTOUCHED, Ordering::Relaxed);
        }
        let settings = Settings { nics: 1, ..Settings::default() };
        Machine::start(settings, &runtime()).expect("a device")
    })
}

fn guards() -> impl Iterator<Item = u64> {
    let behind = BASE + GUARD + SCRATCH;
    (BASE..BASE + GUARD).chain(behind..behind + GUARD).step_by(8)
}

/// A word of the program's memory.
fn word(at: u64) -> &'static AtomicU64 {
    debug_assert!((BASE..BASE + ALL).contains(&at) && at.is_multiple_of(8));
    // SAFETY: `machine` mapped it for good, and everybody here uses atomics.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }
}

fn put(at: u64, bytes: &[u8]) {
    for (n, part) in bytes.chunks(8).enumerate() {
        let mut whole = [0; 8];
        whole[..part.len()].copy_from_slice(part);
        word(at + 8 * n as u64).store(u64::from_le_bytes(whole), Ordering::Relaxed);
    }
}

/// Runs calls on a fresh file, closes it, and looks whether the device is as it was.
pub fn run(data: &[u8]) {
    let nic = &machine().nics()[0];
    // What calls open has this number or a higher one.
    let first = File::open("/dev/null").expect("a descriptor").as_raw_fd();
    let mut input = Input(data);
    let length = input.u16().into();
    put(BASE + GUARD, &vec![0; SCRATCH as usize]);
    put(BASE + GUARD, input.bytes(length));
    let (context, file) = Context::open(nic, true).expect("a file");
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        header(&mut input);
        let _ = call(&context, HEADER);
    }
    context.close();
    drop((context, file));
    // SAFETY: the file that had these is gone; the device opened its own before.
    unsafe { libc::close_range(first as u32, u32::MAX, 0) };
    let mut answer = [0xff; 16];
    assert_eq!(nic.command(&short(Opcode::Nop, 0), &mut answer), Ok(()), "the device answers");
    assert_eq!(answer[0], 0);
    for at in guards() {
        assert_eq!(word(at).load(Ordering::Relaxed), UNTOUCHED, "{at:#x} was written to");
    }
}

/// Writes one call into the program's memory.
fn header(input: &mut Input) {
    let (object, method) = (u64::from(input.u16()), u64::from(input.u16()));
    let count = u64::from(input.u8() % (ATTRIBUTES_MAX + 1));
    let length = 24 + 16 * count;
    let head = length | object << 16 | method << 32 | count << 48;
    let mut words = vec![head, 0, 1];
    for _ in 0..count {
        let (id, length, kind, data) = (input.u16(), input.u16(), input.u8(), input.u64());
        let data = match kind & 3 {
            ADDRESS => BASE + GUARD + data % (SCRATCH / 2),
            NOWHERE => data | 1 << 63,
            // Short data lies in the attribute; what looks like an address must lead nowhere.
            _ if length > 8 => data & 0xfff,
            _ => data,
        };
        let flags = u64::from(kind & MANDATORY != 0);
        words.extend([u64::from(id) | u64::from(length) << 16 | flags << 32, data]);
    }
    for (n, value) in words.iter().enumerate() {
        word(HEADER + 8 * n as u64).store(*value, Ordering::Relaxed);
    }
}

/// Every method with its attributes as handles, as values and as addresses; every command of INVOKE_WRITE.
pub fn seeds() -> Vec<Vec<u8>> {
    let attribute = |id: u16, length: u16, kind: u8, data: u64| {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.push(kind);
        bytes.extend(data.to_le_bytes());
        bytes
    };
    let one = |method: (u16, u16), attributes: &[Vec<u8>]| {
        let mut bytes = method.0.to_le_bytes().to_vec();
        bytes.extend(method.1.to_le_bytes());
        bytes.push(attributes.len() as u8);
        bytes.extend(attributes.concat());
        bytes
    };
    // Commands that objects need first: a context, a protection domain.
    let output = |id: u16, bytes: u16| attribute(id, bytes, ADDRESS, 0x8000);
    let alloc_pd = one((0, 0), &[attribute(0, 8, VALUE, 0), output(1, 4), attribute(2, 4, VALUE, 3)]);
    let mut seeds = Vec::new();
    for Method { object, method, attributes, .. } in verbs::METHODS.iter().chain(devx::METHODS) {
        for (length, kind) in [(0, VALUE), (8, VALUE), (64, ADDRESS), (256, ADDRESS)] {
            let mut seed = vec![16, 0];
            seed.extend((BASE + GUARD + 0x1000).to_le_bytes());
            seed.extend(0x1000u64.to_le_bytes());
            seed.extend(&alloc_pd);
            let attributes: Vec<_> = attributes
                .iter()
                .take(ATTRIBUTES_MAX.into())
                .map(|id| attribute(*id, if *id == 0 && length < 64 { 0 } else { length }, kind, 0))
                .collect();
            seed.extend(one((*object, *method), &attributes));
            seeds.push(seed);
        }
    }
    for number in (1..0x23u64).chain([0x8000_0001, 0x8000_001a]) {
        let mut seed = 64u16.to_le_bytes().to_vec();
        for value in [BASE + GUARD + 0x4000, BASE + GUARD + 0x1000, 0x1000, 0, 0, 7, 0, 0] {
            seed.extend(value.to_le_bytes());
        }
        seed.extend(&alloc_pd);
        let core = [attribute(0, 56, ADDRESS, 8), output(1, 256), attribute(2, 4, VALUE, number)];
        seed.extend(one((0, 0), &core));
        seeds.push(seed);
    }
    seeds
}
