//! The files of the package, and where they go.
//!
//! | where | what |
//! | --- | --- |
//! | `/usr/bin` | the programs that people start (`pages::PROGRAMS`) |
//! | `/usr/lib/shunt` | what is loaded into programs: `libshunt_soft_rdma.so`, `libshunt_verbs.so` |
//! | `/usr/lib/shunt/nvshmem` | the prefix: what `NVSHMEM_DIR` names |
//! | `/usr/lib/TRIPLET` | a link to the library by its own name, for the loader; CMake's and pkg-config's files |
//! | `/usr/lib/TRIPLET`, `/usr/include` | the transfer engine for C: `libshunt_transfer.so.0`, `shunt_transfer.h` |
//! | `/usr/share` | man pages, completions, alerts and a dashboard, schemas of what programs write |
//!
//! NVSHMEM's own names stay in the prefix, so that NVIDIA's packages can be installed beside this one.

use crate::pages::{self, PROGRAMS};
use crate::symbols;
use anyhow::{Context, Result};
use shunt_gpu_tool::transfer::{self, Places};
use shunt_task::sh;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Where the prefix is in a system.
pub const PREFIX: &str = "usr/lib/shunt/nvshmem";
/// The library that programs load, in the prefix.
const LIBRARY: &str = "libshunt_nvshmem.so.3";
/// What the library loads in jobs that mpirun starts; there is one where an mpicc was found. It is no dependency.
const MPI_PLUGIN: &str = "nvshmem_bootstrap_mpi.so.3";
/// Libraries that `shunt soft-rdma run` and `shunt verbs run` load into programs.
const LOADED: [&str; 2] = ["libshunt_soft_rdma.so", "libshunt_verbs.so"];

/// Two trees, as they will be installed.
pub struct Trees {
    /// The package.
    pub files: PathBuf,
    /// Its symbols.
    pub symbols: PathBuf,
    /// Programs and libraries in the package whose needs other packages fill, as paths in it.
    pub compiled: Vec<PathBuf>,
}

/// Lays them out below `out`, in place of what was there. `triplet` as `gcc -print-multiarch` has it.
pub fn lay_out(out: &Path, triplet: &str, device: bool) -> Result<Trees> {
    let mut trees = Trees { files: out.join("files"), symbols: out.join("symbols"), compiled: Vec::new() };
    for folder in [&trees.files, &trees.symbols] {
        if folder.is_dir() {
            fs::remove_dir_all(folder)?;
        }
    }
    pages::build_programs()?;
    let release = sh::target_dir().join("release");
    for program in PROGRAMS {
        trees.compiled(&release.join(program), &format!("usr/bin/{program}"))?;
    }
    for library in LOADED {
        trees.compiled(&release.join(library), &format!("usr/lib/shunt/{library}"))?;
    }
    // It needs the real libibverbs by a name that `shunt verbs` makes, which no package has.
    trees.compiled.retain(|path| !path.ends_with("libshunt_verbs.so"));
    trees.prefix(out, triplet, device)?;
    trees.transfer(triplet)?;
    trees.pages(out)?;
    trees.documents()?;
    modes(&trees.files)?;
    modes(&trees.symbols)?;
    Ok(trees)
}

impl Trees {
    /// A program or library, without its symbols.
    fn compiled(&mut self, from: &Path, to: &str) -> Result<()> {
        let symbols = self.symbols.join(format!("usr/lib/debug/{to}.debug"));
        symbols::split(from, &self.files.join(to), &symbols)?;
        self.compiled.push(to.into());
        Ok(())
    }

