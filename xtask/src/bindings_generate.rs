//! What `cargo xtask bindings` does once bindgen is in: headers in, `types.rs` and `functions.rs` out.

use crate::bindings_home::{Home, LIBFABRIC};
use anyhow::{Context, Result, bail};
use quote::ToTokens;
use shunt_task::sh;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use syn::{ForeignItem, Item};

/// Functions by library, with the first version of the project that has them. A library that lacks one is refused
/// with this number.
struct Group {
    library: &'static str,
    since: u32,
    functions: &'static [&'static str],
}

/// What is made of a project's headers.
struct Source {
    header: &'static str,
    /// Tables of functions, and the file that each is looked up in.
    libraries: &'static [(&'static str, &'static str)],
    functions: &'static [Group],
    /// Types that no listed function names: what inline functions of the headers use, and enumerations.
    types: &'static [&'static str],
    /// Constants that are macros, or belong to enumerations without a name.
    vars: &'static [&'static str],
    /// Types that have a mutex of pthread, whose size differs between architectures: what the headers say of their
    /// layout holds on this one.
    have_a_mutex: &'static [&'static str],
    /// Types that are not made.
    blocked: &'static [&'static str],
    /// What the types of libc are.
    uses: &'static str,
}

const RDMA: Source = Source {
    header: "#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n",
    libraries: &[(VERBS, "libibverbs.so.1"), (MLX5, "libmlx5.so.1")],
    functions: FUNCTIONS,
    types: TYPES,
    vars: VARS,
    have_a_mutex: HAVE_A_MUTEX,
    // The last one is packed with an alignment of 4: bindgen loses its fields. Shunt has this segment in shunt-layout.
    blocked: &["pthread_.*|timespec", "mlx5_wqe_ctrl_seg"],
    uses: "use libc::{pthread_cond_t, pthread_mutex_t, timespec};",
};

const FABRIC: Source = Source {
    header: "#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
             #include <rdma/fi_cm.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_errno.h>\n",
    libraries: &[("Fabric", "libfabric.so.1")],
    functions: &[Group {
        library: "Fabric",
        since: 1,
        functions: &["fi_dupinfo", "fi_fabric", "fi_freeinfo", "fi_getinfo", "fi_strerror", "fi_version"],
    }],
    types: &[
        "fi_(info|.*_attr|ops.*|msg|msg_rma|rma_iov|context2?|cq_.*|eq_.*|mr_mode|progress|threading|av_type|ep_type)",
        "fid.*",
    ],
    vars: &["FI_.*"],
    have_a_mutex: &[],
    blocked: &["iovec|timespec|pthread_.*|sockaddr.*"],
    uses: "use libc::iovec;",
};

const VERBS: &str = "Verbs";
const MLX5: &str = "Mlx5";

#[rustfmt::skip]
const FUNCTIONS: &[Group] = &[
    Group { library: VERBS, since: 13, functions: &[
        "ibv_ack_async_event", "ibv_ack_cq_events", "ibv_alloc_pd", "ibv_close_device", "ibv_create_ah",
        "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp", "ibv_create_srq", "ibv_dealloc_pd",
        "ibv_dereg_mr", "ibv_destroy_ah", "ibv_destroy_comp_channel", "ibv_destroy_cq", "ibv_destroy_qp",
        "ibv_destroy_srq", "ibv_event_type_str", "ibv_fork_init", "ibv_free_device_list", "ibv_get_async_event",
        "ibv_get_cq_event", "ibv_get_device_guid", "ibv_get_device_list", "ibv_get_device_name", "ibv_modify_qp",
        "ibv_modify_srq", "ibv_node_type_str", "ibv_open_device", "ibv_port_state_str", "ibv_query_device",
        "ibv_query_gid", "ibv_query_pkey", "ibv_query_port", "ibv_query_qp", "ibv_query_srq", "ibv_reg_mr",
        "ibv_resize_cq", "ibv_wc_status_str",
    ] },
    Group { library: VERBS, since: 20, functions: &["ibv_get_pkey_index"] },
    Group { library: VERBS, since: 24, functions: &["ibv_qp_to_qp_ex"] },
    Group { library: VERBS, since: 25, functions: &["ibv_reg_mr_iova"] },
    Group { library: VERBS, since: 28, functions: &["ibv_reg_mr_iova2"] },
    Group { library: VERBS, since: 30, functions: &["ibv_get_device_index"] },
    Group { library: VERBS, since: 31, functions: &["ibv_query_ece", "ibv_set_ece"] },
    Group { library: VERBS, since: 32, functions: &["_ibv_query_gid_ex", "_ibv_query_gid_table"] },
    Group { library: VERBS, since: 34, functions: &["ibv_reg_dmabuf_mr"] },
    Group { library: VERBS, since: 36, functions: &["ibv_query_qp_data_in_order"] },
    Group { library: MLX5, since: 15, functions: &["mlx5dv_init_obj", "mlx5dv_query_device"] },
    Group { library: MLX5, since: 16, functions: &["mlx5dv_create_cq", "mlx5dv_create_qp"] },
    Group { library: MLX5, since: 21, functions: &[
        "mlx5dv_devx_alloc_uar", "mlx5dv_devx_free_uar", "mlx5dv_devx_general_cmd", "mlx5dv_devx_obj_create",
        "mlx5dv_devx_obj_destroy", "mlx5dv_devx_obj_modify", "mlx5dv_devx_obj_query", "mlx5dv_devx_query_eqn",
        "mlx5dv_devx_umem_dereg", "mlx5dv_devx_umem_reg", "mlx5dv_open_device",
    ] },
    Group { library: MLX5, since: 22, functions: &[
        "mlx5dv_devx_cq_modify", "mlx5dv_devx_cq_query", "mlx5dv_devx_qp_modify", "mlx5dv_devx_qp_query",
        "mlx5dv_is_supported",
    ] },
    Group { library: MLX5, since: 24, functions: &["mlx5dv_qp_ex_from_ibv_qp_ex"] },
    Group { library: MLX5, since: 25, functions: &[
        "mlx5dv_devx_create_event_channel", "mlx5dv_devx_destroy_event_channel", "mlx5dv_devx_get_event",
        "mlx5dv_devx_subscribe_devx_event", "mlx5dv_devx_subscribe_devx_event_fd",
    ] },
    Group { library: MLX5, since: 35, functions: &["_mlx5dv_query_port", "mlx5dv_devx_umem_reg_ex"] },
];

