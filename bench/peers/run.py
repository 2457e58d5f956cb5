#!/usr/bin/env python3
"""Measures lily, llama.cpp and mlx-lm one after the other on one machine and prints ratios.

    bench/peers/run.py --model DIR --gguf FILE --llama-bench PATH [--mlx-python PYTHON] --out docs/benchmarks/NAME

Same shape on every side: DIR is an MLX checkpoint (lily and mlx-lm read its bytes), FILE is tools/gguf/write_random.py's
for llama.cpp. Prefill is timed alone, decode alone behind a context of the given length. llama.cpp tries every thread
count, and for prefill every micro-batch, once for each row and is then measured with the best. Figures are medians; docs/bench.md says what
differs between the sides. Writes NAME.json and NAME.md after each side; a side that fails stands there with its reason.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time


def wait_until_quiet(limit):
    """A busy machine measures the others' work: wait for the load average to fall, at most ten minutes."""
    for _ in range(60):
        load = os.getloadavg()[0]
        if load < limit:
            return load
        print(f"load average {load:.2f}, waiting for {limit}", file=sys.stderr)
        time.sleep(10)
    sys.exit(f"the machine does not come to rest (load average {os.getloadavg()[0]:.2f}, wanted {limit})")


class Failed(Exception):
    """A command of a side that did not end well."""


