//! The shared library has a name of its own. The loader knows a library by that name and not by its file: under
//! NVSHMEM's, the second in a process that PyTorch shares would be given the one that came first. Programs
//! still link it as `nvshmem_host`. What it calls of its own is bound inside it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt_nvshmem.so.3");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
