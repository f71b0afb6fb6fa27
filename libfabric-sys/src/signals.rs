//! What a process does on signals, kept while a library is loaded.
//!
//! Libraries that libfabric is linked with (`libinfinipath`, `libpsm2`) set actions of their own for SIGSEGV, SIGBUS,
//! SIGILL, SIGABRT and others as soon as they are loaded: these write a file `.btr` into the current folder and end the
//! process. `IPATH_NO_BACKTRACE` keeps the first from it; it would have to be set before the process has threads.

use core::mem::zeroed;
use core::ptr::{null, null_mut};

/// Those that have a name: the C library keeps some of the others for itself.
const SIGNALS: core::ops::Range<i32> = 1..32;

/// The action of a signal, if it has one that can be asked for.
pub(crate) fn action(signal: i32) -> Option<libc::sigaction> {
    // SAFETY: an action of zeros is the default one.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: no new action is given, and the place outlives the call.
    let code = unsafe { libc::sigaction(signal, null(), &raw mut action) };
    (code == 0).then_some(action)
}

/// Runs something, and sets every action as it was before. Actions that other threads set meanwhile are lost.
pub(crate) fn kept<T>(call: impl FnOnce() -> T) -> T {
    let before: Vec<_> = SIGNALS.map(|signal| (signal, action(signal))).collect();
    let result = call();
    for (signal, before) in before {
        let (Some(before), Some(after)) = (before, action(signal)) else { continue };
        if what(&before) == what(&after) {
            continue;
        }
        // SAFETY: the action was the process's a moment ago, and its handler is still there.
        let _ = unsafe { libc::sigaction(signal, &raw const before, null_mut()) };
    }
    result
}

/// The C library adds the flag to what it sets.
const RESTORER: i32 = 0x0400_0000;

/// What tells an action from another one: its handler and its flags.
fn what(action: &libc::sigaction) -> (usize, i32) {
    (action.sa_sigaction, action.sa_flags & !RESTORER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const CHILD: &str = "SHUNT_TEST_SIGNALS_CHILD";
    const NAME: &str = "signals::tests::a_process_keeps_its_own_actions_when_libfabric_is_loaded";

    extern "C" fn own(_signal: i32) {}

    fn seen() -> Vec<(i32, (usize, i32))> {
        SIGNALS.filter_map(|signal| Some((signal, what(&action(signal)?)))).collect()
    }

    #[test]
    fn a_process_keeps_its_own_actions_when_libfabric_is_loaded() {
        if std::env::var_os(CHILD).is_none() {
            // Nothing has loaded it in a new process.
            let program = std::env::current_exe().expect("this program");
            let child = Command::new(program).args([NAME, "--exact", "--nocapture"]).env(CHILD, "1").output();
            let child = child.expect("it starts");
            let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        // SAFETY: an action of zeros is the default one.
        let mut mine: libc::sigaction = unsafe { zeroed() };
        mine.sa_sigaction = own as *const () as usize;
        // SAFETY: the handler does nothing, and stays.
        assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &raw const mine, null_mut()) }, 0);
        let before = seen();
        let Ok(fabric) = crate::load() else { return };
        assert_eq!(seen(), before, "after the load");
        let mut list = null_mut();
        // SAFETY: no hints ask for everything; the place outlives the call, and the list is not used again.
        unsafe {
            let version = fabric.fi_version();
            if fabric.fi_getinfo(version, null(), null(), 0, null(), &raw mut list) == 0 {
                fabric.fi_freeinfo(list);
            }
        }
        assert_eq!(seen(), before, "after the first question");
    }
}
