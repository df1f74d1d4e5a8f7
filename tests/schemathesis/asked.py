"""What schemathesis asks besides what it makes up, and what it was answered. It loads this by itself."""

import json
import os
import pathlib

import schemathesis

EXAMPLES = json.loads(pathlib.Path(os.environ["RINGFENCE_EXAMPLES"]).read_text())
SEEN = set()


@schemathesis.hook
def before_add_examples(context, examples):
    for example in EXAMPLES.get(context.operation.label, []):
        examples.append(context.operation.Case(**example))


@schemathesis.hook
def filter_query(context, query):
    # A parameter without a value is as if it were not there, which schemathesis takes for a mistake that must be refused.
    return not query or "" not in list(query.values())


@schemathesis.hook
def after_call(context, case, response):
    label = case.operation.label
    if 200 <= response.status_code < 300 and label not in SEEN:
        SEEN.add(label)
        with open(os.environ["RINGFENCE_ANSWERED"], "a") as file:
            print(label, file=file)


@schemathesis.hook
def before_call(context, case, kwargs):
    # In an emergency another key of the server ends every token, also that which the rest of this run asks with.
    if isinstance(case.body, dict) and case.body.get("at_once") is True:
        case.body["at_once"] = False
