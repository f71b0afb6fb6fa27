//! The half of a queue pair that receives: messages put together, each taken once, in whatever order they come.

use crate::format::Status;
use crate::segment::Header;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Who sends: GID and queue pair.
pub type Source = (u128, u16);

/// A message of which some came.
struct Partial {
    bytes: Vec<u8>,
    /// Offsets of what came, with their lengths.
    came: BTreeMap<u32, u32>,
}

/// What is known of one sender.
#[derive(Default)]
struct Flow {
    epoch: u64,
    floor: u64,
    /// How messages ended that the sender may ask for again.
    ended: BTreeMap<u64, Status>,
    partial: BTreeMap<u64, Partial>,
    newest: u64,
}

/// What a segment makes of its message.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer<'a> {
    /// Nobody waits for it any more, or it makes no sense.
    Stale,
    /// The message ended before, and so: say it again.
    Ended(Status),
    /// More must come.
    More,
    /// Here it is.
    Whole(Cow<'a, [u8]>),
}

/// All senders of a queue pair.
#[derive(Default)]
pub struct Flows(HashMap<Source, Flow>);

impl Flows {
    /// Takes a segment of a message that has at most so many bytes.
    pub fn offer<'a>(&mut self, from: Source, header: &Header, data: &'a [u8], most: u32) -> Offer<'a> {
        let flow = self.0.entry(from).or_default();
        if header.epoch < flow.epoch || header.bytes > most {
            return Offer::Stale;
        }
        if header.epoch > flow.epoch {
            *flow = Flow { epoch: header.epoch, ..Flow::default() };
        }
        if header.floor > flow.floor {
            flow.floor = header.floor;
            flow.ended = flow.ended.split_off(&header.floor);
            flow.partial = flow.partial.split_off(&header.floor);
        }
        if header.number < flow.floor {
            return Offer::Stale;
        }
        if let Some(status) = flow.ended.get(&header.number) {
            return Offer::Ended(*status);
        }
        if header.offset == 0 && data.len() == header.bytes as usize {
            return Offer::Whole(Cow::Borrowed(data));
        }
        flow.add(header, data)
    }

    /// A message ended. True if a newer one of its sender was taken before it.
    pub fn settle(&mut self, from: Source, number: u64, status: Status) -> bool {
        let Some(flow) = self.0.get_mut(&from) else { return false };
        flow.partial.remove(&number);
        flow.ended.insert(number, status);
        let overtaken = status == Status::Ok && number < flow.newest;
        if status == Status::Ok {
            flow.newest = flow.newest.max(number);
        }
        overtaken
    }

    /// A message could not be taken: the sender sends all of it again.
    pub fn forget(&mut self, from: Source, number: u64) {
        if let Some(flow) = self.0.get_mut(&from) {
            flow.partial.remove(&number);
        }
    }

    /// Forgets all senders.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Flow {
    fn add<'a>(&mut self, header: &Header, data: &[u8]) -> Offer<'a> {
        let whole = header.bytes as usize;
        let start = header.offset as usize;
        let Some(end) = start.checked_add(data.len()).filter(|end| *end <= whole && !data.is_empty()) else {
            return Offer::Stale;
        };
        let fresh = || Partial { bytes: vec![0; whole], came: BTreeMap::new() };
        let partial = self.partial.entry(header.number).or_insert_with(fresh);
        if partial.bytes.len() != whole {
            return Offer::Stale;
        }
        partial.bytes[start..end].copy_from_slice(data);
        partial.came.insert(header.offset, data.len() as u32);
        // Segments of a message are cut at the same places each time.
        let came: u64 = partial.came.values().map(|bytes| u64::from(*bytes)).sum();
        if came < whole as u64 {
            return Offer::More;
        }
        let partial = self.partial.remove(&header.number);
        partial.map_or(Offer::Stale, |partial| Offer::Whole(Cow::Owned(partial.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Kind;

    const FROM: Source = (1, 2);

    fn header(number: u64, offset: u32, bytes: u32) -> Header {
        Header {
            kind: Kind::Send,
            status: Status::Ok,
            mac: 0,
            epoch: 10,
            number,
            floor: 1,
            offset,
            bytes,
            address: 0,
            key: 0,
            imm: None,
        }
    }

    #[test]
    fn a_message_is_taken_once() {
        let mut flows = Flows::default();
        let header = header(1, 0, 3);
        assert_eq!(flows.offer(FROM, &header, b"abc", 100), Offer::Whole(Cow::Borrowed(b"abc")));
        assert!(!flows.settle(FROM, 1, Status::Ok));
        assert_eq!(flows.offer(FROM, &header, b"abc", 100), Offer::Ended(Status::Ok));
        let other = (1, 3);
        assert_eq!(flows.offer(other, &header, b"abc", 100), Offer::Whole(Cow::Borrowed(b"abc")));
        let passed = Header { number: 2, floor: 2, ..header };
        assert!(matches!(flows.offer(FROM, &passed, b"abc", 100), Offer::Whole(_)));
        assert_eq!(flows.offer(FROM, &header, b"abc", 100), Offer::Stale, "the sender has its answer");
    }

    #[test]
    fn what_overtakes_is_counted() {
        let mut flows = Flows::default();
        let mut take = |number| {
            assert!(matches!(flows.offer(FROM, &header(number, 0, 0), b"", 100), Offer::Whole(_)));
            flows.settle(FROM, number, Status::Ok)
        };
        assert_eq!([2, 1, 4, 3, 5].map(&mut take), [false, true, false, true, false]);
    }

    #[test]
    fn segments_make_a_message_in_any_order() {
        let mut flows = Flows::default();
        assert_eq!(flows.offer(FROM, &header(1, 4, 6), b"ef", 100), Offer::More);
        assert_eq!(flows.offer(FROM, &header(1, 4, 6), b"ef", 100), Offer::More, "twice");
        assert_eq!(flows.offer(FROM, &header(1, 0, 6), b"ab", 100), Offer::More);
        assert_eq!(flows.offer(FROM, &header(1, 2, 6), b"cd", 100), Offer::Whole(b"abcdef".to_vec().into()));
        // Nobody took it: all comes again.
        flows.forget(FROM, 1);
        assert_eq!(flows.offer(FROM, &header(1, 0, 6), b"ab", 100), Offer::More);
    }

    #[test]
    fn a_later_life_of_the_sender_begins_anew() {
        let mut flows = Flows::default();
        let old = header(5, 0, 1);
        assert!(matches!(flows.offer(FROM, &old, b"x", 100), Offer::Whole(_)));
        flows.settle(FROM, 5, Status::Ok);
        let new = Header { epoch: 11, ..header(1, 0, 1) };
        assert!(matches!(flows.offer(FROM, &new, b"x", 100), Offer::Whole(_)));
        assert_eq!(flows.offer(FROM, &old, b"x", 100), Offer::Stale);
    }

    #[test]
    fn what_makes_no_sense_is_dropped() {
        let mut flows = Flows::default();
        assert_eq!(flows.offer(FROM, &header(1, 0, 101), b"a", 100), Offer::Stale, "too long");
        assert_eq!(flows.offer(FROM, &header(1, 99, 100), b"ab", 100), Offer::Stale, "beyond its end");
        assert_eq!(flows.offer(FROM, &header(1, u32::MAX, 100), b"ab", 100), Offer::Stale);
        assert_eq!(flows.offer(FROM, &header(1, 1, 100), b"", 100), Offer::Stale, "nothing");
        assert_eq!(flows.offer(FROM, &header(1, 0, 100), b"ab", 100), Offer::More);
        assert_eq!(flows.offer(FROM, &header(1, 2, 50), b"ab", 100), Offer::Stale, "another length");
    }
}
