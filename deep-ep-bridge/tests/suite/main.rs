//! The buffer on a simulated cluster: layers against the reference, without faults and with all kinds of them.

mod ends;
mod faults;
mod layers;
mod mask;
mod misuse;
mod nodes;
mod normal;
mod normal_calls;
mod normal_clean;
mod normal_faults;
mod normal_held;
mod normal_warps;
mod numbers;
mod warps;
mod wire;
