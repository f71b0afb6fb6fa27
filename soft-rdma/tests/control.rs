//! The control socket: what is asked in a right way is done, everything else is answered and harms nothing.

use crate::support::{PATIENCE, Runtime, wait};
use shunt_soft_machine::control::{Client, ControlError, processes_in};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

fn socket(runtime: &Runtime) -> PathBuf {
    let found = processes_in(&runtime.0, "default");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].pid, std::process::id());
    found[0].socket.clone()
}

/// A caller that writes what it likes.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn new(runtime: &Runtime) -> Self {
        let stream = UnixStream::connect(socket(runtime)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, text: &str) -> String {
        self.say(format!("{text}\n").as_bytes());
        self.hear()
    }
}

#[test]
fn the_protocol_as_it_is_written_down() {
    let runtime = Runtime::new();
    let machine = runtime.start(2);
    let mut raw = Raw::new(&runtime);
    assert_eq!(raw.ask(r#"{"inject":{"nic":1,"at_ns":0,"fault":"down=300ms"}}"#), r#"{"ok":{"id":0}}"#);
    assert_eq!(raw.ask(r#"{"inject":{"nic":0,"fault":"drop=0.5/1s"}}"#), r#"{"ok":{"id":1}}"#);
    let faults = raw.ask(r#"{"faults":{}}"#);
    for part in [r#""kind":"down""#, r#""nic":1"#, r#""hits":"#, r#""fault":"drop=0.5/1s""#] {
        assert!(faults.contains(part), "{part} is not in {faults}");
    }
    let nics = raw.ask(r#"{"nics":{}}"#);
    for part in [r#""name":"mlx5_1""#, r#""gid":"::ffff:10.1.0.1""#, r#""packets_tx":0"#, r#""up":"#] {
        assert!(nics.contains(part), "{part} is not in {nics}");
    }
    let nothing = r#"{"ok":{"writes":0,"last":0,"not_increasing":0}}"#;
    assert_eq!(raw.ask(r#"{"watch":{"address":4096}}"#), nothing);
    assert_eq!(raw.ask(r#"{"watched":{"address":4096}}"#), nothing);
    machine.close();
}

#[test]
fn bad_requests_get_an_error_and_lose_nothing() {
    let runtime = Runtime::new();
    let machine = runtime.start(1);
    let mut raw = Raw::new(&runtime);
    assert_eq!(raw.ask(r#"{"inject":{"nic":0,"at_ns":3600000000000,"fault":"down"}}"#), r#"{"ok":{"id":0}}"#);
    for (request, words) in [
        ("hello", "not a request"),
        ("{}", "not a request"),
        ("[]", "not a request"),
        ("\u{0}\u{1}", "not a request"),
        (r#"{"faults":{}} {"faults":{}}"#, "trailing"),
        (r#"{"faults":{"nic":0}}"#, "unknown field"),
        (r#"{"exit":{}}"#, "unknown variant"),
        (r#"{"inject":{"nic":0}}"#, "missing field"),
        (r#"{"inject":{"nic":-1,"fault":"down"}}"#, "not a request"),
        (r#"{"inject":{"nic":0,"fault":"down","extra":1}}"#, "unknown field"),
        (r#"{"inject":{"nic":1,"fault":"down"}}"#, "no mlx5_1; there is mlx5_0"),
        (r#"{"inject":{"nic":4294967295,"fault":"down"}}"#, "no mlx5_4294967295; there is mlx5_0"),
        (r#"{"inject":{"nic":0,"fault":"dwon"}}"#, "no fault is called `dwon`"),
        (r#"{"inject":{"nic":0,"fault":"drop=2"}}"#, "a probability from 0 to 1"),
        (r#"{"inject":{"nic":0,"at_ns":1e99,"fault":"down"}}"#, "not a request"),
    ] {
        let answer = raw.ask(request);
        assert!(answer.starts_with(r#"{"error":""#) && answer.contains(words), "{request}: {answer}");
    }
    raw.say(b"\n \n\xff\xfe\n");
    assert!(raw.hear().starts_with(r#"{"error":"#));
    // The latest instant there is: planned, and never reached.
    assert_eq!(
        raw.ask(r#"{"inject":{"nic":0,"at_ns":18446744073709551615,"fault":"down"}}"#),
        r#"{"ok":{"id":1}}"#
    );
    let mut client = Client::connect(&socket(&runtime)).unwrap();
    assert_eq!(client.faults().unwrap().len(), 2);
    assert!(
        matches!(client.inject(7, 0, "down"), Err(ControlError::Refused(text)) if text.contains("no mlx5_7; there"))
    );
    assert_eq!(client.nics().unwrap().nics.len(), 1);
    machine.close();
    assert!(matches!(Client::connect(&socket_path(&runtime)), Err(ControlError::Connect { .. })));
}

fn socket_path(runtime: &Runtime) -> PathBuf {
    runtime.fabric().join(format!("control-{}.sock", std::process::id()))
}

#[test]
fn callers_that_never_end_leave_room_for_others() {
    let runtime = Runtime::new();
    let machine = runtime.start(1);
    // A line without an end.
    let mut endless = Raw::new(&runtime);
    endless.say(&[b'x'; 64 << 10]);
    assert!(endless.hear().contains("a line of more than"));
    // Half a request, and nobody there any more.
    let mut half = Raw::new(&runtime);
    half.say(br#"{"inject":{"nic":0,"#);
    drop(half);
    // As many as there may be, who say nothing.
    let mut silent: Vec<Raw> = Vec::new();
    wait("a refusal", || {
        let mut raw = Raw::new(&runtime);
        raw.0.get_mut().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut line = String::new();
        let refused = raw.0.read_line(&mut line).is_ok() && line.contains("try again later");
        silent.push(raw);
        refused
    });
    assert!(silent.len() > 8, "{} callers", silent.len());
    drop(silent);
    wait("room", || Client::connect(&socket(&runtime)).is_ok_and(|mut client| client.nics().is_ok()));
    machine.close();
}

#[test]
fn nobody_else_gets_in() {
    use std::os::unix::fs::PermissionsExt;
    let runtime = Runtime::new();
    let machine = runtime.start(1);
    let mode = std::fs::metadata(runtime.fabric()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    machine.close();
}
