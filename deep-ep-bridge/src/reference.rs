//! What a MoE layer must compute, said again without messages, channels or bits: routing by table look-up, FP8 by the
//! nearest of all its values.

mod logfmt;

use crate::settings::Format;
use shunt_layout::moe::{SCALE_GROUP, Shape};

/// The one source of chance: splitmix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is above zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// From -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.below(1 << 24) as f32 - 8_388_608.0) / 8_388_608.0
    }
}

/// A token as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Channels as bytes.
    pub data: Vec<u8>,
    /// Scales as they are handed out, a word each; none for BF16.
    pub scales: Vec<u32>,
    /// What the bytes stand for.
    pub values: Vec<u32>,
}

/// One layer's input on all ranks.
#[derive(Clone, Debug)]
pub struct Case {
    /// Sizes.
    pub shape: Shape,
    /// Experts of a token.
    pub topk: u32,
    /// How tokens travel.
    pub format: Format,
    /// By rank: tokens in BF16.
    pub x: Vec<Vec<u16>>,
    /// By rank: experts of each token.
    pub topk_index: Vec<Vec<i64>>,
    /// By rank: their weights.
    pub topk_weights: Vec<Vec<f32>>,
    sent: Vec<Vec<Sent>>,
}

/// A BF16's value, by the format's definition.
pub(crate) fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest BF16 of a finite value: of two neighbours the nearer, of equally near ones the even one.
pub(crate) fn nearest_bf16(exact: f64) -> u16 {
    let down = ((exact as f32).to_bits() >> 16) as u16;
    let candidates = [down.wrapping_sub(1), down, down.wrapping_add(1)];
    let distance = |bits: u16| (f64::from(value(bits)) - exact).abs();
    let key = |bits: &u16| (distance(*bits), bits & 1);
    let finite =
        candidates.into_iter().filter(|bits| value(*bits).is_finite() && (bits ^ down) & 0x8000 == 0);
    finite.min_by(|a, b| key(a).partial_cmp(&key(b)).expect("finite")).unwrap_or(down)
}

/// All finite E4M3 that are not negative, by code.
fn fp8_values() -> [f32; 127] {
    std::array::from_fn(|code| {
        let (exponent, fraction) = ((code >> 3) as i32, (code & 7) as f32 / 8.0);
        if exponent == 0 { fraction * 2f32.powi(-6) } else { (1.0 + fraction) * 2f32.powi(exponent - 7) }
    })
}

/// The code of the nearest value; of equally near ones the even one.
fn nearest_fp8(table: &[f32; 127], exact: f32) -> u8 {
    let (sign, size) = (if exact.is_sign_negative() { 0x80 } else { 0 }, exact.abs());
    let above = table.partition_point(|value| *value < size);
    if above >= 126 && size >= 448.0 {
        return sign | 126;
    }
    if above == 0 {
        return sign;
    }
    let (low, high) = (size - table[above - 1], table[above] - size);
    let code = match low.total_cmp(&high) {
        std::cmp::Ordering::Less => above - 1,
        std::cmp::Ordering::Greater => above,
        std::cmp::Ordering::Equal => above - above % 2,
    };
    sign | code as u8
}

