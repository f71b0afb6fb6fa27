//! `shunt env`: values in force, where they came from, bad ones, and names that nobody reads.

use crate::support::{document, expect, shunt, text};

#[test]
fn nothing_set_is_all_defaults() {
    let output = shunt(&["env"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let words = text(&output.stdout);
    for variable in shunt_host::config::VARIABLES {
        let line = words.lines().find(|line| line.split_whitespace().next() == Some(variable.name));
        let line = line.unwrap_or_else(|| panic!("{} is not there", variable.name));
        let want = if variable.default.is_empty() { "(not set)" } else { variable.default };
        assert!(line.contains(want) && line.contains(variable.meaning), "{line}");
    }
    assert!(output.stderr.is_empty());
}

/// Where columns are few the meaning stands below its variable, and nothing is lost.
#[test]
fn eighty_columns_are_enough() {
    for arguments in [&["env"][..], &["env", "--long"]] {
        let words = text(&shunt(arguments, &[("COLUMNS", "80")]).stdout);
        let long: Vec<_> = words.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:?}");
        let plain = words.split_whitespace().collect::<Vec<_>>().join(" ");
        for variable in shunt_host::config::VARIABLES {
            let meaning = variable.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(plain.contains(variable.name) && plain.contains(&meaning), "{}", variable.name);
        }
    }
}

#[test]
fn values_their_source_and_typing_errors() {
    let environment = [
        ("SHUNT_BACKUPS", "3"),
        ("SHUNT_BACKUP", "1"),
        ("SHUNT_SECRET", "a long secret that must stay hidden"),
        ("NVSHMEM_HCA_LIST", "mlx5_0:1"),
        ("NVSHMEM_HCA_PE_MAPING", "mlx5_0:1:2"),
        ("NVSHMEM_SYMMETRIC_SIZE", "2G"),
        ("NVSHMEM_WHATEVER", "1G"),
        ("NVSHMEM_IBGDA_CHECK_INTERVAL", "16"),
        ("PATH", "/usr/bin"),
    ];
    let output = shunt(&["env"], &environment);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let words = text(&output.stdout);
    let line = |name: &str| words.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    assert!(line("SHUNT_BACKUPS").contains("3") && line("SHUNT_BACKUPS").contains("environment (default 2)"));
    assert!(line("NVSHMEM_HCA_LIST").contains("mlx5_0:1"));
    assert!(!words.contains("must stay hidden") && line("SHUNT_SECRET").contains("(hidden)"));
    assert!(words.contains("SHUNT_BACKUP is not read, did you mean SHUNT_BACKUPS?"), "{words}");
    assert!(words.contains("NVSHMEM_HCA_PE_MAPING (did you mean NVSHMEM_HCA_PE_MAPPING?)"), "{words}");
    assert!(line("NVSHMEM_SYMMETRIC_SIZE").contains("environment (default 1G)"), "{words}");
    assert!(line("NVSHMEM_IBGDA_CHECK_INTERVAL").contains("no effect: "), "{words}");
    assert!(words.contains("not read by Shunt: ") && words.contains("NVSHMEM_WHATEVER"), "{words}");
    assert!(words.lines().all(|line| !line.starts_with("PATH ")), "{words}");
    expect("env/some-set.txt", &words);
}

/// A value that makes no sense, of every variable.
const BAD: &[(&str, &str)] = &[
    ("SHUNT_BACKUPS", "8"),
    ("SHUNT_GIVE_UP", "1 minute"),
    ("SHUNT_FENCE", "none"),
    ("SHUNT_MPL", "50"),
    ("SHUNT_ORDERING", "loose"),
    ("SHUNT_ECE", "2"),
    ("SHUNT_POLLED_PUTS", "maybe"),
    ("SHUNT_FETCH", "often"),
    ("SHUNT_SUSPECT", "0"),
    ("SHUNT_SUSPECT_FLOOR", "fast"),
    ("SHUNT_RECOVERY_WINDOW", "100"),
    ("SHUNT_PROBES", "0"),
    ("NVSHMEM_IBGDA_RECOVERY_INTERVAL", "-1"),
    ("SHUNT_VERBS", "always"),
    ("SHUNT_VERBS_ATOMIC_ANSWER", "maybe"),
    ("SHUNT_VERBS_ATOMICS", "stay"),
    ("SHUNT_VERBS_BACKUPS", "9"),
    ("SHUNT_VERBS_PEER", "no"),
    ("SHUNT_VERBS_RULE", "shift"),
    ("SHUNT_VERBS_STORE", "ftp://x"),
    ("SHUNT_STEP_RECORDS", "maybe"),
    ("SHUNT_LOG", "loud"),
    ("SHUNT_LOG_FILE", " "),
    ("NVSHMEM_DEBUG", "1"),
    ("NVSHMEM_DEBUG_FILE", " "),
    ("SHUNT_EVENTS", " "),
    ("SHUNT_METRICS", "9400"),
    ("SHUNT_STATUS", "perhaps"),
    ("NVSHMEM_QP_DEPTH", "100"),
    ("NVSHMEM_IB_TIMEOUT", "32"),
    ("NVSHMEM_IB_RETRY_CNT", "-1"),
    ("NVSHMEM_IB_SL", "16"),
    ("NVSHMEM_IB_TRAFFIC_CLASS", "256"),
    ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "0"),
    ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "2"),
    ("NVSHMEM_MACHINE_READABLE_OUTPUT", "maybe"),
    ("SHUNT_NIC", "connectx"),
    ("SHUNT_QUEUES", "device"),
    ("SHUNT_RANK", "first"),
    ("SHUNT_WORLD", "0"),
    ("SHUNT_LOCAL_RANK", "-1"),
    ("SHUNT_ROOT", "nowhere"),
    ("SHUNT_ROOT_FD", "-1"),
    ("SHUNT_SECRET", "tooweak"),
    ("SHUNT_SECRET_FILE", "/no/such/file"),
    ("SHUNT_FABRIC", "a/b"),
    ("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "=a b"),
    ("NVSHMEM_HCA_LIST", "mlx5_0:x"),
    ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:0"),
    ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "perhaps"),
    ("NVSHMEM_HCA_PREFIX", "^"),
    ("NVSHMEM_IB_GID_INDEX", "x"),
    ("NVSHMEM_IB_ADDR_FAMILY", "AF_UNIX"),
    ("NVSHMEM_IB_ADDR_RANGE", "10.0.0.0/99"),
    ("NVSHMEM_IB_ROCE_VERSION_NUM", "0"),
];

