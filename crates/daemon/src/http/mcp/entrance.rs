//! Which host a request was made for. A page whose name was made to lead to this machine has the name of its
//! own host in its requests, wherever they go.

use std::net::IpAddr;

use api::errors::ErrorCode;
use axum::http::{header::HOST, request::Parts, uri::Authority};

use crate::{http::problem::ApiError, serve::Settings};

/// The names that this server goes by. An address needs no name, and nobody else has it.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn of(settings: &Settings) -> Self {
        let urls = settings.public_url.iter().chain(&settings.allowed_origins);
        let named = urls.filter_map(|url| {
            let authority = url.split_once("://")?.1.split('/').next()?;
            Some(authority.parse::<Authority>().ok()?.host().to_ascii_lowercase())
        });
        Self(named.chain(["localhost".to_owned()]).collect())
    }

    pub(super) fn check(&self, request: &Parts) -> Result<(), ApiError> {
        let header = request.headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
        // HTTP/2 has it in another place.
        let authority = request.uri.authority().map(Authority::as_str);
        let host = header.or(authority).unwrap_or_default();
        let host = host.parse::<Authority>().map(|it| it.host().to_ascii_lowercase());
        match host {
            Ok(host) if self.has(&host) => Ok(()),
            _ => {
                let message = "this server is not called so; see public_url in the configuration";
                Err(ApiError::new(ErrorCode::Forbidden, message))
            }
        }
    }

    fn has(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok() || self.0.iter().any(|name| name == host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u06_a_name_that_was_made_to_lead_here_is_none_of_ours() {
        let settings = Settings {
            public_url: Some("https://Sandboxes.example.com:8443/x".to_owned()),
            allowed_origins: vec!["http://page.example".to_owned()],
            ..Settings::default()
        };
        let hosts = Hosts::of(&settings);
        let is_let_in = |host: &str| {
            let request = axum::http::Request::builder().header(HOST, host).body(());
            hosts.check(&request.unwrap().into_parts().0).is_ok()
        };
        let ours = ["127.0.0.1:7700", "[::1]:7700", "localhost:1", "10.0.0.7", "LOCALHOST"];
        for host in ours.into_iter().chain(["sandboxes.example.com", "page.example:80"]) {
            assert!(is_let_in(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"]
        {
            assert!(!is_let_in(host), "{host}");
        }
    }
}
