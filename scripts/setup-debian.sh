#!/usr/bin/env bash
# Installs what the tests need besides cargo and a bare Debian lacks, as root. Prints each command before it runs it.
#
#   setup-debian.sh          install what is missing
#   setup-debian.sh --check  print what is missing and what for; status 1 if anything is
#
# `cargo xtask test` needs gcc alone; it skips and counts what needs the rest. `cargo xtask ci` needs all of it.
set -euo pipefail

check=
case "${1-}" in
    '') ;;
    --check) check=1 ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

packages=()
want() { # PACKAGES PURPOSE: asked for where the command before it failed
    for package in $1; do packages+=("$package"); done
    echo "missing: $1 ($2)"
}
has() { command -v "$1" >/dev/null 2>&1; }
python_has() { has python3 && python3 -c "import $1" 2>/dev/null; }
libclang() { # of the C++ interface alone bindgen has no use
    [ -n "${LIBCLANG_PATH-}" ] ||
        compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null ||
        compgen -G '/usr/lib/*/libclang-[0-9]*.so*' >/dev/null
}

has cc || want "gcc libc6-dev" "linker"
has c++ || want g++ "C++ programs, libFuzzer"
[ -f /usr/include/infiniband/mlx5dv.h ] || want libibverbs-dev "C headers of mlx5"
[ -f /etc/libibverbs.d/mlx5.driver ] || want ibverbs-providers "libmlx5"
has dpkg-shlibdeps || want dpkg-dev "stage package"
has cmake || want cmake "stages prefix and package"
has ibv_devinfo || want ibverbs-utils "stage soft-rdma"
has rping || want rdmacm-utils "stages soft-rdma and verbs: programs that connect by librdmacm"
has rdma || want iproute2 "stages soft-rdma and netns"
has ib_write_bw || want perftest "stage soft-rdma"
has ucx_perftest || want ucx-utils "UCX on soft NICs, in stages soft-rdma and verbs"
[ -f /usr/include/ucp/api/ucp.h ] || want libucx-dev "messages of UCX that are compared, in stage verbs"
[ -f /usr/share/doc/rdma-core/tests/mlx5_prm_structs.py.gz ] || want python3-pyverbs "descriptions of mailboxes"
libclang || want libclang-dev "stage bindings"
[ -f /usr/include/rdma/fabric.h ] || want libfabric-dev "stage bindings, the transfer engine over libfabric"
has fi_pingpong || want libfabric-bin "fi_info and fi_pingpong on soft EFAs, in stage soft-rdma"
has clang || want clang "bitcode of the device functions, in stage prefix"
has tshark || want tshark "decodes packets of the soft NIC"
[ -d /usr/lib/python3/dist-packages/scapy ] || want python3-scapy "decodes packets of the soft NIC"
python_has ensurepip && python_has venv || want python3-venv "stages python and gpu"
has mpicc && has mpirun || want "libopenmpi-dev openmpi-bin" "MPI bootstrap, jobs that mpirun starts"
has srun && has slurmctld && has slurmd || want slurm-wlm "jobs that srun starts"
# Slurm's plugin loads the name without a version, which the development package has.
compgen -G '/usr/lib/*/libpmix.so' >/dev/null || want libpmix-dev "jobs that srun --mpi=pmix starts"
has torchrun || echo "not installed here: torchrun (python3-torch): jobs that it starts"
has chromium || want chromium "stage pages"
has redis-server || want redis-server "a store of verbs programs, in stage verbs"
has promtool && has prometheus || want prometheus "reads the metrics of ranks"

components=()
if has cargo; then
    cargo fmt --version >/dev/null 2>&1 || components+=(rustfmt)
    cargo clippy --version >/dev/null 2>&1 || components+=(clippy)
fi
for component in "${components[@]+"${components[@]}"}"; do echo "missing: rustup component $component"; done

if [ -n "$check" ]; then
    [ ${#packages[@]} = 0 ] && [ ${#components[@]} = 0 ]
    exit
fi
run() {
    echo "+ $*"
    "$@"
}
if [ ${#packages[@]} != 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    run apt-get -q update
    # Small images leave documentation out; rdma-core's descriptions of mailboxes are among it.
    run apt-get -q install -y --no-install-recommends --reinstall \
        -o "Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/tests/*" "${packages[@]}"
fi
if [ ${#components[@]} != 0 ]; then
    run rustup component add "${components[@]}"
fi
