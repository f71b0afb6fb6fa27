//! The two libraries, opened at run time.

use crate::generated::functions::{Mlx5, Verbs};
use std::sync::OnceLock;

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

/// The functions of both libraries.
pub struct Rdma {
    /// libibverbs.
    pub verbs: Verbs,
    /// libmlx5.
    pub mlx5: Mlx5,
}

/// Opens libibverbs and libmlx5. They stay open until the process ends, and so does the answer.
pub fn load() -> Result<&'static Rdma, LoadError> {
    static RDMA: OnceLock<Result<Rdma, LoadError>> = OnceLock::new();
    let answer = RDMA.get_or_init(|| Ok(Rdma { verbs: Verbs::load()?, mlx5: Mlx5::load()? }));
    answer.as_ref().map_err(Clone::clone)
}

/// Opens a library for good: its functions are kept as plain pointers.
pub(crate) fn open(library: &'static str) -> Result<&'static libloading::Library, LoadError> {
    // SAFETY: initialisers of rdma-core's libraries only register drivers and set tables of their own.
    let opened = unsafe { libloading::Library::new(library) };
    let opened = opened.map_err(|error| LoadError::Library { library, cause: error.to_string() })?;
    Ok(Box::leak(Box::new(opened)))
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
            pub fn load() -> Result<Self, crate::LoadError> {
                Self::of(crate::load::open($file)?)
            }

            pub(crate) fn of(library: &'static libloading::Library) -> Result<Self, crate::LoadError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the signature is the one that the library's header declares.
                        let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        let missing = |_| {
                            crate::LoadError::Symbol { library: $file, symbol: stringify!($name), since: $since }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_what_to_install() {
        let error = open("libshunt-none.so.1").err().map(|error| error.to_string()).unwrap_or_default();
        for part in ["libshunt-none.so.1 cannot be opened", "ibverbs-providers"] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }

    #[test]
    fn a_library_that_lacks_a_function_is_named_with_the_version_that_has_it() {
        // The C library is a library without any of these functions.
        let library = open("libc.so.6").unwrap();
        let error = Mlx5::of(library).err().map(|error| error.to_string()).unwrap_or_default();
        for part in ["libmlx5.so.1 has no mlx5dv_", "older than rdma-core 15", "ibverbs-providers"] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }

    #[test]
    fn the_installed_libraries_have_every_function_or_the_error_says_what_to_install() {
        match load() {
            // SAFETY: the function takes a number and gives a static text.
            Ok(rdma) => assert!(!unsafe { rdma.verbs.ibv_wc_status_str(0) }.is_null()),
            Err(error) => assert!(error.to_string().contains("install"), "{error}"),
        }
    }
}
