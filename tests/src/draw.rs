//! What the swarm runs for a seed: any fault of the list, on workloads of every shape.

use shunt_soft_nic::fault::{Fault, FaultInfo, FaultKind, Injection, PeFault, format_time, list};

use crate::rng::Rng;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

/// Faults that the swarm draws: all but sabotage, which breaks promises on purpose, and commands for real hardware.
pub fn drawn() -> Vec<FaultInfo> {
    list().filter(|info| !info.sabotage && *info != Fault::EXEC).collect()
}

/// Shortest time in which a message is posted, received and credited.
const MESSAGE_NS: u64 = 6_000;

impl RunSpec {
    /// What the swarm runs for `seed`. The first fault goes through the list as seeds go up, the others are drawn.
    pub fn from_seed(seed: u64) -> Self {
        Self::with_fault(seed, None)
    }

    /// The same with a given kind of fault, by name, as the first one.
    ///
    /// # Panics
    /// If the swarm draws no such fault.
    pub fn with_fault(seed: u64, name: Option<&str>) -> Self {
        let kinds = drawn();
        let first = match name {
            Some(name) => kinds.iter().position(|info| info.name() == name),
            None => Some((seed % kinds.len() as u64) as usize),
        };
        let first = kinds[first.unwrap_or_else(|| panic!("the swarm draws no fault called {name:?}"))];
        let mut rng = Rng::new(seed);
        let mut spec = Self::draw_shape(&mut rng);
        spec.seed = seed;
        spec.suspect_floor_ns = if seed.is_multiple_of(3) { 1_000_000 } else { spec.suspect_ns };
        let count = rng.between(1, 4);
        for number in 0..count {
            let info = if number == 0 { first } else { rng.pick(&kinds) };
            let faults = spec.draw_fault(&mut rng, info);
            spec.faults.extend(faults);
        }
        // From a chance of its own: what a seed runs otherwise stays what it was.
        let mut kinds = Rng::new(seed ^ 0x51_67_6e_61_6c);
        spec.traffic.signals = kinds.pick(&[1, 1, 2, 3]);
        spec.time_fence = kinds.one_in(6);
        spec.idle_ns = kinds.pick(&[20_000, 100_000, 100_000, 100_000]);
        if spec.traffic.signals == 2 {
            spec.log_depth = spec.log_depth.max(3); // a bracket takes three slots
        }
        // Several writers of one word: two NICs of its PE would lose adds between them.
        if spec.pes > 2 && kinds.one_in(3) {
            spec.sharers = true;
            spec.atomic_gap_ns = 1_500;
            spec.stream_channels = spec.channels;
            spec.channels += 1;
        }
        spec.draw_exact(&mut Rng::new(seed ^ 0x65_78_61_63_74));
        // Adders keep their own book of every answer.
        if rng.one_in(4) || spec.faults.iter().any(|one| one.fault.name() == "lost-atomic-response") {
            spec.adders = true;
            spec.stream_channels = if spec.sharers { spec.stream_channels } else { spec.channels };
            spec.channels += 1;
        }
        // A stream of few slots over a link that stays slow, or goes on losing packets, takes its time, and is no hang.
        let slow = |fault: &Fault| {
            matches!(
                fault,
                Fault::Nic(FaultKind::Delay { for_ns: None, .. } | FaultKind::Drop { for_ns: None, .. })
            )
        };
        if spec.faults.iter().any(|one| slow(&one.fault)) {
            spec.time_limit_ns *= 4;
        }
        // What a sender asks of its peer beside its messages. An answer that a fault takes away is `Uncertain`, and of
        // those the streams keep no book.
        let mut asks = Rng::new(seed ^ 0x61_73_6b_73);
        if asks.one_in(4) {
            spec.traffic.gets = asks.between(1, 5);
        }
        let mut later = Rng::new(seed ^ 0x6c_61_74_65);
        // Those atomics go over a backup that must be there.
        spec.backups_later = later.one_in(3) && !spec.adders;
        let lost = spec.faults.iter().any(|one| one.fault.name() == "lost-atomic-response");
        if asks.one_in(4) && !lost {
            spec.traffic.fetches = asks.between(1, 5);
        }
        let mut large = Rng::new(seed ^ 0x6c_61_72_67_65);
        let small = spec.sharers || spec.adders || spec.faults.iter().any(|one| one.fault.name() == "slow");
        if large.one_in(12) && !small {
            spec.draw_large(&mut large);
        }
        spec
    }

