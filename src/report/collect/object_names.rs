//! Names of objects that complete a word on the command line. Errors result in no names: a shell
//! shows no message while a word is typed.

use k8s_openapi::api::{
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use plimsoll_core::api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler};

use crate::controllers::runtime::command_client::Cluster;

/// The largest number of names that are returned. Shells ask before they print as many.
pub const MAX_NAMES: usize = 500;
const PAGE_SIZE: u32 = 500;
/// Pages to read in search of names that complete the word.
const MAX_PAGES: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    Namespace,
    Pod,
    Vpa,
    Hpa,
    Wpa,
}

impl NamedKind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Namespace => ApiResource::erase::<Namespace>(&()),
            Self::Pod => ApiResource::erase::<Pod>(&()),
            Self::Vpa => ApiResource::erase::<VerticalPodAutoscaler>(&()),
            Self::Hpa => ApiResource::erase::<HorizontalPodAutoscaler>(&()),
            Self::Wpa => ApiResource::erase::<WatermarkPodAutoscaler>(&()),
        }
    }
}

pub async fn namespaces(cluster: &Cluster, word: &str) -> Vec<String> {
    let mut names = Vec::new();
    add(cluster, NamedKind::Namespace, None, &mut names, |name| matching(name, word)).await;
    sorted(names)
}

/// The objects whose `NAME` or `NAMESPACE/NAME` starts with a word, as it is accepted beside `--namespace`.
///
/// Without a namespace, a word without a slash may become either: names of the default namespace, and those
/// of all namespaces after the name of theirs. Where these are too many or must not be listed, only
/// namespaces are returned, with a slash.
pub async fn objects(
    cluster: &Cluster,
    kind: NamedKind,
    namespace: Option<&str>,
    word: &str,
) -> Vec<String> {
    let mut names = Vec::new();
    if let Some((typed, _)) = word.split_once('/') {
        if namespace.is_none_or(|namespace| namespace == typed) {
            let qualify = |name: &str| matching(&format!("{typed}/{name}"), word);
            add(cluster, kind, Some(typed), &mut names, qualify).await;
        }
        return sorted(names);
    }
    if let Some(namespace) = namespace {
        add(cluster, kind, Some(namespace), &mut names, |name| matching(name, word)).await;
        return sorted(names);
    }
    let own = &cluster.namespace;
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &kind.resource());
    let page = api.list_metadata(&ListParams::default().limit(PAGE_SIZE)).await;
    if let Ok(page) = page
        && is_last(&page.metadata)
    {
        for object in &page.items {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            names.extend(matching(&format!("{namespace}/{name}"), word));
            names.extend(matching(&name, word).filter(|_| namespace == *own));
        }
        return sorted(names);
    }
    add(cluster, kind, Some(own), &mut names, |name| matching(name, word)).await;
    let qualify = |name: &str| matching(name, word).map(|name| name + "/");
    add(cluster, NamedKind::Namespace, None, &mut names, qualify).await;
    sorted(names)
}

fn matching(name: &str, word: &str) -> Option<String> {
    name.starts_with(word).then(|| name.to_owned())
}

fn is_last(list: &kube::core::ListMeta) -> bool {
    list.continue_.as_ref().is_none_or(String::is_empty)
}

