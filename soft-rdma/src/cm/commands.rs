//! Commands as programs write them, `<rdma/rdma_user_cm.h>`.

use super::address::{IB, INET_BYTES, Name};
use super::core::{BY_PROGRAM, Core};
use super::message::Terms;
use rustix::io::Errno;

/// Bytes of a command's header.
pub const HEADER: usize = 8;
/// Bytes of the longest command.
pub const LONGEST: usize = 512;

/// Numbers of commands.
#[allow(missing_docs)] // the names are the header's
pub mod number {
    pub const CREATE_ID: u32 = 0;
    pub const DESTROY_ID: u32 = 1;
    pub const BIND_IP: u32 = 2;
    pub const RESOLVE_IP: u32 = 3;
    pub const RESOLVE_ROUTE: u32 = 4;
    pub const QUERY_ROUTE: u32 = 5;
    pub const CONNECT: u32 = 6;
    pub const LISTEN: u32 = 7;
    pub const ACCEPT: u32 = 8;
    pub const REJECT: u32 = 9;
    pub const DISCONNECT: u32 = 10;
    pub const INIT_QP_ATTR: u32 = 11;
    pub const GET_EVENT: u32 = 12;
    pub const GET_OPTION: u32 = 13;
    pub const SET_OPTION: u32 = 14;
    pub const NOTIFY: u32 = 15;
    pub const JOIN_IP_MCAST: u32 = 16;
    pub const LEAVE_MCAST: u32 = 17;
    pub const MIGRATE_ID: u32 = 18;
    pub const QUERY: u32 = 19;
    pub const BIND: u32 = 20;
    pub const RESOLVE_ADDR: u32 = 21;
    pub const JOIN_MCAST: u32 = 22;
}

/// Connections, as TCP has them.
const SPACE_TCP: u16 = 0x0106;
const SPACES: [u16; 4] = [0x0002, 0x013f, SPACE_TCP, 0x0111];
const SPACE_IB: u16 = 0x013f;
/// `IBV_QPT_RC`.
const RC: u8 = 2;
/// `IBV_EVENT_COMM_EST`.
const ESTABLISHED: u32 = 4;

/// The header of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which command.
    pub command: u32,
    /// Bytes that follow.
    pub input: usize,
    /// Bytes there is room for in the answer.
    pub room: usize,
}

impl Header {
    /// The header of what was written; EINVAL where it is none, ENOSYS for a command that was never made.
    pub fn read(bytes: &[u8; HEADER], written: usize) -> Result<Self, Errno> {
        let command = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let input = u16::from_ne_bytes([bytes[4], bytes[5]]) as usize;
        let room = u16::from_ne_bytes([bytes[6], bytes[7]]) as usize;
        match command {
            _ if input + HEADER > written => Err(Errno::INVAL),
            number::GET_OPTION => Err(Errno::NOSYS),
            ..=number::JOIN_MCAST => Ok(Self { command, input, room }),
            _ => Err(Errno::INVAL),
        }
    }
}

/// A command's own bytes. What was not written is zero.
pub struct Body([u8; LONGEST]);

impl Body {
    /// Of what was written.
    pub fn new(written: &[u8]) -> Self {
        let mut body = [0; LONGEST];
        let bytes = written.len().min(LONGEST);
        body[..bytes].copy_from_slice(&written[..bytes]);
        Self(body)
    }

    /// Where the answer goes, of GET_EVENT.
    pub fn response(&self) -> u64 {
        self.long(0)
    }

    fn slice(&self, at: usize, bytes: usize) -> &[u8] {
        &self.0[at..at + bytes]
    }

    fn short(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.0[at], self.0[at + 1]])
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|byte| self.0[at + byte]))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|byte| self.0[at + byte]))
    }

    /// The terms that begin there, and whether they count.
    fn terms(&self, at: usize, ece: usize) -> (Terms, bool) {
        let tail = self.slice(at + 264, 8);
        let private = self.slice(at + 8, (tail[0] as usize).min(256)).to_vec();
        let terms = Terms {
            qp_num: self.word(at) & 0xff_ffff,
            has_srq: tail[1] != 0,
            responder_resources: tail[2],
            initiator_depth: tail[3],
            flow_control: tail[4],
            retry_count: tail[5].min(7),
            rnr_retry_count: tail[6].min(7),
            ece: [self.word(ece), self.word(ece + 4)],
            private,
            ..Terms::default()
        };
        (terms, tail[7] != 0)
    }
}

/// What commands need of the program around them.
pub trait Caller {
    /// The open file of a descriptor; EBADF or EINVAL if it is none of connections.
    fn file_of(&self, fd: u32) -> Result<u64, Errno>;
    /// Bytes of the program.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno>;
    /// Milliseconds of a clock that only goes forward.
    fn now(&self) -> u64;
}

/// Bytes to be put at an address of the program.
pub type Answer = Option<(u64, Vec<u8>)>;

