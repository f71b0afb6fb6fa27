//! How long a path may be silent before it is suspected, by what carries it. Pure.
//!
//! The device learns the limit of each path (`shunt_device::StallDetector`): it starts at `suspect_ns`, and once enough
//! completions were seen it is sixteen times the longest usual time between them, never below `floor_ns` and never
//! above `suspect_ns`. The code is the same for every NIC; what differs is where it begins and where it ends.
//!
//! A lossless fabric stops a port for milliseconds and loses nothing: priority flow control (IEEE 802.1Qbb), incast.
//! From outside such a pause is a silent path between two hosts that answer. No agent can tell it from a path that is
//! dead, so that on hardware the floor alone does: it lies above the pauses that occur, and one that outlasts it is a
//! failure.

/// Between these lies the silence after which a path is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Where it starts, and the longest, nanoseconds.
    pub suspect_ns: u64,
    /// The shortest, nanoseconds.
    pub floor_ns: u64,
}

/// The longest pause of a port that is no failure on hardware, nanoseconds.
pub const PAUSE_NS: u64 = 30_000_000;

impl Silence {
    /// Of soft NICs, which pause for nobody.
    pub const SOFT: Self = Self { suspect_ns: 10_000_000, floor_ns: 2_000_000 };
    /// Of a NIC on a fabric with priority flow control: a silent path is left after 35 to 50 ms.
    pub const HARDWARE: Self = Self { suspect_ns: 50_000_000, floor_ns: 35_000_000 };

    /// What holds where nothing was set.
    pub const fn usual(hardware: bool) -> Self {
        if hardware { Self::HARDWARE } else { Self::SOFT }
    }

    /// With what an operator has set. A suspect time below the usual floor takes the floor with it.
    pub fn with(self, suspect_ns: Option<u64>, floor_ns: Option<u64>) -> Self {
        let suspect_ns = suspect_ns.unwrap_or(self.suspect_ns);
        Self { suspect_ns, floor_ns: floor_ns.unwrap_or(self.floor_ns).min(suspect_ns) }
    }
}

const _: () = assert!(Silence::HARDWARE.floor_ns > PAUSE_NS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EnvConfig;
    use shunt_device::{Limits, StallDetector};
    use shunt_layout::state::Word;

    #[test]
    fn nothing_set_is_the_soft_nics_default() {
        let config = EnvConfig::default();
        let silence = Silence { suspect_ns: config.suspect_ns, floor_ns: config.suspect_floor_ns };
        assert_eq!(silence, Silence::usual(false));
    }

    #[test]
    fn what_was_set_holds_and_the_floor_follows() {
        let of = |suspect, floor| Silence::HARDWARE.with(suspect, floor);
        assert_eq!(of(None, None), Silence::HARDWARE);
        assert_eq!(of(Some(2_000_000), None), Silence { suspect_ns: 2_000_000, floor_ns: 2_000_000 });
        assert_eq!(of(None, Some(5_000_000)), Silence { floor_ns: 5_000_000, ..Silence::HARDWARE });
        assert_eq!(of(Some(4), Some(9)), Silence { suspect_ns: 4, floor_ns: 4 });
    }

    /// A path whose completions take microseconds is learned down to the floor, stands every pause up to
    /// [`PAUSE_NS`], and what is silent for longer than the suspect time is silent.
    #[test]
    fn a_fast_path_on_hardware_stands_every_pause_and_no_real_silence() {
        let Silence { suspect_ns, floor_ns } = Silence::HARDWARE;
        let limits = Limits { floor_ns, bound_ns: suspect_ns };
        let mut patience = StallDetector::new(0);
        assert_eq!(patience.limit_ns(limits), suspect_ns, "where it starts");
        let (mut now, mut done) = (0, 0);
        let mut complete = |patience: &mut StallDetector, times: u64| {
            for _ in 0..times {
                (now, done) = (now + 20_000, done + 1);
                assert!(!patience.stalled(Word(done).0, true, now, patience.limit_ns(limits)));
            }
            now
        };
        let mut at = complete(&mut patience, 100);
        assert_eq!(patience.limit_ns(limits), floor_ns, "where it ends");
        while at < 2_000_000 + PAUSE_NS {
            at += 100_000;
            let limit_ns = patience.limit_ns(limits);
            assert!(!patience.stalled(100, true, at, limit_ns), "a pause");
        }
        let limit_ns = patience.limit_ns(limits);
        while !patience.stalled(100, true, at, limit_ns) {
            at += 100_000;
            assert!(at < 2_000_000 + 2 * suspect_ns, "a silence");
        }
    }
}
