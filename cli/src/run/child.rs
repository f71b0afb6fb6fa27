//! One rank's process: how it is started, signalled and reaped.

use super::event::Event;
use super::outcome::Ending;
use super::thread::in_thread;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpid, getppid};
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;

/// What all ranks of a job have in common.
pub struct Place<'a> {
    /// Ranks.
    pub world: u32,
    /// Rank 0's listening socket.
    pub listener: &'a TcpListener,
    /// Job secret.
    pub secret: &'a str,
    /// Soft fabric.
    pub fabric: &'a str,
    /// Further variables.
    pub set: &'a [(String, String)],
}

/// A rank's process.
pub struct Child {
    /// The process; it leads a process group of its own.
    pub process: std::process::Child,
    /// How it ended, once it was reaped.
    pub ended: Option<Ending>,
    rank: u32,
}

fn environment(command: &mut Command, rank: u32, place: &Place) -> io::Result<()> {
    command.env_remove("SHUNT_SECRET_FILE").env_remove("SHUNT_ROOT_FD");
    command.envs(place.set.iter().map(|(name, value)| (name, value)));
    command.env("SHUNT_RANK", rank.to_string()).env("SHUNT_WORLD", place.world.to_string());
    // All on this machine.
    command.env("SHUNT_LOCAL_RANK", rank.to_string());
    command.env("SHUNT_ROOT", place.listener.local_addr()?.to_string());
    command.env("SHUNT_SECRET", place.secret).env("SHUNT_FABRIC", place.fabric);
    if rank == 0 {
        command.env("SHUNT_ROOT_FD", place.listener.as_raw_fd().to_string());
    }
    Ok(())
}

/// Starts a rank. Called by the main thread alone: the kernel ends a child when the *thread* that made it ends.
pub fn start(program: &Path, arguments: &[OsString], rank: u32, place: &Place) -> io::Result<Child> {
    let mut command = Command::new(program);
    environment(&mut command, rank, place)?;
    // A group of its own: the terminal's Ctrl-C comes to the launcher alone, which passes it on once.
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let inherited = (rank == 0).then(|| place.listener.as_raw_fd());
    let launcher = getpid();
    let prepare = move || -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != launcher {
            // The launcher ended before the line above: the signal will never come.
            return Err(Errno::ESRCH.into());
        }
        if let Some(fd) = inherited {
            // SAFETY: the launcher holds the listener open until all ranks were started; this is its copy.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes system calls only (prctl, getppid, fcntl); it takes no lock
    // and allocates nothing, as errors are made of an error number.
    unsafe { command.pre_exec(prepare) };
    let process = command.spawn()?;
    Ok(Child { process, ended: None, rank })
}

impl Child {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32)
    }

    /// Sends a signal to the rank and what it started. Only before [`Child::reap`]: the number is its own until then.
    pub fn signal(&self, signal: Signal) {
        // It may be over already: then there is nobody to signal.
        let _ = killpg(self.pid(), signal);
    }

    /// Tells when the process is over, and leaves it to be reaped.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn report_end(&self, events: Sender<Event>) -> io::Result<()> {
        let (pid, rank) = (self.pid(), self.rank);
        in_thread("a rank's end", move || {
            while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
            let _ = events.send(Event::Ended(rank));
        })
    }

    /// Takes the status of a process that is over. What it started and left behind is killed: nothing outlives a job.
    pub fn reap(&mut self) -> Ending {
        self.signal(Signal::SIGKILL);
        let ending = match self.process.wait() {
            Ok(status) => Ending::from_status(status),
            Err(_) => Ending::Exited(1),
        };
        self.ended = Some(ending);
        ending
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.signal(Signal::SIGKILL);
            let _ = self.process.wait();
        }
    }
}
