//! `shunt topology` over machines of many kinds: text and JSON against files, statuses, pictures.

use crate::support::{body, document, expect, fixture, shunt, text};

/// Name of the expectation, machine, environment, exit status.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)], i32);

const LIST: (&str, &str) = ("NVSHMEM_HCA_LIST", "mlx5_0:1,mlx5_3:1,mlx5_6:1,mlx5_77");
const BY_RANK: (&str, &str) = ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1");

const CASES: &[Case] = &[
    ("dgx-h100", "dgx-h100", &[], 0),
    ("roce-8x1", "roce-8x1", &[], 0),
    ("dual-port-4x2", "dual-port-4x2", &[], 0),
    ("dual-port-1-backup", "dual-port-4x2", &[("SHUNT_BACKUPS", "1")], 0),
    ("no-backup", "dual-port-4x2", &[("SHUNT_BACKUPS", "0")], 0),
    ("ports-down", "ports-down", &[], 0),
    ("one-nic", "one-nic", &[], 0),
    ("shared-nic", "shared-nic", &[], 0),
    ("bond", "bond", &[], 0),
    ("bond-only", "bond-only", &[], 1),
    ("virtual-functions", "virtual-functions", &[], 0),
    ("no-nic", "no-nic", &[], 0),
    ("no-gpu", "no-gpu", &[], 0),
    ("odd", "odd", &[], 0),
    ("list", "dgx-h100", &[LIST], 0),
    ("list-by-rank", "dgx-h100", &[LIST, BY_RANK], 0),
    ("list-beats-mapping", "dgx-h100", &[LIST, ("NVSHMEM_HCA_PE_MAPPING", "mlx5_4:1:8")], 0),
    ("exclude", "dgx-h100", &[("NVSHMEM_HCA_LIST", "^mlx5_0,mlx5_1,mlx5_2,mlx5_7,mlx5_8")], 0),
    ("mapping", "dgx-h100", &[BY_RANK, ("NVSHMEM_HCA_PE_MAPPING", "mlx5_6:1:2,mlx5_0:1:2")], 0),
    ("mapping-blocks", "shared-nic", &[BY_RANK, ("NVSHMEM_HCA_PE_MAPPING", "mlx5_1:1:1,mlx5_0:1:2")], 0),
    ("mapping-down", "ports-down", &[BY_RANK], 0),
    ("roce-storage", "dgx-h100", &[("NVSHMEM_HCA_LIST", "mlx5_1,mlx5_2,mlx5_7,mlx5_8")], 0),
    ("gid-v1", "shared-nic", &[("NVSHMEM_IB_ROCE_VERSION_NUM", "1")], 0),
    ("gid-range", "shared-nic", &[("NVSHMEM_IB_ADDR_RANGE", "10.0.1.0/24")], 0),
    ("gid-index-empty", "shared-nic", &[("NVSHMEM_IB_GID_INDEX", "9")], 1),
];

#[test]
fn text_and_json_are_as_expected() {
    for (name, machine, environment, status) in CASES {
        let root = fixture("topology", machine);
        let output = shunt(&["topology", "--root", &root], environment);
        assert_eq!(output.status.code(), Some(*status), "{name}: {}", text(&output.stderr));
        let words = text(&output.stdout);
        assert!(words.lines().all(|line| line == line.trim_end()), "{name}: blanks at the end of a line");
        expect(&format!("topology/{name}.txt"), &words);
        let json = shunt(&["topology", "--json", "--root", &root], environment);
        assert_eq!(json.status.code(), Some(*status), "{name}");
        expect(&format!("topology/{name}.json"), &body(&json.stdout));
    }
}

#[test]
fn what_makes_no_sense_is_status_2() {
    let dgx = fixture("topology", "dgx-h100");
    let cases: &[(&str, &str, &str)] = &[
        ("NVSHMEM_HCA_LIST", "mlx5_0:one", "mlx5_0:1,mlx5_1:1"),
        ("NVSHMEM_HCA_LIST", "mlx5_99", "leaves no RDMA port: expected one of mlx5_0:1, mlx5_1:1"),
        ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:0", "NAME:PORT:COUNT"),
        ("NVSHMEM_HCA_PE_MAPPING", "nic:1:8", "NVSHMEM_HCA_PE_MAPPING=nic:1:8 leaves no RDMA port"),
        ("NVSHMEM_HCA_PREFIX", "ibp", "leaves no RDMA port"),
        ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "often", "0, 1, true"),
        ("NVSHMEM_IB_GID_INDEX", "three", "0 to 255"),
        ("NVSHMEM_IB_ADDR_FAMILY", "4", "AF_INET or AF_INET6"),
        ("NVSHMEM_IB_ADDR_RANGE", "10/8", "10.0.0.0/8"),
        ("NVSHMEM_IB_ROCE_VERSION_NUM", "v2", "1 or 2"),
        ("SHUNT_BACKUPS", "9", "0 to 7"),
    ];
    for (name, value, part) in cases {
        let output = shunt(&["topology", "--root", &dgx], &[(name, value)]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}={value}");
        assert!(output.stdout.is_empty() && error.contains(name) && error.contains(part), "{name}: {error}");
        assert!(error.contains("expected "), "{error}");
    }
}

