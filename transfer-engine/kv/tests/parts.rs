//! A decoder and its prefillers, each on a thread of its own.

use shunt::host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt::soft_nic::{FaultKind, RailAt};
use shunt_kv::cache::Cache;
use shunt_kv::requests::Patience;
use shunt_kv::words::Shape;
use shunt_kv::{Decoder, Ended, How, Job, Prefiller};
use shunt_transfer::{NicKind, Node, Place, Source, Wish};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SHAPE: Shape = Shape { layers: 3, page_len: 4096, context_len: 100 };
const PAGES: u32 = 4;
const SOON: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(1);

fn place(ends: u32) -> Arc<Place> {
    let source =
        Source::find(Wish { nic: NicKind::Soft, rails: 2, soft_gbps: 1.0 }).expect("software is there");
    Arc::new(Place::alone(&source, ends).expect("NICs"))
}

fn node(place: &Arc<Place>, end: u32) -> Node {
    Node::open(place, end, 2, "127.0.0.1:0").expect("it is this machine")
}

fn heap(bytes: u64) -> Arc<OwnedSpan> {
    let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
    OwnedSpan::alloc(&memory, bytes, Placement::Heap).expect("memory")
}

fn byte(prompt: u64, layer: Option<u32>) -> u8 {
    (prompt * 31 + u64::from(layer.map_or(99, |layer| layer)) + 1) as u8
}

/// A prefiller that works until it is told not to. A layer takes a while.
struct Works {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

fn works(name: u32, node: Node, decoder: &str, shape: Shape) -> Works {
    node.connect(decoder, SOON).expect("it is there");
    let over = Arc::new(AtomicBool::new(false));
    let told = over.clone();
    let thread = std::thread::spawn(move || {
        let memory = heap(Prefiller::bytes(shape, PAGES, 4));
        let mut prefiller =
            Prefiller::new(name, Arc::new(node), memory.clone(), shape, PAGES).expect("it has memory");
        while !told.load(Ordering::Relaxed) {
            let compute = |Job { prompt, layer, at, bytes }: Job| {
                let bytes = vec![byte(prompt, layer); bytes as usize];
                memory.memory().write(at, &bytes).expect("its own");
                std::thread::sleep(STEP);
            };
            prefiller.step(STEP, compute).expect("open");
        }
        prefiller.served()
    });
    Works { over, thread }
}

impl Works {
    fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends")
    }
}

struct Asks {
    decoder: Decoder,
    ended: Vec<Ended>,
}

impl Asks {
    fn new(node: Node) -> Self {
        let cache = Cache { shape: SHAPE, pages: 32, contexts: 8 };
        let decoder = Decoder::new(node, heap(cache.bytes()), cache, Patience::SOFT).expect("it has memory");
        Self { decoder, ended: Vec::new() }
    }

    fn step(&mut self) {
        let ended = self.decoder.step(STEP).expect("open");
        for one in ended {
            if one.how == How::Complete {
                self.check(&one);
            }
            self.decoder.release(&one);
            self.ended.push(one);
        }
    }

    fn check(&self, ended: &Ended) {
        let (cache, memory) = (*self.decoder.cache(), self.decoder.memory());
        let is = |at: u64, len: u64, byte: u8| {
            let mut bytes = vec![0; len as usize];
            memory.memory().read(memory.span().address + at, &mut bytes).expect("its own");
            assert!(bytes.iter().all(|other| *other == byte), "prompt {} at {at}", ended.prompt);
        };
        for layer in 0..SHAPE.layers {
            for page in &ended.pages {
                is(cache.page_at(layer, *page), SHAPE.page_len, byte(ended.prompt, Some(layer)));
            }
        }
        is(cache.context_at(ended.context), SHAPE.context_len, byte(ended.prompt, None));
    }

    fn until(&mut self, is_it: impl Fn(&Self) -> bool) {
        let until = Instant::now() + SOON;
        while !is_it(self) {
            assert!(Instant::now() < until, "{:?}", self.ended);
            self.step();
        }
    }

    /// Asks until there is room for it.
    fn ask(&mut self, prompt: u64) -> u32 {
        let until = Instant::now() + SOON;
        loop {
            if let Some(id) =
                self.decoder.ask(prompt, 1 + (prompt % u64::from(PAGES)) as usize).expect("open")
            {
                return id;
            }
            assert!(Instant::now() < until, "prompt {prompt}: {:?}", self.ended);
            self.step();
        }
    }

