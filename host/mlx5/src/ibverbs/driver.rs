//! An open device and everything made on it, as the command thread holds them.

use super::events::{CQ_EVENTS, PORT_EVENTS, QP_EVENTS};
use super::route::{Kind, Route, object_of, route};
use super::uar::{first_given, page_of};
use crate::devx::{check_status, command_name};
use crate::error::DevxError;
use crate::memory::{DmaBuf, Span};
use shunt_layout::mlx5::prm::cmd;
use shunt_mlx5_sys::{
    IBV_ACCESS_LOCAL_WRITE, MLX5DV_UMEM_MASK_DMABUF, Rdma, ibv_context, ibv_mr, ibv_pd,
    mlx5dv_devx_event_channel, mlx5dv_devx_obj, mlx5dv_devx_uar, mlx5dv_devx_umem, mlx5dv_devx_umem_in,
};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::devx::UarPage;

/// Page sizes that the kernel may cut a umem into: 4 KiB alone, so that it merges none. Whether firmware wants the
/// offset of a queue aligned to the umem's page is not documented; queues lie at multiples of
/// [`QUEUE_ALIGN`](crate::nic::umem::QUEUE_ALIGN), which fits pages of 64 KiB as well.
const PAGE_SIZES: u64 = 1 << 12;

/// The device. Lives on the command thread alone.
pub(super) struct Driver {
    pub(super) rdma: &'static Rdma,
    pub(super) nic: String,
    pub(super) context: *mut ibv_context,
    channel: *mut mlx5dv_devx_event_channel,
    objects: HashMap<(Kind, u32), *mut mlx5dv_devx_obj>,
    umems: HashMap<u32, *mut mlx5dv_devx_umem>,
    /// A page may be given several times.
    uars: HashMap<u32, Vec<*mut mlx5dv_devx_uar>>,
    pub(super) pds: HashMap<u32, *mut ibv_pd>,
    pub(super) keys: HashMap<u32, *mut ibv_mr>,
}

impl Driver {
    /// Takes an open context and its event channel (or null) over.
    ///
    /// # Safety
    /// Both are open, and closed by this object alone.
    pub(super) unsafe fn new(
        rdma: &'static Rdma,
        nic: String,
        context: *mut ibv_context,
        channel: *mut mlx5dv_devx_event_channel,
    ) -> Self {
        let (objects, umems, uars) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (pds, keys) = (HashMap::new(), HashMap::new());
        Self { rdma, nic, context, channel, objects, umems, uars, pds, keys }
    }

    pub(super) fn resource(&self, what: &'static str, detail: impl ToString) -> DevxError {
        DevxError::Resource { nic: self.nic.clone(), what, detail: detail.to_string() }
    }

    /// Subscribes the port's events. False if the driver refuses: verbs tells of the port, then.
    pub(super) fn subscribe_port(&self) -> bool {
        self.subscribe(std::ptr::null_mut(), &PORT_EVENTS, 0)
    }

    fn subscribe(&self, object: *mut mlx5dv_devx_obj, events: &[u16], cookie: u64) -> bool {
        if self.channel.is_null() {
            return false;
        }
        let mut events = events.to_vec();
        let bytes = size_of_val(&events[..]) as u16;
        // SAFETY: channel and object (or null) are alive; the list is as long as said.
        let refused = unsafe {
            let list = events.as_mut_ptr();
            self.rdma.mlx5.mlx5dv_devx_subscribe_devx_event(self.channel, object, bytes, list, cookie)
        };
        refused == 0
    }

    /// Runs a firmware command on the call that lets it through.
    pub(super) fn command(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let since = Instant::now();
        let short = input.len() < cmd::input::BYTES || output.len() < cmd::output::BYTES;
        let opcode = if short { 0 } else { cmd::input::OPCODE.get(input) as u16 };
        let Some(route) = route(opcode) else {
            let detail = format!("{} is not one that DEVX lets through", command_name(input));
            return Err(self.resource("command", detail));
        };
        let errno = match route {
            Route::General => {
                let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
                // SAFETY: the context is open; both mailboxes are as long as said.
                unsafe {
                    self.rdma.mlx5.mlx5dv_devx_general_cmd(self.context, from, input.len(), to, output.len())
                }
            }
            Route::Create(kind) => self.create(kind, input, output),
            Route::Modify(kind) | Route::Query(kind) => {
                let object = self.find(kind, input)?;
                let (from, to) = (input.as_ptr().cast::<c_void>(), output.as_mut_ptr().cast::<c_void>());
                let mlx5 = &self.rdma.mlx5;
                // SAFETY: the object is alive: it is in the table; both mailboxes are as long as said.
                unsafe {
                    match route {
                        Route::Query(_) => {
                            mlx5.mlx5dv_devx_obj_query(object, from, input.len(), to, output.len())
                        }
                        _ => mlx5.mlx5dv_devx_obj_modify(object, from, input.len(), to, output.len()),
                    }
                }
            }
            Route::Destroy(kind) => {
                let object = self.find(kind, input)?;
                // SAFETY: the object is alive, and leaves the table if this succeeds.
                let errno = unsafe { self.rdma.mlx5.mlx5dv_devx_obj_destroy(object) };
                if errno == 0 {
                    self.objects.remove(&(kind, object_of(input)));
                }
                errno
            }
        };
        outcome(&self.nic, input, output, errno, since)
    }

