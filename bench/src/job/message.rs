//! What the processes of a job send each other: the whole of what the sender knows, again and again, and pieces of its
//! log. Pure. A message may be lost, doubled or late; none depends on another.

use super::board::{BoardState, LinkState};
use super::wire::{BadBytes, Reader, Writer};

/// First byte of each kind.
const STATE: u8 = 0x51;
const LOG: u8 = 0x52;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What the sender knows.
    State(State),
    /// A piece of the sender's log of phase `phase`.
    Log {
        /// The phase.
        phase: u32,
        /// Where in the log it begins.
        at: u64,
        /// The piece.
        bytes: Vec<u8>,
    },
}

/// What a process knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which of the run's phases this is about.
    pub phase: u32,
    /// Its board.
    pub board: BoardState,
    /// Bytes of its log so far.
    pub log_bytes: u64,
    /// Nothing will be added to its log.
    pub log_over: bool,
    /// How much it has of each rank's log.
    pub got: Vec<u64>,
    /// The exit status of the job, from the rank that judges; the others repeat it: they have heard it.
    pub verdict: Option<u8>,
}

const READY: u8 = 1;
const FINISHED: u8 = 2;
const TABLE_OVER: u8 = 1;
const ABORTED: u8 = 2;
const STOPPING: u8 = 4;
const LOG_OVER: u8 = 8;

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

impl Message {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::State(state) => state.write(out.u8(STATE)),
            Self::Log { phase, at, bytes } => {
                out.u8(LOG).u32(*phase).u64(*at).bytes(bytes);
            }
        }
        out.0
    }

    /// From bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut from = Reader::new(bytes);
        let message = match from.u8("kind")? {
            STATE => Self::State(State::read(&mut from)?),
            LOG => {
                let (phase, at) = (from.u32("phase")?, from.u64("place in the log")?);
                Self::Log { phase, at, bytes: from.bytes("piece of the log")?.to_vec() }
            }
            met => return Err(BadBytes::Value { field: "kind", met: met.into() }),
        };
        from.end()?;
        Ok(message)
    }
}

impl State {
    fn write(&self, out: &mut Writer) {
        let board = &self.board;
        out.u32(self.phase).u32(board.links.len() as u32);
        for link in &board.links {
            out.u8(flag(link.ready, READY) | flag(link.finished, FINISHED)).u64(link.posted);
        }
        let flags = flag(board.table_over, TABLE_OVER)
            | flag(board.aborted, ABORTED)
            | flag(board.stopping, STOPPING)
            | flag(self.log_over, LOG_OVER);
        out.u64(board.rows).u64(board.corrupt).u8(flags).u64(self.log_bytes).u64s(&self.got);
        match self.verdict {
            None => out.bool(false),
            Some(status) => out.bool(true).u8(status),
        };
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let phase = from.u32("phase")?;
        let links = (0..from.count(9, "number of streams")?)
            .map(|_| {
                let flags = flags(from.u8("flags of a stream")?, READY | FINISHED)?;
                let (ready, finished) = (flags & READY != 0, flags & FINISHED != 0);
                Ok(LinkState { ready, finished, posted: from.u64("puts posted")? })
            })
            .collect::<Result<_, BadBytes>>()?;
        let (rows, corrupt) = (from.u64("rows")?, from.u64("corrupt rows")?);
        let flags = flags(from.u8("flags")?, TABLE_OVER | ABORTED | STOPPING | LOG_OVER)?;
        let board = BoardState {
            links,
            rows,
            corrupt,
            table_over: flags & TABLE_OVER != 0,
            aborted: flags & ABORTED != 0,
            stopping: flags & STOPPING != 0,
        };
        let (log_bytes, got) = (from.u64("bytes of the log")?, from.u64s("what was got")?);
        let verdict = if from.bool("verdict")? { Some(from.u8("exit status")?) } else { None };
        Ok(Self { phase, board, log_bytes, log_over: flags & LOG_OVER != 0, got, verdict })
    }
}

fn flags(met: u8, known: u8) -> Result<u8, BadBytes> {
    if met & !known == 0 { Ok(met) } else { Err(BadBytes::Value { field: "flags", met: met.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> impl Strategy<Value = State> {
        let link = (any::<bool>(), any::<u64>(), any::<bool>())
            .prop_map(|(ready, posted, finished)| LinkState { ready, posted, finished });
        let board = (prop::collection::vec(link, 0..40), any::<[u64; 2]>(), any::<[bool; 3]>()).prop_map(
            |(links, [rows, corrupt], [table_over, aborted, stopping])| BoardState {
                links,
                rows,
                corrupt,
                table_over,
                aborted,
                stopping,
            },
        );
        let rest = (any::<u32>(), any::<u64>(), any::<bool>(), any::<Vec<u64>>(), any::<Option<u8>>());
        (board, rest).prop_map(|(board, (phase, log_bytes, log_over, got, verdict))| State {
            phase,
            board,
            log_bytes,
            log_over,
            got,
            verdict,
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            state().prop_map(Message::State),
            (any::<u32>(), any::<u64>(), any::<Vec<u8>>()).prop_map(|(phase, at, bytes)| Message::Log {
                phase,
                at,
                bytes
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in message()) {
            prop_assert_eq!(Message::from_bytes(&message.to_bytes()), Ok(message));
        }

        #[test]
        fn a_piece_or_more_than_the_whole_is_refused(message in message(), cut in any::<prop::sample::Index>()) {
            let mut bytes = message.to_bytes();
            prop_assert!(Message::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
            bytes.push(0);
            prop_assert_eq!(Message::from_bytes(&bytes), Err(BadBytes::Long(1)));
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in any::<Vec<u8>>(), kind in 0x51u8..=0x52) {
            let _ = Message::from_bytes(&bytes);
            let bytes: Vec<u8> = std::iter::once(kind).chain(bytes).collect();
            if let Ok(message) = Message::from_bytes(&bytes) {
                prop_assert_eq!(message.to_bytes(), bytes, "one message, one spelling");
            }
        }
    }
}
