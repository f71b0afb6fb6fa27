//! Ranks that agree on a mask, without anything else: machines, links that lose, double, delay and overtake, agents
//! that are held up or follow one that died, and losses that are drawn from a seed.

use crate::rng::Rng;
use shunt_host::ranks::machine::{Machine, Standing, Times};
use shunt_host::ranks::message::Message;
use shunt_host::ranks::set::RankSet;
use std::collections::BTreeMap;

/// Time between two looks of the world.
const STEP_NS: u64 = 1_000_000;
const TIMES: Times = Times { resend_ns: 5_000_000, settle_ns: 20_000_000, patience_ns: 400_000_000 };

/// What happens to ranks.
#[derive(Clone, Debug)]
pub enum Blow {
    /// Its process ends.
    Killed(u32),
    /// Its process ends once it has decided, before anybody hears of it.
    Doomed(u32),
    /// One says that it lost another.
    Lost(u32, u32),
    /// Its agent dies, and the next one takes over.
    Restarted(u32),
    /// Its agent does nothing for so long.
    Held(u32, u64),
    /// What one sends to another gets lost, or arrives again.
    Link(u32, u32, bool),
}

/// One run.
pub struct Plan {
    /// Ranks.
    pub ranks: u32,
    /// What happens, and when.
    pub blows: Vec<(u64, Blow)>,
    /// One message in so many gets lost, or arrives twice.
    pub lossy: u64,
    /// Messages take up to so long.
    pub delay_ns: u64,
    /// When everything that is drawn is over.
    pub calm_ns: u64,
    /// When the run ends.
    pub end_ns: u64,
}

struct World<'a> {
    plan: &'a Plan,
    rng: Rng,
    now: u64,
    machines: Vec<Machine>,
    alive: Vec<bool>,
    doomed: Vec<bool>,
    held_until: Vec<u64>,
    /// What each was awake for.
    awake: Vec<u64>,
    cut: Vec<Vec<bool>>,
    facts: Vec<RankSet>,
    /// Arrival and a number that tells equal ones apart: receiver, sender, message.
    wire: BTreeMap<(u64, u64), (u32, u32, Vec<u8>)>,
    sent: u64,
    decided: BTreeMap<u64, RankSet>,
    epochs: Vec<u64>,
    wrongs: Vec<String>,
}

/// What came of a run.
pub struct Ended {
    /// Broken rules.
    pub wrongs: Vec<String>,
    /// How each rank stands; none where it is gone.
    pub standing: Vec<Option<Standing>>,
    /// By rank: who is left out, for it.
    pub masks: Vec<RankSet>,
    /// Decisions.
    pub epochs: u64,
}

/// Runs a plan from a seed.
pub fn run(plan: &Plan, seed: u64) -> Ended {
    let ranks = plan.ranks;
    let none = || RankSet::none(ranks);
    let mut world = World {
        plan,
        rng: Rng::new(seed),
        now: 0,
        machines: (0..ranks).map(|me| Machine::new(me, ranks, TIMES, 0)).collect(),
        alive: vec![true; ranks as usize],
        doomed: vec![false; ranks as usize],
        held_until: vec![0; ranks as usize],
        awake: vec![0; ranks as usize],
        cut: vec![vec![false; ranks as usize]; ranks as usize],
        facts: vec![none(); ranks as usize],
        wire: BTreeMap::new(),
        sent: 0,
        decided: BTreeMap::from([(0, none())]),
        epochs: vec![0; ranks as usize],
        wrongs: Vec::new(),
    };
    let mut blows = plan.blows.clone();
    blows.sort_by_key(|(at_ns, _)| *at_ns);
    let mut next = 0;
    while world.now < plan.end_ns && world.wrongs.is_empty() {
        while next < blows.len() && blows[next].0 <= world.now {
            world.strike(&blows[next].1);
            next += 1;
        }
        world.step();
        world.now += STEP_NS;
    }
    world.ended()
}