#[test]
fn roots_that_cannot_be_used_are_status_2() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let bad = folder.join("bad.tree");
    std::fs::write(&bad, "# a comment\nsys/x\n").unwrap();
    let bad = bad.display().to_string();
    let missing = folder.join("no-such").display().to_string();
    let lost = folder.join("no/such/file").display().to_string();
    let dgx = fixture("topology", "dgx-h100");
    let nothing = folder.join("nothing");
    std::fs::create_dir_all(&nothing).unwrap();
    let nothing = nothing.display().to_string();
    let empty = folder.join("empty.tree");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.display().to_string();
    let (twice, again) = (format!("{nothing}/twice"), format!("{nothing}/../nothing/twice"));
    let cases: &[(&[&str], &str)] = &[
        (&["topology", "--root", &missing], "No such file"),
        (&["topology", "--root", &bad], "line 2: expected PATH = TEXT"),
        (&["topology", "--root", "/dev/null"], "neither a folder nor a plain file"),
        (&["topology", "--root", &nothing], "expected sys/ and proc/ in it"),
        (&["topology", "--root", &empty], "expected sys/ and proc/ in it"),
        (&["topology", "--root", &dgx, "--svg", &twice, "--save", &again], "--svg and --save both name"),
        (&["topology", "--root", &dgx, "--svg", &empty, "--save", &empty], "--svg and --save both name"),
        (&["topology", "--root", &dgx, "--svg", &lost], "a file in a folder that exists"),
        (&["topology", "--root", &dgx, "--save", &lost], "a file in a folder that exists"),
        (&["topology", "--json", "--dot"], "cannot be used with"),
        (&["topology", "--rot", &dgx], "--rot"),
    ];
    for (arguments, part) in cases {
        let output = shunt(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(output.stdout.is_empty() && error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn pictures_show_every_gpu_and_port() {
    let svg = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("topology.svg");
    let file = svg.display().to_string();
    for (machine, gpus, ports) in
        [("dual-port-4x2", 8, 8), ("bond", 2, 2), ("no-gpu", 0, 3), ("no-nic", 2, 0)]
    {
        let root = fixture("topology", machine);
        let output = shunt(&["topology", "--dot", "--root", &root, "--svg", &file], &[]);
        assert_eq!(output.status.code(), Some(0), "{machine}");
        let (svg, dot) = (std::fs::read_to_string(&svg).unwrap(), text(&output.stdout));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{machine}");
        let count = |text: &str, part: &str| text.matches(part).count();
        assert_eq!(
            count(&svg, ">GPU "),
            gpus + count(&svg, ">GPU 0: ") + count(&svg, ">GPU 1: "),
            "{machine}"
        );
        assert_eq!(count(&dot, "[label=\"GPU "), gpus, "{machine}: {dot}");
        assert_eq!(count(&dot, "  rail") + count(&dot, "  aside"), ports, "{machine}: {dot}");
        assert_eq!(count(&dot, "{"), count(&dot, "}"), "{machine}");
    }
    let root = fixture("topology", "dual-port-4x2");
    shunt(&["topology", "--root", &root, "--svg", &file], &[]);
    let svg = std::fs::read_to_string(&svg).unwrap();
    // Three lines for each GPU: the primary and two backups.
    assert_eq!(svg.matches("<path ").count(), 24);
}

#[test]
fn this_machine_is_looked_at_without_a_root() {
    let output = shunt(&["topology", "--json"], &[]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let value = document(&output.stdout);
    let rdma = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    assert_eq!(
        rdma == 0,
        value["rails"] == serde_json::json!([]) && value["not_used"] == serde_json::json!([])
    );
}

#[test]
fn what_was_read_is_saved_and_reads_the_same() {
    let saved = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("saved.tree");
    let saved = saved.display().to_string();
    for machine in ["dgx-h100", "bond", "odd", "virtual-functions"] {
        let root = fixture("topology", machine);
        let first = shunt(&["topology", "--root", &root, "--save", &saved], &[]);
        let second = shunt(&["topology", "--root", &saved], &[]);
        assert_eq!(text(&first.stdout), text(&second.stdout), "{machine}");
        assert_eq!(second.status.code(), Some(0), "{machine}");
    }
}
