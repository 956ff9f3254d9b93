//! The paths of the page. All routes are here.

use std::fmt;

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{
    assets::{self, Asset},
    list_query::ListQuery,
};

/// The longest path with its query.
pub const MAX_URL: usize = 8 * 1024;

/// What stands in paths and queries as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// What is requested.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    Overview,
    Workloads,
    Namespace(String),
    Workload { namespace: String, kind: String, name: String },
    Autoscalers,
    Autoscaler { namespace: String, name: String },
    HeldBack,
    Preview,
    Backtests,
    Backtest(String),
    Status,
    Asset(&'static Asset),
    Livez,
    Readyz,
}

/// The form of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A page for browsers.
    #[default]
    Html,
    /// The same data as JSON.
    Json,
    /// The list as CSV.
    Csv,
}

/// A request for a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Routed {
    /// The page.
    pub route: Route,
    pub form: Form,
    pub query: ListQuery,
}

/// Why a request has no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// 400.
    BadRequest,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 414.
    UriTooLong,
    /// 308, to this path relative to the requested one.
    Redirect(String),
}

/// Text as a part of a path or query.
#[derive(Clone, Copy, Debug)]
pub struct PathSegment<'a>(pub &'a str);

impl fmt::Display for PathSegment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        utf8_percent_encode(self.0, PLAIN).fmt(f)
    }
}

/// Finds the page of a request. `base` is the path below which all pages are; proxies may have removed it.
pub fn route(
    method: &Method,
    path: &str,
    query: Option<&str>,
    base: &str,
) -> Result<Routed, RouteError> {
    if method != Method::GET && method != Method::HEAD {
        return Err(RouteError::MethodNotAllowed);
    }
    if path.len() + query.map_or(0, str::len) > MAX_URL {
        return Err(RouteError::UriTooLong);
    }
    let query = ListQuery::parse(query.unwrap_or_default())?;
    if !base.is_empty() && path == base {
        let last = base.rsplit('/').next().unwrap_or_default();
        return Err(RouteError::Redirect(format!("{}/", PathSegment(last))));
    }
    let is_below = |rest: &&str| rest.starts_with('/');
    let path = path.strip_prefix(base).filter(is_below).unwrap_or(path);
    let path = path.strip_prefix('/').ok_or(RouteError::BadRequest)?;
    let segments: Vec<String> = path.split('/').map(segment).collect::<Result<_, _>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (route, form) = find(&segments).ok_or(RouteError::NotFound)?;
    Ok(Routed { route, form, query })
}

/// Decodes a part of a path. What could leave a folder, or is no text, is refused.
fn segment(text: &str) -> Result<String, RouteError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| RouteError::BadRequest)?;
    let is_odd = |letter: char| letter.is_control() || matches!(letter, '/' | '\\');
    if matches!(&*text, "." | "..") || text.chars().any(is_odd) {
        return Err(RouteError::BadRequest);
    }
    Ok(text.into_owned())
}

fn find(segments: &[&str]) -> Option<(Route, Form)> {
    let (last, before) = segments.split_last()?;
    if let (["assets"], Some(asset)) = (before, assets::find(last)) {
        return Some((Route::Asset(asset), Form::Html));
    }
    if let (["backtest"], Some(stem)) = (before, last.strip_suffix(".html")) {
        return is_file_stem(stem).then(|| (Route::Backtest((*last).to_owned()), Form::Html));
    }
    let (name, form) = form_of(last);
    let owned = |name: &str| name.to_owned();
    let route = match (before, name) {
        ([], "" | "overview") => Route::Overview,
        ([], "workloads") => Route::Workloads,
        ([], "a") => Route::Autoscalers,
        ([], "held") => Route::HeldBack,
        ([], "preview") => Route::Preview,
        ([], "backtest") => Route::Backtests,
        ([], "status") => Route::Status,
        ([], "livez") => Route::Livez,
        ([], "readyz") => Route::Readyz,
        (["n"], namespace) if is_namespace(namespace) => Route::Namespace(owned(namespace)),
        (["w", namespace, kind], name)
            if is_namespace(namespace) && is_kind(kind) && is_name(name) =>
        {
            Route::Workload { namespace: owned(namespace), kind: owned(kind), name: owned(name) }
        }
        (["a", namespace], name) if is_namespace(namespace) && is_name(name) => {
            Route::Autoscaler { namespace: owned(namespace), name: owned(name) }
        }
        _ => return None,
    };
    let has_form = match form {
        Form::Html => true,
        Form::Json => !matches!(route, Route::Livez | Route::Readyz),
        Form::Csv => route.has_csv(),
    };
    has_form.then_some((route, form))
}

/// Splits the form off a name. `.html` names the form of a page whose own name ends like another form.
fn form_of(name: &str) -> (&str, Form) {
    let forms = [(".json", Form::Json), (".csv", Form::Csv), (".html", Form::Html)];
    let found = forms.iter().find_map(|(end, form)| Some((name.strip_suffix(end)?, *form)));
    found.unwrap_or((name, Form::Html))
}

fn is_namespace(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.len() <= 63 && text.bytes().all(is_allowed)
}

