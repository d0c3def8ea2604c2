"""Every method and two controls: agents with another pretrained encoder each.

    python benchmarks/pretrained_table.py --data 20newsgroups --seeds 5 --out out/text
    python benchmarks/pretrained_table.py --data reuters-r8 --seeds 5 --out out/text
    python benchmarks/pretrained_table.py --data cifar10 --choice-seeds 5,6 --out out/images

The presets `newsgroups`, `reuters` and `cifar10`, for every label shift. How options are chosen:
`method_table.py`; they are chosen for a shift of 0.7, as the presets have them, and used for all
shifts (`--choose-at each` chooses anew for every shift). Shrinkage is chosen from the same four
values for all methods. Samples whose latents the cache lacks are encoded first.

FedProto and FedMuscle need one latent size: `--case equal-latents` gives all agents 64
dimensions each, and runs all methods.
"""

from method_table import (
    ABLATION,
    CONFIDENCE,
    CONSENSUS,
    ENTRIES,
    HEADINGS,
    PENALTIES,
    PENALTY,
    READING_HEADS,
    WEIGHT,
    WHITENING,
    Entries,
    Grid,
    parser_of,
    rows_of,
    settings_of,
)
from sheafed.sweep import Runner, markdown_table

PRESETS = {"20newsgroups": "newsgroups", "reuters-r8": "reuters", "cifar10": "cifar10"}
SIZE = 64
GRID = Grid(
    candidates={
        PENALTY: ("0.1", "0.3", "1", "3"),
        WHITENING: ("{shrinkage=0.1}", "{shrinkage=0.5}", "{shrinkage=0.9}", "{shrinkage=1.0}"),
        CONFIDENCE: ("0.3", "0.5", "0.8"),
        WEIGHT: ("0.3", "1.0", "3.0"),
    },
    start={PENALTY: "1", WHITENING: "{shrinkage=0.9}", CONFIDENCE: "0.5", WEIGHT: "1.0"},
    ladders={
        PENALTY: PENALTIES,
        CONFIDENCE: ("0.0", "0.1", "0.3", "0.5", "0.8", "0.95"),
        WEIGHT: ("0.1", "0.3", "1.0", "3.0", "10.0", "30.0", "100.0"),
    },
)
LEARN_MAPS = {"ComFed", "Sheaf-FRL", "Sheaf-FRL with distillation"}
AS_THEY_ARE = LEARN_MAPS | {CONSENSUS, READING_HEADS, *ABLATION}
PRETRAINED_ENTRIES: Entries = {
    # A run tries .1, .5, .9 and the method's own shrinkage, 1, where maps are fitted afterwards.
    name: (variant if name in AS_THEY_ARE else (*variant, "method.shrinkage=1.0"), options)
    for name, (variant, options) in ENTRIES.items()
} | {
    "Sheaf-FRL": (
        ('method={name="sheaf-frl", exchange_every=8, quantisation="int8", pilots_per_round=256}',),
        (PENALTY, WHITENING),
    ),
    "distillation without penalty": (
        ("method.name=sheaf-frl", "method.penalty=0"),
        (WHITENING, CONFIDENCE, WEIGHT),
    ),
}


def main() -> None:
    parser = parser_of(__doc__.splitlines()[0], epochs=30, entries=PRETRAINED_ENTRIES)
    parser.add_argument("--data", choices=PRESETS, required=True)
    parser.add_argument("--shifts", default="0.3,0.7,0.9", help="label shifts, by commas")
    parser.add_argument("--choose-at", default="0.7", help="a label shift, or each")
    given = parser.parse_args()
    under = None if given.choose_at == "each" else (f"data.shift={given.choose_at}",)
    preset, rows = PRESETS[given.data], []
    settings = settings_of(given, preset, SIZE)
    with Runner(preset, settings, given.out / given.data / given.case, given.jobs) as runner:
        for shift in given.shifts.split(","):
            found = rows_of(
                runner, given, PRETRAINED_ENTRIES, GRID, (f"data.shift={shift}",), under
            )
            rows += [[shift, *row] for row in found]
    text = markdown_table(["shift", *HEADINGS], rows)
    (given.out / given.data / f"{given.case}.md").write_text(text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
