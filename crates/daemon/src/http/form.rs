//! Bodies of OAuth: names and values, written as those of a URL's query are.

use axum::{
    extract::{FromRequest, Request},
    http::header::CONTENT_TYPE,
};

use super::{
    oauth::Refused,
    strict::{self, MostBytes},
};

const KIND: &str = "application/x-www-form-urlencoded";

/// The names and values of a body, in order. Those without a value are as if they were not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Returns the only value of a name.
    pub(super) fn one(&self, name: &'static str) -> Result<Option<&str>, Refused> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            return Err(Refused::invalid(format!("{name} is there more than once")));
        }
        Ok(first)
    }

    /// Returns the only value of a name that has to be there.
    pub(super) fn required(&self, name: &'static str) -> Result<&str, Refused> {
        self.one(name)?.ok_or_else(|| Refused::invalid(format!("{name} is missing")))
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reads the query of a URL.
    pub(super) fn of_query(query: &str) -> Option<Self> {
        Self::read(query.as_bytes())
    }

    fn read(body: &[u8]) -> Option<Self> {
        let pairs = body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        let mut read = Vec::new();
        for pair in pairs {
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let (name, value) = (decode(parts.next()?)?, decode(parts.next().unwrap_or_default())?);
            if !value.is_empty() {
                read.push((name, value));
            }
        }
        Some(Self(read))
    }
}

fn decode(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => 16 * digit(*rest.next()?)? + digit(*rest.next()?)?,
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16)?.try_into().ok()
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case(KIND) {
            return Err(Refused::invalid(format!("the body must be {KIND}")));
        }
        let most = request.extensions().get::<MostBytes>().copied().unwrap_or_default();
        let (_, body) = strict::read(request, most.0).await?;
        Self::read(&body).ok_or_else(|| Refused::invalid("the body cannot be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_read_as_they_were_meant() {
        let form = Form::read(b"a=1&b=x+y%2Fz&c=&d&a=2&%65=%3d&f=a=b").unwrap();
        assert_eq!(form.required("b").unwrap(), "x y/z");
        assert_eq!(form.one("e").unwrap(), Some("="));
        assert_eq!(form.one("f").unwrap(), Some("a=b"));
        assert_eq!(form.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert!(form.one("a").is_err() && form.required("c").is_err());
        assert_eq!((form.one("c").unwrap(), form.one("d").unwrap()), (None, None));
        for bad in [&b"a=%"[..], b"a=%1", b"a=%g0", b"a=%ff", b"\xff=1"] {
            assert_eq!(Form::read(bad), None);
        }
        assert_eq!(Form::read(b"").unwrap(), Form(Vec::new()));
    }
}
