//! One connection, without its socket: preamble, key exchange, then encrypted messages. Bytes in, bytes out.
//!
//! After the preambles everything is a record: a length of two bytes (big-endian) and as many bytes. The first record
//! of each side is a message of Noise NNpsk0 (25519, ChaChaPoly, BLAKE2s) with the job secret as key; all others are
//! ciphertext. A length of 0xffff announces a refusal in the clear: a code and two numbers.

use super::error::Refusal;
use super::frame::{BODY_MAX, Encoded, Frame, HEAD, HELLO_MAX, JobNumber};
use super::preamble::{self, Preamble, Purpose};
use super::secret::Secret;
use snow::{Builder, HandshakeState, TransportState};
use std::collections::VecDeque;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Plaintext of one record at most.
const RECORD: usize = 32 << 10;
/// What encryption adds to it.
const TAG: usize = 16;
/// Ciphertext that may wait for the socket: the rest waits as messages, which several connections share.
const READY: usize = 256 << 10;
const PLAIN_REFUSAL: u16 = 0xffff;
const REFUSAL_BYTES: usize = 9;
/// Longest record before the key exchange is over.
const EXCHANGE_MAX: usize = 256;

/// What a process knows of itself when somebody connects.
#[derive(Clone, Debug)]
pub struct Local {
    /// This process.
    pub rank: u32,
    /// Processes in the job.
    pub world: u32,
    /// Version of the protocol and of the ABI.
    pub versions: (u32, u32),
    /// Job secret.
    pub secret: Secret,
    /// Number of the job, once it is known.
    pub job: Option<JobNumber>,
}

impl Local {
    /// What the key exchange is bound to beside the preambles; refuses what is not for this process.
    fn binding(&self, purpose: Purpose, accepting: bool) -> Result<Vec<u8>, Refusal> {
        match (purpose, self.job) {
            (Purpose::Join, _) if !accepting || self.rank == 0 => Ok(b"join".to_vec()),
            (Purpose::Join, _) => Err(Refusal::Broken("it wants to join, and this is not the root")),
            (Purpose::Mesh { from, to }, Some(job)) => {
                let mine = if accepting { to } else { from };
                if mine != self.rank || from <= to || from >= self.world {
                    return Err(Refusal::Stray { from, to });
                }
                Ok([b"mesh".as_slice(), &job].concat())
            }
            (Purpose::Mesh { from, to }, None) => Err(Refusal::Stray { from, to }),
        }
    }
}

/// Who found fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// We refuse the other side.
    Here(Refusal),
    /// The other side refuses us.
    There(Refusal),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Here(refusal)
    }
}

enum State {
    /// Waits for the other side's preamble.
    Preamble,
    /// Waits for the other side's part of the key exchange.
    Exchange(Box<HandshakeState>),
    /// Messages flow.
    Open(Box<TransportState>),
    /// Nothing more is read.
    Over,
}

/// A message under way.
struct Outgoing {
    message: Encoded,
    /// Bytes of it that were encrypted.
    taken: usize,
}

/// One connection.
pub struct Link {
    local: Local,
    accepting: bool,
    purpose: Purpose,
    state: State,
    /// From the wire, not yet understood.
    wire_in: Vec<u8>,
    /// Decrypted, not yet a whole message.
    plain_in: Vec<u8>,
    /// For the wire.
    wire_out: Vec<u8>,
    /// Messages for after it.
    queue: VecDeque<Outgoing>,
    /// Bytes of messages in `queue` that were not encrypted.
    queued: usize,
    body_max: usize,
}

impl Link {
    fn new(local: Local, accepting: bool, purpose: Purpose) -> Self {
        Self {
            local,
            accepting,
            purpose,
            state: State::Preamble,
            wire_in: Vec::new(),
            plain_in: Vec::new(),
            wire_out: Vec::new(),
            queue: VecDeque::new(),
            queued: 0,
            body_max: HELLO_MAX,
        }
    }

    /// The side that connects: it speaks first.
    pub fn connect(local: Local, purpose: Purpose) -> Self {
        let mut link = Self::new(local, false, purpose);
        link.wire_out.extend(link.preamble().encode());
        // Whom we connect to is known by what it proves in the exchange; what it says then is believed.
        link.body_max = BODY_MAX;
        link
    }

    /// The side that was connected to: silent until it has seen who speaks.
    pub fn accept(local: Local) -> Self {
        Self::new(local, true, Purpose::Join)
    }

