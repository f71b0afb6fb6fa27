//! The library and its functions, looked up at run time.

/// Why libfabric cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or cannot be opened.
    #[error(
        "{library} cannot be opened ({cause}); install libfabric1 (Debian, Ubuntu), libfabric (RHEL, Fedora) or \
         Amazon's EFA installer"
    )]
    Library {
        /// File name.
        library: &'static str,
        /// What the dynamic linker said.
        cause: String,
    },
    /// The library is no libfabric, or too old.
    #[error(
        "{library} has no {symbol}: expected libfabric {since}.0 or later; install libfabric1 or libfabric again"
    )]
    Symbol {
        /// File name.
        library: &'static str,
        /// The function it lacks.
        symbol: &'static str,
        /// First major version that has it.
        since: u32,
    },
}

/// Opens a library for good: its functions are kept as plain pointers.
pub(crate) fn open(library: &'static str) -> Result<&'static libloading::Library, LoadError> {
    // SAFETY: initialisers of libfabric only register its providers and set tables of their own.
    let opened = crate::signals::kept(|| unsafe { libloading::Library::new(library) });
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
            pub fn load() -> Result<Self, crate::library::LoadError> {
                Self::of(crate::library::open($file)?)
            }

            pub(crate) fn of(
                library: &'static libloading::Library,
            ) -> Result<Self, crate::library::LoadError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the signature is the one that the library's header declares. Of a symbol with
                        // several versions the linker gives the newest, whose structures only grew at their ends.
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
                #[doc = concat!("`", stringify!($name), "` of libfabric.")]
                ///
                /// # Safety
                /// What its manual asks of the caller: valid objects, valid memory, the right order of closing.
                pub unsafe fn $name(&self, $($arg: $type),*) $(-> $result)? {
                    // SAFETY: the pointer is that of the library, which is never closed; the rest is the caller's.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }
    };
}
pub(crate) use library;
