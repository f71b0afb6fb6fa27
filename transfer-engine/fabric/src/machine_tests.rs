//! Two machines, and words that are lost, doubled and late.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const PATIENCE: Patience = Patience { peer: Nanos::millis(300), ..Patience::DEFAULT };

/// An end, as its owner has it: at most one endpoint, and the counts that it answers with.
struct End {
    machine: Machine,
    endpoint: Option<u32>,
    peer: Option<Vec<u8>>,
    open: Option<u32>,
    ended: Vec<(u32, Ending)>,
    made: u32,
}

struct Pair {
    ends: [End; 2],
    now: Nanos,
    words: VecDeque<(usize, u32, Word)>,
    /// Takes a turn in what is lost and doubled.
    turns: VecDeque<u8>,
}

impl End {
    fn new(leads: bool) -> Self {
        let machine = Machine::new(leads, PATIENCE);
        Self { machine, endpoint: None, peer: None, open: None, ended: Vec::new(), made: 0 }
    }
}

impl Pair {
    fn new(turns: &[u8]) -> Self {
        let (ends, words) = ([End::new(true), End::new(false)], VecDeque::new());
        Self { ends, now: Nanos::ZERO, words, turns: turns.iter().copied().collect() }
    }

    fn with(&mut self, end: usize, call: impl FnOnce(&mut Machine, Nanos, &mut Vec<Act>)) {
        let mut acts = Vec::new();
        call(&mut self.ends[end].machine, self.now, &mut acts);
        let mut acts: VecDeque<_> = acts.into();
        while let Some(act) = acts.pop_front() {
            let at = &mut self.ends[end];
            let incarnation = at.machine.incarnation();
            let mut more = Vec::new();
            match act {
                Act::Make => {
                    assert_eq!(at.endpoint, None, "one endpoint at a time");
                    (at.endpoint, at.peer) = (Some(incarnation), None);
                    at.made += 1;
                    at.machine.made(self.now, Some(vec![end as u8, incarnation as u8]), &mut more);
                }
                Act::Insert(name) => at.peer = Some(name),
                Act::Probe => {
                    assert_eq!(at.peer, Some(vec![1 - end as u8, incarnation as u8]), "of this incarnation");
                    at.machine.probed(self.now, &mut more);
                }
                Act::Shut => {
                    assert!(at.endpoint.take().is_some(), "closed once");
                    at.open = None;
                    at.machine.shut(self.now, &mut more);
                }
                Act::SetAside => panic!("it closes at once"),
                Act::Opened => at.open = Some(incarnation),
                Act::Ended(ending) => {
                    assert_eq!(at.endpoint, None, "closed before it ends");
                    at.ended.push((incarnation, ending));
                }
                Act::Say(of, word) => self.say(end, of, word),
                Act::Ask(of) => self.say(end, of, Word::Close(Asks::default())),
                Act::Answer(of, _) => {
                    assert_ne!(at.endpoint, Some(of), "answered before it is closed");
                    self.say(end, of, Word::Closed(Answers::default()));
                }
            }
            acts.extend(more);
        }
    }

    /// Three of eight words are lost, doubled, or overtaken.
    fn say(&mut self, end: usize, of: u32, word: Word) {
        let (to, turn) = (1 - end, self.turns.pop_front().unwrap_or(7) % 8);
        match turn {
            0 => {}
            1 => self.words.extend([(to, of, word.clone()), (to, of, word)]),
            2 => self.words.push_front((to, of, word)),
            _ => self.words.push_back((to, of, word)),
        }
    }

    fn step(&mut self) {
        self.now += Nanos::millis(1);
        for _ in 0..self.words.len() {
            let Some((to, of, word)) = self.words.pop_front() else { break };
            self.with(to, |machine, now, acts| machine.hear(now, of, word, acts));
        }
        (0..2).for_each(|end| self.with(end, |machine, now, acts| machine.tick(now, acts)));
    }

    fn open(&self) -> Option<u32> {
        let [a, b] = self.ends.each_ref().map(|end| end.open);
        if a == b { a } else { None }
    }

    fn until_open(&mut self) -> u32 {
        for _ in 0..20_000 {
            if let Some(incarnation) = self.open() {
                return incarnation;
            }
            self.step();
        }
        panic!("not open: {:?}", self.ends.each_ref().map(|end| &end.machine));
    }
}

