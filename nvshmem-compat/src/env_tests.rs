//! The table, and what is read through it.

use super::*;
use proptest::prelude::*;
use shunt_host::config::VARIABLES;
use std::collections::BTreeMap;

fn with(pairs: &[(&str, &str)]) -> Result<Settings, EnvError> {
    let set: BTreeMap<String, String> =
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Settings::from_lookup(&|name| set.get(name).cloned())
}

/// Names that NVSHMEM 3.8 reads, and what DeepEP, Megatron and the public fork set; without the prefix.
const NAMES: &str = "IB_ENABLE_IBGDA IBGDA_NUM_DCT IBGDA_NUM_DCI IBGDA_NUM_SHARED_DCI IBGDA_DCI_MAP_BY \
    IBGDA_NUM_RC_PER_PE IBGDA_RC_MAP_BY IBGDA_FORCE_NIC_BUF_MEMTYPE IBGDA_NUM_REQUESTS_IN_BATCH \
    IBGDA_NUM_FETCH_SLOTS_PER_DCI IBGDA_NUM_FETCH_SLOTS_PER_RC IBGDA_NIC_HANDLER ENABLE_MULTI_PORT \
    IBGDA_ENABLE_MULTI_PORT MAX_NICS_PER_PE QP_DEPTH SRQ_DEPTH IB_GID_INDEX IB_ROUTABLE_FLID_GID_INDEX \
    IB_ADDR_FAMILY IB_ADDR_RANGE IB_ROCE_VERSION_NUM IB_TRAFFIC_CLASS IB_SL IB_FORCE_GRH IB_TIMEOUT IB_RETRY_CNT \
    IB_PKEY_INDEX IB_ENABLE_RELAXED_ORDERING IB_DISABLE_DMABUF DISABLE_DATA_DIRECT DISABLE_IB_NATIVE_ATOMICS \
    IB_NUM_RC_PER_DEVICE IB_ATOMIC_POLICY HCA_PREFIX HCA_LIST HCA_PE_MAPPING ENABLE_NIC_PE_MAPPING NETDEVS_POLICY \
    DISABLE_GDRCOPY GDRCOPY_USE_INTERNAL_DMABUF REGION_MAX_SLOTS REGION_HOST_BATCH_MAX_OPS \
    REGION_DEVICE_BATCH_THRESHOLD DISABLE_LOCAL_ONLY_PROXY GPUNETIO_ENABLE_GDAKI SYMMETRIC_SIZE CUMEM_GRANULARITY \
    MAX_MEMORY_PER_GPU HEAP_KIND DISABLE_CUDA_VMM BOOTSTRAP BOOTSTRAP_PMI G_BUF_SIZE MAX_TEAMS CPU_AFFINITY DEBUG \
    DEBUG_FILE DEBUG_SUBSYS DEBUG_ATTACH_DELAY DISABLE_P2P DISABLE_NVLS DISABLE_MNNVL REMOTE_TRANSPORT \
    BOOTSTRAP_UID_SOCK_IFNAME BOOTSTRAP_UID_SOCK_FAMILY IBGDA_ENABLE_FAULT_TOLERANCE IBGDA_FAILURE_THRESHOLD \
    IBGDA_RECOVERY_INTERVAL IBGDA_CHECK_INTERVAL CONF_FILE MAX_CTAS";

#[test]
fn every_variable_of_nvshmem_is_known_once() {
    for name in NAMES.split_whitespace() {
        let name = format!("NVSHMEM_{name}");
        let here = TABLE.iter().filter(|known| known.name == name).count();
        let host = VARIABLES.iter().filter(|known| known.name == name).count();
        assert_eq!(here + host, 1, "{name}");
    }
    for (at, known) in TABLE.iter().enumerate() {
        assert!(TABLE[at + 1..].iter().all(|other| other.name != known.name), "{} stands twice", known.name);
    }
}

#[test]
fn defaults_are_accepted_and_are_what_holds() {
    let written =
        |name: &str| known(name).filter(|known| !known.default.is_empty()).map(|k| k.default.to_owned());
    let nothing = with(&[]).unwrap();
    assert_eq!(Settings::from_lookup(&written).unwrap(), nothing);
    assert_eq!((nothing.heap_bytes, nothing.log2_chunk, nothing.max_teams), (1 << 30, 29, 128));
    assert_eq!((nothing.rails(), nothing.call_deadline_ns), (2, 600_000_000_000));
}

