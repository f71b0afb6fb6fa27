//! The wall between a process and the place where queue pairs are found.

use super::remarks::Remarks;
use super::store_words::End;
use std::os::fd::RawFd;

/// Where queue pairs are found. Nothing of it waits.
pub trait Book: Send {
    /// A queue pair is this process's.
    fn put(&mut self, end: End);

    /// It is gone.
    fn remove(&mut self, end: End);

    /// Asks whose a queue pair is. False if nobody can be asked now.
    fn ask(&mut self, end: End) -> bool;

    /// Carries everything on. Queue pairs that were asked for, with the names of their processes.
    fn carry_on(&mut self, remarks: &Remarks) -> Vec<(End, String)>;

    /// Descriptors that become ready when something comes.
    fn fds(&self) -> Vec<RawFd>;

    /// They do for all that is to be done next.
    fn tells(&self) -> bool;

    /// Whether it is there; none while that is not known yet.
    fn is_open(&self) -> Option<bool>;
}

/// What is told of a place that is not there.
pub fn not_there(at: &dyn std::fmt::Display, why: &dyn std::fmt::Display) -> String {
    format!("the store at {at}: {why}; new connections are unprotected")
}
