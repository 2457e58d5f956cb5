#!/usr/bin/env python3
"""Measures lily, llama.cpp and mlx-lm one after the other on one machine and prints ratios.

    bench/peers/run.py --model DIR --gguf FILE --llama-bench PATH [--mlx-python PYTHON] --out docs/benchmarks/NAME

Same shape on every side: DIR is an MLX checkpoint (lily and mlx-lm read its bytes), FILE is tools/gguf/write_random.py's
for llama.cpp. Prefill is timed alone, decode alone behind a context of the given length. Each peer gets its best thread
count of those tried. Figures are medians; docs/bench.md says what differs between the sides. Writes NAME.json and NAME.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
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


def run(command):
    print("$ " + " ".join(command), file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"failed with {done.returncode}: {' '.join(command)}")
    return done.stdout


def shown(command):
    """The command as a record may show it: without the folders of this machine."""
    return " ".join(os.path.basename(word.rstrip("/")) if word.startswith("/") else word for word in command)


def spread(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def measure_lily(args, threads):
    command = [args.lily, "bench", "--model", args.model, "--prefill", args.prefill, "--contexts", args.contexts,
               "--repeats", str(args.repeats), "--decode-tokens", str(args.decode_tokens), "--json", "-"]
    if threads:
        command += ["--threads", str(threads)]
    if args.activations:
        command += ["--activations", args.activations]
    record = json.loads(run(command))
    record["command"] = shown(command)
    rows = {("prefill", r["tokens"]): r["tokens_per_second"] for r in record["prefill"]}
    rows |= {("decode", r["context"]): r["tokens_per_second"] for r in record["decode"]}
    return {"name": "lily", "version": f"{record['version']} ({record['commit']})", "rows": rows, "record": record,
            "command": shown(command)}


def measure_llama(args):
    sizes = args.prefill_list
    threads = ",".join(str(t) for t in args.thread_list)
    common = [args.llama_bench, "-m", args.gguf, "-t", threads, "-r", str(args.repeats), "-o", "json"]
    prefill = common + ["-p", ",".join(map(str, sizes)), "-n", "0"]
    decode = common + ["-p", "0", "-n", str(args.decode_tokens), "-d", args.contexts_plain]
    best = {}
    for command in (prefill, decode):
        for test in json.loads(run(command)):
            row = ("prefill", test["n_prompt"]) if test["n_prompt"] else ("decode", test["n_depth"])
            rate = spread(test["samples_ts"]) | {"threads": test["n_threads"]}
            if row not in best or rate["median"] > best[row]["median"]:
                best[row] = rate
    version = subprocess.run([args.llama_bench, "--version"], capture_output=True, text=True)
    found = re.search(r"version: (.+)", version.stdout + version.stderr)
    label = args.llama_version or (found[1] if found else "unknown")
    return {"name": "llama.cpp", "version": label, "rows": best, "command": shown(decode)}


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
    return f"{rate['median']:.2f} ({rate['min']:.2f}–{rate['max']:.2f})" if rate else "–"


def markdown(sides, head):
    lily = sides[0]
    record = lily["record"]
    machine = record["machine"]
    lines = [f"# {record['model']['shape']} on {machine['cpu']}, {machine['cores']} cores", "",
             f"Measured {head['date']}. {machine['system']}, {machine['memory_bytes'] / 1e9:.0f} GB; load average before "
             f"{head['load_before']:.2f}; read bandwidth in the same run "
             f"{record['read_bytes_per_second'] / 1e9:.1f} GB/s.",
             f"lily: {record['backend']['description']}; checkpoint `{record['model']['fingerprint'][:16]}`; loaded in "
             f"{record['load']['seconds']:.1f} s.", ""]
    lines += [f"- {side['name']} {side['version']}: `{side['command']}`" for side in sides]
    lines += ["", "Tokens a second: median (least–most).", "",
              "| | tokens | " + " | ".join(s["name"] for s in sides) + " | of the read bandwidth | "
              + " | ".join(f"lily / {s['name']}" for s in sides[1:]) + " |",
              "|---|---:|" + "---:|" * (2 * len(sides))]
    shares = {("decode", r["context"]): r["bandwidth_share"] for r in record["decode"]}
    for row, rate in lily["rows"].items():
        ratios = [f"{rate['median'] / s['rows'][row]['median']:.2f}" if row in s["rows"] else "–" for s in sides[1:]]
        share = f"{100 * shares[row]:.0f} %" if row in shares else ""
        lines.append(f"| {row[0]} | {row[1]} | " + " | ".join(cell(s["rows"].get(row)) for s in sides)
                     + f" | {share} | " + " | ".join(ratios) + " |")
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
    parser.add_argument("--activations", choices=["int16", "int8"])
    parser.add_argument("--max-load", type=float, default=1.0)
    parser.add_argument("--out", help="write OUT.json and OUT.md")
    args = parser.parse_args()
    args.prefill_list = [plain(s) for s in args.prefill.split(",")]
    args.context_list = [plain(s) for s in args.contexts.split(",")]
    args.contexts_plain = ",".join(map(str, args.context_list))
    cores = len(os.sched_getaffinity(0))
    args.thread_list = [int(t) for t in args.threads.split(",")] if args.threads else sorted({max(1, cores // 2), cores})
    return args


def main():
    args = parse_arguments()
    head = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load_before": wait_until_quiet(args.max_load)}
    sides = [measure_lily(args, max(args.thread_list))]
    if args.gguf and args.llama_bench:
        sides.append(measure_llama(args))
    if args.mlx_python:
        sides.append(measure_mlx(args))
    text = markdown(sides, head)
    print(text)
    if args.out:
        out = pathlib.Path(args.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_name(out.name + ".md").write_text(text)
        out.with_name(out.name + ".json").write_text(json.dumps({**head, "sides": [to_json(s) for s in sides]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
