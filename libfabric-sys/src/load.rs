//! The library, opened at run time.

use crate::generated::functions::Fabric;
use crate::library::LoadError;
use std::sync::OnceLock;

/// Opens libfabric. It stays open until the process ends, and so does the answer.
pub fn load() -> Result<&'static Fabric, LoadError> {
    static FABRIC: OnceLock<Result<Fabric, LoadError>> = OnceLock::new();
    FABRIC.get_or_init(Fabric::load).as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::open;

    #[test]
    fn a_library_that_is_missing_is_named_with_what_to_install() {
        let error = open("libshunt-none.so.1").err().map(|error| error.to_string()).unwrap_or_default();
        for part in ["libshunt-none.so.1 cannot be opened", "install libfabric1"] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }

    #[test]
    fn a_library_that_lacks_a_function_is_named() {
        // The C library is a library without any of these functions.
        let library = open("libc.so.6").expect("the C library");
        let error = Fabric::of(library).err().map(|error| error.to_string()).unwrap_or_default();
        for part in ["libfabric.so.1 has no fi_", "expected libfabric 1.0 or later"] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }

    #[test]
    fn the_installed_library_has_every_function_or_the_error_says_what_to_install() {
        match load() {
            // SAFETY: the function takes nothing and gives a number.
            Ok(fabric) => assert!(unsafe { fabric.fi_version() } >> 16 >= 1),
            Err(error) => assert!(error.to_string().contains("install"), "{error}"),
        }
    }
}