def run(command):
    print("$ " + " ".join(command), file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
        raise Failed(f"{how} of `{shown(command)}`")
    return done.stdout


def shown(command):
    """The command as a record may show it: without the folders of this machine."""
    return " ".join(os.path.basename(word.rstrip("/")) if word.startswith("/") else word for word in command)


def spread(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def measure_lily(args, threads, activations):
    command = [args.lily, "bench", "--model", args.model, "--prefill", args.prefill, "--contexts", args.contexts,
               "--repeats", str(args.repeats), "--decode-tokens", str(args.decode_tokens), "--json", "-"]
    if threads:
        command += ["--threads", str(threads)]
    if activations:
        command += ["--activations", activations]
    record = json.loads(run(command))
    record["command"] = shown(command)
    rows = {("prefill", r["tokens"]): r["tokens_per_second"] for r in record["prefill"]}
    rows |= {("decode", r["context"]): r["tokens_per_second"] for r in record["decode"]}
    name = f"lily {activations}" if activations else "lily"
    return {"name": name, "version": f"{record['version']} ({record['commit']})", "rows": rows, "record": record,
            "command": shown(command)}


def measure_llama(args):
    common = [args.llama_bench, "-m", args.gguf, "-b", str(max([2048] + args.ubatch_list)), "-o", "json"]
    tests = {"prefill": (args.prefill_list, lambda n: ["-p", n, "-n", "0"], args.ubatch_list),
             "decode": (args.context_list, lambda n: ["-p", "0", "-n", str(args.decode_tokens), "-d", n], args.ubatch_list[:1])}
    rows, command = {}, []
    for kind, (sizes, what, ubatches) in tests.items():
        settings = {size: (args.thread_list[0], ubatches[0]) for size in sizes}
        if len(args.thread_list) * len(ubatches) > 1:  # one load of the model serves all trials of a command
            trials = run(common + what(listed(sizes)) + ["-t", listed(args.thread_list), "-ub", listed(ubatches), "-r", "1"])
            for trial in sorted(json.loads(trials), key=lambda t: t["avg_ts"]):
                settings[trial["n_prompt"] or trial["n_depth"]] = (trial["n_threads"], trial["n_ubatch"])
        for threads, ubatch in sorted(set(settings.values())):
            chosen = [size for size in sizes if settings[size] == (threads, ubatch)]
            command = common + what(listed(chosen)) + ["-t", str(threads), "-ub", str(ubatch), "-r", str(args.repeats)]
            for test in json.loads(run(command)):
                rows[kind, test["n_prompt"] or test["n_depth"]] = spread(test["samples_ts"]) | {"threads": threads, "ubatch": ubatch}
    version = subprocess.run([args.llama_bench, "--version"], capture_output=True, text=True)
    found = re.search(r"version: (.+)", version.stdout + version.stderr)
    label = args.llama_version or (found[1] if found else "unknown")
    return {"name": "llama.cpp", "version": label, "rows": rows, "command": shown(command)}


def listed(values):
    return ",".join(map(str, values))


def measure_mlx(args):
    rows, command = {}, []
    for kind, sizes in (("prefill", args.prefill_list), ("decode", args.context_list)):
        for size in sizes:
            generate = 2 if kind == "prefill" else args.decode_tokens
            command = [args.mlx_python, "-m", "mlx_lm.benchmark", "--model", args.model, "-p", str(size),
                       "-g", str(generate), "-n", str(args.repeats)]
            key = "prompt_tps" if kind == "prefill" else "generation_tps"
            samples = [float(v) for v in re.findall(rf"Trial.*?{key}=([\d.]+)", run(command))]
            rows[(kind, size)] = spread(samples)
    version = run([args.mlx_python, "-c", "import mlx_lm, mlx.core as mx; print(mlx_lm.__version__, 'mlx', mx.__version__)"])
    return {"name": "mlx-lm", "version": version.strip(), "rows": rows, "command": shown(command)}


def plain(size):
    text = size.strip().upper()
    return int(text[:-1]) * 1024 if text.endswith("K") else int(text)


def cell(rate):
    if not rate:
        return "–"
    setting = f"; {rate['threads']} threads, ubatch {rate['ubatch']}" if "ubatch" in rate else ""
    return f"{rate['median']:.2f} ({rate['min']:.2f}–{rate['max']:.2f}{setting})"


def markdown(sides, head):
    ours = [side for side in sides if "record" in side]
    peers = [side for side in sides if "record" not in side]
    record = ours[0]["record"]
    machine = record["machine"]
    lines = [f"# {record['model']['shape']} on {machine['cpu']}, {machine['cores']} cores", "",
             f"Measured {head['date']}. {machine['system']}, {machine['memory_bytes'] / 1e9:.0f} GB; load average before "
             f"{head['load_before']:.2f}; read bandwidth in the same run "
             f"{record['read_bytes_per_second']['max'] / 1e9:.1f} GB/s at most, {record['read_bytes_per_second']['min'] / 1e9:.1f} at least.",
             f"lily: {record['backend']['description']}; checkpoint `{record['model']['fingerprint'][:16]}`; loaded in "
             f"{record['load']['seconds']:.1f} s.", ""]
    for side in sides:
        what = f"failed: {side['error']}" if "error" in side else f"`{side['command']}`"
        lines.append(f"- {side['name']} {side['version']}: {what}")
    lines += ["", "Tokens a second: median (least–most).", "",
              "| | tokens | " + " | ".join(s["name"] for s in sides) + " | "
              + " | ".join([f"{s['name']}: of the read bandwidth" for s in ours]
                           + [f"{s['name']} / {p['name']}" for p in peers for s in ours]) + " |"]
    lines.append("|---|" + "---:|" * (1 + len(sides) + len(ours) * (1 + len(peers))))
    shares = [{("decode", r["context"]): r["bandwidth_share"] for r in s["record"]["decode"]} for s in ours]
    for row in ours[0]["rows"]:
        cells = [cell(s["rows"].get(row)) for s in sides]
        cells += [f"{100 * share[row]:.0f} %" if row in share else "" for share in shares]
        cells += [f"{s['rows'][row]['median'] / p['rows'][row]['median']:.2f}" if row in p["rows"] else "–"
                  for p in peers for s in ours]
        lines.append(f"| {row[0]} | {row[1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def to_json(side):
    rows = [{"kind": kind, "tokens": size, "tokens_per_second": rate} for (kind, size), rate in side["rows"].items()]
    return {**side, "rows": rows}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--lily", default=os.environ.get("LILY_BIN", str(root / "build/release/lily")))
    parser.add_argument("--model", required=True, help="MLX checkpoint directory")
    parser.add_argument("--gguf", help="file for llama.cpp; without it llama.cpp is left out")
    parser.add_argument("--llama-bench", help="llama.cpp's llama-bench")
    parser.add_argument("--llama-version", help="what to call it: builds from a source package do not know")
    parser.add_argument("--mlx-python", help="a Python with mlx-lm; without it mlx-lm is left out")
    parser.add_argument("--prefill", default="512,4096")
    parser.add_argument("--contexts", default="256,4096")
    parser.add_argument("--decode-tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", help="thread counts to try (default: half of the cores, and all)")
    parser.add_argument("--ubatch", default="512,2048", help="llama.cpp's micro-batches to try")
    parser.add_argument("--activations", help="lily's, a side for each: int16,int8 (default: lily's default)")
    parser.add_argument("--max-load", type=float, default=1.0)
    parser.add_argument("--out", help="write OUT.json and OUT.md")
    args = parser.parse_args()
    args.prefill_list = [plain(s) for s in args.prefill.split(",")]
    args.context_list = [plain(s) for s in args.contexts.split(",")]
    args.ubatch_list = [plain(u) for u in args.ubatch.split(",")]
    cores = len(os.sched_getaffinity(0))
    args.thread_list = [int(t) for t in args.threads.split(",")] if args.threads else sorted({max(1, cores // 2), cores})
    return args


def main():
    args = parse_arguments()
    head = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load_before": wait_until_quiet(args.max_load)}
    sides = []
    measures = [("lily", lambda args, kind=kind: measure_lily(args, max(args.thread_list) if args.threads else 0, kind))
                for kind in (args.activations or "").split(",")]
    if args.gguf and args.llama_bench:
        measures.append(("llama.cpp", measure_llama))
    if args.mlx_python:
        measures.append(("mlx-lm", measure_mlx))
    for name, measure in measures:
        try:
            sides.append(measure(args))
        except (Failed, OSError, ValueError, KeyError) as error:  # ValueError: its output was not what it should be
            if not sides:
                sys.exit(f"lily failed: {error}")
            sides.append({"name": name, "version": "", "rows": {}, "error": str(error), "command": ""})
        write(args, head, sides)
    print(markdown(sides, head))
    return any("error" in side for side in sides)


def write(args, head, sides):
    if not args.out:
        return
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_name(out.name + ".md").write_text(markdown(sides, head))
    out.with_name(out.name + ".json").write_text(json.dumps({**head, "sides": [to_json(s) for s in sides]}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
