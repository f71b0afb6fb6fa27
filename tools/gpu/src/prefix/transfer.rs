//! The transfer engine for C beside the host library: header, library, and what pkg-config and CMake read.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The package that has it.
pub const PACKAGE: &str = "shunt-transfer-capi";
/// Its library as cargo builds it, and as programs load it.
pub const BUILT: &str = "libshunt_transfer_c.so";
/// See [`BUILT`].
pub const LIBRARY: &str = "libshunt_transfer.so.0";
const HEADER: &str = "shunt_transfer.h";
/// A page with a program in C, in which a port goes down, and what its ends say.
const PAGE: &str = "docs/how-to/transfer.md";
const SAID: [&str; 2] = ["128 pages written, failovers: ", "end 1: wrong bytes: 0"];

/// Where its files go, and how these name each other.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// What stands for `/` until it is installed.
    pub root: &'a Path,
    /// Headers, as a path below.
    pub include: &'a str,
    /// Libraries, as a path below.
    pub lib: &'a str,
    /// As pkg-config's file names the prefix, and the folder of libraries.
    pub prefix: &'a str,
    /// See [`Places::prefix`].
    pub libdir: &'a str,
    /// From the folder of libraries to that which has `include`.
    pub up: &'a str,
}

/// Lays out all but the library itself.
pub fn lay_out(places: &Places<'_>) -> Result<()> {
    let home = sh::root().join("transfer-engine/capi");
    let lib = places.root.join(places.lib);
    let headers = places.root.join(places.include);
    fs::create_dir_all(&headers)?;
    fs::copy(home.join("include").join(HEADER), headers.join(HEADER)).context(HEADER)?;
    let version = env!("CARGO_PKG_VERSION");
    let series = version.rsplit_once('.').map_or(version, |(series, _)| series);
    for (file, folder) in [
        ("shunt-transfer.pc", "pkgconfig"),
        ("ShuntTransferConfig.cmake", "cmake/ShuntTransfer"),
        ("ShuntTransferConfigVersion.cmake", "cmake/ShuntTransfer"),
    ] {
        let mut text = fs::read_to_string(home.join("package").join(file)).context(file)?;
        for (name, value) in [
            ("@PREFIX@", places.prefix),
            ("@LIBDIR@", places.libdir),
            ("@UP@", places.up),
            ("@VERSION@", version),
            ("@SERIES@", series),
        ] {
            text = text.replace(name, value);
        }
        fs::create_dir_all(lib.join(folder))?;
        fs::write(lib.join(folder).join(file), text)?;
    }
    let name = lib.join("libshunt_transfer.so");
    let _ = fs::remove_file(&name);
    symlink(LIBRARY, name).context("libshunt_transfer.so")
}

/// All of it in a prefix, with a library that was built in a folder.
pub fn install(out: &Path, built: &Path) -> Result<()> {
    let (prefix, libdir) = ("${pcfiledir}/../..", "${prefix}/lib");
    lay_out(&Places { root: out, include: "include", lib: "lib", prefix, libdir, up: ".." })?;
    let (built, library) = (built.join(BUILT), out.join("lib").join(LIBRARY));
    // Not written over: a program may run on the old one.
    let _ = fs::remove_file(&library);
    fs::copy(&built, &library).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(())
}

/// The program of the page.
pub fn page_program() -> Result<String> {
    let page = fs::read_to_string(sh::root().join(PAGE))?;
    let program = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    Ok(program.with_context(|| format!("{PAGE}: expected a program in C, got none"))?.to_owned())
}

/// What is wrong with what the page's program said: it compares every byte, and a port goes down in it.
pub fn unsaid(said: &str) -> Vec<String> {
    let missing = SAID.into_iter().filter(|words| !said.contains(words));
    let mut wrong: Vec<String> = missing.map(|words| format!("expected \"{words}\", got {said}")).collect();
    if said.contains("failovers: 0") {
        wrong.push(format!("expected a failover, got {said}"));
    }
    wrong
}

/// Compiles the page's program with what pkg-config says of a prefix, and nothing else, and runs it by a launcher.
pub fn try_page(out: &Path, launcher: &Path) -> Result<usize> {
    let folder = sh::target_dir().join("prefix-transfer");
    fs::create_dir_all(&folder)?;
    let (source, program) = (folder.join("pages.c"), folder.join("pages"));
    fs::write(&source, page_program()?)?;
    let mut asked = sh::command("pkg-config");
    asked.args(["--cflags", "--libs", "shunt-transfer"]).env("PKG_CONFIG_PATH", out.join("lib/pkgconfig"));
    let flags = sh::stdout_of(&mut asked).context("pkg-config finds no shunt-transfer in the prefix")?;
    let mut compiler = sh::command("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]).arg(&source).arg("-o").arg(&program);
    sh::capture(compiler.args(flags.split_whitespace()))?;
    let mut job = sh::command(&launcher.to_string_lossy());
    job.args(["run", "-n", "2", "--"]).arg(&program).env("SHUNT_NIC", "soft");
    let output = sh::capture(job.env("LD_LIBRARY_PATH", out.join("lib")))?;
    let wrong = unsaid(&String::from_utf8_lossy(&output.stdout));
    if !wrong.is_empty() {
        bail!("pages.c of {PAGE}: {}", wrong.join("; "));
    }
    println!("pkg-config: a program of transfers, a port down");
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_what_pkg_config_and_cmake_name() {
        let out = std::env::temp_dir().join(format!("shunt-prefix-transfer-{}", std::process::id()));
        let built = out.join("built");
        fs::create_dir_all(&built).unwrap();
        fs::write(built.join(BUILT), "a library").unwrap();
        install(&out, &built).unwrap();
        let read = |file: &str| fs::read_to_string(out.join(file)).unwrap();
        assert_eq!(read("lib/libshunt_transfer.so"), "a library", "by its link");
        assert!(read("include/shunt_transfer.h").contains("STE_VERSION"));
        let texts = ["lib/pkgconfig/shunt-transfer.pc", "lib/cmake/ShuntTransfer/ShuntTransferConfig.cmake"];
        for text in texts.map(read) {
            assert!(!text.contains('@') && !text.contains("/usr"), "{text}");
        }
        // As the package has it.
        let (root, lib, libdir) = (&*out.join("files"), "usr/lib/any", "/usr/lib/any");
        lay_out(&Places { root, include: "usr/include", lib, prefix: "/usr", libdir, up: "../.." }).unwrap();
        assert!(root.join("usr/include").join(HEADER).is_file());
        let text = read("files/usr/lib/any/pkgconfig/shunt-transfer.pc");
        assert!(text.starts_with("prefix=/usr\n") && text.contains("libdir=/usr/lib/any\n"), "{text}");
        let text = read("files/usr/lib/any/cmake/ShuntTransfer/ShuntTransferConfig.cmake");
        assert!(text.contains("${_shunt_transfer_lib}/../..\" ABSOLUTE"), "{text}");
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn a_run_without_a_failover_is_no_success() {
        let good = "end 0: 40 times 128 pages written, failovers: 1\n[rank 1] end 1: wrong bytes: 0\n";
        assert_eq!(unsaid(good), Vec::<String>::new());
        assert_eq!(unsaid(&good.replace("failovers: 1", "failovers: 0")).len(), 1);
        assert_eq!(unsaid(&good.replace("bytes: 0", "bytes: 7")).len(), 1);
        assert_eq!(unsaid("").len(), 2);
    }
}
