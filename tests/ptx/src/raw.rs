//! What the device library has beside the posts and waits of a group: raw posts, looks of a caller's own waits,
//! questions about a channel. Scenarios of one thread are played by these, and a lost answer is asked about.

use crate::code::Module;
use crate::library::{self, long, short};
use crate::outcome::{Run, caught, cluster};
use crate::rig::{Mode, Rig, Station, THREADS, actor, outcome_words, outcomes};
use shunt_device::platform::host::World;
use shunt_device::{FaultKind, Operation};
use shunt_kernels::Outcome;
use shunt_kernels::scenarios::{Group, Launch, PES};
use shunt_tests::oracle::{load, store};
use std::rc::Rc;

/// What a look answers as long as there is more to wait for.
const PENDING: u64 = 0x101;
/// The top bit of a post that failed.
const FAILED: u64 = 1 << 63;

/// One thread that calls functions of the library, about one channel.
pub(crate) struct Caller<'s> {
    pub(crate) station: &'s Station,
    pub(crate) peer: u32,
    pub(crate) channel: u32,
    pub(crate) timeout_ns: u64,
}

impl Caller<'_> {
    fn call(&self, name: &str, arguments: &[Vec<u8>]) -> u64 {
        self.station.run(name, arguments, (0, 1), 1)
    }

    /// A function whose first arguments are peer and channel.
    pub(crate) fn of(&self, name: &str, more: &[Vec<u8>]) -> u64 {
        let to = [short(self.peer.into()), short(self.channel.into())];
        self.call(name, &[&to[..], more].concat())
    }

    /// The same, called by all threads of a block.
    fn by_block(&self, name: &str, more: &[Vec<u8>]) -> u64 {
        let to = [short(self.peer.into()), short(self.channel.into())];
        self.station.run(name, &[&to[..], more].concat(), (0, 1), THREADS)
    }

    /// The same by one thread, with a status as its answer.
    fn status(&self, name: &str, more: &[Vec<u8>]) -> u64 {
        self.of(name, more) & 0xffff_ffff
    }

    /// Looks until there is nothing to wait for, or time is up.
    fn until_done(&self, look: impl Fn() -> u64) -> u64 {
        let begun = self.station.kernel().world.now();
        loop {
            match look() {
                PENDING if self.station.kernel().world.now() - begun < self.timeout_ns => {
                    self.station.kernel().world.relax();
                }
                ended => return ended,
            }
        }
    }

    /// Waits for a ticket: a look at the channel, which rings a doorbell that was left, and one at the ticket.
    fn until_ticket(&self, ticket: u64) -> u64 {
        self.until_done(|| match self.status("shunt_progress", &[long(self.timeout_ns)]) {
            0 => self.status("shunt_test", &[long(ticket)]),
            other => other,
        })
    }

    /// Waits for a word of this PE by a loop of its own.
    fn until_word(&self, word: u64, value: u64) -> u64 {
        let rounds = Rc::new(vec![0; 8]);
        self.station.lent.lend(&rounds);
        let at = vec![long(rounds.as_ptr() as u64)];
        let ended = self.until_done(|| {
            let now = self.call("shunt_look_after", &at);
            assert!(now != u64::MAX, "shunt_look_after: expected a time, got none");
            if load(self.station.kernel().heap + word) >= value { 0 } else { PENDING }
        });
        // What is lent stays as long as the cluster.
        std::mem::forget(rounds);
        ended
    }

    /// The report of `shunt_alive` or `shunt_uncertain`, with its status.
    fn report(&self, name: &str) -> (u64, Outcome) {
        let room = Rc::new(outcome_words(1));
        self.station.lent.lend(&room);
        let status = self.status(name, &[long(room.as_ptr() as u64)]);
        let report = outcomes(&room, 1)[0];
        std::mem::forget(room);
        (status, report)
    }

    /// What the library says of itself, against what the cluster knows.
    fn introduce(&self, pe: u32, offset: u64) {
        let said = [self.call("shunt_my_pe", &[]), self.call("shunt_pe_count", &[])];
        assert_eq!(
            said.map(|word| word & 0xffff_ffff),
            [u64::from(pe), u64::from(PES)],
            "number and count of PEs"
        );
        let address = self.call("shunt_address", &[long(offset)]);
        assert_eq!(address, self.station.kernel().heap + offset, "shunt_address({offset:#x})");
    }

    /// The channel works and asks nothing.
    fn is_well(&self) {
        let said = ["shunt_alive", "shunt_uncertain"].map(|name| self.report(name).0);
        assert_eq!(said, [0, 0], "statuses of shunt_alive, shunt_uncertain");
    }
}

