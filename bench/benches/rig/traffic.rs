//! Two soft NICs with a connected queue pair, and a loop that keeps one busy. One thread, virtual time.

#[allow(dead_code)] // the tests use the rest
#[path = "../../../soft-nic/tests/rig/mod.rs"]
mod rig;

pub use rig::{End, Rig};

use rig::Options;
use shunt_layout::mlx5::wqe::{Opcode, Segment};

/// Virtual time of one step.
const STEP_NS: u64 = 2_500;

/// Posts `total` messages, 32 to a doorbell, and takes their completions.
pub fn drive(rig: &mut Rig, end: &mut End, total: u64, body: impl Fn(&Rig, u64) -> [Segment; 2]) {
    let (mut posted, mut done) = (0, 0);
    while done < total {
        while posted < total && posted - done < 900 {
            for _ in 0..32.min(total - posted) {
                let segments = body(rig, posted);
                end.post(Opcode::RdmaWrite, &segments);
                posted += 1;
            }
            rig.ring(end);
        }
        rig.run_for(STEP_NS);
        while let Some(one) = end.poll() {
            assert_eq!(one.syndrome, 0);
            done += 1;
        }
    }
}

/// Two NICs, and the sending end of a queue pair between them.
pub fn pair() -> (Rig, End) {
    let options = Options { log_depth: 10, log_cq: 10, ack_timeout: 18, ..Options::default() };
    let mut rig = Rig::new(1);
    let (end, _other) = rig.pair(0, 1, options);
    (rig, end)
}
