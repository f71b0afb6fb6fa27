//! Which paths are those of soft devices.

/// Paths of soft devices begin like this. The PCI domain is one that no machine has.
const OURS: [&str; 5] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/devices/pci5348:00",
    "/dev/infiniband",
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
}