    fn find(&self, kind: Kind, input: &[u8]) -> Result<*mut mlx5dv_devx_obj, DevxError> {
        let number = object_of(input);
        self.objects.get(&(kind, number)).copied().ok_or_else(|| {
            let detail =
                format!("{} names {kind:?} {number:#x}, which was not made here", command_name(input));
            self.resource("command", detail)
        })
    }

    fn create(&mut self, kind: Kind, input: &[u8], output: &mut [u8]) -> c_int {
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: the context is open; both mailboxes are as long as said.
        let object = unsafe {
            self.rdma.mlx5.mlx5dv_devx_obj_create(self.context, from, input.len(), to, output.len())
        };
        if object.is_null() {
            return last_errno();
        }
        let number = cmd::output::OBJECT.get(output);
        self.objects.insert((kind, number), object);
        // Completions tell of the same errors: a driver that refuses takes nothing away.
        match kind {
            Kind::Qp => self.subscribe(object, &QP_EVENTS, number.into()),
            Kind::Cq => self.subscribe(object, &CQ_EVENTS, number.into()),
            _ => true,
        };
        0
    }

    /// # Safety
    /// As [`crate::devx::Devx::register_umem`].
    pub(super) unsafe fn register_umem(
        &mut self,
        span: Span,
        dmabuf: Option<DmaBuf>,
    ) -> Result<u32, DevxError> {
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(span.address as usize);
        let (bytes, access) = (span.bytes as usize, IBV_ACCESS_LOCAL_WRITE);
        let mut of = mlx5dv_devx_umem_in {
            addr: address,
            size: bytes,
            access,
            pgsz_bitmap: PAGE_SIZES,
            comp_mask: 0,
            dmabuf_fd: -1,
        };
        if let Some(buf) = &dmabuf {
            of.addr = std::ptr::without_provenance_mut(buf.offset as usize);
            of.comp_mask = MLX5DV_UMEM_MASK_DMABUF.into();
            of.dmabuf_fd = buf.file.as_raw_fd();
        }
        let mlx5 = &self.rdma.mlx5;
        // SAFETY: the context is open; the memory is the caller's promise.
        let mut umem = unsafe { mlx5.mlx5dv_devx_umem_reg_ex(self.context, &raw mut of) };
        if umem.is_null() && dmabuf.is_none() {
            // A kernel before 5.11 takes no page sizes.
            // SAFETY: as above.
            umem = unsafe { mlx5.mlx5dv_devx_umem_reg(self.context, address, bytes, access) };
        }
        if umem.is_null() {
            let error = Error::last_os_error();
            let of = if dmabuf.is_some() { " of a dma-buf" } else { "" };
            let detail = format!("{} bytes at {:#x}{of}: {error}", span.bytes, span.address);
            return Err(self.resource("umem registration", detail));
        }
        // SAFETY: made above.
        let id = unsafe { (*umem).umem_id };
        self.umems.insert(id, umem);
        Ok(id)
    }

    pub(super) fn deregister_umem(&mut self, id: u32) -> Result<(), DevxError> {
        let Some(umem) = self.umems.get(&id).copied() else {
            return Err(self.resource("umem deregistration", format!("umem {id:#x} was not made here")));
        };
        // SAFETY: the umem is alive, and leaves the table if this succeeds.
        match unsafe { self.rdma.mlx5.mlx5dv_devx_umem_dereg(umem) } {
            0 => {
                self.umems.remove(&id);
                Ok(())
            }
            errno => Err(self.resource("umem deregistration", Error::from_raw_os_error(errno))),
        }
    }

