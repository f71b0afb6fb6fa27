//! Processes of a job, started by hand and never waited for without end.

use serde_json::Value;
use std::io::Read;
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

/// A port at which nothing listens.
pub fn free_port() -> u16 {
    shunt_task::ports::free(1).unwrap()
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

/// Runs one of the programs; its report, which is clean. It says where queues lie where that was chosen.
pub fn clean(program: &str, queues: &str, arguments: &str, folder: &Path) -> Value {
    let json = folder.join("report.json");
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).arg("--json").arg(&json).env("SHUNT_QUEUES", queues);
    let output = command.output().unwrap();
    let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    let all = format!("SHUNT_QUEUES={queues} {arguments}\n{out}{said}");
    assert_eq!(output.status.code(), Some(0), "{all}");
    let lines = [&out, &said].map(|text| text.matches("queues: memory that stands for a GPU's").count());
    assert_eq!(lines.iter().sum::<usize>(), usize::from(queues == "gpu"), "{all}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["verdict"], "clean", "{all}");
    assert!(report["failovers"].as_u64() > Some(0), "no channel left its path: {all}");
    let hit = |fault: &Value| fault["hits"].as_u64() > Some(0);
    assert!(report["faults"].as_array().unwrap().iter().any(hit), "{all}");
    report
}

/// Runs a program; its JSON, which keeps its schema.
pub fn written(program: &str, name: &str, arguments: &[&str]) -> Value {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.json", std::process::id()));
    let output = Command::new(program).args(arguments).arg("--json").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["schema"], name);
    assert_eq!(shunt_json::errors(&document), "");
    document
}
