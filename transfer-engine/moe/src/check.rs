//! What a rank got, held against the model; and marks in memory that nothing may change.

use crate::failure::Failure;
use crate::ground::Ground;
use crate::kernel::{Received, header};
use crate::model::Model;
use crate::plan::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What stands in memory that others write into, before they do.
const MARK: u8 = 0xa5;
/// Bytes that are marked or looked at, at once.
const BLOCK: u64 = 64 << 10;
/// All memory is looked at after so many layers; after every layer what was used in it.
const WHOLE: u64 = 16;

/// What a rank saw, and all of them together.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Seen {
    /// Layers that went to their end.
    pub layers: u64,
    /// Tokens that were dispatched.
    pub tokens: u64,
    /// Rows that experts got: of their own rank, by a private buffer, by the contiguous one.
    pub rows_own: u64,
    /// See [`Seen::rows_own`].
    pub rows_private: u64,
    /// See [`Seen::rows_own`].
    pub rows_contiguous: u64,
    /// Rows with other bytes than were sent, and rows that did not come.
    pub rows_wrong: u64,
    /// See [`Seen::rows_wrong`].
    pub rows_missing: u64,
    /// Values of tokens that came back, and those that are not what the experts' sum is, to the bit.
    pub values: u64,
    /// See [`Seen::values`].
    pub values_wrong: u64,
    /// Values that did not come back.
    pub values_missing: u64,
    /// Bytes of memory that changed after they were read and before they were given back, or that no one may write.
    pub late_bytes: u64,
}

impl Seen {
    /// What is wrong, late or missing.
    pub const fn wrong(&self) -> u64 {
        self.rows_wrong + self.rows_missing + self.values_wrong + self.values_missing + self.late_bytes
    }
}

/// Checks one rank.
pub struct Check {
    ground: Arc<Ground>,
    rank: u32,
    /// What was marked in this layer: first byte, bytes.
    marked: Vec<(u64, u64)>,
    /// What it has seen.
    pub seen: Seen,
}

fn is_marked(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == MARK)
}

impl Check {
    /// Of a rank's memory, all of which it marks.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(ground: Arc<Ground>, rank: u32) -> Result<Self, Failure> {
        let all = ground.buffers.receive_bytes();
        let mut check = Self { ground, rank, marked: Vec::new(), seen: Seen::default() };
        check.mark(0, all)?;
        check.marked.clear();
        Ok(check)
    }

    fn mark(&mut self, at: u64, bytes: u64) -> Result<(), Failure> {
        let mark = [MARK; 4096];
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(mark.len() as u64);
            self.ground.receive.write(at + done, &mark[..part as usize])?;
            done += part;
        }
        // Rows that follow each other are one piece.
        match self.marked.last_mut().filter(|(last, len)| last + len == at) {
            Some((_, len)) => *len += bytes,
            None => self.marked.push((at, bytes)),
        }
        Ok(())
    }

    /// Holds what experts got against the model, and marks the memory that it came by.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    pub fn dispatch(&mut self, model: &Model, layer: u64, received: &Received) -> Result<(), Failure> {
        let (row_bytes, due) = (self.ground.buffers.row_bytes(), model.due(layer, self.rank));
        let case = model.case(layer);
        self.seen.tokens += case.tokens(self.rank) as u64;
        self.seen.rows_missing += due.len().saturating_sub(received.arrivals.len()) as u64;
        let rows = received.bytes.chunks(row_bytes as usize);
        for (number, (arrival, row)) in received.arrivals.iter().zip(rows).enumerate() {
            let count = match arrival.place {
                Place::Own(_) => &mut self.seen.rows_own,
                Place::Private(_) => &mut self.seen.rows_private,
                Place::Contiguous(_) => &mut self.seen.rows_contiguous,
            };
            *count += 1;
            let is_due = due.get(number).is_some_and(|due| {
                let (head, body) = row.split_at(16);
                head == header(due.token, due.source, due.expert, layer)
                    && (arrival.expert, arrival.source) == (due.expert, due.source)
                    && body == case.sent(due.source, due.token).data
            });
            match is_due {
                true => {}
                false if is_marked(row) => self.seen.rows_missing += 1,
                false => self.seen.rows_wrong += 1,
            }
        }
        let mut places: Vec<u64> =
            received.arrivals.iter().filter_map(|arrival| arrival.place.received()).collect();
        places.sort_unstable();
        places.into_iter().try_for_each(|at| self.mark(at, row_bytes))?;
        let counts = self.ground.buffers.counts_bytes();
        let others = (0..self.ground.buffers.shape.ranks).filter(|other| *other != self.rank);
        others.collect::<Vec<_>>().into_iter().try_for_each(|other| {
            let at = self.ground.buffers.counts(other);
            self.mark(at, counts)
        })
    }

    /// Holds what came back against the model, and marks the memory of so many rows.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    pub fn combine(&mut self, model: &Model, layer: u64, sums: &[u16], rows: u64) -> Result<(), Failure> {
        let due = model.sums(layer, self.rank);
        self.seen.values += sums.len() as u64;
        self.seen.values_missing += due.len().saturating_sub(sums.len()) as u64;
        let wrong = |(number, bits): (usize, &u16)| due.get(number) != Some(bits);
        self.seen.values_wrong += sums.iter().enumerate().filter(|one| wrong(*one)).count() as u64;
        self.mark(self.ground.buffers.returned(0), rows * self.ground.buffers.made_bytes())
    }

    /// Looks whether marks have changed, before the others may write again.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    pub fn end(&mut self, layer: u64, is_last: bool) -> Result<(), Failure> {
        let mut marked = std::mem::take(&mut self.marked);
        if is_last || layer.is_multiple_of(WHOLE) {
            marked = vec![(0, self.ground.buffers.receive_bytes())];
        }
        let mut block = vec![0; BLOCK as usize];
        for (start, bytes) in marked {
            let mut done = 0;
            while done < bytes {
                let part = (bytes - done).min(BLOCK);
                let block = &mut block[..part as usize];
                self.ground.receive.read(start + done, block)?;
                if !is_marked(block) {
                    self.seen.late_bytes += block.iter().filter(|byte| **byte != MARK).count() as u64;
                    self.mark(start + done, part)?;
                }
                done += part;
            }
        }
        self.marked.clear();
        self.seen.layers += 1;
        Ok(())
    }
}
