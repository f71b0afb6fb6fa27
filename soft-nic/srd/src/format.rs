//! What a program and its device write for each other: send WQEs, receive descriptors, completions, the doorbell of a
//! completion queue. Layouts and numbers are those of `efa_io_defs.h` and `efa_io_regs_defs.h`; all is little-endian.

/// Bytes of a send WQE.
pub const WQE_BYTES: usize = 64;
/// Bytes of a receive descriptor.
pub const RECEIVE_BYTES: usize = 16;
/// Bytes of a completion.
pub const CQE_BYTES: usize = 16;
/// Bytes of a completion that has room for the sender's GID.
pub const CQE_WITH_SOURCE_BYTES: usize = 32;
/// Bytes that fit into a WQE itself.
pub const INLINE_BYTES: usize = 32;
/// Pieces of a SEND.
pub const SEND_PIECES: usize = 2;
/// The address handle of a sender that nobody made one for.
pub const UNKNOWN_AH: u16 = 0xffff;

/// Keys of memory have so many bits.
const KEY_MASK: u32 = 0xff_ffff;

/// How a request ended (`efa_io_comp_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Good.
    Ok = 0,
    /// The queue pair went to ERR first.
    Flushed = 1,
    /// No operation of that number.
    BadOperation = 3,
    /// No address handle of that number.
    BadHandle = 4,
    /// No key allows the local memory.
    BadLocalKey = 5,
    /// Longer than a message may be.
    BadLength = 6,
    /// No key allows the remote memory, or nobody is there.
    BadRemoteAddress = 7,
    /// There is no such queue pair, or it does not receive.
    BadRemoteQp = 9,
    /// The receiver posted nothing.
    NotReady = 10,
    /// The receive is too short.
    BadRemoteLength = 11,
    /// An answer that makes no sense.
    BadAnswer = 12,
    /// No answer came.
    Unresponsive = 13,
}

impl Status {
    /// The status of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        use Status::*;
        let all = [
            Ok,
            Flushed,
            BadOperation,
            BadHandle,
            BadLocalKey,
            BadLength,
            BadRemoteAddress,
            BadRemoteQp,
            NotReady,
            BadRemoteLength,
            BadAnswer,
            Unresponsive,
        ];
        all.into_iter().find(|status| *status as u8 == number)
    }
}

/// A piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Its key.
    pub key: u32,
    /// Its address.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u32,
}

/// What a send WQE wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A message whose bytes are in the WQE.
    Inline([u8; INLINE_BYTES], u8),
    /// A message in so many pieces.
    Send([Piece; SEND_PIECES], u8),
    /// Remote memory to be read into a local piece; both are equally long.
    Read {
        /// Where it is read from.
        remote: Piece,
        /// Where it goes.
        local: Piece,
    },
}

impl Task {
    /// Bytes of the message, or of what is read.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(_, bytes) => u64::from(*bytes),
            Self::Send(pieces, count) => {
                pieces[..usize::from(*count)].iter().map(|piece| u64::from(piece.bytes)).sum()
            }
            Self::Read { remote, .. } => u64::from(remote.bytes),
        }
    }
}

/// A send WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wqe {
    /// The library's number of it.
    pub request: u16,
    /// The queue's phase when it was written.
    pub phase: bool,
    /// Queue pair it goes to.
    pub qpn: u16,
    /// Address handle.
    pub handle: u16,
    /// Key of the other queue pair.
    pub qkey: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// What it wants.
    pub task: Task,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A buffer descriptor: length, key, address in two halves.
fn piece_at(bytes: &[u8], at: usize, key_mask: u32) -> Piece {
    let address = u64::from(u32_at(bytes, at + 8)) | u64::from(u32_at(bytes, at + 12)) << 32;
    Piece { bytes: u32_at(bytes, at), key: u32_at(bytes, at + 4) & key_mask, address }
}

