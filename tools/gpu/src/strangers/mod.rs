//! `cargo xtask strangers`: the sources of programs that were written for NVSHMEM, from a checkout that the user has,
//! compiled and linked with the prefix. What does not is named with the first reason that the compiler gives.

mod plan;
mod table;

use crate::gpu::wheels::Toolkit;
use crate::prefix;
use anyhow::{Context, Result, bail};
use plan::{Kind, Makes, Plan, Source};
use shunt_task::sh;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use table::{Row, first_reason};

pub const SUMMARY: &str = "programs that were written for NVSHMEM, from a checkout of yours, with the prefix";
pub const HELP: &str = "strangers --checkout DIR --kind deepep|perftest|pplx|triton-distributed
       [--prefix DIR] [--out FILE] [--arch sm_NN] [--only TEXT] [--include DIR]...
       [--link ARG]...

Compiles the sources of a checkout that is already on this machine with the headers of the prefix, links them with its
libraries, and writes a table: each source, whether it was compiled and linked, and the first reason why not. Nothing
is downloaded: prefix, compiler and CUDA's C++ library are those that `cargo xtask prefix` left in target/. The checkout
is only read.

  --checkout DIR  deepep: DeepEP, V1 or later; ibgda_device.cuh of the prefix takes the place of the checkout's own
                  perftest: NVSHMEM, its folders perftest and examples; pplx: pplx-kernels;
                  triton-distributed: Triton-distributed
  --prefix DIR    default target/prefix
  --out FILE      the table; default target/strangers/KIND.md
  --arch sm_NN    default sm_90
  --only TEXT     sources alone whose path has this in it
  --include DIR   more headers, such as the folder of nvml.h for perftest, of nvtx3 for pplx
  --link ARG      more for the linker, such as -lmpi and -loshmem for the examples that call MPI and OpenSHMEM
CUDA's driver is not linked: a library of empty functions stands for it.";

/// What is asked for.
struct Asked {
    checkout: PathBuf,
    kind: Kind,
    prefix: PathBuf,
    out: PathBuf,
    arch: String,
    only: String,
    include: Vec<PathBuf>,
    link: Vec<String>,
}

fn asked(args: &[String]) -> Result<Asked> {
    let (mut checkout, mut kind, mut out, mut only) = (None, None, None, String::new());
    let (mut include, mut link) = (Vec::new(), Vec::new());
    let (mut prefix, mut arch) = (sh::target_dir().join("prefix"), "sm_90".to_owned());
    let here = std::env::current_dir().context("the current folder is gone")?;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(value) = args.next() else {
            return sh::usage(format!("'{arg}' needs a value, or is unknown"));
        };
        match arg.as_str() {
            "--checkout" => checkout = Some(here.join(value)),
            "--prefix" => prefix = here.join(value),
            "--out" => out = Some(here.join(value)),
            "--include" => include.push(here.join(value)),
            "--link" => link.push(value.clone()),
            "--arch" => arch = value.clone(),
            "--only" => only = value.clone(),
            "--kind" => match Kind::from_name(value) {
                Some(named) => kind = Some(named),
                None => return sh::usage(format!("--kind: expected {}, got {value:?}", Kind::names())),
            },
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    let Some(kind) = kind else {
        return sh::usage(format!("--kind: expected {}, got nothing", Kind::names()));
    };
    let Some(checkout) = checkout else { return sh::usage("--checkout: expected a folder, got nothing") };
    let out =
        out.unwrap_or_else(|| sh::target_dir().join("strangers").join(kind.name()).with_extension("md"));
    Ok(Asked { checkout, kind, prefix, out, arch, only, include, link })
}

pub fn run(args: &[String]) -> Result<()> {
    let asked = asked(args)?;
    let toolkit = Toolkit::present()?;
    let device = asked.prefix.join("lib/libnvshmem_device.a");
    if !device.is_file() {
        bail!(
            "--prefix: expected a folder with lib/libnvshmem_device.a, got {}: run `cargo xtask prefix`",
            asked.prefix.display()
        );
    }
    let work = sh::target_dir().join("strangers").join(asked.kind.name());
    if work.is_dir() {
        std::fs::remove_dir_all(&work)?;
    }
    std::fs::create_dir_all(&work)?;
    let plan = Plan::of(asked.kind, &asked.checkout, &asked.prefix, &work, &asked.only)?;
    let job = Job { asked: &asked, toolkit: &toolkit, plan: &plan, work: &work };
    let rows = job.all()?;
    let text = table::text(asked.kind.name(), &asked.arch, &toolkit.version(), &rows);
    if let Some(folder) = asked.out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&asked.out, &text).with_context(|| format!("cannot write {}", asked.out.display()))?;
    print!("{text}");
    println!("wrote {}", asked.out.display());
    Ok(())
}

struct Job<'a> {
    asked: &'a Asked,
    toolkit: &'a Toolkit,
    plan: &'a Plan,
    work: &'a Path,
}

