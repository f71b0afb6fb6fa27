//! What a request costs while all is well: no memory is made for it, and no more instructions than a budget. Both are
//! counted, not timed: the same code gives the same numbers on any machine.

mod provider;

use provider::Program;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is asked of the system's.
struct Counting;

static MADE: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is forwarded to the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MADE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: forwarded to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: forwarded to the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The exit status of a child that may not be traced.
#[cfg(target_arch = "x86_64")]
const UNTRACED: i32 = 77;

/// Instructions from the child's first stop to its second, one by one; none where it may not be traced.
#[cfg(target_arch = "x86_64")]
fn stepped(child: libc::pid_t) -> Option<u64> {
    let wait = || {
        let mut status = 0;
        // SAFETY: the child is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    };
    let first = wait();
    if libc::WIFEXITED(first) && libc::WEXITSTATUS(first) == UNTRACED {
        return None;
    }
    assert!(libc::WIFSTOPPED(first), "expected the child to be stopped, got status {first:#x}");
    let mut count = 0;
    loop {
        // SAFETY: the child is stopped, and traced by this thread.
        let went = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        assert_eq!(went, 0, "ptrace: {}", std::io::Error::last_os_error());
        let status = wait();
        assert!(libc::WIFSTOPPED(status), "expected the child to be stopped, got status {status:#x}");
        if libc::WSTOPSIG(status) == libc::SIGSTOP {
            break;
        }
        count += 1;
    }
    // SAFETY: the child is ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait();
    Some(count)
}

/// Far above what a child takes.
#[cfg(target_arch = "x86_64")]
const CHILD_SECONDS: u32 = 120;

/// Instructions of some runs: with so many lists of so many requests, in a process of its own.
#[cfg(target_arch = "x86_64")]
fn instructions(through: bool, lists: u64, list: usize) -> Option<u64> {
    // SAFETY: the child calls nothing but this library, the provider and the system.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // One that hangs ends by a signal, and the test fails.
        // SAFETY: as above.
        unsafe { libc::alarm(CHILD_SECONDS) };
        let mut program = Program::new(through);
        (0..DEPTH).for_each(|_| program.run(1));
        // SAFETY: as above.
        unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(UNTRACED);
            }
            libc::raise(libc::SIGSTOP);
        }
        (0..lists).for_each(|_| program.run(list));
        // SAFETY: as above.
        unsafe {
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
    }
    stepped(child)
}

/// Requests after which the journal of this library has gone round.
#[cfg(target_arch = "x86_64")]
const DEPTH: u64 = 128;

/// What this library adds to so many lists; none where a process may not trace its child.
#[cfg(target_arch = "x86_64")]
fn added(list: usize) -> Option<u64> {
    // One turn of the journal, whatever the size of the lists.
    let lists = DEPTH / list as u64;
    Some((instructions(true, lists, list)? - instructions(false, lists, list)?) / lists)
}

/// One test for both: a child that was forked while the thread of another test held a lock of this library waited for
/// that lock, and the suite with it. The parent has called nothing of the library when it forks.
#[test]
fn a_request_costs_no_more_than_its_budget() {
    #[cfg(target_arch = "x86_64")]
    costs_few_instructions();
    makes_no_memory();
}

fn makes_no_memory() {
    let mut program = Program::new(true);
    (0..1000).for_each(|_| program.run(1));
    let before = MADE.load(Ordering::Relaxed);
    (0..1000).for_each(|_| program.run(1));
    (0..1000).for_each(|_| program.run(16));
    // The harness makes a few things of its own.
    let made = MADE.load(Ordering::Relaxed) - before;
    assert!(made < 1000, "{made} allocations in 17,000 requests");
}

/// Instructions that a request may cost: one that is posted and polled by itself, and each of 16 of a list. Tests are
/// compiled with little optimisation and all checks: a release build costs about a third, see docs/how-to/verbs.md.
#[cfg(target_arch = "x86_64")]
const BUDGET: (u64, u64) = (300, 85);

#[cfg(target_arch = "x86_64")]
fn costs_few_instructions() {
    let (Some(alone), Some(sixteen)) = (added(1), added(16)) else {
        println!("SKIPPED: no ptrace here: instructions were not counted");
        return;
    };
    let of_sixteen = sixteen / 16;
    println!("{alone} instructions alone, {of_sixteen} each of 16");
    assert!(alone <= BUDGET.0 && of_sixteen <= BUDGET.1, "{alone} and {of_sixteen}, of {BUDGET:?}");
}
