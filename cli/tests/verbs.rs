//! `shunt verbs`: what is refused, with what words.

use crate::support::{document, shunt, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn run(program: &str, environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = shunt(&["verbs", "run", "--", program], environment);
    (output.status.code(), text(&output.stderr).to_string())
}

/// The smallest header of a 64-bit program of this machine, without a loader.
fn static_program() -> Vec<u8> {
    let mut own = std::fs::read("/proc/self/exe").unwrap();
    own.truncate(64);
    // No program headers.
    own[56..58].copy_from_slice(&[0, 0]);
    own
}

fn executable(path: &Path, bytes: &[u8], mode: u32) {
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A program, variables, and what is said.
type Refused<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// All that `shunt verbs run` refuses: the program, the variables, and what is said. The status is always 2.
#[test]
fn what_cannot_be_run_is_refused_with_what_was_expected_and_what_was_met() {
    let folder = std::env::temp_dir().join(format!("shunt-cli-verbs-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (fixed, narrow) = (place("static"), place("narrow"));
    executable(Path::new(&fixed), &static_program(), 0o755);
    let mut narrow_program = static_program();
    // ELFCLASS32.
    narrow_program[4] = 1;
    executable(Path::new(&narrow), &narrow_program, 0o755);
    let program = "/bin/true";
    let secret = ("SHUNT_SECRET", "not a secret, for tests");
    let folder_store = ("SHUNT_VERBS_STORE", "file:///shared");
    let far = ("SHUNT_VERBS_STORE", "redis://192.0.2.1:6379");
    let none = "expected a secret, since other machines reach it, got none";
    let table: &[Refused<'_>] = &[
        (&fixed, &[], "is a static program"),
        (&narrow, &[], "expected a program for this processor, got one for another"),
        ("no-such-program", &[], "no-such-program"),
        (program, &[("SHUNT_VERBS", "always")], "SHUNT_VERBS: expected on, observe or off, got \"always\""),
        (
            program,
            &[("SHUNT_VERBS_STORE", "ftp://x"), secret],
            "SHUNT_VERBS_STORE: expected unix:, tcp://HOST:PORT",
        ),
        (program, &[("SHUNT_VERBS_STORE", "redis://a:b@x")], "got \"redis://..@x\""),
        (
            program,
            &[("SHUNT_VERBS_BACKUPS", "9")],
            "SHUNT_VERBS_BACKUPS: expected a whole number from 1 to 7, got \"9\"",
        ),
        (
            program,
            &[("SHUNT_VERBS_PEER", "no")],
            "SHUNT_VERBS_PEER: expected optional or required, got \"no\"",
        ),
        (program, &[folder_store], &format!("a store in a folder: {none}")),
        (program, &[far], &format!("192.0.2.1:6379: {none}")),
        (program, &[far, ("SHUNT_SECRET", "short")], "SHUNT_SECRET: expected "),
        (program, &[far, secret, ("SHUNT_SECRET_FILE", "x")], "SHUNT_SECRET_FILE"),
    ];
    for (program, environment, said) in table {
        let (status, words) = run(program, environment);
        assert!(status == Some(2) && words.contains(said), "{environment:?}: {status:?}: {words}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn status_without_any_program_says_so() {
    let folder = std::env::temp_dir().join(format!("shunt-cli-verbs-status-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let environment = [("XDG_RUNTIME_DIR", folder.to_str().unwrap())];
    let output = shunt(&["verbs", "status"], &environment);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("no program has run under"), "{}", text(&output.stdout));
    let output = shunt(&["verbs", "status", "--json"], &environment);
    assert_eq!(document(&output.stdout)["programs"], serde_json::json!([]));
    let report = r#"{"pid": 1, "command": "ib_write_bw", "mode": "on", "pairs": [{"qpn": 7, "device": "mlx5_0",
        "state": "protected", "on": "mlx5_1", "backup": "", "switches": 2, "replayed": 3, "why": ""}], "posts": 0,
        "polls": 0}"#;
    std::fs::write(folder.join("shunt/verbs/1.json"), report).unwrap();
    // No process has this number: the largest that Linux gives is 2^22.
    let killed = report.replace("\"pid\": 1,", "\"pid\": 4194305,").replace("protected", "connecting");
    std::fs::write(folder.join("shunt/verbs/4194305.json"), killed).unwrap();
    let output = shunt(&["verbs", "status"], &environment);
    let said = text(&output.stdout);
    let row =
        said.lines().find(|line| line.contains("4194305") && line.contains("mlx5_0")).unwrap_or_default();
    let why = "the process was killed, or ended early; it was connecting";
    assert!(row.contains(" ended ") && row.contains(why), "{said}");
    let output = shunt(&["verbs", "status", "--json"], &environment);
    let mut told = document(&output.stdout);
    assert_eq!(told["schema"], "shunt-verbs-status");
    let program = &mut told["programs"][0];
    assert_eq!((&program["pid"], &program["pairs"][0]["switches"]), (&1.into(), &2.into()));
    program["pairs"][0]["switches"] = "two".into();
    assert!(shunt_json::errors(&told).contains("switches"), "{}", shunt_json::errors(&told));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_store_without_a_secret_or_an_address_of_its_own_is_refused() {
    let serve = |environment: &[(&str, &str)]| {
        // An address for documentation, which is no machine's.
        let output = shunt(&["store", "serve", "--listen", "192.0.2.1:7700"], environment);
        (output.status.code(), text(&output.stderr).to_string())
    };
    let (status, words) = serve(&[]);
    assert!(
        status == Some(2) && words.contains("set SHUNT_SECRET or SHUNT_SECRET_FILE"),
        "{status:?}: {words}"
    );
    let (status, words) = serve(&[("SHUNT_SECRET", "not a secret, for tests")]);
    let told = words.contains("192.0.2.1:7700: expected an address of this machine that is free");
    assert!(status == Some(2) && told, "{status:?}: {words}");
}
