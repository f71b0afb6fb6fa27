//! The stages with others in their place: side by side, below the watermark, and to an end whatever fails.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Memory of the servers, and of staging. Numbers of calls, by what was called.
#[derive(Default)]
struct Fake {
    staging: Mutex<BTreeMap<u64, u8>>,
    target: Mutex<BTreeMap<(u32, u64), Vec<u8>>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    changed: Condvar,
    /// This call fails, if it is the so-many-th.
    fails: Option<(&'static str, u64)>,
}

impl Fake {
    fn call(&self, what: &'static str) -> Result<(), String> {
        let mut calls = self.calls.lock().unwrap();
        let count = calls.entry(what).or_default();
        *count += 1;
        self.changed.notify_all();
        if self.fails == Some((what, *count)) { Err(format!("{what} fails")) } else { Ok(()) }
    }

    /// Waits for another stage. A pipeline whose stages follow each other never comes to this.
    fn until(&self, what: &'static str, count: u64) {
        let calls = self.calls.lock().unwrap();
        let so_far = |calls: &mut BTreeMap<&str, u64>| calls.get(what).copied().unwrap_or(0) < count;
        let (_calls, timeout) =
            self.changed.wait_timeout_while(calls, Duration::from_secs(20), so_far).unwrap();
        assert!(!timeout.timed_out(), "{what} {count} does not come beside this stage");
    }
}

fn byte(param: u32, at: u64) -> u8 {
    (u64::from(param) * 31 + at * 7 + 1) as u8
}

struct Source<'a>(&'a Fake);

impl Fetch for Source<'_> {
    fn fetch(&mut self, param: u32, bytes: Range<u64>, into: &mut Vec<u8>) -> Result<(), String> {
        into.extend(bytes.map(|at| byte(param, at)));
        self.0.call("fetch")
    }
}

struct Same<'a>(&'a Fake);

impl Transform for Same<'_> {
    fn bytes(&self, fetched: u64) -> u64 {
        fetched
    }

    fn transform(
        &self,
        fetched: &[u8],
        put: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.0.call("transform")?;
        let (front, back) = fetched.split_at(fetched.len() / 2);
        put(front)?;
        put(back)
    }
}

/// A write that reads its source at its end, as a NIC may.
struct Late {
    fake: Arc<Fake>,
    tasks: Vec<Task>,
    staged: Range<u64>,
}

struct Memory(Arc<Fake>);

impl Wire for Memory {
    type Pending = Late;

    fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.0.staging.lock().unwrap().extend((at..).zip(bytes.iter().copied()));
        Ok(())
    }

    fn write(&self, tasks: &[Task], staged: Range<u64>) -> Result<Late, Failure> {
        self.0.call("write").map_err(Failure::Other)?;
        Ok(Late { fake: self.0.clone(), tasks: tasks.to_vec(), staged })
    }
}

impl Pending for Late {
    fn wait(self) -> Vec<Result<(), Failure>> {
        let one = |task: &Task| {
            let staging = self.fake.staging.lock().unwrap();
            let bytes: Vec<u8> = self.staged.clone().map(|at| staging[&at]).collect();
            let again = self.fake.target.lock().unwrap().insert((task.server, task.at), bytes);
            assert_eq!(again, None, "written twice");
            self.fake.call("wait").map_err(Failure::Lost)
        };
        self.tasks.iter().map(one).collect()
    }
}

fn task(param: u32, bytes: Range<u64>, server: u32) -> Task {
    let at = u64::from(param) * 1000 + bytes.start;
    Task { param, bytes, server, at }
}

fn is_right(fake: &Fake, tasks: &[Task]) -> bool {
    let target = fake.target.lock().unwrap();
    let right = |task: &Task| {
        let bytes: Vec<u8> = task.bytes.clone().map(|at| byte(task.param, at)).collect();
        target.get(&(task.server, task.at)) == Some(&bytes)
    };
    target.len() == tasks.len() && tasks.iter().all(right)
}

fn run_all(fake: &Arc<Fake>, tasks: &[Task], watermark: u64) -> Report {
    let (fake, tasks) = (fake.clone(), tasks.to_vec());
    limited(move || run(&tasks, &mut Source(&fake), &Same(&fake), &Memory(fake.clone()), watermark))
}

