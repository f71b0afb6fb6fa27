//! What the engine itself costs a page, without a NIC's own part: no memory is made for a lone one, and no more
//! instructions than a budget. Both are counted, not timed: the same code gives the same numbers on any machine.

mod rig;

use rig::Rig;
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

/// Pages of a chain.
const CHAIN: u32 = 64;
/// Transfers after which nothing grows any more, and transfers that are counted.
const WARM: u64 = 1000;
const COUNTED: u64 = 1000;

/// Calls that made memory in so many transfers of so many pages.
fn made(pages: u32) -> u64 {
    let mut rig = Rig::new(pages);
    let mut run = |transfers| {
        (0..transfers).for_each(|_| {
            rig.until_the_doorbell();
            rig.until_the_end();
        });
    };
    run(WARM);
    let before = MADE.load(Ordering::Relaxed);
    run(COUNTED);
    MADE.load(Ordering::Relaxed) - before
}

/// One test for both: a child is forked while no other test runs.
#[test]
fn a_page_costs_no_more_than_its_budget() {
    #[cfg(target_arch = "x86_64")]
    counted::costs_few_instructions();
    let (lone, chain) = (made(1), made(CHAIN));
    println!("{lone} and {chain} calls made memory in {COUNTED} transfers of a page and of {CHAIN}");
    // The harness makes a few things of its own.
    assert!(lone < COUNTED / 10, "{lone} in {COUNTED} transfers of one page");
    assert!(chain < COUNTED + COUNTED / 10, "{chain} in {COUNTED} transfers of {CHAIN} pages: one each");
}

#[cfg(target_arch = "x86_64")]
mod counted {
    use super::{CHAIN, Rig, WARM};

    /// Instructions that are allowed: of a lone page and of each of a chain, to the doorbell and from there to the end.
    /// Tests are compiled with little optimisation and all checks: a release build costs about a third, see
    /// docs/how-to/transfer.md.
    const BUDGET: [(&str, u32, [u64; 2]); 2] = [("lone", 1, [620, 2640]), ("chain", CHAIN, [195, 215])];

    /// Transfers of which the cheapest one counts: now and then one makes room for others.
    const LAPS: u32 = 4;
    /// Far above what a child takes.
    const CHILD_SECONDS: u32 = 120;
    /// The exit status of a child that may not be traced.
    const UNTRACED: i32 = 77;

    pub fn costs_few_instructions() {
        for (name, pages, budget) in BUDGET {
            let Some(both) = instructions(pages) else {
                println!("SKIPPED: no ptrace here: instructions were not counted");
                return;
            };
            let [doorbell, end] = both.map(|count| count / u64::from(pages));
            println!("{name}: {doorbell} instructions a page to the doorbell, {end} to the end");
            assert!(doorbell <= budget[0] && end <= budget[1], "{name}: {doorbell} and {end}, of {budget:?}");
        }
    }

    /// Instructions of a transfer in both phases; none where a process may not trace its child.
    fn instructions(pages: u32) -> Option<[u64; 2]> {
        // SAFETY: the child calls nothing but this crate, its allocator and the system.
        let child = unsafe { libc::fork() };
        if child == 0 {
            run_child(pages);
        }
        let mut child = Child(child);
        if !child.is_traced() {
            // It was waited for.
            std::mem::forget(child);
            return None;
        }
        let mut least = [u64::MAX; 2];
        for _ in 0..LAPS {
            let nothing = child.step();
            let both = [child.step(), child.step()].map(|count| count - nothing);
            least = [least[0].min(both[0]), least[1].min(both[1])];
        }
        Some(least)
    }

    /// Runs transfers, and stops before and behind what is counted.
    fn run_child(pages: u32) -> ! {
        // SAFETY: plain calls of the system. One that hangs ends by the alarm's signal, and the test fails.
        let stop = || unsafe { libc::raise(libc::SIGSTOP) };
        // SAFETY: as above.
        unsafe {
            libc::alarm(CHILD_SECONDS);
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(UNTRACED);
            }
        }
        let mut rig = Rig::new(pages);
        (0..WARM).for_each(|_| {
            rig.until_the_doorbell();
            rig.until_the_end();
        });
        stop();
        for _ in 0..LAPS {
            stop();
            rig.until_the_doorbell();
            stop();
            rig.until_the_end();
            stop();
        }
        // SAFETY: as above.
        unsafe { libc::_exit(0) }
    }

    /// A process that this one traces. Killed when dropped.
    struct Child(libc::pid_t);

    impl Child {
        fn wait(&self) -> i32 {
            let mut status = 0;
            // SAFETY: the child is ours.
            assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
            status
        }

        /// Waits for its first stop. False if it may not be traced.
        fn is_traced(&self) -> bool {
            let first = self.wait();
            if libc::WIFEXITED(first) && libc::WEXITSTATUS(first) == UNTRACED {
                return false;
            }
            assert!(libc::WIFSTOPPED(first), "expected the child to be stopped, got status {first:#x}");
            true
        }

        /// Instructions until it stops by itself.
        fn step(&mut self) -> u64 {
            let mut count = 0;
            loop {
                // SAFETY: the child is stopped, and traced by this thread.
                let went = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.0, 0, 0) };
                assert_eq!(went, 0, "ptrace: {}", std::io::Error::last_os_error());
                let status = self.wait();
                assert!(libc::WIFSTOPPED(status), "expected the child to be stopped, got status {status:#x}");
                if libc::WSTOPSIG(status) == libc::SIGSTOP {
                    return count;
                }
                count += 1;
            }
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: the child is ours; one that has ended is only waited for.
            unsafe {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }
}
