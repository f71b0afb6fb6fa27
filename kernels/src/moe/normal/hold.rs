//! `moe_normal_hold`: what ranks must have alike, said by each to all; and that a rank gave a call up. What the other
//! kernels hold of each message.

use super::call::{GIVE_UP, NormalCall};
use super::node::{Node, OTHERS, RANK_MASK, Waits, afresh};
use super::role::{Halt, Role};
use crate::moe::exchange::split;
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Device, HeapOffset, Lanes, PIECE_BYTES, Platform, Put};
use shunt_layout::moe::At;
use shunt_layout::moe_normal::{CallTerms, OfRank, Terms};

/// Words of a piece.
const PIECE: u64 = 2;

/// One block. Writes `said`: what each rank has, for the host to hold it against its own before anything else is sent.
/// Where it lies does not depend on what is held. The value is the number of ranks.
///
/// What a rank says is always the same, and its words are never set to zero: it may be said again, by a call that goes
/// on where one was broken off. With `GIVE_UP` it says `number` instead, and waits for nobody: whom it cannot reach now
/// finds out by its own deadline.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &NormalCall,
) -> Result<u64, Halt> {
    if block != 0 {
        return Ok(0);
    }
    let node = Node::begin(device, lanes, call);
    node.check(Role::Hold)?;
    if call.has(GIVE_UP) {
        give_up(&node);
        return Ok(0);
    }
    say(&node)?;
    hear(&node)?;
    Ok(call.shape.ranks() as u64)
}

/// Says it to all ranks, in an order of this rank's own.
#[inline(always)]
fn say<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<(), Halt> {
    let shape = &node.call.shape;
    let own = node.at(shape.of_rank(OfRank::Terms, node.me));
    if node.leads() {
        let [a, b, c, d, e, f, g, h] = Terms::of(**shape).words();
        let store =
            |piece: u64, words| node.device.store_piece(HeapOffset(own.0 + piece * PIECE_BYTES), words);
        store(0, [a, b]);
        store(1, [c, d]);
        store(2, [e, f]);
        store(3, [g, h]);
    }
    let (word, mut turn) = (node.at(shape.of_rank(OfRank::Told, node.me)), 1);
    while turn < afresh(shape.ranks()) {
        rolled();
        let (_, rank) = split(node.me as u64 + turn as u64, shape.ranks());
        let who = Waits { role: Role::Hold, rank, index: 0 };
        node.tell(who, Some(Put { dst: own, src: own, bytes: Terms::WORDS * 8 }), word, 1)?;
        turn += 1;
    }
    Ok(())
}

/// Waits for what all ranks say, and hands it out.
#[inline(always)]
fn hear<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<(), Halt> {
    let (shape, mut rank) = (&node.call.shape, 0);
    while rank < afresh(shape.ranks()) {
        rolled();
        if rank != node.me {
            let who = Waits { role: Role::Hold, rank, index: 0 };
            node.hear_from(who, shape.of_rank(OfRank::Told, rank), 1, OTHERS)?;
        }
        rank += 1;
    }
    node.lanes.sync();
    let (mut piece, each) = (node.lanes.rank() as u64, Terms::WORDS / PIECE);
    while piece < shape.ranks() as u64 * each {
        rolled();
        let at = node.at(shape.of_rank(OfRank::Terms, (piece / each) as u32));
        let words = node.device.load_piece(HeapOffset(at.0 + piece % each * PIECE_BYTES));
        // SAFETY: eight words for each rank (`NormalCall`); this piece is this lane's.
        unsafe { tensor::write(node.call.said, piece, words) };
        piece += node.lanes.size() as u64;
    }
    Ok(())
}

/// Says to all that it gave up, as far as there is room.
#[inline(always)]
fn give_up<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) {
    let (shape, mut rank) = (&node.call.shape, 0);
    let own = shape.of_rank(OfRank::GaveUp, node.me);
    // The epoch, as this rank's own word has it, and why.
    let value = (node.word(own) >> 32) << 32 | node.call.number;
    while node.leads() && rank < afresh(shape.ranks()) {
        rolled();
        if rank != node.me {
            // Who is not reached waits for its own deadline, as for a rank that is gone.
            let _ = node.post((rank, 0), None, node.at(own), value, 0);
        }
        rank += 1;
    }
}

impl<P: Platform, L: Lanes> Node<'_, '_, P, L> {
    /// Refuses a message of a dispatch, by its header, that a rank sent by other terms than this one's.
    #[inline(always)]
    pub fn hold(&self, header: [u64; 2]) -> Result<(), Halt> {
        let [from, terms] = header;
        if terms == self.call.terms {
            return Ok(());
        }
        Err(Halt { role: Role::Differs, stop: Stop::told(from as u32 & RANK_MASK, terms as u32) })
    }

    /// Whether the rows of a combine message have weights and this rank has none, or none and it has. Leader only.
    #[inline(always)]
    pub fn odd(&self, at: At) -> bool {
        let (piece, number) = self.call.shape.weighed_at();
        let [low, high] = self.device.load_piece(HeapOffset(self.at(at).0 + piece));
        let word = if number & 2 == 0 { low } else { high };
        let weighed = (word >> (32 * (number & 1))) as u32;
        (weighed != 0) != weighs(self.call)
    }

    /// A rank has weights and this one has none, or none and this one has.
    #[inline(always)]
    pub fn weighed_otherwise(&self, rank: u32) -> Halt {
        let terms = CallTerms::combine(!weighs(self.call));
        Halt { role: Role::Differs, stop: Stop::told(rank, terms.bits() as u32) }
    }
}

/// Whether rows of a combine have weights, on a rank without rows as well.
#[inline(always)]
pub const fn weighs(call: &NormalCall) -> bool {
    CallTerms::from_bits(call.terms).topk != 0
}
