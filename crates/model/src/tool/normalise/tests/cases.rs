//! Results and what becomes of them under the policy `SMALL`. System notices are shown as plain texts.

pub(super) const CASES: &[(&str, &str, &str)] = &[
    // The document.
    ("an empty result", "{}", "{}"),
    (
        "the version as text",
        r#"{"contract_version":"2"}"#,
        r#"{"error":"contract_version: invalid type: string \"2\", expected u64"}"#,
    ),
    (
        "version 1",
        r#"{"contract_version":1}"#,
        r#"{"error":"contract_version: contract version 1 is not 2"}"#,
    ),
    (
        "version 2.0",
        r#"{"contract_version":2.0}"#,
        r#"{"error":"contract_version: invalid type: floating point `2.0`, expected u64"}"#,
    ),
    (
        "an unknown status",
        r#"{"status":"done"}"#,
        r#"{"error":"status: unknown variant `done`, expected one of `succeeded`, `failed`, `timed_out`"}"#,
    ),
    (
        "a status of another case",
        r#"{"status":"Failed"}"#,
        r#"{"error":"status: unknown variant `Failed`, expected one of `succeeded`, `failed`, `timed_out`"}"#,
    ),
    ("a failed run", r#"{"status":"failed","error_summary":"no"}"#, "{}"),
    (
        "a summary that is no text",
        r#"{"error_summary":1}"#,
        r#"{"error":"error_summary: invalid type: integer `1`, expected a string"}"#,
    ),
    ("unknown keys", r#"{"colour":"red","outputs":[]}"#, "{}"),
    (
        "outputs that are null",
        r#"{"outputs":null}"#,
        r#"{"error":"outputs: invalid type: null, expected a sequence"}"#,
    ),
    (
        "outputs that are an object",
        r#"{"outputs":{}}"#,
        r#"{"error":"outputs: invalid type: map, expected a sequence"}"#,
    ),
    ("an artifact", r#"{"artifacts":[{"path":"output/a","bytes":0}]}"#, "{}"),
    (
        "an artifact of negative size",
        r#"{"artifacts":[{"path":"output/a","bytes":-1}]}"#,
        r#"{"error":"artifacts[0].bytes: invalid value: integer `-1`, expected u64"}"#,
    ),
    // Outputs in general.
    (
        "an output without a kind",
        r#"{"outputs":[{"markdown":"a"}]}"#,
        r#"{"error":"outputs[0]: missing field `kind`"}"#,
    ),
    (
        "an output of an unknown kind",
        r#"{"outputs":[{"kind":"markdown","markdown":"a"},{"kind":"audio"}]}"#,
        r#"{"error":"outputs[1].kind: unknown variant `audio`, expected one of `notice`, `markdown`, `table`, `json`, `html_sandboxed`, `vega_lite`"}"#,
    ),
    (
        "an output that is a text",
        r#"{"outputs":["a"]}"#,
        r#"{"error":"outputs[0]: this is not an object"}"#,
    ),
    (
        "an output with unknown keys",
        r#"{"outputs":[{"kind":"markdown","markdown":"a","size":1}]}"#,
        r#"{"outputs":[{"kind":"markdown","markdown":"a"}]}"#,
    ),
    (
        "as many outputs as are allowed",
        r#"{"outputs":[{"kind":"json","value":1},{"kind":"json","value":2},{"kind":"json","value":3},{"kind":"json","value":4},{"kind":"json","value":5}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":1},{"kind":"json","title":null,"value":2},{"kind":"json","title":null,"value":3},{"kind":"json","title":null,"value":4},{"kind":"json","title":null,"value":5}]}"#,
    ),
    (
        "one output too many: the notice takes a place",
        r#"{"outputs":[{"kind":"json","value":1},{"kind":"json","value":2},{"kind":"json","value":3},{"kind":"json","value":4},{"kind":"json","value":5},{"kind":"json","value":6}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":1},{"kind":"json","title":null,"value":2},{"kind":"json","title":null,"value":3},{"kind":"json","title":null,"value":4},"A run shows at most 5 outputs (dropped: 2)."]}"#,
    ),
    (
        "outputs over the limit are not looked at",
        r#"{"outputs":[{"kind":"vega_lite","spec":{}},{"kind":"json","value":2},{"kind":"json","value":3},{"kind":"json","value":4},{"kind":"json","value":5},{"kind":"vega_lite","spec":{}}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":2},{"kind":"json","title":null,"value":3},{"kind":"json","title":null,"value":4},"Charts (vega_lite) are blocked (dropped: 1).","A run shows at most 5 outputs (dropped: 2)."]}"#,
    ),
    (
        "a notice of a cut takes a place too",
        r#"{"outputs":[{"kind":"markdown","markdown":"1234567"},{"kind":"json","value":2},{"kind":"json","value":3},{"kind":"json","value":4},{"kind":"json","value":5}]}"#,
        r#"{"outputs":[{"kind":"markdown","markdown":"123456"},{"kind":"json","title":null,"value":2},{"kind":"json","title":null,"value":3},"A run shows at most 5 outputs (dropped: 2).","Outputs of kind markdown were cut to 6 bytes (outputs cut: 1)."]}"#,
    ),
    // Notices.
    (
        "a notice of each level",
        r#"{"outputs":[{"kind":"notice","level":"info","message":"a"},{"kind":"notice","level":"warning","message":"b"},{"kind":"notice","level":"error","message":"c"}]}"#,
        r#"{"outputs":[{"kind":"notice","level":"info","message":"a"},{"kind":"notice","level":"warning","message":"b"},{"kind":"notice","level":"error","message":"c"}]}"#,
    ),
    (
        "a notice of an unknown level",
        r#"{"outputs":[{"kind":"notice","level":"debug","message":"a"}]}"#,
        r#"{"error":"outputs[0]: unknown variant `debug`, expected one of `info`, `warning`, `error`"}"#,
    ),
    (
        "a notice with space around it",
        r#"{"outputs":[{"kind":"notice","level":"info","message":" \n a b\t"}]}"#,
        r#"{"outputs":[{"kind":"notice","level":"info","message":"a b"}]}"#,
    ),
    (
        "a blank notice",
        r#"{"outputs":[{"kind":"notice","level":"info","message":" \n"}]}"#,
        r#"{"error":"outputs[0]: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "a notice without a message",
        r#"{"outputs":[{"kind":"notice","level":"info"}]}"#,
        r#"{"error":"outputs[0]: missing field `message`"}"#,
    ),
    (
        "a notice of the longest message",
        r#"{"outputs":[{"kind":"notice","level":"info","message":"12345678"}]}"#,
        r#"{"outputs":[{"kind":"notice","level":"info","message":"12345678"}]}"#,
    ),
    (
        "a notice that is too long",
        r#"{"outputs":[{"kind":"notice","level":"info","message":"123456789"}]}"#,
        r#"{"outputs":[{"kind":"notice","level":"info","message":"12345678"},"Outputs of kind notice were cut to 8 bytes (outputs cut: 1)."]}"#,
    ),
    (
        "a notice that would end in a space",
        r#"{"outputs":[{"kind":"notice","level":"info","message":"1234567 9"}]}"#,
        r#"{"outputs":[{"kind":"notice","level":"info","message":"1234567"},"Outputs of kind notice were cut to 8 bytes (outputs cut: 1)."]}"#,
    ),
    (
        "a notice cut before a character of three bytes",
        r#"{"outputs":[{"kind":"notice","level":"info","message":"1234567北"}]}"#,
        r#"{"outputs":[{"kind":"notice","level":"info","message":"1234567"},"Outputs of kind notice were cut to 8 bytes (outputs cut: 1)."]}"#,
    ),
    // Markdown and HTML.
    (
        "markdown keeps its spaces",
        r#"{"outputs":[{"kind":"markdown","markdown":" a \n"}]}"#,
        r#"{"outputs":[{"kind":"markdown","markdown":" a \n"}]}"#,
    ),
    (
        "blank markdown is markdown",
        r#"{"outputs":[{"kind":"markdown","markdown":" "}]}"#,
        r#"{"outputs":[{"kind":"markdown","markdown":" "}]}"#,
    ),
    (
        "empty markdown",
        r#"{"outputs":[{"kind":"markdown","markdown":""}]}"#,
        r#"{"error":"outputs[0]: the output is empty"}"#,
    ),
    (
        "markdown that is null",
        r#"{"outputs":[{"kind":"markdown","markdown":null}]}"#,
        r#"{"error":"outputs[0]: invalid type: null, expected a string"}"#,
    ),
    (
        "markdown of the longest size",
        r#"{"outputs":[{"kind":"markdown","markdown":"123456"}]}"#,
        r#"{"outputs":[{"kind":"markdown","markdown":"123456"}]}"#,
    ),
    (
        "two long markdown outputs",
        r#"{"outputs":[{"kind":"markdown","markdown":"1234567"},{"kind":"markdown","markdown":"12345é"}]}"#,
        r#"{"outputs":[{"kind":"markdown","markdown":"123456"},{"kind":"markdown","markdown":"12345"},"Outputs of kind markdown were cut to 6 bytes (outputs cut: 2)."]}"#,
    ),
    (
        "HTML",
        r#"{"outputs":[{"kind":"html_sandboxed","html":"<b>é"}]}"#,
        r#"{"outputs":[{"kind":"html_sandboxed","html":"<b>é"}]}"#,
    ),
    (
        "empty HTML",
        r#"{"outputs":[{"kind":"html_sandboxed","html":""}]}"#,
        r#"{"error":"outputs[0]: the output is empty"}"#,
    ),
    (
        "long HTML",
        r#"{"outputs":[{"kind":"html_sandboxed","html":"<script>"}]}"#,
        r#"{"outputs":[{"kind":"html_sandboxed","html":"<script"},"Outputs of kind html_sandboxed were cut to 7 bytes (outputs cut: 1)."]}"#,
    ),
    (
        "HTML cut before a character of four bytes",
        r#"{"outputs":[{"kind":"html_sandboxed","html":"1234😀"}]}"#,
        r#"{"outputs":[{"kind":"html_sandboxed","html":"1234"},"Outputs of kind html_sandboxed were cut to 7 bytes (outputs cut: 1)."]}"#,
    ),
    // Charts.
    (
        "a chart",
        r#"{"outputs":[{"kind":"vega_lite","spec":{"mark":"bar"}}]}"#,
        r#"{"outputs":["Charts (vega_lite) are blocked (dropped: 1)."]}"#,
    ),
    (
        "a chart whose spec is a list",
        r#"{"outputs":[{"kind":"vega_lite","spec":[]}]}"#,
        r#"{"error":"outputs[0]: invalid type: sequence, expected a map"}"#,
    ),
    (
        "a chart without a spec",
        r#"{"outputs":[{"kind":"vega_lite"}]}"#,
        r#"{"error":"outputs[0]: missing field `spec`"}"#,
    ),
    // Tables.
    (
        "a table",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":1}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":1}]}]}"#,
    ),
    (
        "a table without rows",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[]}]}"#,
    ),
    (
        "a table whose rows are missing",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}]}]}"#,
        r#"{"error":"outputs[0]: missing field `rows`"}"#,
    ),
    (
        "a table without columns",
        r#"{"outputs":[{"kind":"table","columns":[],"rows":[]}]}"#,
        r#"{"error":"outputs[0]: the table has no columns"}"#,
    ),
    (
        "a table with a key twice",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"},{"key":" a","label":"B"}],"rows":[]}]}"#,
        r#"{"error":"outputs[0]: two columns have the key \"a\""}"#,
    ),
    (
        "a table with a blank key",
        r#"{"outputs":[{"kind":"table","columns":[{"key":" ","label":"A"}],"rows":[]}]}"#,
        r#"{"error":"outputs[0]: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "a table with a blank label",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":""}],"rows":[]}]}"#,
        r#"{"error":"outputs[0]: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "keys and labels of columns are trimmed",
        r#"{"outputs":[{"kind":"table","columns":[{"key":" a ","label":" A "}],"rows":[{"a":1}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":1}]}]}"#,
    ),
    (
        "keys of rows are not trimmed",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{" a":1}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{}]}]}"#,
    ),
    (
        "a title is trimmed",
        r#"{"outputs":[{"kind":"table","title":" T ","columns":[{"key":"a","label":"A"}],"rows":[]}]}"#,
        r#"{"outputs":[{"kind":"table","title":"T","columns":[{"key":"a","label":"A"}],"rows":[]}]}"#,
    ),
    (
        "a blank title is none",
        r#"{"outputs":[{"kind":"table","title":" ","columns":[{"key":"a","label":"A"}],"rows":[]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[]}]}"#,
    ),
    (
        "cells of every kind",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"},{"key":"b","label":"B"}],"rows":[{"a":"x","b":1.5},{"a":true,"b":null}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"},{"key":"b","label":"B"}],"rows":[{"a":"x","b":1.5},{"a":true,"b":null}]}]}"#,
    ),
    (
        "a cell that is a list",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":[]}]}]}"#,
        r#"{"error":"outputs[0]: a cell is a text, a number, a boolean or null"}"#,
    ),
    (
        "a cell that is an object, in a column that is not listed",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"b":{}}]}]}"#,
        r#"{"error":"outputs[0]: a cell is a text, a number, a boolean or null"}"#,
    ),
    (
        "a row that is a list",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[[1]]}]}"#,
        r#"{"error":"outputs[0].rows[0]: this is not an object"}"#,
    ),
    (
        "cells of columns that are not listed vanish without a notice",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":1,"b":2}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":1}]}]}"#,
    ),
    (
        "too many rows",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":1},{"a":2},{"a":3}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":1},{"a":2}]},"Outputs of kind table were cut to 2 rows, 2 columns and 4 bytes per cell (outputs cut: 1)."]}"#,
    ),
    (
        "too many columns",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"},{"key":"b","label":"B"},{"key":"c","label":"C"}],"rows":[{"c":1,"a":2}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"},{"key":"b","label":"B"}],"rows":[{"a":2}]},"Outputs of kind table were cut to 2 rows, 2 columns and 4 bytes per cell (outputs cut: 1)."]}"#,
    ),
    (
        "a long cell",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":"12345"}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":"1234"}]},"Outputs of kind table were cut to 2 rows, 2 columns and 4 bytes per cell (outputs cut: 1)."]}"#,
    ),
    (
        "a cell cut before a character of two bytes",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":"123é"}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":"123"}]},"Outputs of kind table were cut to 2 rows, 2 columns and 4 bytes per cell (outputs cut: 1)."]}"#,
    ),
    (
        "a long number is not cut",
        r#"{"outputs":[{"kind":"table","columns":[{"key":"a","label":"A"}],"rows":[{"a":1234567890}]}]}"#,
        r#"{"outputs":[{"kind":"table","title":null,"columns":[{"key":"a","label":"A"}],"rows":[{"a":1234567890}]}]}"#,
    ),
    // JSON.
    (
        "a JSON text",
        r#"{"outputs":[{"kind":"json","value":"a"}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":"a"}]}"#,
    ),
    (
        "a JSON null",
        r#"{"outputs":[{"kind":"json","value":null}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":null}]}"#,
    ),
    (
        "a JSON output without a value",
        r#"{"outputs":[{"kind":"json"}]}"#,
        r#"{"error":"outputs[0]: missing field `value`"}"#,
    ),
    (
        "a titled JSON output",
        r#"{"outputs":[{"kind":"json","title":" T","value":[]}]}"#,
        r#"{"outputs":[{"kind":"json","title":"T","value":[]}]}"#,
    ),
    (
        "a title that is no text",
        r#"{"outputs":[{"kind":"json","title":1,"value":[]}]}"#,
        r#"{"error":"outputs[0]: invalid type: integer `1`, expected a string"}"#,
    ),
    (
        "JSON of the greatest depth",
        r#"{"outputs":[{"kind":"json","value":[[[1]]]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":[[[1]]]}]}"#,
    ),
    (
        "JSON that is too deep: a list",
        r#"{"outputs":[{"kind":"json","value":[[[[1]]]]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":[[[[]]]]},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "JSON that is too deep: an object",
        r#"{"outputs":[{"kind":"json","value":[[[{"a":1}]]]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":[[[{}]]]},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "empty containers at the greatest depth are whole",
        r#"{"outputs":[{"kind":"json","value":[[[{},[]]]]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":[[[{},[]]]]}]}"#,
    ),
    (
        "an object with too many keys keeps the first in order",
        r#"{"outputs":[{"kind":"json","value":{"d":1,"b":2,"c":3,"a":4}}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":{"a":4,"b":2,"c":3}},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "an object with as many keys as are allowed",
        r#"{"outputs":[{"kind":"json","value":{"b":2,"c":3,"a":1}}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":{"a":1,"b":2,"c":3}}]}"#,
    ),
    (
        "a list with too many elements",
        r#"{"outputs":[{"kind":"json","value":[1,2,3,4,5]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":[1,2,3,4]},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "a list inside an object is cut too",
        r#"{"outputs":[{"kind":"json","value":{"a":[1,2,3,4,5]}}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":{"a":[1,2,3,4]}},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "a list one byte too large",
        r#"{"outputs":[{"kind":"json","value":["123456","12345678"]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":["123456"]},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "a list of exactly the size",
        r#"{"outputs":[{"kind":"json","value":["123456","1234567"]}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":["123456","1234567"]}]}"#,
    ),
    (
        "an object that is too large keeps its first entries",
        r#"{"outputs":[{"kind":"json","value":{"a":"1234","b":"123456"}}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":{"a":"1234"}},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "an entry that does not fit ends the object",
        r#"{"outputs":[{"kind":"json","value":{"a":"12345678901234567890","b":1}}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":{}},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "a text of exactly the size",
        r#"{"outputs":[{"kind":"json","value":"123456789012345678"}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":"123456789012345678"}]}"#,
    ),
    (
        "a text that is too long, with its quotes",
        r#"{"outputs":[{"kind":"json","value":"1234567890123456789"}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":"123456789012345678"},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "a text of characters that JSON escapes",
        r#"{"outputs":[{"kind":"json","value":"\n\n\n\n\n\n\n\n\n\n"}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":"\n\n\n\n\n\n\n\n\n"},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "a control character takes six bytes",
        r#"{"outputs":[{"kind":"json","value":"\u0001\u0001\u0001\u0001"}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":"\u0001\u0001\u0001"},"Outputs of kind json were cut to the limits for JSON (outputs cut: 1)."]}"#,
    ),
    (
        "other characters are not escaped",
        r#"{"outputs":[{"kind":"json","value":"北北北北北北"}]}"#,
        r#"{"outputs":[{"kind":"json","title":null,"value":"北北北北北北"}]}"#,
    ),
    (
        "a number that is too long is dropped",
        r#"{"outputs":[{"kind":"json","value":-1.2345678901234567e-308}]}"#,
        r#"{"outputs":["Outputs of kind json could not be cut to 20 bytes (dropped: 1)."]}"#,
    ),
    (
        "an integer of more than 64 bits is a fraction",
        r#"{"outputs":[{"kind":"json","value":18446744073709551616}]}"#,
        r#"{"outputs":["Outputs of kind json could not be cut to 20 bytes (dropped: 1)."]}"#,
    ),
    // The state.
    ("no state", r#"{"state":null}"#, "{}"),
    ("an empty state", r#"{"state":{}}"#, r#"{"state":"cleared"}"#),
    ("a state", r#"{"state":{"b":1,"a":[true]}}"#, r#"{"state":{"a":[true],"b":1}}"#),
    (
        "a state that is a list",
        r#"{"state":[]}"#,
        r#"{"error":"state: invalid type: sequence, expected a map"}"#,
    ),
    ("a state with a blank key", r#"{"state":{" ":1}}"#, r#"{"error":"state: a key is blank"}"#),
    ("keys of a state are not trimmed", r#"{"state":{" a":1}}"#, r#"{"state":{" a":1}}"#),
    (
        "a state with more keys than an object may have",
        r#"{"state":{"a":1,"b":2,"c":3,"d":4}}"#,
        r#"{"state":{"a":1,"b":2,"c":3,"d":4}}"#,
    ),
    (
        "a value of a state that has too many keys",
        r#"{"state":{"v":{"a":1,"b":2,"c":3,"d":4}}}"#,
        r#"{"state":{"v":{"a":1,"b":2,"c":3}},"outputs":["Values of the state were cut to the limits for JSON."]}"#,
    ),
    (
        "a value of a state that is too deep",
        r#"{"state":{"v":[[[[1]]]]}}"#,
        r#"{"state":{"v":[[[[]]]]},"outputs":["Values of the state were cut to the limits for JSON."]}"#,
    ),
    (
        "a state one byte too large",
        r#"{"state":{"a":"12345678","b":"12345678"}}"#,
        r#"{"state":{"a":"12345678"},"outputs":["The state was cut to 30 bytes (keys dropped: 1)."]}"#,
    ),
    (
        "a state of exactly the size",
        r#"{"state":{"a":"12345678","b":"1234567"}}"#,
        r#"{"state":{"a":"12345678","b":"1234567"}}"#,
    ),
    (
        "a state whose first key does not fit",
        r#"{"state":{"a":"123456789012345678901234567890","b":1}}"#,
        r#"{"state":{},"outputs":["The state was cut to 30 bytes (keys dropped: 2)."]}"#,
    ),
    // Actions.
    (
        "an action",
        r#"{"next_actions":[{"action_id":" a ","label":" A "}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","fields":[],"prefill":{}}]}"#,
    ),
    (
        "an action of its kind",
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form"}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","fields":[],"prefill":{}}]}"#,
    ),
    (
        "an action of another kind",
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"link"}]}"#,
        r#"{"error":"next_actions[0].kind: unknown variant `link`, expected `form`"}"#,
    ),
    (
        "an action without an id",
        r#"{"next_actions":[{"label":"A"}]}"#,
        r#"{"error":"next_actions[0]: missing field `action_id`"}"#,
    ),
    (
        "an action with a blank id",
        r#"{"next_actions":[{"action_id":" ","label":"A"}]}"#,
        r#"{"error":"next_actions[0].action_id: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "an action with a blank label",
        r#"{"next_actions":[{"action_id":"a","label":" "}]}"#,
        r#"{"error":"next_actions[0].label: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "actions are sorted",
        r#"{"next_actions":[{"action_id":"b","label":"B"},{"action_id":"a","label":"A"}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","fields":[],"prefill":{}},{"action_id":"b","label":"B","kind":"form","fields":[],"prefill":{}}]}"#,
    ),
    (
        "two actions of the same id",
        r#"{"next_actions":[{"action_id":"a","label":"A"},{"action_id":"a ","label":"B"}]}"#,
        r#"{"error":"the action id \"a\" is used more than once"}"#,
    ),
    (
        "too many actions: the last in order goes",
        r#"{"next_actions":[{"action_id":"c","label":"C"},{"action_id":"b","label":"B"},{"action_id":"a","label":"A"}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","fields":[],"prefill":{}},{"action_id":"b","label":"B","kind":"form","fields":[],"prefill":{}}],"outputs":["A run offers at most 2 actions (dropped: 1)."]}"#,
    ),
    // Fields.
    (
        "a field of an unknown kind",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"n","label":"N","kind":"date"}]}]}"#,
        r#"{"error":"next_actions[0].fields[0]: unknown variant `date`, expected one of `string`, `text`, `integer`, `number`, `boolean`, `enum`, `multi_enum`"}"#,
    ),
    (
        "a field with a blank name",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"","label":"N","kind":"text"}]}]}"#,
        r#"{"error":"next_actions[0].fields[0].name: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "an enum without options",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"n","label":"N","kind":"enum","options":[]}]}]}"#,
        r#"{"error":"next_actions[0].fields[0]: the field has no options"}"#,
    ),
    (
        "an enum whose options are missing",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"n","label":"N","kind":"multi_enum"}]}]}"#,
        r#"{"error":"next_actions[0].fields[0]: missing field `options`"}"#,
    ),
    (
        "an enum with a blank option",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"n","label":"N","kind":"enum","options":[{"value":" ","label":"X"}]}]}]}"#,
        r#"{"error":"next_actions[0].fields[0]: a message, key, name, label, id or option is blank"}"#,
    ),
    (
        "fields are trimmed and keep their order",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":" z","label":"Z ","kind":"text"},{"name":"b","label":"B","kind":"enum","options":[{"value":" x ","label":" X "}]}]}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"z","label":"Z","kind":"text"},{"name":"b","label":"B","kind":"enum","options":[{"value":"x","label":"X"}]}]}]}"#,
    ),
    (
        "too many options of both kinds",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"e","label":"E","kind":"enum","options":[{"value":"1","label":"1"},{"value":"2","label":"2"},{"value":"3","label":"3"}]},{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"1","label":"1"},{"value":"2","label":"2"},{"value":"3","label":"3"},{"value":"4","label":"4"}]}]}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"e","label":"E","kind":"enum","options":[{"value":"1","label":"1"},{"value":"2","label":"2"}]},{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"1","label":"1"},{"value":"2","label":"2"},{"value":"3","label":"3"}]}]}],"outputs":["Fields of kind enum were cut to 2 options (fields cut: 1).","Fields of kind multi_enum were cut to 3 options (fields cut: 1)."]}"#,
    ),
    (
        "too many fields",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"1","label":"1","kind":"text"},{"name":"2","label":"2","kind":"text"},{"name":"3","label":"3","kind":"text"},{"name":"4","label":"4","kind":"text"}]}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"1","label":"1","kind":"text"},{"name":"2","label":"2","kind":"text"},{"name":"3","label":"3","kind":"text"}]}],"outputs":["An action has at most 3 fields (dropped: 1)."]}"#,
    ),
    // Prefill.
    (
        "prefill of a text",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"s","label":"S","kind":"string"},{"name":"t","label":"T","kind":"text"}],"prefill":{"t":" x ","s":""}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"s":"","t":" x "},"fields":[{"name":"s","label":"S","kind":"string"},{"name":"t","label":"T","kind":"text"}]}]}"#,
    ),
    (
        "prefill of a text with a number",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"s","label":"S","kind":"string"}],"prefill":{"s":1}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"s","label":"S","kind":"string"}]}],"outputs":["Prefill values were dropped (1): field \"s\" of action \"a\" (not a text)."]}"#,
    ),
    (
        "prefill of numbers",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"i","label":"I","kind":"integer"},{"name":"n","label":"N","kind":"number"},{"name":"b","label":"B","kind":"boolean"}],"prefill":{"i":-1,"n":1.5,"b":false}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"b":false,"i":-1,"n":1.5},"fields":[{"name":"i","label":"I","kind":"integer"},{"name":"n","label":"N","kind":"number"},{"name":"b","label":"B","kind":"boolean"}]}]}"#,
    ),
    (
        "booleans and fractions are no integers",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"i","label":"I","kind":"integer"},{"name":"n","label":"N","kind":"number"},{"name":"b","label":"B","kind":"boolean"}],"prefill":{"i":1.0,"n":true,"b":0}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"i","label":"I","kind":"integer"},{"name":"n","label":"N","kind":"number"},{"name":"b","label":"B","kind":"boolean"}]}],"outputs":["Prefill values were dropped (3): field \"b\" of action \"a\" (not a boolean); field \"i\" of action \"a\" (not an integer); field \"n\" of action \"a\" (not a number)."]}"#,
    ),
    (
        "an integer is a number",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"n","label":"N","kind":"number"}],"prefill":{"n":1}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"n":1},"fields":[{"name":"n","label":"N","kind":"number"}]}]}"#,
    ),
    (
        "prefill of an enum",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"e","label":"E","kind":"enum","options":[{"value":"x","label":"X"}]},{"name":"f","label":"F","kind":"enum","options":[{"value":"x","label":"X"}]},{"name":"g","label":"G","kind":"enum","options":[{"value":"x","label":"X"}]}],"prefill":{"e":"x","f":" x","g":1}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"e":"x"},"fields":[{"name":"e","label":"E","kind":"enum","options":[{"value":"x","label":"X"}]},{"name":"f","label":"F","kind":"enum","options":[{"value":"x","label":"X"}]},{"name":"g","label":"G","kind":"enum","options":[{"value":"x","label":"X"}]}]}],"outputs":["Prefill values were dropped (2): field \"f\" of action \"a\" (not one of the options); field \"g\" of action \"a\" (not a text)."]}"#,
    ),
    (
        "prefill of an option that was cut",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"e","label":"E","kind":"enum","options":[{"value":"1","label":"1"},{"value":"2","label":"2"},{"value":"3","label":"3"}]}],"prefill":{"e":"3"}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"e","label":"E","kind":"enum","options":[{"value":"1","label":"1"},{"value":"2","label":"2"}]}]}],"outputs":["Fields of kind enum were cut to 2 options (fields cut: 1).","Prefill values were dropped (1): field \"e\" of action \"a\" (not one of the options)."]}"#,
    ),
    (
        "prefill of a choice of several",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"x","label":"X"},{"value":"y","label":"Y"}]}],"prefill":{"m":["y","x"]}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"m":["y","x"]},"fields":[{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"x","label":"X"},{"value":"y","label":"Y"}]}]}]}"#,
    ),
    (
        "prefill of a choice of none",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"x","label":"X"}]}],"prefill":{"m":[]}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"m":[]},"fields":[{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"x","label":"X"}]}]}]}"#,
    ),
    (
        "prefill that is no list of options",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"l","label":"L","kind":"multi_enum","options":[{"value":"x","label":"X"}]},{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"x","label":"X"}]},{"name":"n","label":"N","kind":"multi_enum","options":[{"value":"x","label":"X"}]}],"prefill":{"l":"x","m":[1],"n":["x","z"]}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"l","label":"L","kind":"multi_enum","options":[{"value":"x","label":"X"}]},{"name":"m","label":"M","kind":"multi_enum","options":[{"value":"x","label":"X"}]},{"name":"n","label":"N","kind":"multi_enum","options":[{"value":"x","label":"X"}]}]}],"outputs":["Prefill values were dropped (3): field \"l\" of action \"a\" (not a list); field \"m\" of action \"a\" (not a list of texts); field \"n\" of action \"a\" (not all are options)."]}"#,
    ),
    (
        "prefill of unknown fields: three are named",
        r#"{"next_actions":[{"action_id":"a","label":"A","prefill":{"d":1,"c":1,"b":1,"a":1}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","fields":[],"prefill":{}}],"outputs":["Prefill values were dropped (4): field \"a\" of action \"a\" (unknown field); field \"b\" of action \"a\" (unknown field); field \"c\" of action \"a\" (unknown field); and 1 more."]}"#,
    ),
    (
        "names of prefill are not trimmed",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"s","label":"S","kind":"string"}],"prefill":{" s":"x"}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{},"fields":[{"name":"s","label":"S","kind":"string"}]}],"outputs":["Prefill values were dropped (1): field \" s\" of action \"a\" (unknown field)."]}"#,
    ),
    (
        "of fields with the same name the last one counts",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"s","label":"S","kind":"string"},{"name":"s","label":"S","kind":"integer"}],"prefill":{"s":1}}]}"#,
        r#"{"next_actions":[{"action_id":"a","label":"A","kind":"form","prefill":{"s":1},"fields":[{"name":"s","label":"S","kind":"string"},{"name":"s","label":"S","kind":"integer"}]}]}"#,
    ),
    (
        "prefill that is a list",
        r#"{"next_actions":[{"action_id":"a","label":"A","prefill":[]}]}"#,
        r#"{"error":"next_actions[0].prefill: invalid type: sequence, expected a map"}"#,
    ),
    // Lists in the place of objects.
    (
        "an output that is a list",
        r#"{"outputs":[["markdown","a"]]}"#,
        r#"{"error":"outputs[0]: this is not an object"}"#,
    ),
    (
        "a column that is a list",
        r#"{"outputs":[{"kind":"table","columns":[["a","A"]],"rows":[]}]}"#,
        r#"{"error":"outputs[0].columns[0]: this is not an object"}"#,
    ),
    (
        "an action that is a list",
        r#"{"next_actions":[["a","A"]]}"#,
        r#"{"error":"next_actions[0]: this is not an object"}"#,
    ),
    (
        "an option that is a list",
        r#"{"next_actions":[{"action_id":"a","label":"A","fields":[{"name":"n","label":"N","kind":"enum","options":[["x","X"]]}]}]}"#,
        r#"{"error":"next_actions[0].fields[0].options[0]: this is not an object"}"#,
    ),
    (
        "an artifact that is a list",
        r#"{"artifacts":[["output/a",1]]}"#,
        r#"{"error":"artifacts[0]: this is not an object"}"#,
    ),
];
