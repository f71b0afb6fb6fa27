//! The shared library has a name of its own. The loader knows a library by that name and not by its file: under
//! NVSHMEM's, the second in a process that PyTorch shares would be given the one that came first. Programs
//! still link it as `nvshmem_host`. What it calls of its own is bound inside it.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=nvshmem.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt_nvshmem.so.3");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Programs that were linked with NVIDIA's ask for its version of each symbol. rustc hands the linker a list of
    // symbols that has no version, and lld alone, its linker here, takes a second one beside it.
    let target = (var("CARGO_CFG_TARGET_ARCH"), var("CARGO_CFG_TARGET_OS"));
    let usual = !var("CARGO_ENCODED_RUSTFLAGS")
        .is_ok_and(|flags| flags.contains("linker") || flags.contains("fuse-ld"));
    if target == (Ok("x86_64".into()), Ok("linux".into())) && usual {
        let map = format!("{}/nvshmem.map", var("CARGO_MANIFEST_DIR").expect("cargo says where it is"));
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={map}");
    }
}