#[test]
fn every_bad_value_is_marked_and_the_status_is_2() {
    // A variable that is read and not tried here would be one nobody checks.
    for variable in shunt_host::config::VARIABLES {
        assert!(
            BAD.iter().any(|(name, _)| *name == variable.name),
            "{} has no bad value here",
            variable.name
        );
    }
    for &(name, value) in BAD {
        let output = shunt(&["env"], &[(name, value)]);
        let (words, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{name}={value}");
        let line = words.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(line.contains(" BAD "), "{line}");
        assert!(error.contains(name) && error.contains("expected "), "{error}");
        assert!(name != "SHUNT_SECRET" || !format!("{words}{error}").contains("tooweak"), "{error}");
        let json = shunt(&["env", "--json"], &[(name, value)]);
        let report = document(&json.stdout);
        let wrong = report["variables"].as_array().unwrap().iter().filter(|one| !one["error"].is_null());
        assert_eq!(wrong.map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(), [name]);
        assert_eq!(json.status.code(), Some(2));
    }
}

#[test]
fn what_stands_in_the_way_of_nvshmem_programs_is_refused_by_name() {
    let output = shunt(&["env"], &[("NVSHMEM_IBGDA_NUM_DCI", "4"), ("NVSHMEM_IB_ENABLE_IBGDA", "0")]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("NVSHMEM_IBGDA_NUM_DCI=4 is refused: there is no DC transport"), "{error}");
    assert!(error.contains("NVSHMEM_IB_ENABLE_IBGDA=0 is refused"), "{error}");
    for known in shunt_nvshmem::env_table::TABLE {
        let json = shunt(&["env", "--json"], &[(known.name, known.default)]);
        let said = json.status.code() == Some(0) || known.default.is_empty();
        assert!(said, "{}={}: {}", known.name, known.default, text(&json.stderr));
    }
}

#[test]
fn what_a_variable_may_hold_is_said_on_request() {
    let words = text(&shunt(&["env", "--long"], &[]).stdout);
    for variable in shunt_host::config::VARIABLES {
        assert!(words.contains(&format!("may hold: {}", variable.values)), "{}", variable.name);
    }
    assert_eq!(shunt(&["env", "--long", "--json"], &[]).status.code(), Some(2));
}

#[test]
fn variables_that_make_no_sense_together_are_status_2() {
    let output = shunt(&["env"], &[("SHUNT_RANK", "0")]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("world is not") && !output.stdout.is_empty(), "{error}");
    let place = [("SHUNT_RANK", "0"), ("SHUNT_WORLD", "2"), ("SHUNT_ROOT", "127.0.0.1:7000")];
    assert_eq!(shunt(&["env"], &place).status.code(), Some(0));
    let lines = [("NVSHMEM_MACHINE_READABLE_OUTPUT", "1")];
    assert!(!text(&shunt(&["env"], &lines).stdout).contains("not read by Shunt"));
    let lines = [("NVSHMEM_MACHINE_READABLE_OUTPUT", "maybe")];
    assert_eq!(shunt(&["env"], &lines).status.code(), Some(2));
}

#[test]
fn variables_of_the_preloaded_library_are_known() {
    let good = [("SHUNT_SOFT_RDMA_NICS", "2"), ("SHUNT_SOFT_RDMA_FAULTS", "1s:mlx5_1:down")];
    let output = shunt(&["env"], &good);
    let words = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(words.contains("environment (default 1)") && !words.contains("unknown"), "{words}");
    for (name, value, met) in [
        ("SHUNT_SOFT_RDMA_NICS", "9", "from 1 to 8"),
        ("SHUNT_SOFT_RDMA_FAULTS", "1s:mlx5_1:down", "this process has 1"),
        ("SHUNT_SOFT_RDMA_LOGS", "info", "did you mean SHUNT_SOFT_RDMA_LOG?"),
    ] {
        let output = shunt(&["env"], &[(name, value)]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains(met), "{name}: {said}");
    }
}

/// A reader that had seen enough, as in `shunt env 2>&1 | head`, made this a panic with status 101.
#[test]
fn a_closed_stderr_leaves_the_status_as_it_is() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut shunt = std::process::Command::new(env!("CARGO_BIN_EXE_shunt"));
    shunt.arg("env").env("SHUNT_SUSPECT", "abc").stdout(std::process::Stdio::null()).stderr(writer);
    assert_eq!(shunt.status().unwrap().code(), Some(2));
}
