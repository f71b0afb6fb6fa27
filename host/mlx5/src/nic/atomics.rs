//! What a NIC's atomics are good for, by its capabilities. PRM: "QUERY_HCA_CAP", atomic capabilities. Pure.

use super::execute;
use crate::devx::Devx;
use crate::error::NicError;
use shunt_layout::mlx5::prm::caps::{
    ATOMIC, ATOMIC_COMPARE_SWAP, ATOMIC_FETCH_ADD, ATOMIC_MASKED_COMPARE_SWAP, ATOMIC_MASKED_FETCH_ADD,
    CAPABILITY_OFFSET, OUT_BYTES, atomic,
};

const PLAIN: u32 = ATOMIC_COMPARE_SWAP | ATOMIC_FETCH_ADD;
const MASKED: u32 = ATOMIC_MASKED_COMPARE_SWAP | ATOMIC_MASKED_FETCH_ADD;
/// 8 bytes, in `atomic_size_qp`.
const EIGHT_BYTES: u32 = 8;
/// `atomic_req_8B_endianness_mode`: answers of 8 bytes come in the host's order.
const HOST_ORDER: u32 = 1;

/// Atomics that a NIC can do, all with answers in the host's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomics {
    /// Masked ones: of 4 bytes, of single bits, stores and exchanges, and signals where writes land in any order.
    pub masked: bool,
}

/// The raw fields of the capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raw {
    operations: u32,
    sizes: u32,
    endianness: u32,
}

/// What they are good for, or what of them is unfit: the name, what was met, what is right, what to do.
fn judge(raw: Raw) -> Result<Atomics, (&'static str, String, &'static str, &'static str)> {
    let Raw { operations, sizes, endianness } = raw;
    if operations & PLAIN != PLAIN || sizes & EIGHT_BYTES == 0 {
        return Err((
            "atomic operations",
            format!("operations {operations:#x} of sizes {sizes:#x}"),
            "compare-and-swap and fetch-and-add of 8 bytes (0x3, 0x8)",
            "take another NIC or function",
        ));
    }
    if endianness != HOST_ORDER {
        return Err((
            "atomic_req_8B_endianness_mode",
            format!("{endianness} (answers of 8 bytes come big-endian)"),
            "1 (host order)",
            "mlx5_core sets it where the firmware lets it: update the firmware, or take another NIC or function",
        ));
    }
    Ok(Atomics { masked: operations & MASKED == MASKED })
}

impl Atomics {
    /// Queries the NIC.
    ///
    /// # Errors
    /// `Unfit`: fetched values would be wrong, or nothing could be added at all.
    pub fn query(devx: &dyn Devx) -> Result<Self, NicError> {
        let output = execute::<OUT_BYTES>(devx, &super::query_group_in(ATOMIC))?;
        let caps = &output[CAPABILITY_OFFSET..];
        let raw = Raw {
            operations: atomic::ATOMIC_OPERATIONS.get(caps),
            sizes: atomic::ATOMIC_SIZE_QP.get(caps),
            endianness: atomic::REQ_8B_ENDIANNESS_MODE.get(caps),
        };
        judge(raw).map_err(|(what, met, want, cure)| NicError::Unfit {
            nic: devx.name(),
            what,
            met,
            want,
            cure,
        })
    }

    /// What is weaker on this NIC, for the log; `None` if nothing is.
    pub fn weaker(self) -> Option<&'static str> {
        (!self.masked).then_some(
            "it has no masked atomics: those of 4 bytes, and swap, set, and, or and xor of 8, are refused where they \
             are posted; SHUNT_ORDERING=unordered is refused",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Raw = Raw { operations: 0xf, sizes: 0xc, endianness: 1 };

    #[test]
    fn answers_in_the_wrong_order_and_missing_atomics_are_refused() {
        assert_eq!(judge(GOOD), Ok(Atomics { masked: true }));
        for (raw, what, met) in [
            (Raw { endianness: 0, ..GOOD }, "atomic_req_8B_endianness_mode", "0 (answers"),
            (Raw { operations: 0xd, ..GOOD }, "atomic operations", "operations 0xd of sizes 0xc"),
            (Raw { sizes: 0x4, ..GOOD }, "atomic operations", "operations 0xf of sizes 0x4"),
        ] {
            let (name, text, _, cure) = judge(raw).unwrap_err();
            assert!(name == what && text.contains(met) && cure.contains("another NIC"), "{text}");
        }
    }

    #[test]
    fn a_nic_without_masked_atomics_says_what_is_weaker() {
        for operations in [0x3, 0x7, 0xb] {
            let atomics = judge(Raw { operations, ..GOOD }).unwrap();
            assert!(!atomics.masked && atomics.weaker().is_some(), "{operations:#x}");
        }
        assert_eq!(judge(GOOD).unwrap().weaker(), None);
    }
}
