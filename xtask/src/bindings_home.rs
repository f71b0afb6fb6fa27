//! Where the committed FFI lies, and what it says of itself.

/// A package that holds the FFI of a project's libraries.
pub struct Home {
    /// Folder of the committed files, from the root.
    pub folder: &'static str,
    /// The project whose headers they are made from.
    pub project: &'static str,
    /// Its package file, below a folder of pkg-config.
    pub package_file: &'static str,
    /// What brings its headers onto a machine.
    pub install: &'static str,
    /// The constant that holds its version.
    pub constant: &'static str,
    /// Components of the package file's version that stand before the project's own.
    pub before: usize,
}

/// libibverbs and libmlx5. "Version: 1.14.44.0" holds the library's own version and that of rdma-core behind it.
pub const RDMA_CORE: Home = Home {
    folder: "mlx5-sys/src/generated",
    project: "rdma-core",
    package_file: "libibverbs.pc",
    install: "libibverbs-dev (rdma-core-devel)",
    constant: "RDMA_CORE",
    before: 2,
};

/// libfabric.
pub const LIBFABRIC: Home = Home {
    folder: "libfabric-sys/src/generated",
    project: "libfabric",
    package_file: "libfabric.pc",
    install: "libfabric-dev (libfabric-devel)",
    constant: "LIBFABRIC",
    before: 0,
};

impl Home {
    /// The line of the committed files that says what they were made from.
    pub fn line(&self, version: &str) -> String {
        format!("pub const {}: &str = \"{version}\";", self.constant)
    }

    /// The project's version, by the text of its package file.
    pub fn version(&self, package_file: &str) -> Option<String> {
        let line = package_file.lines().find_map(|line| line.strip_prefix("Version:"))?;
        let parts: Vec<&str> = line.trim().split('.').skip(self.before).collect();
        (!parts.is_empty()).then(|| parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_project_is_read() {
        let text = "Name: libibverbs\nVersion: 1.14.44.0\nLibs: -libverbs\n";
        assert_eq!(RDMA_CORE.version(text).as_deref(), Some("44.0"));
        assert_eq!(LIBFABRIC.version("Version: 1.17.0\n").as_deref(), Some("1.17.0"));
        assert_eq!(RDMA_CORE.version("Name: libibverbs\n"), None);
        assert_eq!(RDMA_CORE.version("Version: 44\n"), None);
    }
}