    fn preamble(&self) -> Preamble {
        let (protocol, abi) = self.local.versions;
        Preamble { protocol, abi, purpose: self.purpose }
    }

    /// What the connection is for; of an accepted one, once it is open.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The key exchange is over. (An accepted side knows that the other is no echo of an earlier one only after its
    /// first message.)
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Queues a message.
    pub fn send(&mut self, frame: &Frame) {
        self.send_encoded(frame.encode());
    }

    /// Queues a message that may be shared with other connections.
    pub fn send_encoded(&mut self, message: Encoded) {
        self.queued += message.bytes();
        self.queue.push_back(Outgoing { message, taken: 0 });
    }

    /// Bytes that wait to be sent.
    pub fn pending(&self) -> usize {
        self.wire_out.len() + self.queued
    }

    /// Bytes for the wire; what was written is to be [taken off](Link::written).
    pub fn outgoing(&mut self) -> &[u8] {
        if let State::Open(transport) = &mut self.state {
            while self.wire_out.len() < READY && !self.queue.is_empty() {
                let plain = take_record(&mut self.queue);
                self.queued -= plain.len();
                seal(transport, &plain, &mut self.wire_out);
            }
        }
        &self.wire_out
    }

    /// The first `bytes` of [`Link::outgoing`] were written.
    pub fn written(&mut self, bytes: usize) {
        self.wire_out.drain(..bytes);
    }

