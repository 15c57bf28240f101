"""Tables of the functional and sparse implicit methods, for `tables.py`."""

from tables_records import records


def fbnn_speed_table():
    """Milliseconds of a training step of fBNN, and of what is in it."""
    found = [record for record in records("fbnn_speed.json") if "times" in record]
    names = " | ".join(f"{r['network']}: ms | all threads" for r in found)
    lines = [f"| step | {names} |", "|---" * (1 + 2 * len(found)) + "|"]
    for kind in found[0]["times"]:
        cells = []
        for record in found:
            times = record["times"][kind]
            cells += [f"{times['ms']:.1f}" if "ms" in times else "–", f"{times['cpu_ms']:.1f}"]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    targets = " | ".join(f"{r['target_ms']:.1f} | –" for r in found)
    return "\n".join([*lines, f"| wanted | {targets} |"])


def sip_speed_table():
    """Milliseconds of a step of SIP and its discriminator."""
    lines = ["| prior | batch | ms a step | wanted | authors |", "|---" * 5 + "|"]
    for record in records("sip_speed.json"):
        authors = f"{record['authors']:.0f}" if record["authors"] else "–"
        lines.append(
            f"| {record['prior'].replace('_', ' ')} | {record['batch_size']} "
            f"| {record['milliseconds']:.1f} | {record['target']:.0f} | {authors} |"
        )
    return "\n".join(lines)
