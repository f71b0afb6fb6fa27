//! GDRCopy: memory of a GPU that the processor maps, so that the host writes and reads it without a call of CUDA, which
//! may wait for kernels. Its library is loaded at run time; names and types are those of `gdrapi.h`, API 2.

use super::error::CudaError;
use libloading::{Library, Symbol};
use shunt_mlx5::memory::{copy_in, copy_out};
use std::ffi::{OsStr, c_int, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

/// The library, by the name that its package installs.
pub const LIBRARY: &str = "libgdrapi.so.2";

/// `gdr_mh_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Handle {
    h: c_ulong,
}

/// `gdr_info_v2_t`. Versions before 2.4 end before the last field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Info {
    va: u64,
    mapped_size: u64,
    page_size: u32,
    tm_cycles: u64,
    cycles_per_ms: u32,
    bits: c_uint,
    mapping_type: c_int,
}

type Open = unsafe extern "C" fn() -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
type Pin = unsafe extern "C" fn(*mut c_void, c_ulong, usize, u64, u32, *mut Handle) -> c_int;
type Unpin = unsafe extern "C" fn(*mut c_void, Handle) -> c_int;
type GetInfo = unsafe extern "C" fn(*mut c_void, Handle, *mut Info) -> c_int;
type Map = unsafe extern "C" fn(*mut c_void, Handle, *mut *mut c_void, usize) -> c_int;
type Unmap = unsafe extern "C" fn(*mut c_void, Handle, *mut c_void, usize) -> c_int;

/// The library, and its way to the kernel module `gdrdrv`.
pub struct Gdr {
    context: *mut c_void,
    close: Close,
    pin: Pin,
    unpin: Unpin,
    info: GetInfo,
    map: Map,
    unmap: Unmap,
    /// The library keeps a list of what is pinned, and says nothing of threads.
    one: Mutex<()>,
    /// Where the functions are.
    _library: Library,
}

// SAFETY: the context is used under `one`, by any thread.
unsafe impl Send for Gdr {}
// SAFETY: as above.
unsafe impl Sync for Gdr {}

/// # Safety
/// The library's function of that name is of this type.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T, CudaError> {
    // SAFETY: the caller's promise.
    let found: Result<Symbol<'_, T>, _> = unsafe { library.get(name.as_bytes()) };
    found.map(|function| *function).map_err(|error| CudaError::NoGdr { what: format!("{name}: {error}") })
}

impl Gdr {
    /// Loads it and opens the kernel module.
    ///
    /// # Errors
    /// What is missing.
    pub fn open() -> Result<Arc<Self>, CudaError> {
        // SAFETY: NVIDIA's library, by its own name.
        unsafe { Self::of(LIBRARY) }
    }

    /// # Safety
    /// The file is such a library.
    unsafe fn of(file: impl AsRef<OsStr>) -> Result<Arc<Self>, CudaError> {
        // SAFETY: the caller's promise; names and types are those of its header.
        unsafe {
            let library = Library::new(file).map_err(|error| CudaError::NoGdr { what: error.to_string() })?;
            let open: Open = function(&library, "gdr_open")?;
            let mut gdr = Self {
                context: null_mut(),
                close: function(&library, "gdr_close")?,
                pin: function(&library, "gdr_pin_buffer")?,
                unpin: function(&library, "gdr_unpin_buffer")?,
                info: function(&library, "gdr_get_info_v2")?,
                map: function(&library, "gdr_map")?,
                unmap: function(&library, "gdr_unmap")?,
                one: Mutex::default(),
                _library: library,
            };
            gdr.context = open();
            if gdr.context.is_null() {
                let what = "gdr_open: expected the kernel module gdrdrv (/dev/gdrdrv), got none".to_owned();
                return Err(CudaError::NoGdr { what });
            }
            Ok(Arc::new(gdr))
        }
    }

