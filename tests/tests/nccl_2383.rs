//! NVIDIA/nccl#2383, over the three kinds of signal (scenario 1). What it is made of stands in
//! `tests/src/scenarios/nccl_2383.rs`, for its breaks to be run against it.

use shunt_tests::scenarios::hold;

#[test]
fn scenario_01_nccl_2383_with_truth() {
    hold("nccl_2383_with_truth");
}

#[test]
fn scenario_01_nccl_2383_without_truth() {
    hold("nccl_2383_without_truth");
}
