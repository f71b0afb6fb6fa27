//! Memory regions: a umem over the program's memory, and a key over the umem.

use super::device_file::DeviceFile;
use super::firmware::{self, Umem};
use super::invocation::Core;
use super::pd::Pd;
use crate::abi::ids::{HANDLE, access, dmabuf_mr, query_mr};
use crate::abi::uverbs::{RegMr, RegMrResponse, ReregMr};
use crate::ioctl::{Call, Context, Resource};
use rustix::io::Errno;
use shunt_layout::mlx5::prm::cmd::{Opcode, input};
use shunt_layout::mlx5::prm::mkey::{
    ACCESS_MODE_MTT, CREATE_IN_BYTES, MKC_OFFSET, create, key, mkc, translation_octwords,
};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// REREG_MR: what changes.
const TRANSLATION: u32 = 1;
const DOMAIN: u32 = 2;
const ACCESS: u32 = 4;

/// Low bytes of keys: each key gets the next, so that an old one is soon known for what it is.
static VARIANT: AtomicU8 = AtomicU8::new(0);

/// What a region is.
#[derive(Clone)]
struct Shape {
    pd: Arc<Pd>,
    start: u64,
    length: u64,
    iova: u64,
    access: u32,
}

impl Shape {
    fn check(&self) -> Result<(), Errno> {
        use access::*;
        let known =
            LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | ZERO_BASED | HUGETLB | OPTIONAL;
        let asked = self.access;
        if asked & (ON_DEMAND | MW_BIND) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // The one that may write from afar must be able to from here.
        let remote_writes = asked & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
        let apart = (self.start ^ self.iova) & (crate::user::page_bytes() - 1);
        if asked & !known != 0
            || remote_writes && asked & LOCAL_WRITE == 0
            || apart != 0 && asked & ZERO_BASED == 0
            || self.length == 0
        {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    fn mailbox(&self, umem: u32, variant: u8) -> [u8; CREATE_IN_BYTES] {
        let mut mailbox = [0; CREATE_IN_BYTES];
        input::OPCODE.set(&mut mailbox, Opcode::CreateMkey as u32);
        create::MKEY_UMEM_VALID.set(&mut mailbox, 1);
        create::MKEY_UMEM_ID.set(&mut mailbox, umem);
        let context = &mut mailbox[MKC_OFFSET..MKC_OFFSET + mkc::BYTES];
        let allows = |bit| (self.access & bit != 0) as u32;
        mkc::A.set(context, allows(access::REMOTE_ATOMIC));
        mkc::RW.set(context, allows(access::REMOTE_WRITE));
        mkc::RR.set(context, allows(access::REMOTE_READ));
        mkc::LW.set(context, allows(access::LOCAL_WRITE));
        mkc::LR.set(context, 1);
        mkc::RELAXED_ORDERING_WRITE.set(context, allows(access::RELAXED_ORDERING));
        mkc::RELAXED_ORDERING_READ.set(context, allows(access::RELAXED_ORDERING));
        mkc::ACCESS_MODE_1_0.set(context, ACCESS_MODE_MTT);
        mkc::QPN.set(context, 0xff_ffff);
        mkc::MKEY_7_0.set(context, variant as u32);
        mkc::PD.set(context, self.pd.number());
        let start = if allows(access::ZERO_BASED) == 1 { 0 } else { self.iova };
        let log_page = crate::user::page_bytes().ilog2();
        let octwords = translation_octwords(start, self.length, log_page);
        mkc::START_ADDR.set(context, start);
        mkc::LEN.set(context, self.length);
        mkc::LOG_PAGE_SIZE.set(context, log_page);
        mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, octwords);
        create::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut mailbox, octwords);
        mailbox
    }
}

/// A key and what it stands on.
struct Made {
    shape: Shape,
    umem: Umem,
    index: u32,
    key: u32,
    /// Behind what stands on it.
    file: Option<DeviceFile>,
}

impl Made {
    fn new(context: &Context, shape: Shape) -> Result<Self, Errno> {
        shape.check()?;
        let writable = shape.access & access::LOCAL_WRITE != 0;
        let umem = Umem::register(context.nic(), shape.start, shape.length, writable)?;
        let variant = VARIANT.fetch_add(1, Ordering::Relaxed);
        let index = firmware::create(context.nic(), &shape.mailbox(umem.id(), variant))?;
        Ok(Self { shape, umem, index, key: key(index, variant), file: None })
    }

    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        firmware::command(context.nic(), Opcode::DestroyMkey, self.index)?;
        self.umem.release();
        Ok(())
    }
}

