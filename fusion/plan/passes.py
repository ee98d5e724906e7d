"""The list of the planner's passes; each is one function that does one thing."""

from __future__ import annotations

from collections.abc import Callable

from .draft import Draft
from .groups import lower_groups, make_steps, spell_out_bilinear, store_on_the_way, tabulate_bytes
from .keep import (
    keep_across_batches,
    keep_all_but_one_core,
    keep_apart,
    keep_around_opaque,
    keep_channels_apart,
    keep_everything_unfused,
    keep_joined_joins,
    keep_long_chains,
    keep_not_computable,
    keep_outputs,
    keep_scattered,
    keep_shared,
    keep_sources,
    keep_summaries,
    keep_tables,
    keep_what_was_read_before,
)
from .repeats import store_repeated
from .schedule import allot_scratch, cut_segments, find_regions, mark_flat_segments

PASSES: tuple[Callable[[Draft], None], ...] = (
    # decide which values are stored
    keep_sources,
    keep_everything_unfused,
    keep_apart,
    keep_what_was_read_before,
    keep_outputs,
    keep_around_opaque,
    keep_across_batches,
    keep_tables,
    keep_scattered,
    keep_summaries,
    keep_not_computable,
    keep_channels_apart,
    keep_joined_joins,
    keep_shared,
    keep_all_but_one_core,
    keep_long_chains,
    keep_around_opaque,  # again, because the passes before may have decided to store views
    # form the kernels that compute them
    lower_groups,
    store_repeated,
    store_on_the_way,
    spell_out_bilinear,
    make_steps,
    tabulate_bytes,
    # decide when they run, and in which memory
    cut_segments,
    mark_flat_segments,
    find_regions,
    allot_scratch,
)
