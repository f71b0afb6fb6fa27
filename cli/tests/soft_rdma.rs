//! `shunt soft-rdma`: what a program is started with, what is refused, and what is seen and done from outside.

use crate::support::{document, shunt, text};
use shunt_soft_machine::machine::Machine;
use shunt_soft_machine::settings::Settings;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;

/// A library that every program may have: what is put into one does not matter here.
fn library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
    path.expect("this test runs with a C library").to_owned()
}

fn run(flags: &[&str], environment: &[(&str, &str)], program: &[&str]) -> Output {
    let library = library();
    let arguments = [&["soft-rdma", "run"], flags, &["--"], program].concat();
    let ours = [("SHUNT_SOFT_RDMA_LIB", library.as_str()), ("PATH", "/usr/bin:/bin")];
    shunt(&arguments, &[&ours, environment].concat())
}

/// Removed when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-cli-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// What a user with this runtime directory has: two NICs in the fabric `lab`, in this very process.
    fn machine(&self) -> &'static Machine {
        let settings = Settings { nics: 2, fabric: "lab".into(), ..Settings::default() };
        Machine::start(settings, &self.0.join("shunt")).unwrap()
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_program_gets_what_was_asked_for() {
    let flags = [
        "--nics",
        "2",
        "--fabric",
        "lab",
        "--rail-gbps",
        "25",
        "--fault",
        "1s:mlx5_1:down",
        "--fault",
        "2s:0:up",
        "--log",
        "info",
    ];
    let script = "echo $SHUNT_SOFT_RDMA_NICS $SHUNT_FABRIC $SHUNT_SOFT_RDMA_RAIL_GBPS $SHUNT_SOFT_RDMA_LOG; \
                  echo $SHUNT_SOFT_RDMA_FAULTS; echo $LD_PRELOAD";
    let output = run(&flags, &[], &["sh", "-c", script]);
    let want = format!(
        "2 lab 25 info\n1s:mlx5_1:down;2s:0:up\n{}\n",
        Path::new(&library()).canonicalize().unwrap().display()
    );
    assert_eq!(text(&output.stdout), want, "{}", text(&output.stderr));
    // What is not given stays as it was set.
    let environment = [("SHUNT_FABRIC", "mine"), ("SHUNT_SOFT_RDMA_NICS", "3")];
    let output = run(
        &["--fault", "0:2:down"],
        &environment,
        &["sh", "-c", "echo $SHUNT_FABRIC $SHUNT_SOFT_RDMA_NICS"],
    );
    assert_eq!(text(&output.stdout), "mine 3\n", "{}", text(&output.stderr));
}

