"""Runs DeepEP's own tests on `shunt_ep`, in processes on a CPU, and prints what passed, what was refused and what failed.

    python python/deepep/run.py --checkout DIR [--only low-latency|logfmt|internode|compatibility]... [--keep]

`DIR` is a checkout of DeepEP v1.2.1. Its tests are copied and changed in what is the device's and the backend's, and in
nothing else: `nccl` is `gloo`, `cuda` is `cpu`, and timers are wall clocks that run a call once. Each change is printed.
Needs torch, NumPy and `shunt_ep`. Exit status: 0 where nothing failed, 1 otherwise, 2 bad usage.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What is changed in the copies: what for, the pattern, and what stands in its place.
CHANGES = (
    ("backend", r"'nccl'", "'gloo'"),
    # Gloo gathers into a list of tensors of the shape that each gives.
    ("backend", r"all_gather_into_tensor\(all_topk_idx,", "all_gather(list(all_topk_idx),"),
    ("device", r"device='cuda'", "device='cpu'"),
    ("device", r"set_default_device\('cuda'\)", "set_default_device('cpu')"),
    ("device", r"if 'device_id' in sig.parameters:", "if False:"),
    ("device", r"torch\.cuda\.set_device\(local_rank\)", "pass"),
    ("a GPU's work, on a CPU", r"\(8192, 8192\)", "(64, 64)"),
)
# Of 16 processes on few cores a soft NIC may not run for seconds, and nothing fails in these tests. The floor is for paths
# that are fast as a rule. Frames that waited for 250 ms are dropped: sent again after 1 s, they arrive before a path is
# suspected, and seven times again outlast a NIC that does not run.
PATIENCE = {
    "SHUNT_SUSPECT": "10s",
    "SHUNT_SUSPECT_FLOOR": "10s",
    "SHUNT_GIVE_UP": "600s",
    "NVSHMEM_IB_TIMEOUT": "18",
    "SHUNT_BACKUPS": "1",
}
# Few ranks, experts and tokens: what is compared is the same.
LOW_LATENCY = "--num-processes 4 --num-tokens 16 --hidden 1024 --num-topk 4 --num-experts 16"
INTERNODE = "--num-processes 8 --num-tokens 24 --hidden 512 --num-topk 4 --num-experts 32"
# By name: the file, its options, nodes that it is started on, seconds at most.
RUNS = {
    "low-latency": ("test_low_latency.py", LOW_LATENCY, 1, 400),
    "logfmt": ("test_low_latency.py", LOW_LATENCY + " --use-logfmt", 1, 200),
    "internode": ("test_internode.py", INTERNODE, 2, 1800),
    "compatibility": ("test_internode.py", INTERNODE + " --test-ll-compatibility", 2, 2400),
}


def copy_tests(checkout: Path, to: Path) -> list[str]:
    """Copies tests and changes them; how often each change was made, a line each."""
    counts = dict.fromkeys(CHANGES, 0)
    for source in sorted((checkout / "tests").glob("*.py")):
        text = source.read_text()
        for change in CHANGES:
            text, made = re.subn(change[1], lambda _, new=change[2]: new, text)
            counts[change] += made
        if source.name == "utils.py":
            text += "\n\nfrom on_cpu import bench, bench_kineto  # noqa: E402, F401\n"
        (to / source.name).write_text(text)
    lines = [f"  {why}: {old} is {new}, {made} times" for (why, old, new), made in counts.items()]
    lines.append("  patience: " + ", ".join(f"{name}={value}" for name, value in PATIENCE.items()))
    return [*lines, "  timers: bench and bench_kineto of utils.py run a call once and take the wall clock's time"]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def run(name: str, folder: Path, threads: int) -> tuple[int | None, list[str], float]:
    """The status, None for one that ran out of time; what each node said; seconds."""
    file, options, nodes, seconds = RUNS[name]
    paths = [str(folder), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    common = PATIENCE | os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(nodes),
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": str(threads),
    }
    began, logs = time.monotonic(), [folder / f"{name}-{node}.log" for node in range(nodes)]
    command = [sys.executable, str(folder / file), *options.split()]
    started = []
    for node, log in enumerate(logs):
        out, env = log.open("w"), common | {"RANK": str(node)}
        started.append(
            subprocess.Popen(command, env=env, cwd=folder, stdout=out, stderr=out, start_new_session=True)
        )
    status, late = 0, False
    for process in started:
        try:
            left = max(1.0, seconds - (time.monotonic() - began))
            status = process.wait(30 if status or late else left) or status
        except subprocess.TimeoutExpired:
            late = True
            # With all that it has started: a session of its own.
            os.killpg(process.pid, 9)
            process.wait()
    return None if late and not status else status, [log.read_text() for log in logs], time.monotonic() - began


def variants(said: str) -> list[tuple[str, bool]]:
    """Variants that rank 0 began, and whether each is known to have passed."""
    found = [(name, False) for name in re.findall(r"^\[variant\] (.*)$", said, re.MULTILINE)]
    # The next one begins once the one before has passed all that is asserted of it.
    found = [(name, number + 1 < len(found)) for number, (name, _) in enumerate(found)]
    for line in re.findall(r"^\[testing\] (Running .*)$", said, re.MULTILINE):
        name, passed, _ = line.partition(" ... passed")
        found.append((name.removesuffix(" ..."), bool(passed)))
    return found


def refusal(said: str) -> str | None:
    """The sentence of a refusal of ours."""
    found = re.findall(r"^(?:ValueError|TypeError|shunt_ep\.Differs): (.* (?:was|were) given.*)$", said, re.MULTILINE)
    return found[0] if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="a checkout of DeepEP v1.2.1")
    parser.add_argument("--only", action="append", choices=sorted(RUNS), help="only this one; may be repeated")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch in each process")
    parser.add_argument("--keep", action="store_true", help="keep the folder with copies and logs, and name it")
    given = parser.parse_args()
    if not (given.checkout / "tests" / "test_low_latency.py").is_file():
        parser.error(f"--checkout {given.checkout}: expected tests/test_low_latency.py there, got none")
    folder = Path(tempfile.mkdtemp(prefix="deepep-"))
    print(f"DeepEP's tests of {given.checkout}, changed:")
    print("\n".join(copy_tests(given.checkout, folder)), flush=True)
    failed = 0
    rows = []
    for name in given.only or RUNS:
        status, said, seconds = run(name, folder, given.threads)
        # Each node says the same of variants.
        all_of_it = variants(said[0])
        passed = [variant for variant, well in all_of_it if well]
        sentence = refusal("\n".join(said)) if status != 0 else None
        if status == 0:
            # Behind the last variant the test ended well.
            rows += [(name, variant, "passed") for variant, _ in all_of_it]
            rows.append((name, f"the whole test, {seconds:.0f} s", "passed"))
        elif sentence:
            rows += [(name, variant, "passed") for variant in passed]
            rows.append((name, "the whole test", f"refused: {sentence}"))
        else:
            failed += 1
            how = "did not end in time" if status is None else f"status {status}"
            rows += [(name, variant, "passed" if well else "FAILED") for variant, well in all_of_it]
            rows.append((name, "the whole test", f"FAILED: {how}"))
            for node, lines in enumerate(said):
                print(f"--- {name}, node {node}, the last of what it said:", *lines.splitlines()[-40:], sep="\n", flush=True)
    # Variants come once for each input.
    counts = Counter(rows)
    wide = max(len(variant) for _, variant, _ in rows)
    for (name, variant, what), times in counts.items():
        print(f"{name:14} {variant:{wide}} {what}{f', {times} times' if times > 1 else ''}")
    print(", ".join(f"{times} {what}" for what, times in Counter(what.split(":")[0] for *_, what in rows).items()))
    if given.keep:
        print(f"copies and logs: {folder}")
    else:
        for file in folder.rglob("*"):
            if file.is_file():
                file.unlink()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
