//! LogFMT-10 said again in doubles: each value comes back as the nearest of the 511 magnitudes between its group's
//! least and largest, or of zero.

use super::{Case, expert, value};
use shunt_layout::moe::SCALE_GROUP;

/// How far 32-bit logarithms may put a value beside its code's, of its size.
const ROUNDINGS: f64 = 1e-5;

/// How far each of a group's values may come back from what it was.
fn errors(group: &[f64]) -> Vec<f64> {
    let sizes = || group.iter().map(|value| value.abs());
    let largest = sizes().fold(0.0, f64::max);
    if largest >= 1.0 || largest == 0.0 {
        return vec![0.0; group.len()];
    }
    let least = sizes().filter(|size| *size > 0.0).fold(largest, f64::min).max(largest * 2f64.powi(-32));
    let step = (largest / least).powf(1.0 / 510.0);
    let magnitudes: Vec<f64> =
        std::iter::once(0.0).chain((0..511).map(|code| least * step.powi(code))).collect();
    let nearest = |size: f64| {
        let above = magnitudes.partition_point(|magnitude| *magnitude < size).min(511);
        (magnitudes[above] - size).abs().min((size - magnitudes[above.saturating_sub(1)]).abs())
    };
    sizes().map(|size| 1.001 * nearest(size) + ROUNDINGS * size).collect()
}

impl Case {
    /// As [`Case::combined`], where what experts made travels as LogFMT: how far each channel may be from the exact
    /// sum, which comes second. Each value is bound to come back as the nearest that its group has.
    pub fn combined_logfmt(&self, rank: u32, masked: &[bool]) -> Vec<(f64, f64)> {
        let mut out = Vec::new();
        for token in 0..self.tokens(rank) {
            let parts = self.parts(rank, token, masked);
            for group in self.sent(rank, token as u32).values.chunks(SCALE_GROUP as usize) {
                let mut channels = vec![(1e-30, 0.0, 0.0); group.len()];
                for (of, weight) in &parts {
                    let made = |bits: &u32| f64::from(value(expert(*of, f32::from_bits(*bits))));
                    let made: Vec<f64> = group.iter().map(made).collect();
                    for ((made, error), channel) in made.iter().zip(errors(&made)).zip(&mut channels) {
                        let part = made * f64::from(*weight);
                        let error: f64 = error * f64::from(*weight).abs();
                        *channel = (channel.0 + error, channel.1 + part, channel.2 + part.abs());
                    }
                }
                let half_a_step = |(bound, exact, size): (f64, f64, f64)| {
                    let roundings = size * (self.topk + 1) as f64 / 8_388_608.0;
                    (bound + (exact.abs() + bound) / 256.0 + roundings, exact)
                };
                out.extend(channels.into_iter().map(half_a_step));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Chance, nearest_bf16};
    use super::*;
    use shunt_kernels::moe::logfmt::{Codes, Range};

    /// The squared size of what two vectors differ in, of their mean size: DeepEP's measure.
    fn difference(a: &[f64], b: &[f64]) -> f64 {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        1.0 - 2.0 * dot(a, b) / (dot(a, a) + dot(b, b))
    }

    /// About normal, by the sum of twelve.
    fn normal(chance: &mut Chance) -> f64 {
        (0..12).map(|_| f64::from(chance.unit())).sum::<f64>() / 2.0
    }

    #[test]
    fn kernels_take_the_nearest_and_stay_within_the_bound_of_deep_eps_test() {
        let mut chance = Chance::new(11);
        let (mut all, mut back) = (Vec::new(), Vec::new());
        for number in 0..4000 {
            let scale = if number % 2 == 0 { 0.1 } else { 2f64.powi(-(chance.below(60) as i32)) / 8.0 };
            let bits: Vec<u16> = (0..128).map(|_| nearest_bf16(normal(&mut chance) * scale)).collect();
            let range = bits.iter().fold(Range::NONE, |range, bits| range.with(*bits));
            assert!(range.fits());
            let codes = Codes::of(range.word());
            let group: Vec<f64> = bits.iter().map(|bits| f64::from(value(*bits))).collect();
            for ((bits, exact), error) in bits.iter().zip(&group).zip(errors(&group)) {
                let met = f64::from(codes.value(codes.code(*bits)));
                assert!(
                    (met - exact).abs() <= error,
                    "{exact:e} came back as {met:e}, {error:e} apart at most"
                );
                if number % 2 == 0 {
                    all.push(*exact);
                    back.push(met);
                }
            }
        }
        let apart = difference(&all, &back);
        assert!(apart > 0.0 && apart < 1e-5, "{apart:e}");
    }
}