    fn prefix(&mut self, out: &Path, triplet: &str, device: bool) -> Result<()> {
        let made = out.join("prefix");
        if made.is_dir() {
            fs::remove_dir_all(&made)?;
        }
        shunt_gpu_tool::make_prefix(&made, device)?;
        let prefix = self.files.join(PREFIX);
        fs::create_dir_all(&prefix)?;
        sh::capture(sh::command("cp").arg("-a").arg(made.join(".")).arg(&prefix))?;
        self.compiled(&made.join("lib").join(LIBRARY), &format!("{PREFIX}/lib/{LIBRARY}"))?;
        let plugin = prefix.join("lib").join(MPI_PLUGIN);
        if plugin.is_file() {
            sh::capture(sh::command("strip").arg("--strip-unneeded").arg(plugin))?;
        }
        let lib = self.files.join("usr/lib").join(triplet);
        fs::create_dir_all(&lib)?;
        symlink(format!("../shunt/nvshmem/lib/{LIBRARY}"), lib.join(LIBRARY))?;
        for file in ["NVSHMEMConfig.cmake", "NVSHMEMConfigVersion.cmake"] {
            write(
                &lib.join("cmake/NVSHMEM").join(file),
                &format!(
                    "include(\"${{CMAKE_CURRENT_LIST_DIR}}/../../../shunt/nvshmem/lib/cmake/nvshmem/{file}\")\n"
                ),
            )?;
        }
        let text = fs::read_to_string(prefix.join("lib/pkgconfig/nvshmem.pc"))?;
        let text = text.replace("prefix=${pcfiledir}/../..", &format!("prefix=/{PREFIX}"));
        write(&lib.join("pkgconfig/nvshmem.pc"), &text)
    }

    /// The transfer engine for C.
    fn transfer(&mut self, triplet: &str) -> Result<()> {
        let lib = format!("usr/lib/{triplet}");
        let built = sh::target_dir().join("release").join(transfer::BUILT);
        self.compiled(&built, &format!("{lib}/{}", transfer::LIBRARY))?;
        let (root, include, libdir) = (&*self.files, "usr/include", format!("/{lib}"));
        let places = Places { root, include, lib: &lib, prefix: "/usr", libdir: &libdir, up: "../.." };
        transfer::lay_out(&places)
    }

    fn pages(&self, out: &Path) -> Result<()> {
        let pages = pages::write(out)?;
        let share = self.files.join("usr/share");
        copy_into(&pages.man, &share.join("man/man1"))?;
        for entry in fs::read_dir(share.join("man/man1"))? {
            sh::capture(sh::command("gzip").arg("-9n").arg(entry?.path()))?;
        }
        for (shell, folder) in [
            ("bash", "bash-completion/completions"),
            ("fish", "fish/vendor_completions.d"),
            ("zsh", "zsh/vendor-completions"),
        ] {
            copy_into(&pages.completions.join(shell), &share.join(folder))?;
        }
        Ok(())
    }

    fn documents(&self) -> Result<()> {
        let root = sh::root();
        let share = self.files.join("usr/share");
        copy_into(&root.join("docs/monitoring"), &share.join("shunt/monitoring"))?;
        copy_into(&root.join("docs/schemas"), &share.join("shunt/schemas"))?;
        let doc = share.join("doc/shunt");
        fs::create_dir_all(&doc)?;
        fs::copy(root.join("README.md"), doc.join("README.md"))?;
        let mit = fs::read_to_string(root.join("LICENSE-MIT")).context("LICENSE-MIT")?;
        let choice = "Shunt is licensed under either of two licences, at your choice: the Apache License, version 2.0, \
                      which is in /usr/share/common-licenses/Apache-2.0 on Debian, or this one.\n\n";
        write(&doc.join("copyright"), &(choice.to_owned() + &mit))?;
        write(&doc.join("CHANGELOG.md"), &fs::read_to_string(root.join("CHANGELOG.md"))?)?;
        sh::capture(sh::command("gzip").arg("-9n").arg(doc.join("CHANGELOG.md")))?;
        Ok(())
    }
}

/// Writes a file, and makes its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies the files of a folder.
fn copy_into(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// What everybody may read, and start where it was built to be started, whatever this process's umask is.
fn modes(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            modes(&path)?;
        } else {
            let starts = path.parent().is_some_and(|folder| folder.ends_with("usr/bin"));
            fs::set_permissions(&path, fs::Permissions::from_mode(if starts { 0o755 } else { 0o644 }))?;
        }
    }
    Ok(())
}
