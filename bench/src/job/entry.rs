//! What a process reports of its part of a run, piece by piece. All times are nanoseconds since that process's own
//! start of the stream: clocks of processes have nothing in common but their pace.

use super::wire::{BadBytes, Reader, Writer};
use crate::nics::RailCounters;
use crate::report::{Ended, Failing};
use shunt_figures::switch_table::Pathless;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::{PathIdentity, SwitchRecord};
use shunt_oracle::checker::Findings;
use shunt_soft_nic::{RailAt, WordWatch};

/// One thing that happened or was counted.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A PE switched.
    Record(u32, Box<Switch>),
    /// A channel was seen without any path.
    Pathless(Pathless),
    /// This many records were overwritten before they were read.
    RecordsLost(u64),
    /// Bytes delivered in bins of the timeline, from `first` on, as they stand now.
    Bins {
        /// Number of the first bin.
        first: u32,
        /// Bytes of each.
        bytes: Vec<u64>,
    },
    /// How often a planned fault has struck so far, by its place in the plan.
    Hits {
        /// Its place.
        fault: u32,
        /// How often.
        hits: u64,
    },
    /// Counters of a rail, and when they stood there.
    Counters {
        /// The rail.
        at: RailAt,
        /// When.
        at_ns: u64,
        /// What is counted.
        counters: RailCounters,
    },
    /// Generations that a PE has opened so far.
    Generations {
        /// The PE.
        pe: u32,
        /// Because of a fault.
        failovers: u64,
        /// To go back.
        switchbacks: u64,
    },
    /// A sender ended.
    Sent {
        /// Number of the stream.
        stream: u32,
        /// What it posted.
        puts: u64,
        /// Fetched values that were wrong.
        misread: u64,
    },
    /// Operations of a channel that were asked about so far.
    Uncertain {
        /// Who posted them.
        pe: u32,
        /// On which channel.
        channel: u32,
        /// How many.
        count: u64,
    },
    /// A receiver ended.
    Received {
        /// Number of the stream.
        stream: u32,
        /// What it found.
        findings: Findings,
        /// Longest time between deliveries.
        gap_ns: u64,
    },
    /// What NICs placed on the word of a receiver's signals, or of a sender's credits.
    Word {
        /// Number of the stream.
        stream: u32,
        /// Which of the two.
        credit: bool,
        /// The placements.
        watch: WordWatch,
    },
    /// Why a kernel ended the run, and how much that explains: the least number is the best reason.
    Ended(u8, Ended),
    /// Path of PE 0's first channel when the stream began.
    FirstPath(String),
    /// The stream of this process ended at this time; nothing follows.
    End(u64),
}

/// A switch record with times since the start; equal if every byte is.
#[derive(Clone, Copy, Debug)]
pub struct Switch(pub SwitchRecord);

impl PartialEq for Switch {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |switch: &Self| {
            let mut out = Writer::default();
            write_record(&mut out, &switch.0);
            out.0
        };
        bytes(self) == bytes(other)
    }
}

impl Entry {
    /// Appends it to a log.
    pub fn write(&self, out: &mut Writer) {
        match self {
            Self::Record(pe, switch) => write_record(out.u8(1).u32(*pe), &switch.0),
            Self::Pathless(p) => {
                out.u8(2).u32(p.pe).u32(p.peer).u32(p.channel).u64(p.since_ns);
            }
            Self::RecordsLost(count) => {
                out.u8(3).u64(*count);
            }
            Self::Bins { first, bytes } => {
                out.u8(4).u32(*first).u64s(bytes);
            }
            Self::Hits { fault, hits } => {
                out.u8(5).u32(*fault).u64(*hits);
            }
            Self::Counters { at, at_ns, counters } => {
                out.u8(6).u32(at.pe).u32(at.rail).u64(*at_ns);
                each_counter(&mut counters.clone(), |value| {
                    out.bool(value.is_some()).u64(value.unwrap_or_default());
                });
            }
            Self::Generations { pe, failovers, switchbacks } => {
                out.u8(7).u32(*pe).u64(*failovers).u64(*switchbacks);
            }
            Self::Sent { stream, puts, misread } => {
                out.u8(8).u32(*stream).u64(*puts).u64(*misread);
            }
            Self::Uncertain { pe, channel, count } => {
                out.u8(14).u32(*pe).u32(*channel).u64(*count);
            }
            Self::Received { stream, findings: f, gap_ns } => {
                out.u8(9).u32(*stream).u64(f.puts).u64(f.lost).u64(f.late).u64(f.ghosts);
                out.u64(f.backwards).u64(f.wild).u64(f.again).u64(*gap_ns);
            }
            Self::Word { stream, credit, watch } => {
                out.u8(10).u32(*stream).bool(*credit);
                out.u64(watch.writes).u64(watch.last).u64(watch.not_increasing);
            }
            Self::Ended(rank, ended) => write_ended(out.u8(11).u8(*rank), ended),
            Self::FirstPath(path) => {
                out.u8(12).bytes(path.as_bytes());
            }
            Self::End(at_ns) => {
                out.u8(13).u64(*at_ns);
            }
        }
    }

