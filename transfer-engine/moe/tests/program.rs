//! The program: all ranks in one process, and one a process.

use serde_json::Value;
use shunt_task::ports;
use shunt_transfer_program::trial::{
    RUNS, all_zero, alone, first, job, last_word, left_of_killed, number, plain, said, verdict,
};
use std::process::{Command, Output, Stdio};

fn program(line: &str) -> Command {
    let mut command = plain(env!("CARGO_BIN_EXE_moe_proxy"));
    command.args(line.split_whitespace());
    command
}

fn moe_proxy(line: &str) -> Output {
    let _alone = alone();
    program(line).output().expect("the program starts")
}

/// Nothing that was promised is broken, whatever the run was.
fn nothing_wrong(verdict: &Value) {
    all_zero(
        verdict,
        &["rows_wrong", "rows_missing", "values_wrong", "values_missing", "late_bytes", "imm_doubled"],
    );
    let kind = (verdict["schema"].as_str(), shunt_json::errors(verdict));
    assert_eq!(kind, (Some("shunt-moe-proxy"), String::new()));
}

/// The first clean run that shows what is asked for.
fn clean(run: impl FnMut() -> Output, shown: impl Fn(&Value) -> bool) -> Value {
    let object = first("clean", run, nothing_wrong, shown);
    assert_eq!(number(&object, "layers"), number(&object, "layers_wanted"), "{object}");
    object
}

const SMALL: &str = "--ranks 3 --experts 12 --tokens 16 --hidden 512 --top-k 4";

#[test]
fn layers_are_clean_with_private_buffers_of_any_size() {
    for (private, is_private, is_contiguous) in [(0, false, true), (3, true, true), (64, true, false)] {
        let object = clean(|| moe_proxy(&format!("{SMALL} --layers 4 --private {private}")), |_| true);
        let met = (number(&object, "rows_private") > 0, number(&object, "rows_contiguous") > 0);
        assert_eq!(met, (is_private, is_contiguous), "{object}");
    }
}

#[test]
fn a_sweep_is_a_table_of_private_buffers() {
    let json = std::env::temp_dir().join(format!("moe-sweep-{}.json", std::process::id()));
    for _ in 0..RUNS {
        let output = moe_proxy(&format!("{SMALL} --layers 3 --private-sweep --json {}", json.display()));
        let text = std::fs::read_to_string(&json).expect("the file was asked for");
        let object: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(
            (object["schema"].as_str(), shunt_json::errors(&object)),
            (Some("shunt-moe-sweep"), String::new())
        );
        let rows = object["rows"].as_array().expect("rows");
        assert!(rows.iter().all(|row| number(row, "wrong") == 0), "{object}");
        if object["verdict"] == "clean" {
            let shares: Vec<u64> = rows.iter().map(|row| number(row, "rows_private")).collect();
            assert!(
                shares[0] == 0
                    && shares.is_sorted()
                    && number(rows.last().expect("rows"), "rows_contiguous") == 0
            );
            let lines = String::from_utf8_lossy(&output.stdout).lines().count();
            assert_eq!((output.status.code(), lines), (Some(0), rows.len() + 3), "{}", said(&output));
            let _ = std::fs::remove_file(&json);
            return;
        }
    }
    panic!("expected a clean run in one of {RUNS}");
}

#[test]
fn a_port_that_goes_down_and_comes_back_costs_nothing_but_time() {
    let line = "--ranks 2 --experts 8 --tokens 32 --hidden 512 --top-k 4 --layers 60 --rail-gbps 0.05 --inject \
                100ms:1.0:down --inject 500ms:1.0:up";
    let there_and_back = |object: &Value| {
        let fields = ["failovers", "returns", "layers_rail_down"];
        fields.iter().all(|field| number(object, field) > 0)
    };
    clean(|| moe_proxy(line), there_and_back);
}

#[test]
fn a_nic_that_is_gone_costs_nothing_but_time() {
    let line = format!("{SMALL} --layers 30 --rail-gbps 0.1 --inject 50ms:1.0:nic-gone");
    clean(|| moe_proxy(&line), |object| number(object, "failovers") > 0);
}

#[test]
fn one_process_a_rank() {
    let all_ranks = || {
        let _alone = alone();
        let root = format!("127.0.0.1:{}", ports::free(1).expect("a port"));
        let ranks: Vec<_> = (0..3)
            .map(|rank: u32| {
                let mut process = program(&format!("{SMALL} --layers 5 --inject 1ms:1.1:down"));
                process.envs([("SHUNT_RANK", rank.to_string()), ("SHUNT_WORLD", "3".to_owned())]);
                process.env("SHUNT_FABRIC", format!("moe-{}", std::process::id()));
                process.env("SHUNT_ROOT", &root).stdout(Stdio::piped()).stderr(Stdio::piped());
                process.spawn().expect("the program starts")
            })
            .collect();
        let end = |process: std::process::Child| process.wait_with_output().expect("its end");
        let mut ranks: Vec<Output> = ranks.into_iter().map(end).collect();
        for rank in &ranks[1..] {
            assert_eq!(
                (rank.status.code(), rank.stdout.len()),
                (ranks[0].status.code(), 0),
                "{}",
                said(rank)
            );
        }
        ranks.remove(0)
    };
    let object = clean(all_ranks, |_| true);
    assert_eq!((number(&object, "ranks"), number(&object, "layers")), (3, 5));
}

