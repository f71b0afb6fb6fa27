//! The shared library carries the name that programs linked against NVSHMEM ask for, wherever the file lies.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvshmem_host.so.3");
}
