"""`shunt_ep` under DeepEP's name, for its own tests. Rank 0 says which variant of low latency it begins with: those
tests do not."""

import shunt_ep
from shunt_ep import *  # noqa: F403


class Buffer(shunt_ep.Buffer):
    """The buffer, which tells of variants."""

    _said, _form = None, ""

    def _tell(self, what):
        if self.rank == 0 and what != self._said:
            Buffer._said = what
            print(f"[variant] {what}", flush=True)

    def low_latency_dispatch(self, *args, use_fp8=True, round_scale=False, use_ue8m0=False, **more):
        form = "FP8, UE8M0" if use_ue8m0 else "FP8, rounded scales" if round_scale else "FP8" if use_fp8 else "BF16"
        self._form = f"{form}, {'hook' if more.get('return_recv_hook') else 'event'}"
        self._tell(f"{self._form}, dispatch")
        return super().low_latency_dispatch(
            *args, use_fp8=use_fp8, round_scale=round_scale, use_ue8m0=use_ue8m0, **more
        )

    def low_latency_combine(self, *args, zero_copy=False, use_logfmt=False, **more):
        way = "LogFMT" if use_logfmt else "zero copy" if zero_copy else "copied"
        self._tell(f"{self._form}, combine, {way}")
        return super().low_latency_combine(*args, zero_copy=zero_copy, use_logfmt=use_logfmt, **more)
