//! What of a checkout is compiled, with what, and what becomes one program or library.

use crate::prefix;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Whose sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DeepEP.
    DeepEp,
    /// NVSHMEM's own measurements and examples.
    Perftest,
    /// pplx-kernels.
    Pplx,
    /// Triton-distributed.
    TritonDistributed,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::DeepEp, "deepep"),
    (Kind::Perftest, "perftest"),
    (Kind::Pplx, "pplx"),
    (Kind::TritonDistributed, "triton-distributed"),
];

impl Kind {
    pub fn from_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// All of them, for people.
    pub fn names() -> String {
        KINDS.map(|(_, name)| name).join(", ")
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path in the checkout.
    pub name: String,
    /// What is compiled: that file, or a copy beside a header that was exchanged.
    pub path: PathBuf,
    /// Whether its program needs the common objects.
    pub needs_common: bool,
}

/// What is done with a checkout.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub include: Vec<PathBuf>,
    pub flags: Vec<String>,
    /// Part of every program.
    pub common: Vec<Source>,
    pub sources: Vec<Source>,
    /// What is linked.
    pub makes: Makes,
}

/// What a checkout's sources become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Makes {
    /// All that compile are one shared library.
    #[default]
    Library,
    /// Each source is a shared library.
    Libraries,
    /// Each source is a program.
    Programs,
}

impl Plan {
    /// For a checkout. `work`: where copies may lie. `only`: a part of the path of the sources that are wanted.
    ///
    /// # Errors
    /// The checkout is not of that kind, or none of its sources is wanted.
    pub fn of(kind: Kind, checkout: &Path, prefix: &Path, work: &Path, only: &str) -> Result<Self> {
        let mut plan = match kind {
            Kind::DeepEp => deep_ep(checkout, prefix, work)?,
            Kind::Perftest => perftest(checkout)?,
            Kind::Pplx => pplx(checkout)?,
            Kind::TritonDistributed => Self {
                sources: below(checkout, checkout, &|name| name.ends_with("nvshmem_wrapper.cu"))?,
                makes: Makes::Libraries,
                ..Self::default()
            },
        };
        plan.sources.retain(|source| source.name.contains(only));
        if plan.sources.is_empty() {
            let (kind, at) = (kind.name(), checkout.display());
            bail!("--checkout: expected a checkout with sources of {kind}, got none with '{only}' in {at}");
        }
        Ok(plan)
    }
}

/// V1 has its kernels in one folder, later versions have them in `legacy`, beside a backend for NVSHMEM.
fn deep_ep(checkout: &Path, prefix: &Path, work: &Path) -> Result<Plan> {
    let copy = work.join("csrc");
    let from = checkout.join("csrc");
    prefix::copy_tree(&from, &copy)?;
    let ours = prefix.join("share/shunt/deep-ep/ibgda_device.cuh");
    let later = copy.join("kernels/legacy");
    let folder = if later.is_dir() { later } else { copy.join("kernels") };
    std::fs::copy(&ours, folder.join("ibgda_device.cuh"))
        .with_context(|| format!("cannot put {} into {}", ours.display(), folder.display()))?;
    // The other backends are NCCL's and CUDA's.
    let wanted = |name: &str| {
        let file = name.rsplit('/').next().unwrap_or(name);
        name.contains("kernels/") && file.ends_with(".cu") && !["nccl.cu", "cuda_driver.cu"].contains(&file)
    };
    let include = [copy.clone(), checkout.join("deep_ep/include"), checkout.join("third-party/fmt/include")];
    let flags = ["--extended-lambda", "--diag-suppress=128,2417", "-std=c++20", "--expt-relaxed-constexpr"];
    Ok(Plan {
        include: include.to_vec(),
        flags: flags.map(str::to_owned).to_vec(),
        sources: below(&copy, work, &wanted)?,
        ..Plan::default()
    })
}

/// Each measurement is a program of its file and what they share; each example is one alone.
fn perftest(checkout: &Path) -> Result<Plan> {
    let common = checkout.join("perftest/common");
    let is_source = |name: &str| name.ends_with(".cu") || name.ends_with(".cpp");
    let measures = |name: &str| is_source(name) && !name.contains("/common/");
    let mut sources = below(&checkout.join("perftest"), checkout, &measures)?;
    sources.iter_mut().for_each(|source| source.needs_common = true);
    sources.extend(below(&checkout.join("examples"), checkout, &|name| {
        name.ends_with(".cu") || name.ends_with(".cpp")
    })?);
    Ok(Plan {
        include: vec![
            common.clone(),
            checkout.join("perftest/device/coll"),
            checkout.join("perftest/host/coll"),
        ],
        common: below(&common, checkout, &is_source)?,
        sources,
        makes: Makes::Programs,
        ..Plan::default()
    })
}

