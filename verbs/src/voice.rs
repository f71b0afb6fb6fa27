//! What is said to the user, on stderr.

use crate::status;
use shunt_mlx5_sys::{IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_wc};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static HUSHED: AtomicBool = AtomicBool::new(false);

/// Says nothing from now on: for a simulator, in which many processes would speak.
pub fn hush() {
    HUSHED.store(true, Ordering::Relaxed);
}

/// Says something to who asked for it (`SHUNT_LOG=debug` or `trace`).
pub fn debug(text: &str) {
    let asked = std::env::var("SHUNT_LOG").is_ok_and(|level| level == "debug" || level == "trace");
    if asked {
        let since = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() % 1_000_000);
        shunt_settings::complain!("shunt: verbs: {}.{:03} {text}", since / 1000, since % 1000);
    }
}

/// Says something to everybody, unless `SHUNT_LOG` is `off`.
pub fn say(text: &str) {
    if HUSHED.load(Ordering::Relaxed) || std::env::var("SHUNT_LOG").is_ok_and(|level| level == "off") {
        return;
    }
    shunt_settings::complain!("shunt: verbs: {text}");
}

/// True for errors that another path would not cure: the program's own.
pub const fn is_the_programs(status: u32) -> bool {
    // Local length, operation, protection, binding, access; what the responder refuses, or has no receive for.
    matches!(status, 1 | 2 | 3 | 4 | 6 | 7 | 8 | 9 | 10 | 11 | 13 | 15)
}

/// Causes that were said.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says that a queue pair failed that was not protected, and why it was not. Once for each cause.
pub fn failed(wc: &ibv_wc, device: &str, why: &str) {
    if !is_a_failure(wc) {
        return;
    }
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(line) = line(&mut said, wc, device, why) {
        say(&line);
    }
}

/// The same of one that is known by its number alone, if it is known.
pub fn failed_by_number(wc: &ibv_wc) {
    if is_a_failure(wc)
        && let Some((device, why)) = status::unprotected(wc.qp_num)
    {
        failed(wc, &device, &why);
    }
}

/// True for what a protected queue pair would outlive: no flush, which follows a failure or the program's own wish, and
/// no error of the program's own.
fn is_a_failure(wc: &ibv_wc) -> bool {
    wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR && !is_the_programs(wc.status)
}

fn line(said: &mut BTreeSet<String>, wc: &ibv_wc, device: &str, why: &str) -> Option<String> {
    let first = is_a_failure(wc) && said.insert(why.to_owned());
    let (qpn, status) = (wc.qp_num, wc.status);
    first.then(|| format!("{device} QP {qpn:#x} failed (status {status}) and was not protected: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes, good completions and errors of the program's own are no failures; a cause is said once.
    #[test]
    fn a_failure_without_protection_is_said_once_for_each_cause() {
        let wc = |status| ibv_wc { status, qp_num: 0x41, ..ibv_wc::default() };
        let mut said = BTreeSet::new();
        let mut line = |status, why| line(&mut said, &wc(status), "mlx5_0", why);
        const RETRIES: u32 = shunt_mlx5_sys::IBV_WC_RETRY_EXC_ERR;
        for status in [IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, 4] {
            assert_eq!(line(status, "a"), None);
        }
        let want = "mlx5_0 QP 0x41 failed (status 12) and was not protected: a";
        assert_eq!(line(RETRIES, "a").as_deref(), Some(want));
        assert_eq!(line(RETRIES, "a"), None);
        assert!(line(RETRIES, "b").is_some(), "another cause");
    }
}
