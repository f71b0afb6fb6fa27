//! Both programs with the queues of kernels in the host's memory, and in memory that stands for a GPU's: rings,
//! completions, doorbell records and channels lie there, and agents reach them by copies alone.

use crate::common::folder;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const PROGRAMS: [&str; 2] = [env!("CARGO_BIN_EXE_shmem_put_bw"), env!("CARGO_BIN_EXE_moe_pressure")];

/// Runs one of the programs; its report, which is clean. It says where queues lie where that was chosen.
fn clean(program: &str, queues: &str, arguments: &str, folder: &Path) -> Value {
    let json = folder.join("report.json");
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).arg("--json").arg(&json).env("SHUNT_QUEUES", queues);
    let output = command.output().unwrap();
    let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    let all = format!("SHUNT_QUEUES={queues} {arguments}\n{out}{said}");
    assert_eq!(output.status.code(), Some(0), "{all}");
    let lines = [&out, &said].map(|text| text.matches("queues: memory that stands for a GPU's").count());
    assert_eq!(lines.iter().sum::<usize>(), usize::from(queues == "gpu"), "{all}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["verdict"], "clean", "{all}");
    assert!(report["failovers"].as_u64() > Some(0), "no channel left its path: {all}");
    let hit = |fault: &Value| fault["hits"].as_u64() > Some(0);
    assert!(report["faults"].as_array().unwrap().iter().any(hit), "{all}");
    report
}

/// Every byte is compared, in every kind of signal; a port goes down and comes back.
#[test]
fn a_stream_loses_nothing_to_a_port_wherever_its_queues_lie() {
    let folder = folder("placement-stream");
    let port = "--duration 900ms -n 0 --inject 200ms:0.0:down --inject 400ms:0.0:up";
    for queues in ["host", "gpu"] {
        for signal in ["monotone", "cleared", "add"] {
            let report =
                clean(PROGRAMS[0], queues, &format!("{port} --signal {signal} -b 4K -e 4K"), &folder);
            for key in ["puts_lost", "signals_duplicated", "order_violations", "ghost_writes"] {
                assert_eq!(report[key], 0, "{queues}, {signal}: {key}");
            }
            assert!(report["bytes_delivered"].as_u64() > Some(0) && report["switchbacks"].as_u64() > Some(0));
        }
    }
}

#[test]
fn layers_lose_nothing_to_ports_wherever_their_queues_lie() {
    let folder = folder("placement-moe");
    for queues in ["host", "gpu"] {
        for arguments in [
            "--ranks 2 --iters 1000 --tokens 2 --every 30ms --faults down=20ms --signals cleared --seed 6",
            "--mode normal --ranks 4 --nodes 2 --iters 200 --tokens 9 --every 30ms --faults down=20ms --seed 7",
        ] {
            let report = clean(PROGRAMS[1], queues, arguments, &folder);
            assert_eq!([&report["mismatches"], &report["hangs"]], [0, 0].map(Value::from).each_ref());
        }
    }
}
