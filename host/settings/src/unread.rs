//! Variables that look like ours and are read by nothing: most are misspelt. Pure.

use crate::VARIABLES;

/// Variables of this prefix that other crates declare: the NVSHMEM library and the preloaded soft RDMA library.
pub const ELSEWHERE: &[&str] = &[
    "SHUNT_HEAP",
    "SHUNT_SOFT_RAILS",
    "SHUNT_CALL_DEADLINE",
    "SHUNT_SOFT_RDMA_NICS",
    "SHUNT_SOFT_RDMA_ROCE",
    "SHUNT_SOFT_RDMA_RAIL_GBPS",
    "SHUNT_SOFT_RDMA_PROFILE",
    "SHUNT_SOFT_RDMA_FAULTS",
    "SHUNT_SOFT_RDMA_PCAP",
    "SHUNT_SOFT_RDMA_LIB",
    "SHUNT_SOFT_RDMA_LOG",
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
    let known = || VARIABLES.iter().map(|variable| variable.name).chain(ELSEWHERE.iter().copied());
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
