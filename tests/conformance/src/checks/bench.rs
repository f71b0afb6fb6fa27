//! Both sides of the checks, and what one check comes to.

use crate::draw::Draw;
use crate::peer::Peer;
use crate::verbs::{Completion, Device, Op, Queue, Region, Remote, Request, Shape, Side};
use anyhow::Result;
use std::ops::Range;
use std::rc::Rc;

/// Largest transfer.
pub(super) const LARGEST: usize = 8 << 20;
/// Memory of each side: the largest transfer fits at many offsets.
pub(super) const MEMORY: usize = LARGEST + (256 << 10);

/// What one check came to.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was checked.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Bytes they carried.
    pub bytes: u64,
    /// What was wrong.
    pub wrong: Vec<String>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), requests: 0, bytes: 0, wrong: Vec::new() }
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes as u64;
    }

    /// Notes something that must be so.
    pub(crate) fn must(&mut self, so: bool, text: impl FnOnce() -> String) {
        // One bad byte in each of a thousand requests is told well enough by the first few.
        if !so && self.wrong.len() < 8 {
            self.wrong.push(text());
        }
    }
}

/// A connected pair: our queue, and the number of theirs.
pub(super) struct Link {
    pub queue: Queue,
    pub far: usize,
}

/// Both sides.
pub(super) struct Bench {
    pub device: Rc<Device>,
    pub region: Region,
    pub peer: Peer,
    pub draw: Draw,
    pub ids: u64,
}

impl Bench {
    pub fn link(&mut self, shape: Shape) -> Result<Link> {
        let queue = Queue::new(&self.device, shape)?;
        let (far, ends) = self.peer.queue(queue.ends(), shape)?;
        queue.connect(ends)?;
        Ok(Link { queue, far })
    }

    pub fn unlink(&mut self, link: Link) -> Result<()> {
        self.peer.drop_queue(link.far)
    }

    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub fn remote(&self, offset: usize) -> Remote {
        let memory = self.peer.memory();
        Remote { address: memory.address + offset as u64, rkey: memory.rkey }
    }

    /// A place for `bytes` in either side's memory.
    pub fn place(&mut self, bytes: usize) -> Range<usize> {
        let start = self.draw.below((MEMORY - bytes + 1) as u64) as usize;
        start..start + bytes
    }

    /// Places that do not overlap, for buffers of these lengths.
    pub fn places(&mut self, lengths: &[usize]) -> Vec<Range<usize>> {
        let gap = (MEMORY - lengths.iter().sum::<usize>()) as u64 / lengths.len() as u64;
        let mut at = 0;
        let mut places = Vec::new();
        for bytes in lengths {
            at += self.draw.below(gap + 1) as usize;
            places.push(at..at + bytes);
            at += bytes;
        }
        places
    }

    /// Looks at all memory of both sides.
    pub fn look(&mut self, row: &mut Row, what: &str) -> Result<()> {
        let near = self.region.check();
        row.must(near.is_ok(), || format!("{what}: near side: {}", near.unwrap_err()));
        let far = self.peer.check()?;
        row.must(far.is_none(), || format!("{what}: far side: {}", far.unwrap_or_default()));
        Ok(())
    }
}

/// Checks the completion of a request that must succeed.
pub(super) fn good(row: &mut Row, what: &str, request: &Request, done: &Completion) {
    let want = request.op.completes_as();
    row.must(done.status == 0, || format!("{what}: status {} vendor {:#x}", done.status, done.vendor));
    row.must(done.id == request.id, || format!("{what}: completion of {} for {}", done.id, request.id));
    row.must(done.status != 0 || done.opcode == want, || {
        format!("{what}: opcode {}, not {want}", done.opcode)
    });
}

/// Posts one request and waits for it.
pub(super) fn finish(link: &mut Link, request: &Request, api: crate::verbs::Api) -> Result<Completion> {
    link.queue.post(std::slice::from_ref(request), api)?;
    Ok(link.queue.wait(Side::Send)?)
}

/// True for requests that take a buffer of the far side's receive queue.
pub(crate) fn takes_receive(op: Op) -> bool {
    !matches!(op, Op::Write | Op::Read | Op::FetchAdd(_) | Op::CompareSwap { .. })
}
