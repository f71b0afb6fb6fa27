//! One library and its functions, looked up at run time.

use std::sync::atomic::{AtomicBool, Ordering};

/// Why the libraries of rdma-core cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or cannot be opened.
    #[error("{library} cannot be opened ({cause}); install {}", install(library))]
    Library {
        /// File name.
        library: &'static str,
        /// What the dynamic linker said.
        cause: String,
    },
    /// The library is too old.
    #[error(
        "{library} has no {symbol}: it is older than rdma-core {since}; install {} of rdma-core {since} or later",
        install(library)
    )]
    Symbol {
        /// File name.
        library: &'static str,
        /// The function it lacks.
        symbol: &'static str,
        /// First rdma-core that has it.
        since: u32,
    },
}

/// What brings a library onto a machine.
fn install(library: &str) -> &'static str {
    match library {
        "libibverbs.so.1" => "libibverbs1 (Debian, Ubuntu), libibverbs (RHEL, Fedora) or NVIDIA's DOCA-OFED",
        _ => "ibverbs-providers (Debian, Ubuntu), rdma-core (RHEL, Fedora) or NVIDIA's DOCA-OFED",
    }
}

/// Opens a library for good: its functions are kept as plain pointers.
pub(crate) fn open(library: &'static str) -> Result<&'static libloading::Library, LoadError> {
    // SAFETY: initialisers of rdma-core's libraries only register drivers and set tables of their own.
    let opened = behind(library).map_or_else(|| unsafe { libloading::Library::new(library) }, Ok);
    let opened = opened.map_err(|error| LoadError::Library { library, cause: error.to_string() })?;
    Ok(Box::leak(Box::new(opened)))
}

/// The name under which the real libibverbs is in a process where another library has its own.
const BEHIND: &str = "libibverbs-system.so.1";
static LOOKS_BEHIND: AtomicBool = AtomicBool::new(false);

/// From now on libibverbs is the one behind the library that has its name: for that library itself. To be called
/// before [`crate::load`].
pub fn look_behind() {
    LOOKS_BEHIND.store(true, Ordering::Relaxed);
}

fn behind(library: &str) -> Option<libloading::Library> {
    use libloading::os::unix::{Library, RTLD_NOW};
    let wanted = library == "libibverbs.so.1" && LOOKS_BEHIND.load(Ordering::Relaxed);
    let loaded = RTLD_NOW | libc::RTLD_NOLOAD;
    // SAFETY: nothing is loaded, so no initialiser runs.
    let found = wanted.then(|| unsafe { Library::open(Some(BEHIND), loaded) });
    found?.ok().map(libloading::Library::from)
}

/// A table of functions of one library: fields of pointers, and a method of the same name for each.
macro_rules! library {
    (
        $table:ident, $file:literal;
        $($since:literal fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    ) => {
        #[doc = concat!("Functions of ", $file, ".")]
        pub struct $table {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl $table {
            /// The file that is opened.
            pub const FILE: &'static str = $file;

            /// Opens the library, which stays open, and looks every function up.
            pub fn load() -> Result<Self, crate::library::LoadError> {
                Self::of(crate::library::open($file)?)
            }

            pub(crate) fn of(
                library: &'static libloading::Library,
            ) -> Result<Self, crate::library::LoadError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the signature is the one that the library's header declares.
                        let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        let missing = |_| {
                            let symbol = stringify!($name);
                            crate::library::LoadError::Symbol { library: $file, symbol, since: $since }
                        };
                        *symbol.map_err(missing)?
                    },)*
                })
            }

            $(
                #[doc = concat!("`", stringify!($name), "` of rdma-core, there since version ", $since, ".")]
                ///
                /// # Safety
                /// What its manual asks of the caller: valid objects, valid memory, the right order of destruction.
                pub unsafe fn $name(&self, $($arg: $type),*) $(-> $result)? {
                    // SAFETY: the pointer is that of the library, which is never closed; the rest is the caller's.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }
    };
}
pub(crate) use library;
