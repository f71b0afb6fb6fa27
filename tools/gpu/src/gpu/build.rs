//! A whole build: parts for architectures, audited, measured and held against the table; then programs that use them.

use super::assemble::{self, Object};
use super::audit::Module;
use super::parts::{Arch, KERNELS, LIBRARY, PARTS, Part};
use super::table::{self, Row, Table};
use super::toolchain::{self, Toolchain};
use super::wheels::Toolkit;
use super::{bounds, cplusplus, example, findings, header, preserve, sass};
use anyhow::{Context, Result, bail};

/// Builds for these architectures. `bless`: header and table are written instead of compared.
pub fn all(arches: &[&'static Arch], bless: bool, toolchain: Option<&str>) -> Result<()> {
    let mut build = Build::start(toolchain)?;
    header::make(bless)?;
    let mut library = Vec::new();
    for arch in arches {
        println!("\n{}", table::head());
        for part in PARTS {
            let object = build.make(part, arch)?;
            library.extend(object.filter(|_| part.name == LIBRARY).map(|object| (*arch, object)));
        }
    }
    build.faults.extend(bounds::unlike_twins(&build.rows));
    build.faults.extend(bounds::over_budget(&build.rows));
    build.compare(bless)?;
    if !build.faults.is_empty() {
        println!();
        build.faults.iter().for_each(|fault| println!("fault: {fault}"));
        bail!("{} faults in the device code", build.faults.len());
    }
    let archive = cplusplus::archive(&build.toolkit, &library)?;
    cplusplus::program(&build.toolkit, &archive, arches)?;
    example::build(&build.toolchain, &build.toolkit)?;
    example::package()
}

/// A build and what it found.
struct Build {
    toolchain: Toolchain,
    toolkit: Toolkit,
    rows: Vec<Row>,
    faults: Vec<String>,
}

impl Build {
    fn start(toolchain: Option<&str>) -> Result<Self> {
        let toolchain = Toolchain::find(toolchain)?;
        println!("compiler: {}", toolchain.describe());
        let toolkit = Toolkit::fetch()?;
        println!("assembler: {}", toolkit.version());
        Ok(Self { toolchain, toolkit, rows: Vec::new(), faults: Vec::new() })
    }

    /// One part for one architecture: PTX, audit, object, rows of the table.
    fn make(&mut self, part: &Part, arch: &Arch) -> Result<Option<Object>> {
        let ptx = toolchain::build(&self.toolchain, part, arch)?;
        let text = std::fs::read_to_string(&ptx).with_context(|| format!("no PTX at {}", ptx.display()))?;
        let module = Module::parse(&text);
        let mut faults = findings::of_text(&text).with_context(|| ptx.display().to_string())?;
        if part.name == LIBRARY {
            faults.extend(header::check(&module)?);
        }
        self.faults.extend(faults.iter().map(|fault| format!("{} {fault}", arch.name)));
        let source = ptx.with_extension("saving.ptx");
        let ptx = if part.name == LIBRARY {
            std::fs::write(&source, preserve::with_directives(&text, &module, preserve::ALL))?;
            &source
        } else {
            &ptx
        };
        // What the audit refuses, ptxas may refuse for a reason that says less.
        let object = match assemble::assemble(&self.toolkit, ptx, arch.name) {
            Ok(object) => object,
            Err(error) if !faults.is_empty() => {
                self.faults.push(format!("{error:#}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if part.name == KERNELS {
            assemble::link(&self.toolkit, &object, arch.name)?;
        }
        let mut roots: Vec<&str> = module.roots().map(|root| root.name.as_str()).collect();
        roots.sort_unstable();
        for root in roots {
            self.measure(&object, arch, root);
        }
        Ok(Some(object))
    }

    fn measure(&mut self, object: &Object, arch: &Arch, root: &str) {
        let (code, through) = sass::no_fault_path(&object.code, root);
        let usage = || {
            std::iter::once(root)
                .chain(through.iter().map(String::as_str))
                .filter_map(|at| object.usage.get(at))
        };
        let registers = usage().map(|usage| usage.registers as usize).max().unwrap_or_default();
        let stack = usage().map(|usage| usage.stack as usize).sum();
        let spills = usage().map(|usage| usage.spills as usize).sum::<usize>();
        let cold_stack = sass::stack(&object.code, &object.frames(), root) as usize;
        let row = Row {
            arch: arch.name.to_owned(),
            name: root.to_owned(),
            values: [
                code.instructions,
                if registers == 0 { code.registers } else { registers },
                code.loads,
                code.stores,
                code.atomics,
                code.barriers,
                stack,
                spills,
                cold_stack,
            ],
        };
        println!("{row}");
        if !through.is_empty() {
            let names: Vec<String> = through.iter().map(|name| sass::short(name)).collect();
            println!("{:44} with {}", "", names.join(", "));
        }
        self.faults.extend(bounds::stack(&row, code.local));
        self.rows.push(row);
    }

    /// Holds what was built against the committed table, or makes it the table.
    fn compare(&mut self, bless: bool) -> Result<()> {
        let compilers = format!("{}, {}", self.toolchain.describe(), self.toolkit.version());
        if bless {
            return Table { compilers, rows: self.rows.clone() }.commit();
        }
        let table = Table::committed()?;
        let difference = table.against(&self.rows);
        println!();
        for better in &difference.better {
            println!("better than the table (--bless writes it): {better}");
        }
        if table.compilers == compilers {
            self.faults.extend(difference.worse.iter().map(|worse| format!("worse than the table: {worse}")));
        } else {
            println!("the table was made by {}: what differs is not held against it", table.compilers);
            difference.worse.iter().for_each(|worse| println!("  {worse}"));
        }
        Ok(())
    }
}