impl World<'_> {
    fn strike(&mut self, blow: &Blow) {
        match *blow {
            Blow::Killed(rank) => self.alive[rank as usize] = false,
            Blow::Doomed(rank) => self.doomed[rank as usize] = true,
            Blow::Lost(rank, peer) => {
                self.facts[rank as usize].add(peer);
                let awake = self.awake[rank as usize];
                self.machines[rank as usize].lose(awake, peer);
            }
            Blow::Restarted(rank) => {
                // Its clock starts over.
                self.awake[rank as usize] = 0;
                self.machines[rank as usize].restart(0);
            }
            Blow::Held(rank, for_ns) => self.held_until[rank as usize] = self.now + for_ns,
            Blow::Link(from, to, cut) => self.cut[from as usize][to as usize] = cut,
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let later = self.wire.split_off(&(now, u64::MAX));
        for (_, (to, from, bytes)) in std::mem::replace(&mut self.wire, later) {
            let at = to as usize;
            if !self.alive[at] {
                continue;
            }
            if self.held_until[at] > now {
                // It lies there until the agent looks.
                self.put(self.held_until[at], to, from, bytes);
                continue;
            }
            let message = Message::from_bytes(self.plan.ranks, &bytes).expect("as it was sent");
            self.machines[at].take(self.awake[at], from, message);
            self.look(to);
        }
        for rank in 0..self.plan.ranks {
            let at = rank as usize;
            if self.alive[at] && self.held_until[at] <= now {
                self.awake[at] += STEP_NS;
                self.machines[at].tick(self.awake[at]);
                self.look(rank);
            }
        }
    }

    fn put(&mut self, due: u64, to: u32, from: u32, bytes: Vec<u8>) {
        self.sent += 1;
        self.wire.insert((due, self.sent), (to, from, bytes));
    }

    /// What a rank said and decided just now.
    fn look(&mut self, rank: u32) {
        let at = rank as usize;
        self.watch(rank);
        let said = self.machines[at].drain();
        if !self.alive[at] {
            return;
        }
        let stormy = self.now < self.plan.calm_ns && self.plan.lossy > 0;
        for (to, message) in said {
            if self.cut[at][to as usize] || stormy && self.rng.one_in(self.plan.lossy) {
                continue;
            }
            let copies = 1 + u64::from(stormy && self.rng.one_in(self.plan.lossy));
            for _ in 0..copies {
                let due = self.now + 1 + self.rng.below(self.plan.delay_ns.max(1));
                self.put(due, to, rank, message.to_bytes());
            }
        }
    }

    /// Epochs only grow.
    fn watch(&mut self, rank: u32) {
        let at = rank as usize;
        let epoch = self.machines[at].epoch();
        if epoch < self.epochs[at] {
            self.wrongs.push(format!("rank {rank} went from epoch {} back to {epoch}", self.epochs[at]));
        }
        if epoch > self.epochs[at] {
            self.epochs[at] = epoch;
            self.judge(rank, epoch);
            self.alive[at] = !self.doomed[at];
        }
    }

    /// One mask an epoch, made by a majority of the last one's members, of ranks that are lost.
    fn judge(&mut self, rank: u32, epoch: u64) {
        let out = self.machines[rank as usize].decided().clone();
        if let Some(other) = self.decided.get(&epoch) {
            if *other != out {
                self.wrongs.push(format!("epoch {epoch}: {out:?} for rank {rank}, {other:?} for another"));
            }
            return;
        }
        let Some(before) = self.decided.get(&(epoch - 1)).cloned() else {
            return self.wrongs.push(format!("rank {rank}: epoch {epoch} comes before the one before it"));
        };
        let kept = RankSet::of(self.plan.ranks, |rank| !out.has(rank));
        if !out.holds(&before) || 2 * kept.count() < self.plan.ranks - before.count() {
            self.wrongs.push(format!("epoch {epoch}: {kept:?} goes on, of all but {before:?}"));
        }
        let alone = |rank: u32| self.machines[rank as usize].standing() == Standing::Alone;
        let apart = |a: u32, b: u32| {
            self.facts[a as usize].has(b) || self.facts[b as usize].has(a) || alone(a) || alone(b)
        };
        let whole = |rank: &u32| !before.has(*rank) && !kept.iter().any(|other| apart(*rank, other));
        if let Some(rank) = out.iter().find(whole) {
            self.wrongs
                .push(format!("epoch {epoch}: rank {rank} is left out, and no rank that goes on lost it"));
        }
        self.decided.insert(epoch, out);
    }

    fn ended(mut self) -> Ended {
        let live = || (0..self.plan.ranks).filter(|rank| self.alive[*rank as usize]);
        let stands = |rank: u32| self.machines[rank as usize].standing();
        let members: Vec<u32> = live().filter(|rank| stands(*rank) == Standing::Member).collect();
        let last = self.decided.keys().next_back().copied().unwrap_or(0);
        for rank in &members {
            let machine = &self.machines[*rank as usize];
            if machine.epoch() != last {
                self.wrongs.push(format!("rank {rank} goes on at epoch {} of {last}", machine.epoch()));
            }
            if let Some(peer) = members.iter().find(|peer| self.facts[*rank as usize].has(**peer)) {
                self.wrongs.push(format!("rank {rank} goes on with {peer}, which it lost"));
            }
        }
        let standing = |rank: u32| self.alive[rank as usize].then(|| stands(rank));
        Ended {
            standing: (0..self.plan.ranks).map(standing).collect(),
            masks: self.machines.iter().map(Machine::mask).collect(),
            epochs: last,
            wrongs: self.wrongs,
        }
    }
}