    fn count(&self, is_it: impl Fn(&How) -> bool) -> usize {
        self.ended.iter().filter(|one| is_it(&one.how)).count()
    }
}

#[test]
fn prompts_arrive_whole_while_a_port_goes_down_and_some_are_cancelled() {
    let place = place(3);
    let listens = node(&place, 0);
    let at = listens.listens_at().expect("it listens").to_string();
    let mut asks = Asks::new(listens);
    let prefillers = [1, 2].map(|end| works(end, node(&place, end), &at, SHAPE));
    asks.until(|asks| asks.decoder.serving() == 2);
    let mut cancelled = 0;
    for prompt in 0..60 {
        let fail = |kind| _ = place.nics.inject(RailAt { pe: 0, rail: 1 }, kind).expect("a soft NIC");
        match prompt {
            15 => fail(FaultKind::Down { for_ns: None }),
            35 => fail(FaultKind::Up),
            _ => {}
        }
        let id = asks.ask(prompt);
        if prompt % 6 == 5 {
            cancelled += usize::from(asks.decoder.cancel(id).expect("open"));
            assert!(!asks.decoder.cancel(id).expect("open"), "once");
        }
        asks.step();
    }
    asks.until(|asks| asks.decoder.open() == 0);
    assert_eq!(asks.ended.len(), 60);
    let (whole, stopped) =
        (asks.count(|how| *how == How::Complete), asks.count(|how| *how == How::Cancelled(None)));
    // One that was cancelled may have been whole before.
    assert!(whole + stopped == 60 && stopped > 0 && stopped <= cancelled, "{whole} {stopped} of {cancelled}");
    assert_eq!((asks.decoder.used_pages(), asks.decoder.unproven()), (0, 0));
    assert!(asks.decoder.node().counts().expect("open").closed > 0, "the port was used");
    let served = prefillers.map(Works::end);
    assert!(served.iter().all(|served| *served > 0), "{served:?}");
}

#[test]
fn a_prefiller_that_ends_costs_its_requests_and_another_one_takes_over() {
    let place = place(4);
    let listens = node(&place, 0);
    let at = listens.listens_at().expect("it listens").to_string();
    let mut asks = Asks::new(listens);
    let first = works(1, node(&place, 1), &at, SHAPE);
    asks.until(|asks| asks.decoder.serving() == 1);
    let open: Vec<u32> = (0..8).map(|prompt| asks.ask(prompt)).collect();
    // In the middle of it.
    asks.until(|asks| !asks.ended.is_empty());
    first.end();
    asks.until(|asks| asks.decoder.open() == 0);
    let lost = asks.count(|how| *how == How::Lost);
    assert!(lost > 0 && lost + asks.count(|how| *how == How::Complete) == open.len(), "{:?}", asks.ended);
    assert_eq!((asks.decoder.used_pages(), asks.decoder.serving()), (0, 0));
    assert_eq!(asks.decoder.ask(9, 1).expect("open"), None, "none serves");
    let second = works(2, node(&place, 2), &at, SHAPE);
    asks.ended.clear();
    (10..20).for_each(|prompt| _ = asks.ask(prompt));
    asks.until(|asks| asks.decoder.open() == 0);
    assert_eq!(asks.count(|how| *how == How::Complete), 10, "{:?}", asks.ended);
    assert!(asks.ended.iter().all(|one| one.prefiller == 2));
    second.end();
}

#[test]
fn what_a_prefiller_cannot_write_is_told_with_its_reason() {
    let place = place(2);
    let listens = node(&place, 0);
    let at = listens.listens_at().expect("it listens").to_string();
    let mut asks = Asks::new(listens);
    let other = Shape { layers: SHAPE.layers + 1, ..SHAPE };
    let prefiller = works(1, node(&place, 1), &at, other);
    asks.ask(0);
    asks.until(|asks| !asks.ended.is_empty());
    let why = |how: &How| matches!(how, How::Cancelled(Some(why)) if why.starts_with("shape of a cache: expected "));
    assert_eq!(
        (asks.count(why), asks.decoder.again(), asks.decoder.used_pages()),
        (1, 2, 0),
        "{:?}",
        asks.ended
    );
    assert_eq!(prefiller.end(), 0);
    let cache = Cache { shape: SHAPE, pages: 32, contexts: 8 };
    let (small, node) = (heap(cache.bytes() - 1), node(&place, 1));
    assert!(Decoder::new(node, small, cache, Patience::SOFT).is_err(), "too small");
}
