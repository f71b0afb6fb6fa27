//! The two libraries, opened at run time.

use crate::generated::functions::{Mlx5, Verbs};
use crate::library::LoadError;
use std::sync::OnceLock;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::open;

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
