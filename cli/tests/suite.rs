//! The command line's tests, as one program: what they share is compiled and linked once.

mod beside_torch;
mod completions;
mod deep_ep;
mod device_functions;
mod device_memory;
mod doctor;
mod env;
mod launchers;
mod log;
mod metrics;
mod nvshmem;
mod path;
mod run;
mod soft_rdma;
mod status;
mod support;
mod topology;
mod verbs;
mod view;
