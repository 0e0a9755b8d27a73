"""Keyed state below the operators: key groups, store keys, local stores, changelogs and snapshots."""

# ruff: noqa: I001  # isort would split imports with aliases

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:  # `as` re-exports a name to type checkers
    from forkpoint.state.amounts import (
        Amount as Amount,
        Amounts as Amounts,
        Count as Count,
        GrowthMeter as GrowthMeter,
        growth as growth,
        sum_amounts as sum_amounts,
    )
    from forkpoint.state.files import (
        Columns as Columns,
        as_changes as as_changes,
        change_columns as change_columns,
        first_kgs as first_kgs,
        in_key_order as in_key_order,
        read_change_columns as read_change_columns,
        read_changes as read_changes,
        read_snapshot as read_snapshot,
        read_snapshot_columns as read_snapshot_columns,
        state_key_column as state_key_column,
        write_change_columns as write_change_columns,
        write_changes as write_changes,
        write_snapshot as write_snapshot,
        write_snapshot_columns as write_snapshot_columns,
    )
    from forkpoint.state.host_changes import HostChanges as HostChanges
    from forkpoint.state.keygroups import (
        encode_keys as encode_keys,
        hash_column as hash_column,
        hash_encoded as hash_encoded,
        hash_keys as hash_keys,
        key_group as key_group,
        key_group_range as key_group_range,
        key_hash as key_hash,
        subtask_of as subtask_of,
    )
    from forkpoint.state.keys import (
        OPERATOR_KG as OPERATOR_KG,
        OperatorKey as OperatorKey,
        decode_operator_key as decode_operator_key,
        decode_state_key as decode_state_key,
        decode_timer_key as decode_timer_key,
        in_groups as in_groups,
        kg_of as kg_of,
        operator_key as operator_key,
        operator_range as operator_range,
        prefix_stop as prefix_stop,
        range_for as range_for,
        sid_of as sid_of,
        sid_range as sid_range,
        sid_ranges as sid_ranges,
        state_key as state_key,
        state_keys as state_keys,
        timer_key as timer_key,
        timer_range as timer_range,
    )
    from forkpoint.state.store import (
        Changes as Changes,
        Range as Range,
        Store as Store,
        StoreKind as StoreKind,
        StoreSize as StoreSize,
        destroy_store as destroy_store,
        open_store as open_store,
    )
    from forkpoint.state.write_back import WriteBackStore as WriteBackStore

__getattr__ = loader(__name__)
