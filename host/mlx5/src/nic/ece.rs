//! Enhanced connection establishment: the options that both ends of a connection use.
//!
//! A NIC says at CREATE_QP which it can have. Each end is told the other's with its half, so both work out the same
//! word and give it to INIT2RTR; the RDMA connection manager has the passive end's NIC reduce the active end's instead,
//! which takes one more message.

use shunt_layout::mlx5::prm::qp::ece;

/// Newest version whose fields are known.
const NEWEST: u32 = 3;
/// First with selective repeat.
const REPEATS: u32 = 2;
/// First with congestion control.
const CONTROLS: u32 = 3;

/// What both ends have: 0, for none, where one has none. Pure, and the same whichever end asks.
///
/// Not all of a word are bits of a mask. The version is the older one. Of the algorithms of congestion control one is
/// chosen, so that no NIC has to: two that choose for themselves might differ. Bits that no known version has are left
/// out, since nobody can say what they have in common.
pub fn common(own: u32, theirs: u32) -> u32 {
    let fields = |word: u32| {
        let word = word.to_be_bytes();
        [ece::VERSION, ece::SELECTIVE_REPEAT, ece::CONGESTION_CONTROL].map(|field| field.get(&word))
    };
    let ([own, repeats, controls], [theirs, repeat, control]) = (fields(own), fields(theirs));
    let version = own.min(theirs).min(NEWEST);
    let repeat = if version >= REPEATS { repeats & repeat } else { 0 };
    let both = if version >= CONTROLS { controls & control } else { 0 };
    let control = both & both.wrapping_neg();
    if repeat == 0 && control == 0 {
        return 0;
    }
    let mut word = [0; 4];
    ece::VERSION.set(&mut word, version);
    ece::SELECTIVE_REPEAT.set(&mut word, repeat);
    ece::CONGESTION_CONTROL.set(&mut word, control);
    u32::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_use_what_both_have() {
        for (own, theirs, met) in [
            (0x3000_0007, 0x3000_000d, 0x3000_0005),
            (0x3000_0007, 0x3000_0006, 0x3000_0002), // the first algorithm of two
            (0x3000_0007, 0x2000_0001, 0x2000_0001), // the older version
            (0x3000_0006, 0x2000_0006, 0),           // version 2 has no congestion control
            (0x3000_0003, 0x3000_0004, 0), // nothing in common: none, and not a version without options
            (0x3000_0003, 0x1000_0003, 0),
            (0x3000_0003, 0, 0),
            (0x3000_0003, 0x0000_0003, 0),
            (0x4000_0a01, 0x4000_0a01, 0x3000_0001), // a version to come
            (0xffff_ffff, 0xffff_ffff, 0x3000_0003),
        ] {
            assert_eq!(common(own, theirs), met, "{own:#x} {theirs:#x}");
            assert_eq!(common(theirs, own), met, "{theirs:#x} {own:#x}");
            assert_eq!(common(met, own), met, "{met:#x} {own:#x}: agreed before");
        }
    }
}
