//! A status page that somebody wrote, and a reader of it.

use shunt_host::events::page::{PageReader, PageWriter, zeroed};
use shunt_layout::status::STATUS_VERSION;
use std::path::PathBuf;

/// Both ends of a page. The folder goes with it.
pub struct Page {
    /// What a framework has open.
    pub reader: PageReader,
    _writer: PageWriter,
    folder: PathBuf,
}

impl Page {
    /// A page in a folder of its own.
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("shunt-bench-page-{}", std::process::id()));
        let mut page = zeroed();
        (page.version, page.bytes, page.pid) =
            (STATUS_VERSION, size_of_val(&*page) as u32, std::process::id());
        let writer = PageWriter::create(&folder, &page).expect("a folder of this user's own");
        let reader = PageReader::open(writer.path()).expect("the page just written");
        Self { reader, _writer: writer, folder }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