    /// Reads one from a log.
    ///
    /// # Errors
    /// `Short` where the log goes on elsewhere; anything else is no log.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(match from.u8("kind of an entry")? {
            1 => Self::Record(from.u32("PE")?, Box::new(Switch(read_record(from)?))),
            2 => Self::Pathless(Pathless {
                pe: from.u32("PE")?,
                peer: from.u32("peer")?,
                channel: from.u32("channel")?,
                since_ns: from.u64("time without path")?,
            }),
            3 => Self::RecordsLost(from.u64("records lost")?),
            4 => Self::Bins { first: from.u32("first bin")?, bytes: from.u64s("bins")? },
            5 => Self::Hits { fault: from.u32("fault")?, hits: from.u64("hits")? },
            6 => {
                let at = RailAt { pe: from.u32("PE")?, rail: from.u32("rail")? };
                let at_ns = from.u64("time of counters")?;
                let mut counters = RailCounters::default();
                let mut bad = None;
                each_counter(&mut counters, |value| match read_counter(from) {
                    Ok(met) => *value = met,
                    Err(error) => bad = Some(error),
                });
                bad.map_or(Ok(()), Err)?;
                Self::Counters { at, at_ns, counters }
            }
            7 => Self::Generations {
                pe: from.u32("PE")?,
                failovers: from.u64("failovers")?,
                switchbacks: from.u64("switch-backs")?,
            },
            8 => Self::Sent {
                stream: from.u32("stream")?,
                puts: from.u64("puts")?,
                misread: from.u64("fetched values")?,
            },
            14 => Self::Uncertain {
                pe: from.u32("PE")?,
                channel: from.u32("channel")?,
                count: from.u64("uncertain operations")?,
            },
            9 => Self::Received {
                stream: from.u32("stream")?,
                findings: Findings {
                    puts: from.u64("puts")?,
                    lost: from.u64("lost")?,
                    late: from.u64("late")?,
                    ghosts: from.u64("ghosts")?,
                    backwards: from.u64("backwards")?,
                    wild: from.u64("wild")?,
                    again: from.u64("again")?,
                },
                gap_ns: from.u64("gap")?,
            },
            10 => Self::Word {
                stream: from.u32("stream")?,
                credit: from.bool("kind of word")?,
                watch: WordWatch {
                    writes: from.u64("placements")?,
                    last: from.u64("last value")?,
                    not_increasing: from.u64("placements again")?,
                },
            },
            11 => Self::Ended(from.u8("weight of a reason")?, read_ended(from)?),
            12 => Self::FirstPath(from.text("path")?),
            13 => Self::End(from.u64("end")?),
            met => return Err(BadBytes::Value { field: "kind of an entry", met: met.into() }),
        })
    }
}

fn read_counter(from: &mut Reader<'_>) -> Result<Option<u64>, BadBytes> {
    let (known, value) = (from.bool("whether a counter is known")?, from.u64("counter")?);
    Ok(known.then_some(value))
}

/// Every counter, in one order for reading and writing.
fn each_counter(c: &mut RailCounters, f: impl FnMut(&mut Option<u64>)) {
    let RailCounters { packets_tx, packets_rx, bytes_tx, resent, naks, dropped } = c;
    [packets_tx, packets_rx, bytes_tx, resent, naks, dropped].into_iter().for_each(f);
}

fn write_ended(out: &mut Writer, ended: &Ended) {
    let (kind, syndrome, text) = match ended {
        Ended::Failed(Failing::NoPath, text) => (0, 0, text),
        Ended::Failed(Failing::Program(syndrome), text) => (1, syndrome.0, text),
        Ended::Failed(Failing::Untolerated, text) => (2, 0, text),
        Ended::Failed(Failing::Unfenced, text) => (3, 0, text),
        Ended::Stalled(text) => (4, 0, text),
        Ended::Failed(Failing::Gone, text) => (5, 0, text),
        Ended::Failed(Failing::Uncertain, text) => (6, 0, text),
    };
    out.u8(kind).u8(syndrome).bytes(text.as_bytes());
}

