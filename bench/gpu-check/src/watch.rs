//! A word that kernels of a graph write a million times while the thread of a transfer engine watches it.

use shunt_host::gpu::cuda::{Cuda, CudaMemory, Graph, Home, Launch, Module, Mover, Stream};
use shunt_host::gpu::{GpuMemory, OwnedSpan, Placement};
use shunt_transfer::{NicKind, Node, Place, Source, Wish};
use shunt_transfer_engine::watch::Goes;
use std::fmt::Display;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Adds one to the word, whose address is the first parameter. What it is to be is stored before, 64 bytes behind it.
const COUNT: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry shunt_count(.param .u64 word, .param .u64 unused)
{
  .reg .u64 %word, %value;
  ld.param.u64 %word, [word];
  ld.relaxed.sys.global.u64 %value, [%word];
  add.u64 %value, %value, 1;
  st.relaxed.sys.global.u64 [%word+64], %value;
  st.release.sys.global.u64 [%word], %value;
  ret;
}
";
const ENTRY: &str = "shunt_count";
/// Kernels of the graph. The last value of each replay must be told before the next one.
const STEPS: u64 = 1_000;
const REPLAYS: u64 = 1_000;
const BEFORE: u64 = 64;
const PAGE: u64 = 4096;
const SOON: Duration = Duration::from_secs(20);

/// What the watcher was told.
#[derive(Default)]
struct Seen {
    last: u64,
    told: u64,
    wrong: Vec<String>,
}

/// The word, in the host's memory, where the kernels reach it.
#[derive(Clone)]
struct Word(Arc<OwnedSpan>);

impl Word {
    /// What lies so many bytes behind it.
    fn at(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        let read = self.0.memory().read(self.0.span().address + offset, &mut bytes);
        read.map_or(u64::MAX, |()| u64::from_le_bytes(bytes))
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}

/// Every value that is told is later than the one before, and was stored whole; the last one of each replay is told.
pub fn word(_: &[String]) -> Result<String, String> {
    let cuda = Cuda::open(0).map_err(said)?;
    let memory = CudaMemory::new(cuda.clone(), Home::Host, Mover::SoftNic).map_err(said)?;
    let memory: Arc<dyn GpuMemory> = Arc::new(memory);
    let word = Word(OwnedSpan::alloc(&memory, PAGE, Placement::Control).map_err(said)?);
    let source = Source::find(Wish { nic: NicKind::Soft, rails: 1, soft_gbps: 1.0 }).map_err(said)?;
    let nodes = Node::start(Place::alone(&source, 2).map_err(said)?, 1).map_err(said)?;
    let (seen, (tell, told)) = (Arc::new(Mutex::new(Seen::default())), channel());
    let (read, looked, to) = (word.clone(), word.clone(), seen.clone());
    let each = move |old: u64, new: u64| {
        let mut seen = to.lock().unwrap_or_else(PoisonError::into_inner);
        let (expected, before) = (seen.last, looked.at(BEFORE));
        if old != expected || new <= old || before < new {
            seen.wrong.push(format!("from {old} to {new}, {before} before it; the last one was {expected}"));
        }
        (seen.last, seen.told) = (new, seen.told + 1);
        if new.is_multiple_of(STEPS) {
            let _ = tell.send(new);
        }
        Goes::On
    };
    let watcher = nodes[1].watch(Box::new(move || read.at(0)), Box::new(each)).map_err(said)?;
    let (stream, module) =
        (Stream::new(&cuda).map_err(said)?, Module::load(&cuda, COUNT.as_bytes()).map_err(said)?);
    let launch = Launch { entry: ENTRY, blocks: 1, threads: 1, call: word.0.span().address, out: 0 };
    // SAFETY: the kernel takes two numbers, and the word stays until the stream was synchronized.
    let one = || unsafe { module.launch(&stream, &launch) };
    let graph = stream.capture(|| (0..STEPS).try_for_each(|_| one())).map_err(said)?;
    let lost = replays(&graph, &stream, &told)?;
    nodes[1].unwatch(watcher).map_err(said)?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(wrong) = seen.wrong.first() {
        return Err(format!("{} of {} values told: {wrong}", seen.wrong.len(), seen.told));
    }
    match (lost, seen.last == STEPS * REPLAYS) {
        (0, true) => Ok(format!(
            "{} steps of a graph, {} values told, in order, 0 last ones lost",
            seen.last, seen.told
        )),
        (lost, _) => Err(format!("{lost} of {REPLAYS} last values lost, {} told", seen.last)),
    }
}

/// Replays the graph; after how many of them their last value was not told.
fn replays(graph: &Graph, stream: &Stream, told: &Receiver<u64>) -> Result<u64, String> {
    let mut lost = 0;
    for replay in 1..=REPLAYS {
        // SAFETY: the kernels of the graph write a word that the caller keeps.
        unsafe { graph.launch(stream) }.map_err(said)?;
        stream.synchronize().map_err(said)?;
        let until = Instant::now() + SOON;
        let is_told = || -> bool {
            loop {
                match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(last) if last == replay * STEPS => return true,
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
        };
        lost += u64::from(!is_told());
    }
    Ok(lost)
}
