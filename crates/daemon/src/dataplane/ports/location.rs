//! Where a sandbox's root is on our side, and where its redirects lead.
//!
//! Clients follow redirects with the headers that they have: some send an API key along to wherever
//! they are led. On the API's origin a server in a sandbox can therefore lead to its own paths only.

use axum::http::HeaderValue;

/// The same place, seen from outside and from inside.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// What stands before every path outside: `/dp/sb_…/ports/8000`, or nothing.
    prefix: String,
    port: u16,
    /// The path that is asked for, as it is inside.
    path: String,
}

impl Places {
    pub(crate) fn new(prefix: String, port: u16, path: &str) -> Self {
        Self { prefix, port, path: path.to_owned() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn inside_host(&self) -> HeaderValue {
        text(&format!("localhost:{}", self.port))
    }

    pub(super) fn inside_origin(&self) -> HeaderValue {
        text(&format!("http://localhost:{}", self.port))
    }

    /// Returns where a redirect leads outside, if it leads to the same server.
    pub(super) fn moved(&self, to: &HeaderValue) -> Option<HeaderValue> {
        let to = to.to_str().ok()?;
        // Browsers read a backslash as a slash, and leave blanks and control characters out.
        if !to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return None;
        }
        let to = self.without_own_authority(to).unwrap_or(to);
        if to.starts_with("//") || has_scheme(to) {
            return None;
        }
        let (path, rest) = to.split_at(to.find(['?', '#']).unwrap_or(to.len()));
        let path = match path {
            "" => self.path.clone(),
            path => cleaned(&self.path, path),
        };
        HeaderValue::from_str(&format!("{}{path}{rest}", self.prefix)).ok()
    }

    /// Returns where a redirect leads on an origin that is the server's own. It knows itself by
    /// another name, and may lead wherever it likes.
    pub(super) fn moved_within(&self, to: &HeaderValue) -> HeaderValue {
        let own = to.to_str().ok().and_then(|to| self.without_own_authority(to));
        own.and_then(|own| HeaderValue::from_str(own).ok()).unwrap_or_else(|| to.clone())
    }

    /// Returns the path of a URL by which the server knows itself.
    fn without_own_authority<'a>(&self, to: &'a str) -> Option<&'a str> {
        let hosts = ["localhost", "127.0.0.1", "0.0.0.0", "[::1]"];
        hosts.iter().find_map(|host| {
            let rest = to.strip_prefix(&format!("http://{host}:{}", self.port))?;
            match rest {
                "" => Some("/"),
                rest => rest.starts_with('/').then_some(rest),
            }
        })
    }
}

fn text(text: &str) -> HeaderValue {
    // It is made of a number and letters.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("localhost"))
}

fn has_scheme(to: &str) -> bool {
    let before = to.split(['/', '?', '#']).next().unwrap_or_default();
    before.contains(':')
}

/// Resolves a path against another, as browsers do. It never leads above the root.
fn cleaned(base: &str, path: &str) -> String {
    let folder = match path.strip_prefix('/') {
        Some(_) => "",
        None => base.rsplit_once('/').map_or("", |(folder, _)| folder),
    };
    let whole = format!("{folder}/{}", path.strip_prefix('/').unwrap_or(path));
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = whole.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "." if is_last => kept.push(""),
            "." => {}
            ".." => {
                kept.pop();
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_below_the_prefix_or_lead_nowhere() {
        let places = Places::new("/dp/sb/ports/80".to_owned(), 80, "/a/b");
        let rows = [
            ("/x", Some("/x")),
            ("/x?y=/../z#w", Some("/x?y=/../z#w")),
            ("c", Some("/a/c")),
            ("c/", Some("/a/c/")),
            ("../c", Some("/c")),
            ("../../../../v1/admin/keys", Some("/v1/admin/keys")),
            ("/../../../../v1/admin/keys", Some("/v1/admin/keys")),
            ("/x/%2E%2e/%2e./y", Some("/y")),
            ("/x/..", Some("/")),
            ("/x/.", Some("/x/")),
            ("?q", Some("/a/b?q")),
            ("#f", Some("/a/b#f")),
            ("", Some("/a/b")),
            ("/a//b", Some("/a//b")),
            ("http://localhost:80/x", Some("/x")),
            ("http://127.0.0.1:80", Some("/")),
            ("http://localhost:8080/x", None),
            ("http://localhost:80.evil.example/", None),
            ("http://localhost:80@evil.example/", None),
            ("https://evil.example/", None),
            ("//evil.example/", None),
            ("javascript:alert(1)", None),
            ("/\\evil.example", None),
            ("\\\\evil.example", None),
            ("/\t/evil.example", None),
            ("/.\t./x", None),
            (" //evil.example", None),
        ];
        for (to, expected) in rows {
            let moved = places.moved(&HeaderValue::from_str(to).unwrap());
            let expected = expected.map(|path| format!("/dp/sb/ports/80{path}"));
            assert_eq!(moved.map(|to| to.to_str().unwrap().to_owned()), expected, "{to:?}");
        }
    }

    #[test]
    fn on_its_own_origin_only_its_own_name_is_changed() {
        let places = Places::new(String::new(), 80, "/a/b");
        let rows = [
            ("http://localhost:80/x", "/x"),
            ("https://elsewhere.example/", "https://elsewhere.example/"),
            ("../c", "../c"),
        ];
        for (to, expected) in rows {
            let moved = places.moved_within(&HeaderValue::from_static(to));
            assert_eq!(moved.to_str().unwrap(), expected);
        }
    }
}
