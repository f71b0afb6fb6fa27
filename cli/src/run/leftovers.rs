//! Fabrics of jobs whose launcher was killed before it could remove them.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use shunt_soft_nic::uplink::remove_unused_fabric;

/// The name of a fabric for one job of this launcher.
pub fn fabric(random: &str) -> String {
    format!("run-{}-{}", std::process::id(), &random[..RANDOM])
}

/// Characters that tell a launcher's fabric from that of one with the same number.
const RANDOM: usize = 8;

/// Removes the fabrics of launchers that are gone and whose ranks are too.
pub fn remove() {
    for name in shunt_soft_machine::control::fabrics() {
        if launcher(&name).is_some_and(is_gone) {
            // What stays harms nobody; another launcher may be at it at this moment.
            let _ = remove_unused_fabric(&name);
        }
    }
}

/// The launcher that made a name up.
fn launcher(fabric: &str) -> Option<Pid> {
    let (pid, random) = fabric.strip_prefix("run-")?.split_once('-')?;
    let hex = random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = pid.bytes().all(|byte| byte.is_ascii_digit());
    // 0 would be this process's group.
    let pid = pid.parse().ok().filter(|pid| hex && digits && *pid > 0)?;
    Some(Pid::from_raw(pid))
}

/// True if there is no such process. One of another user is there.
fn is_gone(pid: Pid) -> bool {
    kill(pid, None) == Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_read_from_names_of_their_own_making_alone() {
        assert_eq!(launcher(&fabric("0123abcdef")), Some(Pid::this()));
        for name in
            ["run-7", "run-7-lab", "run-0-0123abcd", "run--7-0123abcd", "run-+7-0123abcd", "lab-7-0123abcd"]
        {
            assert_eq!(launcher(name), None, "{name}");
        }
    }

    #[test]
    fn who_is_there_is_not_gone() {
        assert!(!is_gone(Pid::this()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_gone(Pid::from_raw(child.id() as i32)));
    }
}
