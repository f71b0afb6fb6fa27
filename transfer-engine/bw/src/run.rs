//! An end of a run: its faults, its side, and what both ends saw.

use crate::end::{End, SLOTS, TURNS_BYTES};
use crate::options::Options;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::verdict::Part;
use anyhow::{Context, Result};
use shunt::Member;
use shunt_transfer::Carriers;
use shunt_transfer_program::faults::Planned;

/// Connects, runs its side, and answers with what both ends saw.
pub fn run(options: &Options, member: Member, nics: &Carriers) -> Result<Vec<Part>> {
    let pe = member.pe;
    let bytes = options.transfer_bytes() * SLOTS as u64 + TURNS_BYTES;
    let (mut end, exchange) = End::connect(options, member, nics, bytes)?;
    shunt::host::complain!("transfer_bw: end {pe}: connected, {} rails", options.nics.rails());
    let planned = Planned::begin(&options.nics.inject, pe, nics).map_err(anyhow::Error::msg)?;
    let mut part = match pe {
        0 => Sender::new(options, &mut end).run()?,
        _ => Receiver::new(options, &mut end).run()?,
    };
    end.linger();
    end.tell_remarks();
    let counts = end.engine.counts();
    (part.failovers, part.returns) = (counts.closed, counts.returned);
    part.pieces_again = counts.again;
    part.pieces_reordered = nics.reordered();
    part.faults = planned.struck(nics).map_err(anyhow::Error::msg)?;
    let all = exchange.all_gather(&serde_json::to_vec(&part)?);
    if all.is_err() && part.peer_lost {
        // The other end says no more. What this end saw is judged.
        let own = Part { is_alone: true, ..part };
        return Ok(if pe == 0 { vec![own, Part::default()] } else { vec![Part::default(), own] });
    }
    all?.iter().map(|bytes| serde_json::from_slice(bytes).context("what the other end saw")).collect()
}
