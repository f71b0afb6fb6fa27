//! Several PEs that add to one word of another, through the library: what rule 16 is for.
//!
//! Each writer has 16 bits of the word for itself, so the word tells what became of each one's adds, and an answer
//! tells how many adds of whom came before it: answers of all writers together must be one row without repeats.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use shunt_device::{Amo, Channel, Deadline, Fault, FaultKind, HeapOffset, Resolution, Solo, Ticket};

use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::oracle::{Kind, load};
use crate::sim::{SimPlatform, Task};

/// The word that all add to.
const WORD_AT: u64 = 1024;
/// Where answers land, in turn.
const RESULTS_AT: u64 = 3072;
const RESULTS: u64 = 64;
/// Bits of the word that a writer has for itself.
const FIELD: u32 = 16;
/// Adds a writer has under way at most.
const WINDOW: usize = 6;
/// How often what is uncertain is looked for.
const RESOLVE_NS: u64 = 50_000;
/// After this long on a fenced path nothing arrives any more.
const ARRIVED_NS: u64 = 200_000;
/// A writer that has waited for one add this long gives up.
const PATIENCE_NS: u64 = 4_000_000_000;

/// What one writer does.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The writer.
    pub from: u32,
    /// Whose word it is.
    pub to: u32,
    /// Channel index.
    pub channel: u32,
    /// Adds.
    pub adds: u64,
    /// Pause between them.
    pub pace_ns: u64,
    /// Pause before the first.
    pub delay_ns: u64,
    /// A pause of its own before the last half of them.
    pub rest_ns: u64,
    /// The word's owner answers them, one at a time.
    pub exact: bool,
}

/// What a writer did.
#[derive(Default)]
struct Book {
    begun: Cell<u64>,
    /// Adds that are known to be applied.
    applied: Cell<u64>,
    /// By ticket: number of the add.
    tickets: RefCell<BTreeMap<u64, u64>>,
    /// Adds whose answers are lost.
    lost: RefCell<BTreeSet<u64>>,
    /// Answers, in order.
    answers: RefCell<Vec<u64>>,
    fault: Cell<Option<Fault>>,
    ended: Cell<bool>,
}

/// A writer of a shared word.
pub struct Sharer {
    /// What it was to do.
    pub share: Share,
    task: Task<()>,
    book: Rc<Book>,
}

/// How many adds of writer `from` a value counts.
fn field(value: u64, from: u32) -> u64 {
    value >> (FIELD * from) & ((1 << FIELD) - 1)
}

/// How many adds of all writers a value counts.
fn total(value: u64) -> u64 {
    (0..64 / FIELD).map(|from| field(value, from)).sum()
}

impl Sharer {
    /// What it ended with, if not with its last add.
    pub fn fault(&self) -> Option<Fault> {
        self.book.fault.get()
    }

    /// Adds begun so far.
    pub fn begun(&self) -> u64 {
        self.book.begun.get()
    }

    /// True once it has ended.
    pub fn is_done(&self) -> bool {
        self.task.is_done()
    }
}

type Path<'k> = Channel<'k, SimPlatform<'k>>;

/// Waits for one add, over what is uncertain for a while: the resolver answers.
fn settle(
    kernel: &Kernel,
    channel: &Path<'_>,
    book: &Book,
    add: (u64, Ticket),
    amo: Amo,
) -> Result<(), Fault> {
    let (index, ticket) = add;
    let deadline = Deadline::after(kernel.world.now(), PATIENCE_NS);
    while let Err(fault) = channel.wait(Solo, ticket, deadline) {
        let asked = fault.kind == FaultKind::Uncertain && channel.alive().is_ok();
        if !asked || kernel.world.now() > deadline.at_ns {
            return Err(fault);
        }
        kernel.world.sleep(RESOLVE_NS);
    }
    book.applied.set(index + 1);
    if !book.lost.borrow().contains(&index) {
        let answer = kernel.device().fetched(amo, HeapOffset(RESULTS_AT + index % RESULTS * 8));
        book.answers.borrow_mut().push(answer);
    }
    Ok(())
}

fn write(kernel: &Kernel, share: Share, book: &Book) -> Result<(), Fault> {
    let device = kernel.device();
    let channel = device.channel(share.to, share.channel);
    let amo = Amo::Add64(1 << (FIELD * share.from));
    let mut open = VecDeque::new();
    kernel.world.sleep(share.delay_ns);
    for index in 0..share.adds {
        if share.rest_ns > 0 && index == share.adds / 2 {
            while let Some(add) = open.pop_front() {
                settle(kernel, &channel, book, add, amo)?;
            }
            kernel.world.sleep(share.rest_ns);
        }
        if open.len() == WINDOW
            && let Some(add) = open.pop_front()
        {
            settle(kernel, &channel, book, add, amo)?;
        }
        book.begun.set(index + 1);
        let result = HeapOffset(RESULTS_AT + index % RESULTS * 8);
        let ticket = channel.amo_fetch_nbi(Solo, HeapOffset(WORD_AT), amo, result)?;
        book.tickets.borrow_mut().insert(ticket.0, index);
        open.push_back((index, ticket));
        kernel.world.sleep(share.pace_ns + kernel.world.draw(share.pace_ns / 4 + 1));
    }
    while let Some(add) = open.pop_front() {
        settle(kernel, &channel, book, add, amo)?;
    }
    Ok(())
}

