//! The domain: joins paths, regions and the words of other ends.

use crate::address::FabricAddress;
use crate::error::FabricError;
use crate::fabric::Rail;
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
    /// Of the last poll.
    now: Nanos,
    around: Around,
}

/// A peer that was cut off.
struct Leaving {
    /// `None`: that was told.
    peer: Option<PeerId>,
    lanes: Vec<(LaneId, Fence)>,
    /// When no packet of theirs is on its way any more.
    quiet: Nanos,
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
            aside: BTreeSet::new(),
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

    /// Takes a region's keys back: nothing of any peer lands in it or reads it any more. What still comes is refused,
    /// and ends at its sender with [`Denied`](shunt_transfer_engine::error::TransferError::Denied). A region that is
    /// not registered is left alone. Providers look at the key of a write once, when it begins, and efa without writes
    /// by its NIC does too: the lanes of all peers are closed for it, and made again. With a NIC whose wire is dead
    /// that takes until it gives up.
    ///
    /// # Errors
    /// An endpoint of a rail was set aside: there the region may still be written, and its memory stays for good.
    pub fn deregister(&mut self, region: &Mr) -> Result<(), FabricError> {
        let Self { paths, around, now, .. } = self;
        // Kept until the lanes are closed: what has started lands in memory that is still there.
        let mut taken = BTreeMap::new();
        for ((rail, regions), key) in (0..).zip(&mut around.regions).zip(region.keys().iter()) {
            taken.extend(regions.remove(key).map(|region| (rail, region)));
        }
        for path in paths.iter_mut().filter(|path| taken.contains_key(&path.number)) {
            path.step(around, *now, Machine::fail);
            path.finish(around, *now);
        }
        let stays: Vec<u32> = taken.keys().copied().filter(|rail| around.aside.contains(rail)).collect();
        stays.iter().filter_map(|rail| taken.remove(rail)).for_each(std::mem::forget);
        if stays.is_empty() {
            return Ok(());
        }
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
            match self.paths.iter_mut().find(is_it) {
                Some(path) => path.hear(&mut self.around, now, incarnation, word),
                // Its endpoints are closed.
                None if self.gone.contains(&peer) && matches!(word, Word::Close(_)) => {
                    self.around.oob.send(from, encode(&(number, incarnation, Word::Gone)));
                }
                None => {}
            }
        }
    }

    fn look_at_leaving(&mut self, now: Nanos) {
        let events = &mut self.around.events;
        self.leaving.retain_mut(|one| {
            events.extend(one.peer.take().map(Event::Left));
            if now >= one.quiet {
                events.extend(one.lanes.drain(..).map(|(lane, fence)| Event::Closed(lane, fence)));
            }
            !one.lanes.is_empty()
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
            path.step(&mut self.around, now, Machine::fail);
        }
    }

    fn leave(&mut self, now: Nanos, peer: PeerId) {
        let (mut theirs, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.paths).into_iter().partition(|path| path.peer == peer);
        self.paths = others;
        let lanes = theirs.iter_mut().filter_map(|path| path.leave(&mut self.around, now)).collect();
        let quiet = now + self.around.patience.lifetime;
        // Nobody is told that it is cut off while one of its endpoints here may still place bytes.
        let is_cut_off = !theirs.iter().any(Path::is_set_aside);
        if is_cut_off {
            self.gone.insert(peer);
        }
        self.leaving.push(Leaving { peer: is_cut_off.then_some(peer), lanes, quiet });
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
