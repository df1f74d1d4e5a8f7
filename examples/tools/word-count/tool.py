"""Counts the words of several texts, and says while it runs how far it is."""

import csv
import re
from collections import Counter

from ringfence_tool import list_input_files, markdown, read_inputs, table


async def run_tool(input_dir, output_dir):
    files = list_input_files()
    least = read_inputs().get("least", 1)
    total = Counter()
    for number, file in enumerate(files, start=1):
        # Lines are shown as they are printed.
        print(f"[{number}/{len(files)}] {file['name']}: {file['bytes']} bytes", flush=True)
        with open(file["path"], encoding="utf-8", errors="replace") as text:
            for line in text:
                total.update(word for word in re.findall(r"\w+", line.lower()) if len(word) >= least)
    words = total.most_common()
    with open(f"{output_dir}/words.csv", "w", newline="", encoding="utf-8") as counts:
        csv.writer(counts).writerows([("word", "count"), *words])
    return {
        "outputs": [
            markdown(f"**{total.total()} words**, {len(total)} different, in {len(files)} files."),
            table({"word": "Word", "count": "Count"}, words[:20], title="Most frequent"),
        ]
    }