/// True if a launch can be made by these functions.
pub fn can(module: &Module, launch: &Launch) -> bool {
    let known = [
        "put",
        "get",
        "p",
        "signal_monotone",
        "signal_cleared",
        "signal_cleared32",
        "signal_add",
        "put_signal",
        "quiet",
        "wait_until",
    ];
    launch.group == Group::Thread && known.contains(&launch.kernel) && library::can(module, launch)
}

/// Does what a launch asks for.
pub fn run(station: &Station, launch: &Launch) -> Outcome {
    let call = &launch.call;
    let caller = Caller { station, peer: call.peer, channel: call.channel, timeout_ns: call.timeout_ns };
    caller.introduce(launch.pe, call.word);
    let status = |status: u64, value| Outcome { status: status as u32, value, ..Outcome::default() };
    let span = [long(call.dst), long(call.src), long(call.bytes)];
    let posted = match launch.kernel {
        // The doorbell is left to the first look.
        "put" => caller.of("shunt_try_put", &[&span[..], &[short(0)]].concat()),
        // By one thread, and once more by a block.
        "p" => {
            let value = [long(call.dst), long(call.value), short(call.bytes)];
            let first = caller.of("shunt_try_p", &value);
            if first & FAILED == 0 { caller.by_block("shunt_p_block", &value) } else { first }
        }
        // There is no entry point of a block for these.
        "signal_monotone" => caller.by_block("shunt_signal_block", &[long(call.word), long(call.value)]),
        "signal_cleared" => {
            caller.by_block("shunt_signal_cleared_block", &[long(call.word), long(call.value)])
        }
        "signal_add" => caller.by_block("shunt_signal_add_block", &[long(call.word), long(call.value)]),
        "signal_cleared32" => caller.of("shunt_try_cleared32", &[long(call.word), short(call.value)]),
        "get" => {
            let ticket = caller.of("shunt_get_thread", &span);
            return status(caller.until_ticket(ticket), ticket);
        }
        "quiet" => {
            caller.is_well();
            return library::run(station, launch);
        }
        "wait_until" => return status(caller.until_word(call.word, call.value), call.value),
        _ => return library::run(station, launch),
    };
    if posted & FAILED != 0 {
        return status(posted & 0xffff_ffff, 0);
    }
    status(caller.until_ticket(posted), posted)
}

