//! The bootstrap by MPI: a plugin, built with the machine's own mpicc, that tells rank and size and broadcasts PE 0's
//! unique id. The library itself knows no MPI.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use thiserror::Error;

/// Its name, beside the library; `NVSHMEM_BOOTSTRAP_MPI_PLUGIN` names another.
pub const PLUGIN: &str = "nvshmem_bootstrap_mpi.so.3";

/// Why MPI cannot be asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MpiError {
    /// No plugin.
    #[error(
        "the MPI plugin cannot be loaded: {why}. `cargo xtask prefix` builds it beside the library where it finds \
         mpicc; NVSHMEM_BOOTSTRAP_MPI_PLUGIN names another"
    )]
    Load {
        /// What the loader says.
        why: String,
    },
    /// It is no plugin of ours.
    #[error("{plugin}: expected the MPI plugin of this library, got a library without {symbol}")]
    Foreign {
        /// File.
        plugin: String,
        /// What it lacks.
        symbol: &'static str,
    },
    /// MPI said no.
    #[error("MPI does not say {what}; is it up, and is the communicator one of this process's?")]
    Refused {
        /// What it was asked.
        what: &'static str,
    },
}

type Place = unsafe extern "C" fn(*const c_void, *mut c_int, *mut c_int) -> c_int;
type Broadcast = unsafe extern "C" fn(*const c_void, *mut c_void, c_int) -> c_int;

/// The plugin. It stays loaded: MPI does not leave a process.
pub(crate) struct Mpi {
    place: Place,
    broadcast: Broadcast,
}

/// What the loader said last.
fn loader_says() -> String {
    // SAFETY: a text of the loader's, or null; no other thread loads meanwhile.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it ends with a 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The folder of this library's file; packages give the loader a link to it in another folder.
fn beside() -> Option<PathBuf> {
    let here = loader_says as fn() -> String as usize;
    // SAFETY: all zero is a valid value of it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address of this library, and room for what is known of it.
    if unsafe { libc::dladdr(here as *const c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of the file.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
    let file = std::fs::canonicalize(&name).unwrap_or_else(|_| PathBuf::from(name));
    Some(file.parent()?.to_path_buf())
}

impl Mpi {
    /// Loads the plugin of that name, else the one beside the library, else one that the loader finds.
    ///
    /// # Errors
    /// There is none, or it is another's.
    pub(crate) fn load(named: Option<&str>) -> Result<Self, MpiError> {
        let beside = beside().map(|folder| folder.join(PLUGIN)).filter(|path| path.is_file());
        let path = match (named, beside) {
            (Some(named), _) => named.to_owned(),
            (None, Some(path)) => path.to_string_lossy().into_owned(),
            (None, None) => PLUGIN.to_owned(),
        };
        let name =
            CString::new(path.clone()).map_err(|_| MpiError::Load { why: "a 0 in its name".into() })?;
        // Its MPI must be the program's, and parts that MPI loads look for it among all libraries.
        // SAFETY: loading runs what the named library does at its start: the user who named it wants that.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(MpiError::Load { why: loader_says() });
        }
        let symbol = |symbol: &'static str| {
            let text = format!("{symbol}\0");
            // SAFETY: a library that stays loaded, a text with a 0 at its end.
            let at = unsafe { libc::dlsym(handle, text.as_ptr().cast::<c_char>()) };
            if at.is_null() { Err(MpiError::Foreign { plugin: path.clone(), symbol }) } else { Ok(at) }
        };
        let place = symbol("shunt_bootstrap_mpi_place")?;
        let broadcast = symbol("shunt_bootstrap_mpi_broadcast")?;
        // SAFETY: functions of nvshmem-compat/mpi/bootstrap.c by their names, which nobody else uses.
        Ok(unsafe {
            Self {
                place: std::mem::transmute::<*mut c_void, Place>(place),
                broadcast: std::mem::transmute::<*mut c_void, Broadcast>(broadcast),
            }
        })
    }

    /// Number of this process, and processes.
    ///
    /// # Errors
    /// MPI does not say.
    pub(crate) fn place(&self, communicator: *const c_void) -> Result<(u32, u32), MpiError> {
        let (mut rank, mut size) = (-1, -1);
        // SAFETY: null, or the address of the caller's communicator; two words of this function's.
        let failed = unsafe { (self.place)(communicator, &mut rank, &mut size) } != 0;
        match (u32::try_from(rank), u32::try_from(size)) {
            (Ok(rank), Ok(size)) if !failed && rank < size => Ok((rank, size)),
            _ => Err(MpiError::Refused { what: "which process this is" }),
        }
    }

    /// Gives process 0's bytes to all.
    ///
    /// # Errors
    /// MPI does not.
    pub(crate) fn broadcast(
        &self,
        communicator: *const c_void,
        bytes: &mut [u8; 128],
    ) -> Result<(), MpiError> {
        // SAFETY: as above, and as many bytes as are said.
        match unsafe { (self.broadcast)(communicator, bytes.as_mut_ptr().cast(), bytes.len() as c_int) } {
            0 => Ok(()),
            _ => Err(MpiError::Refused { what: "what process 0 has" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_is_none_is_told_from_one_that_is_missing() {
        let missing = Mpi::load(Some("/there/is/none.so")).err().unwrap().to_string();
        assert!(missing.contains("/there/is/none.so") && missing.contains("mpicc"), "{missing}");
        let foreign = Mpi::load(Some("libc.so.6")).err().unwrap();
        assert_eq!(
            foreign,
            MpiError::Foreign { plugin: "libc.so.6".into(), symbol: "shunt_bootstrap_mpi_place" }
        );
    }
}
