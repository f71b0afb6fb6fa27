//! The steps of bring-up between cards and upload: halves made, exchanged, connected; rows of the tables.

use super::config::{Bringup, PeConfig};
use super::resources::{ChannelResources, PathSlot};
use crate::connect::bootstrap::Bootstrap;
use crate::connect::card::{HalfCard, KeyRows, PeCard, RailCard, halves_from_bytes, halves_to_bytes};
use crate::error::{CardError, StartError};
use crate::keys::{KeyShape, KeyTable};
use crate::nic::half::HalfPath;
use crate::nic::qp::MASK_24;
use crate::plan::{Bases, Plan, Shape, SlotId};
use crate::rail::Rail;
use crate::slots::{End, rank};
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};
use shunt_layout::state::{OrderPolicy, PathRow, PathState};
use std::sync::{Arc, OnceLock};

/// Incarnation of everything made at start; 0 stays for "never made".
pub(super) const FIRST_INCARNATION: u32 = 1;

/// Whether there are threads to share work with. Where the system gives none, one does it all.
fn has_pool() -> bool {
    static POOL: OnceLock<bool> = OnceLock::new();
    *POOL.get_or_init(|| match rayon::ThreadPoolBuilder::new().build_global() {
        Ok(()) => true,
        // A pool that somebody else has made has no cause; a thread that could not be started has.
        Err(error) => std::error::Error::source(&error).is_none(),
    })
}

/// Does something to each item; the first failure ends it.
pub(super) fn for_each<T: Send>(
    bringup: Bringup,
    items: &mut [T],
    f: impl Fn(&mut T) -> Result<(), StartError> + Sync + Send,
) -> Result<(), StartError> {
    match bringup {
        Bringup::Parallel if has_pool() => items.par_iter_mut().try_for_each(f),
        Bringup::Parallel | Bringup::Sequential => items.iter_mut().try_for_each(f),
    }
}

/// All channels with their ranked slots and rings, nothing made yet.
pub(super) fn layout(plan: &Plan, bases: Bases, cards: &[PeCard]) -> Vec<ChannelResources> {
    let shape = plan.shape;
    let end = |pe: u32| End { pe, rails: cards[pe as usize].rails.len() as u32 };
    let slots = |peer: u32, channel: u32| {
        let pairs = rank(end(shape.me), end(peer), channel);
        pairs
            .into_iter()
            .take(shape.slots as usize)
            .zip(0..)
            .map(|(pair, slot)| PathSlot {
                local_rail: pair.local,
                remote_rail: pair.remote,
                rings: plan.ring_span(bases, SlotId { peer, channel, slot }),
                half: None,
                remote: None,
            })
            .collect()
    };
    (0..shape.pes * shape.channels_per_pe)
        .map(|row| (row / shape.channels_per_pe, row % shape.channels_per_pe))
        .map(|(peer, index)| ChannelResources {
            peer,
            index,
            slots: if peer == shape.me { Vec::new() } else { slots(peer, index) },
        })
        .collect()
}

/// A first PSN that differs from path to path and from end to end, so that wraps happen early and everywhere.
pub(crate) fn first_psn(me: u32, peer: u32, channel: u32, slot: usize) -> u32 {
    let words = [me, peer, channel, slot as u32, FIRST_INCARNATION];
    let mixed = words
        .iter()
        .fold(0x9e37_79b9u32, |hash, word| (hash ^ word).wrapping_mul(0x85eb_ca6b).rotate_left(13));
    mixed & MASK_24
}

/// Paths of a channel that bring-up makes itself.
fn made_now(config: &PeConfig, channel: &ChannelResources) -> usize {
    if config.backups_later { channel.slots.len().min(1) } else { channel.slots.len() }
}

/// Makes this PE's half of every path that is not left to the agents.
pub(super) fn create(
    config: &PeConfig,
    rails: &[Arc<Rail>],
    me: u32,
    channels: &mut [ChannelResources],
) -> Result<(), StartError> {
    for_each(config.bringup, channels, |channel| {
        for slot in 0..made_now(config, channel) {
            let psn = first_psn(me, channel.peer, channel.index, slot);
            let path = &mut channel.slots[slot];
            let rail = &rails[path.local_rail as usize];
            let half = HalfPath::create(rail, &path.rings, config.log_depth, FIRST_INCARNATION, psn)?;
            path.half = Some(half);
        }
        Ok(())
    })
}

