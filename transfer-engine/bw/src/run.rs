//! An end of a run: its faults, its side, and what both ends saw.

use crate::end::{End, SLOTS, TURNS_BYTES};
use crate::options::Options;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::verdict::{Part, Struck};
use anyhow::{Context, Result};
use shunt::soft_nic::RailAt;
use shunt::{Member, OpenNics};

/// Connects, runs its side, and answers with what both ends saw.
pub fn run(options: &Options, member: Member, nics: &OpenNics) -> Result<Vec<Part>> {
    let pe = member.pe;
    let bytes = options.transfer_bytes() * SLOTS as u64 + TURNS_BYTES;
    let (mut end, exchange) = End::connect(options, member, nics, bytes)?;
    shunt::host::complain!("transfer_bw: end {pe}: connected, {} rails", options.rails);
    let mut faults = Vec::new();
    for injection in options.inject.iter().filter(|injection| injection.pe == pe) {
        let kind = options.kind(injection).map_err(anyhow::Error::msg)?;
        let at = RailAt { pe, rail: injection.rail.unwrap_or_default() };
        let number = nics.inject_in(injection.at_ns, at, kind).map_err(anyhow::Error::msg)?;
        faults.push((injection.to_string(), number));
    }
    let opened = end.engine.counts().opened;
    let mut part = match pe {
        0 => Sender::new(options, &mut end).run()?,
        _ => Receiver::new(options, &mut end).run()?,
    };
    end.linger();
    end.tell_remarks();
    let (counts, hits) = (end.engine.counts(), nics.hits().map_err(anyhow::Error::msg)?);
    (part.failovers, part.returns) = (counts.closed, counts.opened - opened);
    part.pieces_again = counts.again;
    let struck = |(fault, at): (String, usize)| Struck { fault, hits: hits.get(at).copied().unwrap_or(0) };
    part.faults = faults.into_iter().map(struck).collect();
    let all = exchange.all_gather(&serde_json::to_vec(&part)?)?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).context("what the other end saw")).collect()
}
