//! Commands and the objects they make.

use super::channels;
use super::ids::{devx, obj};
use super::policy::{self, HEADER_BYTES, Kind};
use crate::ioctl::{Call, Context, Resource};
use crate::verbs::{Cq, Qp, firmware};
use rustix::io::Errno;
use shunt_soft_machine::devices::Nic;

/// Longest answer; the kernel's own bound is the length of an attribute.
const ANSWER_MAX: usize = u16::MAX as usize;

/// An object that a program made by a command of its own.
pub(super) struct Object {
    pub(super) kind: &'static Kind,
    pub(super) number: u32,
}

impl Resource for Object {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        firmware::execute::<HEADER_BYTES>(context.nic(), &self.kind.destroy(self.number))?;
        channels::forget(context.nic(), self.kind, self.number);
        Ok(())
    }
}

/// The object of a handle: one made here, or a queue of verbs.
pub(super) fn named(context: &Context, handle: u32) -> Result<(&'static Kind, u32), Errno> {
    if let Ok(object) = context.get::<Object>(handle) {
        return Ok((object.kind, object.number));
    }
    if let Ok(qp) = context.get::<Qp>(handle) {
        return Ok((policy::QP, qp.number()));
    }
    context.get::<Cq>(handle).map(|cq| (policy::CQ, cq.number()))
}

/// A mailbox of the program: at least a header.
fn mailbox(call: &Call, id: u16) -> Result<Vec<u8>, Errno> {
    let mailbox = call.input_bytes(id)?;
    if mailbox.len() < HEADER_BYTES { Err(Errno::INVAL) } else { Ok(mailbox) }
}

/// Room for an answer: at least a header.
fn room(call: &Call, id: u16) -> Result<usize, Errno> {
    let room = call.len(id);
    if (HEADER_BYTES..=ANSWER_MAX).contains(&room) { Ok(room) } else { Err(Errno::INVAL) }
}

/// Has the firmware execute a mailbox: a refusal is EREMOTEIO, and stands in the answer.
fn command(nic: &Nic, mailbox: &[u8], answer: &mut [u8]) -> Result<(), Errno> {
    nic.command(mailbox, answer)?;
    if policy::is_refused(answer) { Err(Errno::REMOTEIO) } else { Ok(()) }
}

/// Executes a mailbox and hands the answer out. A refusal is handed out too, and is EREMOTEIO.
fn execute(nic: &Nic, call: &mut Call, mailbox: &mut [u8], out: u16) -> Result<Vec<u8>, Errno> {
    let mut answer = vec![0; room(call, out)?];
    policy::prepare(mailbox);
    match command(nic, mailbox, &mut answer) {
        Err(Errno::REMOTEIO) => call.output(out, &answer).and(Err(Errno::REMOTEIO)),
        Err(error) => Err(error),
        Ok(()) => Ok(answer),
    }
}

/// A command about no object.
pub(super) fn other(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mut mailbox = mailbox(call, devx::OTHER_IN)?;
    policy::check_general(&mailbox)?;
    let answer = execute(context.nic(), call, &mut mailbox, devx::OTHER_OUT)?;
    call.output(devx::OTHER_OUT, &answer)
}

/// Makes an object.
pub(super) fn create(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mut mailbox = mailbox(call, obj::IN)?;
    let kind = policy::created_by(&mailbox)?;
    if !call.has(obj::HANDLE) {
        return Err(Errno::INVAL);
    }
    let answer = execute(context.nic(), call, &mut mailbox, obj::OUT)?;
    let handle = context.insert(std::sync::Arc::new(Object { kind, number: policy::number(&answer) }));
    let told = call.output(obj::OUT, &answer).and_then(|()| call.set_handle(obj::HANDLE, handle));
    if told.is_err() {
        // A program that cannot learn of an object cannot end it.
        context.destroy::<Object>(handle)?;
    }
    told
}

/// Ends it.
pub(super) fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Object>(call.handle(obj::HANDLE)?).map(|_| ())
}

/// Changes it.
pub(super) fn modify(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mut mailbox = mailbox(call, obj::IN)?;
    let (kind, number) = named(context, call.handle(obj::HANDLE)?)?;
    kind.check_modify(number, &mailbox)?;
    let answer = execute(context.nic(), call, &mut mailbox, obj::OUT)?;
    call.output(obj::OUT, &answer)
}

/// Reads it.
pub(super) fn query(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mut mailbox = mailbox(call, obj::IN)?;
    let (kind, number) = named(context, call.handle(obj::HANDLE)?)?;
    kind.check_query(number, &mailbox)?;
    let answer = execute(context.nic(), call, &mut mailbox, obj::OUT)?;
    call.output(obj::OUT, &answer)
}

/// Reads it, and puts the answer into a channel. The firmware's status is in the answer.
pub(super) fn async_query(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mut mailbox = mailbox(call, obj::IN)?;
    let (kind, number) = named(context, call.handle(obj::HANDLE)?)?;
    kind.check_query(number, &mailbox)?;
    let bytes = call.input::<u16>(obj::ASYNC_OUT_BYTES)? as usize;
    if bytes < HEADER_BYTES {
        return Err(Errno::INVAL);
    }
    let cookie = call.input::<u64>(obj::ASYNC_COOKIE)?;
    let channel = channels::command_channel(call.fd(obj::ASYNC_CHANNEL)?)?;
    policy::prepare(&mut mailbox);
    channel.query(context.nic(), mailbox, cookie, bytes)
}