/// A memory region.
pub struct Mr(Mutex<Made>);

impl Mr {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resource for Mr {
    fn destroy(&self, context: &Context) -> Result<(), Errno> {
        self.made().destroy(context)
    }
}

/// REG_MR.
pub fn register(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let RegMr { start, length, iova, pd, access, .. } = core.request()?;
    core.check_room::<RegMrResponse>()?;
    let pd = context.get::<Pd>(pd)?;
    let made = Made::new(context, Shape { pd, start, length, iova, access })?;
    let key = made.key;
    let handle = context.insert(Arc::new(Mr(Mutex::new(made))));
    core.reply(&RegMrResponse { handle, lkey: key, rkey: key })
}

/// REREG_MR: a new key in the old one's place.
pub fn register_again(context: &Context, core: &mut Core) -> Result<(), Errno> {
    let request: ReregMr = core.request()?;
    core.check_room::<[u32; 2]>()?;
    let flags = request.flags;
    if flags == 0 || flags & !(TRANSLATION | DOMAIN | ACCESS) != 0 {
        return Err(Errno::INVAL);
    }
    let mr = context.get::<Mr>(request.handle)?;
    let mut made = mr.made();
    let mut shape = made.shape.clone();
    if made.file.is_some() {
        return Err(Errno::OPNOTSUPP);
    }
    if flags & TRANSLATION != 0 {
        (shape.start, shape.length, shape.iova) = (request.start, request.length, request.iova);
    }
    if flags & DOMAIN != 0 {
        shape.pd = context.get(request.pd)?;
    }
    if flags & ACCESS != 0 {
        shape.access = request.access;
    }
    let new = Made::new(context, shape)?;
    if let Err(error) = made.destroy(context) {
        // Nobody knows the new key yet.
        let _ = new.destroy(context);
        return Err(error);
    }
    *made = new;
    core.reply(&[made.key; 2])
}

/// Destroys.
pub fn destroy(context: &Context, call: &mut Call) -> Result<(), Errno> {
    context.destroy::<Mr>(call.handle(HANDLE)?).map(|_| ())
}

/// QUERY_MR: what another process would need to know of it.
pub fn query(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let mr = context.get::<Mr>(call.handle(HANDLE)?)?;
    let made = mr.made();
    let (key, length, iova) = (made.key, made.shape.length, made.shape.iova);
    drop(made);
    call.output_if(query_mr::LKEY, &key)?;
    call.output_if(query_mr::RKEY, &key)?;
    call.output_if(query_mr::LENGTH, &length)?;
    call.output_if(query_mr::IOVA, &iova)
}

/// REG_DMABUF_MR. The one other device there is is simulated.
pub fn register_dmabuf(context: &Context, call: &mut Call) -> Result<(), Errno> {
    let (offset, length) = (call.input::<u64>(dmabuf_mr::OFFSET)?, call.input::<u64>(dmabuf_mr::LENGTH)?);
    let (iova, access) = (call.input::<u64>(dmabuf_mr::IOVA)?, call.input_or::<u32>(dmabuf_mr::ACCESS, 0)?);
    let pd = context.get::<Pd>(call.handle(dmabuf_mr::PD)?)?;
    // libibverbs gives the descriptor as a number, not as its ioctls' kind of descriptor.
    let fd = match call.len(dmabuf_mr::FD) {
        0 => call.fd(dmabuf_mr::FD)?,
        _ => i32::try_from(call.input::<u32>(dmabuf_mr::FD)?).map_err(|_| Errno::BADF)?,
    };
    let file = DeviceFile::map(fd, offset, length)?;
    let shape = Shape { pd, start: file.address(), length, iova, access };
    let made = Made { file: Some(file), ..Made::new(context, shape)? };
    let key = made.key;
    let handle = context.insert(Arc::new(Mr(Mutex::new(made))));
    let told = call.output_value(dmabuf_mr::LKEY, &key);
    let told = told.and_then(|()| call.output_value(dmabuf_mr::RKEY, &key));
    let told = told.and_then(|()| call.set_handle(HANDLE, handle));
    if told.is_err() {
        context.destroy::<Mr>(handle)?;
    }
    told
}
