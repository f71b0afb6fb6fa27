//! Which kind of doorbell page is asked for, and where its register lies. Pure.

use crate::devx::UarPage;
use shunt_layout::mlx5::doorbell::UAR_PAGE_BYTES;
use shunt_mlx5_sys::{MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC};

/// Flag of `mlx5dv_devx_alloc_uar` for an uncached page of the caller's own. rdma-core: `mlx5dv.h`,
/// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`.
const NC_DEDICATED: u32 = 1 << 31;

/// Kinds of doorbell pages, by name and flag, in the order they are asked for.
///
/// An uncached page of one's own comes first: a doorbell leaves at once, and no other queue pair writes that register.
/// A page with BlueFlame registers is next; one of them serves as a doorbell. The last is the uncached page that all
/// queue pairs of a process share: valid, since the value names the queue pair, but all of them write one register.
pub(super) const KINDS: [(&str, u32); 3] = [
    ("dedicated", NC_DEDICATED),
    ("BlueFlame", MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF),
    ("shared", MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC),
];

/// The first kind that `give` gives, or what it said of each.
pub(super) fn first_given<T>(mut give: impl FnMut(u32) -> Result<T, String>) -> Result<T, String> {
    let mut refusals = Vec::new();
    for (name, flag) in KINDS {
        match give(flag) {
            Ok(given) => return Ok(given),
            Err(refusal) => refusals.push(format!("{name}: {refusal}")),
        }
    }
    Err(format!(
        "expected a dedicated, BlueFlame or shared page, got {}; use fewer channels (NVSHMEM_IBGDA_NUM_RC_PER_PE)",
        refusals.join("; ")
    ))
}

/// The page around a register. A page of 4 KiB has more than one BlueFlame register (0x800, 0xa00, ..., rdma-core's
/// `bf_regs`), so the page is where the register's address is rounded down to, and the register keeps its offset.
pub(super) fn page_of(id: u32, register: u64) -> UarPage {
    UarPage { id, address: register & !(UAR_PAGE_BYTES as u64 - 1), register }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(refused: usize) -> (Vec<u32>, Result<u32, String>) {
        let mut asked = Vec::new();
        let given = first_given(|flag| {
            asked.push(flag);
            if asked.len() > refused { Ok(flag) } else { Err(format!("refusal {}", asked.len())) }
        });
        (asked, given)
    }

    #[test]
    fn a_page_of_ones_own_comes_first_and_the_shared_one_last() {
        assert_eq!(asked(0), (vec![1 << 31], Ok(1 << 31)));
        assert_eq!(asked(1), (vec![1 << 31, 0], Ok(0)));
        assert_eq!(asked(2), (vec![1 << 31, 0, 1], Ok(1)));
    }

    #[test]
    fn every_refusal_of_a_page_is_told() {
        let want = "expected a dedicated, BlueFlame or shared page, got dedicated: refusal 1; BlueFlame: refusal 2; \
            shared: refusal 3; use fewer channels (NVSHMEM_IBGDA_NUM_RC_PER_PE)";
        assert_eq!(asked(3).1, Err(want.into()));
    }

    /// The second register of a BlueFlame page lies at 0xa00: 0x800 below it is no page.
    #[test]
    fn each_register_of_a_page_leads_to_that_page() {
        for offset in [0x800, 0xa00, 0xc00, 0xe00] {
            let page = page_of(7, 0x7f00_0000_5000 + offset);
            assert_eq!((page.id, page.address, page.register - page.address), (7, 0x7f00_0000_5000, offset));
        }
    }
}
