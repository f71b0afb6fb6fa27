//! The package used as its users do: unpacked beside the system, or installed in a bare one.

use crate::deb::{self, Made};
use crate::pages::PROGRAMS;
use anyhow::{Context, Result, bail};
use shunt_gpu_tool::transfer;
use shunt_task::sh;
use shunt_task::stages::Count;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program for NVSHMEM whose port goes down, and which checks what it fetched.
const PROGRAM: &str = "nvshmem-compat/conformance/exact/exact.c";
/// Its arguments: PE 1 has its first rail go down for a while.
const ARGUMENTS: &str = "fetch 60 1 0 5 down=30ms";
/// A project that finds the libraries by CMake.
const PROJECT: &str = "tools/package/trial/CMakeLists.txt";

/// The stage `package`: the package is made, unpacked, and its files are used from there.
pub fn stage() -> Result<Count> {
    let made = deb::make(&sh::target_dir().join("package"), false)?;
    let root = sh::target_dir().join("package-root");
    if root.is_dir() {
        fs::remove_dir_all(&root)?;
    }
    for package in [&made.package, &made.symbols] {
        sh::capture(sh::command("dpkg-deb").arg("-x").args([package, &root]))?;
    }
    let unpacked = Unpacked { root, triplet: made.triplet };
    let mut count = Count::default();
    count += Count::told("programs start", &unpacked.programs());
    count += Count::told("the interposer is found", &unpacked.interposer());
    count += Count::told("the verbs library is found", &unpacked.verbs());
    count += Count::told("symbols lie beside", &unpacked.symbols());
    count += Count::told("pages and completions", &unpacked.pages());
    count += Count::told("C by pkg-config, a port down", &unpacked.by_pkg_config());
    count += Count::told("transfers in C by pkg-config, a port down", &unpacked.transfers_by_pkg_config()?);
    if sh::exists("cmake") {
        count += Count::told("C by CMake, a port down", &unpacked.by_cmake());
    } else {
        println!("  C by CMake: skipped, there is no cmake here");
        count.skipped += 1;
    }
    Ok(count)
}

/// Where the package's files lie.
struct Unpacked {
    root: PathBuf,
    triplet: String,
}

impl Unpacked {
    fn program(&self, name: &str) -> Command {
        let mut command = sh::command(&self.root.join("usr/bin").join(name).to_string_lossy());
        command.env("LD_LIBRARY_PATH", self.libraries());
        command
    }

    fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib").join(&self.triplet)
    }

    fn programs(&self) -> Vec<String> {
        let wrong = |name| {
            let printed = sh::stdout_of(self.program(name).arg("--version"));
            let expected = format!("{name} {}", env!("CARGO_PKG_VERSION"));
            match printed.as_deref().map(str::trim) {
                Some(line) if line == expected => None,
                other => Some(format!("{name} --version: expected {expected}, got {other:?}")),
            }
        };
        PROGRAMS.into_iter().filter_map(wrong).collect()
    }

    fn interposer(&self) -> Vec<String> {
        failed(self.program("shunt").args(["soft-rdma", "run", "--", "true"]))
    }

    fn verbs(&self) -> Vec<String> {
        failed(self.program("shunt").args(["verbs", "install"]).arg(self.root.join("verbs")))
    }

    /// What was stripped names its symbols, and they are there.
    fn symbols(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for file in ["usr/bin/shunt", "usr/lib/shunt/nvshmem/lib/libshunt_nvshmem.so.3"] {
            let sections = |path: PathBuf| sh::stdout_of(sh::command("readelf").arg("-SW").arg(path));
            let has =
                |text: &Option<String>, section| text.as_ref().is_some_and(|text| text.contains(section));
            let stripped = sections(self.root.join(file));
            let beside = sections(self.root.join(format!("usr/lib/debug/{file}.debug")));
            if has(&stripped, ".debug_info") || !has(&stripped, ".gnu_debuglink") {
                wrong.push(format!("{file}: expected a link to symbols in place of symbols"));
            }
            if !has(&beside, ".debug_info") {
                wrong.push(format!("{file}: expected symbols below usr/lib/debug, got none"));
            }
        }
        wrong
    }

    fn pages(&self) -> Vec<String> {
        let share = self.root.join("usr/share");
        let mut wrong = Vec::new();
        for name in PROGRAMS {
            let page = share.join(format!("man/man1/{name}.1.gz"));
            let text = sh::stdout_of(sh::command("gzip").arg("-dc").arg(&page)).unwrap_or_default();
            if !text.contains(".TH ") || !text.contains(".SH OPTIONS") && !text.contains(".SH SUBCOMMANDS") {
                wrong.push(format!("{}: expected a man page of {name}", page.display()));
            }
            let completions = share.join("bash-completion/completions").join(name);
            let asks = format!("source {} && complete -p {name}", completions.display());
            wrong.extend(failed(sh::command("bash").args(["-c", &asks])));
        }
        wrong
    }

    fn by_pkg_config(&self) -> Vec<String> {
        let built = self.root.join("exact-pkg-config");
        let wrong = self.compiled("nvshmem", &sh::root().join(PROGRAM), &built);
        if wrong.is_empty() { self.run(&built) } else { wrong }
    }

    /// Compiles a program with what pkg-config says of a library.
    fn compiled(&self, library: &str, source: &Path, built: &Path) -> Vec<String> {
        let mut asked = sh::command("pkg-config");
        asked.args(["--cflags", "--libs", library]);
        asked.env("PKG_CONFIG_PATH", self.libraries().join("pkgconfig"));
        asked.env("PKG_CONFIG_SYSROOT_DIR", &self.root);
        // Here the system's folders are not where a compiler looks.
        asked.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
        let Some(flags) = sh::stdout_of(&mut asked) else {
            return vec![format!("pkg-config finds no {library}")];
        };
        let mut compiler = sh::command("cc");
        compiler.arg("-O2").arg(source).arg("-o").arg(built).args(flags.split_whitespace());
        failed(&mut compiler)
    }

    fn transfers_by_pkg_config(&self) -> Result<Vec<String>> {
        let (source, built) = (self.root.join("pages.c"), self.root.join("pages-pkg-config"));
        fs::write(&source, transfer::page_program()?)?;
        let wrong = self.compiled("shunt-transfer", &source, &built);
        Ok(if wrong.is_empty() { self.transfer(&built) } else { wrong })
    }

    /// Runs the page's program: it compares every byte, and a port goes down in it.
    fn transfer(&self, program: &Path) -> Vec<String> {
        let mut job = self.program("shunt");
        job.args(["run", "-n", "2", "--"]).arg(program).env("SHUNT_NIC", "soft");
        let said = match sh::capture(&mut job) {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => return vec![format!("{error:#}")],
        };
        transfer::unsaid(&said)
    }

    fn by_cmake(&self) -> Vec<String> {
        let build = self.root.join("cmake-build");
        let source = sh::root().join(PROJECT);
        let mut configure = sh::command("cmake");
        configure.arg("-S").arg(source.parent().unwrap_or(&source)).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", self.root.join("usr").display()));
        configure.arg(format!("-DCMAKE_LIBRARY_ARCHITECTURE={}", self.triplet));
        configure.arg(format!("-DPAGES={}", self.root.join("pages.c").display()));
        let mut wrong = failed(&mut configure);
        if wrong.is_empty() {
            wrong = failed(sh::command("cmake").arg("--build").arg(&build));
        }
        if wrong.is_empty() {
            wrong = self.run(&build.join("exact"));
            wrong.extend(self.transfer(&build.join("pages")));
        }
        wrong
    }

    fn run(&self, program: &Path) -> Vec<String> {
        let mut job = self.program("shunt");
        job.args(["run", "-n", "2", "--"]).arg(program).args(ARGUMENTS.split(' '));
        failed(job.env("SHUNT_NIC", "soft").env("NVSHMEM_SYMMETRIC_SIZE", "8M"))
    }
}

