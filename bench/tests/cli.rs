//! The program as a process: exit statuses, and where its words go.

use std::process::{Command, Output};

fn program(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn bad_usage_is_status_2_on_stderr() {
    for line in ["--pes 3", "--nic mlx4", "--inject 1s:0.0:dwon", "--no-such-option"] {
        let output = program(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty() && text(&output.stderr).contains("error"), "{line}");
    }
}

/// Where devices are this says nothing: they would be opened.
#[test]
fn a_machine_without_devices_is_status_2_and_is_told_so() {
    let devices = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    for line in ["--nic mlx5", "--nic mlx5 --rank 1 --world 2 --root 127.0.0.1:1"] {
        if devices == 0 {
            let output = program(line);
            assert_eq!(output.status.code(), Some(2), "{line}: before anybody is waited for");
            let error = text(&output.stderr);
            assert!(output.stdout.is_empty() && error.contains("error: --nic mlx5: "), "{error}");
        }
    }
}

/// Without a driver the driver is named, with one the kernels: either is said before anything is run.
#[test]
fn a_gpu_or_kernels_that_are_not_there_are_status_2_and_named() {
    let output = program("--device gpu --kernels /nowhere/kernels.cubin --duration 60m");
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    let named = ["libcuda.so.1", "/nowhere/kernels.cubin"].iter().any(|name| error.contains(name));
    assert!(output.stdout.is_empty() && named && error.contains("error: --device gpu: "), "{error}");
}

#[test]
fn help_and_the_list_of_faults_are_status_0_on_stdout() {
    let help = program("--help");
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("Exit status: 0 clean"));
    let list = program("--list-faults");
    assert_eq!(list.status.code(), Some(0));
    let list = text(&list.stdout);
    for info in shunt_soft_nic::fault::list() {
        assert!(list.contains(info.syntax), "{}", info.syntax);
    }
    assert!(list.contains("SABOTAGE: one byte") && list.contains("rkey-revoked (syndrome 0x13)"));
}

/// What `--help` and `--list-faults` say is committed, so that a change of it is seen. With SHUNT_HELP_BLESS set the
/// file is rewritten.
#[test]
fn help_and_faults_are_as_committed() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help.txt");
    let said = ["--help", "--list-faults"]
        .map(|line| format!("$ shmem_put_bw {line}\n{}", text(&program(line).stdout)));
    // Clap fills empty lines with blanks.
    let said: String = said.join("\n").lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if std::env::var_os("SHUNT_HELP_BLESS").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    let other = committed.lines().zip(said.lines()).find(|(committed, said)| committed != said);
    assert!(committed == said, "SHUNT_HELP_BLESS=1 rewrites it; the first line that differs: {other:?}");
}

#[test]
fn every_option_is_in_the_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/SHMEM_PUT_BW.md");
    let document = std::fs::read_to_string(document).unwrap();
    let help = text(&program("--help").stdout);
    // Perftest's have letters, and stand there by those.
    let options = help.lines().filter_map(|line| line.strip_prefix("      --"));
    let names: Vec<&str> = options.map(|rest| rest.split([' ', '\n']).next().unwrap()).collect();
    assert!(names.len() > 15, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !document.contains(&format!("--{name}"))).collect();
    assert!(missing.is_empty(), "docs/SHMEM_PUT_BW.md does not name {missing:?}");
}

#[test]
fn a_run_prints_table_timeline_and_verdict_and_writes_its_files() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [json, svg, html, trace] =
        ["run.json", "run.svg", "run.html", "trace.json"].map(|name| folder.join(name));
    let files = format!("--json {} --plot {}", json.display(), svg.display());
    let files = format!("{files} --report {} --trace {}", html.display(), trace.display());
    let output = program(&format!("-b 64 -e 4K -f 8 -n 20 --duration 200ms --watch {files}"));
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}");
    for part in ["#shmem_put_bw_uni", "BW (GB/sec)", "GB/s at full height", "packets tx", "verdict: clean"] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    assert!(!out.contains('\x1b'), "colours are for terminals");
    assert!(out.contains("write of 64K"), "{out}");
    assert!(out.lines().all(|line| line == line.trim_end()), "blanks at the end of a line: {out:?}");
    assert!(!out.contains("\n\n\n"), "two blank lines: {out}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(json["bytes_posted"], json["bytes_delivered"]);
    assert!(std::fs::read_to_string(svg).unwrap().ends_with("</svg>\n"));
    let html = std::fs::read_to_string(html).unwrap();
    for part in ["<p id=\"verdict\" class=\"verdict good\">clean</p>", " --report ", "GB/s</text>"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    let counters = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "C");
    assert_eq!(counters.count(), json["timeline"].as_array().unwrap().len());
}

