"""What the flag `disabled_passes` may name; see lowering/passes/pass.cpp."""

PASSES = (
    "dead_code",
    "no_op_copies",
    "identities",
    "common_subexpressions",
    "pure_writes",
    "fusion",
    "foreach_groups",
    "destinations",
)