const TYPES: &[&str] = &[
    "verbs_context|mlx5_ib_uapi_(query_port|uar_alloc_type|devx_.*)",
    "ibv_(access|create_cq|create_cq_wc|cq_init_attr|device_cap|event|gid|mtu|node|odp|port|qp|qp_create_send_ops)_.*",
    "ibv_(qp|qp_attr|query_qp_attr|send|srq|transport|wc|wr|rate|atomic|create)_.*",
    "ibv_(mtu|rate|gid_entry|values_ex|poll_cq_attr|query_device_ex_input|device_attr_ex|modify_cq_attr)",
    "ibv_cq_attr_mask|ibv_cq_moderation|ibv_qp_init_attr_mask|ibv_gid_type|ibv_data_buf|ibv_grh",
    "mlx5dv_(ah|context|context_attr|cq|obj|obj_type|pd|qp|qp_ex|qp_init_attr|srq|devx_uar|devx_umem_in)",
    "mlx5dv_(context_attr_flags|context_comp_mask|context_flags|cq_comp_mask|qp_comp_mask|qp_create_flags)",
    "mlx5dv_(qp_init_attr_mask|uar_alloc_type|devx_async_event_hdr|devx_create_event_channel_flags)",
    "mlx5dv_(query_port_flags|qp_create_send_ops_flags|dc_type|cq_init_attr|cq_init_attr_mask|cqe_comp_res_format)",
    "mlx5dv_(devx_umem_in_mask|wqe_.*|obj)|mlx5_.*seg|mlx5_cqe64|mlx5_err_cqe|mlx5_tm_cqe",
];

const VARS: &[&str] = &[
    "IBV_(ACCESS|DEVICE|QP|SEND|WC|LINK_LAYER|QPF|SYS)_.*",
    "MLX5DV_.*",
    "MLX5_(OPCODE|WQE|CQE|INVALID|SEND|RCV|SND|ETH|CQ|QP|CQ_DOORBELL|CQ_DB|INLINE|EXTENDED)_.*",
];

const HAVE_A_MUTEX: &[&str] =
    &["ibv_context", "ibv_cq", "ibv_cq_ex", "ibv_qp", "ibv_qp_ex", "ibv_srq", "ibv_wq", "verbs_context"];

pub fn run(home: &Home, bless: bool, installed: &str) -> Result<()> {
    let Home { folder, project, .. } = home;
    let at = sh::root().join(folder);
    let source = if *project == LIBFABRIC.project { &FABRIC } else { &RDMA };
    let files = formatted(generate(home, source, installed)?)?;
    if bless {
        std::fs::create_dir_all(&at).with_context(|| format!("cannot make {folder}"))?;
        for (name, text) in &files {
            std::fs::write(at.join(name), text).with_context(|| format!("cannot write {folder}/{name}"))?;
        }
        println!("{folder}: written from {project} {installed}");
        return Ok(());
    }
    for (name, text) in &files {
        let path = at.join(name);
        let have = std::fs::read_to_string(&path).with_context(|| format!("no {folder}/{name}"))?;
        if have != *text {
            bail!("{folder}/{name} is not what the headers give; {}", first_difference(&have, text));
        }
    }
    println!("{folder}: as the headers of {project} {installed} give it");
    Ok(())
}

