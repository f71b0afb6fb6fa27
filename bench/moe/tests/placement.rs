//! The program with the queues of kernels in the host's memory, and in memory that stands for a GPU's: rings,
//! completions, doorbell records and channels lie there, and agents reach them by copies alone.

use crate::common::{clean, folder};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_moe_pressure");

#[test]
fn layers_lose_nothing_to_ports_wherever_their_queues_lie() {
    let folder = folder("placement-moe");
    for queues in ["host", "gpu"] {
        for arguments in [
            "--ranks 2 --iters 1000 --tokens 2 --every 30ms --faults down=20ms --signals cleared --seed 6",
            "--mode normal --ranks 4 --nodes 2 --iters 200 --tokens 9 --every 30ms --faults down=20ms --seed 7",
        ] {
            let report = clean(PROGRAM, queues, arguments, &folder);
            assert_eq!([&report["mismatches"], &report["hangs"]], [0, 0].map(Value::from).each_ref());
        }
    }
}