/// Runs any command but GET_EVENT on an open file.
pub fn run(
    core: &mut Core,
    file: u64,
    header: Header,
    body: &Body,
    caller: &impl Caller,
) -> Result<Answer, Errno> {
    use number::*;
    let answer_at = |at: usize, needs: usize, bytes: Vec<u8>| {
        if header.room < needs {
            return Err(Errno::NOSPC);
        }
        let told = bytes.len().min(header.room);
        Ok(Some((body.long(at), bytes[..told].to_vec())))
    };
    let answer = |needs, bytes| answer_at(0, needs, bytes);
    match header.command {
        CREATE_ID => {
            answer(4, Vec::new())?;
            answer_at(8, 4, word(create(core, file, body)?))
        }
        DESTROY_ID => {
            answer(4, Vec::new())?;
            answer(4, word(core.destroy(file, body.word(8))?))
        }
        BIND_IP | BIND => bind(core, file, header.command, body),
        RESOLVE_IP | RESOLVE_ADDR => resolve(core, file, header.command, body, caller.now()),
        RESOLVE_ROUTE => core.resolve_route(file, body.word(0)).map(|()| None),
        QUERY_ROUTE | QUERY | INIT_QP_ATTR => {
            let (needs, bytes) = query(core, file, header.command, body)?;
            answer(needs, bytes)
        }
        CONNECT => {
            let (terms, counts) = body.terms(0, 280);
            if !counts {
                return Err(Errno::INVAL);
            }
            core.connect(file, body.word(272), terms, caller.now()).map(|()| None)
        }
        LISTEN => core.listen(file, body.word(0), body.word(4) as i32).map(|()| None),
        ACCEPT => match body.terms(8, 288) {
            (terms, true) => core.accept(file, body.word(280), body.long(0), terms).map(|()| None),
            (_, false) => core.ready(file, body.word(280)).map(|()| None),
        },
        REJECT => {
            let (bytes, reason) = (body.0[4] as usize, u16::from(body.0[5]));
            let private = body.slice(8, bytes.min(256)).to_vec();
            let reason = if reason == 0 { BY_PROGRAM } else { reason };
            core.reject(file, body.word(0), reason, private).map(|()| None)
        }
        DISCONNECT => core.disconnect(file, body.word(0), caller.now()).map(|()| None),
        SET_OPTION => set_option(core, file, body, caller),
        NOTIFY if body.word(4) == ESTABLISHED => core.established(file, body.word(0)).map(|()| None),
        MIGRATE_ID => {
            answer(4, Vec::new())?;
            let from = caller.file_of(body.word(12))?;
            answer(4, word(core.migrate(from, file, body.word(8))?))
        }
        // No datagrams, no groups.
        _ => Err(Errno::INVAL),
    }
}

/// What is known of an identifier, and the bytes that there must be room for at least.
fn query(core: &mut Core, file: u64, command: u32, body: &Body) -> Result<(usize, Vec<u8>), Errno> {
    let number = body.word(8);
    core.id(file, number)?;
    let id = &core.ids[&number];
    match (command, body.word(12)) {
        (number::QUERY_ROUTE, _) => Ok((200, core.route(id))),
        (number::INIT_QP_ATTR, state) => Ok((144, core.attributes(id, state)?)),
        (_, 0) => Ok((272, core.addresses(id))),
        (_, 1) => Ok((8, core.paths(id))),
        (_, 2) => Ok((272, core.gids(id, SPACE_TCP))),
        _ => Err(Errno::NOSYS),
    }
}

fn word(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

fn create(core: &mut Core, file: u64, body: &Body) -> Result<u32, Errno> {
    match (body.short(16), body.0[18]) {
        (SPACE_TCP, _) | (SPACE_IB, RC) => Ok(core.create(file, body.long(0))),
        (space, _) if SPACES.contains(&space) => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::INVAL),
    }
}

fn bind(core: &mut Core, file: u64, command: u32, body: &Body) -> Result<Answer, Errno> {
    let (id, address) = match command {
        number::BIND_IP => (body.word(36), body.slice(8, 28)),
        _ => (body.word(0), body.slice(8, (body.short(4) as usize).min(128))),
    };
    // librdmacm finds out whether addresses of InfiniBand are understood, by one that is any.
    if command == number::BIND && body.short(8) == IB && address.get(8..24) == Some(&[0; 16]) {
        return core.bind(file, id, Name::ANY).map(|()| None);
    }
    let name = Name::read(address)?.ok_or(Errno::INVAL)?;
    core.bind(file, id, name).map(|()| None)
}

fn resolve(core: &mut Core, file: u64, command: u32, body: &Body, now: u64) -> Result<Answer, Errno> {
    let (id, timeout, source, target) = match command {
        number::RESOLVE_IP => (body.word(56), body.word(60), body.slice(0, 28), body.slice(28, 28)),
        _ => {
            let size = |at: usize| (body.short(at) as usize).min(128);
            let source = body.slice(16, size(8));
            (body.word(0), body.word(4), source, body.slice(144, size(10)))
        }
    };
    let source = if source.len() < INET_BYTES { None } else { Name::read(source)? };
    let target = Name::read(target)?.ok_or(Errno::INVAL)?;
    core.resolve(file, id, (source, target), (now, timeout.into())).map(|()| None)
}

fn set_option(core: &mut Core, file: u64, body: &Body, caller: &impl Caller) -> Result<Answer, Errno> {
    const LEVEL_ID: u32 = 0;
    const TYPE_OF_SERVICE: u32 = 0;
    const REUSE_ADDRESS: u32 = 1;
    const ONE_FAMILY: u32 = 2;
    const ACK_TIMEOUT: u32 = 3;
    let (address, level, name, bytes) = (body.long(0), body.word(12), body.word(16), body.word(20));
    let id = core.id(file, body.word(8))?;
    let length = match (level, name) {
        (LEVEL_ID, TYPE_OF_SERVICE | ACK_TIMEOUT) => 1,
        (LEVEL_ID, REUSE_ADDRESS | ONE_FAMILY) => 4,
        _ => return Err(Errno::NOSYS),
    };
    if bytes != length {
        return Err(Errno::INVAL);
    }
    let mut value = [0; 4];
    caller.read(address, &mut value[..length as usize])?;
    match name {
        REUSE_ADDRESS => id.reuse = value != [0; 4],
        ACK_TIMEOUT if value[0] > 31 => return Err(Errno::INVAL),
        ACK_TIMEOUT => id.ack_timeout = Some(value[0]),
        // Packets are all of one class, and an address of either family is the same one.
        _ => {}
    }
    Ok(None)
}
