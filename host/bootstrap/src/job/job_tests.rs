//! Tests of `job`.

use super::*;

type Case<'a> = (&'a Flags, &'a [(&'a str, &'a str)], &'a str);

const SECRET: (&str, &str) = ("SHUNT_SECRET", "0123456789abcdef");

fn with(flags: &Flags, pairs: &[(&str, &str)]) -> Result<Option<Job>, JobError> {
    Job::from_lookup(flags, &|name| {
        pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| value.to_string())
    })
}

fn flags(rank: u32, world: u32, root: &str) -> Flags {
    Flags { rank: Some(rank), world: Some(world), root: Some(root.to_owned()) }
}

/// Where the job meets, and the socket.
fn root(job: &Job) -> (String, Option<i32>) {
    match &job.meeting {
        Meeting::Root { root, fd, .. } => (root.to_string(), *fd),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_given_is_no_job() {
    assert_eq!(with(&Flags::default(), &[]), Ok(None));
    assert_eq!(with(&Flags::default(), &[SECRET, ("SHUNT_FABRIC", "x")]), Ok(None));
}

#[test]
fn flags_win_over_the_environment() {
    let env = [("SHUNT_RANK", "0"), ("SHUNT_WORLD", "2"), ("SHUNT_ROOT", "10.0.0.1:70"), SECRET];
    let job = with(&Flags::default(), &env).unwrap().unwrap();
    assert_eq!((job.rank, job.world, root(&job)), (0, 2, ("10.0.0.1:70".to_owned(), None)));
    assert_eq!((job.fabric, job.launcher), (None, Launcher::Shunt));
    let job = with(&flags(3, 4, "[::1]:9"), &env).unwrap().unwrap();
    assert_eq!((job.rank, job.world, root(&job)), (3, 4, ("[::1]:9".to_owned(), None)));
    assert!(!format!("{job:?}").contains(SECRET.1));
}

#[test]
fn what_belongs_to_a_launcher() {
    let env =
        [("SHUNT_ROOT_FD", "5"), ("SHUNT_FABRIC", "run-1"), ("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "^lo")];
    let job = with(&flags(0, 2, "127.0.0.1:9"), &env).unwrap().unwrap();
    assert_eq!((job.fabric.as_deref(), root(&job).1), (Some("run-1"), Some(5)));
    assert_eq!(job.interface, Some("^lo".parse().unwrap()));
    assert!(matches!(job.meeting, Meeting::Root { secret: SecretSource::User(_), .. }));
}

#[test]
fn what_makes_no_job_is_refused_with_what_would() {
    let none = Flags::default();
    let only_rank = Flags { rank: Some(0), ..Flags::default() };
    let here = "127.0.0.1:9";
    let file = ("SHUNT_SECRET_FILE", "/x");
    let cases: [Case; 14] = [
        (&only_rank, &[], "rank is given, world is not"),
        (&only_rank, &[("SHUNT_WORLD", "2")], "rank is given, root is not"),
        (&none, &[("SHUNT_ROOT", here)], "root is given, rank is not"),
        (&none, &[("SHUNT_RANK", "one")], "SHUNT_RANK: expected"),
        (&none, &[("SHUNT_WORLD", "0")], "SHUNT_WORLD: expected"),
        (&none, &[("SHUNT_ROOT", "here")], "HOST:PORT"),
        (&flags(2, 2, here), &[], "expected 0 to 1 in a world of 2"),
        (&flags(0, 0, here), &[], "expected 1 to 4096"),
        (&flags(0, 1, "nowhere"), &[], "got \"nowhere\""),
        (&flags(0, 2, "10.0.0.1:9"), &[], "set SHUNT_SECRET or SHUNT_SECRET_FILE"),
        (&flags(0, 2, here), &[SECRET, file], "both set"),
        (&flags(0, 2, here), &[("SHUNT_SECRET", "short")], "at least 16 random characters"),
        (&flags(1, 2, here), &[("SHUNT_ROOT_FD", "3")], "only rank 0 listens"),
        (&flags(0, 2, here), &[("SHUNT_FABRIC", "../x")], "letters, digits"),
    ];
    for (flags, env, want) in cases {
        let error = with(flags, env).unwrap_err().to_string();
        assert!(error.contains(want), "{error} does not say {want}");
        assert!(!error.contains("\"short\""), "{error}");
    }
}

const TORCH: [(&str, &str); 5] = [
    ("RANK", "1"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("MASTER_ADDR", "node1"),
    ("MASTER_PORT", "29500"),
];

/// Programs of a launcher need nothing but its variables.
#[test]
fn a_launchers_job_is_this_process_job() {
    let none = Flags::default();
    let job = with(&none, &[&TORCH[..], &[("SHUNT_ROOT_FD", "3")]].concat()).unwrap().unwrap();
    assert_eq!((job.launcher, job.rank, job.world), (Launcher::Torch, 1, 4));
    assert_eq!(root(&job), ("127.0.0.1:29501".to_owned(), None), "the socket is another job's");
    let error = with(&none, &[&TORCH[..2], &TORCH[3..]].concat()).unwrap_err().to_string();
    assert!(error.contains("node1:29501") && error.contains("set SHUNT_SECRET"), "{error}");
    let flagged = with(&flags(0, 2, "127.0.0.1:9"), &TORCH).unwrap().unwrap();
    assert_eq!((flagged.launcher, flagged.world), (Launcher::Shunt, 2), "flags win");
    assert_eq!(with(&none, &[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None), "alone");
}

#[test]
fn launchers_that_know_no_address_carry_the_id_or_say_what_is_missing() {
    let none = Flags::default();
    let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
    let error = with(&none, &mpi).unwrap_err().to_string();
    assert!(error.contains("rank 1 of 2") && error.contains("SHUNT_ROOT"), "{error}");
    let met = with(&none, &[&mpi[..], &[("SHUNT_ROOT", "localhost:7000")]].concat()).unwrap().unwrap();
    assert_eq!(root(&met).0, "localhost:7000");
    let pmix = [("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "a")];
    let met = with(&none, &[&mpi[..], &pmix].concat()).unwrap().unwrap();
    assert_eq!((met.meeting, met.world), (Meeting::Pmix, 2));
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    assert!(with(&none, &pmi).is_err());
    let met = with(&none, &[&pmi[..], &[("PMI_FD", "7")]].concat()).unwrap().unwrap();
    assert_eq!(met.meeting, Meeting::Pmi(7));
}

/// Two jobs of one user that come to one port have different keys, and each rank of a job has the same.
#[test]
fn a_rank_of_another_job_has_another_key() {
    let key = |run: &str| {
        let job = with(&Flags::default(), &[&TORCH[..], &[("TORCHELASTIC_RUN_ID", run)]].concat());
        let joining = job.unwrap().unwrap().join().unwrap();
        (joining.options.secret, joining.fabric)
    };
    assert_eq!(key("a"), key("a"));
    assert!(key("a").0 != key("b").0 && key("a").1 != key("b").1);
    check_fabric_name(&key("a").1).unwrap();
}