fn first_difference(have: &str, want: &str) -> String {
    let at = have.lines().zip(want.lines()).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| have.lines().count().min(want.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("nothing").trim().to_owned();
    format!("line {}: got '{}', expected '{}'", at + 1, line(have), line(want))
}

/// The three files, not formatted.
fn generate(home: &Home, source: &Source, installed: &str) -> Result<Vec<(&'static str, String)>> {
    let mut builder = bindgen::builder()
        .header_contents("shunt.h", source.header)
        .use_core()
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|error| anyhow::anyhow!("{error}"))?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true)
        .derive_debug(false)
        .layout_tests(true)
        .formatter(bindgen::Formatter::None);
    builder = source.blocked.iter().fold(builder, |builder, types| builder.blocklist_type(types));
    for name in source.functions.iter().flat_map(|group| group.functions) {
        builder = builder.allowlist_function(name);
    }
    builder = source.types.iter().fold(builder, |builder, types| builder.allowlist_type(types));
    builder = source.vars.iter().fold(builder, |builder, vars| builder.allowlist_var(vars));
    let made =
        builder.generate().context("bindgen cannot read the headers (libclang: apt's libclang-dev)")?;
    let file = syn::parse_file(&made.to_string()).context("bindgen's output is not Rust")?;
    let mut types = String::from(
        "//! Types and constants. Generated by `cargo xtask bindings --bless`: not to be edited.\n\n",
    );
    writeln!(types, "{}\n", source.uses)?;
    let mut declared = Vec::new();
    for item in &file.items {
        match item {
            Item::ForeignMod(block) => declared.extend(&block.items),
            item => {
                let text = item.to_token_stream().to_string();
                if source.have_a_mutex.iter().any(|name| text.contains(&format!("\"Size of {name}\""))) {
                    types.push_str("#[cfg(target_arch = \"x86_64\")]\n");
                }
                writeln!(types, "{text}")?;
            }
        }
    }
    let module = format!(
        "//! What the headers of {0} say. Generated by `cargo xtask bindings --bless`: not to be edited.\n\n\
         pub mod functions;\npub mod types;\n\n/// The {0} whose headers these are of.\n{1}\n",
        home.project,
        home.line(installed)
    );
    Ok(vec![("mod.rs", module), ("types.rs", types), ("functions.rs", functions(source, &declared)?)])
}

/// A call of `library!` for each library, which makes the table of its functions.
fn functions(source: &Source, declared: &[&ForeignItem]) -> Result<String> {
    let mut out = String::from(
        "//! Functions by library. Generated by `cargo xtask bindings --bless`: not to be edited.\n\n\
         use super::types::*;\nuse core::ffi::{c_char, c_int, c_uint, c_void};\n",
    );
    for (library, file) in source.libraries {
        writeln!(out, "\ncrate::library::library! {{\n    {library}, \"{file}\";")?;
        for group in source.functions.iter().filter(|group| group.library == *library) {
            for name in group.functions {
                let signature = declared.iter().find_map(|item| match item {
                    ForeignItem::Fn(item) if item.sig.ident == name => Some(&item.sig),
                    _ => None,
                });
                let signature =
                    signature.with_context(|| format!("the headers declare no function {name}"))?;
                writeln!(out, "    {} {};", group.since, tidied(&signature.to_token_stream().to_string()))?;
            }
        }
        out.push_str("}\n");
    }
    Ok(out)
}

/// Tokens with the spaces a person would set: rustfmt leaves the inside of macro calls alone.
fn tidied(tokens: &str) -> String {
    let mut text = tokens.to_owned();
    for (from, to) in [
        (":: core :: ffi :: ", ""),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ,", ","),
        (" :: ", "::"),
        (":: ", "::"),
        (" : ", ": "),
        ("* mut ", "*mut "),
        ("* const ", "*const "),
        (",)", ")"),
    ] {
        text = text.replace(from, to);
    }
    text
}

/// Through rustfmt with the house's settings.
fn formatted(files: Vec<(&'static str, String)>) -> Result<Vec<(&'static str, String)>> {
    let scratch: PathBuf = sh::target_dir().join("bindings");
    std::fs::create_dir_all(&scratch)?;
    files.into_iter().map(|(name, text)| Ok((name, format_one(&scratch, name, &text)?))).collect()
}

fn format_one(scratch: &Path, name: &str, text: &str) -> Result<String> {
    // Under another name than mod.rs, whose modules rustfmt would look for.
    let path = scratch.join(format!("one_{name}"));
    let parts: Vec<String> = text.lines().map(|line| line.replace("pub mod ", "// pub mod ")).collect();
    std::fs::write(&path, parts.join("\n") + "\n")?;
    let mut rustfmt = sh::command("rustfmt");
    rustfmt.args(["--edition", "2024", "--config-path"]).arg(sh::root().join("rustfmt.toml")).arg(&path);
    sh::capture(&mut rustfmt)?;
    Ok(std::fs::read_to_string(&path)?.replace("// pub mod ", "pub mod "))
}