    /// Maps memory of the GPU. Address and length are multiples of the GPU's pages of 64 KiB.
    ///
    /// # Safety
    /// The memory is allocated, and stays until the mapping is dropped.
    ///
    /// # Errors
    /// What the library refused.
    pub(super) unsafe fn map(self: &Arc<Self>, address: u64, bytes: u64) -> Result<Mapped, CudaError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |call, code: c_int| CudaError::Gdr { call, code };
        let done = |call, code: c_int| if code == 0 { Ok(()) } else { Err(refused(call, code)) };
        let (mut handle, mut info, mut at) = (Handle::default(), Info::default(), null_mut());
        let size = bytes as usize;
        // SAFETY: the context is open; the memory is the caller's promise; out parameters are ours.
        unsafe {
            done("gdr_pin_buffer", (self.pin)(self.context, address, size, 0, 0, &raw mut handle))?;
            let told = done("gdr_get_info_v2", (self.info)(self.context, handle, &raw mut info));
            let mapped =
                told.and_then(|()| done("gdr_map", (self.map)(self.context, handle, &raw mut at, size)));
            if let Err(error) = mapped {
                let _ = (self.unpin)(self.context, handle);
                return Err(error);
            }
        }
        // The mapping begins with the page that the memory begins in.
        let host = at.expose_provenance() as u64 + (address - info.va);
        Ok(Mapped { gdr: self.clone(), handle, at, size, host, device: address })
    }
}

impl Drop for Gdr {
    fn drop(&mut self) {
        if !self.context.is_null() {
            // SAFETY: opened by `of`; each mapping holds this object, so none is left.
            let _ = unsafe { (self.close)(self.context) };
        }
    }
}

/// Memory of a GPU that is mapped here.
pub(super) struct Mapped {
    gdr: Arc<Gdr>,
    handle: Handle,
    at: *mut c_void,
    size: usize,
    host: u64,
    device: u64,
}

// SAFETY: a mapping belongs to the process; all accesses are atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Writes to it. When this returns, kernels and NICs see what was written: stores to the mapping are combined and
    /// posted, so they are let go, and a load from it comes back behind them.
    ///
    /// # Safety
    /// The bytes lie inside.
    pub unsafe fn write(&self, address: u64, bytes: &[u8]) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let at = self.host + (address - self.device);
        // SAFETY: the caller's promise; the mapping is there while `self` is.
        unsafe {
            copy_in(at, bytes);
            let_go();
            copy_out(at + last as u64, &mut [0]);
        }
    }

    /// Reads from it.
    ///
    /// # Safety
    /// The bytes lie inside.
    pub unsafe fn read(&self, address: u64, bytes: &mut [u8]) {
        // SAFETY: as for `write`.
        unsafe { copy_out(self.host + (address - self.device), bytes) }
    }
}

