//! Verifies AWS Signature Version 4 with an implementation that is independent of the product's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::{HeaderMap, Method, Uri};
use ring::{digest, hmac};

/// A known key.
pub struct Key<'a> {
    pub id: &'a str,
    pub secret: &'a str,
    pub region: &'a str,
    pub service: &'a str,
}

/// Verifies that the request was signed with the key; the error is the reason if not.
pub fn verify(
    key: &Key<'_>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), String> {
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.map(str::trim).ok_or_else(|| format!("no {name}"))
    };
    let parts = header("authorization")?.strip_prefix("AWS4-HMAC-SHA256 ").ok_or("not signed")?;
    let parts: BTreeMap<_, _> = parts.split(", ").filter_map(|part| part.split_once('=')).collect();
    let part = |name: &str| parts.get(name).copied().ok_or_else(|| format!("no {name}"));
    let time = header("x-amz-date")?;
    let day = time.get(..8).ok_or("no day")?;
    let scope = format!("{day}/{}/{}/aws4_request", key.region, key.service);
    if part("Credential")? != format!("{}/{scope}", key.id) {
        return Err(format!("signed for {}", part("Credential")?));
    }
    let names: Vec<_> = part("SignedHeaders")?.split(';').collect();
    if !names.is_sorted() || !names.contains(&"host") || !names.contains(&"x-amz-date") {
        return Err(format!("signed are {names:?}"));
    }
    let secret_headers = headers.keys().map(http::HeaderName::as_str);
    if let Some(open) =
        secret_headers.filter(|name| name.starts_with("x-amz-")).find(|name| !names.contains(name))
    {
        return Err(format!("{open} is not signed"));
    }

    // The path is encoded twice, except for S3.
    let mut canonical = format!("{method}\n{}\n{}\n", uri.path().replace('%', "%25"), query(uri)?);
    for name in &names {
        let _ = writeln!(canonical, "{name}:{}", header(name)?);
    }
    let _ = write!(canonical, "\n{}\n{}", names.join(";"), hash(body));
    let string_to_sign =
        format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
    let first = format!("AWS4{}", key.secret).into_bytes();
    let own = [day, key.region, key.service, "aws4_request", &string_to_sign]
        .iter()
        .fold(first, |key, part| mac(&key, part));
    let (own, theirs) = (hex(&own), part("Signature")?);
    if own == theirs { Ok(()) } else { Err(format!("the signature of\n{canonical}\nis {own}")) }
}

/// The sorted query string, with everything encoded except the unreserved characters of RFC 3986.
fn query(uri: &Uri) -> Result<String, String> {
    let query = uri.query().unwrap_or_default();
    if query.contains('+') {
        return Err(format!("a plus in {query:?}: AWS takes it for a plus, others for a blank"));
    }
    let encoded = |text: &str| {
        text.bytes().fold(String::new(), |mut text, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                let _ = write!(text, "%{byte:02X}");
            }
            text
        })
    };
    let mut pairs: Vec<_> = form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| format!("{}={}", encoded(&name), encoded(&value)))
        .collect();
    pairs.sort_unstable();
    Ok(pairs.join("&"))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn the_published_example_of_aws_verifies_and_a_modified_one_does_not() {
    let key = Key {
        id: "AKIDEXAMPLE",
        secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        region: "us-east-1",
        service: "service",
    };
    let headers: HeaderMap = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("host", "example.amazonaws.com"),
        ("content-length", "13"),
        ("x-amz-date", "20150830T123600Z"),
        (
            "x-amz-content-sha256",
            "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e",
        ),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=content-length;content-type;host;x-amz-content-sha256;x-amz-date, \
             Signature=d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b",
        ),
    ]
    .into_iter()
    .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a value")))
    .collect();
    let uri = Uri::from_static("/");
    let verified = |body: &[u8]| verify(&key, &Method::POST, &uri, &headers, body);
    verified(b"Param1=value1").expect("the example");
    verified(b"Param1=value2").expect_err("another body");
}