impl Wqe {
    /// Reads a WQE.
    ///
    /// # Errors
    /// The request's number, and the status that it ends with, where it makes no sense.
    pub fn read(bytes: &[u8; WQE_BYTES]) -> Result<Self, (u16, Status)> {
        let request = u16_at(bytes, 0);
        let (first, second) = (bytes[2], bytes[3]);
        let (operation, inline) = (first & 0xf, first & 0x20 != 0);
        let length = u16_at(bytes, 6);
        let bad = |status| Err((request, status));
        // It is a metadata descriptor, the first and the last of its request, without an extension.
        if first & 0x80 == 0 || first & 0x40 != 0 || second & 0xc != 0xc {
            return bad(Status::BadOperation);
        }
        let task = match (operation, inline) {
            (0, true) if usize::from(length) <= INLINE_BYTES => {
                let mut data = [0; INLINE_BYTES];
                data.copy_from_slice(&bytes[32..]);
                Task::Inline(data, length as u8)
            }
            (0, false) if usize::from(length) <= SEND_PIECES => {
                Task::Send([32, 48].map(|at| piece_at(bytes, at, KEY_MASK)), length as u8)
            }
            (1, false) if length <= 1 => {
                let (remote, local) = (piece_at(bytes, 32, u32::MAX), piece_at(bytes, 48, KEY_MASK));
                let local = if length == 0 { Piece::default() } else { local };
                if remote.bytes != local.bytes {
                    return bad(Status::BadLength);
                }
                Task::Read { remote, local }
            }
            (0 | 1, _) => return bad(Status::BadLength),
            _ => return bad(Status::BadOperation),
        };
        Ok(Self {
            request,
            phase: second & 1 != 0,
            qpn: u16_at(bytes, 4),
            handle: u16_at(bytes, 12),
            qkey: u32_at(bytes, 16),
            imm: (first & 0x10 != 0).then(|| u32_at(bytes, 8)),
            task,
        })
    }
}

/// A receive descriptor. A receive is one or more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The library's number of the receive; counts in the first.
    pub request: u16,
    /// Where a message goes.
    pub piece: Piece,
    /// A receive begins with it.
    pub first: bool,
    /// A receive ends with it.
    pub last: bool,
}

impl Descriptor {
    /// Reads a descriptor.
    pub fn read(bytes: &[u8; RECEIVE_BYTES]) -> Self {
        let control = u32_at(bytes, 12);
        let address = u64::from(u32_at(bytes, 0)) | u64::from(u32_at(bytes, 4)) << 32;
        Self {
            request: u16_at(bytes, 8),
            piece: Piece { address, bytes: u16_at(bytes, 10).into(), key: control & KEY_MASK },
            first: control >> 30 & 1 == 1,
            last: control >> 31 == 1,
        }
    }
}

/// Which queue a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue.
    Send = 1,
    /// The receive queue.
    Receive = 2,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The library's number of the request.
    pub request: u16,
    /// How it ended.
    pub status: Status,
    /// Of which queue.
    pub side: Side,
    /// The queue pair here.
    pub qpn: u16,
    /// Bytes received.
    pub bytes: u16,
    /// Immediate data received.
    pub imm: Option<u32>,
    /// Address handle of the sender, or [`UNKNOWN_AH`].
    pub handle: u16,
    /// Queue pair of the sender.
    pub source_qpn: u16,
    /// GID of the sender.
    pub source: u128,
}

impl Completion {
    /// As words of an entry: the first has the phase, and is written last.
    pub fn words(&self, phase: bool) -> [u64; CQE_WITH_SOURCE_BYTES / 8] {
        let flags = u8::from(phase) | (self.side as u8) << 1 | u8::from(self.imm.is_some()) << 3;
        let first = u64::from(self.request)
            | u64::from(self.status as u8) << 16
            | u64::from(flags) << 24
            | u64::from(self.qpn) << 32
            | u64::from(self.bytes) << 48;
        let second = u64::from(self.handle)
            | u64::from(self.source_qpn) << 16
            | u64::from(self.imm.unwrap_or(0)) << 32;
        let source = self.source.to_be_bytes();
        let half = |at: usize| u64::from_le_bytes(source[at..at + 8].try_into().expect("eight bytes"));
        [first, second, half(0), half(8)]
    }
}

/// What a program wrote to the doorbell of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqDoorbell {
    /// Completions that it took, in 16 bits.
    pub consumed: u16,
    /// Counts the events that it took, in two bits.
    pub events: u8,
    /// It asks for an event.
    pub armed: bool,
}