/// Adds those names of a kind that are completions, page by page, until there are enough.
async fn add(
    cluster: &Cluster,
    kind: NamedKind,
    namespace: Option<&str>,
    names: &mut Vec<String>,
    completion: impl Fn(&str) -> Option<String>,
) {
    let (client, resource) = (cluster.client.clone(), kind.resource());
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    for _ in 0..MAX_PAGES {
        let Ok(page) = api.list_metadata(&parameters).await else { return };
        names.extend(page.items.iter().filter_map(|object| completion(&object.name_any())));
        if is_last(&page.metadata) || names.len() >= MAX_NAMES {
            return;
        }
        parameters.continue_token = page.metadata.continue_;
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names.truncate(MAX_NAMES);
    names
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http::{Request, Response};
    use kube::{Client, client::Body};
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    /// A path, and the namespaces and names of its objects; `None` is an error. Every page has as many
    /// objects as requested.
    type Objects = Vec<(&'static str, Option<Vec<(String, String)>>)>;

    fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    fn respond(objects: &Objects, request: &Request<Body>) -> (u16, Value) {
        let path = request.uri().path();
        let accepted = request.headers()[http::header::ACCEPT].to_str().expect("ASCII");
        assert!(accepted.contains("as=PartialObjectMetadataList"), "only metadata is read");
        let Some(found) = objects.iter().find(|(known, _)| *known == path) else {
            return (404, json!({"kind": "Status", "status": "Failure", "code": 404}));
        };
        let Some(found) = &found.1 else {
            return (403, json!({"kind": "Status", "status": "Failure", "code": 403}));
        };
        let query = request.uri().query().unwrap_or_default();
        let limit: usize = parameter(query, "limit").expect("a limit").parse().expect("a number");
        let start: usize =
            parameter(query, "continue").map_or(0, |token| token.parse().expect("a number"));
        let end = (start + limit).min(found.len());
        let items: Vec<Value> = found[start..end]
            .iter()
            .map(|(namespace, name)| {
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": name, "namespace": namespace}})
            })
            .collect();
        let next = if end < found.len() { end.to_string() } else { String::new() };
        let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {"continue": next}, "items": items});
        (200, list)
    }

    fn cluster(objects: Objects) -> Cluster {
        let server = service_fn(move |request: Request<Body>| {
            let (code, body) = respond(&objects, &request);
            let body = Body::from(body.to_string().into_bytes());
            ready(Response::builder().status(code).body(body))
        });
        let client = Client::new(server, "shop");
        Cluster { client, address: "https://cluster".to_owned(), namespace: "shop".to_owned() }
    }

    fn objects_of(names: &[&str]) -> Vec<(String, String)> {
        let pair = |name: &&str| {
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            (namespace.to_owned(), name.to_owned())
        };
        names.iter().map(pair).collect()
    }

    const VPAS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";

    #[tokio::test]
    async fn a_word_is_completed_by_names_of_the_default_namespace_and_of_all() {
        let all = ["data/db", "shop/api", "shop/web", "shared/web"];
        let shop = "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers";
        let cluster = cluster(vec![
            (VPAS, Some(objects_of(&all))),
            (shop, Some(objects_of(&["shop/api", "shop/web"]))),
        ]);
        for (namespace, word, expected) in [
            (None, "", &["api", "data/db", "shared/web", "shop/api", "shop/web", "web"][..]),
            (None, "sh", &["shared/web", "shop/api", "shop/web"]),
            (None, "w", &["web"]),
            (None, "shop/", &["shop/api", "shop/web"]),
            (None, "shop/w", &["shop/web"]),
            (None, "data/", &[]),
            (Some("shop"), "", &["api", "web"]),
            (Some("shop"), "shop/w", &["shop/web"]),
            (Some("data"), "shop/w", &[]),
            (Some("nothing"), "", &[]),
        ] {
            let found = objects(&cluster, NamedKind::Vpa, namespace, word).await;
            assert_eq!(found, expected, "{namespace:?} {word:?}");
        }
        assert!(objects(&cluster, NamedKind::Wpa, None, "").await.is_empty(), "it is not served");
    }

    #[tokio::test]
    async fn namespaces_stand_for_objects_that_cannot_be_listed_or_are_too_many() {
        let namespaces = ("/api/v1/namespaces", Some(objects_of(&["data", "shop", "shared"])));
        let own =
            ("/api/v1/namespaces/shop/pods", Some(objects_of(&["shop/share-0", "shop/web-0"])));
        let many: Vec<(String, String)> =
            (0..501).map(|pod| ("data".to_owned(), format!("db-{pod}"))).collect();
        for all in [None, Some(many)] {
            let objects_of_cluster = vec![("/api/v1/pods", all), own.clone(), namespaces.clone()];
            let cluster = cluster(objects_of_cluster);
            let found = objects(&cluster, NamedKind::Pod, None, "sh").await;
            assert_eq!(found, ["share-0", "shared/", "shop/"]);
        }
    }

    #[tokio::test]
    async fn names_are_found_on_later_pages_and_limited() {
        let pod = |at: usize| {
            ("shop".to_owned(), format!("{}-{at:04}", if at < 1200 { "api" } else { "web" }))
        };
        let path = "/api/v1/namespaces/shop/pods";
        let cluster = cluster(vec![(path, Some((0..1201).map(pod).collect()))]);
        let found = objects(&cluster, NamedKind::Pod, Some("shop"), "web").await;
        assert_eq!(found, ["web-1200"]);
        let found = objects(&cluster, NamedKind::Pod, Some("shop"), "").await;
        assert_eq!(found.len(), MAX_NAMES);
    }

    #[tokio::test]
    async fn namespaces_are_completed_and_errors_are_no_names() {
        let cluster = cluster(vec![("/api/v1/namespaces", Some(objects_of(&["data", "shop"])))]);
        assert_eq!(namespaces(&cluster, "").await, ["data", "shop"]);
        assert_eq!(namespaces(&cluster, "s").await, ["shop"]);
        let forbidden = self::cluster(vec![("/api/v1/namespaces", None)]);
        assert!(namespaces(&forbidden, "").await.is_empty());
    }
}
