//! An end of a job, or a node that connects to others: open, then closed.

use crate::calls::Calls;
use crate::events::Events;
use crate::failure::{Failure, Status};
use crate::tally::{Tally, Token};
use crate::turns::Turns;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Fault;
use shunt_transfer::transport::Names;
use shunt_transfer::{CallError, EXCHANGE, FABRIC, NicKind, NoNode, Node, Place, Region, Source, Way, Wish};
use shunt_transfer_engine::region::{MrDesc, Rights};
use shunt_transfer_engine::shard::LEN_MAX;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Calls of other threads that use a region are over within this time.
const CALLS: Duration = Duration::from_secs(5);

/// As the header has them.
const NAMES: Names = Names {
    transport: "options.transport",
    provider: "options.provider",
    addresses: "options.addresses",
    nic: "options.nic",
    gbps: "options.soft_gbps",
};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Opening {
    /// What carries transfers.
    pub way: Way,
    /// What carries the packets; else as `SHUNT_NIC` says.
    pub nic: Option<NicKind>,
    /// Rails of each end.
    pub rails: u32,
    /// Gb/s of a rail in software.
    pub soft_gbps: f64,
    /// Ends of this process; `None`: this process is one end of the launcher's job.
    pub ends: Option<u32>,
}

/// A node. What is below it is dropped after it, in this order.
struct Live {
    node: Node,
    /// Operations that had not ended have by then, and were told.
    _told: Told,
    _token: Token,
}

/// Says that no more ends come, when it is dropped.
struct Told(Arc<Events>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// `ste_engine`.
pub struct Engine {
    live: RwLock<Option<Arc<Live>>>,
    /// Of its thread, and of all memory that its NICs may touch.
    in_use: Arc<Tally>,
    /// Of exchanges.
    turns: Arc<Turns>,
    events: Arc<Events>,
    regions: Mutex<Vec<Weak<RegionOf>>>,
    end: u32,
}

/// A region, or why there is none any more.
enum Held {
    Open(Region),
    TakenBack,
    Closed,
}

/// `ste_region`.
pub struct RegionOf {
    engine: Weak<Engine>,
    held: Mutex<Held>,
    /// Of its memory, while a NIC or a call may touch it.
    in_use: Arc<Tally>,
}

/// `ste_target`.
pub struct TargetOf(pub MrDesc);

/// Starts the ends of this process, within this time.
///
/// # Errors
/// There are no such NICs, the others were not reached, or not in time.
pub fn open(opening: Opening, patience: Duration) -> Result<Vec<Engine>, Failure> {
    let nodes = within("ste_open", "all ends", patience, move || start(opening))?;
    Ok(nodes.into_iter().map(Engine::of).collect())
}

/// Starts a node without peers, which listens at `at`. `number` is its own among those of this machine whose NICs are
/// software.
///
/// # Errors
/// There are no such NICs, the address cannot be used, there is no secret, or not in time.
pub fn listen(opening: Opening, at: String, number: u32, patience: Duration) -> Result<Engine, Failure> {
    let node = within("ste_listen", "its NICs", patience, move || {
        let source = source(&opening)?;
        let fabric = std::env::var("SHUNT_FABRIC").unwrap_or_else(|_| FABRIC.to_owned());
        let place = Arc::new(Place::beside(&source, number, &fabric)?);
        place.lines.iter().for_each(|line| shunt_transfer::complain(line));
        Ok(Node::open(&place, number, opening.rails, &at)?)
    });
    node.map(Engine::of)
}

/// What work on a thread of its own comes to. What comes too late is dropped there.
fn within<T: Send + 'static>(
    name: &str,
    what: &str,
    patience: Duration,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (tell, heard) = channel();
    let thread = std::thread::Builder::new().name("transfer open".to_owned());
    let begun = thread.spawn(move || _ = tell.send(work()));
    begun.map_err(|error| Failure::new(Status::System, format!("a thread: expected one, got {error}")))?;
    match heard.recv_timeout(patience) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => {
            let text = format!("{name}: expected {what} within {patience:?}, got no answer of some");
            Err(Failure::new(Status::Timeout, text))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Failure::new(Status::Defect, format!("{name}: expected an answer, got a panic")))
        }
    }
}