    /// Some writers of one word have its owner answer.
    fn draw_exact(&mut self, rng: &mut Rng) {
        if self.sharers && rng.one_in(2) {
            self.exact = rng.pick(&[1, 2]);
        }
    }

    /// Messages that take a rail as long as a path may be silent, or longer.
    fn draw_large(&mut self, rng: &mut Rng) {
        self.traffic.slot_bytes = rng.pick(&[65_536, 262_144, 1 << 20]);
        self.rail_gbps = rng.pick(&[0, 1, 10]);
        self.traffic.slots = self.traffic.slots.min(2);
        self.traffic.credit_lag = 0;
        (self.channels, self.warps, self.mtu, self.log2_chunk) = (1, 1, 4096, 30);
        // All that is moved is a few dozen of the largest, however many share it.
        let streams = u64::from(self.pes * (self.pes - 1)) / if self.both_ways { 1 } else { 2 };
        self.traffic.messages = ((24 << 20) / self.traffic.slot_bytes / streams).clamp(8, 60);
    }

    fn draw_shape(rng: &mut Rng) -> Self {
        let slots = rng.pick(&[1, 2, 5, 12, 48]);
        let log_depth = rng.pick(&[2, 3, 4, 7]);
        let pes = rng.pick(&[2, 2, 2, 3, 4]);
        let mut spec = Self {
            pes,
            rails: rng.pick(&[1, 2, 2, 2, 3]),
            channels: rng.between(1, 3) as u32,
            warps: rng.between(1, 4) as u32,
            log_depth,
            both_ways: rng.one_in(2),
            infiniband: rng.one_in(4),
            rmsn_cleared: rng.one_in(5),
            interference: rng.pick(&[0, 0, 64, 512]),
            suspect_ns: rng.pick(&[2_000_000, 10_000_000]),
            recovery_ns: rng.pick(&[5_000_000, 20_000_000]),
            give_up_ns: rng.pick(&[1_000_000_000, 1_000_000_000, 100_000_000]),
            backups: rng.pick(&[3, 3, 1, 7]),
            first_ticket: rng.pick(&[0, 0, 1 << 16, 1 << 24, 1 << 32]),
            first_generation: rng.pick(&[0, 0, 0, 253, 255]),
            // A piece a chunk: what a put is cut into must fit the ring.
            log2_chunk: if log_depth >= 4 { rng.pick(&[30, 30, 12]) } else { 30 },
            traffic: Traffic {
                messages: rng.between(50, 300),
                slots,
                slot_bytes: rng.pick(&[8, 64, 256, 4088, 4096, 4104, 8192, 8200, 12_288]),
                puts: rng.between(1, 3),
                pace_ns: rng.pick(&[0, 0, 20_000, 200_000]),
                credit_lag: rng.below(slots),
                quiet_before_reuse: rng.one_in(4),
                ..Traffic::default()
            },
            ..Self::default()
        };
        // The host takes an InfiniBand port's MTU for 4096.
        spec.mtu = if spec.infiniband { 4096 } else { rng.pick(&[4096, 4096, 1024, 256]) };
        if spec.first_ticket > 0 {
            spec.first_ticket -= rng.between(1, 400);
        }
        // As much work in all, however many share it.
        let pairs = u64::from(pes * (pes - 1)) / if spec.both_ways { 1 } else { 2 };
        let streams = pairs * u64::from(spec.channels * spec.warps);
        spec.traffic.messages = (spec.traffic.messages * 4 / streams).clamp(20, spec.traffic.messages);
        spec
    }

