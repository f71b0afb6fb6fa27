//! Tests of `launcher`.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

const TORCH: [(&str, &str); 4] =
    [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "10.0.0.7"), ("MASTER_PORT", "29500")];
const SRUN: [(&str, &str); 5] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NODELIST", "gpu[07-09,12]"),
    ("SLURM_JOB_ID", "100"),
    ("SLURM_STEP_ID", "2"),
];
const MPIRUN: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "2"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("PMIX_RANK", "2"),
    ("PMIX_NAMESPACE", "121"),
];

fn with(pairs: Pairs<'_>) -> Result<Option<Place>, LauncherError> {
    find(&|name| pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned()))
}

fn place(pairs: Pairs<'_>) -> (Launcher, u32, Option<u32>, Option<String>) {
    let place = with(pairs).unwrap().unwrap();
    (place.launcher, place.rank, place.world, place.root)
}

fn refused(pairs: Pairs<'_>) -> String {
    with(pairs).unwrap_err().to_string()
}

#[test]
fn nobody_started_it_or_not_all_is_there() {
    assert_eq!(with(&[]), Ok(None));
    assert_eq!(with(&[("RANK", "0")]), Ok(None));
    assert_eq!(place(&[("RANK", "0"), ("WORLD_SIZE", "1")]), (Launcher::Torch, 0, Some(1), None));
    // An allocation is no step: a batch script has rank 0 of all its tasks.
    assert_eq!(with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "7")]), Ok(None));
    let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_ID", "4294967291")];
    assert_eq!(with(&batch), Ok(None));
}

#[test]
fn the_order_of_precedence() {
    let ours = [("SHUNT_RANK", "5"), ("SHUNT_WORLD", "6"), ("SHUNT_ROOT", "127.0.0.1:9")];
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    let pod = [("JOB_COMPLETION_INDEX", "1")];
    let parts: [(Launcher, Pairs<'_>); 7] = [
        (Launcher::Shunt, &ours),
        (Launcher::Torch, &TORCH),
        (Launcher::OpenMpi, &MPIRUN),
        (Launcher::Pmix, &MPIRUN[2..]),
        (Launcher::Pmi, &pmi),
        (Launcher::Slurm, &SRUN),
        (Launcher::Kubernetes, &[("JOB_COMPLETION_INDEX", "1"), ("SHUNT_WORLD", "2")]),
    ];
    assert_eq!(parts.map(|(launcher, _)| launcher), Launcher::ALL);
    for first in 0..parts.len() {
        let all: Vec<_> =
            parts[first..].iter().flat_map(|(_, pairs)| pairs.iter().copied()).chain(pod).collect();
        assert_eq!(place(&all).0, parts[first].0, "{all:?}");
    }
}

#[test]
fn torchrun() {
    let root = |port: &str| (Launcher::Torch, 1, Some(4), Some(port.to_owned()));
    assert_eq!(place(&TORCH), root("10.0.0.7:29501"));
    assert_eq!(place(&[&TORCH[..], &[("SHUNT_ROOT", "10.0.0.8:7")]].concat()), root("10.0.0.8:7"));
    assert_eq!(place(&[&TORCH[..], &[("LOCAL_WORLD_SIZE", "4")]].concat()), root("127.0.0.1:29501"));
    assert_eq!(place(&[&TORCH[..], &[("LOCAL_WORLD_SIZE", "2")]].concat()), root("10.0.0.7:29501"));
    assert!(refused(&TORCH[..2]).contains("torchrun gives MASTER_ADDR=\"\""));
    assert!(refused(&TORCH[..3]).contains("MASTER_PORT"));
}

#[test]
fn srun() {
    let root = |root: &str| (Launcher::Slurm, 3, Some(4), Some(root.to_owned()));
    assert_eq!(place(&SRUN), root("gpu07:23102"));
    assert_eq!(place(&[&SRUN[..], &[("SLURM_STEP_NUM_NODES", "1")]].concat()), root("127.0.0.1:23102"));
    // The step's own number of tasks, not the allocation's.
    let fewer = [&[("SLURM_STEP_NUM_TASKS", "5")], &SRUN[..]].concat();
    assert_eq!(place(&fewer).2, Some(5));
    let other = [&SRUN[..2], &[("SLURM_JOB_NODELIST", "[")], &SRUN[3..]].concat();
    assert!(refused(&other).contains("a list of nodes"));
}

#[test]
fn kubernetes() {
    let pod = [("JOB_COMPLETION_INDEX", "3"), ("SHUNT_WORLD", "4"), ("SHUNT_ROOT", "job-0.svc:7000")];
    assert_eq!(place(&pod), (Launcher::Kubernetes, 3, Some(4), Some("job-0.svc:7000".to_owned())));
    assert!(refused(&pod[..1]).contains("expected SHUNT_WORLD and SHUNT_ROOT=HOST:PORT"));
    assert_eq!(place(&[pod[0], ("SHUNT_WORLD", "1")]).2, Some(1));
}

#[test]
fn jobs_of_one_in_a_job_of_many_are_refused() {
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1")];
    for outer in [&MPIRUN[..], &MPIRUN[2..], &SRUN[..], &[("PMI_RANK", "0"), ("PMI_SIZE", "4")]] {
        let said = refused(&[&alone[..], outer].concat());
        assert!(
            said.contains("torchrun says that this is rank 0 of 1") && said.contains("unset RANK"),
            "{said}"
        );
    }
    let ours = [("SHUNT_RANK", "0"), ("SHUNT_WORLD", "1"), ("SHUNT_ROOT", "127.0.0.1:9")];
    assert!(refused(&[&ours[..], &MPIRUN[..]].concat()).contains("Open MPI says rank 2 of 4"));
    // One process of a batch script's allocation is one.
    let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
    assert_eq!(place(&[&alone[..], &batch[..]].concat()).2, Some(1));
}

#[test]
fn jobs_are_told_apart() {
    let id = |pairs: Pairs<'_>| with(pairs).unwrap().unwrap().id;
    assert_eq!(id(&MPIRUN), "Open MPI 121");
    assert_eq!(id(&SRUN), "srun  100 2");
    assert_ne!(id(&TORCH), id(&[&[("TORCHELASTIC_RUN_ID", "b")], &TORCH[..]].concat()));
    assert!(refused(&[("PMI_RANK", "one"), ("PMI_SIZE", "2")]).contains("\"one\""));
}
