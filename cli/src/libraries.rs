//! Where libraries that this program loads into others lie: beside it, or where a package puts them.

use std::path::{Path, PathBuf};

/// The library of that name, of this program. It need not be there.
pub fn own(library: &str) -> PathBuf {
    let folder = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_path_buf));
    folder.map_or_else(|| library.into(), |folder| near(&folder, library))
}

/// That of a program in this folder: in it, or in `../lib/shunt`.
fn near(folder: &Path, library: &str) -> PathBuf {
    let packaged = folder.join("../lib/shunt").join(library);
    if packaged.is_file() && !folder.join(library).is_file() { packaged } else { folder.join(library) }
}
