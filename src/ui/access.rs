//! Who may see what: decisions without any request. Rights are those of Kubernetes: users who may list VPAs in a namespace
//! see the pages of that namespace.

use std::{collections::BTreeSet, net::IpAddr};

use http::{HeaderMap, HeaderName, header};

/// How users are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// Not at all; only on a loopback address.
    None,
    /// By a bearer token, which the API server reviews.
    Token,
    /// By headers of an authenticating proxy.
    Proxy(ProxyHeaders),
}

/// The headers of an authenticating proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaders {
    pub user: HeaderName,
    /// The header with the groups: repeated, or separated by commas.
    pub groups: HeaderName,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client.
    pub address: IpAddr,
    /// Whether it has a certificate that a CA of `--proxy-ca-file` signed.
    pub has_proxy_certificate: bool,
}

/// A user, as reviews of access take it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    /// The UID; empty if there is none.
    pub uid: String,
    /// Further attributes.
    pub extra: Vec<(String, Vec<String>)>,
}

/// What a request says about its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Everything is visible.
    Everything,
    /// A token to review.
    Token(String),
    /// A user whose rights are to be reviewed.
    User(User),
}

/// Why the user of a request is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no bearer token.
    NoToken,
    /// The request does not come from the authenticating proxy, or the proxy names no user.
    NoProxy,
}

/// The longest token that is reviewed.
const MAX_TOKEN: usize = 16 * 1024;
/// The most groups of a user.
const MAX_GROUPS: usize = 1_000;

/// What a request says about its user, if that can be believed.
pub fn claim(mode: &AuthMode, peer: Peer, headers: &HeaderMap) -> Result<Claim, Refusal> {
    match mode {
        AuthMode::None => Ok(Claim::Everything),
        AuthMode::Token => {
            let mut values = headers.get_all(header::AUTHORIZATION).iter();
            let (Some(value), None) = (values.next(), values.next()) else {
                return Err(Refusal::NoToken);
            };
            let text = value.to_str().map_err(|_| Refusal::NoToken)?;
            let (scheme, token) = text.split_once(' ').ok_or(Refusal::NoToken)?;
            let token = token.trim();
            let is_token = scheme.eq_ignore_ascii_case("bearer")
                && !token.is_empty()
                && token.len() <= MAX_TOKEN;
            if is_token { Ok(Claim::Token(token.to_owned())) } else { Err(Refusal::NoToken) }
        }
        AuthMode::Proxy(names) => {
            if !peer.has_proxy_certificate && !peer.address.to_canonical().is_loopback() {
                return Err(Refusal::NoProxy);
            }
            let mut users = headers.get_all(&names.user).iter();
            let (Some(user), None) = (users.next(), users.next()) else {
                return Err(Refusal::NoProxy);
            };
            let name = user.to_str().map_err(|_| Refusal::NoProxy)?.trim();
            if name.is_empty() {
                return Err(Refusal::NoProxy);
            }
            let groups = headers.get_all(&names.groups).iter();
            let groups = groups.filter_map(|value| value.to_str().ok());
            let groups = groups.flat_map(|value| value.split(',')).map(str::trim);
            let groups = groups.filter(|group| !group.is_empty()).take(MAX_GROUPS);
            Ok(Claim::User(User {
                name: name.to_owned(),
                groups: groups.map(ToOwned::to_owned).collect(),
                ..User::default()
            }))
        }
    }
}

/// The namespaces that a user may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All, and what belongs to no namespace.
    All,
    /// These.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// Whether a namespace may be seen.
    pub fn allows(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(allowed) => allowed.contains(namespace),
        }
    }

    /// Whether everything may be seen.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Whether a server on a loopback address answers a request for this host. Other names would be those of web sites whose
/// address changed to this machine after their scripts were loaded.
pub fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => return false,
        },
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn proxy() -> AuthMode {
        AuthMode::Proxy(ProxyHeaders {
            user: HeaderName::from_static("x-forwarded-user"),
            groups: HeaderName::from_static("x-forwarded-groups"),
        })
    }

    fn of(
        mode: &AuthMode,
        peer: &str,
        certificate: bool,
        headers: &[(&str, &str)],
    ) -> Result<Claim, Refusal> {
        let peer =
            Peer { address: peer.parse().expect("an address"), has_proxy_certificate: certificate };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        claim(mode, peer, &map)
    }

    #[test]
    fn only_one_bearer_token_counts() {
        let token = |text: &str| Ok(Claim::Token(text.to_owned()));
        for (headers, expected) in [
            (&[][..], Err(Refusal::NoToken)),
            (&[("authorization", "Bearer abc")], token("abc")),
            (&[("authorization", "bearer  abc ")], token("abc")),
            (&[("authorization", "Basic abc")], Err(Refusal::NoToken)),
            (&[("authorization", "Bearer")], Err(Refusal::NoToken)),
            (&[("authorization", "Bearer ")], Err(Refusal::NoToken)),
            (
                &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
                Err(Refusal::NoToken),
            ),
            (&[("x-forwarded-user", "admin")], Err(Refusal::NoToken)),
        ] {
            assert_eq!(of(&AuthMode::Token, "127.0.0.1", true, headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn headers_of_a_proxy_are_believed_only_with_its_certificate_or_from_loopback() {
        let ann = |groups: &[&str]| {
            let groups = groups.iter().map(|&group| group.to_owned()).collect();
            Ok(Claim::User(User { name: "ann".to_owned(), groups, ..User::default() }))
        };
        let user = ("x-forwarded-user", "ann");
        let groups = ("x-forwarded-groups", "a, b,,c");
        for (peer, certificate, headers, expected) in [
            ("10.0.0.1", false, &[user][..], Err(Refusal::NoProxy)),
            ("10.0.0.1", true, &[user], ann(&[])),
            ("127.0.0.1", false, &[user, groups], ann(&["a", "b", "c"])),
            ("::ffff:127.0.0.1", false, &[user], ann(&[])),
            ("::1", false, &[user], ann(&[])),
            ("127.0.0.1", false, &[groups], Err(Refusal::NoProxy)),
            ("127.0.0.1", false, &[user, user], Err(Refusal::NoProxy)),
            ("127.0.0.1", false, &[("x-forwarded-user", " ")], Err(Refusal::NoProxy)),
            ("127.0.0.1", false, &[("authorization", "Bearer abc")], Err(Refusal::NoProxy)),
        ] {
            assert_eq!(of(&proxy(), peer, certificate, headers), expected, "{peer} {headers:?}");
        }
    }

    #[test]
    fn hosts_of_a_loopback_server_are_loopback() {
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("127.0.0.1:1", true),
            ("127.9.9.9", true),
            ("[::1]:80", true),
            ("[::1]", true),
            ("", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("[::1]evil.example", false),
            ("10.0.0.1", false),
            ("::1", false),
        ] {
            assert_eq!(is_loopback_host(host), expected, "{host}");
        }
    }
}