impl CqDoorbell {
    /// Reads the register.
    pub fn read(word: u32) -> Self {
        Self { consumed: word as u16, events: (word >> 29 & 3) as u8, armed: word >> 31 == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wqe(first: u8, second: u8, length: u16) -> [u8; WQE_BYTES] {
        let mut bytes = [0; WQE_BYTES];
        bytes[0..2].copy_from_slice(&7u16.to_le_bytes());
        (bytes[2], bytes[3]) = (first, second);
        bytes[4..6].copy_from_slice(&0x1234u16.to_le_bytes());
        bytes[6..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..12].copy_from_slice(&0xdead_beefu32.to_le_bytes());
        bytes[12..14].copy_from_slice(&3u16.to_le_bytes());
        bytes[16..20].copy_from_slice(&0x1111_1111u32.to_le_bytes());
        for (at, word) in [(32, 100u32), (36, 0xff00_0005), (40, 0x1000), (44, 0x7f), (48, 100), (52, 6)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn wqes_are_read_as_the_header_has_them() {
        let met = Wqe::read(&wqe(0x90, 0x1d, 1)).unwrap();
        assert_eq!((met.request, met.qpn, met.handle, met.qkey), (7, 0x1234, 3, 0x1111_1111));
        assert_eq!((met.imm, met.phase, met.task.bytes()), (Some(0xdead_beef), true, 100));
        let Task::Send([piece, _], 1) = met.task else { panic!("{met:?}") };
        assert_eq!(piece, Piece { key: 5, address: 0x7f_0000_1000, bytes: 100 });
        let met = Wqe::read(&wqe(0xa0, 0xc, 32)).unwrap();
        assert!(matches!(met.task, Task::Inline(_, 32)) && met.imm.is_none() && !met.phase);
        let met = Wqe::read(&wqe(0x81, 0xc, 1)).unwrap();
        let Task::Read { remote, local } = met.task else { panic!("{met:?}") };
        assert_eq!((remote.key, local.key), (0xff00_0005, 6), "a remote key has all its bits");
    }

    #[test]
    fn wqes_that_make_no_sense_have_a_status() {
        for (first, second, length, status) in [
            (0x82, 0xc, 1, Status::BadOperation),
            (0x00, 0xc, 1, Status::BadOperation),
            (0xc0, 0xc, 1, Status::BadOperation),
            (0x80, 0x4, 1, Status::BadOperation),
            (0x80, 0xc, 3, Status::BadLength),
            (0xa0, 0xc, 33, Status::BadLength),
            (0x81, 0xc, 2, Status::BadLength),
            (0x81, 0xc, 0, Status::BadLength),
            (0xa1, 0xc, 1, Status::BadLength),
        ] {
            assert_eq!(Wqe::read(&wqe(first, second, length)), Err((7, status)), "{first:#x} {length}");
        }
    }

    #[test]
    fn receives_are_read_as_the_header_has_them() {
        let mut bytes = [0; RECEIVE_BYTES];
        bytes[..4].copy_from_slice(&0x2000u32.to_le_bytes());
        bytes[4] = 1;
        bytes[8] = 9;
        bytes[10..12].copy_from_slice(&8192u16.to_le_bytes());
        bytes[12..].copy_from_slice(&0xc000_0011u32.to_le_bytes());
        let piece = Piece { key: 0x11, address: 0x1_0000_2000, bytes: 8192 };
        assert_eq!(Descriptor::read(&bytes), Descriptor { request: 9, piece, first: true, last: true });
        bytes[15] = 0x40;
        let met = Descriptor::read(&bytes);
        assert!(met.first && !met.last);
    }

    #[test]
    fn completions_are_written_as_the_header_has_them() {
        let completion = Completion {
            request: 0x0102,
            status: Status::NotReady,
            side: Side::Receive,
            qpn: 0x0304,
            bytes: 0x0506,
            imm: Some(0x0708_090a),
            handle: 0x0b0c,
            source_qpn: 0x0d0e,
            source: 0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20,
        };
        let bytes: Vec<u8> = completion.words(true).iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..8], [2, 1, 10, 0b1101, 4, 3, 6, 5]);
        assert_eq!(bytes[8..16], [0x0c, 0x0b, 0x0e, 0x0d, 0x0a, 9, 8, 7]);
        assert_eq!((bytes[16], bytes[31]), (0x11, 0x20), "the GID is in the order of the wire");
        let plain = Completion { imm: None, side: Side::Send, ..completion };
        assert_eq!(plain.words(false)[0] >> 24 & 0xff, 0b0010);
    }

    #[test]
    fn doorbells_of_completion_queues() {
        let met = CqDoorbell::read(0xc000_0007);
        assert_eq!(met, CqDoorbell { consumed: 7, events: 2, armed: true });
        assert_eq!(CqDoorbell::read(0xffff), CqDoorbell { consumed: 0xffff, events: 0, armed: false });
    }

    #[test]
    fn statuses_have_their_numbers() {
        for number in 0..=255 {
            assert!(Status::from_number(number).is_none_or(|status| status as u8 == number));
        }
        assert_eq!(Status::from_number(13), Some(Status::Unresponsive));
        assert_eq!((Status::from_number(2), Status::from_number(14)), (None, None));
    }
}
