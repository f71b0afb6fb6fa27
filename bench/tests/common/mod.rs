//! Processes of a job, started by hand and never waited for without end.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far beyond what any run here takes, on a machine that does much else.
pub const HANG: Duration = Duration::from_secs(90);

/// A folder of this test's own, empty.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).unwrap();
    path
}

/// The program with no variable set but what it needs to find others, and the short path that sockets want.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shmem_put_bw"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
    command
}

/// How a process ended, and its words.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A process that runs.
pub struct Running {
    pub child: Child,
    out: JoinHandle<String>,
    err: JoinHandle<String>,
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (read(child.stdout.take().unwrap()), read(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// Waits for its end; a hang is a failure.
    pub fn end(mut self) -> Ended {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > HANG {
                self.child.kill().unwrap();
                let (out, err) = (self.out.join().unwrap(), self.err.join().unwrap());
                panic!("killed after {HANG:?}: {out}{err}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ended { code: status.code(), out: self.out.join().unwrap(), err: self.err.join().unwrap() }
    }
}

/// A port that nobody listens at now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One rank of a job at `port`, with a fabric of the job's own.
pub fn rank(rank: u32, world: u32, port: u16, arguments: &str) -> Command {
    let mut command = program();
    command
        .args(["--rank", &rank.to_string(), "--world", &world.to_string()])
        .args(["--root", &format!("127.0.0.1:{port}"), "--fabric", &format!("t{port}")])
        .args(arguments.split_whitespace());
    command
}

/// All ranks of a job.
pub fn job(world: u32, arguments: &str) -> Vec<Running> {
    let port = free_port();
    (0..world).map(|number| Running::start(&mut rank(number, world, port, arguments))).collect()
}

/// Waits until a file is there, as long as the processes run.
pub fn until_file(path: &Path, processes: &mut [Running]) {
    let since = Instant::now();
    while !path.exists() {
        for process in &mut *processes {
            assert_eq!(process.child.try_wait().unwrap(), None, "ended before its time");
        }
        assert!(since.elapsed() < HANG, "{} never comes", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}
