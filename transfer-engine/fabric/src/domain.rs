//! The domain: joins paths, regions and the words of other ends.

use crate::address::FabricAddress;
use crate::aside::Asides;
use crate::error::FabricError;
use crate::fabric::Rail;
use crate::last::Last;
use crate::machine::{Machine, Patience};
use crate::path::{Around, Path};
use crate::region::Region;
use crate::words::{Word, decode, encode};
use shunt_bootstrap::Oob;
use shunt_mlx5::memory::OwnedSpan;
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::domain::{Batch, Domain, Event, Fence};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use shunt_transfer_engine::region::{Mr, Rights};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Words of other ends that are heard in one poll.
const WORDS: usize = 256;

/// What a domain is made of.
pub struct Parts {
    /// The number of this end.
    pub me: u32,
    /// Its rails.
    pub rails: Vec<Rail>,
    /// Every end by number, this one among them: [`PeerId`] is this number.
    pub peers: Vec<FabricAddress>,
    /// Where messages to other ends go.
    pub oob: Box<dyn Oob>,
    /// How patient it is.
    pub patience: Patience,
}

/// Endpoints of libfabric: a lane for each rail that both ends have, with an endpoint of its own at each end.
///
/// Lanes have no order, and their receivers count immediates ([`Fence::Counted`]). Nothing is proved
/// of a lane whose peer does not answer: its system may hold bytes that it places later.
pub struct FabricDomain {
    paths: Vec<Path>,
    me: FabricAddress,
    peers: u32,
    gone: BTreeSet<PeerId>,
    /// Rails of this end that are not used.
    down: BTreeSet<u32>,
    leaving: Vec<Leaving>,
    /// By all keys.
    taken: BTreeMap<Arc<[u32]>, Taken>,
    /// Of the last poll.
    now: Nanos,
    around: Around,
}

/// A peer that is being cut off, or was.
struct Leaving {
    peer: PeerId,
    /// Those whose endpoints are not closed yet.
    paths: Vec<Path>,
    /// What is not closed by then is set aside.
    until: Nanos,
    lanes: Vec<(LaneId, Fence)>,
    /// All endpoints are closed, or set aside: when no packet of theirs is on its way any more.
    quiet: Option<Nanos>,
    /// It was told that it is cut off.
    told: bool,
}

/// A region whose keys were taken back, until no endpoint is open that a write may have begun on.
struct Taken {
    /// By rail. What has started lands in memory that is still there.
    memory: BTreeMap<u32, Arc<OwnedSpan>>,
    /// Peer, path, and incarnation of its endpoint.
    endpoints: Vec<(PeerId, u32, u32)>,
}

impl FabricDomain {
    /// Begins to connect to every other end.
    pub fn new(parts: Parts) -> Self {
        let Parts { me, rails, peers, oob, patience } = parts;
        let around = Around {
            regions: rails.iter().map(|_| BTreeMap::new()).collect(),
            rails,
            oob,
            patience,
            next_lane: 0,
            remarks: Vec::new(),
            events: Vec::new(),
            aside: Asides::default(),
            names: VecDeque::new(),
        };
        let mine = FabricAddress::new(&around.rails);
        let mut domain = Self {
            paths: Vec::new(),
            me: mine,
            peers: 0,
            gone: BTreeSet::new(),
            down: BTreeSet::new(),
            leaving: Vec::new(),
            taken: BTreeMap::new(),
            now: Nanos::ZERO,
            around,
        };
        for (number, peer) in (0..).zip(&peers) {
            match number == me {
                true => domain.peers += 1,
                false => drop(domain.join(peer, me < number)),
            }
        }
        domain
    }

    /// Where this end is.
    pub fn address(&self) -> &FabricAddress {
        &self.me
    }

    /// Begins to connect to an end that was not there before. One of the two leads.
    pub fn join(&mut self, address: &FabricAddress, leads: bool) -> PeerId {
        let peer = PeerId(self.peers);
        self.peers += 1;
        let patience = self.around.patience;
        let paths = 0..self.me.paths(address);
        for number in paths {
            let mut path = Path::new(peer, number, leads, patience);
            if self.down.contains(&number) {
                path.step(&mut self.around, Nanos::ZERO, |machine, now, acts| {
                    _ = machine.allow(now, false, acts)
                });
            }
            self.paths.push(path);
        }
        peer
    }