/// Stores that are combined leave the processor, and nothing behind overtakes them.
fn let_go() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _one = self.gdr.one.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: pinned and mapped by `Gdr::map` with this length, and given back here only.
        unsafe {
            let _ = (self.gdr.unmap)(self.gdr.context, self.handle, self.at, self.size);
            let _ = (self.gdr.unpin)(self.gdr.context, self.handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    /// What stands for the library and for a GPU's memory: that of this process, mapped at its own address. It notes
    /// how often it was asked for what.
    const SOURCE: &str = r#"
        #include <stdint.h>
        #include <stddef.h>
        #ifndef REFUSES
        #define REFUSES 0
        #endif
        struct handle { unsigned long h; };
        struct info { uint64_t va, mapped_size; uint32_t page; uint64_t tm; uint32_t ms; unsigned bits; int type; };
        int calls[4];
        int *gdr_open(void) { return REFUSES == 1 ? NULL : calls; }
        int gdr_close(void *g) { return g != calls; }
        int gdr_pin_buffer(void *g, unsigned long at, size_t n, uint64_t token, uint32_t space, struct handle *h) {
            if (g != calls || at % 65536 || n % 65536 || token || space) return 22;
            calls[0]++;
            h->h = at;
            return REFUSES == 2 ? 12 : 0;
        }
        int gdr_unpin_buffer(void *g, struct handle h) { calls[1]++; return g != calls || !h.h; }
        int gdr_get_info_v2(void *g, struct handle h, struct info *info) {
            /* Its pages are larger than the memory. */
            info->va = h.h - 4096;
            info->mapped_size = 1 << 20;
            return g != calls;
        }
        int gdr_map(void *g, struct handle h, void **at, size_t n) {
            calls[2]++;
            *at = (void *)(h.h - 4096);
            return REFUSES == 3 ? 5 : g != calls;
        }
        int gdr_unmap(void *g, struct handle h, void *at, size_t n) {
            calls[3]++;
            return g != calls || at != (void *)(h.h - 4096) || n % 65536;
        }
        void count(int *to) { for (int i = 0; i < 4; i++) to[i] = calls[i]; }
    "#;

    /// The library, built so that it refuses what `refuses` says: 1 to open, 2 to pin, 3 to map.
    fn library(refuses: u32) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("shunt-gdr-{}-{refuses}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, file) = (folder.join("gdr.c"), folder.join("libgdrapi.so.2"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-O1", &format!("-DREFUSES={refuses}"), "-o"]).arg(&file).arg(&source);
        assert!(gcc.status().expect("gcc is there").success());
        file
    }

    /// Pins, unpins, maps, unmaps so far.
    fn counted(gdr: &Gdr) -> [c_int; 4] {
        let mut calls = [0; 4];
        // SAFETY: the library above has it, with that type.
        unsafe {
            gdr._library.get::<unsafe extern "C" fn(*mut c_int)>(b"count").unwrap()(calls.as_mut_ptr())
        };
        calls
    }

    #[repr(align(65536))]
    struct Pages([u8; 2 << 16]);

    #[test]
    fn memory_is_written_and_read_through_its_mapping() {
        let mut pages = Box::new(Pages([0; 2 << 16]));
        let address = (&raw mut pages.0).expose_provenance() as u64;
        // SAFETY: the library above; the pages stay until the end.
        let gdr = unsafe { Gdr::of(library(0)) }.unwrap();
        // SAFETY: as above.
        let mapped = unsafe { gdr.map(address, 2 << 16) }.unwrap();
        let mut met = [0; 5];
        // SAFETY: inside; the host mapping of this library is the memory itself.
        unsafe {
            mapped.write(address + 70_001, &[1, 2, 3, 4, 5]);
            mapped.read(address + 70_001, &mut met);
            mapped.write(address, &[]);
        }
        assert_eq!((met, &pages.0[70_000..70_007]), ([1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5, 0][..]));
        assert_eq!(counted(&gdr), [1, 0, 1, 0]);
        drop(mapped);
        assert_eq!(counted(&gdr), [1, 1, 1, 1]);
        // SAFETY: as above.
        let odd = unsafe { gdr.map(address + 4096, 65536) }.map(drop).unwrap_err().to_string();
        assert_eq!(odd, "GDRCopy: gdr_pin_buffer answered 22; see the module gdrdrv's messages in dmesg");
    }

    #[test]
    fn what_is_missing_is_said_and_nothing_stays_pinned() {
        // SAFETY: no such file.
        let none = unsafe { Gdr::of("libshunt-none.so.2") }.map(drop).unwrap_err().to_string();
        assert!(none.starts_with("GDRCopy is not there: libshunt-none.so.2"), "{none}");
        // SAFETY: the C library is a library without these functions.
        let other = unsafe { Gdr::of("libc.so.6") }.map(drop).unwrap_err().to_string();
        assert!(other.contains("gdr_open"), "{other}");
        // SAFETY: the library above.
        let closed = unsafe { Gdr::of(library(1)) }.map(drop).unwrap_err().to_string();
        assert!(closed.contains("gdrdrv"), "{closed}");
        for (refuses, call, calls) in
            [(2, "gdr_pin_buffer answered 12", [1, 0, 0, 0]), (3, "gdr_map", [1, 1, 1, 0])]
        {
            // SAFETY: the library above, which touches nothing.
            let gdr = unsafe { Gdr::of(library(refuses)) }.unwrap();
            // SAFETY: as above.
            let said = unsafe { gdr.map(1 << 20, 65536) }.map(drop).unwrap_err().to_string();
            assert!(said.contains(call), "{said}");
            assert_eq!(counted(&gdr), calls, "{call}");
        }
    }
}
