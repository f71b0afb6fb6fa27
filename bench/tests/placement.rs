//! The program with the queues of kernels in the host's memory, and in memory that stands for a GPU's: rings,
//! completions, doorbell records and channels lie there, and agents reach them by copies alone.

use crate::common::{clean, folder};

const PROGRAM: &str = env!("CARGO_BIN_EXE_shmem_put_bw");

/// Every byte is compared, in every kind of signal; a port goes down and comes back.
#[test]
fn a_stream_loses_nothing_to_a_port_wherever_its_queues_lie() {
    let folder = folder("placement-stream");
    let port = "--duration 900ms -n 0 --inject 200ms:0.0:down --inject 400ms:0.0:up";
    for queues in ["host", "gpu"] {
        for signal in ["monotone", "cleared", "add"] {
            let report = clean(PROGRAM, queues, &format!("{port} --signal {signal} -b 4K -e 4K"), &folder);
            for key in ["puts_lost", "signals_duplicated", "order_violations", "ghost_writes"] {
                assert_eq!(report[key], 0, "{queues}, {signal}: {key}");
            }
            assert!(report["bytes_delivered"].as_u64() > Some(0) && report["switchbacks"].as_u64() > Some(0));
        }
    }
}