#[test]
fn the_program_s_end_is_its_own() {
    assert_eq!(run(&[], &[], &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(run(&[], &[], &["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let output = run(&[], &[], &["sh", "-c", "echo $0 \"$@\"", "name", "-x", "--nics"]);
    assert_eq!(text(&output.stdout), "name -x --nics\n");
    let library = library();
    let environment = [("SHUNT_SOFT_RDMA_LIB", library.as_str()), ("PATH", "/usr/bin:/bin")];
    let output = shunt(&["soft-rdma", "run", "echo", "-x", "--nics", "9", "--", "-h"], &environment);
    assert_eq!(text(&output.stdout), "-x --nics 9 -- -h\n", "{}", text(&output.stderr));
}

#[test]
fn what_makes_no_sense_is_said_and_nothing_is_started() {
    let cases: [(&[&str], &str); 19] = [
        (&["--nics", "9"], "expected a whole number from 1 to 8, got \"9\""),
        (&["--nics", "0"], "from 1 to 8, got \"0\""),
        (&["--fabric", "a/b"], "1 to 32 letters"),
        (&["--roce", "fe80::1"], "IPv4"),
        (&["--nics", "2", "--roce", "127.0.0.2"], "expected one address for each of 2 NICs"),
        (&["--rail-gbps", "0"], "above 0"),
        (&["--fault", "down"], "<when>:<nic>:<fault>"),
        (&["--fault", "1s:mlx5_1:down"], "this process has 1: mlx5_0"),
        (&["--fault", "1s:0:dwon"], "no fault is called `dwon`"),
        (&["--log", "loud"], "one of off, error"),
        (&["--nic", "2"], "(--nics)"),
        (&["--nic", "ena"], "one of mlx5, efa"),
        (&["--nic", "efa", "--roce", "127.0.0.2"], "a soft EFA stands in the machine's fabric only"),
        (&["--roce", ""], "leave the option out"),
        (&["--fault", " ;"], "leave the option out"),
        // For documentation (RFC 5737): no interface has it.
        (&["--roce", "192.0.2.1"], "no interface of this machine has the address 192.0.2.1"),
        (&["--pcap", "/nonexistent/a.pcap"], "/nonexistent/a.pcap\" (--pcap): its directory is not there"),
        (&["--pcap", "/tmp"], "it is a directory"),
        (&["--pcap", ""], "--pcap"),
    ];
    for (flags, words) in cases {
        let output = run(flags, &[], &["sh", "-c", "echo started"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{flags:?}: {said}");
    }
    let output = run(&[], &[("SHUNT_SOFT_RDMA_NICS", "many")], &["true"]);
    assert!(text(&output.stderr).contains("got \"many\""), "{}", text(&output.stderr));
    let output = run(&[], &[], &["no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("\"no-such-program\": expected a program"));
    // Also without the two dashes: what looks like an option is one of ours until the program is named.
    let output = shunt(&["soft-rdma", "run", "--nicks", "2", "true"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("'--nics'"), "{}", text(&output.stderr));
}

#[test]
fn a_missing_library_is_said_with_how_to_build_it() {
    let output = run(&[], &[("SHUNT_SOFT_RDMA_LIB", "/nonexistent/lib.so")], &["true"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("cargo build --release") && said.contains("/nonexistent/lib.so"), "{said}");
}

#[test]
fn what_is_no_library_is_refused() {
    let folder = Folder::new("library");
    let make = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    // The head of this very program, as one that stands at a fixed address.
    let mut head = std::fs::read(env!("CARGO_BIN_EXE_shunt")).unwrap();
    head.truncate(4096);
    head[16..18].copy_from_slice(&2u16.to_ne_bytes());
    for (path, words) in [
        (make("empty", b""), "empty\": expected libshunt_soft_rdma.so, got no shared library"),
        (make("words", b"hello\n"), "words\": expected libshunt_soft_rdma.so, got no shared library"),
        (make("fixed", &head), "fixed\": expected libshunt_soft_rdma.so, got no shared library"),
        ("/dev/null".into(), "/dev/null\": expected libshunt_soft_rdma.so, got no shared library"),
        (folder.path().to_owned(), "is a directory; expected the library itself"),
    ] {
        let output = run(&[], &[("SHUNT_SOFT_RDMA_LIB", &path)], &["echo", "started"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{path}: {said}");
        assert!(said.contains(words), "{path}: {said}");
    }
}

#[test]
fn programs_that_would_have_no_devices_are_refused() {
    let folder = Folder::new("static");
    let make = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    // The head of this very program, its loader forgotten.
    let mut head = std::fs::read(env!("CARGO_BIN_EXE_shunt")).unwrap();
    head.truncate(4096);
    head[56..58].fill(0);
    let fixed = make("fixed", &head);
    let script = make("script", format!("#!{fixed}\n").as_bytes());
    for program in [&fixed, &script] {
        let output = run(&[], &[], &[program]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("fixed\" is a static program"), "{}", text(&output.stderr));
    }
    let words = make("words", b"hello\n");
    let output = run(&[], &[], &[&words]);
    assert!(
        text(&output.stderr).contains("expected an ELF program or a script, got neither"),
        "{}",
        text(&output.stderr)
    );
    std::fs::set_permissions(&words, PermissionsExt::from_mode(0o644)).unwrap();
    for (program, said) in
        [(words.as_str(), "got a file that is not executable"), (folder.path(), "got a folder")]
    {
        let output = run(&[], &[], &[program]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

#[test]
fn faults_are_injected_into_a_program_that_runs() {
    let folder = Folder::new("fault");
    let machine = folder.machine();
    let pid = std::process::id().to_string();
    let environment = [("XDG_RUNTIME_DIR", folder.path())];
    let fault = |arguments: &[&str]| shunt(&[&["soft-rdma", "fault"], arguments].concat(), &environment);
    let output = fault(&["--fabric", "lab", "mlx5_1", "down"]);
    assert_eq!(text(&output.stdout), format!("fault 0 of process {pid}: down at mlx5_1, now\n"));
    let output = fault(&["--fabric", "lab", "--pid", &pid, "--after", "1h", "0", "down"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = fault(&["--fabric", "lab", "--pid", &pid, "--after", "60m", "0", "drop=0.5"]);
    assert_eq!(text(&output.stdout), format!("fault 1 of process {pid}: drop=0.5 at mlx5_0, in 3600s\n"));
    for (arguments, status, words) in [
        (["--fabric", "lab", "mlx5_2", "down"], 1, "no mlx5_2; there are mlx5_0, mlx5_1"),
        (["--fabric", "lab", "0", "dwon"], 2, "no fault is called `dwon`; did you mean `down`?"),
        (["--fabric", "lab", "eth0", "down"], 2, "a NIC's name or number, such as mlx5_0 or 0, got \"eth0\""),
        (["--fabric", "other", "0", "down"], 2, "no process with soft devices in fabric other"),
    ] {
        let output = fault(&arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    let output = fault(&["--fabric", "lab", "--pid", "1", "0", "down"]);
    assert!(text(&output.stderr).contains(&format!("no process 1 in fabric lab; there are: {pid}")));
    let list = |flags: &[&str]| text(&shunt(&[&["soft-rdma", "list"], flags].concat(), &environment).stdout);
    let table = list(&[]);
    let line = |word: &str| {
        table.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    assert!(
        line("::ffff:10.0.0.1").contains("ACTIVE") && line("::ffff:10.0.0.1").starts_with("lab"),
        "{table}"
    );
    assert!(line("::ffff:10.1.0.1").contains("DOWN"), "{table}");
    assert!(line("drop=0.5").contains("in 3"), "{table}");
    let json = document(list(&["--json", "--fabric", "lab"]).as_bytes());
    assert_eq!(json["processes"][0]["fabric"], "lab");
    assert_eq!(json["processes"][0]["nics"][1]["up"], false);
    assert_eq!(json["processes"][0]["faults"][0]["hits"], 1);
    let none = document(list(&["--json", "--fabric", "other"]).as_bytes());
    assert_eq!(none["processes"], serde_json::json!([]));
    machine.close();
    assert!(list(&[]).contains("no program has soft RDMA devices"));
}

#[test]
fn a_program_that_does_not_answer_is_not_nobody() {
    let folder = Folder::new("list");
    let fabric = folder.0.join("shunt/fabric-lab");
    std::fs::create_dir_all(&fabric).unwrap();
    let list = |flags: &[&str]| {
        shunt(&[&["soft-rdma", "list"], flags].concat(), &[("XDG_RUNTIME_DIR", folder.path())])
    };
    let output = list(&["--fabric", "zzz"]);
    assert!(text(&output.stdout).starts_with("no program has soft RDMA devices in fabric zzz;"));
    // A server that hangs up on its callers.
    let listener = std::os::unix::net::UnixListener::bind(fabric.join("control-4711.sock")).unwrap();
    let hang_up = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let output = list(&[]);
    hang_up.join().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{said}");
    assert!(said.contains("process 4711 of fabric lab") && said.contains("does not answer"), "{said}");
}

#[test]
fn our_own_discovery_reads_the_tree() {
    let folder = Folder::new("topology");
    let machine = folder.machine();
    let output = shunt(&["topology", "--root", machine.sysfs_root().to_str().unwrap()], &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    for words in ["2 RDMA devices", "2 of 2 ports can be used", "mlx5_0", "mlx5_1"] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    assert!(!said.contains("missing or not understood"), "{said}");
    machine.close();
}