    /// A fault and, if it would last for ever, mostly its end; what it needs in order to hit anything.
    pub fn draw_fault(&self, rng: &mut Rng, info: FaultInfo) -> Vec<Injection> {
        let traffic_ns = self.traffic.messages * (self.traffic.pace_ns + MESSAGE_NS);
        let at_ns = rng.below(traffic_ns);
        let pe = rng.below(self.pes.into()) as u32;
        let rail = if rng.one_in(3) { rng.below(self.rails.into()) as u32 } else { 0 };
        let fault = draw_text(rng, info);
        let fault: Fault = fault.parse().unwrap_or_else(|error| panic!("{fault}: {error}"));
        let one = |at_ns, fault| Injection { at_ns, pe, rail: (!info.whole_pe).then_some(rail), fault };
        let down = Fault::Nic(FaultKind::Down { for_ns: None });
        let pause = rng.pick(&[200_000, 5_000_000, 80_000_000]);
        match &fault {
            Fault::Nic(FaultKind::Up) => vec![one(at_ns, down), one(at_ns + pause, fault)],
            Fault::Nic(FaultKind::Down { for_ns: None }) if !rng.one_in(4) => {
                vec![one(at_ns, fault), one(at_ns + pause, Fault::Nic(FaultKind::Up))]
            }
            // Agents have something to say where a path is left.
            Fault::Pe(PeFault::OobDup { .. } | PeFault::OobDelay { .. } | PeFault::OobReorder { .. }) => {
                let later = Fault::Nic(FaultKind::Down { for_ns: Some(pause) });
                let later =
                    Injection { at_ns: at_ns + rng.below(100_000), pe, rail: Some(rail), fault: later };
                vec![one(at_ns, fault), later]
            }
            // These show only where something else goes wrong.
            Fault::Nic(
                FaultKind::EventLost { .. }
                | FaultKind::EventLate { .. }
                | FaultKind::FwTimeout { .. }
                | FaultKind::MissingFlush { .. }
                | FaultKind::CqeGarbageInit { .. },
            ) => {
                let later = Fault::Nic(FaultKind::Down { for_ns: Some(pause) });
                vec![one(at_ns, fault), one(at_ns + rng.below(100_000), later)]
            }
            _ => vec![one(at_ns, fault)],
        }
    }
}

/// The text of a fault with drawn parameters.
fn draw_text(rng: &mut Rng, info: FaultInfo) -> String {
    const MS: u64 = 1_000_000;
    let name = info.name();
    let span = |rng: &mut Rng| rng.pick(&[300_000, 3 * MS, 12 * MS, 40 * MS]);
    let parameter = |rng: &mut Rng, placeholder: &str| match (name, placeholder) {
        // Below the packet lifetime, twice: both ports of a path may be hit.
        ("delay" | "hold", "T") => format_time(rng.pick(&[15_000, 300_000, 3 * MS, 20 * MS])),
        ("placement-delay", "T") => format_time(rng.pick(&[20_000, 900_000, 3 * MS])),
        ("late-cqe", "T") => format_time(rng.pick(&[50_000, 2 * MS, 12 * MS])),
        ("event-late", "T") => format_time(rng.pick(&[100_000, 3 * MS, 60 * MS])),
        ("agent-stalled" | "agent-dead", "T") => {
            format_time(rng.pick(&[300_000, 12 * MS, 40 * MS, 700 * MS]))
        }
        ("oob-delay", "T") => format_time(rng.pick(&[100_000, MS, 10 * MS])),
        ("clock-jump", "T") => format_time(rng.pick(&[MS, 30 * MS, 200 * MS, 3000 * MS])),
        (_, "T" | "PERIOD") => format_time(span(rng)),
        ("reorder", "N") => rng.between(2, 20).to_string(),
        (_, "N") => rng.between(1, 3).to_string(),
        (_, "COUNT") => rng.between(1, 5).to_string(),
        (_, "P") => rng.pick(&["0.01", "0.2", "1"]).to_owned(),
        (_, "GBPS") => rng.pick(&["0.01", "0.1", "5"]).to_owned(),
        // Transport errors mostly, and some of the program's own.
        (_, "SYNDROME") => rng.pick(&["0x15", "0x14", "0x16", "0x22", "0x7f", "0x04", "0x13"]).to_owned(),
        (name, other) => panic!("the swarm does not know what {other} of {name} stands for"),
    };
    let (fixed, rest) = info.syntax.split_once('[').unwrap_or((info.syntax, ""));
    let mut text = name.to_owned();
    if let Some((_, parameters)) = fixed.split_once('=') {
        let parts: Vec<String> = parameters.split('/').map(|part| parameter(rng, part)).collect();
        text += &format!("={}", parts.join("/"));
    }
    // Most faults end; that some never do is what the give-up time is for.
    if let Some(optional) = rest.strip_suffix(']')
        && !rng.one_in(6)
        // A completion queue is made where a path is recreated, and that takes its time.
        && !matches!(name, "lost-doorbell" | "cqe-garbage-init")
    {
        let (sign, _) = optional.split_at(1);
        text += &format!("{sign}{}", format_time(span(rng)));
    }
    text
}