/// More than half, or half with the lowest; said here once more.
fn is_majority(group: &[u32], ranks: u32) -> bool {
    let (part, all) = (2 * group.len(), ranks as usize);
    part > all || part == all && group.contains(&0)
}

/// One event, drawn from a seed: a partition of the rails, with or without the agents' links, or ranks that are killed.
/// What must follow is known.
pub fn one_event(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x6f6e65);
    let ranks = rng.between(2, 7) as u32;
    // Every other seed tears them into two halves, as near as can be.
    let half = seed.is_multiple_of(2);
    let side: Vec<bool> = loop {
        let side: Vec<bool> = (0..ranks).map(|_| rng.one_in(2)).collect();
        let left = side.iter().filter(|left| **left).count() as u32;
        if (!half || left == ranks / 2) && left > 0 && left < ranks {
            break side;
        }
    };
    let group = |left| (0..ranks).filter(|rank| side[*rank as usize] == left).collect::<Vec<_>>();
    let groups = [group(true), group(false)];
    let (kills, cuts) = [(false, false), (false, true), (true, true)][rng.below(3) as usize];
    let begin = 50_000_000;
    let mut blows = Vec::new();
    for (a, b) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
        if side[a as usize] == side[b as usize] {
            continue;
        }
        // Without the agents' links each has to find out by itself; with them one of the two is enough.
        if cuts || a < b || rng.one_in(2) {
            blows.push((begin + rng.below(TIMES.settle_ns / 2), Blow::Lost(a, b)));
        }
        if cuts {
            blows.push((begin, Blow::Link(a, b, true)));
        }
    }
    if kills {
        let dead = &groups[rng.below(2) as usize];
        blows.extend(dead.iter().map(|rank| (begin, Blow::Killed(*rank))));
    }
    for _ in 0..rng.below(3) {
        let (rank, at) = (rng.below(ranks.into()) as u32, begin + rng.below(150_000_000));
        let held = Blow::Held(rank, rng.below(60_000_000));
        blows.push((at, rng.pick(&[Blow::Restarted(rank), held])));
    }
    let (lossy, delay_ns) = (rng.pick(&[0, 0, 3, 8]), rng.pick(&[1, 3_000_000, 12_000_000]));
    let calm_ns = begin + 3 * TIMES.patience_ns;
    let plan = Plan { ranks, blows, lossy, delay_ns, calm_ns, end_ns: calm_ns + 2 * TIMES.patience_ns };
    let ended = run(&plan, seed);
    let mut wrongs = ended.wrongs;
    for (this, other) in [(&groups[0], &groups[1]), (&groups[1], &groups[0])] {
        let goes_on = is_majority(this, ranks);
        for rank in this {
            let Some(standing) = ended.standing[*rank as usize] else { continue };
            let mask: Vec<u32> = ended.masks[*rank as usize].iter().collect();
            if goes_on && (standing != Standing::Member || mask != *other) {
                wrongs
                    .push(format!("rank {rank} of {this:?}, the majority, is {standing:?} without {mask:?}"));
            }
            if !goes_on && (standing == Standing::Member || mask.len() as u32 != ranks - 1) {
                wrongs
                    .push(format!("rank {rank} of {this:?}, the minority, is {standing:?} without {mask:?}"));
            }
        }
    }
    wrongs
}