/// What it comes to, within a time that no pipeline takes: one that hangs fails its test.
fn limited<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, heard) = channel();
    let thread = std::thread::spawn(move || _ = tell.send(work()));
    match heard.recv_timeout(Duration::from_secs(30)) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => panic!("the pipeline: expected its end within 30 s, it hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => panic!("the pipeline: expected an answer, got none"),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn all_is_written_below_the_watermark(
        lens in proptest::collection::vec((1..60u64, 1..4u32), 0..40), room in 0..200u64,
    ) {
        let of = |(param, (len, servers)): (usize, &(u64, u32))| {
            (0..*servers).map(|server| task(param as u32, 5..5 + len, server)).collect::<Vec<_>>()
        };
        let tasks: Vec<Task> = lens.iter().enumerate().flat_map(of).collect();
        let most = lens.iter().map(|(len, _)| 2 * len).max().unwrap_or(0);
        let fake = Arc::new(Fake::default());
        let report = run_all(&fake, &tasks, most + room);
        prop_assert!(is_right(&fake, &tasks));
        let bytes = tasks.iter().map(Task::len).sum::<u64>();
        prop_assert_eq!((report.writes, report.bytes, report.failure), (tasks.len() as u64, bytes, None));
        prop_assert!(report.peak <= most + room && report.peak >= most);
        let fetches = fake.calls.lock().unwrap().get("fetch").copied().unwrap_or(0);
        prop_assert_eq!(fetches, lens.len() as u64, "once for all servers");
    }
}

/// The first piece stays in its last stage until all others have come through the stages before it.
struct Held(Arc<Fake>, Memory);

struct HeldWrite(Late, bool);

impl Wire for Held {
    type Pending = HeldWrite;

    fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.1.stage(at, bytes)
    }

    fn write(&self, tasks: &[Task], staged: Range<u64>) -> Result<HeldWrite, Failure> {
        let is_first = tasks[0].param == 0;
        if is_first {
            self.0.until("transform", 2);
            self.0.until("fetch", 3);
        }
        Ok(HeldWrite(self.1.write(tasks, staged)?, is_first))
    }
}

impl Pending for HeldWrite {
    fn wait(self) -> Vec<Result<(), Failure>> {
        if self.1 {
            self.0.fake.until("write", 3);
        }
        self.0.wait()
    }
}

#[test]
fn stages_go_on_side_by_side() {
    let tasks: Vec<Task> = (0..3).map(|param| task(param, 0..10, 0)).collect();
    let fake = Arc::new(Fake::default());
    let wire = Held(fake.clone(), Memory(fake.clone()));
    let (own, all) = (fake.clone(), tasks.clone());
    let report = limited(move || run(&all, &mut Source(&own), &Same(&own), &wire, 60));
    assert_eq!((report.failure, report.writes), (None, 3));
    assert!(is_right(&fake, &tasks));
}

#[test]
fn whatever_fails_it_comes_to_an_end_and_says_what() {
    let tasks: Vec<Task> =
        (0..20).flat_map(|param| (0..2).map(move |server| task(param, 0..10, server))).collect();
    for what in ["fetch", "transform", "write", "wait"] {
        for at in [1, 7, 20] {
            let fake = Arc::new(Fake { fails: Some((what, at)), ..Fake::default() });
            let report = run_all(&fake, &tasks, 40);
            let said = format!("{what} fails");
            let failure = if what == "wait" { Failure::Lost(said) } else { Failure::Other(said) };
            assert_eq!(report.failure, Some(failure), "{what} {at}");
            assert!(report.writes < tasks.len() as u64 && report.peak <= 40, "{report:?}");
            let calls = fake.calls.lock().unwrap();
            let count = |what: &str| calls.get(what).copied().unwrap_or(0);
            assert_eq!(report.writes + report.writes_failed, count("wait"), "what was started is waited for");
        }
    }
}

#[test]
fn a_watermark_below_a_piece_is_refused() {
    let fake = Arc::new(Fake::default());
    let report = run_all(&fake, &[task(0, 0..10, 0), task(1, 0..11, 0)], 21);
    let said = "watermark: expected at least 22 bytes, what the largest piece needs, got 21".to_owned();
    assert_eq!(report.failure, Some(Failure::Other(said)));
    assert!(fake.calls.lock().unwrap().is_empty(), "nothing was started");
}
