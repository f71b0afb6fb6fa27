//! `shunt topology`: what this machine has, and the rails ranked for each GPU.

mod dot;
mod groups;
mod json;
mod svg;
mod text;

use crate::files::{Root, save};
use crate::print;
use clap::Args;
use shunt_host::config::EnvConfig;
use shunt_host::discover::discover;
use shunt_host::topology::{self, select::Selection};
use std::path::PathBuf;

/// Show RDMA ports and GPUs, and the rails ranked for each GPU.
///
/// NVSHMEM_HCA_LIST, NVSHMEM_HCA_PE_MAPPING, NVSHMEM_ENABLE_NIC_PE_MAPPING, NVSHMEM_HCA_PREFIX and those that choose a
/// GID are followed; `shunt env` lists them.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0, 1 if there are RDMA devices and a GPU has no rail that can be used, 2 if a \
                        variable or an argument makes no sense."
)]
pub struct Arguments {
    #[command(flatten)]
    root: Root,
    /// One JSON object.
    #[arg(long, conflicts_with = "dot")]
    json: bool,
    /// A Graphviz graph.
    #[arg(long)]
    dot: bool,
    /// Draw the picture into FILE too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let root = match arguments.root.open() {
        Ok(root) => root,
        Err(error) => return print::usage(&error),
    };
    if let Some(Err(error)) = arguments.svg.as_ref().map(|path| arguments.root.check_other("--svg", path)) {
        return print::usage(&error);
    }
    let lookup = |name: &str| std::env::var(name).ok();
    let (selection, config) = match (Selection::from_lookup(&lookup), EnvConfig::from_lookup(&lookup)) {
        (Ok(selection), Ok(config)) => (selection, config),
        (Err(error), _) | (_, Err(error)) => return print::usage(&error),
    };
    let inventory = discover(&root);
    let topology = match topology::rank(&inventory, &selection, config.backups) {
        Ok(topology) => topology,
        Err(error) => return print::usage(&error),
    };
    let picture = |path: &PathBuf| save(path, &svg::draw(&inventory, &topology));
    for written in [arguments.root.keep(&root), arguments.svg.as_ref().map_or(Ok(()), picture)] {
        if let Err(error) = written {
            return print::usage(&error);
        }
    }
    let out = if arguments.json {
        json::write(&inventory, &topology)
    } else if arguments.dot {
        dot::write(&inventory, &topology)
    } else {
        text::write(&inventory, &topology, root.is_machine())
    };
    let lost = !inventory.rdma.is_empty() && topology.gpu_without_rail().is_some();
    print::stdout(&out, u8::from(lost))
}