/// Several events, drawn from a seed, on bad links. What must follow is what must always.
pub fn storm(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x73746f);
    let ranks = rng.between(3, 7) as u32;
    let (mut blows, mut killed) = (Vec::new(), 0);
    let calm_ns = 1_500_000_000;
    let rank = |rng: &mut Rng| rng.below(ranks.into()) as u32;
    for _ in 0..rng.between(1, 8) {
        let span = rng.pick(&[150_000_000, 900_000_000]);
        let at = 20_000_000 + rng.below(span);
        let (a, b) = (rank(&mut rng), rank(&mut rng));
        match rng.below(8) {
            0 if killed < 2 => {
                killed += 1;
                blows.push((at, Blow::Killed(a)));
                let later = |rng: &mut Rng| at + rng.below(120_000_000);
                blows.extend((0..ranks).filter(|b| *b != a).map(|b| (later(&mut rng), Blow::Lost(b, a))));
            }
            0 | 1 => blows.push((at, Blow::Restarted(a))),
            2 => blows.push((at, Blow::Held(a, rng.below(300_000_000)))),
            3 | 4 => {
                let until = at + rng.below(calm_ns - at);
                let both = rng.one_in(2);
                for (from, to) in [(a, b), (b, a)].into_iter().take(1 + usize::from(both)) {
                    blows.push((at, Blow::Link(from, to, true)));
                    blows.push((until, Blow::Link(from, to, false)));
                }
            }
            _ => blows.push((at, Blow::Lost(a, b))),
        }
    }
    let own = |blow: &(u64, Blow)| matches!(blow.1, Blow::Lost(a, b) | Blow::Link(a, b, _) if a == b);
    blows.retain(|blow| !own(blow));
    let (lossy, delay_ns) = (rng.pick(&[2, 3, 6, 20]), rng.pick(&[1, 10_000_000, 40_000_000]));
    let plan = Plan { ranks, blows, lossy, delay_ns, calm_ns, end_ns: calm_ns + 4 * TIMES.patience_ns };
    run(&plan, seed).wrongs
}

/// Two ranks lose each other, and their agents do not hear each other: each attempts to decide without the other, and
/// those between hear both.
pub fn duel(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x6475);
    let ranks = rng.between(3, 6) as u32;
    let (a, b) = (0, rng.between(1, u64::from(ranks) - 1) as u32);
    let begin = 20_000_000;
    let mut blows = vec![(0, Blow::Link(a, b, true)), (0, Blow::Link(b, a, true))];
    for (from, to) in [(a, b), (b, a)] {
        blows.push((begin + rng.below(10_000_000), Blow::Lost(from, to)));
    }
    let delay_ns = rng.pick(&[2_000_000, 10_000_000, 40_000_000]);
    let calm_ns = begin + 2 * TIMES.patience_ns;
    let plan = Plan { ranks, blows, lossy: 0, delay_ns, calm_ns, end_ns: calm_ns + 2 * TIMES.patience_ns };
    let ended = run(&plan, seed);
    let mut wrongs = ended.wrongs;
    let on = ended.standing.iter().filter(|standing| **standing == Some(Standing::Member)).count() as u32;
    if on != ranks - 1 {
        wrongs.push(format!("{on} of {ranks} ranks go on: {:?}", ended.standing));
    }
    wrongs
}