/// What is wrong with a command that should end with 0.
fn failed(command: &mut Command) -> Vec<String> {
    match sh::capture(command) {
        Ok(_) => Vec::new(),
        Err(error) => vec![format!("{error:#}")],
    }
}

/// `cargo xtask night --only package`: installed in a bare system of this machine's Debian, which debootstrap makes.
pub fn night(_: &[String]) -> Result<()> {
    if !sh::exists("debootstrap") || !is_root() {
        bail!("expected debootstrap and root, to make a bare system; install debootstrap, run as root");
    }
    let made = deb::make(&sh::target_dir().join("package"), false)?;
    let bare = bare_system()?;
    install(&bare, &made)?;
    let outputs = [
        "pkg-config --exists nvshmem",
        "cc -O2 /trial/exact.c -o /trial/by-pkg-config $(pkg-config --cflags --libs nvshmem)",
        &format!("SHUNT_NIC=soft shunt run -n 2 -- /trial/by-pkg-config {ARGUMENTS}"),
        "cc -O2 /trial/pages.c -o /trial/pages $(pkg-config --cflags --libs shunt-transfer)",
        "SHUNT_NIC=soft shunt run -n 2 -- /trial/pages",
        "cmake -S /trial -B /trial/build -DPAGES=/trial/pages.c && cmake --build /trial/build",
        &format!("SHUNT_NIC=soft shunt run -n 2 -- /trial/build/exact {ARGUMENTS}"),
        "shmem_put_bw --duration 2s --inject 500ms:0.0:down",
        "apt-get remove -y shunt-dbgsym shunt && ! ls /usr/lib/shunt",
    ];
    for line in outputs {
        println!("$ {line}");
        sh::run(chroot(&bare).args(["sh", "-ec", line]).env("NVSHMEM_SYMMETRIC_SIZE", "8M"))?;
    }
    Ok(())
}

/// A fresh copy of a bare system with a compiler; the first is kept for the next time.
fn bare_system() -> Result<PathBuf> {
    let (kept, bare) = (sh::target_dir().join("bare-kept"), sh::target_dir().join("bare"));
    if !kept.join("usr/bin/cc").exists() {
        let release = fs::read_to_string("/etc/os-release")?;
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let suite = suite.context("/etc/os-release: expected VERSION_CODENAME, as Debian has it")?;
        let mut command = sh::command("debootstrap");
        command
            .args(["--variant=minbase", "--include=gcc,libc6-dev,make,cmake,pkg-config", suite])
            .arg(&kept);
        sh::run(&mut command)?;
    }
    if bare.is_dir() {
        fs::remove_dir_all(&bare)?;
    }
    sh::capture(sh::command("cp").arg("-a").args([&kept, &bare]))?;
    Ok(bare)
}

/// The packages and the sources of the trial, in the bare system.
fn install(bare: &Path, made: &Made) -> Result<()> {
    let trial = bare.join("trial");
    fs::create_dir_all(&trial)?;
    for (from, to) in [
        (&made.package, "shunt.deb"),
        (&made.symbols, "shunt-dbgsym.deb"),
        (&sh::root().join(PROGRAM), "exact.c"),
    ] {
        fs::copy(from, trial.join(to))?;
    }
    let project = fs::read_to_string(sh::root().join(PROJECT))?;
    let here = project.replace(&format!("../../../{PROGRAM}"), "exact.c");
    fs::write(trial.join("CMakeLists.txt"), here)?;
    fs::write(trial.join("pages.c"), transfer::page_program()?)?;
    // What it needs must be there already, or it would not install.
    sh::run(chroot(bare).args(["dpkg", "-i", "/trial/shunt.deb", "/trial/shunt-dbgsym.deb"]))
}

fn chroot(bare: &Path) -> Command {
    let mut command = sh::command("chroot");
    command.arg(bare);
    command
}

/// Whether this process may make a system.
fn is_root() -> bool {
    sh::stdout_of(sh::command("id").arg("-u")).is_some_and(|id| id.trim() == "0")
}
