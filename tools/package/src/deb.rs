//! `cargo xtask package`: Debian packages of what was laid out.

use crate::control::{self, Control};
use crate::tree::{self, Trees};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::fs;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str =
    "make a Debian package of the programs, the library, headers, man pages and completions";
pub const HELP: &str = "package [--out DIR] [--device]

Builds the programs, the interposer and the prefix (release) and makes
  DIR/shunt_VERSION_ARCH.deb         programs, library, headers, CMake and pkg-config files, man pages, completions,
                                     alerts, dashboard, schemas; nothing in it has symbols
  DIR/shunt-dbgsym_VERSION_ARCH.deb  the symbols, where gdb looks for them
The same commit makes the same bytes with the same compiler. Needs dpkg-dev and binutils. A machine that is to run it
needs a glibc at least as new as this machine's. DEBFULLNAME and DEBEMAIL name who makes it.

  --out DIR  where; default target/package
  --device   the device library for nvcc as well; its compilers are fetched as Python packages";

/// The name of the package.
const NAME: &str = "shunt";

pub fn run(args: &[String]) -> Result<()> {
    let (mut out, mut device) = (sh::target_dir().join("package"), false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--out" => match args.next() {
                Some(dir) => out = sh::root().join(dir),
                None => return sh::usage("--out needs a folder"),
            },
            "--device" => device = true,
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    let made = make(&out, device)?;
    for package in [&made.package, &made.symbols] {
        println!("{} ({:.1} MB)", package.display(), fs::metadata(package)?.len() as f64 / 1e6);
    }
    Ok(())
}

/// What was made.
pub struct Made {
    /// The package.
    pub package: PathBuf,
    /// The package of its symbols.
    pub symbols: PathBuf,
    /// As `gcc -print-multiarch` has it.
    pub triplet: String,
}

/// Makes both in `out`.
pub fn make(out: &Path, device: bool) -> Result<Made> {
    for program in ["dpkg-deb", "dpkg-shlibdeps", "objcopy", "gzip"] {
        if !sh::exists(program) {
            bail!("{program}: expected on the PATH, got none; install dpkg-dev and binutils");
        }
    }
    fs::create_dir_all(out)?;
    let triplet = told("gcc", &["-print-multiarch"])?;
    let architecture = told("dpkg", &["--print-architecture"])?;
    let version = env!("CARGO_PKG_VERSION");
    let work = sh::target_dir().join("package-work");
    let trees = tree::lay_out(&work, &triplet, device)?;
    let depends = depends(&work, &trees)?;
    let maintainer = maintainer();
    changelog(&trees, version, &maintainer)?;
    let package = build(
        out,
        &trees.files,
        &Control {
            name: NAME,
            version,
            maintainer: &maintainer,
            architecture: &architecture,
            section: "net",
            depends: &depends,
            recommends: "libibverbs1, ibverbs-providers",
            bytes: bytes_of(&trees.files)?,
            summary: "RDMA that goes on when a NIC port, cable or switch fails",
            description: &[
                "GPU-initiated RDMA with a primary queue pair and ranked backups on other NICs. A failure is noticed \
                 on the completion queue, the old path is fenced at both ends, and only what had not arrived is sent \
                 again.",
                "The package has a library in the place of NVSHMEM's host library, with headers, the operator's \
                 program, and benchmarks that take ports down while they run. It needs no RDMA device to be tried: \
                 NICs in software are part of it.",
            ],
        },
    )?;
    let symbols = build(
        out,
        &trees.symbols,
        &Control {
            name: &format!("{NAME}-dbgsym"),
            version,
            maintainer: &maintainer,
            architecture: &architecture,
            section: "debug",
            depends: &format!("{NAME} (= {version})"),
            recommends: "",
            bytes: bytes_of(&trees.symbols)?,
            summary: "debug symbols for shunt",
            description: &["Symbols of the programs and libraries in the package shunt, for gdb and perf."],
        },
    )?;
    Ok(Made { package, symbols, triplet })
}

/// The packages that programs and libraries need, with their versions.
fn depends(work: &Path, trees: &Trees) -> Result<String> {
    let source = format!("Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n");
    tree::write(&work.join("debian/control"), &source)?;
    let mut command = sh::command("dpkg-shlibdeps");
    command.current_dir(work).arg("-O");
    for compiled in &trees.compiled {
        command.arg(format!("-e{}", trees.files.join(compiled).display()));
    }
    let printed = String::from_utf8_lossy(&sh::capture(&mut command)?.stdout).into_owned();
    let found = control::shared_libraries(&printed);
    Ok(found.with_context(|| format!("dpkg-shlibdeps names no library: {printed}"))?.to_owned())
}

/// Debian's own changelog, dated as the commit is.
fn changelog(trees: &Trees, version: &str, maintainer: &str) -> Result<()> {
    let date = told("date", &["-Ru", &format!("-d@{}", epoch()?)])?;
    let path = trees.files.join("usr/share/doc").join(NAME).join("changelog");
    tree::write(&path, &control::changelog(NAME, version, maintainer, &date))?;
    sh::capture(sh::command("gzip").arg("-9n").arg(&path))?;
    for name in [NAME.to_owned(), format!("{NAME}-dbgsym")] {
        let files = if name == NAME { &trees.files } else { &trees.symbols };
        let doc = files.join("usr/share/doc").join(&name);
        fs::create_dir_all(&doc)?;
        if name != NAME {
            for file in ["copyright", "changelog.gz"] {
                fs::copy(trees.files.join("usr/share/doc").join(NAME).join(file), doc.join(file))?;
            }
        }
    }
    Ok(())
}

/// One package in `out`.
fn build(out: &Path, files: &Path, control: &Control<'_>) -> Result<PathBuf> {
    let debian = files.join("DEBIAN");
    tree::write(&debian.join("control"), &control.text())?;
    if control.name == NAME {
        tree::write(&debian.join("triggers"), "activate-noawait ldconfig\n")?;
    }
    let mut sums = sh::command("sh");
    sums.current_dir(files)
        .args(["-c", "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums"]);
    sh::capture(&mut sums)?;
    let package = out.join(format!("{}_{}_{}.deb", control.name, control.version, control.architecture));
    let mut command = sh::command("dpkg-deb");
    // The second pack of symbols gains little by more effort: the sections are compressed.
    command.args(["--root-owner-group", "-Zxz", "-z3", "--build"]).arg(files).arg(&package);
    sh::capture(command.env("SOURCE_DATE_EPOCH", epoch()?))?;
    Ok(package)
}

/// Who the package says it is from: as Debian's own tools, what the environment says.
fn maintainer() -> String {
    let said = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("{} <{}>", said("DEBFULLNAME", "Shunt"), said("DEBEMAIL", "shunt@localhost"))
}

/// Seconds since 1970 of the commit, or what the environment says.
fn epoch() -> Result<String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(given) => Ok(given),
        Err(_) => told("git", &["log", "-1", "--format=%ct"]),
    }
}

/// What a program prints, without the end of the line.
fn told(program: &str, args: &[&str]) -> Result<String> {
    let output = sh::capture(sh::command(program).args(args))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Bytes of the files below a folder.
fn bytes_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { bytes_of(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