impl Job<'_> {
    fn nvcc(&self) -> Result<Command> {
        let mut command =
            prefix::nvcc(self.toolkit, &self.asked.prefix.join("include"), &[&self.asked.arch])?;
        // Whether it is fast is not asked.
        command.args(["-Xcompiler", "-fPIC", "-Xptxas", "-O1"]);
        for folder in self.plan.include.iter().chain(&self.asked.include) {
            command.arg("-I").arg(folder);
        }
        command.args(&self.plan.flags);
        Ok(command)
    }

    fn object(&self, source: &Source) -> PathBuf {
        let name: String =
            source.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        self.work.join(name).with_extension("o")
    }

    /// The reason why a source does not compile.
    fn compile(&self, source: &Source) -> Result<Option<String>> {
        let mut command = self.nvcc()?;
        command.args(["-x", "cu", "-c"]).arg(&source.path).arg("-o").arg(self.object(source));
        said(&mut command)
    }

    /// The reason why objects do not link: with the device library, then with the host library.
    fn link(&self, name: &str, objects: &[PathBuf], program: bool) -> Result<Option<String>> {
        let lib = self.asked.prefix.join("lib");
        let out = self.work.join(name);
        let mut command = self.nvcc()?;
        if !program {
            command.arg("-shared");
        }
        command.args(objects).arg("-L").arg(&lib).arg("-lnvshmem_device").arg("-Xlinker");
        command.arg(lib.join("libnvshmem_host.so.3")).arg(driver(self.work, objects)?);
        command
            .args(&self.asked.link)
            .args(["-lpthread", "-ldl", "-Xlinker"])
            .arg(format!("-rpath={}", lib.display()))
            .arg("-o")
            .arg(&out);
        if let Some(reason) = said(&mut command)? {
            return Ok(Some(reason));
        }
        // A shared library may leave open what its loader has; nothing of ours is among that.
        let host = prefix::exported(&lib.join("libshunt_nvshmem.so.3"))?;
        let open = undefined(&[out], &["-D"])?;
        let mut open = open.into_iter().filter(|name| name.contains("nvshmem") || name.contains("shunt_"));
        Ok(open.find(|name| !host.contains(name)).map(|name| format!("undefined symbol: {name}")))
    }

    fn all(&self) -> Result<Vec<Row>> {
        let sources: Vec<&Source> = self.plan.common.iter().chain(&self.plan.sources).collect();
        let (next, reasons) = (AtomicUsize::new(0), Mutex::new(vec![None; sources.len()]));
        std::thread::scope(|scope| -> Result<()> {
            let work = || -> Result<()> {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let reason = self.compile(source)?;
                    println!("{} {}", if reason.is_none() { "compiled" } else { "not     " }, source.name);
                    let at = sources.iter().position(|other| std::ptr::eq(*other, *source));
                    reasons.lock().expect("no panic under this lock")[at.unwrap_or(0)] = reason;
                }
                Ok(())
            };
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic in a compiler's thread"))
        })?;
        let reasons = reasons.into_inner().expect("no panic under this lock");
        let mut rows: Vec<Row> =
            sources.iter().zip(reasons).map(|(s, reason)| Row::compiled(&s.name, reason)).collect();
        self.link_rows(&sources, &mut rows)?;
        Ok(rows)
    }

    fn link_rows(&self, sources: &[&Source], rows: &mut [Row]) -> Result<()> {
        let of = |which: &dyn Fn(usize) -> bool| -> Vec<PathBuf> {
            (0..sources.len()).filter(|at| which(*at)).map(|at| self.object(sources[at])).collect()
        };
        let common = self.plan.common.len();
        if self.plan.makes == Makes::Library {
            let good: Vec<bool> = rows.iter().map(Row::is_compiled).collect();
            let objects = of(&|at| good[at]);
            if objects.is_empty() {
                return Ok(());
            }
            let reason = self.link("all.so", &objects, false)?;
            rows.iter_mut().filter(|row| row.is_compiled()).for_each(|row| row.link(reason.clone()));
            return Ok(());
        }
        let programs = self.plan.makes == Makes::Programs;
        let broken = rows[..common].iter().find(|row| !row.is_compiled()).map(|row| row.source.clone());
        for at in common..sources.len() {
            if !rows[at].is_compiled() {
                continue;
            }
            let objects = of(&|other| other < common || other == at);
            let reason = match &broken {
                Some(name) if sources[at].needs_common => Some(format!("needs {name}")),
                _ if sources[at].needs_common => self.link(&format!("program{at}"), &objects, programs)?,
                _ => self.link(&format!("program{at}"), &[self.object(sources[at])], programs)?,
            };
            rows[at].link(reason);
        }
        rows[..common].iter_mut().filter(|row| row.is_compiled()).for_each(|row| row.link(None));
        Ok(())
    }
}

/// Runs a compiler; what it says first where it fails.
fn said(command: &mut Command) -> Result<Option<String>> {
    let output = command.output().with_context(|| format!("cannot start `{}`", sh::shown(command)))?;
    if output.status.success() {
        return Ok(None);
    }
    let text = [output.stderr, output.stdout].concat();
    Ok(Some(first_reason(&String::from_utf8_lossy(&text))))
}

fn undefined(files: &[PathBuf], how: &[&str]) -> Result<BTreeSet<String>> {
    let output = sh::capture(sh::command("nm").args(how).arg("--undefined-only").args(files))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split_whitespace().nth(1));
    Ok(names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect())
}

/// A library in the place of CUDA's driver, with the functions that these objects ask of it.
fn driver(work: &Path, objects: &[PathBuf]) -> Result<PathBuf> {
    let is_driver =
        |name: &String| name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    let names = undefined(objects, &[])?;
    let body: String = names
        .iter()
        .filter(|name| is_driver(name))
        .map(|name| format!("int {name}(void) {{ return 1; }}\n"))
        .collect();
    let (source, library) = (work.join("driver.c"), work.join("libcuda.so.1"));
    std::fs::write(&source, body)?;
    sh::capture(
        sh::command("cc")
            .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"])
            .arg(&source)
            .arg("-o")
            .arg(&library),
    )?;
    // nvcc knows libraries by a name without a version alone.
    let named = work.join("libcuda.so");
    std::fs::copy(&library, &named)?;
    Ok(named)
}