/// Ranks with other sizes waited for each other, or saw rows that were wrong.
#[test]
fn ranks_with_other_options_are_refused_at_all() {
    let _alone = alone();
    let lines = ["--top-k 4", "--top-k 4", "--top-k 2"];
    let ranks = lines.map(|line| program(&format!("--ranks 3 --experts 12 --layers 2 {line}")));
    let ends = job(ports::free(1).expect("a port"), ranks);
    for (end, of) in ends.iter().zip([" of end 2", " of end 2", ""]) {
        let why = format!("error: --top-k{of}: expected 4 as at end 0, got 2");
        assert_eq!((end.status.code(), last_word(end)), (Some(2), why), "{}", said(end));
    }
}

/// Cause: the ranks that were left failed for want of what the one that was killed had seen, without a verdict.
#[test]
fn ranks_that_are_left_of_one_that_was_killed_have_a_verdict() {
    let _alone = alone();
    let line = format!("{SMALL} --layers 1000000");
    for killed in [0, 1] {
        let meet = ports::free(1).expect("a port");
        nothing_wrong(&left_of_killed(meet, killed, env!("CARGO_BIN_EXE_moe_proxy"), &line));
    }
}

/// Both rails of rank 1 are gone.
#[test]
fn a_rank_that_is_lost_is_told() {
    let line = format!("{SMALL} --layers 500 --inject 50ms:1.0:down --inject 50ms:1.1:down");
    for _ in 0..RUNS {
        let _alone = alone();
        let output = program(&line).env("SHUNT_GIVE_UP", "300ms").output().expect("the program starts");
        let object = verdict(&output);
        nothing_wrong(&object);
        if number(&object, "layers") < 500 {
            let told = (output.status.code(), object["verdict"].as_str(), object["peer_lost"].as_bool());
            assert_eq!(told, (Some(3), Some("peer lost"), Some(true)), "{object}");
            return;
        }
    }
    panic!("the faults hit nothing in {RUNS} runs");
}

#[test]
fn a_fault_that_hits_nothing_is_no_success() {
    // Nothing here is an atomic.
    let output = moe_proxy(&format!("{SMALL} --layers 3 --inject 1ms:0.1:lost-atomic-response"));
    let object = verdict(&output);
    let told = (output.status.code(), object["verdict"].as_str());
    assert_eq!(told, (Some(1), Some("not exercised")), "{object}");
    assert_eq!(number(&object["faults"][0], "hits"), 0, "{object}");
    let why = "moe_proxy: --inject 1ms:0.1:lost-atomic-response: expected one hit or more, got 0";
    assert_eq!(last_word(&output), why);
}

#[test]
fn what_cannot_be_honoured_is_refused_with_what_was_typed() {
    for (line, refusal) in [
        ("--ranks 1", "expected a whole number from 2 to 32, got \"1\""),
        ("--layers 0", "expected a whole number from 1 to 1000000, got \"0\""),
        ("--tokens 0", "expected a whole number from 1 to 8192, got \"0\""),
        ("--experts 30", "experts: expected a multiple of the 4 ranks, got 30"),
        ("--hidden 1000", "hidden size: expected a multiple of 512, got 1000"),
        ("--top-k 12", "expected a whole number from 1 to 11, got \"12\""),
        ("--experts 4 --top-k 5", "--top-k: expected at most 4 experts, got 5"),
        ("--private 1025", "expected a whole number from 0 to 1024, got \"1025\""),
        (
            "--tokens 8192 --hidden 16384",
            "--tokens and --hidden: expected at most 67108864 channels of a layer",
        ),
        (
            "--tokens 4096 --rail-gbps 0.1",
            "--tokens: expected a layer of at most 5 s at the rate of the rails",
        ),
        ("--inject 1ms:4.0:down", "--inject 1ms:4.0:down: expected end 0 to 3 and rail 0 to 1, got 4.0"),
        ("--inject 1ms:0:peer-killed", "expected a fault of a NIC"),
        (
            "--private-sweep --inject 1ms:0.0:down",
            "--private-sweep: expected no faults, got --inject 1ms:0.0:down",
        ),
        ("--rails 9", "expected a whole number from 1 to 8, got \"9\""),
        ("--json /no/such/v.json", "--json /no/such/v.json: No such file or directory"),
    ] {
        let output = moe_proxy(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}: {text}");
        assert!(text.starts_with("error: ") && text.contains(refusal), "{line}: {text}");
    }
}

#[test]
fn its_page_and_completions_name_its_options() {
    for line in ["--man", "--completions bash"] {
        let output = moe_proxy(line);
        let text = said(&output);
        assert!(output.status.success() && text.contains("private") && text.contains("inject"), "{text}");
    }
}