#[test]
fn a_path_opens_at_both_ends_and_again_after_either_fails() {
    let mut pair = Pair::new(&[]);
    for (incarnation, end) in [(1, 0), (2, 1), (3, 0)] {
        assert_eq!(pair.until_open(), incarnation);
        pair.with(end, |machine, now, acts| machine.fail(now, acts));
        assert_eq!(pair.ends[end].open, None);
    }
    pair.until_open();
    for end in &pair.ends {
        let answered = |of| (of, Ending::Answered(Answers::default()));
        assert_eq!(end.ended, [1, 2, 3].map(answered), "each is over once, at both ends");
    }
}

#[test]
fn a_path_that_its_owner_closes_is_made_again_without_a_longer_pause() {
    let took = |close: fn(&mut Machine, Nanos, &mut Vec<Act>)| {
        let mut pair = Pair::new(&[]);
        for number in 0..12 {
            pair.until_open();
            pair.with(number % 2, close);
        }
        pair.until_open();
        pair.now
    };
    let (released, failed) = (took(Machine::release), took(Machine::fail));
    assert!(released < Nanos::millis(12 * 20), "{released:?}");
    assert!(failed > released + released, "one that fails again and again waits longer: {failed:?}");
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for_longer_than_its_time() {
    let mut pair = Pair::new(&[]);
    pair.until_open();
    pair.with(0, |machine, now, acts| machine.fail(now, acts));
    let end = pair.now + PATIENCE.peer;
    while pair.ends[0].ended.is_empty() {
        assert!(pair.now <= end + Nanos::millis(1), "in time");
        pair.words.clear();
        pair.step();
    }
    assert_eq!(pair.ends[0].ended, [(1, Ending::Silent)]);
    // The other end, which never heard of it, hears the next offer.
    assert!(pair.until_open() > 1);
    assert_eq!(pair.ends[1].ended[0].0, 1);
}

#[test]
fn a_rail_that_may_not_be_used_has_no_endpoint() {
    for end in 0..2 {
        let mut pair = Pair::new(&[]);
        pair.until_open();
        pair.with(end, |machine, now, acts| _ = machine.allow(now, false, acts));
        for _ in 0..2000 {
            pair.step();
            assert_eq!(pair.ends[end].endpoint, None);
        }
        pair.with(end, |machine, now, acts| _ = machine.allow(now, true, acts));
        assert!(pair.until_open() > 1);
    }
}

/// Cause: a rail that was taken down while its lane was being closed counted as one that nothing had hit.
#[test]
fn a_rail_that_is_down_before_its_lane_opens_again_has_changed_something() {
    for end in 0..2 {
        let mut pair = Pair::new(&[]);
        pair.until_open();
        pair.with(end, |machine, now, acts| machine.release(now, acts));
        let allow = |pair: &mut Pair, up| {
            let mut changes = false;
            pair.with(end, |machine, now, acts| changes = machine.allow(now, up, acts));
            changes
        };
        assert_eq!([allow(&mut pair, false), allow(&mut pair, false)], [true, false]);
        (0..2000).for_each(|_| pair.step());
        assert_eq!(pair.ends[end].endpoint, None, "it kept the lane from opening");
        assert_eq!([allow(&mut pair, true), allow(&mut pair, true)], [true, false]);
        pair.until_open();
    }
}

proptest! {
    /// Whatever is lost, doubled and overtaken while ends fail: at last the path is open, and no end has two endpoints,
    /// answers before its own is closed, or uses a name of another incarnation.
    #[test]
    fn it_opens_at_last(
        turns in proptest::collection::vec(any::<u8>(), 0..400),
        faults in proptest::collection::vec((1..60u32, any::<bool>()), 0..8),
    ) {
        let mut pair = Pair::new(&turns);
        for (steps, end) in faults {
            (0..steps).for_each(|_| pair.step());
            pair.with(usize::from(end), |machine, now, acts| machine.fail(now, acts));
        }
        pair.until_open();
        for end in &pair.ends {
            let mut over: Vec<_> = end.ended.iter().map(|(of, _)| *of).collect();
            over.dedup();
            prop_assert_eq!(over.len(), end.ended.len(), "each is over once");
        }
    }
}

#[test]
fn an_end_opens_when_both_first_operations_are_executed_and_needs_no_more_of_the_other_then() {
    let mut pair = Pair::new(&[]);
    let step = |machine: &mut Machine, call: &dyn Fn(&mut Machine, &mut Vec<Act>)| {
        let mut acts = Vec::new();
        call(machine, &mut acts);
        acts
    };
    let now = Nanos::ZERO;
    let [leads, follows] = &mut pair.ends;
    let (leads, follows) = (&mut leads.machine, &mut follows.machine);
    step(leads, &|machine, acts| machine.tick(now, acts));
    step(leads, &|machine, acts| machine.made(now, Some(vec![0]), acts));
    step(follows, &|machine, acts| machine.hear(now, 1, Word::Offer(vec![0]), acts));
    step(follows, &|machine, acts| machine.made(now, Some(vec![1]), acts));
    step(leads, &|machine, acts| machine.hear(now, 1, Word::Accept(vec![1]), acts));
    step(follows, &|machine, acts| machine.hear(now, 1, Word::Ready, acts));
    let says = Act::Say(1, Word::Probed(true));
    assert_eq!(step(leads, &|machine, acts| machine.probed(now, acts)), std::slice::from_ref(&says));
    // The owner of the other end sees its lane only now, and may wait for something else.
    assert_eq!(step(follows, &|machine, acts| machine.hear(now, 1, Word::Probed(true), acts)), []);
    assert_eq!(step(follows, &|machine, acts| machine.probed(now, acts)), [says, Act::Opened]);
    let open = |machine: &mut Machine| {
        step(machine, &|machine, acts| machine.hear(now, 1, Word::Probed(true), acts))
    };
    assert_eq!(open(leads), [Act::Opened]);
    // It was lost: said again, and not for ever.
    assert_eq!(open(leads), [Act::Say(1, Word::Probed(false))]);
    assert_eq!(step(leads, &|machine, acts| machine.hear(now, 1, Word::Probed(false), acts)), []);
}

#[test]
fn an_endpoint_that_does_not_close_is_set_aside_and_a_peer_that_still_closes_is_waited_for() {
    let mut pair = Pair::new(&[]);
    pair.until_open();
    let (now, machine) = (pair.now, &mut pair.ends[0].machine);
    let step = |machine: &mut Machine, call: &dyn Fn(&mut Machine, &mut Vec<Act>)| {
        let mut acts = Vec::new();
        call(machine, &mut acts);
        acts
    };
    assert_eq!(step(machine, &|machine, acts| machine.fail(now, acts)), [Act::Shut]);
    let late = now + PATIENCE.close;
    assert_eq!(
        step(machine, &|machine, acts| machine.tick(late - Nanos::millis(1), acts)),
        [],
        "nothing is asked"
    );
    assert_eq!(step(machine, &|machine, acts| machine.tick(late, acts)), [Act::SetAside]);
    assert_eq!(step(machine, &|machine, acts| machine.shut(late, acts)), [Act::Ask(1)]);
    // The peer says that it is closing, and stops saying it.
    let soon = late + PATIENCE.peer - Nanos::millis(1);
    assert_eq!(step(machine, &|machine, acts| machine.hear(soon, 1, Word::Wait, acts)), []);
    let silent = soon + PATIENCE.peer;
    let before = step(machine, &|machine, acts| machine.tick(silent - Nanos::millis(1), acts));
    assert_eq!(before, [Act::Ask(1)]);
    let ended = step(machine, &|machine, acts| machine.tick(silent, acts));
    assert_eq!(ended, [Act::Ended(Ending::Silent)]);
}

/// Regression: an end whose endpoint could not be opened once took no offer any more, and its path was dead for good.
#[test]
fn an_offer_is_taken_up_again_after_an_endpoint_could_not_be_opened() {
    let (mut machine, mut acts, offer) = (Machine::new(false, PATIENCE), Vec::new(), Word::Offer(vec![1]));
    let mut now = Nanos::secs(1);
    machine.hear(now, 1, offer.clone(), &mut acts);
    assert_eq!(acts, [Act::Make]);
    acts.clear();
    machine.made(now, None, &mut acts);
    now += Nanos::secs(10);
    machine.hear(now, 1, offer, &mut acts);
    assert_eq!(acts, [Act::Make], "the same one");
}
