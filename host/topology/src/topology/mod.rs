//! Ranks the rails of each GPU: primary, then backups. Pure: an inventory and the environment's wishes in, a list out.
//!
//! | rank | which |
//! | --- | --- |
//! | primary | the nearest port that is up, shared evenly among GPUs equally near; or the one the mapping names |
//! | first backup | the other port of the same card |
//! | then | by distance and rate; among equals the even/odd neighbour first, then the next pair, and so on |
//! | last | ports that cannot be used now, with the reason |
//!
//! Rails trade places in pairs, so that each rank lays the same load on all and the traffic of one dead rail does not
//! land on one other.
//!
//! Two ports of one card share PCIe slot, power and firmware: a backup on the sibling port outlives a port, a cable or
//! a switch, not the card. So one of the first backups must be on another card, and it is said where none is.

pub mod gid;
pub mod rails;
pub mod select;

use crate::discover::{Distance, Inventory, distance};
pub use rails::NothingSelected;
use rails::{Rail, SetAside};
use select::Selection;
use std::cmp::Reverse;

/// Why a rail has its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nearest.
    Nearest,
    /// The environment says so.
    Mapped,
    /// The other port of the primary's card.
    Sibling,
    /// The even/odd neighbour of the primary.
    Neighbour,
    /// By distance.
    ByDistance,
    /// It cannot be used now.
    Unusable,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Nearest => "nearest",
            Self::Mapped => "mapped",
            Self::Sibling => "same card",
            Self::Neighbour => "neighbour",
            Self::ByDistance => "by distance",
            Self::Unusable => "unusable",
        })
    }
}

/// A rail in a GPU's ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedRail {
    /// Which, in [`Topology::rails`].
    pub rail: usize,
    /// How far from the GPU.
    pub distance: Distance,
    /// Why here.
    pub why: Why,
}

/// The ranking of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRails {
    /// Which, in [`Inventory::gpus`].
    pub gpu: usize,
    /// Primary first.
    pub rails: Vec<RankedRail>,
    /// What to know.
    pub notes: Vec<String>,
}

/// The ranking of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Ports that may be used, in the order of their names.
    pub rails: Vec<Rail>,
    /// Ports that may not, and why.
    pub set_aside: Vec<SetAside>,
    /// One entry for each GPU.
    pub gpus: Vec<GpuRails>,
    /// Backups of each channel that are made at start.
    pub backups: u32,
    /// What to know.
    pub notes: Vec<String>,
}

/// Ranks. `backups` is how many are made at start (`SHUNT_BACKUPS`).
pub fn rank(inventory: &Inventory, selection: &Selection, backups: u32) -> Result<Topology, NothingSelected> {
    let (rails, set_aside) = rails::rails(inventory, selection);
    rails::refuse_nothing(inventory, selection, &rails, &set_aside)?;
    let ranking = Ranking::new(inventory, &rails);
    let primaries = if selection.by_rank && !rails.is_empty() {
        ranking.by_rank(selection)
    } else {
        ranking.by_distance()
    };
    let mut gpus = Vec::new();
    for (gpu, wished) in primaries.iter().enumerate() {
        let rails_of = ranking.chain(gpu, wished, selection.by_rank);
        let notes = ranking.notes(&rails_of, wished, selection.by_rank, backups);
        gpus.push(GpuRails { gpu, rails: rails_of, notes });
    }
    let mut topology =
        Topology { gpus, backups, notes: rails::notes(inventory, selection, &rails), rails, set_aside };
    topology.notes.extend(topology.shared());
    Ok(topology)
}

impl Topology {
    /// What is said of primaries that several GPUs share, and of rails no GPU starts on.
    fn shared(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut idle = Vec::new();
        for (index, rail) in self.rails.iter().enumerate() {
            let starts = |gpu: &&GpuRails| gpu.primary().is_some_and(|primary| primary.rail == index);
            let gpus: Vec<String> = self.gpus.iter().filter(starts).map(|gpu| gpu.gpu.to_string()).collect();
            let rate = rail.rate.as_ref().map_or("its bandwidth".into(), |rate| format!("its {rate}"));
            match gpus.len() {
                0 if rail.trouble.is_none() && !self.gpus.is_empty() => idle.push(rail.name.as_str()),
                0 | 1 => {}
                _ => notes.push(format!(
                    "{} is the primary of GPUs {}: they share {rate}",
                    rail.name,
                    gpus.join(", ")
                )),
            }
        }
        if !idle.is_empty() {
            notes.push(format!("primary of no GPU, backups alone: {}", idle.join(", ")));
        }
        notes
    }