#[test]
fn what_is_honoured_has_its_effect() {
    let met = with(&[
        ("NVSHMEM_SYMMETRIC_SIZE", "64M"),
        ("NVSHMEM_CUMEM_GRANULARITY", "3M"),
        ("NVSHMEM_MAX_TEAMS", "7"),
        ("SHUNT_SOFT_RAILS", "4"),
        ("SHUNT_CALL_DEADLINE", "2s"),
        ("NVSHMEM_DEBUG", "info"),
    ])
    .unwrap();
    assert_eq!((met.heap_bytes, met.log2_chunk, met.max_teams), (64 << 20, 22, 7));
    assert_eq!((met.rails(), met.call_deadline_ns, met.says_version), (4, 2_000_000_000, true));
    assert!(met.host.fault_tolerance);
}

#[test]
fn ports_follow_fault_tolerance_and_the_new_name_wins() {
    let off = ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0");
    let (old, new) = ("NVSHMEM_IBGDA_ENABLE_MULTI_PORT", "NVSHMEM_ENABLE_MULTI_PORT");
    let rails = |pairs: &[(&str, &str)]| with(pairs).unwrap().rails();
    assert_eq!((rails(&[]), rails(&[off])), (2, 1));
    assert_eq!((rails(&[off, (old, "1")]), rails(&[(old, "no")])), (2, 1));
    assert_eq!((rails(&[(old, "1"), (new, "0")]), rails(&[(old, "0"), (new, "1")])), (1, 2));
}