/// The same, where the word's owner answers. An answer that its NIC took along is told by the word.
fn write_exactly(kernel: &Kernel, share: Share, book: &Book) -> Result<(), Fault> {
    let device = kernel.device();
    let channel = device.channel(share.to, share.channel);
    let amo = Amo::Add64(1 << (FIELD * share.from));
    kernel.world.sleep(share.delay_ns);
    for index in 0..share.adds {
        if share.rest_ns > 0 && index == share.adds / 2 {
            kernel.world.sleep(share.rest_ns);
        }
        book.begun.set(index + 1);
        let deadline = Deadline::after(kernel.world.now(), PATIENCE_NS);
        loop {
            match channel.fetch_exact(Solo, HeapOffset(WORD_AT), amo, deadline) {
                Ok(answer) => book.answers.borrow_mut().push(answer),
                Err(fault) if fault.kind == FaultKind::AnswerLost => {
                    let met = load(kernel.heaps[share.to as usize] + WORD_AT);
                    if field(met, share.from) == index {
                        continue;
                    }
                    book.lost.borrow_mut().insert(index);
                }
                Err(fault) => return Err(fault),
            }
            break;
        }
        book.applied.set(index + 1);
        kernel.world.sleep(share.pace_ns + kernel.world.draw(share.pace_ns / 4 + 1));
    }
    Ok(())
}

/// Answers for a writer what its channel asks, by what the word holds: nothing of a fenced path comes any more.
fn resolve(kernel: &Kernel, share: Share, book: &Book) {
    let device = kernel.device();
    let channel = device.channel(share.to, share.channel);
    while !book.ended.get() {
        if let Some(fault) = channel.uncertain() {
            kernel.world.sleep(ARRIVED_NS);
            // A ticket that is not noted yet is that of the add being posted.
            let noted = book.tickets.borrow().get(&fault.at.0).copied();
            let index = noted.unwrap_or(book.begun.get() - 1);
            let applied = field(load(kernel.heaps[share.to as usize] + WORD_AT), share.from) > index;
            if applied {
                book.lost.borrow_mut().insert(index);
            }
            let answer = if applied { Resolution::Applied } else { Resolution::NotApplied };
            let _ = channel.resolve(fault.at, answer); // if it is dead, its waiters say so
        }
        kernel.world.sleep(RESOLVE_NS);
    }
}

impl Cluster {
    /// Starts a writer.
    pub fn share(&self, share: Share) -> Sharer {
        assert!(share.from < 64 / FIELD && share.adds < 1 << FIELD, "{share:?} fits its bits of the word");
        let book = Rc::new(Book::default());
        let noted = book.clone();
        self.spawn("resolve-share", share.from, move |kernel| resolve(kernel, share, &noted));
        let noted = book.clone();
        let task = self.spawn("share", share.from, move |kernel| {
            let write = if share.exact { write_exactly } else { write };
            let ended = write(kernel, share, &noted);
            noted.fault.set(ended.err());
            noted.ended.set(true);
        });
        Sharer { share, task, book }
    }

    /// The writers that the spec wants: all PEs but one, at that one.
    pub fn start_sharers(&self) -> Vec<Sharer> {
        if !self.spec.sharers {
            return Vec::new();
        }
        let (pes, channel) = (self.spec.pes, self.spec.stream_channels);
        assert!((1..self.spec.channels).contains(&channel), "the channel behind the streams' carries none");
        let to = (self.spec.seed % u64::from(pes)) as u32;
        let (adds, pace_ns) = (self.spec.traffic.messages, self.spec.traffic.pace_ns);
        let exact = |from: u32| self.spec.exact == 1 || self.spec.exact == 2 && from % 2 == 1;
        let share =
            |from| Share { from, to, channel, adds, pace_ns, delay_ns: 0, rest_ns: 0, exact: exact(from) };
        (0..pes).filter(|from| *from != to).map(|from| self.share(share(from))).collect()
    }

    /// Waits for writers whose PE lives, and holds the word and their answers against what they did. All of one word.
    pub fn judge_sharers(&self, sharers: &[Sharer]) {
        let lives = |pe: u32| self.pe_faults.killed_ns(pe).is_none();
        self.sim.run_until(|| sharers.iter().all(|one| one.is_done() || !lives(one.share.from)));
        let Some(to) = sharers.first().map(|one| one.share.to).filter(|to| lives(*to)) else { return };
        let met = load(self.pe(to).heap().address + WORD_AT);
        let report = |kind, what| self.oracle.report(kind, self.sim.now(), what);
        let mut answers = Vec::new();
        for Sharer { share, book, .. } in sharers {
            let (begun, applied, met) = (book.begun.get(), book.applied.get(), field(met, share.from));
            let what =
                format!("PE {} to {to}: {begun} adds started, {applied} done, {met} applied", share.from);
            let whole = lives(share.from) && book.fault.get().is_none();
            if met < applied || whole && met < begun {
                report(Kind::Lost, what);
            } else if met > begun {
                report(Kind::Duplicate, what);
            }
            let mine = book.answers.borrow();
            let backwards =
                mine.windows(2).find(|two| field(two[0], share.from) >= field(two[1], share.from));
            if let Some(two) = backwards {
                report(
                    Kind::Duplicate,
                    format!("PE {} to {to}: {:#x} answered, then {:#x}", share.from, two[0], two[1]),
                );
            }
            answers.extend(mine.iter().copied());
        }
        answers.sort_by_key(|answer| total(*answer));
        if let Some(two) = answers.windows(2).find(|two| total(two[0]) == total(two[1])) {
            report(
                Kind::Duplicate,
                format!("two adds at PE {to} were answered {:#x} and {:#x}", two[0], two[1]),
            );
        }
        let none_lost = sharers
            .iter()
            .all(|one| one.fault().is_none() && lives(one.share.from) && one.book.lost.borrow().is_empty());
        let first = answers.iter().zip(0..).find(|(answer, number)| total(**answer) != *number);
        if let Some((answer, number)) = first.filter(|_| none_lost) {
            report(Kind::Lost, format!("add {number} at PE {to} was answered {answer:#x}"));
        }
    }
}
