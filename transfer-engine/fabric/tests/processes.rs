//! Two processes over shared memory, whose lane is closed under load.
//!
//! The second process is this program again, with the test that is its part.

use crate::rig::{SHM, memory, rail, read, until, write};
use crate::two::{PAGE, PAGES, content};
use shunt_bootstrap::oob::Oob;
use shunt_device::platform::host::World;
use shunt_mlx5::clock::RealClock;
use shunt_mlx5::memory::OwnedSpan;
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{Engine, FLAG_DONE, FLAG_RUNNING, OnDone, Paged, Policy};
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_fabric::{FabricAddress, FabricDomain, Parts, Patience};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The folder that both processes use: set in the second one.
const FOLDER: &str = "SHUNT_FABRIC_TEST_FOLDER";
const ROUNDS: u32 = 8;
const POISON: u8 = 0xee;
/// A file of that name ends the second process.
const DONE: &str = "done";

/// Datagrams between the two.
struct Datagrams(UnixDatagram, PathBuf);

impl Oob for Datagrams {
    fn send(&self, to: u32, bytes: Vec<u8>) {
        // It may get lost.
        let _ = self.0.send_to(&bytes, self.1.join(to.to_string()));
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        let mut bytes = vec![0; 1 << 16];
        let (len, from) = self.0.recv_from(&mut bytes).ok()?;
        bytes.truncate(len);
        Some((from.as_pathname()?.file_name()?.to_str()?.parse().ok()?, bytes))
    }
}

struct End {
    engine: Engine<FabricDomain>,
    memory: Arc<OwnedSpan>,
    region: Mr,
    clock: RealClock,
    peer: PeerId,
}

impl End {
    /// The first of them tells where it is, and the other one is told of a process that is not this one.
    fn new(folder: &Path, me: u32) -> Option<Self> {
        let rails = vec![rail(&SHM)?];
        let socket = UnixDatagram::bind(folder.join(me.to_string())).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let mine = FabricAddress::new(&rails);
        std::fs::write(folder.join(format!("address.{me}")), mine.to_bytes()).expect("written");
        let theirs = folder.join(format!("address.{}", 1 - me));
        let mut other = None;
        until("the other process", || {
            other = std::fs::read(&theirs).ok().and_then(|bytes| FabricAddress::from_bytes(&bytes));
            other.is_some()
        });
        let mut peers = vec![mine, other?];
        peers.rotate_right(me as usize);
        let oob = Box::new(Datagrams(socket, folder.to_owned()));
        let patience = Patience { suspect: Nanos::millis(500), ..Patience::DEFAULT };
        let mut domain = FabricDomain::new(Parts { me, rails, peers, oob, patience });
        let memory = memory(u64::from(PAGES) * PAGE);
        let region = domain.register(&memory, Rights::ReadWrite).expect("a region");
        let engine = Engine::new(domain, Policy { give_up: Nanos::secs(10), ..Policy::of_rails(1) });
        Some(Self { engine, memory, region, clock: RealClock::new(), peer: PeerId(1 - me) })
    }

    fn now(&self) -> Nanos {
        Nanos::new(self.clock.now_ns())
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            let now = self.now();
            self.engine.step(now);
            let remarks = self.engine.domain.take_remarks();
            assert!(remarks.is_empty(), "{remarks:?}");
            holds(self)
        });
    }

    fn message(&mut self) -> Vec<u8> {
        let mut message = None;
        self.until("a message", |end| {
            message = end.engine.take_message();
            message.is_some()
        });
        message.map(|(_, bytes)| bytes).unwrap_or_default()
    }

    fn say(&mut self, bytes: &[u8]) -> Arc<AtomicU8> {
        let (now, peer, flag) = (self.now(), self.peer, Arc::new(AtomicU8::new(FLAG_RUNNING)));
        self.engine.submit_send(now, peer, bytes, OnDone::Flag(flag.clone())).expect("posted");
        flag
    }
}