    /// Whether a GPU has no rail that can be used.
    pub fn gpu_without_rail(&self) -> Option<usize> {
        self.gpus.iter().find(|gpu| gpu.primary().is_none()).map(|gpu| gpu.gpu)
    }
}

impl GpuRails {
    /// The rail it starts on.
    pub fn primary(&self) -> Option<RankedRail> {
        self.rails.first().copied().filter(|first| first.why != Why::Unusable)
    }

    /// The rails that can be used, primary first.
    pub fn usable(&self) -> impl Iterator<Item = &RankedRail> {
        self.rails.iter().filter(|rail| rail.why != Why::Unusable)
    }
}

/// What ranking works on.
struct Ranking<'a> {
    rails: &'a [Rail],
    /// Distance of each GPU to each rail.
    far: Vec<Vec<Distance>>,
    /// Place of each rail's card among the cards of its rate: neighbours are neighbours there.
    seats: Vec<usize>,
}

impl<'a> Ranking<'a> {
    fn new(inventory: &Inventory, rails: &'a [Rail]) -> Self {
        let to = |gpu: &crate::discover::Gpu| {
            rails.iter().map(|rail| distance(&gpu.place, &inventory.rdma[rail.device].place)).collect()
        };
        let far = inventory.gpus.iter().map(to).collect();
        let seats = rails.iter().map(|rail| {
            let mut cards: Vec<usize> =
                rails.iter().filter(|other| other.mbps() == rail.mbps()).map(|other| other.card).collect();
            cards.dedup();
            cards.iter().position(|card| *card == rail.card).unwrap_or_default()
        });
        Self { rails, far, seats: seats.collect() }
    }

    fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.rails.len()).filter(|rail| self.rails[*rail].trouble.is_none())
    }

    /// Primaries by distance. GPUs with the least choice choose first; each takes the largest share that is near.
    ///
    /// A port that is down keeps its GPU where no other is as near: the GPU starts on that port's first backup, and a
    /// flap at start moves nobody else.
    fn by_distance(&self) -> Vec<Vec<usize>> {
        let all = 0..self.rails.len();
        let nearest = |gpu: usize| self.far[gpu].iter().min();
        let choice = |gpu: usize| self.far[gpu].iter().filter(|far| Some(*far) == nearest(gpu)).count();
        let mut order: Vec<usize> = (0..self.far.len()).collect();
        order.sort_by_key(|gpu| choice(*gpu));
        let mut load = vec![0u32; self.rails.len()];
        let mut out = vec![Vec::new(); self.far.len()];
        for gpu in order {
            let share = |rail: usize| self.rails[rail].mbps() / (load[rail] + 1);
            let down = |rail: usize| self.rails[rail].trouble.is_some();
            let best = all.clone().min_by_key(|rail| {
                (self.far[gpu][*rail], down(*rail), Reverse(share(*rail)), load[*rail], *rail)
            });
            if let Some(rail) = best {
                load[rail] += 1;
                out[gpu] = vec![rail];
            }
        }
        out
    }

    /// Primaries by rank: PE `p` of the node is GPU `p`.
    ///
    /// With a mapping, its slots in the order written: PE p gets slot p mod E where there are no more slots than PEs,
    /// else a block of E / N slots each and one more for the lowest PEs. Without one, rail p mod E.
    fn by_rank(&self, selection: &Selection) -> Vec<Vec<usize>> {
        let mut slots: Vec<usize> = Vec::new();
        for slot in &selection.mapping {
            for (index, _) in self.rails.iter().enumerate().filter(|(_, rail)| rail.is_named(&slot.name)) {
                slots.extend(std::iter::repeat_n(index, slot.count as usize));
            }
        }
        if selection.mapping.is_empty() {
            slots = (0..self.rails.len()).collect();
        }
        let (slots_n, pes) = (slots.len(), self.far.len());
        let block = |pe: usize| {
            if slots_n <= pes || selection.mapping.is_empty() {
                return vec![slots[pe % slots_n]];
            }
            let (each, more) = (slots_n / pes, slots_n % pes);
            let first = pe * each + pe.min(more);
            slots[first..first + each + usize::from(pe < more)].to_vec()
        };
        (0..pes).map(block).collect()
    }

    /// All rails of a GPU: those wished for, then the backups, then what cannot be used.
    fn chain(&self, gpu: usize, wished: &[usize], by_rank: bool) -> Vec<RankedRail> {
        let ranked = |rail: usize, why| RankedRail { rail, distance: self.far[gpu][rail], why };
        let mut out: Vec<RankedRail> = Vec::new();
        for rail in wished.iter().copied().filter(|rail| self.rails[*rail].trouble.is_none()) {
            if out.iter().all(|have| have.rail != rail) {
                out.push(ranked(rail, if by_rank { Why::Mapped } else { Why::Nearest }));
            }
        }
        // A wished rail that is down still says who its backups are.
        let anchor = out.first().map(|first| first.rail).or(wished.first().copied());
        let Some(anchor) = anchor else { return self.unusable(gpu).collect() };
        let taken: Vec<usize> = out.iter().map(|rail| rail.rail).collect();
        let mut rest: Vec<RankedRail> = self
            .up()
            .filter(|rail| !taken.contains(rail))
            .map(|rail| ranked(rail, self.why(anchor, rail)))
            .collect();
        rest.sort_by_key(|rail| self.order(gpu, anchor, rail));
        out.extend(rest);
        out.extend(self.unusable(gpu));
        out
    }

    fn unusable(&self, gpu: usize) -> impl Iterator<Item = RankedRail> {
        let down = (0..self.rails.len()).filter(|rail| self.rails[*rail].trouble.is_some());
        let mut down: Vec<usize> = down.collect();
        down.sort_by_key(|rail| (self.far[gpu][*rail], *rail));
        let far = &self.far[gpu];
        down.into_iter().map(|rail| RankedRail { rail, distance: far[rail], why: Why::Unusable })
    }

    fn why(&self, anchor: usize, rail: usize) -> Why {
        let (from, to) = (&self.rails[anchor], &self.rails[rail]);
        if from.card == to.card {
            Why::Sibling
        } else if from.mbps() == to.mbps() && self.seats[anchor] ^ 1 == self.seats[rail] {
            Why::Neighbour
        } else {
            Why::ByDistance
        }
    }

    /// The order of backups; see the table on top.
    fn order(&self, gpu: usize, anchor: usize, rail: &RankedRail) -> impl Ord + use<> {
        let (from, to) = (&self.rails[anchor], &self.rails[rail.rail]);
        (
            rail.why != Why::Sibling,
            self.far[gpu][rail.rail],
            Reverse(to.mbps()),
            // 1 is the neighbour; see the top of the file.
            self.seats[anchor] ^ self.seats[rail.rail],
            from.seat_on_card ^ to.seat_on_card,
            rail.rail,
        )
    }

    fn notes(&self, chain: &[RankedRail], wished: &[usize], by_rank: bool, backups: u32) -> Vec<String> {
        let mut notes = Vec::new();
        let usable: Vec<&RankedRail> = chain.iter().filter(|rail| rail.why != Why::Unusable).collect();
        for rail in wished.iter().map(|rail| &self.rails[*rail]) {
            if let Some(trouble) = &rail.trouble {
                let which = if by_rank { "mapped" } else { "nearest" };
                notes.push(format!("the {which} port {} cannot be used: {trouble}", rail.name));
            }
        }
        let Some(primary) = usable.first() else {
            let which = if self.rails.is_empty() { "may be used" } else { "can be used now" };
            notes.push(format!("no rail: no RDMA port {which}"));
            return notes;
        };
        let name = &self.rails[primary.rail].name;
        if primary.distance >= Distance::Sys {
            notes.push(match primary.distance {
                Distance::Sys => {
                    format!("{name} is on another NUMA node: its traffic crosses the CPUs' interconnect")
                }
                _ => format!("how far {name} is cannot be read"),
            });
        }
        let card = self.rails[primary.rail].card;
        let made: Vec<&&RankedRail> = usable.iter().skip(1).take(backups as usize).collect();
        if usable.len() == 1 {
            notes.push(format!("starts degraded: {name} is the only rail, when it dies the peer is lost"));
        } else if made.is_empty() {
            notes.push("starts degraded: SHUNT_BACKUPS=0 makes no backup".into());
        } else if made.iter().all(|backup| self.rails[backup.rail].card == card) {
            let other = usable.iter().find(|rail| self.rails[rail.rail].card != card);
            let what = match other {
                Some(other) => {
                    let rank = usable.iter().position(|rail| rail.rail == other.rail).unwrap_or(0);
                    format!(
                        "{} is on another card: SHUNT_BACKUPS={rank} reaches it",
                        self.rails[other.rail].name
                    )
                }
                None => "no other card is there".into(),
            };
            notes
                .push(format!("every backup is on the primary's card, whose death ends all of them; {what}"));
        }
        notes
    }
}
