//! What experts make of a row, and the weighted sum of what comes back. Pure.

use shunt_kernels::moe::number::{from_bf16, to_bf16};

/// What an expert makes of channels: each times a number of the expert's own.
pub fn expert(expert: u32, channels: &[u8], made: &mut Vec<u8>) {
    let by = 1.0 + expert as f32 / 32.0;
    let one = |bits: &[u8; 2]| to_bf16(from_bf16(u16::from_le_bytes(*bits)) * by);
    made.extend(channels.as_chunks().0.iter().flat_map(|bits| one(bits).to_le_bytes()));
}

/// The sum of rows of BF16 channels, each times its weight: in 32-bit floats, in this order, rounded once at the end.
/// No rows make zeros.
pub fn weighted(rows: &[(f32, &[u8])], channels: usize) -> Vec<u16> {
    let mut sums = vec![0f32; channels];
    for (weight, row) in rows {
        for (sum, bits) in sums.iter_mut().zip(row.as_chunks().0) {
            *sum += from_bf16(u16::from_le_bytes(*bits)) * weight;
        }
    }
    sums.into_iter().map(to_bf16).collect()
}
