//! The kernels of a rank on a processor: they pack rows, read what arrives, and talk to the proxy by words alone. Each
//! half is one kernel on a GPU: dispatch and combine, send and receive.

use crate::failure::Failure;
use crate::ground::Ground;
use crate::plan::{Arrival, Place, Plan};
use crate::routes::{Counts, Row, count, from_bytes, rows, to_bytes};
use crate::sum;
use shunt_layout::moe::HEADER_BYTES;
use std::sync::Arc;

/// The header of a row: its token, its source, its expert, the layer.
pub fn header(token: u32, source: u32, expert: u32, layer: u64) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    for (word, at) in [token, source, expert, layer as u32].into_iter().zip((0..).step_by(4)) {
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Rows of this rank's experts: by expert, by source, in the order of the source's tokens.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Whose each row is, and where it lay.
    pub arrivals: Vec<Arrival>,
    /// The rows, one behind the other.
    pub bytes: Vec<u8>,
}

/// The kernels of one rank, and what they keep of a layer.
pub struct Kernel {
    ground: Arc<Ground>,
    rank: u32,
    rows: Vec<Row>,
    counts: Counts,
}

impl Kernel {
    /// Of this rank.
    pub fn new(ground: Arc<Ground>, rank: u32) -> Self {
        let counts = Counts::new(ground.buffers.shape, ground.buffers.topk);
        Self { ground, rank, rows: Vec::new(), counts }
    }

    fn plan(&self) -> Plan<'_> {
        Plan { buffers: &self.ground.buffers, rank: self.rank, counts: &self.counts }
    }

    /// Packs the rows of a layer, and counts them.
    ///
    /// # Errors
    /// Routes that cannot be.
    pub fn dispatch_send(&mut self, layer: u64, tokens: &[u16], routes: &[i64]) -> Result<(), Failure> {
        let buffers = &self.ground.buffers;
        self.rows = rows(&buffers.shape, buffers.topk, routes)?;
        let (hidden, mut packed) = (buffers.shape.hidden as usize, Vec::new());
        for (number, row) in (0..).zip(&self.rows) {
            packed.clear();
            packed.extend_from_slice(&header(row.token, self.rank, row.expert, layer));
            let channels = &tokens[row.token as usize * hidden..][..hidden];
            packed.extend(channels.iter().flat_map(|bits| bits.to_le_bytes()));
            self.ground.send.write(buffers.row(number), &packed)?;
        }
        self.ground.send.write(0, &to_bytes(&count(&buffers.shape, &self.rows)))
    }

    /// Reads all rows of this rank's experts.
    ///
    /// # Errors
    /// Counts that no rank can have.
    pub fn dispatch_receive(&mut self) -> Result<Received, Failure> {
        let ground = self.ground.clone();
        let mut counts = vec![0; ground.buffers.counts_bytes() as usize];
        for source in 0..ground.buffers.shape.ranks {
            match source == self.rank {
                true => ground.send.read(0, &mut counts)?,
                false => ground.receive.read(ground.buffers.counts(source), &mut counts)?,
            }
            self.counts.learn(source, &from_bytes(&counts))?;
        }
        let (arrivals, row_bytes) = (self.plan().arrivals(), ground.buffers.row_bytes() as usize);
        let mut bytes = vec![0; arrivals.len() * row_bytes];
        for (arrival, row) in arrivals.iter().zip(bytes.chunks_mut(row_bytes)) {
            match arrival.place {
                Place::Own(at) => ground.send.read(at, row)?,
                Place::Private(at) | Place::Contiguous(at) => ground.receive.read(at, row)?,
            }
        }
        Ok(Received { arrivals, bytes })
    }

    /// Has each row's expert make something of it, and packs that for where the row came from. What is this rank's own
    /// comes to its place at once.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    pub fn combine_send(&mut self, received: &Received) -> Result<(), Failure> {
        let (buffers, plan) = (&self.ground.buffers, self.plan());
        let before = plan.counts.before(self.rank, self.rank);
        let starts: Vec<u64> = (0..buffers.shape.ranks).map(|source| plan.made_at(source)).collect();
        let rows = received.bytes.chunks(buffers.row_bytes() as usize);
        let mut made = Vec::new();
        for (arrival, row) in received.arrivals.iter().zip(rows) {
            made.clear();
            sum::expert(arrival.expert, &row[HEADER_BYTES as usize..], &mut made);
            if arrival.source == self.rank {
                self.ground.receive.write(buffers.returned(before + arrival.number), &made)?;
            } else {
                let at = buffers.made(starts[arrival.source as usize] + arrival.number);
                self.ground.send.write(at, &made)?;
            }
        }
        Ok(())
    }

    /// The weighted sum of what came back for each token.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    pub fn combine_receive(&mut self, weights: &[f32]) -> Result<Vec<u16>, Failure> {
        let (buffers, topk) = (&self.ground.buffers, self.ground.buffers.topk as usize);
        let mut places = vec![None; weights.len()];
        for (number, row) in self.rows.iter().enumerate() {
            places[row.token as usize * topk + row.choice as usize] = Some(number as u64);
        }
        let made_bytes = buffers.made_bytes() as usize;
        let (mut sums, mut rows) = (Vec::new(), vec![0; topk * made_bytes]);
        for (places, weights) in places.chunks(topk).zip(weights.chunks(topk)) {
            let chosen = places.iter().zip(weights).filter_map(|(place, weight)| Some(((*place)?, *weight)));
            let chosen: Vec<(u64, f32)> = chosen.collect();
            for ((number, _), row) in chosen.iter().zip(rows.chunks_mut(made_bytes)) {
                self.ground.receive.read(buffers.returned(*number), row)?;
            }
            let parts = chosen.iter().zip(rows.chunks(made_bytes)).map(|((_, weight), row)| (*weight, row));
            sums.extend(sum::weighted(&parts.collect::<Vec<_>>(), buffers.shape.hidden as usize));
        }
        Ok(sums)
    }

    /// Rows of the layer that this rank sent.
    pub fn own_rows(&self) -> u64 {
        self.rows.len() as u64
    }
}
