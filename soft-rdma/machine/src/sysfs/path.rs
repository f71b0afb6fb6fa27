//! Which paths are those of soft devices.

use super::private::PREFIX;

/// Paths of soft devices begin like this. The PCI domain is one that no machine has.
const OURS: [&str; 6] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/devices/pci5348:00",
    "/dev/infiniband",
    "/sys/class/misc/rdma_cm",
    "/sys/bus/pci/devices/5348:",
];

/// True for an absolute path that leads to soft devices rather than to the machine's own. Says so without allocating,
/// and without looking whether there is such a file: every open of the program asks.
pub fn is_ours(path: &[u8]) -> bool {
    OURS.iter().any(|ours| {
        let Some(rest) = path.strip_prefix(ours.as_bytes()) else { return false };
        rest.is_empty() || rest[0] == b'/' || ours.ends_with(':')
    })
}

/// What a path in a tree stands for: any tree, of this process or another, by how they are named. `None` for others.
pub fn shown(path: &[u8]) -> Option<&[u8]> {
    const FABRIC: &[u8] = b"/fabric-";
    let at = path.windows(FABRIC.len()).rposition(|part| part == FABRIC)?;
    let mut parts = path[at + 1..].splitn(3, |byte| *byte == b'/');
    let (fabric, tree) = (parts.next()?, parts.next()?);
    if !tree.starts_with(PREFIX.as_bytes()) {
        return None;
    }
    let rest = at + 1 + fabric.len() + 1 + tree.len();
    Some(if rest == path.len() { b"/" } else { &path[rest..] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband_verbs/uverbs0/dev",
            "/sys/devices/pci5348:00/5348:00:00.0/vendor",
            "/sys/bus/pci/devices/5348:00:00.0/numa_node",
            "/dev/infiniband/uverbs0",
        ] {
            assert!(is_ours(path.as_bytes()), "{path}");
        }
        for path in
            ["", "/", "/sys", "/sys/class", "/sys/class/infiniband_mad", "/sys/bus/pci/devices", "/dev/x"]
        {
            assert!(!is_ours(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn paths_in_trees() {
        let of = |path: &'static str| shown(path.as_bytes()).map(|shown| std::str::from_utf8(shown).unwrap());
        assert_eq!(of("/run/shunt/fabric-a/sysfs-7/sys/class/infiniband"), Some("/sys/class/infiniband"));
        assert_eq!(of("/x/fabric-x/fabric-a/sysfs-7-1/dev"), Some("/dev"));
        assert_eq!(of("/x/fabric-a/sysfs-7"), Some("/"));
        for other in ["", "/", "/sys/class", "/x/fabric-a", "/x/fabric-a/fresh-7/sys", "/x/sysfs-7/sys"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
