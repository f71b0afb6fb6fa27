//! `moe_clean`: all ranks meet, their words begin at zero, and calls are counted from one number on.

use super::call::{ABSOLUTE, MoeCall};
use super::exchange::{Exchange, Part};
use super::stop::Stop;
use shunt_device::{Device, HeapOffset, Platform, WarpLanes};

/// Bits of a meeting's word that hold a call's number; the meeting's own is above them.
const CALL_BITS: u32 = 32;

/// The first part. Waits until all that was sent from here is delivered, meets all ranks, clears this rank's words, and
/// meets them again. `floor` is the number of the meeting: two higher than at the last time, from 2 on. The value is
/// the number that calls are counted from: the largest of any rank.
#[inline(always)]
pub fn run<P: Platform, L: WarpLanes>(
    device: Device<'_, P>,
    lanes: L,
    part: Part,
    call: &MoeCall,
) -> Result<u64, Stop> {
    if part.number != 0 {
        return Ok(0);
    }
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    deliver(&exchange)?;
    // Twice, with the clearing between: one loop, so that its code is there once.
    let (mut largest, mut round) = (exchange.number, 0);
    while round < 2 {
        if round == 1 {
            clear(&exchange);
        }
        largest = meet(&exchange, call.floor + round, largest)?;
        round += 1;
    }
    Ok(largest)
}

/// Nothing of an earlier call may arrive behind the clearing.
#[inline(always)]
fn deliver<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>) -> Result<(), Stop> {
    exchange.for_ranks(|rank| {
        let channels = if rank == exchange.me { 0 } else { exchange.call.shape.local_experts };
        let mut index = 0;
        while index < channels {
            exchange.quiet(rank, index)?;
            index += 1;
        }
        Ok(())
    })
}

/// Tells all ranks `number`, and waits for theirs; the largest.
#[inline(always)]
fn meet<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    meeting: u64,
    number: u64,
) -> Result<u64, Stop> {
    let shape = &exchange.call.shape;
    let least = meeting << CALL_BITS;
    exchange.for_ranks(|rank| exchange.tell(rank, shape.meeting(exchange.me), least | number))?;
    exchange.hear_all(shape.ranks as u64, least, |rank| (shape.meeting(rank as u32), rank as u32, 0))?;
    let mut largest = number;
    if exchange.leads() {
        let mut rank = 0;
        while rank < shape.ranks {
            let word = exchange.device.load(exchange.at(shape.meeting(rank)));
            // A rank at the next meeting already tells the largest of all, ours among them.
            let theirs = if exchange.is_left_out(rank) { 0 } else { word & ((1 << CALL_BITS) - 1) };
            largest = if theirs > largest { theirs } else { largest };
            rank += 1;
        }
    }
    Ok(exchange.lanes.broadcast(largest, 0))
}

/// Clears what a call that was broken off may have left.
#[inline(always)]
fn clear<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>) {
    let shape = &exchange.call.shape;
    let begin = exchange.at(shape.taken(0)).0;
    let end = exchange.at(shape.ended()).0;
    let mut word = begin + 8 * exchange.lanes.rank() as u64;
    while word <= end {
        exchange.device.store(HeapOffset(word), 0);
        word += 8 * exchange.lanes.size() as u64;
    }
    // Absolute words are never cleared: those of later calls are larger.
    let begin = exchange.at(shape.count(0, 0, 0)).0;
    let end = if exchange.call.has(ABSOLUTE) { begin } else { exchange.at(shape.send(0)).0 };
    let mut word = begin + 8 * exchange.lanes.rank() as u64;
    while word < end {
        exchange.device.store(HeapOffset(word), 0);
        word += 8 * exchange.lanes.size() as u64;
    }
    exchange.lanes.sync();
}