/// Atomics that the word's owner executes, while a port goes down: each once, each with what the word was.
pub fn exact(module: &Rc<Module>, mode: Mode) -> Run {
    const SECOND: u64 = 1_000_000_000;
    const WORD: u64 = 64;
    const COUNT: u64 = 12;
    const ADD: u64 = shunt_layout::state::AmoForm::Add64 as u64;
    const COMPARE_SWAP: u64 = shunt_layout::state::AmoForm::CompareSwap64 as u64;
    caught(|| {
        let cluster = crate::outcome::exact(mode.seed);
        cluster.inject(&"30us:0.0:down".parse().expect("a fault"));
        let rig = Rig::new(cluster, module, mode, false);
        let word = rig.cluster.pe(1).heap().address + WORD;
        store(word, 7);
        let station = rig.station(0);
        let task = rig.cluster.sim.spawn("exact", actor(), move || {
            let caller = Caller { station: &station, peer: 1, channel: 0, timeout_ns: SECOND };
            let old = Rc::new(vec![0u64]);
            station.lent.lend(&old);
            let at = old.as_ptr() as u64;
            let exact = |form: u64, value: u64, expect: u64| {
                store(at, expect);
                let words = [long(WORD), short(form), long(value), long(at), long(SECOND)];
                (caller.status("shunt_exact", &words), load(at))
            };
            for number in 0..COUNT {
                assert_eq!(exact(ADD, 1, 0), (0, 7 + number), "add {number}");
            }
            assert_eq!(
                exact(COMPARE_SWAP, 50, 3),
                (0, 7 + COUNT),
                "a compare-and-swap that meets another value"
            );
            assert_eq!(exact(COMPARE_SWAP, 50, 7 + COUNT), (0, 7 + COUNT), "one that does not");
            assert_eq!(exact(99, 1, 0).0, FaultKind::BadAddress as u64, "an unknown form");
            std::mem::forget(old);
        });
        rig.cluster.sim.finish(&task);
        rig.cluster.sim.run_for(5_000_000);
        let mut found = Run::default();
        if load(word) != 50 {
            found.wrongs.push(format!("the word: expected 50, got {}", load(word)));
        }
        found.ended(&rig);
        found
    })
}

/// An atomic whose answer is lost: the channel asks, refuses what is against what is known, and goes on.
pub fn ask(module: &Rc<Module>, mode: Mode) -> Run {
    const SECOND: u64 = 1_000_000_000;
    const WORD: u64 = 64;
    const RESULT: u64 = 1024;
    caught(|| {
        let cluster = cluster(mode.seed);
        cluster.inject(&"0ns:0.0:lost-atomic-response".parse().expect("a fault"));
        let rig = Rig::new(cluster, module, mode, false);
        let word = rig.cluster.pe(1).heap().address + WORD;
        store(word, 7);
        let station = rig.station(0);
        let task = rig.cluster.sim.spawn("ask", actor(), move || {
            let caller = Caller { station: &station, peer: 1, channel: 0, timeout_ns: SECOND };
            let ticket = caller.of("shunt_fetch_add64", &[long(WORD), long(5), long(RESULT)]);
            assert_eq!(ticket & FAILED, 0, "shunt_fetch_add64: {ticket:#x}");
            assert_eq!(caller.until_ticket(ticket), FaultKind::Uncertain as u64, "looks at the ticket");
            let (asked, report) = caller.report("shunt_uncertain");
            assert_eq!(asked, FaultKind::Uncertain as u64, "shunt_uncertain");
            assert_eq!((report.address, report.op), (WORD, Operation::Fetch as u32), "{report:?}");
            let resolve = |ticket, applied| caller.status("shunt_resolve", &[long(ticket), short(applied)]);
            let answers = [(report.at + 9, 1), (report.at, 0), (report.at, 1), (report.at, 1)];
            let said = answers.map(|(ticket, applied)| resolve(ticket, applied));
            let refused = FaultKind::BadResolution as u64;
            assert_eq!(said, [refused, refused, 0, refused], "shunt_resolve {answers:?}");
            assert_eq!(caller.until_ticket(ticket), 0, "looks at the ticket");
            caller.is_well();
        });
        rig.cluster.sim.finish(&task);
        // The agent takes the record of the switch out of the channel.
        rig.cluster.sim.run_for(5_000_000);
        let mut found = Run::default();
        if load(word) != 12 {
            found.wrongs.push(format!("an add of 5 to 7: expected 12 at the peer, got {}", load(word)));
        }
        found.ended(&rig);
        if !found.switched.contains(&0) {
            found.wrongs.push("PE 0 asked and was answered: expected a switch of it, got none".into());
        }
        found
    })
}