/// Its kernels and what calls them, without tests, and without what needs PyTorch.
fn pplx(checkout: &Path) -> Result<Plan> {
    let csrc = checkout.join("csrc");
    let wanted = |name: &str| {
        let file = name.rsplit('/').next().unwrap_or(name);
        let is_source = file.ends_with(".cu") || file.ends_with(".cpp");
        is_source && !name.contains("bindings/") && !file.starts_with("test_") && !file.starts_with("bench_")
    };
    Ok(Plan {
        include: vec![csrc.clone()],
        // PyTorch's build has the second.
        flags: ["-std=c++17", "--expt-relaxed-constexpr"].map(str::to_owned).to_vec(),
        sources: below(&csrc, checkout, &wanted)?,
        ..Plan::default()
    })
}

/// Files below a folder whose path, from `root` on, is wanted; in order.
fn below(folder: &Path, root: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(below(&path, root, wanted)?);
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if wanted(&name) {
            found.push(Source { name, path, needs_common: false });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout of empty files, and a prefix with the header alone.
    fn folders(name: &str, files: &[&str]) -> (PathBuf, PathBuf, PathBuf) {
        let root = std::env::temp_dir().join(format!("shunt-strangers-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let (checkout, prefix) = (root.join("checkout"), root.join("prefix"));
        let header = prefix.join("share/shunt/deep-ep/ibgda_device.cuh");
        for file in files.iter().map(|file| checkout.join(file)).chain([header.clone()]) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "theirs").unwrap();
        }
        std::fs::write(header, "ours").unwrap();
        (checkout, prefix, root.join("work"))
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.sources.iter().map(|source| source.name.as_str()).collect()
    }

    #[test]
    fn deep_ep_of_both_layouts_gets_our_header() {
        let v1 = ["csrc/kernels/ibgda_device.cuh", "csrc/kernels/internode.cu", "csrc/deep_ep.cpp"];
        let (checkout, prefix, work) = folders("v1", &v1);
        let plan = Plan::of(Kind::DeepEp, &checkout, &prefix, &work, "").unwrap();
        assert_eq!(names(&plan), ["csrc/kernels/internode.cu"]);
        assert_eq!(std::fs::read_to_string(work.join("csrc/kernels/ibgda_device.cuh")).unwrap(), "ours");
        let legacy = "csrc/kernels/legacy/ibgda_device.cuh";
        let later = [
            legacy,
            "csrc/kernels/legacy/internode.cu",
            "csrc/kernels/backend/nvshmem.cu",
            "csrc/kernels/backend/nccl.cu",
        ];
        let (checkout, prefix, work) = folders("later", &later);
        let plan = Plan::of(Kind::DeepEp, &checkout, &prefix, &work, "").unwrap();
        assert_eq!(names(&plan), ["csrc/kernels/backend/nvshmem.cu", "csrc/kernels/legacy/internode.cu"]);
        assert_eq!(std::fs::read_to_string(work.join(legacy)).unwrap(), "ours");
        assert_eq!(
            std::fs::read_to_string(checkout.join(legacy)).unwrap(),
            "theirs",
            "the checkout is only read"
        );
    }

    #[test]
    fn programs_share_what_is_common_and_examples_do_not() {
        let files =
            ["perftest/common/utils.cu", "perftest/host/coll/a.cpp", "examples/ring.cu", "examples/x.txt"];
        let (checkout, prefix, work) = folders("perftest", &files);
        let plan = Plan::of(Kind::Perftest, &checkout, &prefix, &work, "").unwrap();
        assert_eq!(names(&plan), ["perftest/host/coll/a.cpp", "examples/ring.cu"]);
        assert_eq!(plan.sources.iter().map(|s| s.needs_common).collect::<Vec<_>>(), [true, false]);
        assert_eq!(plan.common[0].name, "perftest/common/utils.cu");
        let only = Plan::of(Kind::Perftest, &checkout, &prefix, &work, "ring").unwrap();
        assert_eq!(names(&only), ["examples/ring.cu"]);
    }

    #[test]
    fn a_checkout_of_something_else_is_refused() {
        let (checkout, prefix, work) = folders("else", &["csrc/readme.md"]);
        let error = Plan::of(Kind::Pplx, &checkout, &prefix, &work, "").unwrap_err().to_string();
        assert!(error.contains("expected a checkout with sources of pplx"), "{error}");
        assert!(
            Kind::names()
                .split(", ")
                .all(|name| Kind::from_name(name).is_some_and(|kind| kind.name() == name))
        );
    }
}
