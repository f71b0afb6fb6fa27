//! Variables that look like ours and are read by nothing: most are misspelt. Pure.

use crate::VARIABLES;

/// Variables of this prefix that other crates declare: the NVSHMEM library and the preloaded soft RDMA library.
pub const ELSEWHERE: &[&str] = &[
    "SHUNT_HEAP",
    "SHUNT_SOFT_RAILS",
    "SHUNT_CALL_DEADLINE",
    "SHUNT_SOFT_RDMA_NICS",
    "SHUNT_SOFT_RDMA_KIND",
    "SHUNT_SOFT_RDMA_ROCE",
    "SHUNT_SOFT_RDMA_RAIL_GBPS",
    "SHUNT_SOFT_RDMA_PROFILE",
    "SHUNT_SOFT_RDMA_FAULTS",
    "SHUNT_SOFT_RDMA_PCAP",
    "SHUNT_SOFT_RDMA_LIB",
    "SHUNT_SOFT_RDMA_LOG",
];

/// Names of NVSHMEM that its stand-in reads or knows.
const THEIRS: &[&str] = &[
    "NVSHMEM_BOOTSTRAP",
    "NVSHMEM_BOOTSTRAP_MPI_PLUGIN",
    "NVSHMEM_BOOTSTRAP_PMI",
    "NVSHMEM_BOOTSTRAP_UID_SESSION_ID",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY",
    "NVSHMEM_CONF_FILE",
    "NVSHMEM_CPU_AFFINITY",
    "NVSHMEM_CUDA_PATH",
    "NVSHMEM_CUMEM_GRANULARITY",
    "NVSHMEM_DEBUG_ATTACH_DELAY",
    "NVSHMEM_DEBUG_SUBSYS",
    "NVSHMEM_DISABLE_CUDA_VMM",
    "NVSHMEM_DISABLE_DATA_DIRECT",
    "NVSHMEM_DISABLE_GDRCOPY",
    "NVSHMEM_DISABLE_IB_NATIVE_ATOMICS",
    "NVSHMEM_DISABLE_LOCAL_ONLY_PROXY",
    "NVSHMEM_DISABLE_MNNVL",
    "NVSHMEM_DISABLE_NCCL",
    "NVSHMEM_DISABLE_NVLS",
    "NVSHMEM_DISABLE_P2P",
    "NVSHMEM_ENABLE_MULTI_PORT",
    "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF",
    "NVSHMEM_GPUNETIO_ENABLE_GDAKI",
    "NVSHMEM_G_BUF_SIZE",
    "NVSHMEM_HEAP_KIND",
    "NVSHMEM_IBGDA_CHECK_INTERVAL",
    "NVSHMEM_IBGDA_DCI_MAP_BY",
    "NVSHMEM_IBGDA_ENABLE_MULTI_PORT",
    "NVSHMEM_IBGDA_FAILURE_THRESHOLD",
    "NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE",
    "NVSHMEM_IBGDA_NIC_HANDLER",
    "NVSHMEM_IBGDA_NUM_DCI",
    "NVSHMEM_IBGDA_NUM_DCT",
    "NVSHMEM_IBGDA_NUM_FETCH_SLOTS_PER_DCI",
    "NVSHMEM_IBGDA_NUM_FETCH_SLOTS_PER_RC",
    "NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH",
    "NVSHMEM_IBGDA_NUM_SHARED_DCI",
    "NVSHMEM_IBGDA_RC_MAP_BY",
    "NVSHMEM_IB_ATOMIC_POLICY",
    "NVSHMEM_IB_DISABLE_DMABUF",
    "NVSHMEM_IB_ENABLE_IBGDA",
    "NVSHMEM_IB_ENABLE_RELAXED_ORDERING",
    "NVSHMEM_IB_FORCE_GRH",
    "NVSHMEM_IB_NUM_RC_PER_DEVICE",
    "NVSHMEM_IB_PKEY_INDEX",
    "NVSHMEM_IB_ROUTABLE_FLID_GID_INDEX",
    "NVSHMEM_INFO",
    "NVSHMEM_MAX_CTAS",
    "NVSHMEM_MAX_MEMORY_PER_GPU",
    "NVSHMEM_MAX_NICS_PER_PE",
    "NVSHMEM_MAX_TEAMS",
    "NVSHMEM_NETDEVS_POLICY",
    "NVSHMEM_REGION_DEVICE_BATCH_THRESHOLD",
    "NVSHMEM_REGION_HOST_BATCH_MAX_OPS",
    "NVSHMEM_REGION_MAX_SLOTS",
    "NVSHMEM_REMOTE_TRANSPORT",
    "NVSHMEM_SRQ_DEPTH",
    "NVSHMEM_SYMMETRIC_SIZE",
];

/// The known name with the fewest letters between it and this one, if they are few.
pub fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let near = known.map(|known| (strsim::levenshtein(name, known), known));
    near.min().filter(|(letters, known)| *letters <= 1 + known.len() / 6).map(|(_, known)| known)
}

/// Letters that make a name of NVSHMEM's a misspelt one: others of its names differ from ours by three or more.
const SLIPS: usize = 2;

/// A line for each of these names that begins with `SHUNT_` and that nothing reads, and for those that begin with
/// `NVSHMEM_` and are one that is known but for a letter or two: of others NVSHMEM itself may have more than we know.
pub fn unread(names: impl Iterator<Item = String>) -> Vec<String> {
    let known =
        || VARIABLES.iter().map(|variable| variable.name).chain(ELSEWHERE.iter().chain(THEIRS).copied());
    let line = |name: String| match nearest(&name, known()) {
        _ if known().any(|known| known == name) => None,
        Some(meant)
            if name.starts_with("SHUNT_")
                || name.starts_with("NVSHMEM_") && strsim::levenshtein(&name, meant) <= SLIPS =>
        {
            Some(format!("{name} is not read: did you mean {meant}?"))
        }
        None if name.starts_with("SHUNT_") => Some(format!("{name} is not read: `shunt env` lists what is")),
        _ => None,
    };
    names.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_named_with_the_one_it_may_have_been() {
        let names = [
            "PATH",
            "SHUNT_GIVEUP",
            "SHUNT_GIVE_UP",
            "SHUNT_HEAP",
            "SHUNT_WHATEVER_ELSE",
            "NVSHMEM_SYMETRIC_SIZE",
            "NVSHMEM_IBGDA_NUM_DCT",
            "NVSHMEM_OF_A_LATER_VERSION",
            "NVSHMEM_SRQ_DEPTH",
            "XSHUNT_GIVE_UP",
        ];
        let said = unread(names.iter().map(|name| (*name).to_owned()));
        let expected = [
            "SHUNT_GIVEUP is not read: did you mean SHUNT_GIVE_UP?",
            "SHUNT_WHATEVER_ELSE is not read: `shunt env` lists what is",
            "NVSHMEM_SYMETRIC_SIZE is not read: did you mean NVSHMEM_SYMMETRIC_SIZE?",
        ];
        assert_eq!(said, expected);
    }
}