/// A token as it travels in `format`.
fn travel(table: &[f32; 127], x: &[u16], format: Format) -> Sent {
    if format == Format::Bf16 {
        let data = x.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        return Sent {
            data,
            scales: Vec::new(),
            values: x.iter().map(|bits| value(*bits).to_bits()).collect(),
        };
    }
    let (mut data, mut backs, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for group in x.chunks(SCALE_GROUP as usize) {
        let amax = group.iter().map(|bits| value(*bits).abs()).fold(1e-4f32, f32::max);
        let (mut by, mut back) = (448.0 / amax, amax * (1.0 / 448.0));
        if format != Format::Fp8 {
            back = 2f32.powi(f64::from(back).log2().ceil() as i32);
            by = 1.0 / back;
        }
        for bits in group {
            let code = nearest_fp8(table, value(*bits) * by);
            let size = table[(code & 0x7f) as usize];
            data.push(code);
            values.push((if code & 0x80 != 0 { -size } else { size } * back).to_bits());
        }
        backs.push(back);
    }
    let scales = match format {
        Format::Fp8Exponents => {
            let exponent = |back: &f32| (back.log2().round() as i32 + 127) as u32;
            backs
                .chunks(4)
                .map(|four| four.iter().rev().fold(0, |word, back| word << 8 | exponent(back)))
                .collect()
        }
        _ => backs.iter().map(|back| back.to_bits()).collect(),
    };
    Sent { data, scales, values }
}

/// What expert `expert` makes of a channel: something that tells experts and values apart.
pub fn expert(expert: u64, value: f32) -> u16 {
    nearest_bf16(f64::from(value) * (1.0 + expert as f64 / 32.0))
}

impl Case {
    /// Random tokens and routes: some tokens choose fewer experts than they may, or none; some experts are chosen by
    /// nobody; some ranks have no token.
    pub fn random(shape: Shape, topk: u32, format: Format, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let (experts, table) = (shape.experts(), fp8_values());
        // All, or some of them.
        let open: Vec<u64> = match chance.below(3) {
            0 => (0..experts).filter(|_| chance.below(2) == 0).collect(),
            _ => (0..experts).collect(),
        };
        let mut case = Self {
            shape,
            topk,
            format,
            x: Vec::new(),
            topk_index: Vec::new(),
            topk_weights: Vec::new(),
            sent: Vec::new(),
        };
        for _ in 0..shape.ranks {
            let tokens = match chance.below(4) {
                0 => chance.below(u64::from(shape.tokens) + 1),
                _ => u64::from(shape.tokens),
            };
            let channels = tokens * u64::from(shape.hidden);
            let mut x: Vec<u16> = Vec::with_capacity(channels as usize);
            let mut size = 1.0;
            for number in 0..channels {
                if number % SCALE_GROUP == 0 {
                    size = 2f32.powi(chance.below(24) as i32 - 12);
                }
                x.push(nearest_bf16(f64::from(chance.unit() * size)));
            }
            let routes = (0..tokens).flat_map(|_| route(&mut chance, &open, topk)).collect::<Vec<i64>>();
            case.topk_weights.push(routes.iter().map(|_| chance.unit().abs()).collect());
            case.topk_index.push(routes);
            let rows = x.chunks(shape.hidden as usize);
            case.sent.push(rows.map(|row| travel(&table, row, format)).collect());
            case.x.push(x);
        }
        case
    }

    /// The same routes and weights for other tokens.
    pub fn again(&self, seed: u64) -> Self {
        let (mut case, mut chance, table) = (self.clone(), Chance::new(seed), fp8_values());
        for (x, sent) in case.x.iter_mut().zip(&mut case.sent) {
            x.iter_mut().for_each(|bits| *bits = nearest_bf16(f64::from(chance.unit())));
            let rows = x.chunks(self.shape.hidden as usize);
            *sent = rows.map(|row| travel(&table, row, self.format)).collect();
        }
        case
    }

    /// The same with each channel that much smaller, a power of two.
    pub fn smaller(&self, by: f32) -> Self {
        let (mut case, table) = (self.clone(), fp8_values());
        for (x, sent) in case.x.iter_mut().zip(&mut case.sent) {
            x.iter_mut().for_each(|bits| *bits = nearest_bf16(f64::from(value(*bits) / by)));
            let rows = x.chunks(self.shape.hidden as usize);
            *sent = rows.map(|row| travel(&table, row, self.format)).collect();
        }
        case
    }

    /// Tokens of a rank.
    pub fn tokens(&self, rank: u32) -> usize {
        self.sent[rank as usize].len()
    }

    /// Tokens that `rank` sends to an expert, in the order of their slots.
    pub fn chosen(&self, rank: u32, expert: u64) -> Vec<u32> {
        let routes = self.topk_index[rank as usize].chunks(self.topk as usize);
        let chose = |(_, route): &(usize, &[i64])| route.contains(&(expert as i64));
        routes.enumerate().filter(chose).map(|(token, _)| token as u32).collect()
    }

    /// A token as it travels.
    pub fn sent(&self, rank: u32, token: u32) -> &Sent {
        &self.sent[rank as usize][token as usize]
    }

    /// Experts of a token, those of ranks that are left out aside, and their weights.
    fn parts(&self, rank: u32, token: usize, masked: &[bool]) -> Vec<(u64, f32)> {
        let at = token * self.topk as usize;
        let route = &self.topk_index[rank as usize][at..at + self.topk as usize];
        let weights = &self.topk_weights[rank as usize][at..at + self.topk as usize];
        route
            .iter()
            .zip(weights)
            .filter(|(index, _)| **index >= 0)
            .map(|(index, weight)| (*index as u64, *weight))
            .filter(|(expert, _)| !masked[(expert / u64::from(self.shape.local_experts)) as usize])
            .collect()
    }

    /// What a rank gets back, and how far each channel may be from the exact sum, which comes third. Ranks in `masked`
    /// count nothing.
    ///
    /// The bits are those of a sum in the order of the experts with 32-bit floats. The bound is half a step of BF16 and
    /// one rounding of 32 bits for each product and each sum.
    pub fn combined(&self, rank: u32, masked: &[bool]) -> Vec<(u16, f64, f64)> {
        let (mut out, hidden) = (Vec::new(), self.shape.hidden as usize);
        for token in 0..self.tokens(rank) {
            let parts = self.parts(rank, token, masked);
            let values = &self.sent(rank, token as u32).values;
            for channel in values.iter().take(hidden) {
                let made = |of: u64| value(expert(of, f32::from_bits(*channel)));
                let (mut sum, mut exact, mut size) = (0f32, 0f64, 0f64);
                for (of, weight) in &parts {
                    sum += made(*of) * weight;
                    let part = f64::from(made(*of)) * f64::from(*weight);
                    (exact, size) = (exact + part, size + part.abs());
                }
                let bound = exact.abs() / 256.0 + size * (self.topk + 1) as f64 / 8_388_608.0 + 1e-30;
                out.push((nearest_bf16(f64::from(sum)), bound, exact));
            }
        }
        out
    }
}

/// The experts of one token: different ones of `open`, some of the places empty.
fn route(chance: &mut Chance, open: &[u64], topk: u32) -> Vec<i64> {
    let mut left = open.to_vec();
    let none = chance.below(16) == 0;
    (0..topk)
        .map(|_| {
            if left.is_empty() || none || chance.below(8) == 0 {
                return -1;
            }
            let at = chance.below(left.len() as u64) as usize;
            left.swap_remove(at) as i64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_kernels::moe::number;

    #[test]
    fn kernels_and_reference_round_alike() {
        let (mut chance, table) = (Chance::new(7), fp8_values());
        for _ in 0..200_000 {
            let bits = chance.draw() as u32;
            let any = f32::from_bits(bits);
            if !any.is_finite() || any.abs() > 3e38 {
                continue;
            }
            assert_eq!(number::to_bf16(any), nearest_bf16(f64::from(any)), "{any:e}");
            let small = chance.unit() * 2f32.powi(chance.below(24) as i32 - 14);
            assert_eq!(number::to_fp8(small), nearest_fp8(&table, small), "{small:e}");
        }
        for bits in 0..=u16::MAX {
            let bf16 = value(bits);
            if bf16.is_finite() {
                assert_eq!(number::to_fp8(bf16), nearest_fp8(&table, bf16), "{bf16:e}");
            }
        }
    }

    #[test]
    fn cases_have_what_is_seldom() {
        let shape = Shape::new(4, 16, 8, 512).unwrap();
        let cases: Vec<Case> = (0..40).map(|seed| Case::random(shape, 4, Format::Bf16, seed)).collect();
        let any = |seldom: &dyn Fn(&Case) -> bool| cases.iter().any(seldom);
        assert!(any(&|case| (0..4).any(|rank| case.tokens(rank) == 0)), "a rank without tokens");
        assert!(any(&|case| (0..16).any(|expert| (0..4).all(|rank| case.chosen(rank, expert).is_empty()))));
        assert!(any(&|case| case.topk_index.iter().flatten().any(|index| *index < 0)));
        assert!(any(&|case| case.topk_index[0].chunks(4).any(|route| route.iter().all(|index| *index < 0))));
        for case in &cases {
            let routes = case.topk_index.iter().flat_map(|of| of.chunks(4));
            for route in routes {
                let mut chosen: Vec<_> = route.iter().filter(|index| **index >= 0).collect();
                chosen.sort();
                chosen.dedup();
                assert_eq!(chosen.len(), route.iter().filter(|index| **index >= 0).count());
            }
        }
    }
}
