//! Event channels: descriptors a program reads records of one length from, waits for, and polls.
//!
//! A channel is a pipe. The program has its read end, with whatever flags it likes; records are short enough to be
//! written whole or not at all.

use crate::user;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use shunt_soft_machine::log::Level;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// Descriptors of our own lie above those that programs count on.
const HIGH_FD: i32 = 200;

/// What tells two open files apart, whatever their descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Of a descriptor; EBADF if it is none.
    pub fn of(fd: RawFd) -> Result<Self, Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: only borrowed for the call, which fails if there is no such descriptor.
        let stat = fstat(unsafe { BorrowedFd::borrow_raw(fd) })?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Of a status.
    pub fn of_status(status: &libc::stat) -> Self {
        Self { device: status.st_dev, inode: status.st_ino }
    }

    /// By its two numbers.
    pub fn new(device: u64, inode: u64) -> Self {
        Self { device, inode }
    }

    /// The two numbers.
    pub fn numbers(self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The end of a channel that records are written to.
pub struct Channel {
    id: FileId,
    record: usize,
    /// The one that writes or takes out holds this: records taken out and put back stay in order.
    write: Mutex<OwnedFd>,
}

impl Channel {
    /// A channel for records of this length, and the descriptor that the program gets.
    pub fn new(record: usize) -> Result<(Self, OwnedFd), Errno> {
        let (for_program, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        // The kernel's channels are not inherited by what a program executes, either.
        fcntl_setfd(&for_program, FdFlags::CLOEXEC)?;
        let ours_high = fcntl_dupfd_cloexec(&ours, HIGH_FD)?;
        rustix::fs::fcntl_setfl(&ours_high, OFlags::NONBLOCK)?;
        let id = FileId::of(for_program.as_raw_fd())?;
        Ok((Self { id, record, write: Mutex::new(ours_high) }, for_program))
    }

    /// What a program's descriptor of it is known by.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// True while the program has a descriptor of it.
    pub fn is_open(&self) -> bool {
        let end = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        let mut look = [PollFd::new(&*end, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The end of a pipe that nobody reads shows an error.
        poll(&mut look, Some(&at_once)).is_err() || !look[0].revents().contains(PollFlags::ERR)
    }

    /// Adds a record. False if the program closed the channel or does not read it. The thread has SIGPIPE blocked.
    pub fn send(&self, record: &[u8]) -> bool {
        debug_assert_eq!(record.len(), self.record);
        let end = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        match write(&*end, record) {
            Ok(_) => true,
            Err(error) => {
                shunt_soft_machine::log!(Level::Debug, "an event found no reader: {error}");
                false
            }
        }
    }

    /// Takes out the records that `unwanted` names, which the program has not read, and says how many they were.
    pub fn remove(&self, unwanted: impl Fn(&[u8]) -> bool) -> usize {
        let end = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        // Another file of the same pipe: not to wait here is no matter of the program's.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(mine) = open(format!("/proc/self/fd/{}", end.as_raw_fd()), flags, Mode::empty()) else {
            return 0;
        };
        let (mut kept, mut removed, mut record) = (Vec::new(), 0, vec![0; self.record]);
        while read(&mine, &mut record) == Ok(self.record) {
            if unwanted(&record) {
                removed += 1;
            } else {
                kept.push(record.clone());
            }
        }
        for record in kept {
            // There was room before, and there is a reader: this file.
            let _ = write(&*end, &record);
        }
        removed
    }
}

/// Descriptors of this process that are open on a file.
pub fn descriptors_of(id: FileId) -> Result<usize, Errno> {
    let list = std::fs::read_dir("/proc/self/fd").map_err(|_| user::last_error())?;
    let fds = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    Ok(fds.filter(|fd| FileId::of(*fd) == Ok(id)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_records_can_be_taken_back() {
        let (channel, end) = Channel::new(8).unwrap();
        for n in [1u64, 2, 1, 3] {
            assert!(channel.send(&n.to_ne_bytes()));
        }
        assert_eq!(channel.remove(|record| record == 1u64.to_ne_bytes()), 2);
        assert_eq!(channel.remove(|record| record == 1u64.to_ne_bytes()), 0);
        let mut record = [0; 8];
        for n in [2u64, 3] {
            assert_eq!(read(&end, &mut record), Ok(8));
            assert_eq!(u64::from_ne_bytes(record), n);
        }
        assert_eq!(FileId::of(end.as_raw_fd()), Ok(channel.id()));
        assert_eq!(descriptors_of(channel.id()), Ok(2));
        assert!(channel.is_open());
        drop(end);
        assert!(!channel.is_open());
    }

    #[test]
    fn a_channel_that_is_not_read_overflows_quietly() {
        let (channel, end) = Channel::new(16).unwrap();
        let sent = (0..10_000).filter(|_| channel.send(&[0; 16])).count();
        assert!((1_000..10_000).contains(&sent), "{sent} records fit a pipe");
        assert_eq!(channel.remove(|_| true), sent);
        drop(end);
        assert_eq!(FileId::of(-1), Err(Errno::BADF));
    }
}