#[test]
fn what_is_refused_is_refused_by_name_and_says_why() {
    let cases = [
        ("NVSHMEM_IB_ENABLE_IBGDA", "0", "nothing without it"),
        ("NVSHMEM_IBGDA_NUM_DCI", "4", "no DC transport"),
        ("NVSHMEM_IBGDA_NUM_DCT", "2", "no DC transport"),
        ("NVSHMEM_IBGDA_NUM_SHARED_DCI", "1", "no DC transport"),
        ("NVSHMEM_REMOTE_TRANSPORT", "ucx", "one transport"),
        ("NVSHMEM_GPUNETIO_ENABLE_GDAKI", "true", "one transport"),
        ("NVSHMEM_IBGDA_NIC_HANDLER", "cpu", "no proxy thread"),
        ("NVSHMEM_IB_ATOMIC_POLICY", "multi", "not atomic"),
        ("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS", "1", "no proxy thread"),
        ("NVSHMEM_BOOTSTRAP", "SHMEM", "a unique id"),
        ("NVSHMEM_CONF_FILE", "/etc/nvshmem.conf", "not read"),
    ];
    for (name, value, why) in cases {
        let error = with(&[(name, value)]).unwrap_err();
        assert!(matches!(error, EnvError::Refused { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("{name}={value} is refused: ")) && text.contains(why), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_said_with_what_would() {
    let cases = [
        ("NVSHMEM_SYMMETRIC_SIZE", "much"),
        ("NVSHMEM_SYMMETRIC_SIZE", "0"),
        ("NVSHMEM_MAX_TEAMS", "6"),
        ("SHUNT_SOFT_RAILS", "0"),
        ("SHUNT_CALL_DEADLINE", "0"),
        ("NVSHMEM_IBGDA_RC_MAP_BY", "thread"),
        ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "0"),
        ("NVSHMEM_IBGDA_FAILURE_THRESHOLD", "few"),
        ("NVSHMEM_REMOTE_TRANSPORT", "ibrcx"),
    ];
    for (name, value) in cases {
        let error = with(&[(name, value)]).unwrap_err();
        assert!(!matches!(error, EnvError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(", got "), "{error}");
    }
}

#[test]
fn a_job_script_of_deepep_is_accepted() {
    let script = [
        ("NVSHMEM_DISABLE_P2P", "0"),
        ("NVSHMEM_IB_ENABLE_IBGDA", "1"),
        ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "24"),
        ("NVSHMEM_QP_DEPTH", "1024"),
        ("NVSHMEM_MAX_TEAMS", "7"),
        ("NVSHMEM_DISABLE_NVLS", "1"),
        ("NVSHMEM_CUMEM_GRANULARITY", "536870912"),
        ("NVSHMEM_DISABLE_MNNVL", "1"),
        ("NVSHMEM_IB_SL", "3"),
        ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "1"),
        ("NVSHMEM_IBGDA_ENABLE_MULTI_PORT", "1"),
        ("NVSHMEM_IBGDA_FAILURE_THRESHOLD", "3"),
        ("NVSHMEM_IBGDA_RECOVERY_INTERVAL", "1000"),
        ("NVSHMEM_IBGDA_CHECK_INTERVAL", "16"),
    ];
    let met = with(&script).unwrap();
    assert_eq!((met.rails(), met.host.channels_per_pe, met.log2_chunk), (2, 24, 29));
    assert_eq!(met.host.recovery_window_ns, 1_000_000_000);
}

/// What DeepEP's buffer writes for each framework, beside what the framework or its recipes set; depth and channels
/// that it gets. docs/DEEPEP.md has the table.
#[test]
fn what_frameworks_set_is_accepted() {
    let of_buffer = |queues, depth| {
        vec![
            ("NVSHMEM_DISABLE_P2P", "0"),
            ("NVSHMEM_IB_ENABLE_IBGDA", "1"),
            ("NVSHMEM_IBGDA_NUM_RC_PER_PE", queues),
            ("NVSHMEM_QP_DEPTH", depth),
            ("NVSHMEM_MAX_TEAMS", "7"),
            ("NVSHMEM_DISABLE_NVLS", "1"),
            ("NVSHMEM_CUMEM_GRANULARITY", "536870912"),
        ]
    };
    let vllm = [("NVSHMEM_DISABLE_MNNVL", "1"), ("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "bond1")];
    let vllm_ray = [("NVSHMEM_REMOTE_TRANSPORT", "ibgda"), ("NVSHMEM_IB_GID_INDEX", "3")];
    let megatron = [("NVSHMEM_MAX_CTAS", "2"), ("NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY", "AF_INET")];
    let got = |queues, depth, more: &[(&'static str, &'static str)]| {
        let met = with(&[of_buffer(queues, depth), more.to_vec()].concat()).unwrap();
        (met.host.channels_per_pe, met.host.log_depth, met.max_teams)
    };
    assert_eq!(got("10", "1024", &vllm), (10, 10, 7));
    assert_eq!(got("32", "1024", &vllm_ray), (32, 10, 7));
    // 1024 tokens a rank: SGLang asks for twice as many entries and two more; rings are powers of two.
    assert_eq!(got("20", "2050", &[]), (20, 12, 7));
    assert_eq!(got("24", "1024", &megatron), (24, 10, 7));
    // A test recipe of Megatron's has this, where DeepEP's buffer has not written over it.
    let refused = with(&[("NVSHMEM_IB_ENABLE_IBGDA", "0")]).unwrap_err().to_string();
    assert!(refused.contains("nothing without it"), "{refused}");
}

#[test]
fn the_pe_that_differs_is_named_with_both_lines() {
    let lines = |pairs: &[(&str, &str)]| with(pairs).unwrap().shared_lines(false, "soft").into_bytes();
    let (usual, other) = (lines(&[]), lines(&[("NVSHMEM_SYMMETRIC_SIZE", "8M")]));
    assert_eq!(difference(&[usual.clone(), usual.clone()]), None);
    let (pe, theirs, ours) = difference(&[usual.clone(), usual.clone(), other]).unwrap();
    assert_eq!((pe, theirs.as_str()), (2, "NVSHMEM_SYMMETRIC_SIZE 8388608"));
    assert_eq!(ours, "NVSHMEM_SYMMETRIC_SIZE 1073741824");
    assert_eq!(difference(&[usual.clone(), Vec::new()]).unwrap().1, "less");
    // Who answers a fetch is a matter of both ends: one that differs was told as a failed start, and late.
    let told = difference(&[usual, lines(&[("SHUNT_FETCH", "nic")])]).unwrap();
    assert_eq!((told.1.as_str(), told.2.as_str()), ("SHUNT_FETCH nic", "SHUNT_FETCH auto or exact"));
}

/// It was taken, and nothing was exact.
#[test]
fn exact_atomics_without_fault_tolerance_are_refused() {
    let off = ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0");
    let refused = with(&[("SHUNT_FETCH", "exact"), off]).unwrap_err().to_string();
    assert!(refused.starts_with("SHUNT_FETCH=exact is refused: expected auto, nic"), "{refused}");
    assert!(with(&[("SHUNT_FETCH", "auto"), off]).is_ok() && with(&[("SHUNT_FETCH", "exact")]).is_ok());
}

#[test]
fn nics_are_chosen_by_a_word_and_differ_by_name() {
    let ports = |pairs: &[(&str, &str)]| with(pairs).unwrap().ports();
    let off = ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0");
    assert_eq!((ports(&[]), ports(&[off])), (2, 1));
    let most = |value| ports(&[("NVSHMEM_MAX_NICS_PER_PE", value)]);
    assert_eq!((most("0"), most("1"), most("4"), most("100")), (2, 1, 4, 8));
    assert_eq!(with(&[]).unwrap().nic, NicKind::Auto);
    assert_eq!(with(&[("SHUNT_NIC", "mlx5")]).unwrap().nic, NicKind::Mlx5);
    let said = with(&[("SHUNT_NIC", "roce")]).unwrap_err().to_string();
    assert_eq!(said, "SHUNT_NIC: expected auto, mlx5 or soft, got \"roce\"");
    let [soft, mlx5] = ["soft", "mlx5"].map(|nics| with(&[]).unwrap().shared_lines(true, nics).into_bytes());
    let differs = difference(&[soft, mlx5]).unwrap();
    assert_eq!(differs, (1, "SHUNT_NIC mlx5".to_owned(), "SHUNT_NIC soft".to_owned()));
}

#[test]
fn sizes() {
    for (text, bytes) in [("1", 1), ("4K", 4096), ("1.5G", 3 << 29), ("2mb", 2 << 20), ("1T", 1 << 40)] {
        assert_eq!(parse_size(text), Some(bytes), "{text}");
    }
    for text in ["", "K", "B", "-1", "1.", ".5", "1.5", "1e9", "1 G", "99999999999T", "1GG"] {
        assert_eq!(parse_size(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn no_value_of_any_variable_panics(at in 0..TABLE.len(), value in "\\PC{0,24}") {
        let _ = TABLE[at].check(&value);
        let _ = with(&[(TABLE[at].name, value.as_str())]);
    }

    #[test]
    fn whole_sizes_are_read_back(bytes in 0u64..1 << 46) {
        prop_assert_eq!(parse_size(&bytes.to_string()), Some(bytes));
        prop_assert_eq!(parse_size(&format!("{}K", bytes >> 10)), Some(bytes >> 10 << 10));
    }
}

/// NVSHMEM's measurements of collectives ask for exactly what their buffers take, and allocate 16 bytes before.
#[test]
fn a_heap_as_small_as_its_payload_has_room_for_more() {
    for asked in [1, 4096, 8 << 20, (8 << 20) - (12 << 10) + 1, 1 << 30] {
        let text = asked.to_string();
        let heap = with(&[("NVSHMEM_SYMMETRIC_SIZE", &text)]).unwrap().heap();
        assert!(heap >= asked + (12 << 10) && heap < asked + (12 << 10) + (2 << 20), "{asked} {heap}");
        assert!(heap.is_multiple_of(2 << 20));
    }
    let small = [("NVSHMEM_SYMMETRIC_SIZE", "4096"), ("NVSHMEM_CUMEM_GRANULARITY", "64K")];
    assert_eq!(with(&small).unwrap().heap(), 64 << 10);
}

/// Without a network in NVSHMEM's sense, as its users test inside one machine. It was refused.
#[test]
fn no_remote_transport_is_accepted() {
    for value in ["None", "none"] {
        assert_eq!(with(&[("NVSHMEM_REMOTE_TRANSPORT", value)]), with(&[]));
    }
}
