"""The table and the list of failures."""

import re
from collections import Counter, defaultdict

from .cases import DTYPES, VARIANTS

_COLUMNS = ("passed", "failed", "crashed", "timeout", "fallback")


def summary(results: list[dict]) -> dict:
    """Counts of cells, by variant and dtype."""
    table = defaultdict(Counter)
    for result in results:
        for key in ((result["variant"], result["dtype"]), (result["variant"], "all"), ("all", "all")):
            table[key][result["status"]] += 1
            table[key]["fallback"] += bool(result["fallbacks"])
    return table


def ops_summary(results: list[dict]) -> dict:
    """Counts of ops at float32: all variants passed; captured in forward and backward."""
    by_op = defaultdict(list)
    for result in results:
        if result["dtype"] == "float32" and result["status"] != "none":
            by_op[result["op"]].append(result)
    judged = ("forward", "backward")
    captured = [op for op, cells in by_op.items() if not any(c["fallbacks"] for c in cells if c["variant"] in judged)]
    passed = [op for op, cells in by_op.items() if all(c["status"] == "passed" for c in cells)]
    return {"ops": len(by_op), "passed in all variants": len(passed), "captured": len(captured)}


def text(results: list[dict]) -> str:
    return "\n\n".join([_table(results), _failures(results), _fallbacks(results), _totals(results)])


def _table(results):
    table = summary(results)
    rows = [f"{'variant':24}{'dtype':12}" + "".join(f"{column:>10}" for column in _COLUMNS)]
    for variant in (*VARIANTS, "all"):
        for dtype in (*DTYPES, "all"):
            counts = table.get((variant, dtype))
            if counts and any(counts[column] for column in _COLUMNS):
                rows.append(f"{variant:24}{dtype:12}" + "".join(f"{counts[column]:>10}" for column in _COLUMNS))
    return "\n".join(rows)


def _failures(results):
    groups = defaultdict(list)
    for result in results:
        for failure in _first_of_each_kind(result):
            groups[failure["kind"], _pattern(failure["message"])].append((result, failure))
    lines = ["Failures, by cause:"]
    for (kind, _), members in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        lines.append(f"[{kind}] {len(members)} cells: {members[0][1]['message']}")
        lines += [f"    {line}" for line in _where(members)]
    return "\n".join(lines) if groups else "No failures."


def _first_of_each_kind(result):
    kinds = {}
    for failure in result["failures"]:
        kinds.setdefault(failure["kind"], failure)
    return kinds.values()


def _pattern(message):
    return re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e-?\d+)?|leaf \d+", "#", message)[:160]


def _where(members):
    dtypes = defaultdict(list)
    for result, failure in members:
        dtypes[result["op"], result["variant"], failure["case"]].append(result["dtype"])
    for (op, variant, case), names in dtypes.items():
        yield f"{op} {variant} ({case}): {' '.join(names)}"


def _fallbacks(results):
    ops_of = defaultdict(set)
    for result in results:
        if result["dtype"] == "float32" and result["variant"] in ("forward", "backward"):
            for name, reason in result["fallbacks"].items():
                ops_of[name, reason].add(result["op"])
    lines = ["CPU fallbacks at float32, forward and backward:"]
    lines += [f"    {name} ({reason}): {' '.join(sorted(ops))}" for (name, reason), ops in sorted(ops_of.items())]
    return "\n".join(lines) if ops_of else "No CPU fallbacks at float32, forward and backward."


def _totals(results):
    total = summary(results)["all", "all"]
    cells = ", ".join(f"{total[column]} {column}" for column in _COLUMNS)
    ops = ", ".join(f"{count} {what}" for what, count in ops_summary(results).items())
    return f"Cells: {cells}\nOps at float32: {ops}"
