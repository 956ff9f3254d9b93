//! A minimal HTTP client: one request to an `http://` address, and its whole response.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Timeout of a response: a query over a day can take several seconds.
const PATIENCE: Duration = Duration::from_mins(2);

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    host: String,
    prefix: String,
}

// === impl Server ===

impl Server {
    /// Parses `http://HOST[:PORT][/PREFIX]`.
    pub fn at(url: &str) -> Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("{url}: the address must start with http://");
        };
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(!host.is_empty(), "{url}: the host is missing");
        let port =
            if host.rsplit(']').next().is_some_and(|rest| rest.contains(':')) { "" } else { ":80" };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { host: format!("{host}{port}"), prefix })
    }

    /// Sends a GET request; returns status and body.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<(u16, String)> {
        let path = format!("{path}?{}", form(parameters));
        self.send("GET", &path, "")
    }

    /// Sends a form with POST; returns status and body.
    pub fn post(&self, path: &str, parameters: &[(&str, &str)]) -> Result<(u16, String)> {
        self.send("POST", path, &form(parameters))
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let Self { host, prefix } = self;
        let request_url = || format!("http://{host}{prefix}{path}");
        let mut stream = TcpStream::connect(host).with_context(request_url)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let length = body.len();
        let request = format!(
            "{method} {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: application/json\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).with_context(request_url)?;
        read(BufReader::new(stream)).with_context(request_url)
    }
}

/// Reads a response: its status and its body.
fn read(mut from: impl BufRead) -> Result<(u16, String)> {
    let first = line(&mut from)?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("invalid status line {first:?}"))?;
    let (mut length, mut chunked) = (None, false);
    loop {
        let header = line(&mut from)?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or((&header, ""));
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(
                value.parse().with_context(|| format!("invalid Content-Length in {header:?}"))?,
            );
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        }
    }
    let mut body = Vec::new();
    if chunked {
        while chunk(&mut from, &mut body)? {}
    } else if let Some(length) = length {
        from.take(length).read_to_end(&mut body)?;
        ensure!(body.len() as u64 == length, "the response was truncated");
    } else {
        from.read_to_end(&mut body)?;
    }
    Ok((status, String::from_utf8(body).context("the response is not UTF-8")?))
}

/// Reads one chunk; returns whether another one follows.
fn chunk(from: &mut impl BufRead, body: &mut Vec<u8>) -> Result<bool> {
    let size = line(from)?;
    let digits = size.split(';').next().unwrap_or_default().trim();
    let size =
        u64::from_str_radix(digits, 16).with_context(|| format!("invalid chunk size {size:?}"))?;
    let read = from.take(size).read_to_end(body)?;
    ensure!(read as u64 == size, "the response was truncated");
    line(from)?;
    Ok(size > 0)
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut text = String::new();
    ensure!(from.read_line(&mut text)? > 0, "the response was truncated");
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

/// URL-encodes a form.
fn form(parameters: &[(&str, &str)]) -> String {
    let pairs =
        parameters.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Percent-encodes a text for a URL or a form.
pub(super) fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.extend([byte >> 4, byte & 15].map(|digit| {
                char::from_digit(digit.into(), 16).unwrap_or('0').to_ascii_uppercase()
            }));
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_invalid_ones_named() {
        let server = |host: &str, prefix: &str| Server { host: host.into(), prefix: prefix.into() };
        for (url, expected) in [
            ("http://localhost:9090", server("localhost:9090", "")),
            ("http://localhost:9090/", server("localhost:9090", "")),
            ("http://prometheus/select/0/", server("prometheus:80", "/select/0")),
            ("http://[::1]:9090/x", server("[::1]:9090", "/x")),
            ("http://[::1]", server("[::1]:80", "")),
        ] {
            assert_eq!(Server::at(url).expect(url), expected);
        }
        for url in ["https://localhost", "localhost:9090", "http://", "http:///x"] {
            assert!(Server::at(url).is_err(), "{url}");
        }
    }

    #[test]
    fn responses_are_read_chunked_with_a_length_or_to_the_end() {
        for text in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=1\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabcdefgh",
            "HTTP/1.0 200 OK\r\n\r\nabcdef",
        ] {
            assert_eq!(read(text.as_bytes()).expect(text), (200, "abcdef".to_owned()));
        }
        for text in [
            "",
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: six\r\n\r\nabcdef",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn form_fields_are_escaped() {
        assert_eq!(
            form(&[("query", "a{b=\"ä\"}"), ("n", "1.5")]),
            "query=a%7Bb%3D%22%C3%A4%22%7D&n=1.5"
        );
    }
}
