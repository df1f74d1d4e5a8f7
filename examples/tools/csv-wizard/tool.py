"""Counts the values of a column of a CSV file, and draws them as a bar chart."""

import csv
import html as escaping
from collections import Counter
from pathlib import Path

from ringfence_tool import (
    ToolUserError,
    field,
    form,
    get_action_parts,
    html,
    list_input_files,
    markdown,
    notice,
    read_settings,
    table,
)

MOST_BARS = 12
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t"}


def run_tool(input_dir, output_dir):
    action, answers, state = get_action_parts()
    rows = read_rows()
    if action == "choose":
        return count(rows, answers.get("column"))
    if action == "draw":
        return draw(rows, state["column"], answers.get("bars") or MOST_BARS, output_dir)
    return overview(rows)


def read_rows():
    file = list_input_files()[0]
    separator = SEPARATORS[read_settings().get("separator", "comma")]
    try:
        with open(file["path"], newline="", encoding="utf-8-sig") as lines:
            rows = list(csv.DictReader(lines, delimiter=separator))
    except UnicodeDecodeError as error:
        raise ToolUserError(f"{file['name']} is not UTF-8. Save it as UTF-8 and upload it again.") from error
    if not rows:
        raise ToolUserError(f"{file['name']} has no rows below its first line.")
    return rows


def overview(rows):
    columns = list(rows[0])
    return {
        "outputs": [
            markdown(f"The file has **{len(rows)} rows** and {len(columns)} columns."),
            table(columns, ({column: row[column] for column in columns} for row in rows[:5]), title="First rows"),
        ],
        "next_actions": [choose(columns)],
    }


def choose(columns, prefill=None):
    return form("choose", "Count values", [field("column", "Column", "enum", columns)], prefill)


def count(rows, column):
    columns = list(rows[0])
    if column not in columns:
        return {"outputs": [notice("error", "Choose a column first.")], "next_actions": [choose(columns)]}
    values = Counter(row[column] for row in rows).most_common()
    draw_form = form("draw", "Draw chart", [field("bars", "Bars at most", "integer")], {"bars": min(len(values), MOST_BARS)})
    return {
        "outputs": [table({"value": column, "count": "Count"}, values[:100], title=f"Values of {column}")],
        "state": {"column": column},
        "next_actions": [draw_form, choose(columns, {"column": column})],
    }


def draw(rows, column, bars, output_dir):
    values = Counter(row[column] for row in rows).most_common(max(1, min(int(bars), MOST_BARS)))
    chart = svg(values)
    Path(output_dir, "chart.svg").write_text(chart, encoding="utf-8")
    with open(Path(output_dir, "counts.csv"), "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([(column, "count"), *values])
    return {
        "outputs": [html(chart), notice("info", "The chart and the counts are below, as files.")],
        "state": {"column": column},
        "next_actions": [choose(list(rows[0]), {"column": column})],
    }


def svg(values):
    longest = max(count for _, count in values)
    bars = []
    for index, (value, count) in enumerate(values):
        y, width = 24 * index + 4, round(300 * count / longest)
        label = escaping.escape(str(value)[:24])
        bars.append(f'<text x="150" y="{y + 13}" text-anchor="end">{label}</text>')
        bars.append(f'<rect x="160" y="{y}" width="{width}" height="18" fill="#3b6fd4"/>')
        bars.append(f'<text x="{width + 168}" y="{y + 13}">{count}</text>')
    size = f'width="520" height="{24 * len(values) + 4}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">{"".join(bars)}</svg>'
