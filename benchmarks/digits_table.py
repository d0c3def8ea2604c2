"""Every method and two controls on the preset `digits`: the source of the tables for digits.

    python benchmarks/digits_table.py --seeds 5 --out out/digits

How options are chosen: `method_table.py`. The preset has the options that this command chose; it
prints a line if it now chooses others.

FedProto and FedMuscle need one latent size: `--case equal-latents` gives the five agents 32
dimensions each, and runs all methods.
"""

from method_table import HEADINGS, parser_of, rows_of, settings_of
from sheafed.sweep import Runner, markdown_table

SIZE = 32


def main() -> None:
    given = parser_of(__doc__.splitlines()[0], epochs=60).parse_args()
    settings = settings_of(given, "digits", SIZE)
    with Runner("digits", settings, given.out / given.case, given.jobs) as runner:
        text = markdown_table(HEADINGS, rows_of(runner, given))
    (given.out / f"{given.case}.md").write_text(text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
