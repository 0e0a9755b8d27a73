"""Keyed state below the operators: key groups, store keys, local stores, changelogs and snapshots."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.state.amounts import Amount, Amounts, Count, GrowthMeter, growth, sum_amounts
    from forkpoint.state.files import (
        Columns,
        as_changes,
        change_columns,
        first_kgs,
        in_key_order,
        read_change_columns,
        read_changes,
        read_snapshot,
        read_snapshot_columns,
        write_change_columns,
        write_changes,
        write_snapshot,
    )
    from forkpoint.state.host_changes import HostChanges
    from forkpoint.state.keygroups import (
        DEFAULT_MAX_PARALLELISM,
        encode_keys,
        hash_column,
        hash_encoded,
        hash_keys,
        key_group,
        key_group_range,
        key_hash,
        subtask_of,
    )
    from forkpoint.state.keys import (
        OPERATOR_KG,
        OperatorKey,
        decode_operator_key,
        decode_state_key,
        decode_timer_key,
        in_groups,
        kg_of,
        operator_key,
        operator_range,
        prefix_stop,
        range_for,
        sid_of,
        sid_range,
        state_key,
        state_keys,
        timer_key,
        timer_range,
    )
    from forkpoint.state.store import Changes, Range, Store, StoreKind, StoreSize, destroy_store, open_store
    from forkpoint.state.write_back import WriteBackStore

__getattr__ = loader(__name__)

__all__ = [
    "DEFAULT_MAX_PARALLELISM",
    "OPERATOR_KG",
    "Amount",
    "Amounts",
    "Changes",
    "Columns",
    "Count",
    "GrowthMeter",
    "HostChanges",
    "OperatorKey",
    "Range",
    "Store",
    "StoreKind",
    "StoreSize",
    "WriteBackStore",
    "as_changes",
    "change_columns",
    "decode_operator_key",
    "decode_state_key",
    "decode_timer_key",
    "destroy_store",
    "encode_keys",
    "first_kgs",
    "growth",
    "hash_column",
    "hash_encoded",
    "hash_keys",
    "in_groups",
    "in_key_order",
    "key_group",
    "key_group_range",
    "key_hash",
    "kg_of",
    "open_store",
    "operator_key",
    "operator_range",
    "prefix_stop",
    "range_for",
    "read_change_columns",
    "read_changes",
    "read_snapshot",
    "read_snapshot_columns",
    "sid_of",
    "sid_range",
    "state_key",
    "state_keys",
    "subtask_of",
    "sum_amounts",
    "timer_key",
    "timer_range",
    "write_change_columns",
    "write_changes",
    "write_snapshot",
]