fn source(opening: &Opening) -> Result<Source, Failure> {
    let Opening { way, nic, rails, soft_gbps, .. } = opening;
    let said = |_: &str| std::env::var(NicKind::VARIABLE).ok();
    let set = NicKind::from_lookup(&said);
    let set = set.map_err(|error| Failure::new(Status::Refused, error.to_string()))?;
    let wish = Wish { nic: nic.or(set).unwrap_or_default(), rails: *rails, soft_gbps: *soft_gbps };
    Ok(Source::by(way, &NAMES, wish)?)
}

fn start(opening: Opening) -> Result<Vec<Node>, Failure> {
    let source = source(&opening)?;
    let place = match opening.ends {
        Some(ends) => Place::alone(&source, ends)?,
        None => Place::from_env(&source)?.ok_or_else(|| {
            let text = "SHUNT_RANK: expected a number, as `shunt run -n 2 -- PROGRAM` and other launchers set it, got \
                        nothing";
            NoNode::Refused(text.to_owned())
        })?,
    };
    place.lines.iter().for_each(|line| shunt_transfer::complain(line));
    Ok(Node::start(place, opening.rails)?)
}

fn closed() -> Failure {
    Failure::new(Status::Closed, "engine: expected an open one, got one that ste_close has closed")
}

impl Engine {
    fn of(node: Node) -> Self {
        let in_use = Arc::new(Tally::default());
        let end = node.end();
        let (turns, events) = (Arc::default(), Arc::new(Events::new(Calls::new(in_use.clone()))));
        let live = Live { node, _told: Told(events.clone()), _token: in_use.token() };
        let live = RwLock::new(Some(Arc::new(live)));
        Self { live, in_use, turns, events, regions: Mutex::default(), end }
    }

    /// The number of this end.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Ends that were not polled yet.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Keeps it from being closed.
    pub fn in_use(&self) -> Token {
        self.in_use.token()
    }

    /// Does something with its node, which is not closed before that is over.
    ///
    /// # Errors
    /// It is closed, or as the work fails.
    pub fn with<T, E>(&self, work: impl FnOnce(&Node) -> Result<T, E>) -> Result<T, Failure>
    where
        Failure: From<E>,
    {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        Ok(work(&live.as_ref().ok_or_else(closed)?.node)?)
    }

    /// The same for a call that may take long: it does not hold up [`Engine::close`], which ends it.
    ///
    /// # Errors
    /// As [`Engine::with`].
    pub fn wait<T>(&self, work: impl FnOnce(&Node) -> Result<T, CallError>) -> Result<T, Failure> {
        Ok(work(&self.live()?.node)?)
    }

