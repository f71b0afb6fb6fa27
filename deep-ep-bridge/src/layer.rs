//! One MoE layer on one rank, each step of it held against the reference.

use crate::buffer::{Buffer, Combine, Dispatch, Handle, Received};
use crate::fault::MoeError;
use crate::reference::{Case, expert};
use crate::runner::Runner;
use crate::settings::Format;

/// What was not as the reference says; at most a few of each kind are told.
pub type Wrongs = Vec<String>;

/// Most that is told of one layer.
const TOLD: usize = 8;

/// How what experts made is sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As BF16, from memory of their own.
    #[default]
    Copied,
    /// As BF16, from where experts leave it.
    ZeroCopy,
    /// As LogFMT.
    LogFmt,
}

impl Manner {
    /// Zero copy, or copied.
    pub const fn zero_copy_if(is: bool) -> Self {
        if is { Self::ZeroCopy } else { Self::Copied }
    }
}

/// Sends this rank's part of a case.
///
/// # Errors
/// As [`Buffer::dispatch`].
pub fn send<R: Runner>(buffer: &mut Buffer<R>, case: &Case) -> Result<Dispatch, MoeError> {
    let rank = buffer.runner().rank() as usize;
    buffer.dispatch(&case.x[rank], &case.topk_index[rank], case.format)
}

/// A whole layer: dispatch, experts, combine. What is wrong with it.
///
/// # Errors
/// A fault.
pub fn run<R: Runner>(buffer: &mut Buffer<R>, case: &Case, manner: Manner) -> Result<Wrongs, MoeError> {
    let sent = send(buffer, case)?;
    let received = buffer.receive_dispatch(sent)?;
    let mut wrongs = check_received(buffer, case, &received);
    let sent = answer(buffer, case, received, manner)?;
    let combined = buffer.receive_combine(sent)?;
    wrongs.extend(match manner {
        Manner::LogFmt => check_logfmt(buffer, case, &combined),
        Manner::Copied | Manner::ZeroCopy => check_combined(buffer, case, &combined),
    });
    Ok(wrongs)
}

/// Experts make what they make, and it is sent back.
///
/// # Errors
/// As [`Buffer::combine`].
pub fn answer<R: Runner>(
    buffer: &mut Buffer<R>,
    case: &Case,
    received: Received,
    manner: Manner,
) -> Result<Combine, MoeError> {
    let rank = buffer.runner().rank();
    let made = experts(buffer, &received, rank);
    let weights = &case.topk_weights[rank as usize];
    match manner {
        Manner::Copied => buffer.combine(Some(&made), weights, received.handle),
        Manner::LogFmt => buffer.combine_logfmt(&made, weights, received.handle),
        Manner::ZeroCopy => {
            leave(buffer, &made, &received.handle)?;
            buffer.combine(None, weights, received.handle)
        }
    }
}

/// What the experts of this rank make of all rows that there are.
fn experts<R: Runner>(buffer: &Buffer<R>, received: &Received, rank: u32) -> Vec<u16> {
    let shape = buffer.shape();
    let (rows, hidden) = (shape.rows() as usize, shape.hidden as usize);
    let mut made = vec![0; shape.local_experts as usize * rows * hidden];
    for (local, count) in received.counts.iter().enumerate() {
        let number = u64::from(rank * shape.local_experts) + local as u64;
        for row in 0..*count as usize {
            let to = &mut made[(local * rows + row) * hidden..][..hidden];
            for (channel, to) in to.iter_mut().enumerate() {
                *to = expert(number, dequantised(buffer, received, local, row, channel));
            }
        }
    }
    made
}

/// What a channel of a row stands for.
fn dequantised<R: Runner>(
    buffer: &Buffer<R>,
    received: &Received,
    local: usize,
    row: usize,
    channel: usize,
) -> f32 {
    let shape = buffer.shape();
    let (rows, hidden) = (shape.rows() as usize, shape.hidden as usize);
    let number = (local * rows + row) * hidden + channel;
    if received.format == Format::Bf16 {
        let bits = (received.x[number / 4] >> (16 * (number % 4))) as u16;
        return f32::from_bits(u32::from(bits) << 16);
    }
    let code = received.x[number / 8].to_le_bytes()[number % 8];
    let (group, groups) = (channel / 128, hidden / 128);
    let scale = match received.format {
        Format::Fp8Exponents => {
            let word = received.scales[(local * groups / 4 + group / 4) * rows + row];
            f32::from_bits(u32::from(word.to_le_bytes()[group % 4]) << 23)
        }
        _ => f32::from_bits(received.scales[(local * groups + group) * rows + row]),
    };
    shunt_kernels::moe::number::from_fp8(code) * scale
}