    /// Registers memory of the host on every rail. It stays registered until [`FabricDomain::deregister`], or while the
    /// domain lives.
    ///
    /// # Errors
    /// As the first provider answers that refuses.
    pub fn register(&mut self, memory: &Arc<OwnedSpan>, rights: Rights) -> Result<Mr, FabricError> {
        let remote = rights != Rights::Local;
        let made = self.around.rails.iter().map(|rail| Region::register(rail, memory, remote));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        let (span, keys) = (memory.span(), made.iter().map(Region::key).collect::<Vec<_>>());
        let region = Mr::new(span.address, span.bytes, &keys).map_err(|error| FabricError::Unfit {
            what: "a region",
            want: "memory and rails that transfers can use",
            met: error.to_string(),
        })?;
        for (known, region) in self.around.regions.iter_mut().zip(made) {
            known.insert(region.key(), region);
        }
        Ok(region)
    }

    /// Begins to take a region's keys back. What still comes is refused, and ends at its sender with
    /// [`Denied`](shunt_transfer_engine::error::TransferError::Denied). Providers look at the key of a write once, when
    /// it begins, and efa without writes by its NIC does too: the lanes of all peers are closed for it, and made again.
    /// With a NIC whose wire is dead that takes until it gives up, so the end is asked for:
    /// [`FabricDomain::deregistered`]. A region that is not registered is left alone.
    pub fn deregister(&mut self, region: &Mr) {
        let Self { paths, around, now, leaving, taken, .. } = self;
        let mut regions = BTreeMap::new();
        for ((rail, known), key) in (0..).zip(&mut around.regions).zip(region.keys().iter()) {
            regions.extend(known.remove(key).map(|region| (rail, region)));
        }
        if regions.is_empty() {
            return;
        }
        let held = |path: &Path| Some((path.peer, path.number, path.held()?));
        let mut endpoints: Vec<_> =
            leaving.iter().flat_map(|one| one.paths.iter().filter_map(held)).collect();
        for path in paths.iter_mut().filter(|path| regions.contains_key(&path.number)) {
            path.step(around, *now, Machine::release);
            endpoints.extend(held(path));
        }
        // From here on no key names it: an endpoint that is made before the others are closed takes none.
        let memory = regions.into_iter().map(|(rail, region)| (rail, region.memory().clone())).collect();
        taken.insert(region.keys().clone(), Taken { memory, endpoints });
    }

    /// True once nothing of any peer lands in a region whose keys were taken back, or reads it. The domain is polled
    /// meanwhile; an endpoint that does not close in time is set aside.
    ///
    /// # Errors
    /// An endpoint of a rail was set aside: there the region may still be written, and its memory stays. Asked again
    /// the answer is another one, once that endpoint is closed after all.
    pub fn deregistered(&mut self, region: &Mr) -> Result<bool, FabricError> {
        self.around.aside.look();
        let Some(Taken { endpoints, memory }) = self.taken.get_mut(region.keys()) else { return Ok(true) };
        let of_leaving = self.leaving.iter().flat_map(|one| &one.paths);
        let all = self.paths.iter().chain(of_leaving);
        let held: BTreeSet<_> = all.filter_map(|path| Some((path.peer, path.number, path.held()?))).collect();
        endpoints.retain(|endpoint| held.contains(endpoint));
        if !endpoints.is_empty() {
            return Ok(false);
        }
        memory.retain(|rail, _| self.around.aside.is_rail(*rail));
        if memory.is_empty() {
            self.taken.remove(region.keys());
            return Ok(true);
        }
        let stays: Vec<_> = memory.keys().copied().collect();
        let (what, want) = ("a region to take back", "rails whose endpoints were closed");
        Err(FabricError::Unfit { what, want, met: format!("rails {stays:?}, where one was set aside") })
    }

    /// Closes all lanes on a rail of this end and opens no more, or opens them again: a fault for tests and programs.
    /// False if that changed nothing.
    pub fn set_rail(&mut self, now: Nanos, rail: u32, up: bool) -> bool {
        let (mut changes, Self { paths, around, down, .. }) = (false, self);
        let _ = if up { down.remove(&rail) } else { down.insert(rail) };
        for path in paths.iter_mut().filter(|path| path.number == rail) {
            path.step(around, now, |machine, now, acts| changes |= machine.allow(now, up, acts));
        }
        changes
    }

    /// True once the peer has said that it ends. Nothing more of it comes; what came before is told by the next poll.
    pub fn has_left(&self, peer: PeerId) -> bool {
        self.around.oob.has_left(peer.0)
    }