#[test]
fn pages_go_between_processes_over_shared_memory_while_their_lane_is_closed() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("shunt-fabric-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::the_second_process", "--nocapture"])
        .env(FOLDER, &folder)
        .spawn()
        .expect("this program");
    let Some(mut end) = End::new(&folder, 0) else {
        child.wait().expect("it was started");
        return;
    };
    let description = end.region.describe(Rights::ReadWrite).to_bytes();
    end.say(&description);
    for round in 0..ROUNDS {
        let (reached, mut turn) = (Arc::new(AtomicU8::new(0)), 0);
        let told = reached.clone();
        let call = move |result: Result<(), _>| told.store(1 + u8::from(result.is_err()), Ordering::Release);
        let peer = end.peer;
        end.engine.expect((peer, round), PAGES.into(), Nanos::MAX, Box::new(call)).expect("one of it");
        end.until("a round", |end| {
            // Down once pages of the round have arrived.
            let (now, begun) = (end.now(), end.engine.counter(peer, round) > 0);
            turn += u32::from(begun || turn > 0);
            match turn {
                5 => _ = end.engine.domain.set_rail(now, 0, false),
                50 => _ = end.engine.domain.set_rail(now, 0, true),
                _ => {}
            }
            reached.load(Ordering::Acquire) == 1
        });
        let now = end.now();
        end.engine.domain.set_rail(now, 0, true);
        for page in 0..PAGES {
            let bytes = read(&end.memory, u64::from(page) * PAGE, PAGE as usize);
            assert_eq!(bytes, content(round, page), "page {page} of round {round}");
        }
        end.say(&round.to_le_bytes());
        assert_eq!(end.engine.counter(end.peer, round), 0, "immediates that are too many");
    }
    // It says how many pieces went again, and goes on to write, cut off or not.
    let again = end.message();
    let peer = end.peer;
    end.until("pages", |end| end.engine.counter(peer, ROUNDS) > 20);
    let (now, left) = (end.now(), Arc::new(AtomicU8::new(0)));
    let told = left.clone();
    assert!(end.engine.leave(now, peer, Box::new(move || told.store(1, Ordering::Release))));
    end.until("a farewell", |_| left.load(Ordering::Acquire) == 1);
    let all = u64::from(PAGES) * PAGE;
    write(&end.memory, 0, &vec![POISON; all as usize]);
    let until = end.now() + Nanos::millis(300);
    end.until("a while", |end| end.now() > until);
    assert!(read(&end.memory, 0, all as usize).iter().all(|byte| *byte == POISON), "something landed");
    assert!(child.try_wait().expect("it was started").is_none(), "it went on");
    std::fs::write(folder.join(DONE), []).expect("written");
    assert!(child.wait().expect("it was started").success());
    println!("again: {again:?}");
    assert_ne!(again, [0; 8], "no piece was under way on a lane that was closed");
    std::fs::remove_dir_all(&folder).expect("a folder");
}

/// Not a test of its own: what the second process does.
#[test]
fn the_second_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let Some(mut end) = End::new(Path::new(&folder), 1) else { return };
    let target = MrDesc::from_bytes(&end.message()).expect("a description");
    let pages = Pages { indices: (0..PAGES).collect(), stride: PAGE, offset: 0 };
    for round in 0..ROUNDS {
        for page in 0..PAGES {
            write(&end.memory, u64::from(page) * PAGE, &content(round, page));
        }
        let (now, flag) = (end.now(), Arc::new(AtomicU8::new(FLAG_RUNNING)));
        let paged = Paged {
            peer: end.peer,
            page_len: PAGE,
            imm: Some(round),
            from: (&end.region, &pages),
            to: (&target, &pages),
        };
        end.engine.submit_paged(now, &paged, OnDone::Flag(flag.clone())).expect("posted");
        end.until("a round", |_| {
            let value = flag.load(Ordering::Acquire);
            assert!(value == FLAG_RUNNING || value == FLAG_DONE, "a transfer failed");
            value == FLAG_DONE
        });
        assert_eq!(end.message(), round.to_le_bytes());
    }
    let again = end.engine.counts().again.to_le_bytes();
    end.say(&again);
    // All rounds that it can: the other end cuts it off meanwhile.
    let (posted, mut next) = (Arc::new(AtomicU8::new(FLAG_DONE)), ROUNDS);
    end.until("the end", |end| {
        if posted.load(Ordering::Acquire) == FLAG_DONE {
            posted.store(FLAG_RUNNING, Ordering::Release);
            let (now, done) = (end.now(), OnDone::Flag(posted.clone()));
            let from = (&end.region, &pages);
            let paged =
                Paged { peer: end.peer, page_len: PAGE, imm: Some(next), from, to: (&target, &pages) };
            end.engine.submit_paged(now, &paged, done).expect("posted");
            next += 1;
        }
        Path::new(&folder).join(DONE).exists()
    });
}
