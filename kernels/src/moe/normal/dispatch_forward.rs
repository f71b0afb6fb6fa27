//! The role of a dispatch that hands tokens of a node on to the ranks of this one, and tells the node that its slots
//! were taken.

use super::call::FP8;
use super::node::{FULL, Node, POSTED, Turn, afresh, may_take};
use super::role::{Halt, Role};
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{HeapOffset, Lanes, PIECE_BYTES, Platform};
use shunt_layout::moe_normal::{ByLocal, ByNode, NOWHERE};

/// One turn: hands on a chunk at most.
#[inline(always)]
pub fn turn<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, from: u32) -> Result<Turn, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (channel, from) = (afresh(channel), afresh(from));
    let (shape, lanes) = (&node.call.shape, node.lanes);
    let (mut code, mut taken, mut may) = (Turn::Idle, 0, 0);
    if node.leads() {
        let word = |word| node.word(shape.by_node(word, channel, from));
        let until = word(ByNode::DispatchUntil);
        taken = word(ByNode::DispatchTaken);
        may = may_take(word(ByNode::DispatchTail), taken, until, shape.chunk);
        let owes = taken - word(ByNode::DispatchTold) >= shape.chunk as u64;
        code = match () {
            () if may > 0 || owes => Turn::Moved,
            () if taken == until => Turn::Done,
            () => Turn::Idle,
        };
    }
    match node.share(code as u64) {
        0 => return Ok(Turn::Done),
        1 => {}
        _ => return Ok(Turn::Idle),
    }
    let (mut taken, may) = (lanes.broadcast(taken, 0), lanes.broadcast(may, 0));
    let (first, end) = (taken, taken + may);
    while taken < end && hand_on(node, channel, from, taken)? {
        rolled();
        taken += 1;
    }
    let done = if node.leads() { told(node, channel, from, taken, taken != first) } else { POSTED };
    node.agree(Role::DispatchHead, shape.channels + channel, done)
}

/// Keeps what was taken, and returns the head where a chunk is owed. Leader only.
#[inline(always)]
fn told<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    from: u32,
    taken: u64,
    moved: bool,
) -> u64 {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let shape = &call.shape;
    node.set(shape.by_node(ByNode::DispatchTaken, channel, from), taken);
    let owed = taken - node.word(shape.by_node(ByNode::DispatchTold, channel, from));
    let turn = if moved { Turn::Moved as u64 } else { Turn::Idle as u64 };
    if owed < shape.chunk as u64 {
        return turn;
    }
    let word = shape.by_node(ByNode::DispatchHead, channel, node.node);
    let posted = if from == node.node {
        node.set(word, taken);
        POSTED
    } else {
        node.post((node.rank_of(from), shape.channels + channel), None, node.at(word), taken, 0)
    };
    match posted {
        POSTED => {}
        FULL => return turn,
        failed => return failed,
    }
    // Where that is, found again: no register holds it while the head is posted.
    node.set(shape.by_node(ByNode::DispatchTold, afresh(channel), from), taken);
    Turn::Moved as u64
}

/// Hands one token on to all ranks that it goes to, if there is room at each; whether there was.
#[inline(always)]
fn hand_on<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    from: u32,
    number: u64,
) -> Result<bool, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (shape, lanes) = (&call.shape, node.lanes);
    let at = node.at(shape.dispatch_come(channel, from, shape.far.slot(number)));
    // It is handed on in this rank's format, or not at all.
    node.hold(node.device.load_piece(at))?;
    let mask = mask(node, at);
    let room = !node.leads() || room(node, channel, mask);
    if node.share(room as u64) == 0 {
        return Ok(false);
    }
    let bytes = shape.dispatch_message(call.has(FP8));
    let mut local = 0;
    while local < afresh(shape.locals) {
        rolled();
        if mask >> local & 1 != 0 {
            // Each lane reads what it needs: the leader alone changes it, behind the barrier below.
            let pushed = node.word(shape.by_local(ByLocal::Pushed, channel, local));
            let slot = shape.near.slot(pushed);
            let to = node.near(local, shape.near_dispatch(channel, node.local, slot));
            let mut piece = lanes.rank() as u64 * PIECE_BYTES;
            while piece < bytes {
                rolled();
                let words = node.device.load_piece(HeapOffset(at.0 + piece));
                // SAFETY: a slot of the ring at that rank (`NormalCall::peers`), which has been taken.
                unsafe { node.device.store_piece_near(to + piece, words) };
                piece += lanes.size() as u64 * PIECE_BYTES;
            }
        }
        local += 1;
    }
    lanes.sync();
    if node.leads() {
        publish(node, channel, mask);
        record(node, channel, from, number, mask);
    }
    // Nobody reads a counter that the leader is about to change.
    lanes.sync();
    Ok(true)
}

/// The ranks of this node that a message goes to.
#[inline(always)]
fn mask<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, at: HeapOffset) -> u32 {
    let (mut mask, mut local) = (0, 0);
    while local < afresh(node.call.shape.locals) {
        rolled();
        let piece = HeapOffset(at.0 + node.call.shape.rows_at() + (local / 4) as u64 * PIECE_BYTES);
        let words = node.device.load_piece(piece);
        let word = if local & 2 == 0 { words[0] } else { words[1] };
        let row = (word >> (32 * (local & 1))) as u32;
        mask |= ((row != NOWHERE) as u32) << local;
        local += 1;
    }
    mask
}

/// Whether each of these ranks has room for one more. Leader only.
#[inline(always)]
fn room<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, mask: u32) -> bool {
    let shape = &node.call.shape;
    let (mut local, mut all) = (0, true);
    while local < afresh(shape.locals) {
        rolled();
        if mask >> local & 1 != 0 {
            let pushed = node.word(shape.by_local(ByLocal::Pushed, channel, local));
            let head = node.word(shape.by_local(ByLocal::Head, channel, local));
            all &= pushed.saturating_sub(head) < shape.near_slots as u64;
        }
        local += 1;
    }
    all
}

/// Tells each of these ranks that there is one more. Leader only.
#[inline(always)]
fn publish<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, mask: u32) {
    let (shape, mut local) = (&node.call.shape, 0);
    while local < afresh(shape.locals) {
        rolled();
        if mask >> local & 1 != 0 {
            let pushed = shape.by_local(ByLocal::Pushed, channel, local);
            let next = node.word(pushed) + 1;
            node.set(pushed, next);
            node.set_near(local, shape.by_local(ByLocal::Tail, channel, node.local), next);
        }
        local += 1;
    }
}

/// Keeps for the combine where a token went. Leader only.
#[inline(always)]
fn record<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, from: u32, number: u64, mask: u32) {
    let (call, shape) = (node.call, &node.call.shape);
    let until = node.word(shape.by_node(ByNode::DispatchUntil, channel, from));
    let row = from as u64 * shape.channels as u64 + channel as u64;
    // SAFETY: a word for each node and channel; a mask for each token that one of them may have (`NormalCall`), and no
    // more come than `arriving` says, which `begin` compared with that.
    unsafe {
        let arriving: u32 = tensor::read(call.arriving, row);
        let first = until - arriving as u64;
        tensor::write(call.forward, row * shape.part(shape.tokens) as u64 + number - first, mask);
    }
}