    /// What went wrong behind the scenes since the last call: for logs.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.around.remarks)
    }

    fn hear(&mut self, now: Nanos) {
        for _ in 0..WORDS {
            let Some((from, bytes)) = self.around.oob.try_recv() else { return };
            let peer = PeerId(from);
            let Some((number, incarnation, word)) = decode(&bytes) else {
                self.around.remarks.push(format!("peer {peer} sent an unknown message"));
                continue;
            };
            let is_it = |path: &&mut Path| (path.peer, path.number) == (peer, number);
            let is_leaving = self.is_leaving(peer, number);
            match self.paths.iter_mut().find(is_it) {
                Some(path) => path.hear(&mut self.around, now, incarnation, word),
                // Its endpoints are closed.
                None if self.gone.contains(&peer) && matches!(word, Word::Close(_)) => {
                    self.around.oob.send(from, encode(&(number, incarnation, Word::Gone)));
                }
                // They are being closed.
                None if is_leaving && matches!(word, Word::Close(_)) => {
                    self.around.oob.send(from, encode(&(number, incarnation, Word::Wait)));
                }
                None => {}
            }
        }
    }

    fn is_leaving(&self, peer: PeerId, number: u32) -> bool {
        let paths = self.leaving.iter().flat_map(|one| &one.paths);
        paths.into_iter().any(|path| (path.peer, path.number) == (peer, number))
    }

    fn look_at_leaving(&mut self, now: Nanos) {
        let Self { leaving, around, gone, .. } = self;
        around.aside.look();
        leaving.retain_mut(|one| {
            let Leaving { peer, paths, until, lanes, quiet, told } = one;
            let overdue = now >= *until;
            // Each is looked at: what it holds is told.
            let open =
                paths.iter_mut().filter_map(|path| (!path.is_left(around, now, overdue)).then_some(()));
            if quiet.is_none() && open.count() == 0 {
                lanes.extend(paths.iter_mut().filter_map(|path| path.farewell(around)));
                paths.clear();
                *quiet = Some(now + around.patience.lifetime);
            }
            // Not while one of its endpoints here may still place bytes, however late that is.
            if quiet.is_some() && !*told && !around.aside.is_peer(*peer) {
                *told = true;
                gone.insert(*peer);
                around.events.push(Event::Left(*peer));
            }
            if quiet.is_none_or(|quiet| now < quiet) {
                return true;
            }
            around.events.extend(lanes.drain(..).map(|(lane, fence)| Event::Closed(lane, fence)));
            !*told
        });
    }
}

impl Domain for FabricDomain {
    fn post(&mut self, now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.lane() == Some(lane)) {
            path.post(&self.around, now, batch);
        }
    }

    fn close(&mut self, now: Nanos, lane: LaneId) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.lane() == Some(lane)) {
            path.step(&mut self.around, now, Machine::release);
        }
    }

    fn leave(&mut self, now: Nanos, peer: PeerId) {
        let (mut theirs, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.paths).into_iter().partition(|path| path.peer == peer);
        self.paths = others;
        theirs.iter_mut().for_each(|path| path.leave(&mut self.around));
        let until = now + self.around.patience.close;
        self.leaving.push(Leaving {
            peer,
            paths: theirs,
            until,
            lanes: Vec::new(),
            quiet: None,
            told: false,
        });
    }

    fn reached(&mut self, peer: PeerId, imm: u32) {
        self.paths.iter_mut().filter(|path| path.peer == peer).for_each(|path| path.reached(imm));
    }

    fn poll(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.now = now;
        self.paths.iter_mut().for_each(|path| path.answer_all(&self.around));
        // Words first: an endpoint that its peer has left lets nothing more land.
        self.hear(now);
        let mut on_rail: BTreeMap<u32, u64> = BTreeMap::new();
        self.paths.iter().for_each(|path| *on_rail.entry(path.number).or_default() += path.bytes());
        for path in &mut self.paths {
            path.poll(&mut self.around, now, on_rail.get(&path.number).copied().unwrap_or(0));
        }
        self.look_at_leaving(now);
        events.append(&mut self.around.events);
    }
}

impl Drop for FabricDomain {
    /// Endpoints are closed first. Where that takes a NIC's time, memory is let go when it is done.
    fn drop(&mut self) {
        let leaving = std::mem::take(&mut self.leaving).into_iter().flat_map(|one| one.paths);
        let paths: Vec<_> = std::mem::take(&mut self.paths).into_iter().chain(leaving).collect();
        let around = &mut self.around;
        let (mut closings, aside) = std::mem::take(&mut around.aside).end();
        closings.extend(paths.into_iter().filter_map(|path| path.end(around)));
        let taken = std::mem::take(&mut self.taken).into_values().flat_map(|taken| taken.memory).collect();
        let regions = std::mem::take(&mut around.regions);
        Last { closings, aside, regions, taken }.let_go();
    }
}