    pub(super) fn map_uar(&mut self) -> Result<UarPage, DevxError> {
        let given = first_given(|kind| {
            // SAFETY: the context is open.
            let uar = unsafe { self.rdma.mlx5.mlx5dv_devx_alloc_uar(self.context, kind) };
            if uar.is_null() { Err(Error::last_os_error().to_string()) } else { Ok(uar) }
        });
        let uar = given.map_err(|refusals| self.resource("UAR page", refusals))?;
        // SAFETY: made above.
        let (id, register) = unsafe { ((*uar).page_id, (*uar).reg_addr.expose_provenance() as u64) };
        self.uars.entry(id).or_default().push(uar);
        Ok(page_of(id, register))
    }

    pub(super) fn free_uar(&mut self, id: u32) {
        let Some(uars) = self.uars.get_mut(&id) else { return };
        if let Some(uar) = uars.pop() {
            // SAFETY: given once, taken out of the table here.
            unsafe { self.rdma.mlx5.mlx5dv_devx_free_uar(uar) };
        }
        if uars.is_empty() {
            self.uars.remove(&id);
        }
    }

    pub(super) fn query_eqn(&self) -> Result<u32, DevxError> {
        let mut eqn = 0;
        // SAFETY: the context is open.
        match unsafe { self.rdma.mlx5.mlx5dv_devx_query_eqn(self.context, 0, &raw mut eqn) } {
            0 => Ok(eqn),
            errno => Err(self.resource("event queue of vector 0", Error::from_raw_os_error(errno))),
        }
    }
}

impl Drop for Driver {
    /// Takes everything down in the order its parts depend on each other. Whatever the driver keeps, it takes back
    /// when the device is closed.
    fn drop(&mut self) {
        let (verbs, mlx5) = (&self.rdma.verbs, &self.rdma.mlx5);
        for kind in Kind::ALL {
            for (_, object) in self.objects.iter().filter(|((of, _), _)| *of == kind) {
                // SAFETY: alive, and forgotten after this.
                unsafe { mlx5.mlx5dv_devx_obj_destroy(*object) };
            }
        }
        // SAFETY: each object is alive, destroyed once, and nothing made later stands on it any more.
        unsafe {
            self.keys.values().for_each(|key| _ = verbs.ibv_dereg_mr(*key));
            self.umems.values().for_each(|umem| _ = mlx5.mlx5dv_devx_umem_dereg(*umem));
            self.uars.values().flatten().for_each(|uar| mlx5.mlx5dv_devx_free_uar(*uar));
            self.pds.values().for_each(|pd| _ = verbs.ibv_dealloc_pd(*pd));
            if !self.channel.is_null() {
                mlx5.mlx5dv_devx_destroy_event_channel(self.channel);
            }
            verbs.ibv_close_device(self.context);
        }
    }
}

fn last_errno() -> c_int {
    Error::last_os_error().raw_os_error().unwrap_or(nix::libc::EIO)
}

/// What a call's errno and the output mailbox mean together. The firmware's own status counts before any errno:
/// libmlx5 gives EREMOTEIO for it, or an errno it takes for the same.
fn outcome(nic: &str, input: &[u8], output: &[u8], errno: c_int, since: Instant) -> Result<(), DevxError> {
    check_status(nic, input, output)?;
    match errno {
        0 => Ok(()),
        nix::libc::ETIMEDOUT => Err(DevxError::Timeout {
            nic: nic.into(),
            command: command_name(input),
            waited_ns: since.elapsed().as_nanos() as u64,
        }),
        errno => Err(DevxError::Driver {
            nic: nic.into(),
            command: command_name(input),
            errno,
            text: Error::from_raw_os_error(errno).to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::short_in;
    use shunt_layout::mlx5::prm::cmd::Opcode;

    fn of(status: u32, errno: c_int) -> Result<(), DevxError> {
        let mut output = [0; 16];
        cmd::output::STATUS.set(&mut output, status);
        cmd::output::SYNDROME.set(&mut output, 0x1234);
        outcome("mlx5_0", &short_in(Opcode::QueryQp, 5), &output, errno, Instant::now())
    }

    #[test]
    fn the_firmwares_status_counts_before_an_errno() {
        use nix::libc::{EINVAL, EREMOTEIO};
        assert_eq!(of(0, 0), Ok(()));
        for errno in [EREMOTEIO, EINVAL] {
            let Err(DevxError::Refused { status: 3, syndrome: 0x1234, .. }) = of(3, errno) else {
                panic!("{:?}", of(3, errno));
            };
        }
    }

    #[test]
    fn an_errno_without_status_is_the_drivers() {
        let error = of(0, nix::libc::ENOMEM).unwrap_err().to_string();
        assert!(error.contains("QueryQp") && error.contains("driver") && error.contains("memory"), "{error}");
        assert!(of(0, nix::libc::ETIMEDOUT).unwrap_err().is_timeout());
    }
}