/// Exchanges the halves' cards: each PE is given those that lead to it, and no others. All of them are as many as the
/// square of the job.
pub(super) fn exchange_halves(
    config: &PeConfig,
    plan: &Plan,
    cards: &[PeCard],
    bootstrap: &dyn Bootstrap,
    channels: &mut [ChannelResources],
) -> Result<(), StartError> {
    let shape = plan.shape;
    let per_peer = shape.channels_per_pe as usize;
    let row = |channels: &[ChannelResources]| {
        let mut row = Vec::with_capacity(per_peer * shape.slots as usize);
        for channel in channels {
            let cards = channel.slots.iter().map(|slot| slot.half.as_ref().map(HalfPath::card));
            row.extend(cards.chain(std::iter::repeat(None)).take(shape.slots as usize));
        }
        halves_to_bytes(&row)
    };
    let rows = channels.chunks(per_peer).map(row).collect();
    for (bytes, pe) in bootstrap.exchange(rows)?.into_iter().zip(0..) {
        let halves = halves_from_bytes(&bytes).map_err(|error| StartError::Card { pe, error })?;
        if halves.len() != per_peer * shape.slots as usize {
            let (met, want) = (halves.len() as u64, "a half for each slot of its channels to this PE");
            return Err(StartError::Card { pe, error: CardError::Value { field: "halves", met, want } });
        }
        let rows = &cards[pe as usize].rails;
        for channel in channels.iter_mut().filter(|channel| channel.peer == pe) {
            take_halves(config, &shape, rows, &halves, channel)?;
        }
    }
    Ok(())
}

/// The other halves of a channel, out of those that its peer has made towards this PE.
fn take_halves(
    config: &PeConfig,
    shape: &Shape,
    rails: &[RailCard],
    halves: &[Option<HalfCard>],
    channel: &mut ChannelResources,
) -> Result<(), StartError> {
    let (pe, index, count) = (channel.peer, channel.index, made_now(config, channel));
    for (path, slot) in channel.slots.iter_mut().take(count).zip(0..) {
        let row = index * shape.slots + slot;
        let fits = halves[row as usize].filter(|card| {
            card.rail == rails[path.remote_rail as usize] && card.incarnation == FIRST_INCARNATION
        });
        path.remote = Some(fits.ok_or(StartError::Card {
            pe,
            error: CardError::Value {
                field: "half",
                met: row.into(),
                want: "a half on the rail both ends ranked",
            },
        })?);
    }
    Ok(())
}

/// Connects every path to its other half.
pub(super) fn connect(config: &PeConfig, channels: &mut [ChannelResources]) -> Result<(), StartError> {
    for_each(config.bringup, channels, |channel| {
        for path in &mut channel.slots {
            if let (Some(half), Some(remote)) = (&mut path.half, &path.remote) {
                half.connect(remote, &config.tuning)?;
            }
        }
        Ok(())
    })
}

/// The key tables of this PE, of all PEs' keys.
pub(super) fn keys(
    config: &PeConfig,
    shape: &Shape,
    rows: &[KeyRows],
    ordering: OrderPolicy,
) -> Result<KeyTable, StartError> {
    let theirs: Vec<_> = rows.iter().map(|rows| rows.all.clone()).collect();
    // A rail without keys of their own has the same for all.
    let of_rail = |(data, all): (&Vec<u32>, &Vec<u32>)| match ordering {
        OrderPolicy::Relaxed | OrderPolicy::Unordered if !data.is_empty() => data.clone(),
        _ => all.clone(),
    };
    let of_pe = |rows: &KeyRows| rows.data.iter().zip(&rows.all).map(of_rail).collect();
    let data: Vec<Vec<Vec<u32>>> = rows.iter().map(of_pe).collect();
    let mine = theirs.get(shape.me as usize).cloned().unwrap_or_default();
    let key_shape = KeyShape { rails: shape.rails, chunks: shape.chunks, log2_chunk: config.log2_chunk };
    Ok(KeyTable::build(key_shape, shape.me, &mine, &theirs, &data)?)
}

/// Every row of the path table: what was connected is ready, what agents are to make is released; the rest is absent.
pub(super) fn path_rows(plan: &Plan, channels: &[ChannelResources], now: u64) -> Vec<PathRow> {
    let row = |path: &PathSlot| match (&path.half, &path.remote) {
        (Some(half), Some(remote)) => {
            PathRow { state: PathState::Ready as u32, ready_since_ns: now, ..half.path_row(remote) }
        }
        _ => PathRow {
            state: PathState::Released as u32,
            local_rail: path.local_rail,
            remote_rail: path.remote_rail,
            ..ABSENT
        },
    };
    let padded = |channel: &ChannelResources| {
        let rows: Vec<_> = channel.slots.iter().map(row).collect();
        rows.into_iter().chain(std::iter::repeat(ABSENT)).take(plan.shape.slots as usize)
    };
    channels.iter().flat_map(padded).collect()
}

/// A row of a slot that leads nowhere.
const ABSENT: PathRow = PathRow {
    send_queue: 0,
    completion_queue: 0,
    reserved1: 0,
    doorbell_record: 0,
    doorbell_register: 0,
    base: 0,
    qpn_shifted: 0,
    log_depth: 0,
    local_rail: 0,
    remote_rail: 0,
    state: shunt_layout::state::PathState::Absent as u32,
    incarnation: 0,
    next_index: 0,
    ready_since_ns: 0,
    first_cause: 0,
    reserved: 0,
    pad0: [0; 4],
    identity: shunt_layout::state::PathIdentity::EMPTY,
    pad1: [0; 5],
};
