//! Options of enhanced connection establishment: what a device makes of those that are wanted.

use shunt_layout::mlx5::prm::qp::ece;

/// Options words; 0: the device has no enhanced connection establishment (`ece_support`).
///
/// No option changes what the software NIC does: links lose nothing but by faults, and what it does about those is in
/// [`Quirks`](crate::config::Quirks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ece(pub u32);

impl Ece {
    /// None.
    pub const NONE: Self = Self(0);

    /// Version 2: selective repeat.
    pub const REPEAT: Self = Self(0x2000_0001);

    /// Version 3: selective repeat, and these algorithms of congestion control.
    pub const fn with_control(algorithms: u8) -> Self {
        Self(0x3000_0001 | (algorithms as u32) << 1)
    }

    /// Capability `ece_support`.
    pub(crate) const fn is_there(self) -> bool {
        self.0 != 0
    }

    /// What is in force where that is wanted: options that both have, of the older version. `None`: no version of such
    /// words has these bits.
    pub(crate) fn reduced(self, wanted: u32) -> Option<u32> {
        let fields = |word: u32| {
            let word = word.to_be_bytes();
            [ece::VERSION, ece::CONGESTION_CONTROL, ece::SELECTIVE_REPEAT].map(|field| field.get(&word))
        };
        let ([has, controls, repeats], [version, control, repeat]) = (fields(self.0), fields(wanted));
        let known = [0x0, 0x0, 0x1];
        let bits = known.get(version as usize).copied().unwrap_or(0x1ff);
        if wanted & 0x0fff_ffff & !bits != 0 {
            return None;
        }
        let mut out = [0; 4];
        ece::VERSION.set(&mut out, has.min(version));
        ece::SELECTIVE_REPEAT.set(&mut out, repeat & repeats);
        // One algorithm is used.
        let common = control & controls;
        ece::CONGESTION_CONTROL.set(&mut out, if common == 0 { 0 } else { 1 << common.trailing_zeros() });
        let [_, upper, middle, lower] = out;
        let any = upper | middle | lower != 0;
        Some(if any { u32::from_be_bytes(out) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_have_is_in_force() {
        let new = Ece::with_control(0b110);
        for (wanted, met) in [
            (0, Some(0)),
            (0x3000_000d, Some(0x3000_0005)), // both algorithms: the first one
            (0x3000_0008, Some(0x3000_0008)),
            (0x3000_0002, Some(0)), // an algorithm it has not
            (0x2000_0001, Some(0x2000_0001)),
            (0x1000_0000, Some(0)), // version 1 has none
            (0x4000_0001, Some(0x3000_0001)),
            (0x2000_0002, None), // version 2 has no congestion control
            (0x0000_0001, None),
            (0x3000_0200, None),
        ] {
            assert_eq!(new.reduced(wanted), met, "{wanted:#x}");
        }
        assert_eq!(Ece::REPEAT.reduced(0x3000_0007), Some(0x2000_0001));
    }
}