    fn live(&self) -> Result<Arc<Live>, Failure> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)
    }

    /// Gives bytes to all ends, and returns everyone's. One that takes longer goes on without its caller, and those
    /// that come later keep their order behind it.
    ///
    /// # Errors
    /// Not in time, or an end is gone.
    pub fn exchange(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, Failure> {
        let live = self.live()?;
        let (mine, turn, (tell, heard)) = (mine.to_vec(), self.turns.take(), channel());
        let thread = std::thread::Builder::new().name("transfer exchange".to_owned());
        let begun = thread.spawn(move || {
            turn.wait();
            let all = live.node.exchange_within(&mine, patience.max(EXCHANGE));
            drop((turn, live));
            let _ = tell.send(all);
        });
        begun
            .map_err(|error| Failure::new(Status::System, format!("a thread: expected one, got {error}")))?;
        match heard.recv_timeout(patience) {
            Ok(all) => Ok(all?),
            Err(_) => {
                let text =
                    format!("ste_exchange: expected all ends within {patience:?}, got no answer of some");
                Err(Failure::new(Status::Timeout, text))
            }
        }
    }

    /// Registers memory of the caller's.
    ///
    /// # Errors
    /// It is none, a NIC refuses, or the engine is closed.
    ///
    /// # Safety
    /// All of these bytes can be read and written until [`Engine::close`] or [`RegionOf::deregister`] has succeeded.
    pub unsafe fn register(
        self: &Arc<Self>,
        address: usize,
        bytes: usize,
        rights: Rights,
    ) -> Result<Arc<RegionOf>, Failure> {
        if address == 0 || bytes == 0 || bytes as u64 > LEN_MAX || address.checked_add(bytes).is_none() {
            let want = "1 to 2^48 bytes of memory below 2^64";
            return Err(Failure::refused("a region", want, format!("{bytes} bytes at {address:#x}")));
        }
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref().ok_or_else(closed)?;
        let in_use = Arc::new(Tally::default());
        let owner = Box::new((self.in_use.token(), in_use.token()));
        // SAFETY: the caller keeps the memory until `close` or `deregister` succeeds, and each waits for its token in
        // `owner`.
        let memory = unsafe { shunt_transfer::lend(address as u64, bytes as u64, owner) };
        let memory = memory.map_err(|error| Failure::new(Status::Refused, error.to_string()))?;
        let region = live.node.register(memory, rights)?;
        let (engine, held) = (Arc::downgrade(self), Mutex::new(Held::Open(region)));
        let region = Arc::new(RegionOf { engine, held, in_use });
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|region| region.strong_count() > 0);
        regions.push(Arc::downgrade(&region));
        Ok(region)
    }

    /// Makes a rail of this end fail now.
    ///
    /// # Errors
    /// NICs are hardware, there is no such rail, or the text is no fault of a rail.
    pub fn soft_fault(&self, rail: u32, fault: &str) -> Result<(), Failure> {
        let refused = |text: String| Failure::new(Status::Refused, text);
        let kind = match fault.parse::<Fault>() {
            Ok(Fault::Nic(kind)) => kind,
            Ok(_) => return Err(Failure::refused("fault", "one of a rail", fault)),
            Err(error) => return Err(refused(error.to_string())),
        };
        self.with(|node| {
            let (pe, nics) = (node.nics_of(), &node.place().nics);
            let rails = nics.count(pe);
            if rail as usize >= rails {
                return Err(Failure::refused("rail", &format!("one below {rails}"), rail));
            }
            nics.inject(RailAt { pe, rail }, kind).map(|_| ()).map_err(refused)
        })
    }

    /// Ends it, and waits until its threads are over and its NICs have let go of all memory.
    ///
    /// # Errors
    /// Not within this time: memory may still be touched.
    pub fn close(&self, patience: Duration) -> Result<(), Failure> {
        if self.events.calls.is_here() {
            let got = "that which calls its functions, and would wait for itself";
            return Err(Failure::refused("ste_close", "a thread of the program's", got));
        }
        let live = self.live.write().unwrap_or_else(PoisonError::into_inner).take();
        let regions = std::mem::take(&mut *self.regions.lock().unwrap_or_else(PoisonError::into_inner));
        for region in regions.iter().filter_map(Weak::upgrade) {
            *region.held() = Held::Closed;
        }
        if let Some(live) = live {
            live.node.stop();
            let thread = std::thread::Builder::new().name("transfer close".to_owned());
            // Where no thread can be made it is dropped here.
            let _ = thread.spawn(move || drop(live));
        }
        match self.in_use.left_after(patience) {
            0 => Ok(()),
            left => {
                let text = format!(
                    "ste_close: expected memory and threads back within {patience:?}, got {left} in use; call it again"
                );
                Err(Failure::new(Status::Timeout, text))
            }
        }
    }
}

impl RegionOf {
    /// The region, for a call on this engine.
    ///
    /// # Errors
    /// It is another engine's, or its engine is closed.
    pub fn of(&self, engine: &Arc<Engine>) -> Result<Region, Failure> {
        if self.engine.as_ptr() != Arc::as_ptr(engine) {
            return Err(Failure::refused("region", "one of this engine", "one of another engine"));
        }
        self.region()
    }

    /// The region.
    ///
    /// # Errors
    /// Its engine is closed, or it was taken back.
    pub fn region(&self) -> Result<Region, Failure> {
        match &*self.held() {
            Held::Open(region) => Ok(region.clone()),
            Held::TakenBack => Err(Failure::refused("region", "a registered one", "one that was taken back")),
            Held::Closed => Err(closed()),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every NIC take its keys back: its memory is the caller's alone.
    ///
    /// # Errors
    /// A transfer of this end uses it, a NIC refuses, or a call of another thread did not end in time.
    pub fn deregister(&self) -> Result<(), Failure> {
        let (engine, region) = (self.engine.upgrade().ok_or_else(closed)?, self.region()?);
        // A wire that is dead takes seconds: other calls, and the engine's end, do not wait for it.
        engine.wait(|node| node.deregister(&region))?;
        drop(region);
        let mut held = self.held();
        if matches!(*held, Held::Open(_)) {
            *held = Held::TakenBack;
        }
        drop(held);
        match self.in_use.left_after(CALLS) {
            0 => Ok(()),
            left => {
                let want = "its memory back from NICs and calls";
                let text = format!("ste_deregister: expected {want} within {CALLS:?}, got {left} in use");
                Err(Failure::new(Status::Timeout, text))
            }
        }
    }
}
