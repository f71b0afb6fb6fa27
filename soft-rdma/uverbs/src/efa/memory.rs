//! Memory regions.

use super::kept::refused;
use super::pd::Pd;
use crate::abi::ids::{HANDLE, access, query_mr};
use crate::abi::uverbs::{RegMr, RegMrResponse};
use crate::ioctl::{Call, Context, Resource};
use crate::user;
use crate::verbs::invocation::Core;
use rustix::io::Errno;
use shunt_soft_nic::soft_srd::memory::Region;
use std::sync::Arc;

/// A memory region.
struct Mr {
    key: u32,
    region: Region,
}

impl Resource for Mr {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        context.nic().with_srd(|device| device.remove_region(self.key))?.map_err(refused)
    }
}

/// REG_MR.
pub fn register(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let RegMr { start, length, iova, pd, access, .. } = core.request()?;
    core.check_room::<RegMrResponse>()?;
    let pd = context.get::<Pd>(pd)?.number();
    // Others may read at most: there are no remote writes.
    if access & !(access::LOCAL_WRITE | access::REMOTE_READ | access::OPTIONAL) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    user::populate(start, length, access & access::LOCAL_WRITE != 0)?;
    let region = Region { pd, start, iova, bytes: length, access };
    // SAFETY: the program promises by verbs what is promised here: registered memory stays until it is deregistered,
    // and what it does to it meanwhile races with nobody but a device.
    let key = context.nic().with_srd(|device| unsafe { device.add_region(region) })?.ok_or(Errno::NOMEM)?;
    let handle = context.insert(Arc::new(Mr { key, region }));
    core.reply(&RegMrResponse { handle, lkey: key, rkey: key })
}

/// Destroys.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Mr>(call.handle(HANDLE)?).map(|_| ())
}

/// QUERY_MR.
pub fn query(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mr = context.get::<Mr>(call.handle(HANDLE)?)?;
    call.output_if(query_mr::LKEY, &mr.key)?;
    call.output_if(query_mr::RKEY, &mr.key)?;
    call.output_if(query_mr::LENGTH, &mr.region.bytes)?;
    call.output_if(query_mr::IOVA, &mr.region.iova)
}
