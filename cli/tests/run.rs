//! `shunt run` as a process: exit statuses, signals, prefixes, environment. The ranks are small shell programs.

use shunt_host::connect::Bootstrap;
use shunt_host::connect::tcp::TcpNet;
use shunt_host::job::{Flags, Job};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn shunt(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(arguments);
    command
}

/// Runs `script` in each of two ranks.
fn two(flags: &[&str], script: &str) -> Output {
    let arguments = [&["run", "-n", "2"], flags, &["--", "sh", "-c", script]].concat();
    shunt(&arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn last_line(output: &Output) -> String {
    text(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn exit_statuses() {
    let cases = [
        ("exit 0", 0, "ranks 0-1 exited with 0"),
        ("exit $((SHUNT_RANK * 3))", 3, "rank 0 exited with 0, rank 1 exited with 3"),
        ("exit $((3 - SHUNT_RANK * 2))", 3, "rank 0 exited with 3, rank 1 exited with 1"),
        ("[ $SHUNT_RANK = 0 ] || kill -9 $$", 137, "rank 0 exited with 0, rank 1 was killed by SIGKILL"),
        (
            "[ $SHUNT_RANK = 0 ] && exit 3; kill -9 $$",
            3,
            "rank 0 exited with 3, rank 1 was killed by SIGKILL",
        ),
        ("kill -TERM $$", 143, "ranks 0-1 were killed by SIGTERM"),
    ];
    for (script, status, last) in cases {
        let output = two(&[], script);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", text(&output.stderr));
        assert_eq!(last_line(&output), format!("shunt run: {last}"), "{script}");
    }
}

#[test]
fn a_rank_called_in_a_wrong_way_ends_the_others_at_once() {
    let output = two(&["--grace", "1000s"], "[ $SHUNT_RANK = 0 ] && exit 2; exec sleep 1000");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let want = "shunt run: rank 0 exited with 2, rank 1 was killed by SIGTERM";
    assert_eq!(last_line(&output), want);
}

#[test]
fn lines_are_passed_on_whole_and_prefixed() {
    let script = "echo out; echo error >&2; printf unfinished";
    let output = two(&[], script);
    assert_eq!(lines(&output.stdout), ["[rank 1] out", "[rank 1] unfinished", "out", "unfinished"]);
    let error = text(&output.stderr);
    assert!(error.contains("[rank 0] error\n") && error.contains("[rank 1] error\n"), "{error}");
    let output = two(&["--tag"], script);
    let want = ["[rank 0] out", "[rank 0] unfinished", "[rank 1] out", "[rank 1] unfinished"];
    assert_eq!(lines(&output.stdout), want);
}

#[test]
fn ranks_know_who_they_are() {
    let script = "echo $SHUNT_RANK $SHUNT_WORLD $SHUNT_ROOT ${#SHUNT_SECRET} $SHUNT_FABRIC ${SHUNT_ROOT_FD:-none} \
                  ${SHUNT_SECRET_FILE:-none} $EXTRA; readlink /proc/$$/fd/${SHUNT_ROOT_FD:-9} | cut -c1-6";
    let mut command = shunt(&["run", "-n", "2", "--tag", "-x", "EXTRA=a=b", "--", "sh", "-c", script]);
    let output = command.env("SHUNT_SECRET_FILE", "/x").env("SHUNT_ROOT_FD", "7").output().unwrap();
    let lines = lines(&output.stdout);
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let [first, socket, second] = &words[..] else { panic!("{lines:?}") };
    assert_eq!((first[1], first[2], first[3], first[5]), ("0]", "0", "2", "64"), "{lines:?}");
    assert_eq!((second[1], second[2], second[3], second[5]), ("1]", "1", "2", "64"));
    assert_eq!((&first[4], &first[6]), (&second[4], &second[6]), "root and fabric are the same");
    assert!(first[4].starts_with("127.0.0.1:") && first[6].starts_with("run-"), "{lines:?}");
    assert!(first[7].parse::<u32>().is_ok() && second[7] == "none", "rank 0 alone has the socket");
    assert_eq!((first[8], second[8], first[9], second[9]), ("none", "none", "a=b", "a=b"));
    assert_eq!(socket[2], "socket");
    // A second run is another job on another fabric.
    let other = two(&[], "echo $SHUNT_FABRIC $SHUNT_SECRET");
    assert!(!text(&other.stdout).contains(first[6]));
    let named = two(&["--fabric", "lab-1"], "echo $SHUNT_FABRIC");
    assert!(text(&named.stdout).starts_with("lab-1\n") || text(&named.stdout).contains("\nlab-1\n"));
}

#[test]
fn a_fabric_of_its_own_is_removed_and_a_named_one_stays() {
    let base =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("runtime-{}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    let script = "umask 077; mkdir -p $XDG_RUNTIME_DIR/shunt/fabric-$SHUNT_FABRIC/left; kill -9 $$";
    for flags in [&[][..], &["--fabric", "lab"]] {
        let mut command = shunt(&[&["run", "-n", "1"], flags, &["--", "sh", "-c", script]].concat());
        let output = command.env("XDG_RUNTIME_DIR", &base).output().unwrap();
        assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
    }
    let left = std::fs::read_dir(base.join("shunt")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["fabric-lab"]);
    std::fs::remove_dir_all(&base).unwrap();
}

#[test]
fn fabrics_of_launchers_that_are_gone_are_removed_if_nobody_is_in_them() {
    // Not the build's own folder: a socket's path may have 107 bytes.
    let base = std::env::temp_dir().join(format!("shunt-leftovers-{}", std::process::id()));
    let runtime = base.join("shunt");
    std::fs::create_dir_all(&runtime).unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&runtime, closed).unwrap();
    // A number that no process has: it was ours to reap.
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (gone, here) = (ended.id(), std::process::id());
    let names = [
        format!("run-{gone}-0123abcd"),
        format!("run-{gone}-4567abcd"),
        format!("run-{here}-0123abcd"),
        format!("run-{gone}-lab"),
    ];
    let mut held = Vec::new();
    for name in &names {
        let gid = [name.len() as u8; 16];
        let uplink = shunt_soft_nic::UnixUplink::open_in(&runtime, name, &[gid]).unwrap();
        if name.ends_with("4567abcd") {
            held.push(uplink);
        }
    }
    let output = shunt(&["run", "-n", "1", "true"]).env("XDG_RUNTIME_DIR", &base).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stays: Vec<bool> = names.iter().map(|name| runtime.join(format!("fabric-{name}")).exists()).collect();
    assert_eq!(stays, [false, true, true, true], "{names:?}");
    drop(held);
    std::fs::remove_dir_all(&base).unwrap();
}

#[test]
fn ranks_join_by_what_the_launcher_gives_them() {
    let own = std::env::current_exe().unwrap();
    let rank = ["--", own.to_str().unwrap(), "--exact", "run::rank_of_a_launcher", "--nocapture"];
    let output =
        shunt(&[&["run", "-n", "3", "-x", "SHUNT_TEST_RANK=1"], &rank[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    for rank in 0..3 {
        let want = format!("rank {rank} of 3 saw [0, 1, 2] on a fabric of its own: true");
        assert_eq!(text(&output.stdout).matches(&want).count(), 1, "{}", text(&output.stdout));
    }
}

/// Not a test by itself: a rank that the one above starts.
#[test]
fn rank_of_a_launcher() {
    if std::env::var_os("SHUNT_TEST_RANK").is_none() {
        return;
    }
    let job = Job::from_env(&Flags::default()).unwrap().unwrap();
    let net = TcpNet::join(job.join().unwrap().options).unwrap();
    let met: Vec<u8> = net.bootstrap().all_gather(&[net.rank() as u8]).unwrap().concat();
    let own = job.fabric.is_some_and(|fabric| fabric.starts_with("run-"));
    println!("rank {} of {} saw {met:?} on a fabric of its own: {own}", net.rank(), net.world());
}

#[test]
fn bad_usage_is_status_2() {
    let cases: [(&[&str], &str); 12] = [
        (&["run"], "required"),
        (&["run", "-n", "2"], "required"),
        (&["run", "-n", "0", "true"], "expected a whole number from 1 to 1024, got \"0\""),
        (&["run", "-n", "-1", "true"], "1024, got \"-1\""),
        (&["run", "-n", "two", "true"], "1024, got \"two\""),
        (&["run", "-n", "2", "--fabric", "a/b", "true"], "letters, digits"),
        (&["run", "-n", "2", "--grace", "5", "true"], "with ns, us, ms or s, such as 500ms, got \"5\""),
        (&["run", "-n", "2", "-x", "NAME", "true"], "expected NAME=VALUE, got \"NAME\""),
        (&["run", "-n", "2", "-x", "SHUNT_RANK=1", "true"], "SHUNT_RANK is set by `shunt run`"),
        (
            &["run", "-n", "2", "--", "no-such-program"],
            "\"no-such-program\": expected a program, got none in ",
        ),
        (&["run", "-n", "2", "./no-such-program"], "got no such file"),
        (&["walk"], "unrecognized subcommand"),
    ];
    for (arguments, want) in cases {
        let output = shunt(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(want) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
    let error = text(&shunt(&["run", "-n", "1", "no-such-program"]).output().unwrap().stderr);
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_shunt")).parent().unwrap();
    assert!(error.contains(&own.display().to_string()), "it looks next to itself: {error}");
}

#[test]
fn a_program_that_cannot_be_executed_is_status_1() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join("not-a-program");
    std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = shunt(&["run", "-n", "2", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("rank 0: ") && text(&output.stderr).contains("cannot be started"));
}

#[test]
fn the_others_go_on_for_the_grace_and_are_ended_then() {
    let script = "[ $SHUNT_RANK = 1 ] && kill -9 $$; sleep 600";
    let output = two(&["--grace", "100ms"], script);
    let error = text(&output.stderr);
    assert!(error.contains("rank 1 was killed by SIGKILL; the others have 100ms to end"), "{error}");
    assert!(error.contains("ending 1 rank(s) after 100ms of grace"), "{error}");
    assert_eq!(last_line(&output), "shunt run: rank 0 was killed by SIGTERM, rank 1 was killed by SIGKILL");
    assert_eq!(output.status.code(), Some(137), "the first that was killed");
    // Within the grace a rank ends as it likes.
    let output = two(&[], "[ $SHUNT_RANK = 1 ] && kill -9 $$; sleep 0.1; echo survived; exit 3");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "survived\n".to_owned()));
}

#[test]
fn kill_others_ends_them_at_once() {
    let output = two(&["--kill-others", "--grace", "600s"], "[ $SHUNT_RANK = 1 ] && exit 4; sleep 600");
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("rank 1 exited with 4; ending the others"));
}

#[test]
fn signals_are_passed_on() {
    for (signal, status) in [(nix::sys::signal::SIGINT, 7), (nix::sys::signal::SIGTERM, 8)] {
        let script = "trap 'exit 7' INT; trap 'exit 8' TERM; echo ready; while :; do sleep 0.01; done";
        let mut job = shunt(&["run", "-n", "2", "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(job.stdout.take().unwrap());
        for _ in 0..2 {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            assert!(line.ends_with("ready\n"), "{line}");
        }
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(job.id() as i32), signal).unwrap();
        assert_eq!(job.wait().unwrap().code(), Some(status));
        let mut error = String::new();
        job.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert!(error.contains(&format!("{signal} is passed on to 2 rank(s)")), "{error}");
    }
}

/// Whether a process is there and not merely unreaped.
fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

fn until_gone(pid: &str) {
    let since = Instant::now();
    while is_alive(pid) {
        assert!(since.elapsed() < PATIENCE, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ranks_do_not_outlive_a_launcher_that_was_killed() {
    let mut job = shunt(&["run", "-n", "2", "--", "sh", "-c", "echo pid $$; exec sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(job.stdout.take().unwrap());
    let mut pids = Vec::new();
    for _ in 0..2 {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        pids.push(line.trim().rsplit(' ').next().unwrap().to_owned());
    }
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    job.kill().unwrap();
    assert_eq!(job.wait().unwrap().signal(), Some(9));
    pids.iter().for_each(|pid| until_gone(pid));
}

#[test]
fn what_a_rank_leaves_behind_is_ended_with_it() {
    let output = two(&[], "sleep 600 & echo pid $!");
    assert_eq!(output.status.code(), Some(0));
    for line in lines(&output.stdout) {
        until_gone(line.rsplit(' ').next().unwrap());
    }
}

#[test]
fn a_reader_that_left_does_not_stop_the_job() {
    let script =
        "i=0; while [ $i -lt 2000 ]; do echo a line of output that fills pipes; i=$((i+1)); done; exit 5";
    let mut job = shunt(&["run", "-n", "2", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(job.stdout.take());
    assert_eq!(job.wait().unwrap().code(), Some(5));
}