#[test]
fn a_fault_that_is_not_tolerated_is_status_3_and_names_the_peer() {
    let output = program("-n 0 --duration 3s --ft off --inject 50ms:0.0:down");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    let error = text(&output.stderr);
    assert!(error.contains("fault tolerance is off: PE "), "{error}");
    assert!(text(&output.stdout).contains("verdict: fault tolerance is off"));
    assert!(error.contains("ended what it sent to PE") && error.contains("syndrome 0x15"), "{error}");
}

#[test]
fn files_that_cannot_be_written_are_refused_before_any_work() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (missing, same) = (folder.join("no/such.json"), folder.join("same.svg"));
    let both = format!("--json {0} --plot {0}", same.display());
    let cases = [
        (format!("--json {}", missing.display()), "in a folder that exists"),
        (format!("--json {}", folder.display()), "not a folder"),
        (both, "--json and --plot both name"),
    ];
    for (line, part) in cases {
        let output = program(&line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty() && text(&output.stderr).contains(part), "{line}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
    command.arg("--json").arg(folder.join("same-1.svg")).env("SHUNT_EVENTS", folder.join("same-%.svg"));
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(text(&output.stderr).contains("SHUNT_EVENTS and --json both name"), "{}", text(&output.stderr));
    assert!(!same.exists(), "a refusal leaves nothing behind");
}

#[test]
fn words_that_cannot_be_written_are_not_status_0() {
    for line in ["--help", "--list-faults", "-n 0 --duration 50ms --watch"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
        let output = command.args(line.split_whitespace()).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(text(&output.stderr).contains("error: stdout"), "{line}");
    }
}

/// A variable whose name is misspelt changes nothing, and silence would hide that.
#[test]
fn a_variable_that_nothing_reads_is_said_once_on_stderr() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
    command.args(["-e", "64", "-n", "2", "-w", "1", "--duration", "50ms"]);
    let output = command.env("SHUNT_GIVEUP", "3s").output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let said = "shunt: SHUNT_GIVEUP is not read: did you mean SHUNT_GIVE_UP?";
    assert_eq!(error.lines().filter(|line| *line == said).count(), 1, "{error}");
}

/// A NIC that may place out of order has signals go as atomics. Nobody finds that out by a slow run: it is said, once
/// for all NICs and phases, unless it was asked for.
#[test]
fn an_order_that_is_weaker_is_said_once_on_stderr() {
    let said = |profile: &str, asked: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
        command.args(["--profile", profile, "-e", "64", "-n", "2", "-w", "1", "--duration", "50ms"]);
        command.env_remove("SHUNT_ORDERING");
        if let Some(order) = asked {
            command.env("SHUNT_ORDERING", order);
        }
        let output = command.output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
        assert!(text(&output.stdout).contains("verdict"), "table and stream");
        error
    };
    let error = said("ib-ar", None);
    let lines: Vec<&str> = error.lines().filter(|line| line.contains("signals go as atomics")).collect();
    assert_eq!(lines.len(), 1, "{error}");
    assert!(lines[0].starts_with("note: ") && lines[0].contains("data_in_order 0 in RTS"), "{error}");
    let error = said("vf", None);
    assert_eq!(error.matches("no masked atomics").count(), 1, "{error}");
    for (profile, asked) in [("ib-ar", Some("unordered")), ("soft", None)] {
        let error = said(profile, asked);
        assert!(!error.contains("atomics"), "{profile}: {error}");
    }
}
