//! The tree of files that programs find devices by, in a directory of this process.
//!
//! A program asks for `/sys/class/infiniband/mlx5_0/node_guid`; what it opens is a file below [`Tree::root`]. The
//! tree holds what is the same all the time as well as the state of ports, which is written again when it changes.

mod device;
mod path;
mod private;

pub use device::{BOARD, CONNECTIONS_ABI, CONNECTIONS_NUMBER, DEVICE_NUMBER, Device, FIRMWARE};
pub use path::{is_ours, shown};
pub use private::{Tree, TreeError};

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;

/// Files that are there once.
const COMMON: [(&str, &str); 1] = [("sys/class/infiniband_verbs/abi_version", "6")];
/// Directories that links lead to and that hold nothing.
const EMPTY: [&str; 3] = ["sys/bus/pci/drivers/mlx5_core", "sys/bus/pci/drivers/efa", "dev/infiniband"];
/// Mode of every file: none can be written.
const ATTRIBUTE: u32 = 0o444;
/// A file while it is written.
const UNFINISHED: &str = "unfinished";

impl Tree {
    /// Writes everything that devices are found by. `connects`: there is a device of connections, too.
    pub fn write(&mut self, devices: &[Device], connects: bool) -> Result<(), TreeError> {
        for directory in EMPTY {
            self.make_directory(&self.root().join(directory))?;
        }
        for (file, text) in COMMON {
            self.put(file, text)?;
        }
        for device in devices {
            for (file, text) in device.constant() {
                self.put(&file, &text)?;
            }
            for (link, target) in device.links() {
                let link = self.root().join(link);
                self.make_directory(link.parent().unwrap_or(self.root()))?;
                symlink(&target, &link).map_err(TreeError::new("cannot make the link", &link))?;
            }
            // Who opens it gets a device: here it only stands in lists.
            self.put(&format!("dev/infiniband/uverbs{}", device.index), "")?;
        }
        if connects {
            let (major, minor) = CONNECTIONS_NUMBER;
            self.put("sys/class/misc/rdma_cm/abi_version", &CONNECTIONS_ABI.to_string())?;
            self.put("sys/class/misc/rdma_cm/dev", &format!("{major}:{minor}"))?;
            self.put("dev/infiniband/rdma_cm", "")?;
        }
        self.update(devices)
    }

    /// Writes again what changed since the last time.
    pub fn update(&mut self, devices: &[Device]) -> Result<(), TreeError> {
        for (file, text) in devices.iter().flat_map(Device::changing) {
            if self.written.get(&file) != Some(&text) {
                self.put(&file, &text)?;
                self.written.insert(file, text);
            }
        }
        Ok(())
    }

    /// Puts a file of one line in its place, whole: no reader sees half of it.
    fn put(&self, file: &str, text: &str) -> Result<(), TreeError> {
        let path = self.root().join(file);
        self.make_directory(path.parent().unwrap_or(self.root()))?;
        let unfinished = self.root().join(UNFINISHED);
        // What an earlier failure left cannot be opened for writing again.
        let _ = fs::remove_file(&unfinished);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(ATTRIBUTE).open(&unfinished);
        file.and_then(|mut file| writeln!(file, "{text}"))
            .map_err(TreeError::new("cannot write", &unfinished))?;
        fs::rename(&unfinished, &path).map_err(TreeError::new("cannot write", &path))
    }

    fn make_directory(&self, path: &Path) -> Result<(), TreeError> {
        fs::create_dir_all(path).map_err(TreeError::new("cannot make", path))
    }
}