/// The rank that decides dies with what it decided, and another rank is lost meanwhile: a rank that follows it must
/// find what was decided.
pub fn heir(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x6865);
    let ranks = rng.between(5, 7) as u32;
    let begin = 20_000_000;
    let mut blows =
        vec![(0, Blow::Doomed(0)), (begin, Blow::Lost(0, ranks - 1)), (begin, Blow::Killed(ranks - 1))];
    // Rank 0 has decided by then: four times the longest delay.
    let later = begin + TIMES.settle_ns + 60_000_000 + rng.below(40_000_000);
    for rank in 1..ranks - 1 {
        blows.push((later + rng.below(10_000_000), Blow::Lost(rank, 0)));
        blows.push((later + rng.below(10_000_000), Blow::Lost(rank, ranks - 1)));
    }
    let calm_ns = begin + 2 * TIMES.patience_ns;
    let delay_ns = rng.pick(&[1, 2_000_000, 8_000_000]);
    let plan = Plan { ranks, blows, lossy: 0, delay_ns, calm_ns, end_ns: calm_ns + 2 * TIMES.patience_ns };
    let ended = run(&plan, seed);
    let mut wrongs = ended.wrongs;
    for rank in 1..ranks - 1 {
        let mask: Vec<u32> = ended.masks[rank as usize].iter().collect();
        if mask != [0, ranks - 1] {
            wrongs.push(format!("rank {rank} goes on without {mask:?}"));
        }
    }
    wrongs
}

/// One rank hears nothing while the others decide, for longer than their patience: it learns what was decided once it
/// hears again, whether it is left out or goes on. It lost nobody, so it asks nobody.
pub fn missed(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x6d69);
    let ranks = rng.between(4, 7) as u32;
    let deaf = rng.below(ranks.into()) as u32;
    let others = || (0..ranks).filter(move |rank| *rank != deaf);
    // Either it is the one that is left out, or another one dies.
    let left_out = seed.is_multiple_of(2);
    let gone = if left_out { deaf } else { others().next_back().expect("there are four") };
    let begin = 50_000_000;
    let back = begin + 3 * TIMES.patience_ns + rng.below(TIMES.patience_ns);
    let mut blows = Vec::new();
    for other in others() {
        for (from, to) in [(deaf, other), (other, deaf)] {
            blows.push((begin, Blow::Link(from, to, true)));
            blows.push((back, Blow::Link(from, to, false)));
        }
        if other != gone {
            blows.push((begin + rng.below(10_000_000), Blow::Lost(other, gone)));
        }
    }
    if !left_out {
        blows.push((begin, Blow::Killed(gone)));
    }
    // What an agent knew of who was told ends with it.
    let at = begin + TIMES.patience_ns / 2 + rng.below(TIMES.patience_ns);
    blows.extend(others().filter(|_| rng.one_in(3)).map(|rank| (at, Blow::Restarted(rank))));
    let (lossy, delay_ns) = (rng.pick(&[0, 4]), rng.pick(&[1, 3_000_000, 12_000_000]));
    let plan = Plan { ranks, blows, lossy, delay_ns, calm_ns: back, end_ns: back + 2 * TIMES.patience_ns };
    let ended = run(&plan, seed);
    let mut wrongs = ended.wrongs;
    let right = if left_out { Standing::Out } else { Standing::Member };
    if ended.standing[deaf as usize] != Some(right) || ended.epochs != 1 {
        let stands = ended.standing[deaf as usize];
        wrongs.push(format!("rank {deaf} of {ranks}, without {gone}: {stands:?}, {} epochs", ended.epochs));
    }
    wrongs
}