fn is_kind(text: &str) -> bool {
    !text.is_empty() && text.len() <= 63 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_name(text: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:_".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_allowed)
}

/// Whether a name can be that of a report of `--reports`.
pub fn is_file_stem(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.bytes().all(is_allowed)
}

impl Route {
    /// Whether the page is a list.
    pub fn has_csv(&self) -> bool {
        matches!(
            self,
            Self::Workloads
                | Self::Namespace(_)
                | Self::Autoscalers
                | Self::HeldBack
                | Self::Preview
        )
    }

    /// Whether the page belongs to no namespace, so that only those see it who may see all of them.
    pub fn needs_everything(&self) -> bool {
        matches!(self, Self::Backtests | Self::Backtest(_) | Self::Status)
    }

    /// The path from this page to that of the overview: all links are relative.
    pub fn root(&self) -> &'static str {
        match self {
            Self::Namespace(_) | Self::Backtest(_) => "../",
            Self::Autoscaler { .. } => "../../",
            Self::Workload { .. } => "../../../",
            _ => "./",
        }
    }

    /// The last part of the path of this page, without its form.
    pub fn last_segment(&self) -> String {
        let text = match self {
            Self::Overview => "overview",
            Self::Workloads => "workloads",
            Self::Autoscalers => "a",
            Self::HeldBack => "held",
            Self::Preview => "preview",
            Self::Backtests => "backtest",
            Self::Status => "status",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Namespace(name)
            | Self::Backtest(name)
            | Self::Workload { name, .. }
            | Self::Autoscaler { name, .. } => name,
            Self::Asset(asset) => asset.name(),
        };
        PathSegment(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(path: &str) -> Result<(Route, Form), RouteError> {
        route(&Method::GET, path, None, "").map(|routed| (routed.route, routed.form))
    }

    #[test]
    fn each_page_has_its_path() {
        let workload = |name: &str| Route::Workload {
            namespace: "shop".to_owned(),
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
        };
        for (path, page, form) in [
            ("/", Route::Overview, Form::Html),
            ("/overview.json", Route::Overview, Form::Json),
            ("/workloads", Route::Workloads, Form::Html),
            ("/workloads.csv", Route::Workloads, Form::Csv),
            ("/n/shop", Route::Namespace("shop".to_owned()), Form::Html),
            ("/w/shop/Deployment/web", workload("web"), Form::Html),
            ("/w/shop/Deployment/web.json", workload("web"), Form::Json),
            ("/w/shop/Deployment/web.json.html", workload("web.json"), Form::Html),
            ("/w/shop/Deployment/web.json.json", workload("web.json"), Form::Json),
            ("/a", Route::Autoscalers, Form::Html),
            ("/held", Route::HeldBack, Form::Html),
            ("/preview.csv", Route::Preview, Form::Csv),
            ("/backtest/last-week.html", Route::Backtest("last-week.html".to_owned()), Form::Html),
            ("/status.json", Route::Status, Form::Json),
            ("/livez", Route::Livez, Form::Html),
        ] {
            assert_eq!(of(path), Ok((page, form)), "{path}");
        }
    }

    #[test]
    fn paths_that_are_no_pages_are_refused() {
        for path in [
            "/..",
            "/../etc/passwd",
            "/n/%2e%2e",
            "/backtest/..%2fx.html",
            "/w/shop/%00/web",
            "/n/%ff",
            "/n/a%5cb",
            "/backtest/%2e%2e%2f%2e%2e%2fetc%2fpasswd.html",
            "",
        ] {
            assert_eq!(of(path), Err(RouteError::BadRequest), "{path}");
        }
        for path in [
            "/x",
            "/n",
            "/n/",
            "//",
            "/n/SHOP",
            "/n/a%20b",
            "/w/shop/web",
            "/w/shop/De-ployment/web",
            "/w/shop/Deployment/web/more",
            "/status.csv",
            "/backtest/.hidden.html",
            "/assets/x.css",
            "/w/shop/Deployment/%3Cscript%3E",
            "/livez.json",
        ] {
            assert_eq!(of(path), Err(RouteError::NotFound), "{path}");
        }
        let long = format!("/n/{}", "a".repeat(MAX_URL));
        assert_eq!(of(&long), Err(RouteError::UriTooLong));
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(route(&method, "/", None, ""), Err(RouteError::MethodNotAllowed));
        }
    }

    #[test]
    fn pages_are_below_the_base_path_whether_a_proxy_removes_it_or_not() {
        let below =
            |path: &str| route(&Method::GET, path, None, "/tools/plimsoll").map(|one| one.route);
        assert_eq!(below("/tools/plimsoll/held"), Ok(Route::HeldBack));
        assert_eq!(below("/held"), Ok(Route::HeldBack));
        assert_eq!(below("/tools/plimsoll"), Err(RouteError::Redirect("plimsoll/".to_owned())));
        assert_eq!(below("/tools/plimsollheld"), Err(RouteError::NotFound));
    }

    #[test]
    fn links_lead_from_each_page_to_the_overview() {
        for path in ["/", "/held", "/n/shop", "/a/shop/web", "/w/shop/Deployment/web"] {
            let root = of(path).expect("a page").0.root();
            let depth = path.matches('/').count() - 1;
            assert_eq!(root.matches("../").count(), depth, "{path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]
        #[test]
        fn any_path_is_a_page_or_an_error(path in "/[ -~]{0,60}", query in "[ -~]{0,60}") {
            if let Ok(routed) = route(&Method::GET, &path, Some(&query), "/base") {
                prop_assert!(!routed.route.last_segment().contains(['/', '<', '"', '\\']));
                if let Route::Backtest(name) = routed.route {
                    prop_assert!(!name.contains('/') && !name.starts_with('.'));
                }
            }
        }
    }
}
