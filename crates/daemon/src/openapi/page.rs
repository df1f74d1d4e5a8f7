//! The document as a page for people. It is text and links alone: no script, no picture, nothing from elsewhere.

use std::{
    fmt::{self, Write as _},
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("page.css");

/// The page, and what a browser is allowed to do on it.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) html: String,
    pub(crate) policy: String,
}

/// Returns the page. It is made once.
pub(crate) fn page() -> &'static Page {
    static PAGE: LazyLock<Page> = LazyLock::new(|| of(super::document()));
    &PAGE
}

fn of(document: &Value) -> Page {
    let mut html = String::new();
    // Writing to a text does not fail.
    let _written = write(&mut html, document);
    let style = BASE64.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    Page { html, policy }
}

fn write(html: &mut String, document: &Value) -> fmt::Result {
    let info = &document["info"];
    let title = format!("{} {}", text(&info["title"]), text(&info["version"]));
    write!(
        html,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style><h1>{title}</h1><p>{}</p>\
         <p><a href=\"/openapi.json\">openapi.json</a></p><nav>",
        marked(text(&info["description"]))
    )?;
    let tags: Vec<&str> = list(&document["tags"]).iter().map(|tag| text(&tag["name"])).collect();
    for tag in tags.iter().chain(&["Credentials", "Schemas"]) {
        write!(html, "<a href=\"#{tag}\">{tag}</a>")?;
    }
    html.push_str("</nav>");
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        write!(html, "<h2 id=\"{name}\">{name}</h2><p>{}</p>", marked(text(&tag["description"])))?;
        operations(html, document, name)?;
    }
    html.push_str("<h2 id=\"Credentials\">Credentials</h2><table>");
    for (name, scheme) in object(&document["components"]["securitySchemes"]) {
        let about = marked(text(&scheme["description"]));
        write!(html, "<tr><td><code>{}</code><td>{about}", escaped(name))?;
    }
    html.push_str("</table><h2 id=\"Schemas\">Schemas</h2>");
    for (name, schema) in object(&document["components"]["schemas"]) {
        let name = escaped(name);
        write!(html, "<details id=\"{name}\"><summary><code>{name}</code></summary>")?;
        write!(html, "{}</details>", pretty(schema))?;
    }
    html.push_str("</html>");
    Ok(())
}

/// Writes all that is about one thing.
fn operations(html: &mut String, document: &Value, tag: &str) -> fmt::Result {
    for (path, item) in object(&document["paths"]) {
        for (method, operation) in object(item) {
            if operation["tags"][0] == tag {
                write_operation(html, document, [method, path], operation)?;
            }
        }
    }
    Ok(())
}

fn write_operation(
    html: &mut String,
    document: &Value,
    [method, path]: [&str; 2],
    operation: &Value,
) -> fmt::Result {
    let id = escaped(text(&operation["operationId"]));
    let (method, path) = (method.to_uppercase(), escaped(path));
    let summary = marked(text(&operation["summary"]));
    write!(
        html,
        "<details id=\"{id}\"><summary><b>{method}</b> <code>{path}</code> \
         <span class=\"dim\">{summary}</span></summary>"
    )?;
    write!(html, "<p>Opened by: {}</p>", opened_by(operation))?;
    if !list(&operation["parameters"]).is_empty() {
        html.push_str("<table><tr><th>parameter<th>in<th>");
        for parameter in list(&operation["parameters"]) {
            let parameter = resolved(document, parameter);
            let (name, about) = (text(&parameter["name"]), text(&parameter["description"]));
            let place = text(&parameter["in"]);
            let (name, about) = (escaped(name), marked(about));
            write!(html, "<tr><td><code>{name}</code><td>{place}<td>{about}")?;
        }
        html.push_str("</table>");
    }
    for (kind, content) in object(&operation["requestBody"]["content"]) {
        write!(html, "<p>Takes <code>{}</code> {}</p>", escaped(kind), link(content))?;
        if !content["example"].is_null() {
            html.push_str(&pretty(&content["example"]));
        }
    }
    html.push_str("<table><tr><th>status<th><th>");
    for (status, answer) in object(&operation["responses"]) {
        let words = text(&operation["x-refusals"][status.as_str()]).split_whitespace();
        let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
        let answer = resolved(document, answer);
        let about = format!("{} {}", text(&answer["description"]), words.join(", "));
        let (status, about) = (escaped(status), marked(&about));
        write!(html, "<tr><td>{status}<td>{about}<td>")?;
        for (kind, content) in object(&answer["content"]) {
            write!(html, "<code>{}</code> {}", escaped(kind), link(content))?;
        }
    }
    html.push_str("</table></details>");
    Ok(())
}

/// Says what has to be shown, without the second way to show it.
fn opened_by(operation: &Value) -> String {
    let mut ways: Vec<String> = Vec::new();
    for requirement in list(&operation["security"]) {
        if object(requirement).next().is_none() {
            ways.push("a token in the first frame".to_owned());
        }
        for (scheme, words) in object(requirement).filter(|(name, _)| !name.ends_with("_header")) {
            let words: Vec<&str> = list(words).iter().map(text).collect();
            let with = if words.is_empty() { "" } else { " with " };
            ways.push(format!("a {}{with}{}", escaped(scheme), marked(&words.join(" "))));
        }
    }
    match (ways.is_empty(), text(&operation["x-credential"])) {
        (true, "path") => "what the path ends with".to_owned(),
        (true, "body") => "what stands in the body".to_owned(),
        (true, _) => "everybody".to_owned(),
        (false, _) => ways.join(", or "),
    }
}

/// Points to the schema of a body.
fn link(content: &Value) -> String {
    let schema =
        [&content["schema"], &content["x-event"]].into_iter().find_map(|it| it["$ref"].as_str());
    let name = schema.and_then(|path| path.rsplit('/').next());
    name.map(|name| format!("<a href=\"#{0}\">{0}</a>", escaped(name))).unwrap_or_default()
}

/// Follows a reference to a part that several share.
fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let path = part["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(part)
}

fn pretty(value: &Value) -> String {
    format!("<pre>{}</pre>", escaped(&format!("{value:#}")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().map(Map::iter).into_iter().flatten()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writes what stands between backticks as code.
fn marked(text: &str) -> String {
    let mut html = String::new();
    for (number, part) in escaped(text).split('`').enumerate() {
        if number % 2 == 1 {
            html.extend(["<code>", part, "</code>"]);
        } else {
            html.push_str(part);
        }
    }
    html
}