    /// Takes bytes from the wire. After trouble nothing more is taken; what is [outgoing](Link::outgoing) may still
    /// tell the other side why.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.wire_in.extend_from_slice(bytes);
        let answer = self.advance();
        if let Err(trouble) = &answer {
            self.state = State::Over;
            if let Trouble::Here(reason) = trouble {
                self.tell(reason);
            }
        }
        answer
    }

    /// Tells the other side in the clear why it is refused, where it may know: after its preamble, before the key
    /// exchange is over. One of another version sees ours in our preamble.
    fn tell(&mut self, reason: &Refusal) {
        match reason {
            Refusal::Garbage => {}
            Refusal::Protocol { .. } | Refusal::Abi { .. } if self.accepting => {
                self.wire_out.extend(self.preamble().encode());
            }
            Refusal::Secret | Refusal::Stray { .. } if self.accepting => {
                let (code, a, b) = reason.to_wire();
                self.wire_out.extend(PLAIN_REFUSAL.to_be_bytes());
                self.wire_out.push(code);
                self.wire_out.extend(a.to_be_bytes());
                self.wire_out.extend(b.to_be_bytes());
            }
            _ => {}
        }
    }

    fn advance(&mut self) -> Result<(), Trouble> {
        if matches!(self.state, State::Preamble) && !self.meet()? {
            return Ok(());
        }
        let mut at = 0;
        while let Some(length) = self.wire_in.get(at..at + 2) {
            let length = u16::from_be_bytes([length[0], length[1]]);
            let is_refusal = length == PLAIN_REFUSAL;
            let bytes = if is_refusal { REFUSAL_BYTES } else { length as usize };
            if !is_refusal && bytes > self.record_max() {
                return Err(Refusal::Broken("a record is too long").into());
            }
            let Some(record) = self.wire_in.get(at + 2..at + 2 + bytes) else { break };
            let record = record.to_vec();
            at += 2 + bytes;
            match is_refusal {
                true => return Err(self.refused(&record)),
                false => self.record(&record)?,
            }
        }
        self.wire_in.drain(..at);
        Ok(())
    }

    fn record_max(&self) -> usize {
        if self.is_open() { RECORD + TAG } else { EXCHANGE_MAX }
    }

    /// Reads the other side's preamble; false if it is not all there.
    fn meet(&mut self) -> Result<bool, Trouble> {
        let Some(theirs) = Preamble::decode(&self.wire_in, self.local.versions)? else { return Ok(false) };
        self.wire_in.drain(..preamble::LENGTH);
        if self.accepting {
            self.purpose = theirs.purpose;
            self.wire_out.extend(self.preamble().encode());
        } else if theirs.purpose != self.purpose {
            return Err(Refusal::Garbage.into());
        }
        let binding = self.local.binding(self.purpose, self.accepting)?;
        let prologue = [&self.preamble().encode()[..], &theirs.encode(), &binding].concat();
        let broken = |_| Trouble::Here(Refusal::Broken("the key exchange cannot begin"));
        let pattern = PATTERN.parse().map_err(broken)?;
        let builder = Builder::new(pattern).psk(0, self.local.secret.key()).map_err(broken)?;
        let builder = builder.prologue(&prologue).map_err(broken)?;
        let mut noise = match self.accepting {
            true => builder.build_responder().map_err(broken)?,
            false => builder.build_initiator().map_err(broken)?,
        };
        if !self.accepting {
            self.say(&mut noise)?;
        }
        self.state = State::Exchange(Box::new(noise));
        Ok(true)
    }

    /// Our part of the key exchange.
    fn say(&mut self, noise: &mut HandshakeState) -> Result<(), Trouble> {
        let mut message = [0; EXCHANGE_MAX];
        let broken = |_| Trouble::Here(Refusal::Broken("the key exchange cannot go on"));
        let bytes = noise.write_message(&[], &mut message).map_err(broken)?;
        self.wire_out.extend((bytes as u16).to_be_bytes());
        self.wire_out.extend(&message[..bytes]);
        Ok(())
    }

    fn record(&mut self, record: &[u8]) -> Result<(), Trouble> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Exchange(mut noise) => {
                // The key is in the very first message: who does not have it gets no further.
                noise.read_message(record, &mut [0; EXCHANGE_MAX]).map_err(|_| Refusal::Secret)?;
                if self.accepting {
                    self.say(&mut noise)?;
                }
                let transport = noise.into_transport_mode().map_err(|_| Refusal::Secret)?;
                self.state = State::Open(Box::new(transport));
            }
            State::Open(mut transport) => {
                let start = self.plain_in.len();
                self.plain_in.resize(start + record.len(), 0);
                let bytes = transport
                    .read_message(record, &mut self.plain_in[start..])
                    .map_err(|_| Refusal::Broken("a record was changed on its way"))?;
                self.plain_in.truncate(start + bytes);
                self.state = State::Open(transport);
            }
            State::Preamble | State::Over => {}
        }
        Ok(())
    }

    /// The other side's refusal in the clear. Nobody vouches for it, so it counts only before the keys are there.
    fn refused(&self, record: &[u8]) -> Trouble {
        let number =
            |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let reason = Refusal::from_wire(record[0], number(1), number(5));
        match (reason, &self.state) {
            (Some(reason), State::Exchange(_)) if !self.accepting => Trouble::There(reason),
            _ => Trouble::Here(Refusal::Broken("a refusal in the clear where none can be")),
        }
    }

    /// The next message that is all there.
    pub fn next(&mut self) -> Result<Option<Frame>, Trouble> {
        let Some(head) = self.plain_in.first_chunk::<HEAD>() else { return Ok(None) };
        let kind = head[4];
        let body = Frame::body_length(*head, self.body_max)?;
        let Some(bytes) = self.plain_in.get(HEAD..HEAD + body) else { return Ok(None) };
        let frame = Frame::decode(kind, bytes)?;
        self.plain_in.drain(..HEAD + body);
        // The first message has shown that the other side has the secret, and has it now.
        self.body_max = BODY_MAX;
        Ok(Some(frame))
    }
}

/// Takes the plaintext of one record off the queue: the rest of a message, or several small ones.
fn take_record(queue: &mut VecDeque<Outgoing>) -> Vec<u8> {
    let mut plain = Vec::new();
    while let Some(first) = queue.front_mut()
        && plain.len() < RECORD
    {
        let (head, room) = (&first.message.head, RECORD - plain.len());
        let tail = first.message.tail.as_ref().map_or(&[][..], |tail| &tail[..]);
        let part = match first.taken.checked_sub(head.len()) {
            None => &head[first.taken..],
            Some(at) => &tail[at..],
        };
        let part = &part[..part.len().min(room)];
        plain.extend_from_slice(part);
        first.taken += part.len();
        if first.taken == first.message.bytes() {
            queue.pop_front();
        }
    }
    plain
}

fn seal(transport: &mut TransportState, plain: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 + plain.len() + TAG, 0);
    // It fails for a record over 65535 bytes or after 2^64 records alone.
    let bytes = transport.write_message(plain, &mut out[start + 2..]).expect("a record of 32 KiB at most");
    out[start..start + 2].copy_from_slice(&(bytes as u16).to_be_bytes());
    out.truncate(start + 2 + bytes);
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