/// Leaves what experts made where it is sent from.
fn leave<R: Runner>(buffer: &mut Buffer<R>, made: &[u16], handle: &Handle) -> Result<(), MoeError> {
    let shape = *buffer.shape();
    let (rows, hidden, base) = (shape.rows() as usize, shape.hidden as usize, buffer.next_combine_buffer()?);
    for (pair, range) in handle.ranges().iter().enumerate() {
        let (local, first, count) = (pair / shape.ranks as usize, range >> 32, range & 0xffff_ffff);
        for row in first as usize..(first + count) as usize {
            let to = base + (local * rows + row) as u64 * shape.combine_stride();
            let from = &made[(local * rows + row) * hidden..][..hidden];
            for (word, four) in from.chunks_exact(4).enumerate() {
                let value = (0..4).fold(0, |word, at| word | u64::from(four[at]) << (16 * at));
                // SAFETY: inside the send buffer, which lies in the heap; aligned; a NIC may still read it.
                let at =
                    unsafe { std::sync::atomic::AtomicU64::from_ptr((to + 8 * word as u64) as *mut u64) };
                at.store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Holds what came against what was sent, bit by bit.
pub fn check_received<R: Runner>(buffer: &Buffer<R>, case: &Case, received: &Received) -> Wrongs {
    let (shape, mask, rank) = (*buffer.shape(), buffer.mask(), buffer.runner().rank());
    let mut wrongs = Vec::new();
    for local in 0..shape.local_experts {
        let number = u64::from(rank * shape.local_experts + local);
        let mut rows = 0;
        for source in 0..shape.ranks {
            let chosen = if mask[source as usize] { Vec::new() } else { case.chosen(source, number) };
            let range = received.handle.rows(shape.ranks, local, source);
            rows += chosen.len();
            let at = format!("rank {rank}, expert {number}, from rank {source}");
            if range.len() != chosen.len() {
                wrongs.push(format!("{at}: got {} rows, expected {}", range.len(), chosen.len()));
                continue;
            }
            for (row, token) in range.zip(chosen) {
                let wrong = check_row(case, received, &shape, local as usize, row, (source, token));
                wrongs.extend(wrong.map(|what| format!("{at}, row {row}, token {token}: {what}")));
            }
        }
        let told = received.counts[local as usize] as usize;
        if told != rows {
            wrongs.push(format!("rank {rank}, expert {number}: {told} rows are told, expected {rows}"));
        }
    }
    wrongs.truncate(TOLD);
    wrongs
}

fn check_row(
    case: &Case,
    received: &Received,
    shape: &shunt_layout::moe::Shape,
    local: usize,
    row: usize,
    (source, token): (u32, u32),
) -> Option<String> {
    let rows = shape.rows() as usize;
    let told = received.handle.source()[local * rows + row];
    if told != token {
        return Some(format!("its index is {told}"));
    }
    let right = case.sent(source, token);
    let words = right.data.len() / 8;
    let found = &received.x[(local * rows + row) * words..][..words];
    let wrong = right.data.chunks(8).zip(found).position(|(right, found)| right != found.to_le_bytes());
    if let Some(word) = wrong {
        return Some(format!(
            "word {word} is {:#x}, expected {:x?}",
            found[word],
            &right.data[8 * word..][..8]
        ));
    }
    let scales = right.scales.len();
    let scale = |group: usize| received.scales[(local * scales + group) * rows + row];
    let wrong = (0..scales).find(|group| scale(*group) != right.scales[*group])?;
    Some(format!("scale {wrong} is {:#x}, expected {:#x}", scale(wrong), right.scales[wrong]))
}

/// Holds what was combined against the reference: its bits, and the exact sum within the bound.
pub fn check_combined<R: Runner>(buffer: &Buffer<R>, case: &Case, combined: &[u16]) -> Wrongs {
    let rank = buffer.runner().rank();
    let right = case.combined(rank, &buffer.mask());
    let mut wrongs = Vec::new();
    if right.len() != combined.len() {
        wrongs.push(format!("rank {rank}: {} channels combined, expected {}", combined.len(), right.len()));
    }
    for (number, (found, (bits, bound, exact))) in combined.iter().zip(right).enumerate() {
        let value = f64::from(f32::from_bits(u32::from(*found) << 16));
        let apart = (value - exact).abs();
        // A zero has two signs, and which of them a sum of nothing has is nobody's business.
        let same = *found == bits || value == 0.0 && bits & 0x7fff == 0;
        if !same || apart.is_nan() || apart > bound {
            let (token, channel) = (number / case.shape.hidden as usize, number % case.shape.hidden as usize);
            wrongs.push(format!(
                "rank {rank}, token {token}, channel {channel}: {found:#06x} ({value:e}), expected {bits:#06x} \
                 ({exact:e} within {bound:e})"
            ));
        }
        if wrongs.len() >= TOLD {
            break;
        }
    }
    wrongs
}

/// Holds what was combined from LogFMT against the reference: the exact sum within the bound.
pub fn check_logfmt<R: Runner>(buffer: &Buffer<R>, case: &Case, combined: &[u16]) -> Wrongs {
    let rank = buffer.runner().rank();
    let right = case.combined_logfmt(rank, &buffer.mask());
    if right.len() != combined.len() {
        return vec![format!("rank {rank}: {} channels combined, expected {}", combined.len(), right.len())];
    }
    let wrong = |(number, (found, (bound, exact))): (usize, (&u16, (f64, f64)))| {
        let value = f64::from(f32::from_bits(u32::from(*found) << 16));
        let (token, channel) = (number / case.shape.hidden as usize, number % case.shape.hidden as usize);
        let what = format!(
            "rank {rank}, token {token}, channel {channel}: {value:e}, expected {exact:e} within {bound:e}"
        );
        // What is no number is within no bound.
        let apart = (value - exact).abs();
        (apart.is_nan() || apart > bound).then_some(what)
    };
    combined.iter().zip(right).enumerate().filter_map(wrong).take(TOLD).collect()
}
