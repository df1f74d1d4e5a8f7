"""Writes an invitation. Shows how a form is checked and offered again with what the user wrote."""

import datetime

from ringfence_tool import field, form, get_action_parts, markdown, notice

TOPICS = {"talk": "A talk", "workshop": "A workshop", "dinner": "A dinner"}
FIELDS = [
    field("title", "Title", "string"),
    field("date", "Date (such as 2027-03-31)", "string"),
    field("guests", "Number of guests", "integer"),
    field("topics", "What happens", "multi_enum", TOPICS),
    field("note", "Note for the guests", "text"),
    field("plus_one", "Guests may bring a friend", "boolean"),
]


def run_tool(input_dir, output_dir):
    action, answers, state = get_action_parts()
    if action != "write":
        return {"outputs": [markdown("Who is invited to what?")], "next_actions": [ask({})]}
    problems = check(answers)
    if problems:
        return {
            "outputs": [notice("error", problem) for problem in problems],
            "state": {"attempts": state.get("attempts", 0) + 1},
            "next_actions": [ask(answers)],
        }
    text = write(answers)
    with open(f"{output_dir}/invitation.md", "w", encoding="utf-8") as file:
        file.write(text)
    return {"outputs": [markdown(text)], "state": {"attempts": 0}, "next_actions": [ask(answers)]}


def ask(answers):
    names = {known["name"] for known in FIELDS}
    return form("write", "Write invitation", FIELDS, {name: value for name, value in answers.items() if name in names})


def check(answers):
    problems = []
    if not str(answers.get("title", "")).strip():
        problems.append("The title is missing.")
    try:
        date = datetime.date.fromisoformat(str(answers.get("date", "")))
        if date < datetime.date.today():
            problems.append("The date is in the past.")
    except ValueError:
        problems.append("The date is not of the form 2027-03-31.")
    if not 1 <= (answers.get("guests") or 0) <= 500:
        problems.append("Between 1 and 500 guests can be invited.")
    if not answers.get("topics"):
        problems.append("Choose at least one thing that happens.")
    return problems


def write(answers):
    topics = ", ".join(TOPICS[topic].lower() for topic in answers["topics"])
    plus_one = " You may bring a friend." if answers.get("plus_one") else ""
    note = f"\n\n{answers['note']}" if answers.get("note") else ""
    return f"# {answers['title']}\n\nOn **{answers['date']}**: {topics}. {answers['guests']} guests.{plus_one}{note}\n"
