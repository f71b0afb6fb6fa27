//! What a port is, as verbs, files and netlink tell it.

/// What the port is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortView {
    /// It has a link.
    pub up: bool,
    /// Bytes of a packet's payload at most.
    pub mtu: u32,
    /// Lanes, as verbs number them: 1 is one lane, 2 is four.
    pub width: u8,
    /// Speed of a lane, as verbs number it.
    pub speed: u8,
    /// The rate in words, as sysfs has it.
    pub rate: &'static str,
    /// Local identifier; RoCE has none.
    pub lid: u16,
}

/// Rates that Ethernet ports have: Gb/s, lanes, speed of a lane.
const RATES: [(f64, u8, u8, &str); 7] = [
    (10.0, 1, 4, "10 Gb/sec (1X QDR)"),
    (25.0, 1, 32, "25 Gb/sec (1X EDR)"),
    (40.0, 2, 4, "40 Gb/sec (4X QDR)"),
    (50.0, 1, 64, "50 Gb/sec (1X HDR)"),
    (100.0, 2, 32, "100 Gb/sec (4X EDR)"),
    (200.0, 2, 64, "200 Gb/sec (4X HDR)"),
    (400.0, 2, 128, "400 Gb/sec (4X NDR)"),
];

/// The slowest kind of port that a rate fits; the fastest if it is not limited.
pub(crate) fn port_rate(gbps: Option<f64>) -> (u8, u8, &'static str) {
    let fastest = RATES[RATES.len() - 1];
    let fits = gbps.and_then(|gbps| RATES.iter().find(|rate| rate.0 >= gbps).copied());
    let (_, width, speed, text) = fits.unwrap_or(fastest);
    (width, speed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_as_fast_as_their_rate_needs() {
        assert_eq!(port_rate(None).2, "400 Gb/sec (4X NDR)");
        assert_eq!(port_rate(Some(0.5)), (1, 4, "10 Gb/sec (1X QDR)"));
        assert_eq!(port_rate(Some(100.0)), (2, 32, "100 Gb/sec (4X EDR)"));
        assert_eq!(port_rate(Some(1e6)).2, "400 Gb/sec (4X NDR)");
    }
}