fn read_ended(from: &mut Reader<'_>) -> Result<Ended, BadBytes> {
    let (kind, syndrome) = (from.u8("kind of a reason")?, from.u8("syndrome")?);
    let text = from.text("reason")?;
    let failing = match kind {
        0 => Failing::NoPath,
        1 => Failing::Program(Syndrome(syndrome)),
        2 => Failing::Untolerated,
        3 => Failing::Unfenced,
        4 => return Ok(Ended::Stalled(text)),
        5 => Failing::Gone,
        6 => Failing::Uncertain,
        met => return Err(BadBytes::Value { field: "kind of a reason", met: met.into() }),
    };
    Ok(Ended::Failed(failing, text))
}

fn write_record(out: &mut Writer, r: &SwitchRecord) {
    out.u64(r.sequence);
    for word in [r.kind, r.cause, r.peer, r.channel, r.from, r.to, r.syndrome, r.ledger] {
        out.u32(word);
    }
    for word in [r.done_at_close, r.executed, r.journal_end, r.generation].iter().chain(&r.stamps) {
        out.u64(*word);
    }
    write_identity(out, &r.left);
    write_identity(out, &r.entered);
}

fn read_record(from: &mut Reader<'_>) -> Result<SwitchRecord, BadBytes> {
    let sequence = from.u64("number of a record")?;
    let mut words = [0; 8];
    for word in &mut words {
        *word = from.u32("word of a record")?;
    }
    let mut longs = [0; 10];
    for long in &mut longs {
        *long = from.u64("word of a record")?;
    }
    let [kind, cause, peer, channel, left, to, syndrome, ledger] = words;
    let [done_at_close, executed, journal_end, generation, stamps @ ..] = longs;
    Ok(SwitchRecord {
        sequence,
        kind,
        cause,
        peer,
        channel,
        from: left,
        to,
        syndrome,
        ledger,
        done_at_close,
        executed,
        journal_end,
        generation,
        stamps,
        left: read_identity(from)?,
        entered: read_identity(from)?,
        reserved: [0; 11],
    })
}

fn write_identity(out: &mut Writer, identity: &PathIdentity) {
    for bytes in
        [identity.local_gid, identity.remote_gid, identity.local_rail_name, identity.remote_rail_name]
    {
        out.bytes(&bytes);
    }
    out.u32(identity.local_lid.into()).u32(identity.remote_lid.into());
    out.u32(identity.local_qpn).u32(identity.remote_qpn);
    out.u32(identity.local_rail).u32(identity.remote_rail).u32(identity.incarnation);
}

fn read_identity(from: &mut Reader<'_>) -> Result<PathIdentity, BadBytes> {
    let mut names = [[0; 16]; 4];
    for name in &mut names {
        let bytes = from.bytes("name")?;
        let met = bytes.len() as u64;
        *name = bytes.try_into().map_err(|_| BadBytes::Value { field: "length of a name", met })?;
    }
    let [local_gid, remote_gid, local_rail_name, remote_rail_name] = names;
    let lid = |met: u32| u16::try_from(met).map_err(|_| BadBytes::Value { field: "LID", met: met.into() });
    Ok(PathIdentity {
        local_gid,
        remote_gid,
        local_rail_name,
        remote_rail_name,
        local_lid: lid(from.u32("LID")?)?,
        remote_lid: lid(from.u32("LID")?)?,
        local_qpn: from.u32("QPN")?,
        remote_qpn: from.u32("QPN")?,
        local_rail: from.u32("rail")?,
        remote_rail: from.u32("rail")?,
        incarnation: from.u32("incarnation")?,
    })
}

/// Entries from the front of `bytes`; what is no whole entry yet stays. A log is never longer than its parts.
///
/// # Errors
/// The log is none.
pub fn take_entries(bytes: &mut Vec<u8>) -> Result<Vec<Entry>, BadBytes> {
    let (mut entries, mut used) = (Vec::new(), 0);
    // Each entry stands behind its length: an entry that is cut off is told from one that is wrong.
    while let Some(length) = bytes.get(used..used + 4) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(whole) = bytes.get(used + 4..used + 4 + length) else { break };
        let mut from = Reader::new(whole);
        entries.push(Entry::read(&mut from)?);
        from.end()?;
        used += 4 + length;
    }
    bytes.drain(..used);
    Ok(entries)
}

/// Appends an entry behind its length.
pub fn append(log: &mut Vec<u8>, entry: &Entry) {
    let mut out = Writer::default();
    entry.write(&mut out);
    log.extend((out.0.len() as u32).to_le_bytes());
    log.extend(out.0);
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
